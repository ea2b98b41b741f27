//! Which records of a partition are live, in little memory: by blocks, which exist only where some
//! are live and some are not; where all are, nothing but the ends.

use crate::retaining::block::{BLOCK, Bits, Block, SOLID, WORD};
use postroad_model::Position;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Live records, and of those with several messages which of these are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSet {
    /// Those of which some records are live, and not all.
    blocks: BTreeMap<u64, Block>,
    /// Runs of blocks of which all are: the first one, and the one after the last. No run follows
    /// another at once.
    solid: BTreeMap<u64, u64>,
    /// Of a record that is in neither of these two its first message is needed, once.
    several: BTreeMap<Position, Several>,
    /// Which messages are, as bits by their ordinals, where it is not all from the first one on.
    some: BTreeMap<Position, Box<[u64]>>,
}

/// The needed part of a record beyond its first message once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Several {
    /// The first message, this number of times.
    Times(u32),
    /// This number of messages, from the first one on.
    Messages(u32),
}

/// In which block, and where there.
fn place(position: Position) -> (u64, u16) {
    (position.get() / BLOCK, (position.get() % BLOCK) as u16)
}

impl LiveSet {
    /// These messages of the record are needed, or once more.
    pub(crate) fn add(&mut self, position: Position, messages: Range<u32>) {
        if messages.is_empty() {
            return;
        }
        let (number, place) = place(position);
        let is_known = self.contains(position);
        if !is_known {
            let block = self.blocks.entry(number).or_insert_with(Block::empty);
            block.set(place, true);
            if block.is_solid() {
                self.blocks.remove(&number);
                self.harden(number);
            }
        }
        self.need(position, messages, is_known);
    }

    /// The needed part of a record that is live, and was so before.
    fn need(&mut self, position: Position, messages: Range<u32>, is_known: bool) {
        let times = match self.several.get(&position) {
            Some(Several::Times(times)) => *times,
            _ => 1,
        };
        let front = if is_known { self.front(position) } else { 0 };
        let several = match messages {
            Range { start: 0, end: 1 } if is_known && front == 1 && !self.some.contains_key(&position) => {
                Some(Several::Times(times + 1))
            }
            Range { start, end } if start == front && times == 1 && !self.some.contains_key(&position) => {
                Some(Several::Messages(end)).filter(|_| 1 < end)
            }
            _ => {
                let mut bits = self.some.remove(&position).map_or_else(|| up_to(front), Vec::from);
                mark_messages(&mut bits, &messages);
                return self.put_bits(position, bits);
            }
        };
        if let Some(several) = several {
            self.several.insert(position, several);
        }
    }

    /// Of a live record these messages are needed, each once.
    fn put_bits(&mut self, position: Position, bits: Vec<u64>) {
        let messages: u32 = bits.iter().map(|word| word.count_ones()).sum();
        self.several.remove(&position);
        if !bits.starts_with(&up_to(messages)) {
            self.some.insert(position, bits.into());
        } else if 1 < messages {
            self.several.insert(position, Several::Messages(messages));
        }
    }

    /// To add many in order, which costs little, and next to nothing where they come in rows.
    pub(crate) fn filling(self) -> Filling {
        Filling { set: self, blocks: FxHashMap::default(), current: None, last: None, ahead: Vec::new() }
    }

