//! Packed counts: the number of packed pages that hold a message of several queues.
//!
//! A message that one queue alone holds has no count, packed or not, and so takes no room here. One
//! that several hold is counted once for each page that was packed over it; the table of bodies
//! counts its open entries.

use std::collections::BTreeMap;

use postroad_model::{MessageKey, MessageRow};
use rustc_hash::FxHashMap;

/// Records to a chunk: messages that several queues got come in rows, so a chunk is full more often
/// than not.
const CHUNK: u64 = 64;

/// Count that a message may have: beyond, it stays open in the other queues.
pub const PACKED_COUNT_MAX: u8 = u8::MAX - 1;

/// Saturated, as snapshots of earlier builds may have it: such a message stays for as long as the
/// process runs, even when all queues are through with it.
const UNCOUNTED: u8 = u8::MAX;

/// See the head of this file.
#[derive(Clone, Default)]
pub struct PackedCounts {
    /// By the message's place in its record, and by the record.
    chunks: BTreeMap<(u32, u64), [u8; CHUNK as usize]>,
}

/// The chunk of a message, and its place there; `None` for one that is only in memory.
fn place(key: MessageKey) -> Option<((u32, u64), usize)> {
    let MessageKey::Durable { position, ordinal } = key else { return None };
    Some(((ordinal, position.get() / CHUNK), (position.get() % CHUNK) as usize))
}

impl PackedCounts {
    /// How many the message has.
    pub fn of(&self, key: MessageKey) -> u8 {
        let found = place(key).and_then(|(chunk, place)| Some(self.chunks.get(&chunk)?[place]));
        found.unwrap_or(0)
    }

    /// One more.
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
        chunk[place] = match chunk[place] {
            0 => return false,
            UNCOUNTED => UNCOUNTED,
            count => count - 1,
        };
        if *chunk == [0; CHUNK as usize] {
            self.chunks.remove(&number);
        }
        true
    }

    /// Counts one more for messages of a chunk that were seen before, named by their bits: the
    /// first time counts that one, too.
    pub fn add_further(&mut self, chunk: (u32, u64), bits: u64) {
        let counts = self.chunks.entry(chunk).or_insert([0; CHUNK as usize]);
        for (_, count) in (0..).zip(counts).filter(|(bit, _)| bits >> bit & 1 == 1) {
            *count = count.saturating_add(if *count == 0 { 2 } else { 1 });
        }
    }

    /// The one of a message that is packed and lies open elsewhere, if it has none yet.
    pub fn add_only(&mut self, key: MessageKey) {
        if self.of(key) == 0 {
            self.add(key);
        }
    }

    /// Whether no message has any.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether any of these messages may have a count, without a look at each message.
    pub fn has_any(&self, row: &MessageRow) -> bool {
        let first = row.first.get();
        let last = first.saturating_add(row.records.saturating_sub(1));
        let chunks = |ordinal| (ordinal, first / CHUNK)..=(ordinal, last / CHUNK);
        !self.is_empty() && row.ordinals().any(|ordinal| self.chunks.range(chunks(ordinal)).next().is_some())
    }
}

/// Messages that were met, a bit for each: for a start, which meets all that are packed.
#[derive(Default)]
pub struct Seen {
    /// By the message's place in its record, and by the record; nothing for a chunk that was met
    /// whole, as most are.
    chunks: FxHashMap<(u32, u64), Option<Box<SeenChunk>>>,
    /// The page that was added to last, which is not among them meanwhile: the next message is
    /// mostly in it.
    current: Option<((u32, u64), Box<SeenChunk>)>,
}

/// Some messages of a chunk of [`Seen`].
struct SeenChunk {
    words: [u64; WORDS],
    /// How many.
    met: u64,
}

/// Words to a chunk of [`Seen`], of 64 messages each.
const WORDS: usize = 64;

impl SeenChunk {
    const WHOLE: SeenChunk = SeenChunk { words: [u64::MAX; WORDS], met: WORDS as u64 * CHUNK };
}

impl Seen {
    /// Marks these messages as met; reports those that were met before to `again`, by chunk and
    /// bits, and returns the number of the others.
    pub fn add(&mut self, row: &MessageRow, mut again: impl FnMut((u32, u64), u64)) -> u64 {
        row.ordinals().map(|ordinal| self.add_at(ordinal, row, &mut again)).sum()
    }

    /// The messages of the row that are in this place of their records.
    fn add_at(&mut self, ordinal: u32, row: &MessageRow, again: &mut impl FnMut((u32, u64), u64)) -> u64 {
        let (mut at, end) = (row.first.get(), row.first.get().saturating_add(row.records));
        let mut new = 0;
        while at < end {
            let place = at / CHUNK;
            let chunk = self.chunk((ordinal, place / WORDS as u64));
            let word = &mut chunk.words[place as usize % WORDS];
            let bits = below(end, place * CHUNK) & !below(at, place * CHUNK);
            let known = *word & bits;
            let met = u64::from((bits & !known).count_ones());
            *word |= bits;
            chunk.met += met;
            new += met;
            if known != 0 {
                again((ordinal, place), known);
            }
            at = (place + 1).saturating_mul(CHUNK);
        }
        new
    }

