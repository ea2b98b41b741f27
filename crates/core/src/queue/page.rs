//! A page: a stretch of a lane whose entries nobody is at, in few bytes.
//!
//! All its entries are ready, in the log, and their messages are referred to by nothing else; so the page has what the
//! table of bodies knew of them too. It is bytes, written as a column for each fact: what is alike from entry to entry
//! costs a page little, whatever the number of its entries. See docs/formats/records.md.
//!
//! ```text
//!   entries                                columns
//!   sequence 70  record 901  120 bytes     sequences  70 +1 +1 …     1 × 70, 511 × +1
//!   sequence 71  record 902  120 bytes     records   901 +1 +1 …     1 × 901, 511 × +1
//!   sequence 72  record 903  120 bytes     bytes     120 120 120 …   512 × 120
//! ```

use bytes::Bytes;
use postroad_model::{Message, MessageKey, Position};

use super::lanes::SEQUENCE_BITS;
use crate::record::{Reader, RecordError, Writer};

/// The most entries that a page may have: bounds what one from outside makes us reserve.
pub const PAGE_ENTRIES_MAX: u64 = 4096;

/// Equal numbers in a row from which on they are told as a run: below, it would cost more than them.
const RUN_MIN: usize = 3;

/// Sequences and stamps stay below: beside a sequence there is room for the lane in a tag.
const COUNT_END: u64 = 1 << SEQUENCE_BITS;

/// An entry of a page, and what is known of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// Its place in the lane.
    pub sequence: u64,
    /// Order of arrival in the queue.
    pub stamp: u64,
    /// The message's record,
    pub position: Position,
    /// and which of that record's messages it is.
    pub ordinal: u32,
    /// How often it was delivered without success.
    pub failed_deliveries: u32,
    /// The message, without its body.
    pub headers: Message,
    /// The size of the body.
    pub body_bytes: u64,
}

/// See the head of this file. Never empty.
pub struct Page {
    bytes: Bytes,
    entries: u64,
    first: u64,
    last: u64,
    /// Stamp of the first entry; in `bytes` stamps count from it, for each run has its own.
    stamp: u64,
    /// How many stamps from there on are its own.
    stamps: u64,
    first_expiry_ms: u64,
    has_groups: bool,
}

/// The facts of a page, in the order of their columns.
#[derive(Clone, Copy)]
enum Column {
    Sequences,
    Stamps,
    Positions,
    Ordinals,
    FailedDeliveries,
    BodyBytes,
    Expiries,
    /// 1 where the headers, but for the expiry, are other than those of the entry before: then they follow the columns.
    HeadersChange,
}

impl Column {
    const ALL: [Column; 8] = [
        Column::Sequences,
        Column::Stamps,
        Column::Positions,
        Column::Ordinals,
        Column::FailedDeliveries,
        Column::BodyBytes,
        Column::Expiries,
        Column::HeadersChange,
    ];

    /// Whether it tells how far each number is from the one before.
    fn is_relative(self) -> bool {
        matches!(self, Column::Sequences | Column::Stamps | Column::Positions | Column::Expiries)
    }
}

impl Page {
    /// The page of these entries; `None` if there are none, or they are not in order.
    pub fn of(entries: &[Folded]) -> Option<Page> {
        if !entries.is_sorted_by(|a, b| a.sequence < b.sequence && a.stamp < b.stamp) {
            return None;
        }
        let (first, last) = (entries.first()?, entries.last()?);
        let mut headers = Writer::default();
        let mut changes = Vec::with_capacity(entries.len());
        let mut before: Option<Message> = None;
        for entry in entries {
            let own = Message { expires_at_ms: 0, bytes: Bytes::new(), ..entry.headers.clone() };
            let changed = before.as_ref() != Some(&own);
            changes.push(u64::from(changed));
            if changed {
                headers.headers(&own, 0);
                before = Some(own);
            }
        }
        let mut out = Vec::new();
        put_number(&mut out, entries.len() as u64);
        for column in Column::ALL {
            let numbers = entries.iter().zip(&changes).map(|(entry, change)| match column {
                Column::Sequences => entry.sequence,
                Column::Stamps => entry.stamp - first.stamp,
                Column::Positions => entry.position.get(),
                Column::Ordinals => u64::from(entry.ordinal),
                Column::FailedDeliveries => u64::from(entry.failed_deliveries),
                Column::BodyBytes => entry.body_bytes,
                Column::Expiries => entry.headers.expires_at_ms,
                Column::HeadersChange => *change,
            });
            let numbers = numbers.collect();
            put_column(&mut out, if column.is_relative() { steps(numbers) } else { numbers });
        }
        headers.finish().iter().for_each(|piece| out.extend_from_slice(piece));
        let ends = entries.iter().map(|entry| entry.headers.expires_at_ms).filter(|at_ms| *at_ms != 0);
        Some(Page {
            bytes: out.into_boxed_slice().into(),
            entries: entries.len() as u64,
            first: first.sequence,
            last: last.sequence,
            stamp: first.stamp,
            stamps: last.stamp - first.stamp + 1,
            first_expiry_ms: ends.min().unwrap_or(0),
            has_groups: entries.iter().any(|entry| entry.headers.group().is_some()),
        })
    }

