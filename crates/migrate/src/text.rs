//! The text of an XML file, whatever its encoding (XML 1.0, section 4.3.3 and appendix F).
//!
//! UTF-8, UTF-16 and the encodings of Western Europe are read: files of others are few, and are
//! refused by name.

use crate::MigrateError;

/// The meaning of bytes from 0x80 to 0x9f in windows-1252; in ISO-8859-1 they are control
/// characters. 0 stands for none.
const WINDOWS_1252: [u16; 32] = [
    0x20ac, 0, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021, 0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0,
    0x017d, 0, 0, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014, 0x02dc, 0x2122, 0x0161, 0x203a,
    0x0153, 0, 0x017e, 0x0178,
];

/// The text of a file.
///
/// # Errors
/// It is not in the encoding that it says, or in one that is not read.
pub fn decode(bytes: &[u8]) -> Result<String, MigrateError> {
    match bytes {
        [0xef, 0xbb, 0xbf, text @ ..] => utf_8(text),
        [0xff, 0xfe, text @ ..] => utf_16(text, u16::from_le_bytes),
        [0xfe, 0xff, text @ ..] => utf_16(text, u16::from_be_bytes),
        [b'<', 0, ..] => utf_16(bytes, u16::from_le_bytes),
        [0, b'<', ..] => utf_16(bytes, u16::from_be_bytes),
        _ => match declared(bytes).as_deref() {
            None | Some("utf-8" | "utf8" | "us-ascii" | "ascii") => utf_8(bytes),
            Some("iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin1" | "latin-1") => {
                Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
            }
            Some("windows-1252" | "cp1252") => windows_1252(bytes),
            Some(other) => Err(MigrateError::UnknownEncoding(other.to_owned())),
        },
    }
}

fn utf_8(bytes: &[u8]) -> Result<String, MigrateError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(error) => Err(MigrateError::NotUtf8(error.valid_up_to())),
    }
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, MigrateError> {
    let (units, rest) = bytes.as_chunks::<2>();
    let units = units.iter().map(|pair| unit(*pair));
    match char::decode_utf16(units).collect::<Result<String, _>>() {
        Ok(text) if rest.is_empty() => Ok(text),
        _ => Err(MigrateError::NotUtf16),
    }
}

fn windows_1252(bytes: &[u8]) -> Result<String, MigrateError> {
    let character = |byte: &u8| match byte {
        0x80..=0x9f => {
            char::from_u32(WINDOWS_1252[usize::from(byte - 0x80)].into()).filter(|found| *found != '\0')
        }
        _ => Some(char::from(*byte)),
    };
    match bytes.iter().map(character).collect() {
        Some(text) => Ok(text),
        None => Err(MigrateError::NotWindows1252),
    }
}

/// The encoding that the declaration at the beginning names, in lower case.
fn declared(bytes: &[u8]) -> Option<String> {
    let end = bytes.windows(2).take(512).position(|pair| pair == b"?>")?;
    let line = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix("<?xml")?;
    let (_, value) = line.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| "'\"".contains(*quote))?;
    Some(value[1..].split_once(quote)?.0.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_in_the_encoding_that_they_say() {
        let utf_16 = |text: &str, bytes_of: fn(u16) -> [u8; 2]| {
            text.encode_utf16().flat_map(bytes_of).collect::<Vec<u8>>()
        };
        let said = |encoding: &str, rest: &[u8]| {
            [format!("<?xml version='1.0' encoding=\"{encoding}\"?>").as_bytes(), rest].concat()
        };
        for (case, bytes, want) in [
            ("UTF-8", "<a>é</a>".as_bytes().to_vec(), Some("<a>é</a>")),
            ("with a mark", "\u{feff}<a>é</a>".as_bytes().to_vec(), Some("<a>é</a>")),
            ("UTF-16", utf_16("\u{feff}<a>é</a>", u16::to_le_bytes), Some("<a>é</a>")),
            ("the other way round", utf_16("\u{feff}<a>é</a>", u16::to_be_bytes), Some("<a>é</a>")),
            ("without a mark", utf_16("<a>é</a>", u16::to_le_bytes), Some("<a>é</a>")),
            ("half a unit", b"\xff\xfe<".to_vec(), None),
            ("Latin 1", said("ISO-8859-1", b"<a>\xe9</a>"), Some("<a>é</a>")),
            ("Windows", said("windows-1252", b"<a>\x80</a>"), Some("<a>€</a>")),
            ("a byte that Windows does not have", said("windows-1252", b"<a>\x81</a>"), None),
            ("another", said("EBCDIC-CP-BE", b"<a/>"), None),
            ("no UTF-8", b"<a>\xe9</a>".to_vec(), None),
        ] {
            let text = decode(&bytes);
            assert_eq!(text.is_ok(), want.is_some(), "case: {case}: {text:?}");
            assert!(want.is_none_or(|want| text.unwrap().ends_with(want)), "case: {case}");
        }
    }
}
