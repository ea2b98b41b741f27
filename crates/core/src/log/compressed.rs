//! Bodies in fewer bytes: LZ4 blocks, in records alone. Whoever holds a message holds its plain body.

use bytes::Bytes;

/// The method, as records name it: one block in the LZ4 block format, without a length or a dictionary.
pub const LZ4: u8 = 1;

/// Shorter bodies stay as they are: with their headers they take a sector as it is.
const BODY_BYTES_MIN: usize = 256;

/// Longer ones do, too: the partition's thread compresses, and others wait for it. A mebibyte takes a millisecond or two.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Less than this part is no gain worth the work of reading it back.
const GAIN_SHARE_MIN: usize = 8;

/// A byte of a block stands for no more than so many (its longest matches grow by 255 for each).
const RATIO_MAX: u64 = 255;

/// The body as a block, if that is worth it.
pub fn shorten(body: &[u8]) -> Option<Bytes> {
    if !(BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&body.len()) {
        return None;
    }
    let stored = lz4_flex::block::compress(body);
    (stored.len() + body.len() / GAIN_SHARE_MIN <= body.len()).then(|| stored.into())
}

/// The body of so many bytes that a block stands for.
///
/// # Errors
/// What is wrong: it is no block, or stands for another number of bytes. Takes no more memory than a block of its length can need.
pub fn expand(stored: &[u8], plain_bytes: u64) -> Result<Bytes, &'static str> {
    if (stored.len() as u64).saturating_mul(RATIO_MAX) < plain_bytes {
        return Err("it is too short for the length of its message");
    }
    let mut body = vec![0; plain_bytes as usize];
    match lz4_flex::block::decompress_into(stored, &mut body) {
        Ok(written) if written == body.len() => Ok(body.into()),
        Ok(_) => Err("it is shorter than its message"),
        Err(_) => Err("it is no LZ4 block of that length"),
    }
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
            let stored = shorten(&body);
            assert_eq!(stored.is_some(), shortens, "case: {name}");
            if let Some(stored) = stored {
                assert!(stored.len() < body.len(), "case: {name}");
                assert_eq!(expand(&stored, body.len() as u64), Ok(body.into()), "case: {name}");
            }
        }
    }

    #[test]
    fn a_block_that_is_not_what_it_claims_to_be_is_refused() {
        let stored = shorten(&[7; 4000]).expect("it is worth it");
        let too_short = "it is too short for the length of its message";
        let none = "it is no LZ4 block of that length";
        for (name, stored, plain_bytes, want) in [
            ("4 GiB", &stored[..], u64::from(u32::MAX), too_short),
            ("more than it has", &stored, 4001, "it is shorter than its message"),
            ("less than it has", &stored, 3999, none),
            ("cut off", &stored[..stored.len() - 3], 4000, none),
            ("nothing", &[], 1, too_short),
            ("a match ahead of everything", &[0x0f, 1, 0, 255, 255, 0], 500, none),
        ] {
            assert_eq!(expand(stored, plain_bytes), Err(want), "case: {name}");
        }
    }
}
