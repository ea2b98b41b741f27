//! A page: unused entries of a lane, in few bytes.
//!
//! All its entries are ready, and their messages in the log; the page has the fields of the table
//! of bodies too, which keeps only shared messages. It is bytes, written as a column for each
//! field: equal values from entry to entry costs a page little, whatever the number of its entries.
//! See docs/formats/records.md.
//!
//! ```text
//!   entries                                columns
//!   sequence 70  record 901  120 bytes     sequences  70 +1 +1 …     1 × 70, 511 × +1
//!   sequence 71  record 902  120 bytes     records   901 +1 +1 …     1 × 901, 511 × +1
//!   sequence 72  record 903  120 bytes     bytes     120 120 120 …   512 × 120
//! ```

use bytes::Bytes;
use postroad_model::{Message, MessageRow, Piece, Position, Spill};
use rustc_hash::FxHashMap;

use super::lanes::SEQUENCE_BITS;
use super::load::Load;
use crate::log::columns::{Numbers, Run, Runs, Steps, put_column, put_number, wrong};
use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer};

/// The most entries that a page may have: bounds the memory that one from outside makes us reserve.
pub const PAGE_ENTRIES_MAX: u64 = 4096;

/// Bytes of a page besides its contents: itself, its place in its lane, and the allocator's
/// overhead.
const PAGE_BYTES: u64 = 192;

/// Sequences and stamps stay below: beside a sequence there is room for the lane in a tag.
const COUNT_END: u64 = 1 << SEQUENCE_BITS;

/// An entry of a page, and the fields of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
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
    bytes: Piece,
    entries: u64,
    first: u64,
    last: u64,
    /// Stamp of the first entry; in `bytes` stamps count from it, for each run has its own.
    stamp: u64,
    /// How many stamps from there on are its own.
    stamps: u64,
    first_expiry_ms: u64,
    has_groups: bool,
    is_shared: bool,
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
    /// Which of the headers that follow the columns the message has, but for the expiry.
    Headers,
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
        Column::Headers,
    ];

    fn steps(self) -> Steps {
        match self {
            Column::Sequences | Column::Stamps | Column::Positions | Column::Ordinals | Column::Expiries => {
                Steps::Told
            }
            Column::FailedDeliveries | Column::BodyBytes | Column::Headers => Steps::None,
        }
    }
}

/// The number of headers up to this run of the last column, with `before` of them before it.
fn headers_up_to(before: u64, run: Run) -> Result<u64, RecordError> {
    if run.first <= before {
        Ok(before.max(run.first + 1))
    } else {
        Err(wrong("it does not have the headers of an entry"))
    }
}

impl Page {
    /// The page of these entries, none of which shares its message; `None` if there are none, or
    /// they are not in order.
    pub fn of(entries: &[Packed]) -> Option<Page> {
        if !entries.is_sorted_by(|a, b| a.sequence < b.sequence && a.stamp < b.stamp) {
            return None;
        }
        let (first, last) = (entries.first()?, entries.last()?);
        let (headers, which) = headers_of(entries);
        let mut out = Vec::new();
        put_number(&mut out, entries.len() as u64);
        for column in Column::ALL {
            let numbers = entries.iter().zip(&which).map(|(entry, headers)| match column {
                Column::Sequences => entry.sequence,
                Column::Stamps => entry.stamp - first.stamp,
                Column::Positions => entry.position.get(),
                Column::Ordinals => u64::from(entry.ordinal),
                Column::FailedDeliveries => u64::from(entry.failed_deliveries),
                Column::BodyBytes => entry.body_bytes,
                Column::Expiries => entry.headers.expires_at_ms,
                Column::Headers => *headers,
            });
            put_column(&mut out, column.steps(), numbers.collect());
        }
        out.extend_from_slice(&headers);
        let ends = entries.iter().map(|entry| entry.headers.expires_at_ms).filter(|at_ms| *at_ms != 0);
        Some(Page {
            bytes: Piece::Here(out.into_boxed_slice().into()),
            entries: entries.len() as u64,
            first: first.sequence,
            last: last.sequence,
            stamp: first.stamp,
            stamps: last.stamp - first.stamp + 1,
            first_expiry_ms: ends.min().unwrap_or(0),
            has_groups: entries.iter().any(|entry| entry.headers.group().is_some()),
            is_shared: false,
        })
    }

