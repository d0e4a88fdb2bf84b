//! A stream of HTTP/2 whose requests have an `:authority` that our codec accepts.
//!
//! On a unix socket there is no host, and clients send what they like: kubelet's registration sends the path of the
//! socket with `%2F` for slashes. The codec (`h2`) resets such a stream, because a host has no such letters. Nobody
//! here reads the authority, so its letters are replaced by others in the bytes that arrive, before they are decoded.
//!
//! The replacement has as many bytes as what it replaces, so frames keep their lengths: `X` is one byte as a plain
//! letter, and also one byte, 0xfc, in HPACK's Huffman code. The decoder's table then has an entry that is at most as
//! long as the encoder's, so it forgets no entry that the encoder still refers to.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The index of `:authority` in HPACK's static table.
const AUTHORITY: u64 = 1;
const PREFACE: usize = 24;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Wraps the stream of a server's connection.
pub(super) struct AnyAuthority<S> {
    stream: S,
    frames: Frames,
}

impl<S> AnyAuthority<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AnyAuthority<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        for byte in &mut buffer.filled_mut()[before..] {
            *byte = self.frames.pass(*byte);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AnyAuthority<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in the stream of frames the next byte is.
#[derive(Default)]
struct Frames {
    /// Bytes of the preface that have passed.
    preface: usize,
    /// The head of the current frame, and how much of it has passed.
    head: [u8; 9],
    known: usize,
    /// What is left of the payload.
    payload: usize,
    /// Of a frame with headers: bytes before its block of fields, and padding behind it.
    before: usize,
    padding: usize,
    fields: Fields,
}

impl Frames {
    /// The byte that the codec is to see.
    fn pass(&mut self, byte: u8) -> u8 {
        if self.preface < PREFACE {
            self.preface += 1;
            return byte;
        }
        if self.payload == 0 {
            self.head(byte);
            return byte;
        }
        let [_, _, _, kind, flags, ..] = self.head;
        let first = self.payload == self.length();
        self.payload -= 1;
        if !matches!(kind, HEADERS | CONTINUATION) {
            return byte;
        }
        if self.before > 0 {
            if first && kind == HEADERS && flags & PADDED != 0 {
                self.padding = usize::from(byte);
            }
            self.before -= 1;
            return byte;
        }
        if self.payload < self.padding { byte } else { self.fields.pass(byte) }
    }

    fn head(&mut self, byte: u8) {
        self.head[self.known] = byte;
        self.known += 1;
        if self.known < self.head.len() {
            return;
        }
        self.known = 0;
        self.payload = self.length();
        self.before = 0;
        self.padding = 0;
        let [_, _, _, kind, flags, ..] = self.head;
        if kind == HEADERS {
            self.fields = Fields::default();
            self.before += if flags & PADDED != 0 { 1 } else { 0 };
            self.before += if flags & PRIORITY != 0 { 5 } else { 0 };
        }
    }

    fn length(&self) -> usize {
        self.head[..3].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    }
}

/// Where in a block of fields (RFC 7541) the next byte is.
#[derive(Default)]
struct Fields {
    state: State,
    number: Number,
    /// Whether the field is `:authority`.
    found: bool,
    /// Whether the string is in the Huffman code.
    coded: bool,
    /// Strings that follow the one that is being read.
    more: bool,
}

#[derive(Default, Clone, Copy)]
enum State {
    /// The first byte of a field.
    #[default]
    Field,
    /// The rest of an index; whether a literal value follows.
    Index { literal: bool },
    /// The first byte of a string.
    String,
    /// The rest of its length.
    Length,
    /// Its bytes.
    Bytes(u64),
}

/// A number of HPACK: a prefix in the first byte, then seven bits in each of the others.
#[derive(Default)]
struct Number {
    value: u64,
    shift: u32,
}

impl Number {
    /// Begins with the lower bits of a byte; `true` if that is all.
    fn begin(&mut self, byte: u8, bits: u32) -> bool {
        let mask = u8::MAX >> (8 - bits);
        *self = Self { value: u64::from(byte & mask), shift: 0 };
        byte & mask != mask
    }

    /// Goes on; `true` if that is all.
    fn go_on(&mut self, byte: u8) -> bool {
        let part = u64::from(byte & 0x7f).checked_shl(self.shift).unwrap_or(0);
        self.value = self.value.saturating_add(part);
        self.shift += 7;
        byte & 0x80 == 0
    }
}

impl Fields {
    fn pass(&mut self, byte: u8) -> u8 {
        match self.state {
            State::Field => {
                // Indexed; literal, remembered; new size of the table; literal, not remembered.
                let (bits, literal) = match byte.leading_zeros() {
                    0 => (7, false),
                    1 => (6, true),
                    2 => (5, false),
                    _ => (4, true),
                };
                self.state = State::Index { literal };
                if self.number.begin(byte, bits) {
                    self.indexed(literal);
                }
            }
            State::Index { literal } => {
                if self.number.go_on(byte) {
                    self.indexed(literal);
                }
            }
            State::String => {
                self.coded = byte & 0x80 != 0;
                self.state = State::Length;
                if self.number.begin(byte, 7) {
                    self.string();
                }
            }
            State::Length => {
                if self.number.go_on(byte) {
                    self.string();
                }
            }
            State::Bytes(left) => {
                self.state = State::Bytes(left - 1);
                let replaced = if self.coded { 0xfc } else { b'X' };
                let byte = if self.found { replaced } else { byte };
                if left == 1 {
                    self.string_ended();
                }
                return byte;
            }
        }
        byte
    }