    /// This message of the record is needed no more, or once less. False: it was not.
    pub(crate) fn remove(&mut self, position: Position, message: u32) -> bool {
        if let Some(bits) = self.some.get_mut(&position) {
            let (word, bit) = ((message / u64::BITS) as usize, 1 << (message % u64::BITS));
            let Some(word) = bits.get_mut(word).filter(|word| **word & bit != 0) else { return false };
            *word &= !bit;
            let is_left = *word != 0;
            let [first, further @ ..] = &**bits else { return true };
            if is_left && *first != 1 || 1 < *first || further.iter().any(|word| *word != 0) {
                return true;
            }
            let is_first_left = *first == 1;
            self.some.remove(&position);
            if is_first_left {
                return true;
            }
        } else {
            match self.several.get_mut(&position) {
                Some(Several::Times(times)) if message == 0 => {
                    *times -= 1;
                    if *times == 1 {
                        self.several.remove(&position);
                    }
                    return true;
                }
                Some(&mut Several::Messages(messages)) if message < messages => {
                    let mut bits = up_to(messages);
                    bits[(message / u64::BITS) as usize] &= !(1 << (message % u64::BITS));
                    self.put_bits(position, bits);
                    return true;
                }
                None if message == 0 => {}
                _ => return false,
            }
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

    /// Whether this message of the record is needed.
    pub(crate) fn needs(&self, position: Position, message: u32) -> bool {
        match self.some.get(&position) {
            Some(bits) => {
                let word = bits.get((message / u64::BITS) as usize);
                word.is_some_and(|word| word >> (message % u64::BITS) & 1 == 1)
            }
            None => message < self.front(position) && self.contains(position),
        }
    }

    /// How many messages of a live record are needed that has no bits for them; they are its first.
    fn front(&self, position: Position) -> u32 {
        match self.several.get(&position) {
            Some(Several::Messages(messages)) => *messages,
            _ => 1,
        }
    }

    /// How many messages of the record are needed.
    pub(crate) fn messages(&self, position: Position) -> u32 {
        match self.some.get(&position) {
            Some(bits) => bits.iter().map(|word| word.count_ones()).sum(),
            None if self.contains(position) => self.front(position),
            None => 0,
        }
    }

    /// Whether a message of the record is needed.
    pub(crate) fn contains(&self, position: Position) -> bool {
        let (number, place) = place(position);
        match self.blocks.get(&number) {
            Some(block) => block.contains(place),
            None => self.run_of(number).is_some(),
        }
    }

    /// The records from `first` to `last`, with their needed parts.
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
                .for_each(|begin| part.add(begin, end.saturating_sub(begin.get()), 0..1));
        }
        let mut part = part.done();
        part.several
            .extend(self.several.range(first..=last).map(|(&position, &several)| (position, several)));
        part.some.extend(self.some.range(first..=last).map(|(&position, bits)| (position, bits.clone())));
        part
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
    /// The blocks without additions, and the needed parts of records with several messages.
    set: LiveSet,
    /// The others. `None`: all records of it are live.
    blocks: FxHashMap<u64, Option<Box<Bits>>>,
    /// The one that was added to last, which is not among them meanwhile.
    current: Option<(u64, Box<Bits>)>,
    /// The messages of the last record, as long as they come in order: a transaction's has
    /// hundreds.
    last: Option<(Position, Range<u32>)>,
    /// Those before them, if they are not all from the first of them on.
    ahead: Vec<u64>,
}

impl Filling {
    /// These messages of each of this number of records are needed.
    pub(crate) fn add(&mut self, first: Position, records: u64, messages: Range<u32>) {
        if let Some((last, before)) = self.last.as_mut().filter(|_| records == 1)
            && *last == first
            && before.end <= messages.start
        {
            if before.end < messages.start {
                mark_messages(&mut self.ahead, before);
                before.start = messages.start;
            }
            before.end = messages.end;
            return;
        }
        self.add_last();
        match records {
            1 => self.last = Some((first, messages)),
            _ => self.add_all(first, records, &messages),
        }
    }

    fn add_last(&mut self) {
        let Some((position, messages)) = self.last.take() else { return };
        if self.ahead.is_empty() {
            return self.add_all(position, 1, &messages);
        }
        let mut bits = std::mem::take(&mut self.ahead);
        mark_messages(&mut bits, &messages);
        let first = bits.iter().zip(0_u32..).find(|(word, _)| **word != 0);
        let first = first.map_or(0, |(word, place)| place * u64::BITS + word.trailing_zeros());
        self.add_all(position, 1, &(first..first + 1));
        let known = self.set.some.remove(&position);
        let known = known.map_or_else(|| up_to(self.set.front(position)), Vec::from);
        bits.resize(bits.len().max(known.len()), 0);
        bits.iter_mut().zip(known).for_each(|(word, known)| *word |= known);
        self.set.put_bits(position, bits);
    }