    /// A page as it was written; its stamps count from zero until [`Page::stamped`]. Equal values
    /// are read at once: a start reads all pages of a backlog.
    ///
    /// # Errors
    /// [`RecordError`]: these bytes are no page.
    pub fn read(bytes: &[u8]) -> Result<Page, RecordError> {
        let bytes = Bytes::copy_from_slice(bytes);
        let Outline { entries, first, last, last_stamp, first_expiry_ms, has_groups } = Outline::of(&bytes)?;
        Ok(Page {
            bytes: Piece::Here(bytes),
            entries,
            first,
            last,
            stamp: 0,
            stamps: last_stamp + 1,
            first_expiry_ms,
            has_groups,
            is_shared: false,
        })
    }

    /// The same page with the stamps from `next` on, which is after them then.
    pub fn stamped(self, next: &mut u64) -> Page {
        let stamp = *next;
        *next += self.stamps;
        Page { stamp, ..self }
    }

    /// The same page, whose messages may be held by others, too, or are not: by another queue, or a
    /// transaction.
    pub fn shared(self, is_shared: bool) -> Page {
        Page { is_shared, ..self }
    }

    /// As [`Page::shared`].
    pub fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// The same page, its bytes out of memory if there is room for them.
    pub fn spilled(self, spill: &dyn Spill) -> Page {
        let bytes = match self.bytes {
            Piece::Here(bytes) => spill.put(&bytes).map_or(Piece::Here(bytes), Piece::Spilled),
            spilled @ Piece::Spilled(_) => spilled,
        };
        Page { bytes, ..self }
    }

    /// As it is written, and where that is.
    pub fn piece(&self) -> &Piece {
        &self.bytes
    }

    /// As it is written.
    pub fn bytes(&self) -> Bytes {
        self.bytes.bytes()
    }