    /// A page as it was written; its stamps count from zero until [`Page::stamped`].
    ///
    /// # Errors
    /// [`RecordError`]: these bytes are no page.
    pub fn read(bytes: &[u8]) -> Result<Page, RecordError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let facts = Facts::read(&bytes)?;
        let sequences = facts.column(Column::Sequences);
        let ends = facts.column(Column::Expiries).iter().copied().filter(|at_ms| *at_ms != 0);
        let ends_of = |numbers: &[u64]| Some((*numbers.first()?, *numbers.last()?));
        let (first, last) = ends_of(sequences).ok_or(RecordError::Page { what: "it has no entries" })?;
        Ok(Page {
            entries: sequences.len() as u64,
            first,
            last,
            stamp: 0,
            stamps: facts.column(Column::Stamps).last().map_or(0, |last| last + 1),
            first_expiry_ms: ends.min().unwrap_or(0),
            has_groups: facts.headers.iter().any(|headers| headers.group().is_some()),
            bytes,
        })
    }

    /// The same page with the stamps from `next` on, which is behind them then.
    pub fn stamped(self, next: &mut u64) -> Page {
        let stamp = *next;
        *next += self.stamps;
        Page { stamp, ..self }
    }

    /// As it is written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many entries it has.
    pub fn len(&self) -> u64 {
        self.entries
    }

    /// The sequences of its first and its last entry.
    pub fn ends(&self) -> (u64, u64) {
        (self.first, self.last)
    }

    /// When the first of its entries expires; zero for never.
    pub fn first_expiry_ms(&self) -> u64 {
        self.first_expiry_ms
    }

    /// Whether a message of it belongs to a group.
    pub fn has_groups(&self) -> bool {
        self.has_groups
    }

    /// The sizes of all its bodies.
    pub fn body_bytes(&self) -> Vec<u64> {
        self.column(Column::BodyBytes).unwrap_or_default()
    }

    /// Its entries, in order.
    pub fn entries(&self) -> Vec<Folded> {
        let facts = Facts::read(&self.bytes);
        debug_assert!(facts.is_ok(), "a page was read when it was made");
        facts.map(|facts| facts.entries(self.stamp)).unwrap_or_default()
    }

    /// The message of each entry, with the size of its body.
    pub fn messages(&self) -> impl Iterator<Item = (MessageKey, u64)> {
        let column = |wanted| self.column(wanted).unwrap_or_default().into_iter();
        let positions = column(Column::Positions).filter_map(Position::new);
        let keys = positions.zip(column(Column::Ordinals));
        let keys = keys.map(|(position, ordinal)| MessageKey::Durable { position, ordinal: ordinal as u32 });
        keys.zip(column(Column::BodyBytes))
    }

    /// Stamp and sequence of the first entry that is at `from` or behind it.
    pub fn first_from(&self, from: u64) -> Option<(u64, u64)> {
        if from <= self.first {
            return Some((self.stamp, self.first));
        }
        let sequences = self.column(Column::Sequences).unwrap_or_default();
        let place = sequences.partition_point(|sequence| *sequence < from);
        let stamps = self.column(Column::Stamps).unwrap_or_default();
        Some((self.stamp + stamps.get(place)?, *sequences.get(place)?))
    }

    fn column(&self, wanted: Column) -> Result<Vec<u64>, RecordError> {
        let mut input = Numbers { bytes: &self.bytes };
        let entries = input.number()?;
        let mut numbers = Vec::new();
        for column in Column::ALL.into_iter().take(wanted as usize + 1) {
            numbers = if column as usize == wanted as usize {
                input.column(column, entries)?
            } else {
                input.skip_column()?;
                Vec::new()
            };
        }
        Ok(numbers)
    }
}

/// All columns of a page.
struct Facts {
    columns: [Vec<u64>; Column::ALL.len()],
    /// Those that differ from the ones before.
    headers: Vec<Message>,
}