    fn add_all(&mut self, first: Position, records: u64, messages: &Range<u32>) {
        if messages.is_empty() {
            return;
        }
        let is_first_alone = *messages == (0..1);
        let (mut at, end) = (first.get(), first.get().saturating_add(records));
        while at < end {
            let number = at / BLOCK;
            if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
                self.put_back();
                self.current = Some((number, self.take_out(number)));
            }
            let Filling { set, current: Some((_, bits)), .. } = self else { return };
            let behind = end.min((number + 1) * BLOCK);
            mark(bits, (at, behind), is_first_alone, |position, is_known| {
                set.need(position, messages.clone(), is_known);
            });
            at = behind;
        }
    }

    /// The set with them.
    pub(crate) fn done(mut self) -> LiveSet {
        self.add_last();
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

/// Sets the bits of positions from the first to below the second, which lie in this block; reports
/// all of them, and whether they were set, or only those that were not.
fn mark(bits: &mut Bits, (from, to): (u64, u64), but_new: bool, mut tell: impl FnMut(Position, bool)) {
    let mut at = from;
    while at < to {
        let start = at / WORD * WORD;
        let word = &mut bits[(at % BLOCK / WORD) as usize];
        let added = below(to, start) & !below(at, start);
        let known = *word & added;
        *word |= added;
        at = start + WORD;
        let told = if but_new { known } else { added };
        if told != 0 {
            let places = (0..WORD).filter(|place| told >> place & 1 == 1);
            let positions =
                places.filter_map(|place| Some((Position::new(start + place)?, known >> place & 1 == 1)));
            positions.for_each(|(position, is_known)| tell(position, is_known));
        }
    }
}

/// Sets the bits of these messages.
fn mark_messages(bits: &mut Vec<u64>, messages: &Range<u32>) {
    bits.resize(bits.len().max(messages.end.div_ceil(u64::BITS) as usize), 0);
    let first = (messages.start / u64::BITS) as usize;
    for (word, start) in bits.iter_mut().zip((0_u64..).step_by(WORD as usize)).skip(first) {
        *word |= below(messages.end.into(), start) & !below(messages.start.into(), start);
    }
}

/// Bits of this number of messages from the first one on.
fn up_to(messages: u32) -> Vec<u64> {
    let words = u64::from(messages).div_ceil(WORD);
    (0..words).map(|word| below(messages.into(), word * WORD)).collect()
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
        positions.iter().for_each(|&number| set.add(position(number), 0..1));
        set
    }

    #[test]
    fn a_record_is_live_until_its_last_message_is_released() {
        let mut live = LiveSet::default();
        live.add(position(7), 0..2);
        live.add(position(7), 2..3);
        live.add(position(600), 0..0);
        let removed = [1, 1, 0, 2, 2].map(|message| live.remove(position(7), message));
        assert_eq!(removed, [true, false, true, true, false]);
        assert!(!live.contains(position(7)) && !live.remove(position(600), 0));
        assert_eq!(live, LiveSet::default());
    }

    #[test]
    fn a_piece_is_live_as_often_as_it_is_needed() {
        let mut live = with(&[7, 7, 7]);
        assert_eq!(
            [0, 1, 0, 0, 0].map(|message| live.remove(position(7), message)),
            [true, false, true, true, false]
        );
        assert_eq!(live, LiveSet::default());
    }

    #[test]
    fn which_messages_are_needed_is_known_whatever_comes_and_goes() {
        for seed in 0..300 {
            let mut random = crate::tests::simulation::Random(seed);
            let (mut live, mut want) = (LiveSet::default(), std::collections::BTreeSet::new());
            for _ in 0..200 {
                let record = 1 + random.below(4) * 400;
                let start = random.below(140) as u32;
                let messages = start..start + random.below(80) as u32;
                match random.below(3) {
                    0 if messages.clone().all(|message| !want.contains(&(record, message))) => {
                        live.add(position(record), messages.clone());
                        want.extend(messages.map(|message| (record, message)));
                    }
                    1 if !want.iter().any(|(known, _)| *known == record) => {
                        live.add(position(record), 0..messages.end);
                        want.extend((0..messages.end).map(|message| (record, message)));
                    }
                    _ => {
                        for message in messages {
                            let was = want.remove(&(record, message));
                            assert_eq!(live.remove(position(record), message), was, "seed {seed}");
                        }
                    }
                }
                for record in [1, 401, 801, 1201] {
                    let any = want.iter().any(|(known, _)| *known == record);
                    assert_eq!(live.contains(position(record)), any, "seed {seed}");
                    let part = live.between(position(1), position(900));
                    let needed = want.iter().filter(|(known, _)| *known == record).count();
                    assert_eq!(live.messages(position(record)) as usize, needed, "seed {seed}");
                    for message in 0..300 {
                        let is_needed = want.contains(&(record, message));
                        assert_eq!(
                            live.needs(position(record), message),
                            is_needed,
                            "seed {seed}: {message}"
                        );
                        assert_eq!(
                            part.needs(position(record), message),
                            is_needed && record < 900,
                            "seed {seed}"
                        );
                    }
                }
            }
            for (record, message) in want {
                assert!(live.remove(position(record), message), "seed {seed}");
            }
            assert_eq!(live, LiveSet::default(), "seed {seed}: nothing is left of it");
        }
    }

    #[test]
    fn adding_many_is_adding_each() {
        let many: Vec<u64> = vec![7, 8, 8, 511, 512, 9, 5000, 8, 513];
        let filled = |live: LiveSet, rows: &[(u64, u64, Range<u32>)]| {
            let mut filling = live.filling();
            for (first, records, messages) in rows {
                filling.add(position(*first), *records, messages.clone());
            }
            filling.done()
        };
        let begun =
            filled(with(&[9, 600]), &many.iter().map(|&number| (number, 1, 0..1)).collect::<Vec<_>>());
        let all: Vec<u64> = [9, 600].into_iter().chain(many).collect();
        assert_eq!(begun, with(&all));
        assert_eq!(filled(begun.clone(), &[]), begun);
        for rows in [
            &[(500, 30, 0..1)][..],
            &[(63, 2, 0..1)],
            &[(64, 64, 0..1), (1, 0, 0..1), (2, 1, 0..0)],
            &[(1000, 2000, 0..1)],
            &[(1024, 512, 0..1), (700, 9000, 0..1)],
            &[(70, 1, 0..1), (70, 1, 0..1), (71, 1, 0..1), (70, 1, 0..1), (70, 2, 0..1), (70, 1, 0..1)],
            &[(70, 1, 0..5), (70, 1, 5..8), (6000, 100, 0..3), (6050, 1, 3..5), (6050, 1, 7..200)],
            &[(70, 1, 0..1), (70, 1, 2..3), (70, 1, 4..5), (70, 1, 300..301), (70, 1, 1..2), (70, 1, 3..4)],
            &[(70, 1, 3..4), (70, 1, 5..6), (70, 1, 64..65), (8, 1, 1..2), (8, 1, 3..4), (600, 1, 0..1)],
            &[(70, 1, 3..5), (71, 1, 0..1), (70, 1, 0..3), (6000, 100, 90..100), (6007, 1, 0..90)],
        ] {
            let mut each = begun.clone();
            for (first, records, messages) in rows {
                for record in *first..first + records {
                    messages.clone().for_each(|message| each.add(position(record), message..message + 1));
                }
            }
            assert_eq!(filled(begun.clone(), rows), each, "{rows:?}");
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
        assert!((1..=2000).all(|number| live.remove(position(number), 0)));
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
        assert!(live.contains(position(one)) && live.remove(position(one), 0));
        assert!(!live.contains(position(one)) && !live.remove(position(one), 0));
        assert_eq!(shape(&live), (2, vec![(1, 3), (4, 10)]));
        live.add(position(one), 0..2);
        assert_eq!(shape(&live), (1, vec![(1, 10)]));
        assert_eq!([0, 1, 1].map(|message| live.remove(position(one), message)), [true, true, false]);
    }
}
