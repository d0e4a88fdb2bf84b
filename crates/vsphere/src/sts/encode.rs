//! Bytes as text, and text as bytes, in the forms that headers and signatures want: base64 and gzip.
//!
//! Deliberately absent: decoding and compression. Nobody sends us either, and a gzip file may hold its content
//! as it is.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = (group >> (18 - 6 * place)) & 63;
            let letter = if place > chunk.len() { b'=' } else { ALPHABET[index as usize] };
            text.push(char::from(letter));
        }
    }
    text
}

/// A gzip file (RFC 1952) with the content in stored blocks (RFC 1951 §3.2.4).
pub(super) fn gzip(content: &[u8]) -> Vec<u8> {
    // Deflate, no flags, no time, unknown system.
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let mut rest = content;
    loop {
        let (block, after) = rest.split_at(rest.len().min(usize::from(u16::MAX)));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        file.push(u8::from(after.is_empty()));
        file.extend(length.to_le_bytes());
        file.extend((!length).to_le_bytes());
        file.extend(block);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    file.extend(crc32(content).to_le_bytes());
    // The length is told modulo 2³².
    file.extend((content.len() as u64 as u32).to_le_bytes());
    file
}

fn crc32(content: &[u8]) -> u32 {
    !content.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xEDB8_8320 * (sum & 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_all_paddings_is_as_the_standard_shows_it() {
        let vectors = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"];
        for (length, text) in vectors.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xbf]), "+/+/");
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    #[test]
    fn a_long_content_is_stored_in_several_blocks() {
        let content = vec![7; 70_000];
        let file = gzip(&content);
        assert_eq!(file.len(), 10 + 2 * 5 + content.len() + 8);
        assert_eq!((file[10], file[10 + 5 + 65_535]), (0, 1));
    }
}
