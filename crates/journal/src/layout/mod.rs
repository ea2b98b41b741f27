//! Layout: the format on the disk, and its encryption.
//!
//! Start at [`format`](mod@format).
//! Never here: files.

pub(crate) mod bundle;
pub mod checkpoint_bytes;
pub mod cipher;
pub mod format;
pub mod group;
pub(crate) mod sorted;
