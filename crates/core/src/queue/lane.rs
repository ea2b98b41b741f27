//! A lane: entries in the order of arrival, from which any may leave.
//!
//! ```text
//!            gone     held / returned            never sent yet
//!  blocks: [ ....  |  . H . R H H . R  |  R R R R R R R  |  R R ]
//!          base                         ^cursor                 ^next
//! ```
//! Sequences are dense and rise; an empty block is dropped, so old gaps cost one pointer for
//! each [`BLOCK`] entries.

use std::collections::{BTreeMap, VecDeque};

use postroad_model::{ConsumerKey, MessageKey};

/// Entries to a block: small enough that a queue of one message stays small, large enough that
/// the block's own cost does not count.
const BLOCK: u64 = 32;

/// A queue's claim on one message.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The message.
    pub key: MessageKey,
    /// Order of arrival over all lanes of this run; not replicated.
    pub stamp: u64,
    /// How often it was delivered without success, by the log.
    pub failed_deliveries: u32,
    /// How often more, on the way to the log.
    pub uncounted_deliveries: u32,
    /// Who has it.
    pub state: State,
}

/// Who has an entry. Only `Ready` and `Leaving` follow from the log; the rest is known to this run alone.
///
/// ```text
///   Ready ──deliver──▶ Held ──settle──▶ Leaving ──record applied──▶ (removed)
///     ▲                 │ ▲                │
///     ├─────release─────┤ └──not durable───┘
///     └──due── Resting ◀┘ rejected, and to be delivered again
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Waits for a consumer.
    Ready,
    /// A consumer has it.
    Held {
        /// Which.
        by: ConsumerKey,
        /// An open transaction will settle it.
        in_transaction: bool,
    },
    /// It was delivered without success, and waits until it may be delivered again.
    Resting,
    /// Its settlement is on the way to the log, or prepared there.
    Leaving,
}

/// See the head of this file.
#[derive(Default)]
pub struct Lane {
    base: u64,
    blocks: VecDeque<Option<Box<Block>>>,
    cursor: u64,
    next: u64,
    /// What came back and is ready, with the number of its return.
    returned: BTreeMap<u64, u64>,
    /// The same by that number.
    returns: BTreeMap<u64, u64>,
    next_return: u64,
    live: u64,
}

struct Block {
    live: u32,
    entries: [Option<Entry>; BLOCK as usize],
}

impl Lane {
    /// An empty lane whose first entry gets sequence `next`.
    pub fn starting_at(next: u64) -> Lane {
        Lane { base: next - next % BLOCK, cursor: next, next, ..Lane::default() }
    }

    /// How many entries it holds.
    pub fn len(&self) -> u64 {
        self.live
    }

    /// The sequence of the next entry to come.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Appends; returns the entry's sequence.
    pub fn push(&mut self, entry: Entry) -> u64 {
        let sequence = self.next;
        self.next += 1;
        self.put(sequence, entry);
        sequence
    }

    /// Restores an entry at its old sequence, after whatever was restored before it.
    pub fn restore(&mut self, sequence: u64, entry: Entry) {
        if self.blocks.is_empty() && self.live == 0 {
            self.base = sequence - sequence % BLOCK;
            self.cursor = sequence;
        }
        self.next = self.next.max(sequence + 1);
        self.put(sequence, entry);
    }

    /// Leaves out sequences up to `next`, which were used and are gone.
    pub fn skip_to(&mut self, next: u64) {
        if self.live == 0 {
            *self = Lane::starting_at(next);
        }
        self.next = self.next.max(next);
    }

    fn put(&mut self, sequence: u64, entry: Entry) {
        if self.blocks.is_empty() {
            self.base = sequence - sequence % BLOCK;
            self.cursor = self.cursor.max(self.base);
        }
        let index = ((sequence - self.base) / BLOCK) as usize;
        while self.blocks.len() <= index {
            self.blocks.push_back(None);
        }
        let block = self.blocks[index]
            .get_or_insert_with(|| Box::new(Block { live: 0, entries: [const { None }; BLOCK as usize] }));
        block.entries[(sequence % BLOCK) as usize] = Some(entry);
        block.live += 1;
        self.live += 1;
    }

    fn slot(&self, sequence: u64) -> Option<(usize, usize)> {
        let offset = sequence.checked_sub(self.base)?;
        Some(((offset / BLOCK) as usize, (sequence % BLOCK) as usize))
    }

    /// The entry, if it is here.
    pub fn get(&self, sequence: u64) -> Option<&Entry> {
        let (block, place) = self.slot(sequence)?;
        self.blocks.get(block)?.as_ref()?.entries[place].as_ref()
    }

    /// The entry, if it is here, to change it.
    pub fn get_mut(&mut self, sequence: u64) -> Option<&mut Entry> {
        let (block, place) = self.slot(sequence)?;
        self.blocks.get_mut(block)?.as_mut()?.entries[place].as_mut()
    }

    /// Takes the entry out, and drops what blocks are empty at the front.
    pub fn remove(&mut self, sequence: u64) -> Option<Entry> {
        let (index, place) = self.slot(sequence)?;
        let slot = self.blocks.get_mut(index)?;
        let block = slot.as_mut()?;
        let entry = block.entries[place].take()?;
        block.live -= 1;
        self.live -= 1;
        if block.live == 0 {
            *slot = None;
        }
        self.forget_return(sequence);
        while let Some(None) = self.blocks.front() {
            self.blocks.pop_front();
            self.base += BLOCK;
        }
        Some(entry)
    }

