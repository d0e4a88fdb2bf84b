//! Texts that Kubernetes accepts as labels.

/// Whether a text can be the value of a label, or the part of a key behind its domain. An empty one is refused here,
/// although a value may be empty.
#[must_use]
pub fn is_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(inner)
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}

#[cfg(test)]
mod tests {
    use super::is_value;

    #[test]
    fn a_label_has_63_letters_digits_and_few_signs_at_most() {
        for text in ["a", "zone-1", "Zone_1.x", &"a".repeat(63)] {
            assert!(is_value(text), "{text}");
        }
        for text in ["", "-a", "a.", "Data Center", "zürich", "a/b", &"a".repeat(64)] {
            assert!(!is_value(text), "{text}");
        }
    }
}
