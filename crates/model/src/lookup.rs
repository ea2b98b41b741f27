//! Maps for keys that clients choose.
//!
//! Such a map needs a random seed, or a client can choose keys that all collide. A random seed
//! gives another iteration order in each run, and a pure room must give the same effects in each
//! run. [`LookupMap`] therefore cannot be iterated, except in the order of its keys.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A map with a random seed, so its order cannot be guessed.
#[derive(Clone, Debug)]
pub struct LookupMap<K, V> {
    map: HashMap<K, V>,
}

impl<K, V> Default for LookupMap<K, V> {
    fn default() -> LookupMap<K, V> {
        LookupMap { map: HashMap::new() }
    }
}

impl<K: Eq + Hash, V> LookupMap<K, V> {
    /// The value of the key.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.map.get(key)
    }

    /// The value of the key, to change it.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.map.get_mut(key)
    }

    /// The value of the key, made by `new` on first use.
    pub fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        self.map.entry(key).or_insert_with(new)
    }

    /// Whether the key has a value.
    pub fn contains_key<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.map.contains_key(key)
    }

    /// Sets the value of the key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.map.insert(key, value)
    }

    /// Removes the key; returns its value.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.map.remove(key)
    }

    /// How many keys have a value.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether no key has a value.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The wanted keys with their values, by key. Costs a look at every key, and a sort of those
    /// wanted.
    pub fn sorted_where(&self, wanted: impl Fn(&K) -> bool) -> Vec<(&K, &V)>
    where
        K: Ord,
    {
        let mut found: Vec<(&K, &V)> = self.map.iter().filter(|(key, _)| wanted(key)).collect();
        found.sort_unstable_by_key(|(key, _)| *key);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_their_order_whatever_the_seed() {
        for _ in 0..8 {
            let mut map = LookupMap::default();
            for number in (0..100).rev() {
                map.insert(format!("{number:03}"), number);
            }
            let even: Vec<i32> =
                map.sorted_where(|key| key.ends_with('0')).iter().map(|(_, value)| **value).collect();
            assert_eq!(even, (0..10).map(|tens| tens * 10).collect::<Vec<_>>());
        }
    }
}
