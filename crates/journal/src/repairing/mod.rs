//! Repairing: the readable part of a damaged directory becomes one that opens.
//!
//! Start at [`repair`].
//! Never here: a journal that is in service.

pub mod rebuild;
pub mod repair;
pub mod salvage;
pub mod salvage_scan;
