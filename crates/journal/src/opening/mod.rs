//! Opening a journal: which files it has, what of them is durable, and what a torn end leaves.
//!
//! Start at [`recovery`]. Never here: what is written later, mending of damage.

pub mod assembly;
pub mod body;
pub mod chain;
pub mod checkpoint_load;
pub mod recovered;
pub mod recovery;
pub mod reread;
pub mod states;
pub mod verify;
