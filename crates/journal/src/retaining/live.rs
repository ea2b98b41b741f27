//! Which records of a partition are live, in little memory: a bit for each, in chunks that exist only where one is set; where
//! all are, nothing but the ends.

use postroad_model::Position;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Positions to a chunk: its 64 bytes cost little where one record in hundreds is live, and its key little where nearly all are.
const CHUNK: u64 = 512;
const WORD: u64 = u64::BITS as u64;

type Chunk = [u64; (CHUNK / WORD) as usize];

/// A chunk of records that are all live.
const SOLID: Chunk = [u64::MAX; (CHUNK / WORD) as usize];

/// Live records; one that is needed for several messages is so until the last of them is released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveSet {
    /// Those of which some records are live, and not all.
    chunks: BTreeMap<u64, Chunk>,
    /// Runs of chunks of which all are: the first one, and the one behind the last. No run follows another at once.
    solid: BTreeMap<u64, u64>,
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
        let (number, word, bit) = place(position);
        let further = if self.contains(position) {
            messages
        } else {
            let chunk = self.chunks.entry(number).or_default();
            chunk[word] |= bit;
            if *chunk == SOLID {
                self.chunks.remove(&number);
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
        Filling { set: self, wides: FxHashMap::default(), current: None, last: None }
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
        self.loosen(number);
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
        let (number, word, bit) = place(position);
        match self.chunks.get(&number) {
            Some(chunk) => chunk[word] & bit != 0,
            None => self.run_of(number).is_some(),
        }
    }

    /// The records from `first` to `last`, each as if for one message.
    pub(crate) fn between(&self, first: Position, last: Position) -> LiveSet {
        let (from, _, _) = place(first);
        let (to, _, _) = place(last);
        let mut part = LiveSet::default();
        for (&number, chunk) in self.chunks.range(from..=to) {
            let mut chunk = *chunk;
            for (index, word) in chunk.iter_mut().enumerate() {
                let start = number * CHUNK + index as u64 * WORD;
                *word &= below(last.get() + 1, start) & !below(first.get(), start);
            }
            if chunk.iter().any(|&word| word != 0) {
                part.chunks.insert(number, chunk);
            }
        }
        let mut part = part.filling();
        let behind =
            self.solid.range(from..=to).map(|(&begin, &end)| (begin, end)).filter(|(begin, _)| from < *begin);
        let runs = self.run_of(from).into_iter().chain(behind);
        for (begin, end) in runs {
            let (begin, end) = ((begin * CHUNK).max(first.get()), (end * CHUNK).min(last.get() + 1));
            Position::new(begin)
                .into_iter()
                .for_each(|begin| part.add(begin, end.saturating_sub(begin.get()), 1));
        }
        part.done()
    }

    /// How many records are live.
    pub(crate) fn records(&self) -> u64 {
        let single: u64 = self.chunks.values().flatten().map(|word| u64::from(word.count_ones())).sum();
        single + self.solid.iter().map(|(begin, end)| (end - begin) * CHUNK).sum::<u64>()
    }

    /// Whether nothing is live.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.solid.is_empty()
    }

    /// The run of solid chunks that has this one.
    fn run_of(&self, number: u64) -> Option<(u64, u64)> {
        let (&first, &end) = self.solid.range(..=number).next_back()?;
        (number < end).then_some((first, end))
    }

    /// A chunk, which is not in the table, is solid.
    fn harden(&mut self, number: u64) {
        let before = number.checked_sub(1).and_then(|before| self.run_of(before));
        let first = before.map_or(number, |(first, _)| first);
        let end = self.solid.remove(&(number + 1)).unwrap_or(number + 1);
        self.solid.insert(first, end);
    }

    /// A chunk that is not there, with whatever it has.
    fn put(&mut self, number: u64, chunk: Chunk) {
        match chunk {
            SOLID => self.harden(number),
            chunk if chunk == Chunk::default() => {}
            chunk => {
                self.chunks.insert(number, chunk);
            }
        }
    }

    /// The chunk, which is not there afterwards.
    fn take(&mut self, number: u64) -> Chunk {
        self.loosen(number);
        self.chunks.remove(&number).unwrap_or_default()
    }

    /// A solid chunk comes back into the table.
    fn loosen(&mut self, number: u64) {
        let Some((first, end)) = self.run_of(number) else { return };
        self.solid.remove(&first);
        if first < number {
            self.solid.insert(first, number);
        }
        if number + 1 < end {
            self.solid.insert(number + 1, end);
        }
        self.chunks.insert(number, SOLID);
    }
}

