//! Folds: how many folded pages hold a message that several queues got.
//!
//! A message that one queue alone holds has none, folded or not, and so takes no room here. One that several hold has a
//! fold for each page that was folded over it; the table of bodies counts the others.

use std::collections::BTreeMap;

use postroad_model::MessageKey;

/// Records to a chunk: messages that several queues got come in rows, so a chunk is full more often than not.
const CHUNK: u64 = 64;

/// Folds that a message may have: beyond, it stays open in the other queues.
pub const FOLDS_MAX: u8 = u8::MAX;

/// See the head of this file.
#[derive(Clone, Default)]
pub struct Folds {
    /// By the message's place in its record, and by the record.
    chunks: BTreeMap<(u32, u64), [u8; CHUNK as usize]>,
}

/// The chunk of a message, and its place there; `None` for one that is only in memory.
fn place(key: MessageKey) -> Option<((u32, u64), usize)> {
    let MessageKey::Durable { position, ordinal } = key else { return None };
    Some(((ordinal, position.get() / CHUNK), (position.get() % CHUNK) as usize))
}

impl Folds {
    /// How many the message has.
    pub fn of(&self, key: MessageKey) -> u8 {
        let found = place(key).and_then(|(chunk, place)| Some(self.chunks.get(&chunk)?[place]));
        found.unwrap_or(0)
    }

    /// Whether no message has any.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// One more, unless it has the most already.
    pub fn add(&mut self, key: MessageKey) {
        if let Some((chunk, place)) = place(key) {
            let count = &mut self.chunks.entry(chunk).or_insert([0; CHUNK as usize])[place];
            *count = count.saturating_add(1);
        }
    }

    /// One fewer; `false` if it had none.
    pub fn remove(&mut self, key: MessageKey) -> bool {
        let Some((number, place)) = place(key) else { return false };
        let Some(chunk) = self.chunks.get_mut(&number) else { return false };
        let Some(fewer) = chunk[place].checked_sub(1) else { return false };
        chunk[place] = fewer;
        if *chunk == [0; CHUNK as usize] {
            self.chunks.remove(&number);
        }
        true
    }

    /// Counts a row of messages, each once.
    pub fn add_all(&mut self, keys: impl Iterator<Item = MessageKey>) {
        let mut current: Option<((u32, u64), [u8; CHUNK as usize])> = None;
        for (number, place) in keys.filter_map(place) {
            let chunk = match &mut current {
                Some((known, chunk)) if *known == number => chunk,
                _ => {
                    self.put_back(current.take());
                    let chunk = self.chunks.remove(&number).unwrap_or([0; CHUNK as usize]);
                    &mut current.insert((number, chunk)).1
                }
            };
            chunk[place] = chunk[place].saturating_add(1);
        }
        self.put_back(current);
    }

    fn put_back(&mut self, chunk: Option<((u32, u64), [u8; CHUNK as usize])>) {
        self.chunks.extend(chunk);
    }

    /// Keeps the folds of messages that `is_shared` says of, given how many there are; forgets the others.
    pub fn retain(&mut self, mut is_shared: impl FnMut(MessageKey, u8) -> bool) {
        self.chunks.retain(|(ordinal, number), chunk| {
            for (place, count) in (0..).zip(chunk.iter_mut()).filter(|(_, count)| **count > 0) {
                let position = postroad_model::Position::new(number * CHUNK + place);
                let key = position.map(|position| MessageKey::Durable { position, ordinal: *ordinal });
                if !key.is_some_and(|key| is_shared(key, *count)) {
                    *count = 0;
                }
            }
            *chunk != [0; CHUNK as usize]
        });
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::Position;

    use super::*;

    fn key(position: u64, ordinal: u32) -> MessageKey {
        MessageKey::Durable { position: Position::new(position).expect("from 1"), ordinal }
    }

    #[test]
    fn folds_are_counted_by_message_up_to_a_bound() {
        let mut folds = Folds::default();
        let keys = [key(63, 0), key(64, 0), key(64, 1), key(64, 0)];
        keys.into_iter().for_each(|key| folds.add(key));
        let mut row = Folds::default();
        row.add_all(keys.into_iter());
        assert_eq!(folds.chunks, row.chunks);
        assert_eq!([key(63, 0), key(64, 0), key(64, 1), key(65, 0)].map(|key| folds.of(key)), [1, 2, 1, 0]);
        let removed = [key(64, 0), key(64, 0), key(64, 0), key(1000, 0), key(63, 0), key(64, 1)];
        assert_eq!(removed.map(|key| folds.remove(key)), [true, true, false, false, true, true]);
        assert!(folds.is_empty(), "what has none takes no room");
        (0..300).for_each(|_| folds.add(key(1, 0)));
        assert_eq!(folds.of(key(1, 0)), FOLDS_MAX);
    }

    #[test]
    fn what_is_not_shared_is_forgotten() {
        let mut folds = Folds::default();
        folds.add_all([key(1, 0), key(2, 0), key(2, 0), key(9, 3)].into_iter());
        let mut seen = Vec::new();
        folds.retain(|key, count| {
            seen.push((key, count));
            count > 1
        });
        assert_eq!(seen, [(key(1, 0), 1), (key(2, 0), 2), (key(9, 3), 1)]);
        assert_eq!((folds.of(key(2, 0)), folds.chunks.len()), (2, 1));
    }
}
