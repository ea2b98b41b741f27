//! Which records of a partition are live, in little memory: by blocks, which exist only where some are live and some are not; where
//! all are, nothing but the ends.

use crate::retaining::block::{BLOCK, Bits, Block, SOLID, WORD};
use postroad_model::Position;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Live records; one that is needed for several messages is so until the last of them is released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSet {
    /// Those of which some records are live, and not all.
    blocks: BTreeMap<u64, Block>,
    /// Runs of blocks of which all are: the first one, and the one behind the last. No run follows another at once.
    solid: BTreeMap<u64, u64>,
    /// Messages beyond the first, of records that have more than one.
    further: BTreeMap<Position, u64>,
}

/// In which block, and where there.
fn place(position: Position) -> (u64, u16) {
    (position.get() / BLOCK, (position.get() % BLOCK) as u16)
}

impl LiveSet {
    /// So many more messages of the record are needed.
    pub(crate) fn add(&mut self, position: Position, messages: u64) {
        if messages == 0 {
            return;
        }
        let (number, place) = place(position);
        let further = if self.contains(position) {
            messages
        } else {
            let block = self.blocks.entry(number).or_insert_with(Block::empty);
            block.set(place, true);
            if block.is_solid() {
                self.blocks.remove(&number);
                self.harden(number);
            }
            messages - 1
        };
        if 0 < further {
            *self.further.entry(position).or_default() += further;
        }
    }

    /// To add many in order, which costs little, and next to nothing where they come in rows.
    pub(crate) fn filling(self) -> Filling {
        Filling { set: self, blocks: FxHashMap::default(), current: None, last: None }
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
        let (number, place) = place(position);
        self.loosen(number);
        let Some(block) = self.blocks.get_mut(&number) else { return false };
        let was_live = block.set(place, false);
        if block.is_empty() {
            self.blocks.remove(&number);
        }
        was_live
    }

    /// Whether a message of the record is needed.
    pub(crate) fn contains(&self, position: Position) -> bool {
        let (number, place) = place(position);
        match self.blocks.get(&number) {
            Some(block) => block.contains(place),
            None => self.run_of(number).is_some(),
        }
    }

    /// The records from `first` to `last`, each as if for one message.
    pub(crate) fn between(&self, first: Position, last: Position) -> LiveSet {
        let ((from, _), (to, _)) = (place(first), place(last));
        let mut part = LiveSet::default();
        for (&number, block) in self.blocks.range(from..=to) {
            if from < number && number < to {
                part.blocks.insert(number, block.clone());
                continue;
            }
            let mut bits = block.bits();
            for (index, word) in bits.iter_mut().enumerate() {
                let start = number * BLOCK + index as u64 * WORD;
                *word &= below(last.get() + 1, start) & !below(first.get(), start);
            }
            part.put(number, &bits);
        }
        let mut part = part.filling();
        let behind =
            self.solid.range(from..=to).map(|(&begin, &end)| (begin, end)).filter(|(begin, _)| from < *begin);
        let runs = self.run_of(from).into_iter().chain(behind);
        for (begin, end) in runs {
            let (begin, end) = ((begin * BLOCK).max(first.get()), (end * BLOCK).min(last.get() + 1));
            Position::new(begin)
                .into_iter()
                .for_each(|begin| part.add(begin, end.saturating_sub(begin.get()), 1));
        }
        part.done()
    }

    /// How many records are live.
    pub(crate) fn records(&self) -> u64 {
        let single: u64 = self.blocks.values().map(Block::records).sum();
        single + self.solid.iter().map(|(begin, end)| (end - begin) * BLOCK).sum::<u64>()
    }

