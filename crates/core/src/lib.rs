//! Core room: the broker as a state machine.
//!
//! In: [`Command`](postroad_model::Command)s that are durable, through [`Partition::apply`], and
//! [`Event`](postroad_model::Event)s that are not, through [`Partition::soft`].
//! Out: [`Effect`](postroad_model::Effect)s, in the order in which they must happen.
//! Never here: clocks, randomness, sockets, files, threads, locks, logging, protocol names.
//!
//! One [`Partition`] owns the addresses whose names hash to it. A durable change is decided by
//! `soft`, proposed to the log, and carried out by `apply` once it is durable: standalone, on a
//! replica, after a restart and in the simulator alike.
//!
//! Start at [`Partition`]. The folders follow a message: `intake`, `queue`, `delivery`, `settling`;
//! beside its way are `addresses`, `transaction`, `schedule`, moving queues in `moving`, retained
//! messages of topics in `retained`, budgets and packed pages in `memory`, and proposals in `log`.

mod addresses;
mod ask;
mod claims;
mod clock;
mod connection;
mod delivery;
mod documents;
mod entries;
mod explain;
mod figures;
mod flow;
mod intake;
mod leader;
mod leasing;
mod leaving;
mod log;
mod memory;
mod moving;
mod notice;
mod partition;
mod pausing;
mod protocols;
mod queue;
mod retained;
mod schedule;
mod settings;
mod settling;
mod state;
mod stepping_down;
mod traces;
mod transaction;

pub use delivery::selection::PropertiesOf;
pub use documents::{Document, documents};
pub use figures::{LedgerSums, QueueCounts, QueueFigures, Watched, WatchedQueue, watch};
pub use intake::account::Account;
pub use intake::audit::OriginOf;
pub use intake::blocked::BlockedOn;
pub use intake::routes::ChangeHeaders;
pub use log::ahead::UnwrittenPages;
pub use log::mend::{Doubts, Holder, LostMessage, PartitionRebuild, RebuiltPartition};
pub use log::read_back::{
    LastRecord, Sends, chunk_in_record, jobs_in_record, message_in_record, read_back, sends_in_record,
    sent_in_record, tell_together,
};
pub use log::record::{RecordError, decode_record, encode_record};
pub use log::shorten::shorten_record;
pub use log::snapshot::{HeldEntry, SnapshotError};
pub use log::sort_key::sort_key_of_record;
pub use moving::places_of_leaving;
pub use partition::{Counters, Memory, Partition};
pub use pausing::paused_queues;
pub use protocols::{CountRetained, MarkDead};
pub use queue::Load;
pub use schedule::{Firing, HeldJob, WriteDue, held_jobs_in_record};
pub use settings::{PAGE_ENTRIES, SLICE_CHANGES, Settings};
pub use settling::redrive::Revive;
pub use traces::{FOLLOWED_MAX, QUEUES_MAX};
