//! The space on the disk of a node, as the others hear of it.
//!
//! ```text
//! notice, in a frame of its own:  0xf0 u8 │ space u8
//! ```
//! A node that speaks of it in its hello takes notices; others are sent none.

/// First byte of a notice; messages begin with [`crate::FORMAT_VERSION`], which stays below.
const NOTICE: u8 = 0xf0;

/// See the head of this file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskSpace {
    /// As far as the node knows.
    #[default]
    Ample,
    /// No further segment fits: what frees space still does, and what is on its way.
    Low,
    /// Entries of the leader found no room, and are not taken until there is some.
    Exhausted,
}

impl DiskSpace {
    /// The byte of it.
    pub fn byte(self) -> u8 {
        match self {
            DiskSpace::Ample => 0,
            DiskSpace::Low => 1,
            DiskSpace::Exhausted => 2,
        }
    }

    /// That of a byte; states of later versions are taken for the worst.
    pub fn of_byte(byte: u8) -> DiskSpace {
        match byte {
            0 => DiskSpace::Ample,
            1 => DiskSpace::Low,
            _ => DiskSpace::Exhausted,
        }
    }

    /// The frame that says it.
    pub fn notice(self) -> [u8; 2] {
        [NOTICE, self.byte()]
    }

    /// The content of a frame; `None` if it is not a notice.
    pub fn of_notice(frame: &[u8]) -> Option<DiskSpace> {
        match frame {
            [NOTICE, space] => Some(DiskSpace::of_byte(*space)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FORMAT_VERSION;

    #[test]
    fn a_notice_says_the_space_and_is_no_message() {
        for space in [DiskSpace::Ample, DiskSpace::Low, DiskSpace::Exhausted] {
            assert_eq!(DiskSpace::of_notice(&space.notice()), Some(space));
            assert!(crate::decode(space.notice().to_vec().into()).is_err());
        }
        assert_eq!(DiskSpace::of_notice(&[NOTICE, 9]), Some(DiskSpace::Exhausted), "of a later version");
        for frame in [&[][..], &[NOTICE], &[NOTICE, 0, 0], &[FORMAT_VERSION, 0]] {
            assert_eq!(DiskSpace::of_notice(frame), None, "{frame:?}");
        }
    }
}