    /// Whether nothing is live.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.solid.is_empty()
    }

    /// The run of solid blocks that has this one.
    fn run_of(&self, number: u64) -> Option<(u64, u64)> {
        let (&first, &end) = self.solid.range(..=number).next_back()?;
        (number < end).then_some((first, end))
    }

    /// A block, which is not in the table, is solid.
    fn harden(&mut self, number: u64) {
        let before = number.checked_sub(1).and_then(|before| self.run_of(before));
        let first = before.map_or(number, |(first, _)| first);
        let end = self.solid.remove(&(number + 1)).unwrap_or(number + 1);
        self.solid.insert(first, end);
    }

    /// A block that is not there, with whatever it has.
    fn put(&mut self, number: u64, bits: &Bits) {
        match Block::of(bits) {
            block if block.is_solid() => self.harden(number),
            block if block.is_empty() => {}
            block => drop(self.blocks.insert(number, block)),
        }
    }

    /// The block, which is not there afterwards.
    fn take(&mut self, number: u64) -> Bits {
        self.loosen(number);
        self.blocks.remove(&number).unwrap_or_else(Block::empty).bits()
    }

    /// A solid block comes back into the table.
    fn loosen(&mut self, number: u64) {
        let Some((first, end)) = self.run_of(number) else { return };
        self.solid.remove(&first);
        if first < number {
            self.solid.insert(first, number);
        }
        if number + 1 < end {
            self.solid.insert(number + 1, end);
        }
        self.blocks.insert(number, Block::solid());
    }
}

/// A set to which many records are added: see [`LiveSet::filling`].
pub(crate) struct Filling {
    /// The blocks that nothing was added to, and what records have beyond their first message.
    set: LiveSet,
    /// The others. `None`: all records of it are live.
    blocks: FxHashMap<u64, Option<Box<Bits>>>,
    /// The one that was added to last, which is not among them meanwhile.
    current: Option<(u64, Box<Bits>)>,
    /// The record that was added last, if it was one, and how often since: a transaction's has hundreds of messages.
    last: Option<(Position, u64)>,
}

impl Filling {
    /// So many messages of each of so many records are needed.
    pub(crate) fn add(&mut self, first: Position, records: u64, messages: u64) {
        if let Some((_, again)) = self.last.as_mut().filter(|(last, _)| records == 1 && *last == first) {
            *again += messages;
            return;
        }
        self.add_again();
        let Some(further) = messages.checked_sub(1) else { return };
        match records {
            1 => self.last = Some((first, further)),
            _ if further == 0 => {}
            _ => {
                let records = (first.get()..first.get().saturating_add(records)).filter_map(Position::new);
                records.for_each(|record| *self.set.further.entry(record).or_default() += further);
            }
        }
        let (mut at, end) = (first.get(), first.get().saturating_add(records));
        while at < end {
            let number = at / BLOCK;
            if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
                self.put_back();
                self.current = Some((number, self.take_out(number)));
            }
            let Filling { set, current: Some((_, bits)), .. } = self else { return };
            let behind = end.min((number + 1) * BLOCK);
            mark(bits, (at, behind), |position| *set.further.entry(position).or_default() += 1);
            at = behind;
        }
    }

    fn add_again(&mut self) {
        if let Some((position, again)) = self.last.take().filter(|(_, again)| 0 < *again) {
            *self.set.further.entry(position).or_default() += again;
        }
    }

    /// The set with them.
    pub(crate) fn done(mut self) -> LiveSet {
        self.add_again();
        self.put_back();
        let Filling { mut set, blocks, .. } = self;
        let mut blocks: Vec<_> = blocks.into_iter().collect();
        blocks.sort_unstable_by_key(|(number, _)| *number);
        for (number, bits) in blocks {
            set.put(number, &bits.map_or(SOLID, |bits| *bits));
        }
        set
    }

    fn take_out(&mut self, number: u64) -> Box<Bits> {
        match self.blocks.remove(&number) {
            Some(bits) => bits.unwrap_or_else(|| Box::new(SOLID)),
            None => Box::new(self.set.take(number)),
        }
    }

    fn put_back(&mut self) {
        if let Some((number, bits)) = self.current.take() {
            self.blocks.insert(number, Some(bits).filter(|bits| **bits != SOLID));
        }
    }
}

