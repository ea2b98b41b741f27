//! The log's side: commands as records, the state as a snapshot, and the completion of durable
//! commands.
//!
//! Never here: the effect of a command.

pub mod ahead;
pub mod columns;
pub mod completion;
pub mod compressed;
pub mod durability;
mod flag;
pub mod known;
mod lease_records;
pub mod mend;
pub mod propose;
mod queue_records;
pub mod read_back;
pub mod reader;
pub mod record;
mod redrive_mark;
pub mod shorten;
pub mod snapshot;
pub mod sort_key;
