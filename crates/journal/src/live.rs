//! Which records of a partition are live, in little memory: a bit for each, in chunks that exist only where one is set.

use postroad_model::Position;
use std::collections::BTreeMap;

/// Positions to a chunk: its 64 bytes cost little where one record in hundreds is live, and its key little where all are.
const CHUNK: u64 = 512;
const WORD: u64 = u64::BITS as u64;

type Chunk = [u64; (CHUNK / WORD) as usize];

/// Live records; one that is needed for several messages is so until the last of them is released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSet {
    chunks: BTreeMap<u64, Chunk>,
    /// Messages beyond the first, of records that have more than one.
    further: BTreeMap<Position, u64>,
}

fn place(position: Position) -> (u64, usize, u64) {
    let bit = position.get() % CHUNK;
    (position.get() / CHUNK, (bit / WORD) as usize, 1 << (bit % WORD))
}

impl LiveSet {
    /// So many more messages of the record are needed.
    pub(crate) fn add(&mut self, position: Position, messages: u64) {
        if messages == 0 {
            return;
        }
        let (chunk, word, bit) = place(position);
        let word = &mut self.chunks.entry(chunk).or_default()[word];
        let further = if *word & bit == 0 { messages - 1 } else { messages };
        *word |= bit;
        if 0 < further {
            *self.further.entry(position).or_default() += further;
        }
    }

    /// One message of each record is needed, as often as it is told. What comes in order costs little.
    pub(crate) fn add_all(&mut self, positions: impl Iterator<Item = Position>) {
        let mut current: Option<(u64, Chunk)> = None;
        for position in positions {
            let (number, word, bit) = place(position);
            let chunk = match &mut current {
                Some((known, chunk)) if *known == number => chunk,
                _ => {
                    self.chunks.extend(current.take());
                    let chunk = self.chunks.remove(&number).unwrap_or_default();
                    &mut current.insert((number, chunk)).1
                }
            };
            if chunk[word] & bit != 0 {
                *self.further.entry(position).or_default() += 1;
            }
            chunk[word] |= bit;
        }
        self.chunks.extend(current);
    }

    /// One message of the record is needed no more. False: none was.
    pub(crate) fn remove(&mut self, position: Position) -> bool {
        if let Some(further) = self.further.get_mut(&position) {
            *further -= 1;
            if *further == 0 {
                self.further.remove(&position);
            }
            return true;
        }
        let (number, word, bit) = place(position);
        let Some(chunk) = self.chunks.get_mut(&number).filter(|chunk| chunk[word] & bit != 0) else {
            return false;
        };
        chunk[word] &= !bit;
        if chunk.iter().all(|&word| word == 0) {
            self.chunks.remove(&number);
        }
        true
    }

    /// Whether a message of the record is needed.
    pub(crate) fn contains(&self, position: Position) -> bool {
        let (chunk, word, bit) = place(position);
        self.chunks.get(&chunk).is_some_and(|chunk| chunk[word] & bit != 0)
    }

    /// The records from `first` to `last`, each as if for one message.
    pub(crate) fn between(&self, first: Position, last: Position) -> LiveSet {
        let (from, _, _) = place(first);
        let (to, _, _) = place(last);
        let mut chunks: BTreeMap<u64, Chunk> =
            self.chunks.range(from..=to).map(|(&number, &chunk)| (number, chunk)).collect();
        for (&number, chunk) in &mut chunks {
            for (index, word) in chunk.iter_mut().enumerate() {
                let start = number * CHUNK + index as u64 * WORD;
                *word &= below(last.get() + 1, start) & !below(first.get(), start);
            }
        }
        chunks.retain(|_, chunk| chunk.iter().any(|&word| word != 0));
        LiveSet { chunks, further: BTreeMap::new() }
    }

    /// Whether nothing is live.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// The bits of positions below `position`, in a word that begins with that of `start`.
fn below(position: u64, start: u64) -> u64 {
    match position.saturating_sub(start) {
        bits @ 0..WORD => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(number: u64) -> Position {
        Position::new(number).unwrap()
    }

    fn set(positions: &[u64]) -> LiveSet {
        let mut set = LiveSet::default();
        positions.iter().for_each(|&number| set.add(position(number), 1));
        set
    }

    #[test]
    fn a_record_is_live_until_its_last_message_is_released() {
        let mut live = LiveSet::default();
        live.add(position(7), 2);
        live.add(position(7), 1);
        live.add(position(600), 0);
        let removed: Vec<bool> = (0..4).map(|_| live.remove(position(7))).collect();
        assert_eq!(removed, [true, true, true, false]);
        assert!(!live.contains(position(7)) && !live.remove(position(600)));
    }

    #[test]
    fn adding_many_is_adding_each() {
        let many: Vec<u64> = vec![7, 8, 8, 511, 512, 9, 5000, 8, 513];
        let mut live = set(&[9, 600]);
        live.add_all(many.iter().map(|&number| position(number)));
        let each: Vec<u64> = [9, 600].into_iter().chain(many).collect();
        assert_eq!(live, set(&each));
        live.add_all(std::iter::empty());
        assert_eq!(live, set(&each));
    }

    #[test]
    fn a_part_holds_what_lies_in_it_and_nothing_else() {
        let all: Vec<u64> = vec![1, 63, 64, 65, 511, 512, 513, 1024, 5000];
        for (name, first, last) in [
            ("one", 64, 64),
            ("to the end of a word", 1, 63),
            ("over chunks", 65, 1024),
            ("none", 66, 510),
            ("all", 1, 9000),
        ] {
            let want: Vec<u64> =
                all.iter().copied().filter(|number| (first..=last).contains(number)).collect();
            assert_eq!(set(&all).between(position(first), position(last)), set(&want), "case: {name}");
        }
        assert!(set(&all).between(position(66), position(510)).is_empty());
    }

    #[test]
    fn what_is_released_takes_no_memory() {
        let mut live = set(&(1..=2000).collect::<Vec<u64>>());
        assert!((1..=2000).all(|number| live.remove(position(number))));
        assert_eq!(live, LiveSet::default());
    }
}
