//! Bodies that have nothing in common: a broker that compresses gains nothing by them.

use bytes::Bytes;

/// Bodies are parts of this much noise. A program that compresses looks back a hundredth of that.
const NOISE_BYTES: usize = 4 << 20;

/// Bodies of one length.
#[derive(Clone, Debug)]
pub(crate) struct Bodies {
    noise: Bytes,
    body_bytes: usize,
}

impl Bodies {
    pub(crate) fn new(body_bytes: usize) -> Bodies {
        let words = (0..(NOISE_BYTES + body_bytes).div_ceil(8) as u64).map(scattered);
        Bodies { noise: words.flat_map(u64::to_le_bytes).collect(), body_bytes }
    }

    /// The body of a message, by its number.
    pub(crate) fn of(&self, number: u64) -> Bytes {
        let begin = scattered(number) as usize % NOISE_BYTES;
        self.noise.slice(begin..begin + self.body_bytes)
    }
}

/// Numbers that follow on each other, far apart (SplitMix64).
fn scattered(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn bodies_have_their_length_and_nothing_in_common() {
        for bytes in [0, 1, 100, 5000] {
            let bodies = Bodies::new(bytes);
            assert!((0..1000).all(|number| bodies.of(number).len() == bytes), "{bytes}");
        }
        let bodies = Bodies::new(100);
        let begins: HashSet<Bytes> = (0..1000).map(|number| bodies.of(number).slice(..8)).collect();
        assert!(990 < begins.len(), "{}", begins.len());
    }
}
