//! Bits of a message's flags, as records have them.

pub const PERSISTENT: u8 = 1;
pub const GROUP: u8 = 2;
pub const CLIENT: u8 = 4;
pub const LAST_VALUE: u8 = 8;
pub const CHUNKS: u8 = 32;
pub const RETURNS: u8 = 64;
pub const ALL: u8 = PERSISTENT | GROUP | CLIENT | LAST_VALUE | CHUNKS | RETURNS | FURTHER;
/// A second byte of flags follows.
pub const FURTHER: u8 = 128;
/// Of the second byte.
pub const USER: u8 = 1;
pub const VISIBLE: u8 = 2;
pub const DEDUPLICATION: u8 = 4;
/// A subscription follows that alone gets it.
pub const ONLY: u8 = 8;
/// A subscription follows that does not get it.
pub const EXCEPT: u8 = 16;
/// The redrive that moved it follows.
pub const REDRIVEN: u8 = 32;
pub const ALL_FURTHER: u8 = USER | VISIBLE | DEDUPLICATION | ONLY | EXCEPT | REDRIVEN;
/// In records alone, where a body follows: it is compressed.
pub const COMPRESSED: u8 = 16;
