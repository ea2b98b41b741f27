//! The contents of the schedule, for exporting all of it.
//!
//! Never here: the messages, which are in the log.

use bytes::Bytes;
use postroad_model::{Due, Position, Recurrence, Schedule};

use super::Job;
use super::packed::PackedJobs;
use crate::Partition;
use crate::log::read_back::jobs_in_record;
use crate::log::record::RecordError;

/// A message that is due later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldJob {
    /// When it is due next, and where in the log it lies.
    pub due: Due,
    /// How it goes on then.
    pub again: Option<Recurrence>,
    /// Bytes of its body; of one above 4 GiB as many.
    pub body_bytes: u32,
}

impl HeldJob {
    fn of((due, job): (Due, Job), again: Option<&Recurrence>) -> HeldJob {
        HeldJob { due, again: again.cloned(), body_bytes: job.bytes }
    }

    /// The schedule by which a copy that is sent now comes when this one would; `stored` is that of
    /// its record, with which it began.
    pub fn schedule(&self, stored: &Schedule) -> Schedule {
        let has_cron = self.again.as_ref().is_some_and(|again| again.cron.is_some());
        // An expression is looked at after this moment.
        let due_ms = self.due.at_ms.saturating_sub(u64::from(has_cron));
        Schedule { job: stored.job.clone(), due_ms, again: self.again.clone(), retry: stored.retry.clone() }
    }
}

/// The jobs of a shelf, from its record.
///
/// # Errors
/// [`RecordError`]: the bytes are no record, or its contents are no jobs; `Ok(None)` if the record
/// is another one.
pub fn held_jobs_in_record(record: &Bytes) -> Result<Option<Vec<HeldJob>>, RecordError> {
    let Some(bytes) = jobs_in_record(record)? else { return Ok(None) };
    let jobs = PackedJobs::read(&bytes)?.jobs();
    // Those that are due more than once are never on shelves.
    Ok(Some(jobs.into_iter().map(|job| HeldJob::of(job, None)).collect()))
}

impl Partition {
    /// The jobs in memory, in the order in which they are due. The others are on shelves: see
    /// [`Partition::held_shelves`].
    pub fn held_jobs(&self) -> impl Iterator<Item = HeldJob> + '_ {
        self.state.jobs.iter().map(|(due, job, again)| HeldJob::of((due, job), again))
    }

    /// The records with further jobs, each with how many: see [`held_jobs_in_record`].
    pub fn held_shelves(&self) -> impl Iterator<Item = (Position, u32)> + '_ {
        self.state.jobs.shelves.iter().map(|shelf| (shelf.position, shelf.jobs))
    }

    /// How many messages prepared transactions hold, which go nowhere before those end.
    pub fn prepared_messages(&self) -> u64 {
        self.state
            .prepared
            .values()
            .map(|prepared| (prepared.sends.len() + prepared.scheduled.len()) as u64)
            .sum()
    }
}