    /// Its size in memory.
    pub fn memory_bytes(&self) -> u64 {
        let written = match &self.bytes {
            Piece::Here(bytes) => bytes.len() as u64,
            Piece::Spilled(_) => 0,
        };
        written + PAGE_BYTES
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

    /// Whether others may hold a message of it, too.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// How many messages it holds, and the bytes of their bodies together.
    pub fn load(&self) -> Load {
        let mut load = Load { messages: self.entries, bytes: 0 };
        for run in runs(&self.bytes(), Column::BodyBytes) {
            load.bytes = load.bytes.saturating_add(run.first.saturating_mul(run.count));
        }
        load
    }

    /// Its entries, in order.
    pub fn entries(&self) -> Vec<Packed> {
        let facts = PageColumns::read(&self.bytes());
        debug_assert!(facts.is_ok(), "a page was read when it was made");
        facts.map(|facts| facts.entries(self.stamp)).unwrap_or_default()
    }

    /// The message of each entry, in rows of those that are alike.
    pub fn messages(&self) -> Vec<MessageRow> {
        let (bytes, mut rows) = (self.bytes(), Vec::<MessageRow>::new());
        let columns = [Column::Positions, Column::Ordinals, Column::BodyBytes].map(|it| runs(&bytes, it));
        rows.reserve(columns.iter().map(Vec::len).max().unwrap_or(0));
        let [mut positions, mut ordinals, mut body_bytes] = columns.each_ref().map(|runs| Runs::new(runs));
        loop {
            let left = positions.left().min(ordinals.left()).min(body_bytes.left());
            // Only records that follow one another are a row, or messages that do so in one record.
            let (records, messages) = match (positions.step(), ordinals.step()) {
                (1, 0) => (left, 1),
                (0, 1) => (1, left),
                _ => (1, 1),
            };
            let count = records.max(messages).min(left);
            let Some(first) = Position::new(positions.take(count)).filter(|_| count > 0) else { break };
            let (ordinal, body_bytes) = (ordinals.take(count) as u32, body_bytes.take(count));
            let row = MessageRow { first, records, ordinal, messages: messages as u32, body_bytes };
            if !rows.last_mut().is_some_and(|before| before.extend(&row)) {
                rows.push(row);
            }
        }
        rows
    }

    /// Stamp and sequence of the first entry that is at `from` or after it.
    pub fn first_from(&self, from: u64) -> Option<(u64, u64)> {
        if from <= self.first {
            return Some((self.stamp, self.first));
        }
        let bytes = self.bytes();
        let sequences = column(&bytes, Column::Sequences).unwrap_or_default();
        let place = sequences.partition_point(|sequence| *sequence < from);
        let stamps = column(&bytes, Column::Stamps).unwrap_or_default();
        Some((self.stamp + stamps.get(place)?, *sequences.get(place)?))
    }
}

/// A column of a page.
fn column(bytes: &Bytes, wanted: Column) -> Result<Vec<u64>, RecordError> {
    let (mut input, entries) = at_column(bytes, wanted)?;
    input.column(wanted.steps(), entries)
}

/// A column as it is written: equal values as one.
fn runs(bytes: &Bytes, wanted: Column) -> Vec<Run> {
    let mut runs = Vec::new();
    let read = at_column(bytes, wanted).and_then(|(mut input, entries)| {
        input.runs(wanted.steps(), entries, |run| {
            runs.push(run);
            Ok(())
        })
    });
    debug_assert!(read.is_ok(), "a page was read when it was made");
    runs
}

/// Where a column of a page begins, and how many numbers it has.
fn at_column(bytes: &Bytes, wanted: Column) -> Result<(Numbers<'_>, u64), RecordError> {
    let mut input = Numbers { bytes };
    let entries = input.number()?;
    for _ in 0..wanted as usize {
        input.skip_column()?;
    }
    Ok((input, entries))
}

/// The properties of a page by its columns' runs, once they are consistent.
struct Outline {
    entries: u64,
    first: u64,
    last: u64,
    last_stamp: u64,
    first_expiry_ms: u64,
    has_groups: bool,
}

impl Outline {
    fn of(bytes: &Bytes) -> Result<Outline, RecordError> {
        let mut input = Numbers { bytes };
        let entries = input.number()?;
        if entries == 0 || entries > PAGE_ENTRIES_MAX {
            return Err(wrong("the number of its entries"));
        }
        let (first, last) = rising(&mut input, Column::Sequences.steps(), entries)?;
        let (_, last_stamp) = rising(&mut input, Column::Stamps.steps(), entries)?;
        input.runs(Column::Positions.steps(), entries, |run| match run.has_zero() {
            true => Err(wrong("a position is 0")),
            false => Ok(()),
        })?;
        for column in [Column::Ordinals, Column::FailedDeliveries] {
            input.runs(column.steps(), entries, |run| match run.is_below(1 << u32::BITS) {
                true => Ok(()),
                false => Err(wrong("a number is too large")),
            })?;
        }
        input.runs(Column::BodyBytes.steps(), entries, |_| Ok(()))?;
        let mut first_expiry_ms = 0;
        input.runs(Column::Expiries.steps(), entries, |run| {
            let different = if run.step == 0 { 1 } else { run.count };
            let ends = (0..different).map(|place| run.number(place)).filter(|at_ms| *at_ms != 0);
            first_expiry_ms =
                ends.chain((first_expiry_ms != 0).then_some(first_expiry_ms)).min().unwrap_or(0);
            Ok(())
        })?;
        let mut headers = 0;
        input.runs(Column::Headers.steps(), entries, |run| {
            headers = headers_up_to(headers, run)?;
            Ok(())
        })?;
        let headers = read_headers(bytes, input, headers)?;
        let has_groups = headers.iter().any(|headers| headers.group().is_some());
        Ok(Outline { entries, first, last, last_stamp, first_expiry_ms, has_groups })
    }
}

/// The headers of these entries as they are written, each once, and which of them each entry has.
fn headers_of(entries: &[Packed]) -> (Vec<u8>, Vec<u64>) {
    let (mut text, mut known, mut which) = (Vec::new(), FxHashMap::default(), Vec::new());
    let mut before: Option<(&Message, u64)> = None;
    for Packed { headers: own, .. } in entries {
        let found = before.filter(|(before, _)| are_alike(before, own)).map(|(_, found)| found);
        let found = found.unwrap_or_else(|| {
            let mut written = Writer::default();
            written.headers(&Message { expires_at_ms: 0, bytes: Bytes::new(), ..own.clone() }, 0);
            let next = known.len() as u64;
            *known.entry(written.finish().concat()).or_insert_with_key(|written: &Vec<u8>| {
                text.extend_from_slice(written);
                next
            })
        });
        which.push(found);
        before = Some((own, found));
    }
    (text, which)
}

/// Whether a page has the headers of both once: when they expire is a column, and the body is
/// elsewhere.
fn are_alike(one: &Message, other: &Message) -> bool {
    let Message { encoding, persistent, priority, expires_at_ms: _, rare, bytes: _ } = one;
    (encoding, persistent, priority, rare)
        == (&other.encoding, &other.persistent, &other.priority, &other.rare)
}

/// The headers after the columns, which end the page.
fn read_headers(bytes: &Bytes, input: Numbers<'_>, count: u64) -> Result<Vec<Message>, RecordError> {
    let mut text = Reader::new(bytes.slice_ref(input.bytes));
    let headers = (0..count).map(|_| Ok(text.headers()?.0)).collect::<Result<Vec<Message>, RecordError>>()?;
    text.end()?;
    Ok(headers)
}

/// All columns of a page.
struct PageColumns {
    columns: [Vec<u64>; Column::ALL.len()],
    /// Those that its entries have.
    headers: Vec<Message>,
}

impl PageColumns {
    /// Reads a page that has an [`Outline`].
    fn read(bytes: &Bytes) -> Result<PageColumns, RecordError> {
        let mut input = Numbers { bytes };
        let count = input.number()?;
        let mut columns: [Vec<u64>; Column::ALL.len()] = Default::default();
        for column in Column::ALL {
            columns[column as usize] = input.column(column.steps(), count)?;
        }
        let which = &columns[Column::Headers as usize];
        let headers = which.iter().max().map_or(0, |last| last + 1);
        Ok(PageColumns { columns, headers: read_headers(bytes, input, headers)? })
    }