/// Sets the bits of positions from the first to below the second, which lie in this block; tells those that were set.
fn mark(bits: &mut Bits, (from, to): (u64, u64), mut again: impl FnMut(Position)) {
    let mut at = from;
    while at < to {
        let start = at / WORD * WORD;
        let word = &mut bits[(at % BLOCK / WORD) as usize];
        let added = below(to, start) & !below(at, start);
        let known = *word & added;
        *word |= added;
        at = start + WORD;
        if known != 0 {
            let places = (0..WORD).filter(|place| known >> place & 1 == 1);
            places.filter_map(|place| Position::new(start + place)).for_each(&mut again);
        }
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

    fn with(positions: &[u64]) -> LiveSet {
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
        let mut live = with(&[9, 600]);
        let filled = |live: LiveSet, rows: &[(u64, u64, u64)]| {
            let mut filling = live.filling();
            rows.iter()
                .for_each(|&(first, records, messages)| filling.add(position(first), records, messages));
            filling.done()
        };
        live = filled(live, &many.iter().map(|&number| (number, 1, 1)).collect::<Vec<_>>());
        let each: Vec<u64> = [9, 600].into_iter().chain(many).collect();
        assert_eq!(live, with(&each));
        assert_eq!(filled(live.clone(), &[]), live);
        for rows in [
            &[(500, 30, 1)][..],
            &[(63, 2, 1)],
            &[(64, 64, 1), (1, 0, 1), (2, 1, 0)],
            &[(1000, 2000, 1)],
            &[(1024, 512, 1), (700, 9000, 1)],
            &[(70, 1, 1), (70, 1, 1), (71, 1, 1), (70, 1, 1), (70, 2, 1), (70, 1, 1), (70, 1, 1)],
            &[(70, 1, 5), (70, 1, 3), (600, 100, 3), (650, 1, 2), (650, 1, 1)],
        ] {
            let more = rows.iter().flat_map(|&(first, records, messages)| {
                (first..first + records).flat_map(move |record| (0..messages).map(move |_| record))
            });
            let each: Vec<u64> = each.iter().copied().chain(more).collect();
            assert_eq!(filled(live.clone(), rows), with(&each), "{rows:?}");
        }
    }

    #[test]
    fn a_part_holds_what_lies_in_it_and_nothing_else() {
        let all: Vec<u64> = vec![1, 63, 64, 65, 511, 512, 513, 1024, 5000];
        for (name, first, last) in [
            ("one", 64, 64),
            ("to the end of a word", 1, 63),
            ("over words", 65, 1024),
            ("none", 66, 510),
            ("all", 1, 9000),
        ] {
            let want: Vec<u64> =
                all.iter().copied().filter(|number| (first..=last).contains(number)).collect();
            assert_eq!(with(&all).between(position(first), position(last)), with(&want), "case: {name}");
        }
        assert!(with(&all).between(position(66), position(510)).is_empty());
    }

    #[test]
    fn what_is_released_takes_no_memory() {
        let mut live = with(&(1..=2000).collect::<Vec<u64>>());
        assert!((1..=2000).all(|number| live.remove(position(number))));
        assert_eq!(live, LiveSet::default());
    }

    #[test]
    fn where_all_are_live_there_is_no_bit_for_each() {
        let all: Vec<u64> = (1..BLOCK * 10).collect();
        let mut live = with(&all);
        let shape = |live: &LiveSet| (live.blocks.len(), live.solid.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(shape(&live), (1, vec![(1, 10)]));
        let edge = BLOCK - 1;
        for (first, last) in [
            (1, 50_000),
            (BLOCK, 9 * BLOCK - 1),
            (600, 700),
            (600, 20_000),
            (edge, edge + 2),
            (32_000, 50_000),
        ] {
            let want = with(&all[first as usize - 1..all.len().min(last as usize)]);
            assert_eq!(live.between(position(first), position(last)), want, "{first} to {last}");
        }
        let one = 3 * BLOCK + 700;
        assert!(live.contains(position(one)) && live.remove(position(one)));
        assert!(!live.contains(position(one)) && !live.remove(position(one)));
        assert_eq!(shape(&live), (2, vec![(1, 3), (4, 10)]));
        live.add(position(one), 2);
        assert_eq!(shape(&live), (1, vec![(1, 10)]));
        assert_eq!([(); 3].map(|()| live.remove(position(one))), [true, true, false]);
    }
}