impl Facts {
    /// Reads a page; whatever is in it then holds together.
    fn read(bytes: &Bytes) -> Result<Facts, RecordError> {
        let wrong = |what| Err(RecordError::Page { what });
        let mut input = Numbers { bytes };
        let count = input.number()?;
        if count == 0 || count > PAGE_ENTRIES_MAX {
            return wrong("the number of its entries");
        }
        let mut facts = Facts { columns: Default::default(), headers: Vec::new() };
        for column in Column::ALL {
            facts.columns[column as usize] = input.column(column, count)?;
        }
        let text = bytes.slice_ref(input.bytes);
        let mut text = Reader::new(&text);
        let changes = facts.column(Column::HeadersChange).iter().filter(|change| **change != 0).count();
        for _ in 0..changes {
            facts.headers.push(text.headers()?.0);
        }
        text.end()?;
        let rises = |column| {
            let numbers = facts.column(column);
            numbers.is_sorted_by(|a, b| a < b) && numbers.last().is_some_and(|last| *last < COUNT_END)
        };
        let is_small = |column| facts.column(column).iter().all(|number| u32::try_from(*number).is_ok());
        if !rises(Column::Sequences) || !rises(Column::Stamps) {
            return wrong("its entries are not in order");
        }
        if !is_small(Column::Ordinals) || !is_small(Column::FailedDeliveries) {
            return wrong("a number is too large");
        }
        if facts.column(Column::Positions).contains(&0) {
            return wrong("a position is 0");
        }
        match facts.column(Column::HeadersChange).first() {
            Some(0) => wrong("it has no first headers"),
            _ => Ok(facts),
        }
    }

    fn column(&self, column: Column) -> &[u64] {
        &self.columns[column as usize]
    }

    /// The entries, the first of which has this stamp.
    fn entries(self, stamp: u64) -> Vec<Folded> {
        let number = |column, place: usize| self.column(column)[place];
        let mut changes = self.headers.iter();
        let mut headers = None;
        let entry = |place| {
            if number(Column::HeadersChange, place) != 0 {
                headers = changes.next();
            }
            let headers: &Message = headers?;
            Some(Folded {
                sequence: number(Column::Sequences, place),
                stamp: stamp + number(Column::Stamps, place),
                position: Position::new(number(Column::Positions, place))?,
                ordinal: number(Column::Ordinals, place) as u32,
                failed_deliveries: number(Column::FailedDeliveries, place) as u32,
                headers: Message { expires_at_ms: number(Column::Expiries, place), ..headers.clone() },
                body_bytes: number(Column::BodyBytes, place),
            })
        };
        (0..self.column(Column::Sequences).len()).filter_map(entry).collect()
    }
}

/// How far each number is from the one before it, the first from 0.
fn steps(numbers: Vec<u64>) -> Vec<u64> {
    let befores = std::iter::once(0).chain(numbers.iter().copied());
    let steps = befores.zip(&numbers).map(|(before, number)| zigzag(number.wrapping_sub(before) as i64));
    steps.collect()
}

/// Small numbers for small steps in either direction.
fn zigzag(step: i64) -> u64 {
    (step << 1 ^ step >> 63) as u64
}

fn from_zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Seven bits to a byte, low ones first; the eighth says that another byte follows.
fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Its length in bytes, then pieces: twice the length of a run plus one, and its number; or twice a count, and so many
/// numbers.
fn put_column(out: &mut Vec<u8>, numbers: Vec<u64>) {
    let run = |from: usize| numbers[from..].iter().take_while(|number| **number == numbers[from]).count();
    let (mut column, mut at) = (Vec::new(), 0);
    while at < numbers.len() {
        let length = run(at);
        if length >= RUN_MIN {
            put_number(&mut column, (length as u64) << 1 | 1);
            put_number(&mut column, numbers[at]);
            at += length;
            continue;
        }
        let mut end = at + length;
        while end < numbers.len() && run(end) < RUN_MIN {
            end += run(end);
        }
        put_number(&mut column, ((end - at) as u64) << 1);
        numbers[at..end].iter().for_each(|number| put_number(&mut column, *number));
        at = end;
    }
    put_number(out, column.len() as u64);
    out.extend_from_slice(&column);
}

/// Reads numbers and columns; never panics.
struct Numbers<'a> {
    bytes: &'a [u8],
}

