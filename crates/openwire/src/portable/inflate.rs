//! Bodies that their producer deflated (`jms.useCompression=true`).

use bytes::Bytes;
use miniz_oxide::inflate::{DecompressError, TINFLStatus, decompress_to_vec_zlib_with_limit};

use crate::codec::MessageKind;

/// A deflated body may grow to this: the contents of the largest frame that is accepted by default.
pub const INFLATED_BYTES_MAX: usize = 100 << 20;

/// The body as it was before its producer deflated it.
///
/// A bytes message says how long it was, in 4 bytes ahead (`ActiveMQBytesMessage.doCompress`); no
/// other kind does.
///
/// # Errors
/// The fault of the body.
pub fn inflate(kind: MessageKind, content: &Bytes) -> Result<Bytes, String> {
    inflate_to(INFLATED_BYTES_MAX, kind, content)
}

fn inflate_to(bytes_max: usize, kind: MessageKind, content: &Bytes) -> Result<Bytes, String> {
    let (announced, deflated) = match (kind, content.split_first_chunk()) {
        (MessageKind::Bytes, Some((length, rest))) => (Some(u32::from_be_bytes(*length) as usize), rest),
        (MessageKind::Bytes, None) => {
            return Err(format!("a deflated body of {} bytes has no length", content.len()));
        }
        _ => (None, &content[..]),
    };
    let bytes =
        decompress_to_vec_zlib_with_limit(deflated, bytes_max).map_err(|error| says(&error, bytes_max))?;
    match announced {
        Some(announced) if announced > bytes.len() => {
            Err(format!("a deflated body holds {} bytes, and says {announced}", bytes.len()))
        }
        // Its buffer is deflated as a whole, used or not: bytes after the length are not part of
        // the body.
        Some(announced) => Ok(Bytes::from(bytes).slice(..announced)),
        None => Ok(bytes.into()),
    }
}

fn says(error: &DecompressError, bytes_max: usize) -> String {
    match error.status {
        TINFLStatus::HasMoreOutput => format!("a deflated body holds more than {bytes_max} bytes"),
        status => format!("a deflated body is damaged: {status:?}"),
    }
}

#[cfg(test)]
mod tests {
    use miniz_oxide::deflate::compress_to_vec_zlib;

    use super::*;

    #[test]
    fn bodies_are_inflated_by_kind() {
        let deflated = compress_to_vec_zlib(b"abcabcabc", 6);
        let announced = |length: u32| [&length.to_be_bytes()[..], &deflated].concat();
        for (case, kind, content, want) in [
            ("text", MessageKind::Text, deflated.clone(), Ok(&b"abcabcabc"[..])),
            ("bytes", MessageKind::Bytes, announced(9), Ok(&b"abcabcabc"[..])),
            ("bytes of a larger buffer", MessageKind::Bytes, announced(8), Ok(b"abcabcab")),
            (
                "another length",
                MessageKind::Bytes,
                announced(10),
                Err("a deflated body holds 9 bytes, and says 10".to_owned()),
            ),
            (
                "no length",
                MessageKind::Bytes,
                vec![0],
                Err("a deflated body of 1 bytes has no length".to_owned()),
            ),
            (
                "not deflated",
                MessageKind::Text,
                b"abc".to_vec(),
                Err("a deflated body is damaged: Failed".to_owned()),
            ),
        ] {
            assert_eq!(inflate(kind, &content.into()), want.map(Bytes::from_static), "case: {case}");
        }
    }

    #[test]
    fn a_body_that_grows_beyond_the_limit_is_refused() {
        for (length, want) in [
            (4096, Ok(Bytes::from(vec![0; 4096]))),
            (4097, Err("a deflated body holds more than 4096 bytes".to_owned())),
        ] {
            let deflated = compress_to_vec_zlib(&vec![0; length], 6).into();
            assert_eq!(inflate_to(4096, MessageKind::Text, &deflated), want, "{length} bytes");
        }
    }
}
