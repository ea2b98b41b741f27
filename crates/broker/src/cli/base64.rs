//! Base64 with padding (RFC 4648, section 4): bytes in lines of text.

use data_encoding::BASE64;

/// As text.
pub fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Back to bytes; `None` if it is not the output of [`encode`], as several texts in a row are not.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = BASE64.decode(text.as_bytes()).ok()?;
    (encode(&bytes) == text).then_some(bytes)
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
