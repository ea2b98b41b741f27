//! Opening a journal: its files, their durable contents, and the rest of a torn end.
//!
//! Start at [`recovery`].
//! Never here: later writes, repair of damage.

pub mod assembly;
pub mod body;
pub mod chain;
pub mod checkpoint_load;
pub mod recovered;
pub mod recovery;
pub mod reread;
pub mod states;
pub mod verify;
