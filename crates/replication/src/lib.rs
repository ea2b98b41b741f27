//! Replication room: how proposed commands become durable, and come back in order.
//!
//! [`ReplLog`] is the seam: the broker proposes, and polls for durable records. [`LocalLog`] is the
//! journal alone: a handle on each partition's thread, and one [`LogWriter`], which turns all
//! gathered batches into one group, one write and one sync. Its caller is the journal's thread, or
//! a lone core. In a cluster it has a [`Replica`] in place of the journal alone.
//! Never here: the meaning of a record, threads, sockets, clocks.

mod job;
mod local;
mod log;
mod pauses;
mod replica;
mod room;
mod scrub;
mod unread;
mod writer;
mod written;

pub use job::{Job, JobDone, JobKind};
pub use local::{LocalLog, Port};
pub use log::{LogEvent, Proposal, ReplLog, WrittenTimes};
pub use replica::{Held, Outlet, Replica, ReplicaStatus, Replicated};
pub use room::OthersSpace;
pub use writer::gathered::Gathered;
pub use writer::replicated::{Leadership, first_damage};
pub use writer::{Change, FailedWork, LogWriter, Note, Opened, ToPartition, ToWriter};
pub use written::Written;

#[cfg(test)]
mod tests;
