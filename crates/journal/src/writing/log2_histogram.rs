//! How often which values came: a histogram in little memory.

/// The last bucket has all values from 2³⁰ on: of microseconds it begins at 17 minutes.
const BUCKETS: usize = 31;

/// Values, each counted in the bucket of the next power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log2Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Log2Histogram {
    /// Counts one.
    pub fn add(&mut self, value: u64) {
        let power = value.max(1).checked_next_power_of_two();
        let bucket = power.map_or(BUCKETS, |power| power.trailing_zeros() as usize);
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// Bucket n counts values up to 2ⁿ, and above 2ⁿ⁻¹; those that are empty to the end are left
    /// out.
    pub fn counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|count| 0 < *count).map_or(0, |last| last + 1);
        &self.counts[..used]
    }

    /// All values together.
    pub fn sum(&self) -> u64 {
        self.sum
    }
}