    fn indexed(&mut self, literal: bool) {
        self.found = literal && self.number.value == AUTHORITY;
        // Without an index the name is a string too.
        self.more = literal && self.number.value == 0;
        self.state = if literal { State::String } else { State::Field };
    }

    fn string(&mut self) {
        self.state = State::Bytes(self.number.value);
        if self.number.value == 0 {
            self.string_ended();
        }
    }

    fn string_ended(&mut self) {
        self.state = if self.more { State::String } else { State::Field };
        self.more = false;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::Frames;

    /// What kubelet 1.36 sends to a registration socket, as recorded: preface and settings, then two calls, the
    /// second of which refers to the authority of the first.
    const RECORDED: &str = "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a000000040000000000\
        00000004010000000000006b0104000000018386459c62ba2d98d558598c84d83498f52fb4b31909b06931ea63115392a94f\
        41925458534d6a8b0ce298ea8b0d8599741c9d7f5f8b1d75d0620d263d4c4d65647a8b9acac8b4c7602bbafaecff40027465\
        864d833505b11f40899acac8b24d494f6a7f860befbcd34cdb0000050001000000010000000000\
        000039010400000003838645a862ba2d98d558598c84d83498f52fb4b31909b06931ea6349d2697d6d2cc6426c1a4c7ab724\
        69b51fc3c2c1c07f00860b8fbad8436f00000700010000000300000000020801";
    /// `%2Ftmp%2Fh2go%2Freg.sock`, in the Huffman code.
    const AUTHORITY: &str = "5458534d6a8b0ce298ea8b0d8599741c9d7f";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            hex.chars().map(|digit| u8::try_from(digit.to_digit(16).unwrap()).unwrap()).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    pub(in crate::serve) fn recorded() -> Vec<u8> {
        bytes(RECORDED)
    }

    fn passed(bytes: &[u8]) -> Vec<u8> {
        let mut frames = Frames::default();
        bytes.iter().map(|byte| frames.pass(*byte)).collect()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        [&head, payload].concat()
    }

    #[test]
    fn an_authority_is_replaced_and_nothing_else() {
        let replaced = RECORDED.replace(AUTHORITY, &"fc".repeat(18));
        assert_ne!(replaced, RECORDED);
        assert_eq!(passed(&recorded()), bytes(&replaced));
    }

    #[test]
    fn an_authority_is_found_in_every_form_of_a_frame() {
        let preface = [b' '; 24];
        // Remembered, not remembered and never remembered; plain letters.
        for form in [0x41, 0x01, 0x11] {
            let field = [&[0x83, 0x20, form, 2][..], b"/a"].concat();
            let replaced = [&[0x83, 0x20, form, 2][..], b"XX"].concat();
            let whole = |field: &[u8]| [&preface[..], &frame(1, 4, field)].concat();
            assert_eq!(passed(&whole(&field)), whole(&replaced));
            // Padded, with a priority, and cut into two frames.
            let padded = |field: &[u8]| {
                let payload = [&[3, 0, 0, 0, 0, 0][..], &field[..5], &[0x41, 1, b'/']].concat();
                let rest = frame(9, 4, &field[5..]);
                [&preface[..], &frame(1, 0x28, &payload), &rest].concat()
            };
            assert_eq!(passed(&padded(&field)), padded(&replaced));
        }
        // A name that is spelt out, and a value whose length needs a second byte.
        let named = [&[0x40, 1, b'a', 1, b'/', 0x41, 0x7f, 1][..], &[b'/'; 128]].concat();
        let replaced = [&[0x40, 1, b'a', 1, b'/', 0x41, 0x7f, 1][..], &[b'X'; 128]].concat();
        let whole = |field: &[u8]| [&preface[..], &frame(1, 4, field)].concat();
        assert_eq!(passed(&whole(&named)), whole(&replaced));
    }

    proptest! {
        #[test]
        fn other_frames_pass_as_they_are(kind in 2u8..9, flags: u8, payload: Vec<u8>) {
            let all = [&[b' '; 24][..], &frame(kind, flags, &payload)].concat();
            prop_assert_eq!(passed(&all), all);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            passed(&[&[b' '; 24], &frame(1, bytes.len().to_le_bytes()[0], &bytes)[..]].concat());
        }
    }
}