    fn chunk(&mut self, wanted: (u32, u64)) -> &mut SeenChunk {
        if self.current.as_ref().is_none_or(|(current, _)| *current != wanted) {
            self.put_back();
        }
        let Seen { chunks, current } = self;
        let (_, chunk) = current.get_or_insert_with(|| {
            let chunk = match chunks.remove(&wanted) {
                Some(known) => known.unwrap_or_else(|| Box::new(SeenChunk::WHOLE)),
                None => Box::new(SeenChunk { words: [0; WORDS], met: 0 }),
            };
            (wanted, chunk)
        });
        chunk
    }

    fn put_back(&mut self) {
        if let Some((number, chunk)) = self.current.take() {
            self.chunks.insert(number, Some(chunk).filter(|chunk| chunk.met < SeenChunk::WHOLE.met));
        }
    }

    /// Whether it was met.
    pub fn contains(&mut self, key: MessageKey) -> bool {
        self.put_back();
        let Some(((ordinal, word), bit)) = place(key) else { return false };
        let chunk = self.chunks.get(&(ordinal, word / WORDS as u64));
        chunk.is_some_and(|words| match words {
            Some(own) => own.words[word as usize % WORDS] >> bit & 1 == 1,
            None => true,
        })
    }
}

/// The bits of positions below `position`, in a word that begins with that of `start`.
fn below(position: u64, start: u64) -> u64 {
    match position.saturating_sub(start) {
        bits @ 0..CHUNK => (1 << bits) - 1,
        _ => u64::MAX,
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
    fn packed_pages_are_counted_by_message_up_to_a_bound() {
        let mut packed_counts = PackedCounts::default();
        let keys = [key(63, 0), key(64, 0), key(64, 1), key(64, 0)];
        keys.into_iter().for_each(|key| packed_counts.add(key));
        assert_eq!(
            [key(63, 0), key(64, 0), key(64, 1), key(65, 0)].map(|key| packed_counts.of(key)),
            [1, 2, 1, 0]
        );
        let removed = [key(64, 0), key(64, 0), key(64, 0), key(1000, 0), key(63, 0), key(64, 1)];
        assert_eq!(removed.map(|key| packed_counts.remove(key)), [true, true, false, false, true, true]);
        assert!(packed_counts.chunks.is_empty(), "what has none takes no room");
        let most = usize::from(PACKED_COUNT_MAX);
        (0..most).for_each(|_| packed_counts.add(key(1, 0)));
        assert_eq!(packed_counts.of(key(1, 0)), PACKED_COUNT_MAX);
        assert_eq!((0..300).filter(|_| packed_counts.remove(key(1, 0))).count(), most);
        (0..300).for_each(|_| packed_counts.add_further((0, 0), 1 << 1));
        assert_eq!(
            (0..300).filter(|_| packed_counts.remove(key(1, 0))).count(),
            300,
            "nobody knows how many"
        );
    }

    #[test]
    fn what_is_met_again_is_told() {
        let row = |first: u64, records, ordinal| MessageRow {
            records,
            ..MessageRow::of_one(Position::new(first).expect("from 1"), ordinal, 1)
        };
        let mut seen = Seen::default();
        for (case, row, new, again) in [
            ("the first", row(60, 10_000, 0), 10_000, vec![]),
            ("another place of the same records", row(60, 10, 1), 10, vec![]),
            ("over the front", row(58, 4, 0), 2, vec![((0, 0), 3 << 60)]),
            ("over the end of a chunk", row(4095, 2, 0), 0, vec![((0, 63), 1 << 63), ((0, 64), 1)]),
            ("behind all", row(10_060, 1, 0), 1, vec![]),
            ("nothing", row(1, 0, 0), 0, vec![]),
        ] {
            let mut told = Vec::new();
            let met = seen.add(&row, |chunk, bits| told.push((chunk, bits)));
            assert_eq!((met, told), (new, again), "case: {case}");
        }
        let both = MessageRow { messages: 3, ..row(65, 10, 0) };
        let mut told = Vec::new();
        let met = seen.add(&both, |chunk, bits| told.push((chunk, bits)));
        assert_eq!((met, told), (15, vec![((0, 1), 0x7fe), ((1, 1), 0x3e)]), "several of each record");
        let contains = [key(57, 0), key(58, 0), key(10_060, 0), key(10_061, 0), key(60, 1), key(74, 2)];
        assert_eq!(contains.map(|key| seen.contains(key)), [false, true, true, false, true, true]);
    }

    #[test]
    fn whether_a_row_has_any_is_told_by_chunk() {
        let mut packed_counts = PackedCounts::default();
        packed_counts.add_only(key(200, 0));
        packed_counts.add_only(key(200, 0));
        packed_counts.add_further((0, 4), 1 << 44);
        packed_counts.add_further((0, 4), 1 << 44 | 1);
        assert_eq!([200, 300, 256, 257].map(|number| packed_counts.of(key(number, 0))), [1, 3, 2, 0]);
        let has = |first: u64, records, ordinal| {
            let first = Position::new(first).expect("from 1");
            packed_counts.has_any(&MessageRow { records, ..MessageRow::of_one(first, ordinal, 1) })
        };
        assert_eq!(
            [has(1, 100, 0), has(1, 200, 0), has(1, 200, 1), has(400, 9, 0)],
            [false, true, false, false]
        );
    }
}
