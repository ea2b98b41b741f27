//! The logs of one core: one for each store, as the records of a store leave in one write and one
//! sync, for which cores without records of it do not wait.
//!
//! Never here: partitions, the meaning of records.

use std::time::{Duration, Instant};

use postroad_model::{PartitionId, PartitionRange, Position};
use postroad_replication::{LocalLog, LogEvent, Port, ReplLog, ToPartition, ToWriter};

use crate::pace::Pace;
use crate::ring::{Receiver, Sender};

/// Lazy records ride with the next waiting one, but wait no longer than this.
const LAZY: Duration = Duration::from_millis(5);

/// A log's rings, as the log wants to see them.
pub struct LogRing {
    /// To the journal's thread.
    pub sender: Sender<ToWriter>,
    /// From it.
    pub receiver: Receiver<ToPartition>,
}

impl Port for LogRing {
    fn send(&mut self, message: ToWriter) -> Result<(), ToWriter> {
        self.sender.send(message);
        Ok(())
    }

    fn receive(&mut self) -> Option<ToPartition> {
        self.receiver.pop()
    }
}

/// How a core has its store's journal written.
pub trait JournalWriter {
    /// The journal's thread writes the contents of the rings, beside the caller.
    fn hand_over(&self);

    /// Writes the contents of the rings on the caller's thread, which waits for the disk. `false`,
    /// at once, if the journal cannot be written here now.
    fn write_here(&self) -> bool;
}

/// The way of a core to a store.
pub struct LogLink {
    /// The store's partitions, on whichever core.
    pub range: PartitionRange,
    /// To and from its journal.
    pub ring: LogRing,
    /// Its journal.
    pub journal: Box<dyn JournalWriter + Send>,
}

/// See the head of this file.
pub struct Logs {
    /// The main store's first.
    logs: Vec<Log>,
    pace: Pace,
}

struct Log {
    range: PartitionRange,
    log: LocalLog<LogRing>,
    journal: Box<dyn JournalWriter + Send>,
    lazy_until: Option<Instant>,
}

impl Logs {
    /// For the partitions of a core, each with the end of its log. The core may be the only one.
    pub fn new(links: Vec<LogLink>, ends: &[(PartitionId, Option<Position>)], is_alone: bool) -> Logs {
        // A core that waits for one store's disk would have the others' clients wait too.
        let pace = Pace::new(is_alone && links.len() == 1);
        let logs = links.into_iter().map(|LogLink { range, ring, journal }| {
            let own = ends.iter().copied().filter(|(id, _)| range.contains(*id));
            Log { range, log: LocalLog::new(ring, own), journal, lazy_until: None }
        });
        Logs { logs: logs.collect(), pace }
    }

    /// The log of a partition.
    pub fn of(&mut self, id: PartitionId) -> &mut LocalLog<LogRing> {
        let place = match self.logs.len() {
            1 => 0,
            _ => self.logs.iter().position(|log| log.range.contains(id)).unwrap_or(0),
        };
        &mut self.logs[place].log
    }

    /// An event of a log, and the partitions that it is for if it names none.
    pub fn poll(&mut self) -> Option<(PartitionRange, LogEvent)> {
        self.logs.iter_mut().find_map(|log| Some((log.range, log.log.poll()?)))
    }

    /// See [`Pace::passed_the_disk_by`].
    pub fn passed_the_disk_by(&mut self) {
        self.pace.passed_the_disk_by();
    }

    /// When lazy records must go, if there are any.
    pub fn lazy_until(&self) -> Option<Instant> {
        self.logs.iter().filter_map(|log| log.lazy_until).min()
    }

    /// Sends the gathered records to each journal.
    pub fn flush(&mut self) {
        let now = Instant::now();
        for log in &mut self.logs {
            log.flush(now, &mut self.pace);
        }
    }

    /// Sends everything on its way, awaited or not.
    pub fn flush_all(&mut self) {
        let now = Instant::now();
        for log in &mut self.logs {
            log.lazy_until = Some(now);
        }
        self.flush();
    }
}

impl Log {
    fn flush(&mut self, now: Instant, pace: &mut Pace) {
        let due = self.lazy_until.is_some_and(|until| until <= now);
        let wanted = self.log.flush(due);
        self.lazy_until = self.log.has_lazy().then(|| self.lazy_until.filter(|_| !due).unwrap_or(now + LAZY));
        if self.log.port().sender.flush() && wanted {
            // Lazy records are no reason for a wait.
            if due || !pace.writes_itself() || !self.write_here(now, pace) {
                self.journal.hand_over();
            }
        }
    }

    fn write_here(&self, begin: Instant, pace: &mut Pace) -> bool {
        let written = self.journal.write_here();
        if written {
            pace.wrote(begin.elapsed());
        }
        written
    }
}
