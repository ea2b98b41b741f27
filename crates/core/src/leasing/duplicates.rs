//! Duplicate detection by id: a message with an id that a queue has taken in before is not taken in
//! again for a while.
//!
//! The ids are in the log with their messages, and in snapshots: they outlive their messages and
//! restarts.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{DEDUPLICATION_MS, Deduplication, EntryTag};

/// Ids that one queue remembers: each costs some 150 bytes.
pub(crate) const REMEMBERED_MAX: usize = 100_000;

/// A message that a queue has taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its entry.
    pub tag: EntryTag,
    /// Its own id.
    pub id: u128,
    /// Until then others of its key are duplicates, in milliseconds since 1970.
    pub until_ms: u64,
}

/// The ids that a queue remembers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    by_key: BTreeMap<u128, Remembered>,
    due: BTreeSet<(u64, u128)>,
}

impl Duplicates {
    /// The message that one with this key would be a duplicate of.
    pub fn find(&self, key: u128, now_ms: u64) -> Option<Remembered> {
        self.by_key.get(&key).copied().filter(|known| now_ms < known.until_ms)
    }

    /// Whether no more ids can be remembered now.
    pub fn is_full(&self, now_ms: u64) -> bool {
        let first_ms = self.due.first().map_or(u64::MAX, |(until_ms, _)| *until_ms);
        REMEMBERED_MAX <= self.by_key.len() && now_ms < first_ms
    }

    /// A message is in the queue. Ids whose time was over when it was sent are forgotten: the same
    /// on each replay.
    pub fn note(&mut self, of: Deduplication, tag: EntryTag) {
        let sent_ms = of.until_ms.saturating_sub(DEDUPLICATION_MS);
        while let Some((until_ms, key)) =
            self.due.first().copied().filter(|(until_ms, _)| *until_ms <= sent_ms)
        {
            self.due.remove(&(until_ms, key));
            self.by_key.remove(&key);
        }
        self.remember(of.key, Remembered { tag, id: of.id, until_ms: of.until_ms });
    }

    /// As a snapshot has it.
    pub fn remember(&mut self, key: u128, message: Remembered) {
        if let Some(before) = self.by_key.insert(key, message) {
            self.due.remove(&(before.until_ms, key));
        }
        self.due.insert((message.until_ms, key));
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u128, Remembered)> {
        self.by_key.iter().map(|(key, message)| (*key, *message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(key: u128, sent_ms: u64) -> Deduplication {
        Deduplication { key, id: key + 1, until_ms: sent_ms + DEDUPLICATION_MS }
    }

    #[test]
    fn ids_are_remembered_for_their_time_and_then_forgotten() {
        let mut known = Duplicates::default();
        known.note(of(1, 1000), EntryTag(7));
        known.note(of(2, 2000), EntryTag(8));
        assert_eq!(
            known.find(1, 1000 + DEDUPLICATION_MS - 1).map(|one| (one.tag, one.id)),
            Some((EntryTag(7), 2))
        );
        assert_eq!(known.find(1, 1000 + DEDUPLICATION_MS), None);
        assert_eq!(known.find(3, 1000), None);
        known.note(of(1, 1500 + DEDUPLICATION_MS), EntryTag(9));
        known.note(of(3, 2000 + DEDUPLICATION_MS), EntryTag(10));
        assert_eq!(known.iter().map(|(key, _)| key).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(known.due.len(), 2);
    }

    #[test]
    fn a_full_window_has_room_again_once_its_oldest_ids_are_over() {
        let mut known = Duplicates::default();
        (0..REMEMBERED_MAX as u128).for_each(|key| known.note(of(key, 1000), EntryTag(0)));
        assert!(known.is_full(1000) && !known.is_full(1000 + DEDUPLICATION_MS));
    }
}
