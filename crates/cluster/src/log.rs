//! The seam to the place where entries are stored.

use crate::entry::{Entry, EntryId, Index, Term};
use crate::members::Members;

/// Why entries cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// They were removed: a snapshot has their effects.
    #[error("entry {} was compacted away", .0.0)]
    Compacted(Index),
    /// The disk could not read them.
    #[error("entry {} cannot be read: {reason}", .index.0)]
    Unreadable {
        /// The entry.
        index: Index,
        /// The reason given by the operating system.
        reason: String,
    },
}

/// The durable entries of a log, for reading. [`crate::Group`] keeps entries that are not synced
/// yet itself, so an implementation need not have them. Writing is the caller's, by
/// [`crate::Actions::append`].
pub trait EntryLog {
    /// The entry before the first one that can be read; index 0 and term 0 if nothing was removed.
    fn floor(&self) -> EntryId;

    /// The last entry; the floor if there is none.
    fn last(&self) -> Index;

    /// The term of an entry above the floor; `None` if there is no such entry.
    fn term(&self, index: Index) -> Option<Term>;

    /// The changes of members that it has, in order; those that a checkpoint includes may be left
    /// out.
    fn members(&self) -> Vec<Members>;

    /// Entries from `from` through `through`: at least one, and no more than `bytes_max` of payload
    /// unless the first alone has more.
    ///
    /// # Errors
    /// See [`LogError`].
    fn entries(&self, from: Index, through: Index, bytes_max: u64) -> Result<Vec<Entry>, LogError>;
}
