//! Users, as records and audits know them.

use std::num::NonZeroU64;

/// A user who has logged in, by a digest of the name: eight bytes for each message, however long
/// the name is. The digest is the same in every build, as it is kept on disk. Names are given by
/// operators, so a client cannot choose one that collides with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserKey(NonZeroU64);

impl UserKey {
    /// The key of this user; `None` for the anonymous user, who has no name.
    pub fn of(name: &str) -> Option<UserKey> {
        if name.is_empty() {
            return None;
        }
        // FNV-1a, with the finaliser of MurmurHash3 after it.
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        let mut hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, fold);
        hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ hash >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Some(UserKey(NonZeroU64::new(hash ^ hash >> 33).unwrap_or(NonZeroU64::MIN)))
    }

    /// The user of this number; `None` for zero, which stands for the anonymous user.
    pub fn from_number(number: u64) -> Option<UserKey> {
        NonZeroU64::new(number).map(UserKey)
    }

    /// The number of this user, or zero.
    pub fn number(user: Option<UserKey>) -> u64 {
        user.map_or(0, |user| user.0.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_differ_and_have_the_same_key_in_every_build() {
        let numbers = ["", "ann", "bob", "anna"].map(|name| UserKey::number(UserKey::of(name)));
        assert_eq!(numbers[0], 0, "the anonymous user");
        assert!(numbers[1] != numbers[2] && numbers[1] != numbers[3]);
        assert_eq!(UserKey::from_number(numbers[1]), UserKey::of("ann"));
        assert_eq!(numbers[1], KEPT, "{:#x}", numbers[1]);
    }

    /// Computed by another implementation of the same functions.
    const KEPT: u64 = 0x6ef4_c3ab_a814_f113;
}
