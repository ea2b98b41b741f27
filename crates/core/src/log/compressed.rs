//! Compressed bodies: LZ4 blocks and Zstandard frames, in records alone. Messages in memory have
//! plain bodies.

use std::cell::RefCell;
use std::io;

use bytes::Bytes;
use postroad_model::Compression;
use zstd::bulk::{Compressor, Decompressor};

/// Shorter bodies stay as they are: with their headers they take a sector as it is.
const BODY_BYTES_MIN: usize = 256;

/// Longer ones do, too: the partition's thread compresses, and others wait for it. A mebibyte takes
/// a millisecond or two.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Less than this part is no gain worth the work of reading it back.
const GAIN_SHARE_MIN: usize = 8;

/// A byte of an LZ4 block stands for no more than this (its longest matches grow by 255 for each).
const RATIO_MAX: u64 = 255;

/// The fastest of Zstandard's usual levels.
const ZSTD_LEVEL: i32 = 1;

/// How a body was compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One block in the LZ4 block format, without a length or a dictionary.
    Lz4,
    /// One frame of Zstandard (RFC 8878), without a dictionary.
    Zstd,
}

thread_local! {
    /// Their working memory, a mebibyte or so, is made once for each thread that needs it.
    static SHORTEN: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static EXPAND: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Method {
    /// As records name it.
    pub fn number(self) -> u8 {
        match self {
            Method::Lz4 => 1,
            Method::Zstd => 2,
        }
    }

    /// By its number; `None`: this build does not know it.
    pub fn of(number: u8) -> Option<Method> {
        [Method::Lz4, Method::Zstd].into_iter().find(|method| method.number() == number)
    }

    /// The body of this size that `stored` stands for.
    ///
    /// # Errors
    /// The fault: it is not of this method, or stands for another size. Takes no more memory than a
    /// compressed body of its length can need.
    pub fn expand(self, stored: &[u8], plain_bytes: u64) -> Result<Bytes, &'static str> {
        let is_possible = match self {
            Method::Lz4 => plain_bytes <= (stored.len() as u64).saturating_mul(RATIO_MAX),
            // Its bytes may stand for any number of others.
            Method::Zstd => plain_bytes <= BODY_BYTES_MAX as u64,
        };
        if !is_possible {
            return Err("it is too short for the length of its message");
        }
        let mut body = vec![0; plain_bytes as usize];
        let written = match self {
            Method::Lz4 => lz4_flex::block::decompress_into(stored, &mut body).ok(),
            Method::Zstd => expand_zstd(stored, &mut body).ok(),
        };
        match written {
            Some(written) if written == body.len() => Ok(body.into()),
            Some(_) => Err("it is shorter than its message"),
            None => Err(match self {
                Method::Lz4 => "it is no LZ4 block of that length",
                Method::Zstd => "it is no Zstandard frame of that length",
            }),
        }
    }
}

/// The body as it is to be written, and how, if that is worth it.
pub fn shorten(body: &[u8], compression: Compression) -> Option<(Method, Bytes)> {
    let method = match compression {
        Compression::None => return None,
        Compression::Lz4 => Method::Lz4,
        Compression::Zstd => Method::Zstd,
    };
    if !(BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&body.len()) {
        return None;
    }
    let stored = match method {
        Method::Lz4 => lz4_flex::block::compress(body),
        // It fails for want of memory alone.
        Method::Zstd => shorten_zstd(body).ok()?,
    };
    let is_worth_it = stored.len() + body.len() / GAIN_SHARE_MIN <= body.len();
    is_worth_it.then(|| (method, stored.into_boxed_slice().into()))
}

fn shorten_zstd(body: &[u8]) -> io::Result<Vec<u8>> {
    SHORTEN.with_borrow_mut(|ready| match ready {
        Some(ready) => ready.compress(body),
        none => none.insert(Compressor::new(ZSTD_LEVEL)?).compress(body),
    })
}