impl<'a> Numbers<'a> {
    fn number(&mut self) -> Result<u64, RecordError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let (byte, rest) =
                self.bytes.split_first().ok_or(RecordError::Page { what: "it ends too early" })?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(RecordError::Page { what: "a number has no end" })
    }

    fn skip_column(&mut self) -> Result<Numbers<'a>, RecordError> {
        let length = self.number()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= self.bytes.len());
        let length = length.ok_or(RecordError::Page { what: "a column is longer than the page" })?;
        let (column, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Ok(Numbers { bytes: column })
    }

    /// A column of so many numbers.
    fn column(&mut self, column: Column, count: u64) -> Result<Vec<u64>, RecordError> {
        let mut input = self.skip_column()?;
        let mut numbers = Vec::with_capacity(count as usize);
        let mut before = 0_u64;
        while !input.bytes.is_empty() {
            let piece = input.number()?;
            if piece >> 1 > count - numbers.len() as u64 {
                return Err(RecordError::Page { what: "a column is too long" });
            }
            let run = if piece & 1 == 1 { Some(input.number()?) } else { None };
            for _ in 0..piece >> 1 {
                let number = run.map_or_else(|| input.number(), Ok)?;
                before = match column.is_relative() {
                    true => before.wrapping_add(from_zigzag(number) as u64),
                    false => number,
                };
                numbers.push(before);
            }
        }
        match numbers.len() as u64 == count {
            true => Ok(numbers),
            false => Err(RecordError::Page { what: "a column is short" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postroad_model::{Encoding, Group, Protocol, RareHeaders};

    use super::*;

    fn folded(number: u64) -> Folded {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        Folded {
            sequence: number,
            stamp: 1000 + number,
            position: Position::new(number + 1).expect("from 1"),
            ordinal: 0,
            failed_deliveries: 0,
            headers: Message {
                encoding,
                persistent: true,
                priority: 4,
                expires_at_ms: 0,
                rare: None,
                bytes: Bytes::new(),
            },
            body_bytes: 120,
        }
    }

    /// Nothing in it is like what is beside it, in any direction.
    fn wild(number: u64) -> Folded {
        let far = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        let group = Some(Group { id: format!("g{}", number % 3).into(), sequence: -1 });
        let rare =
            number.is_multiple_of(2).then(|| Arc::new(RareHeaders { group, ..RareHeaders::default() }));
        Folded {
            sequence: number * 7,
            stamp: number * number + 5,
            position: Position::new(1 + far).expect("from 1"),
            ordinal: far as u32,
            failed_deliveries: (far >> 3) as u32,
            headers: Message { expires_at_ms: far % 5 * far, rare, ..folded(0).headers },
            body_bytes: far % 1000,
        }
    }

    #[test]
    fn a_page_gives_back_what_was_put_into_it() {
        let cases: [(&str, Vec<Folded>); 5] = [
            ("one", vec![folded(70)]),
            ("alike", (0..512).map(folded).collect()),
            ("with gaps", (0..512).filter(|number| number % 10 < 7).map(folded).collect()),
            ("all different", (0..300).map(wild).collect()),
            ("the most", (0..PAGE_ENTRIES_MAX).map(folded).collect()),
        ];
        for (case, entries) in cases {
            let page = Page::of(&entries).expect("entries");
            assert_eq!(page.entries(), entries, "case: {case}");
            let mut next = entries[0].stamp;
            let again = Page::read(page.bytes()).expect("a page").stamped(&mut next);
            assert_eq!(Some(next), entries.last().map(|last| last.stamp + 1), "case: {case}");
            assert_eq!((again.entries(), again.bytes()), (entries.clone(), page.bytes()), "case: {case}");
            let ends = (again.len(), again.ends(), again.first_expiry_ms(), again.has_groups());
            let want = (page.len(), page.ends(), page.first_expiry_ms(), page.has_groups());
            assert_eq!(ends, want, "case: {case}");
            let key =
                |entry: &Folded| MessageKey::Durable { position: entry.position, ordinal: entry.ordinal };
            let messages: Vec<_> = entries.iter().map(|entry| (key(entry), entry.body_bytes)).collect();
            assert_eq!(page.messages().collect::<Vec<_>>(), messages, "case: {case}");
            for from in 0..entries[0].sequence + 40 {
                let want = entries.iter().find(|entry| from <= entry.sequence);
                let want = want.map(|entry| (entry.stamp, entry.sequence));
                assert_eq!(page.first_from(from), want, "case: {case}, from {from}");
            }
        }
        assert!(Page::of(&[]).is_none());
    }

    #[test]
    fn what_is_alike_costs_little_however_much_it_is() {
        let bytes =
            |count| Page::of(&(0..count).map(folded).collect::<Vec<_>>()).expect("entries").bytes().len();
        assert_eq!((bytes(64), bytes(512)), (52, 56));
    }

    #[test]
    fn what_is_no_page_is_refused_wherever_it_is_broken() {
        let entries: Vec<Folded> = (0..20).map(wild).collect();
        let page = Page::of(&entries).expect("entries");
        for end in 0..page.bytes().len() {
            assert!(Page::read(&page.bytes()[..end]).is_err(), "cut at {end}");
        }
        assert!(Page::read(&[page.bytes(), &[0]].concat()).is_err(), "lengthened");
        // Whatever a bit does, it is refused or is a page: nothing panics.
        for bit in 0..page.bytes().len() * 8 {
            let mut bytes = page.bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(page) = Page::read(&bytes) {
                assert_eq!(page.entries().len() as u64, page.len(), "bit {bit}");
            }
        }
    }
}
