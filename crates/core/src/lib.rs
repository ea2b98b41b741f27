//! Core room: the broker as a state machine.
//!
//! In: [`Command`](postroad_model::Command)s that are durable, through [`Partition::apply`], and
//! [`Event`](postroad_model::Event)s that are not, through [`Partition::soft`].
//! Out: [`Effect`](postroad_model::Effect)s, in the order in which they must happen.
//! Never here: clocks, randomness, sockets, files, threads, locks, logging, protocol names.
//!
//! One [`Partition`] owns the addresses whose names hash to it. A durable change is decided by
//! `soft`, proposed to the log, and carried out by `apply` once it is durable: standalone, on a
//! replica, after a restart and in the simulator alike. Start at [`Partition`], then `publish`,
//! `consumer` and `dispatch`, which are a message's way through; `transaction` may wait.

mod account;
mod address;
mod ahead;
mod audit;
mod binding;
mod bodies;
mod chunks;
mod columns;
mod completion;
mod compressed;
mod connection;
mod consumer;
mod destination;
mod dispatch;
mod durability;
mod ending;
mod expiry;
mod figures;
mod folding;
mod folds;
mod group;
mod held;
mod idle;
mod last_value;
mod limit;
mod line;
mod lines;
mod link;
mod mend;
mod notice;
mod parked;
mod partition;
mod publish;
mod queue;
mod recent;
mod record;
mod redrive;
mod release;
mod rest;
mod schedule;
mod selection;
mod settle;
mod slow;
mod snapshot;
mod spread;
mod subscription;
mod transaction;
mod waiting;
mod whereabouts;

pub use account::Account;
pub use ahead::UnwrittenPages;
pub use audit::OriginOf;
pub use figures::{QueueCounts, QueueFigures};
pub use mend::{Doubts, Holder, LostMessage, Mended, Mending};
pub use partition::{CountRetained, Counters, MarkDead, Memory, PAGE_ENTRIES, Partition, Settings};
pub use record::{
    RecordError, chunk_in_record, decode_record, encode_record, message_in_record, sent_in_record,
};
pub use redrive::Revive;
pub use schedule::{Firing, WriteDue};
pub use selection::PropertiesOf;
pub use snapshot::{HeldEntry, SnapshotError};
