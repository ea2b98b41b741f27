//! Keys: which there are, and which of them new records are encrypted with.
//!
//! ```text
//! key (32 bytes) ─ HKDF-SHA256 ─┬─▶ its id, 4 bytes: which key a file needs stands in the file
//!                               └─ with the random salt of a file ─▶ the key of that file (AES-256-GCM)
//! ```
//! Never here: the source of keys, randomness, the encrypted data.

use ring::{aead, hkdf};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Makes these derivations differ from all others of the same key.
const EXTRACT_SALT: &[u8] = b"postroad journal";
const ID_LABEL: &[u8] = b"key id";

/// Id of a key. It follows from the key itself and reveals nothing else of it: a wrong key is
/// recognised by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(NonZeroU32);

impl KeyId {
    /// The id of this number, as files and records have it; `None` for 0, which stands for no key.
    pub(crate) fn of(number: u32) -> Option<KeyId> {
        NonZeroU32::new(number).map(KeyId)
    }

    /// The number that files and records have; 0 for no key.
    pub(crate) fn number(id: Option<KeyId>) -> u32 {
        id.map_or(0, |id| id.0.get())
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:08x}", self.0)
    }
}

/// A key. Its bytes are shown nowhere.
#[derive(Clone)]
pub struct Key {
    id: KeyId,
    secret: hkdf::Prk,
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Key({})", self.id)
    }
}

/// Output of this length, for ring.
struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    /// The key of these bytes, which must be random ones.
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Key {
        let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, EXTRACT_SALT).extract(bytes);
        let mut number = [0; 4];
        let filled = secret.expand(&[ID_LABEL], Length(number.len())).and_then(|okm| okm.fill(&mut number));
        filled.expect("four bytes are not too many for HKDF");
        // Once in four billion keys it is 0, which is taken.
        let number = NonZeroU32::new(u32::from_le_bytes(number)).unwrap_or(NonZeroU32::MAX);
        Key { id: KeyId(number), secret }
    }

    /// Which key it is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The cipher of one file of this kind and salt.
    pub(crate) fn of_file(&self, kind: &[u8], salt: u64) -> aead::LessSafeKey {
        let info = [kind, &salt.to_le_bytes()];
        let made = self.secret.expand(&info, &aead::AES_256_GCM).map(aead::UnboundKey::from);
        aead::LessSafeKey::new(made.expect("a key of AES is not too long for HKDF"))
    }
}

/// The keys of one owner: the journal's own, or a tenant's.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    /// New records are encrypted with it; without one they are not.
    pub current: Option<Key>,
    /// Records may still be encrypted with these.
    pub former: Vec<Key>,
}

/// All keys that a journal knows. Clones share them.
#[derive(Clone, Default)]
pub struct Keys(Arc<Known>);

#[derive(Clone, Default)]
struct Known {
    current: Option<KeyId>,
    /// Each key, and the one that takes its place when a record is written again.
    keys: BTreeMap<KeyId, (Key, Option<KeyId>)>,
    can_do_without: bool,
    /// Plain data counts as forged.
    requires: bool,
}

impl fmt::Debug for Keys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.ids().map(|id| id.to_string())).finish()
    }
}

impl Keys {
    /// The journal's own keys, and those of tenants. Data under a former key of a set gets its
    /// current one when it is written again, and the journal's own if the set has none.
    pub fn new(own: KeySet, tenants: impl IntoIterator<Item = KeySet>) -> Keys {
        let current = own.current.as_ref().map(Key::id);
        let mut keys = BTreeMap::new();
        for KeySet { current: first, former } in std::iter::once(own).chain(tenants) {
            let target = first.as_ref().map(Key::id).or(current);
            for key in first.into_iter().chain(former) {
                keys.entry(key.id()).or_insert((key, target));
            }
        }
        Keys(Arc::new(Known { current, keys, can_do_without: false, requires: false }))
    }

    /// For reading a journal without its keys: encrypted data stays as it is, and only its
    /// checksums are verified. Payloads and states are of no use then.
    pub fn done_without() -> Keys {
        Keys(Arc::new(Known { can_do_without: true, ..Known::default() }))
    }

    /// The same keys, for a journal in which everything must be encrypted: who can write to its
    /// disk can make a record that is not, and has no key for one that is.
    pub fn requiring_encryption(self) -> Keys {
        Keys(Arc::new(Known { requires: true, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// Whether data under this key, or without one, cannot be used, but is needed.
    pub(crate) fn lacks(&self, id: Option<KeyId>) -> bool {
        match id {
            Some(id) => !self.0.can_do_without && !self.0.keys.contains_key(&id),
            None => self.0.requires,
        }
    }

    /// The ids of all keys.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.keys.keys().copied()
    }

    /// The key of a record that has none of its own; `None` for no encryption.
    pub fn current(&self) -> Option<KeyId> {
        self.0.current
    }

    /// Whether anything new is encrypted.
    pub fn encrypts(&self) -> bool {
        self.0.keys.values().any(|(key, target)| *target == Some(key.id()))
    }

    pub(crate) fn get(&self, id: KeyId) -> Option<&Key> {
        self.0.keys.get(&id).map(|(key, _)| key)
    }

    /// The key that replaces this one (or none) when a record is written again.
    pub(crate) fn target(&self, id: Option<KeyId>) -> Option<KeyId> {
        let set = id.and_then(|id| self.0.keys.get(&id));
        set.map_or(self.0.current, |(_, target)| *target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY_BYTES])
    }

    #[test]
    fn what_is_written_again_gets_the_current_key_of_its_set() {
        let set = |current: Option<u8>, former: &[u8]| KeySet {
            current: current.map(key),
            former: former.iter().copied().map(key).collect(),
        };
        let id = |byte: u8| Some(key(byte).id());
        let all = Keys::new(set(Some(1), &[2]), [set(Some(3), &[4]), set(None, &[5])]);
        let off = Keys::new(set(None, &[1]), []);
        for (name, keys, from, want) in [
            ("what was not encrypted", &all, None, id(1)),
            ("the current one stays", &all, id(1), id(1)),
            ("a former one", &all, id(2), id(1)),
            ("a tenant's stays", &all, id(3), id(3)),
            ("a tenant's former one", &all, id(4), id(3)),
            ("a tenant that has none any more", &all, id(5), id(1)),
            ("one that is not known", &all, id(6), id(1)),
            ("encryption is off", &off, id(1), None),
        ] {
            assert_eq!(keys.target(from), want, "case: {name}");
        }
        assert_eq!((all.encrypts(), off.encrypts(), Keys::default().encrypts()), (true, false, false));
        assert_eq!((all.current(), off.current()), (id(1), None));
    }

    #[test]
    fn an_id_follows_from_the_key_and_the_key_is_not_shown() {
        assert_eq!(key(1).id(), key(1).id());
        assert_ne!(key(1).id(), key(2).id());
        assert_eq!(format!("{:?}", key(7)), format!("Key({})", key(7).id()));
    }
}
