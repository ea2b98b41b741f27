//! Packed jobs: columns of bytes in place of a tree. See docs/formats/records.md.

use bytes::Bytes;
use postroad_model::{Due, Position};

use super::Job;
use crate::log::columns::{Numbers, Steps, put_column, put_number, wrong};
use crate::log::record::RecordError;

/// The most jobs that a page may have: bounds the memory that one from outside makes us reserve.
pub const PAGE_JOBS_MAX: u64 = 1 << 16;

/// Jobs as columns of bytes.
#[derive(Clone, Default)]
pub struct PackedJobs {
    bytes: Bytes,
    count: usize,
}

impl PackedJobs {
    /// These, which are in order, and not more than [`PAGE_JOBS_MAX`].
    pub fn of(jobs: impl IntoIterator<Item = (Due, Job)>) -> PackedJobs {
        let jobs: Vec<(Due, Job)> = jobs.into_iter().collect();
        let (dues, mut out) = (|| jobs.iter().map(|(due, _)| due), Vec::new());
        put_number(&mut out, jobs.len() as u64);
        put_column(&mut out, Steps::Told, dues().map(|due| due.at_ms).collect());
        put_column(&mut out, Steps::Told, dues().map(|due| due.position.get()).collect());
        put_column(&mut out, Steps::None, dues().map(|due| u64::from(due.ordinal)).collect());
        put_column(&mut out, Steps::None, jobs.iter().map(|(_, job)| u64::from(job.bytes)).collect());
        jobs.iter().for_each(|(_, job)| out.extend_from_slice(&job.name.to_le_bytes()));
        PackedJobs { bytes: out.into_boxed_slice().into(), count: jobs.len() }
    }

    /// From bytes that came from [`PackedJobs::bytes`].
    ///
    /// # Errors
    /// [`RecordError`]: these bytes are no page of jobs.
    pub fn read(bytes: &[u8]) -> Result<PackedJobs, RecordError> {
        let count = decode(bytes)?.len();
        Ok(PackedJobs { bytes: Bytes::copy_from_slice(bytes), count })
    }

    /// As they are written; empty if there are none.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// In order.
    pub fn jobs(&self) -> Vec<(Due, Job)> {
        if self.count == 0 {
            return Vec::new();
        }
        let jobs = decode(&self.bytes);
        debug_assert!(jobs.is_ok(), "a page was read when it was made");
        jobs.unwrap_or_default()
    }
}

fn decode(bytes: &[u8]) -> Result<Vec<(Due, Job)>, RecordError> {
    let mut input = Numbers { bytes };
    let count = input.number()?;
    if count == 0 || PAGE_JOBS_MAX < count {
        return Err(wrong("the number of its jobs"));
    }
    let [at_ms, positions] = [input.column(Steps::Told, count)?, input.column(Steps::Told, count)?];
    let [ordinals, bytes] = [input.column(Steps::None, count)?, input.column(Steps::None, count)?];
    let (names, rest) = input.bytes.as_chunks::<8>();
    if names.len() as u64 != count || !rest.is_empty() {
        return Err(wrong("its names are not as many as its jobs"));
    }
    let small = |number: u64| u32::try_from(number).map_err(|_| wrong("a number is too large"));
    let job = |place: usize| {
        let position = Position::new(positions[place]).ok_or(wrong("a position is 0"))?;
        let due = Due { at_ms: at_ms[place], position, ordinal: small(ordinals[place])? };
        Ok((due, Job { bytes: small(bytes[place])?, name: u64::from_le_bytes(names[place]) }))
    };
    let jobs = (0..names.len()).map(job).collect::<Result<Vec<_>, RecordError>>()?;
    match jobs.is_sorted_by(|(one, _), (next, _)| one < next) {
        true => Ok(jobs),
        false => Err(wrong("its jobs are not in order")),
    }
}
