//! Keys of a run: some runs are encrypted, and get another key, or none, at some of their starts.

use postroad_journal::{KEY_BYTES, Key, KeyId, KeySet, Keys};

/// One run of this many is encrypted.
const ENCRYPTED_SHARE: u64 = 5;

/// How often a run has changed its key; `None` in runs that have none.
#[derive(Clone, Copy, Debug)]
pub struct Rotations(Option<u8>);

impl Rotations {
    /// Before the first start of this seed's run.
    pub fn of(seed: u64) -> Rotations {
        Rotations((seed % ENCRYPTED_SHARE == 3).then_some(1))
    }

    /// Whether the key can be changed at all.
    pub fn possible(self) -> bool {
        self.0.is_some_and(|count| count < u8::MAX)
    }

    /// From the next start on the key is another one.
    pub fn rotate(&mut self) {
        self.0 = self.0.and_then(|count| count.checked_add(1));
    }

    /// Whether one of these keys is not the current one.
    pub fn are_outdated(self, mut used: impl Iterator<Item = Option<KeyId>>) -> bool {
        let Some(count) = self.0 else { return false };
        let current = (!count.is_multiple_of(4)).then(|| key(count).id());
        used.any(|used| used != current)
    }

    /// All keys there were, as others may still be needed. Each fourth time nothing new is
    /// encrypted.
    pub fn keys(self) -> Keys {
        let Some(count) = self.0 else { return Keys::default() };
        let current = (!count.is_multiple_of(4)).then(|| key(count));
        Keys::new(KeySet { current, former: (1..count).map(key).collect() }, [])
    }
}

fn key(number: u8) -> Key {
    Key::new(&[number; KEY_BYTES])
}
