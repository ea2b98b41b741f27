//! How much happened in runs of leases.

use std::collections::BTreeMap;

/// Counts by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseReport(BTreeMap<&'static str, u64>);

impl LeaseReport {
    /// Adds to a count.
    pub fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    /// Adds another run.
    pub fn add_all(&mut self, other: &LeaseReport) {
        other.0.iter().for_each(|(what, times)| self.add(what, *times));
    }

    /// How often it happened.
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }
}
