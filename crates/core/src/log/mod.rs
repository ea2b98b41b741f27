//! The log's side: commands as records, the state as a snapshot, and what follows when they are durable.
//!
//! Never here: what a command does.

pub mod ahead;
pub mod columns;
pub mod completion;
pub mod compressed;
pub mod durability;
pub mod kin;
pub mod known;
pub mod mend;
pub mod read_back;
pub mod reader;
pub mod record;
pub mod shorten;
pub mod snapshot;
