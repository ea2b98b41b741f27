//! The ways in which a directory can be written, all of which keep the same promises: a disk may
//! like one better than another.
//!
//! Never here: which one a disk likes, and who has found out.

/// How the files of a disk are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ways {
    /// Past the page cache, where alignment and the file system allow it.
    pub direct: bool,
    /// A group that is to be durable is so by its write (`RWF_DSYNC`), not by an fdatasync after
    /// it.
    pub one_call: bool,
    /// The space of a new segment is filled with zeros ahead of its use, not only allocated.
    pub zeroed: bool,
}

impl Default for Ways {
    fn default() -> Ways {
        Ways { direct: true, one_call: false, zeroed: true }
    }
}
