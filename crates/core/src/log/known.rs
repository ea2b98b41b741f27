//! Windows of the duplicate detection as bytes: in a snapshot, and in records that take them to
//! another partition.
//!
//! Never here: how windows are merged.

use bytes::{Bytes, BytesMut};
use postroad_model::{Command, PartitionId, UserKey};

use crate::intake::arrivals::Runs;
use crate::intake::audit::{Audit, Known, Producer, Window, Windows};
use crate::log::reader::Reader;
use crate::log::record::{RecordError, Writer, kind};

/// Producers in one record: merging their windows takes less than a millisecond.
const PART_PRODUCERS: usize = 64;

/// Runs in one record, or those of one queue.
const PART_RUNS: usize = 4096;

/// The windows of the audit, in parts for one record each.
pub fn parts(audit: &Audit) -> Vec<Bytes> {
    let producers: Vec<_> = audit.generations().into_iter().flatten().collect();
    let mut parts: Vec<Bytes> =
        producers.chunks(PART_PRODUCERS).map(|producers| part(producers, &[])).collect();
    let (mut gathered, mut runs) = (Vec::new(), 0);
    for arrivals in audit.arrivals.generations().into_iter().flatten() {
        runs += arrivals.1.iter().count();
        gathered.push(arrivals);
        if PART_RUNS <= runs {
            parts.push(part(&[], &std::mem::take(&mut gathered)));
            runs = 0;
        }
    }
    if !gathered.is_empty() {
        parts.push(part(&[], &gathered));
    }
    parts
}

fn part(producers: &[(Producer, Windows)], arrivals: &[(Producer, Runs)]) -> Bytes {
    let mut out = Writer::default();
    write_producers(&mut out, producers);
    write_arrivals(&mut out, arrivals);
    let pieces = out.finish();
    let mut bytes = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
    bytes.freeze()
}

/// The windows of one part.
///
/// # Errors
/// [`RecordError`]: it was not written by [`parts`].
pub fn read(part: &Bytes) -> Result<Known, RecordError> {
    let mut input = Reader::new(part.clone());
    let (producers, arrivals) = (input.list(read_producer)?, input.list(read_arrivals)?);
    input.end()?;
    Ok(Known { producers, arrivals })
}

/// The command of a record about queues that move.
pub(super) fn command_of_move(kind: u8, input: &mut Reader<'_>) -> Result<Command, RecordError> {
    if kind == kind::LEAVE {
        return Ok(Command::Leave { queue: input.destination()?, to: PartitionId(input.u16()?) });
    }
    let known = input.rest();
    read(&known)?;
    Ok(Command::Remember { known })
}

pub(super) fn write_producers(out: &mut Writer, producers: &[(Producer, Windows)]) {
    out.list(producers, |out, (producer, windows)| {
        write_producer_id(out, producer);
        write_window(out, &windows.last);
        out.list(windows.other.as_slice(), |out, window| write_window(out, window));
    });
}

pub(super) fn write_arrivals(out: &mut Writer, arrivals: &[(Producer, Runs)]) {
    out.list(arrivals, |out, (producer, runs)| {
        write_producer_id(out, producer);
        out.list(&runs.iter().collect::<Vec<_>>(), |out, (first, last)| {
            out.u64(*first).u64(*last);
        });
    });
}

fn write_producer_id(out: &mut Writer, producer: &Producer) {
    out.u64(UserKey::number(producer.user));
    out.u64(producer.id as u64).u64((producer.id >> 64) as u64);
}

fn write_window(out: &mut Writer, window: &Window) {
    out.u64(window.sequence);
    window.seen.iter().for_each(|word| {
        out.u64(*word);
    });
}

fn read_producer_id(input: &mut Reader<'_>) -> Result<Producer, RecordError> {
    let user = UserKey::from_number(input.u64()?);
    let id = u128::from(input.u64()?) | u128::from(input.u64()?) << 64;
    Ok(Producer { user, id })
}

pub(super) fn read_arrivals(input: &mut Reader<'_>) -> Result<(Producer, Runs), RecordError> {
    let producer = read_producer_id(input)?;
    let runs = input.list(|input| Ok((input.u64()?, input.u64()?)))?;
    Ok((producer, Runs::restore(runs)))
}

pub(super) fn read_producer(input: &mut Reader<'_>) -> Result<(Producer, Windows), RecordError> {
    let producer = read_producer_id(input)?;
    let last = read_window(input)?;
    let other = input.list(read_window)?.pop().map(Box::new);
    Ok((producer, Windows { last, other }))
}

fn read_window(input: &mut Reader<'_>) -> Result<Window, RecordError> {
    let (sequence, mut seen) = (input.u64()?, [0; _]);
    for word in &mut seen {
        *word = input.u64()?;
    }
    Ok(Window { sequence, seen })
}