/// Chunks that are filled together: whoever adds what one of a hundred addresses has goes over all of them, and from each to the next.
const CHUNKS: usize = 8;
const WIDE: u64 = CHUNK * CHUNKS as u64;

type Wide = [Chunk; CHUNKS];

/// A set to which many records are added: see [`LiveSet::filling`].
pub(crate) struct Filling {
    /// The chunks that nothing was added to, and what records have beyond their first message.
    set: LiveSet,
    /// `None`: all of them are live.
    wides: FxHashMap<u64, Option<Box<Wide>>>,
    /// The one that was added to last, which is not among them meanwhile.
    current: Option<(u64, Box<Wide>)>,
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
            let number = at / WIDE;
            if self.current.as_ref().is_none_or(|(current, _)| *current != number) {
                self.put_back();
                self.current = Some((number, self.take_out(number)));
            }
            let Filling { set, current: Some((_, wide)), .. } = self else { return };
            let behind = end.min((number + 1) * WIDE);
            mark(wide, (at, behind), |position| *set.further.entry(position).or_default() += 1);
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
        let Filling { mut set, wides, .. } = self;
        let mut wides: Vec<_> = wides.into_iter().collect();
        wides.sort_unstable_by_key(|(number, _)| *number);
        for (number, wide) in wides {
            let chunks = wide.map_or([SOLID; CHUNKS], |wide| *wide);
            (number * CHUNKS as u64..).zip(chunks).for_each(|(number, chunk)| set.put(number, chunk));
        }
        set
    }

    fn take_out(&mut self, number: u64) -> Box<Wide> {
        match self.wides.remove(&number) {
            Some(wide) => wide.unwrap_or_else(|| Box::new([SOLID; CHUNKS])),
            None => {
                Box::new(std::array::from_fn(|chunk| self.set.take(number * CHUNKS as u64 + chunk as u64)))
            }
        }
    }

    fn put_back(&mut self) {
        if let Some((number, wide)) = self.current.take() {
            self.wides.insert(number, Some(wide).filter(|wide| **wide != [SOLID; CHUNKS]));
        }
    }
}

/// Sets the bits of positions from the first to below the second, which lie in these chunks; tells those that were set.
fn mark(wide: &mut Wide, (from, to): (u64, u64), mut again: impl FnMut(Position)) {
    let words = wide.as_flattened_mut();
    let mut at = from;
    while at < to {
        let start = at / WORD * WORD;
        let word = &mut words[(at % WIDE / WORD) as usize];
        let bits = below(to, start) & !below(at, start);
        let known = *word & bits;
        *word |= bits;
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
            ("over chunks", 65, 1024),
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
        let all: Vec<u64> = (1..=5000).collect();
        let mut live = with(&all);
        let shape = |live: &LiveSet| (live.chunks.len(), live.solid.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(shape(&live), (2, vec![(1, 9)]));
        for (first, last) in [(1, 5000), (512, 4607), (600, 700), (600, 2000), (511, 1025), (4000, 9000)] {
            let want = with(&all[first as usize - 1..5000.min(last as usize)]);
            assert_eq!(live.between(position(first), position(last)), want, "{first} to {last}");
        }
        assert!(live.contains(position(2000)) && live.remove(position(2000)));
        assert!(!live.contains(position(2000)) && !live.remove(position(2000)));
        assert_eq!(shape(&live), (3, vec![(1, 3), (4, 9)]));
        live.add(position(2000), 2);
        assert_eq!(shape(&live), (2, vec![(1, 9)]));
        assert_eq!([(); 3].map(|()| live.remove(position(2000))), [true, true, false]);
    }
}
