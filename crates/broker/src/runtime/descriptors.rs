//! The limit on open files.

use rustix::process::{Resource, getrlimit};

/// As many descriptors as the process may have; without a limit the largest number.
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