fn expand_zstd(stored: &[u8], body: &mut [u8]) -> io::Result<usize> {
    EXPAND.with_borrow_mut(|ready| match ready {
        Some(ready) => ready.decompress_to_buffer(stored, body),
        none => none.insert(Decompressor::new()?).decompress_to_buffer(stored, body),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a pattern.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    const ALL: [(Compression, Method); 2] =
        [(Compression::Lz4, Method::Lz4), (Compression::Zstd, Method::Zstd)];

    #[test]
    fn bodies_come_back_and_only_those_that_gain_are_shortened() {
        let text: Vec<u8> =
            (0..40).flat_map(|number| format!("<item number='{number}'/>").into_bytes()).collect();
        let mostly_noise: Vec<u8> = noise(940).into_iter().chain([0; 60]).collect();
        for (name, body, shortens) in [
            ("text", text, true),
            ("one byte again and again", vec![7; BODY_BYTES_MAX], true),
            ("the shortest", vec![7; BODY_BYTES_MIN], true),
            ("shorter than that", vec![7; BODY_BYTES_MIN - 1], false),
            ("longer than the longest", vec![7; BODY_BYTES_MAX + 1], false),
            ("noise", noise(5000), false),
            ("little gain", mostly_noise, false),
        ] {
            assert_eq!(shorten(&body, Compression::None), None, "case: {name}");
            for (compression, method) in ALL {
                let stored = shorten(&body, compression);
                assert_eq!(stored.is_some(), shortens, "case: {name}, {method:?}");
                if let Some((used, stored)) = stored {
                    assert_eq!(used, method);
                    assert!(stored.len() < body.len(), "case: {name}, {method:?}");
                    assert_eq!(
                        method.expand(&stored, body.len() as u64),
                        Ok(body.clone().into()),
                        "case: {name}, {method:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn methods_have_their_numbers_and_others_are_unknown() {
        for (_, method) in ALL {
            assert_eq!(Method::of(method.number()), Some(method));
        }
        assert_eq!([0, 3, 255].map(Method::of), [None; 3]);
    }

    #[test]
    fn what_is_not_what_it_claims_to_be_is_refused() {
        let (_, block) = shorten(&[7; 4000], Compression::Lz4).expect("it is worth it");
        let (_, frame) = shorten(&[7; 4000], Compression::Zstd).expect("it is worth it");
        let (too_short, shorter) =
            ("it is too short for the length of its message", "it is shorter than its message");
        let (no_block, no_frame) =
            ("it is no LZ4 block of that length", "it is no Zstandard frame of that length");
        for (name, method, stored, plain_bytes, want) in [
            ("4 GiB", Method::Lz4, &block[..], u64::from(u32::MAX), too_short),
            ("more than it has", Method::Lz4, &block, 4001, shorter),
            ("less than it has", Method::Lz4, &block, 3999, no_block),
            ("cut off", Method::Lz4, &block[..block.len() - 3], 4000, no_block),
            ("nothing", Method::Lz4, &[], 1, too_short),
            ("a match ahead of everything", Method::Lz4, &[0x0f, 1, 0, 255, 255, 0], 500, no_block),
            ("more than any", Method::Zstd, &frame, BODY_BYTES_MAX as u64 + 1, too_short),
            ("more than it has", Method::Zstd, &frame, 4001, shorter),
            ("less than it has", Method::Zstd, &frame, 3999, no_frame),
            ("cut off", Method::Zstd, &frame[..frame.len() - 1], 4000, no_frame),
            ("nothing", Method::Zstd, &[], 1, shorter),
            ("of the other method", Method::Zstd, &block, 4000, no_frame),
        ] {
            assert_eq!(method.expand(stored, plain_bytes), Err(want), "case: {name}, {method:?}");
        }
        // A reader of one reads the next.
        assert_eq!(Method::Zstd.expand(&frame, 4000), Ok(Bytes::from_static(&[7; 4000])));
    }
}
