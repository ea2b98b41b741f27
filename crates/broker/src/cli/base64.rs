//! Base64 with padding (RFC 4648, section 4): bytes in lines of text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// As text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for piece in bytes.chunks(3) {
        let byte = |index: usize| u32::from(piece.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let place = (bits >> (18 - 6 * digit)) as usize % 64;
            text.push(if digit <= piece.len() { char::from(ALPHABET[place]) } else { '=' });
        }
    }
    text
}

/// Back to bytes; `None` if it is not what [`encode`] writes.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let padding = text.len() - text.trim_end_matches('=').len();
    if !text.len().is_multiple_of(4) || 2 < padding {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut bits: u32 = 0;
    for (index, digit) in text.trim_end_matches('=').bytes().enumerate() {
        let value = ALPHABET.iter().position(|&known| known == digit)?;
        bits = bits << 6 | value as u32;
        // Each digit but the first of four completes a byte.
        let left = (index % 4) as u32;
        if left != 0 {
            bytes.push((bits >> (6 - 2 * left)) as u8);
        }
    }
    Some(bytes).filter(|bytes| encode(bytes) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_other_text_does_not() {
        // RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!((encode(bytes.as_bytes()).as_str(), decode(text)), (text, Some(bytes.into())));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        for wrong in ["Z", "Zg", "Zg=", "Zm9v=", "Z===", "Zg==Zg==", "Zm9*", "Zh=="] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