    /// Marks the entry ready, in its old place.
    pub fn give_back(&mut self, sequence: u64) {
        if let Some(entry) = self.get_mut(sequence) {
            entry.state = State::Ready;
            // Behind the cursor nobody would look for it; ahead of it a consumer with a selector has been already.
            self.forget_return(sequence);
            self.returned.insert(sequence, self.next_return);
            self.returns.insert(self.next_return, sequence);
            self.next_return += 1;
        }
    }

    fn forget_return(&mut self, sequence: u64) {
        if !self.returned.is_empty()
            && let Some(number) = self.returned.remove(&sequence)
        {
            self.returns.remove(&number);
        }
    }

    /// Stamp and sequence of the oldest ready entry.
    pub fn next_ready(&mut self) -> Option<(u64, u64)> {
        let fresh = self.scan(self.cursor, |entry| entry.state == State::Ready);
        if let Some((sequence, _)) = fresh {
            self.cursor = sequence;
        }
        let returned = self.first_returned();
        let first = fresh.into_iter().chain(returned).min()?;
        Some((first.1, first.0))
    }

    fn first_returned(&mut self) -> Option<(u64, u64)> {
        while let Some((sequence, _)) = self.returned.first_key_value() {
            let sequence = *sequence;
            match self.get(sequence) {
                Some(entry) if entry.state == State::Ready => return Some((sequence, entry.stamp)),
                _ => self.forget_return(sequence),
            };
        }
        None
    }

    /// The returns from this number on, each with its sequence and entry, whatever became of it since.
    pub fn returned_since(&self, number: u64) -> impl Iterator<Item = (u64, u64, &Entry)> {
        let entry = |(number, sequence): (&u64, &u64)| Some((*number, *sequence, self.get(*sequence)?));
        self.returns.range(number..).filter_map(entry)
    }

    /// The first entry from `from` on that is ready.
    pub fn ready_from(&self, from: u64) -> Option<(u64, &Entry)> {
        let (sequence, _) = self.scan(from, |entry| entry.state == State::Ready)?;
        Some((sequence, self.get(sequence)?))
    }

    /// Stamp and sequence of the first entry from `from` on that is not leaving.
    pub fn next_visible(&self, from: u64) -> Option<(u64, u64)> {
        self.scan(from, |entry| entry.state != State::Leaving).map(|(sequence, stamp)| (stamp, sequence))
    }

    fn scan(&self, from: u64, wanted: impl Fn(&Entry) -> bool) -> Option<(u64, u64)> {
        let mut sequence = from.max(self.base);
        while sequence < self.next {
            let (block, place) = self.slot(sequence)?;
            match self.blocks.get(block) {
                Some(Some(block)) => {
                    if let Some(entry) = block.entries[place].as_ref().filter(|entry| wanted(entry)) {
                        return Some((sequence, entry.stamp));
                    }
                    sequence += 1;
                }
                _ => sequence = self.base + (block as u64 + 1) * BLOCK,
            }
        }
        None
    }

    /// Every entry with its sequence, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.blocks.iter().enumerate().filter_map(|(index, block)| Some((index, block.as_ref()?))).flat_map(
            move |(index, block)| {
                let start = self.base + index as u64 * BLOCK;
                block.entries.iter().enumerate().filter_map(move |(place, entry)| {
                    entry.as_ref().map(|entry| (start + place as u64, entry))
                })
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> Entry {
        Entry {
            key: MessageKey::Volatile(number),
            stamp: number,
            failed_deliveries: 0,
            uncounted_deliveries: 0,
            state: State::Ready,
        }
    }

    fn hold(lane: &mut Lane, sequence: u64) {
        let by = ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), 1);
        lane.get_mut(sequence).expect("entry").state = State::Held { by, in_transaction: false };
    }

    fn take(lane: &mut Lane) -> Option<u64> {
        let (_, sequence) = lane.next_ready()?;
        hold(lane, sequence);
        Some(sequence)
    }

    #[test]
    fn entries_come_in_order_of_arrival_and_returned_ones_first() {
        let mut lane = Lane::default();
        for number in 0..100 {
            lane.push(entry(number));
        }
        let first: Vec<_> = (0..50).filter_map(|_| take(&mut lane)).collect();
        assert_eq!(first, (0..50).collect::<Vec<_>>());
        for sequence in [30, 10, 20] {
            lane.give_back(sequence);
        }
        let rest: Vec<_> = (0..5).filter_map(|_| take(&mut lane)).collect();
        assert_eq!(rest, [10, 20, 30, 50, 51]);
    }

    #[test]
    fn removed_entries_leave_no_blocks_behind() {
        let mut lane = Lane::default();
        for number in 0..10_000 {
            lane.push(entry(number));
        }
        for sequence in 1..10_000 {
            assert!(lane.remove(sequence).is_some(), "entry {sequence}");
        }
        assert_eq!((lane.len(), lane.blocks.iter().flatten().count()), (1, 1));
        assert_eq!(lane.remove(0).map(|entry| entry.stamp), Some(0));
        assert_eq!((lane.len(), lane.remove(0).is_none()), (0, true));
        let sequence = lane.push(entry(7));
        assert_eq!((sequence, take(&mut lane)), (10_000, Some(10_000)));
    }

    #[test]
    fn restored_entries_keep_their_sequences() {
        let mut lane = Lane::default();
        for sequence in [70, 75, 200] {
            lane.restore(sequence, entry(sequence));
        }
        lane.skip_to(300);
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut lane)).collect();
        assert_eq!((taken, lane.push(entry(1))), (vec![70, 75, 200], 300));
    }
}