    fn column(&self, column: Column) -> &[u64] {
        &self.columns[column as usize]
    }

    /// The entries, the first of which has this stamp.
    fn entries(self, stamp: u64) -> Vec<Packed> {
        let number = |column, place: usize| self.column(column)[place];
        let entry = |place| {
            let headers = self.headers.get(number(Column::Headers, place) as usize)?;
            Some(Packed {
                sequence: number(Column::Sequences, place),
                stamp: stamp + number(Column::Stamps, place),
                position: Position::new(number(Column::Positions, place))?,
                ordinal: number(Column::Ordinals, place) as u32,
                failed_deliveries: number(Column::FailedDeliveries, place) as u32,
                headers: Message { expires_at_ms: number(Column::Expiries, place), ..headers.clone() },
                body_bytes: number(Column::BodyBytes, place),
            })
        };
        let count = self.column(Column::Sequences).len();
        let mut entries = Vec::with_capacity(count);
        entries.extend((0..count).filter_map(entry));
        entries
    }
}

/// The first and the last number of a column whose numbers rise.
fn rising(input: &mut Numbers<'_>, steps: Steps, count: u64) -> Result<(u64, u64), RecordError> {
    let mut ends: Option<(u64, u64)> = None;
    input.runs(steps, count, |run| {
        let last = u128::from(run.first) + u128::from(run.step) * u128::from(run.count - 1);
        let rises = run.count == 1 || (1..COUNT_END).contains(&run.step);
        let follows = ends.is_none_or(|(_, before)| before < run.first);
        if !rises || !follows || last >= u128::from(COUNT_END) {
            return Err(wrong("its entries are not in order"));
        }
        ends = Some((ends.map_or(run.first, |(first, _)| first), last as u64));
        Ok(())
    })?;
    ends.ok_or(wrong("it has no entries"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postroad_model::{Encoding, Group, MessageKey, Protocol, RareHeaders};

    use super::*;

    fn packed(number: u64) -> Packed {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        Packed {
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

    /// No value equals its neighbours.
    fn wild(number: u64) -> Packed {
        let far = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        let group = Some(Group { id: format!("g{}", number % 3).into(), sequence: -1 });
        let rare =
            number.is_multiple_of(2).then(|| Arc::new(RareHeaders { group, ..RareHeaders::default() }));
        Packed {
            sequence: number * 7,
            stamp: number * number + 5,
            position: Position::new(1 + far).expect("from 1"),
            ordinal: far as u32,
            failed_deliveries: (far >> 3) as u32,
            headers: Message { expires_at_ms: far % 5 * far, rare, ..packed(0).headers },
            body_bytes: far % 1000,
        }
    }

    /// One of a transaction of this many messages.
    fn sent_together(number: u64, messages: u64) -> Packed {
        let position = Position::new(1 + number / messages).expect("from 1");
        Packed { position, ordinal: (number % messages) as u32, ..packed(number) }
    }

    /// Of one of four groups.
    fn in_group(number: u64) -> Packed {
        let group = Some(Group { id: format!("group-{}", number * number / 7 % 4).into(), sequence: 0 });
        let rare = Some(Arc::new(RareHeaders { group, ..RareHeaders::default() }));
        Packed { headers: Message { rare, ..packed(0).headers }, ..packed(number) }
    }

    #[test]
    fn a_page_gives_back_what_was_put_into_it() {
        let cases: [(&str, Vec<Packed>); 8] = [
            ("one", vec![packed(70)]),
            ("alike", (0..512).map(packed).collect()),
            ("with gaps", (0..512).filter(|number| number % 10 < 7).map(packed).collect()),
            ("all different", (0..300).map(wild).collect()),
            ("of transactions", (250..2750).map(|number| sent_together(number, 500)).collect()),
            ("of groups", (0..700).map(in_group).collect()),
            ("of small transactions", (1..600).map(|number| sent_together(number, 2)).collect()),
            ("the most", (0..PAGE_ENTRIES_MAX).map(packed).collect()),
        ];
        for (case, entries) in cases {
            let page = Page::of(&entries).expect("entries");
            assert_eq!(page.entries(), entries, "case: {case}");
            let mut next = entries[0].stamp;
            let again = Page::read(&page.bytes()).expect("a page").stamped(&mut next);
            assert_eq!(Some(next), entries.last().map(|last| last.stamp + 1), "case: {case}");
            assert_eq!((again.entries(), again.bytes()), (entries.clone(), page.bytes()), "case: {case}");
            let ends = (again.len(), again.ends(), again.first_expiry_ms(), again.has_groups());
            let want = (page.len(), page.ends(), page.first_expiry_ms(), page.has_groups());
            assert_eq!(ends, want, "case: {case}");
            let key =
                |entry: &Packed| MessageKey::Durable { position: entry.position, ordinal: entry.ordinal };
            let messages: Vec<_> = entries.iter().map(|entry| (key(entry), entry.body_bytes)).collect();
            let rows = page.messages();
            let told: Vec<_> =
                rows.iter().flat_map(|row| row.keys().map(|key| (key, row.body_bytes))).collect();
            assert_eq!(told, messages, "case: {case}");
            match case {
                "alike" => assert_eq!(rows.len(), 1, "what is alike is one row"),
                "of transactions" => assert_eq!(rows.len(), 6, "messages of a record are one row"),
                _ => {}
            }
            let bytes = entries.iter().map(|entry| entry.body_bytes).sum();
            assert_eq!(page.load(), Load { messages: page.len(), bytes }, "case: {case}");
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
            |count| Page::of(&(0..count).map(packed).collect::<Vec<_>>()).expect("entries").bytes().len();
        assert_eq!((bytes(64), bytes(512)), (51, 54));
        let entries: Vec<_> = (0..2000).map(|number| sent_together(number, 500)).collect();
        assert_eq!(Page::of(&entries).expect("entries").bytes().len(), 91, "four transactions");
        let entries: Vec<_> = (0..2000).map(in_group).collect();
        assert_eq!(Page::of(&entries).expect("entries").bytes().len(), 1876, "four groups");
    }

    #[test]
    fn numbers_that_leave_their_range_by_steps_are_refused() {
        for (case, first, step, count, below) in [
            ("the last one", 0, 1, 1 << 8, true),
            ("one behind it", 0, 1, (1 << 8) + 1, false),
            ("down to zero", 9, u64::MAX, 10, true),
            ("below zero", 9, u64::MAX, 11, false),
            ("far beyond", u64::MAX, 1, 2, false),
            ("none", 0, 0, 0, true),
        ] {
            assert_eq!(Run { first, step, count }.is_below(1 << 8), below, "case: {case}");
        }
    }

    #[test]
    fn what_is_no_page_is_refused_wherever_it_is_broken() {
        let entries: Vec<Packed> = (0..20).map(wild).collect();
        let page = Page::of(&entries).expect("entries");
        for end in 0..page.bytes().len() {
            assert!(Page::read(&page.bytes()[..end]).is_err(), "cut at {end}");
        }
        assert!(Page::read(&[&page.bytes()[..], &[0]].concat()).is_err(), "lengthened");
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
