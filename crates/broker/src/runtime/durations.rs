//! How long writes took: a histogram in little memory, for one line of figures.

use std::time::Duration;

/// Buckets by powers of two of a microsecond: the last one begins at 17 minutes.
const BUCKETS: usize = 31;

/// Durations, each counted in the bucket of the next power of two: a figure from it is at most twice too high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    counts: [u64; BUCKETS],
    /// All together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).max(1);
        let bucket = micros.next_power_of_two().trailing_zeros() as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += duration;
        self.max = self.max.max(duration);
    }

    /// So many thousandths of all took no longer, rounded up to a power of two of a microsecond, and never above the longest.
    pub fn within(&self, thousandths: u64) -> Duration {
        let all: u64 = self.counts.iter().sum();
        let wanted = (all * thousandths).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if wanted <= seen && 0 < seen {
                return Duration::from_micros(1 << bucket).min(self.max);
            }
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_at_most_twice_too_high_and_never_too_low() {
        let micros = Duration::from_micros;
        for (name, values, half, nearly_all, max) in [
            ("nothing", vec![], 0, 0, 0),
            ("one", vec![100], 100, 100, 100),
            ("two kinds", vec![100, 100, 100, 3000], 128, 3000, 3000),
            ("shorter than a microsecond", vec![0, 0], 0, 0, 0),
            ("very long", vec![u64::MAX / 2000], 1 << 30, 1 << 30, u64::MAX / 2000),
        ] {
            let mut durations = Durations::default();
            values.iter().for_each(|&value| durations.add(micros(value)));
            let got = (durations.within(500), durations.within(999), durations.max);
            assert_eq!(got, (micros(half), micros(nearly_all), micros(max)), "case: {name}");
        }
    }
}
