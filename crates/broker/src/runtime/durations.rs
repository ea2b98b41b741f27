//! How long writes took, and how much they had: histograms in little memory.

use std::time::Duration;

use postroad_admin::Distribution;

/// Buckets by powers of two of a microsecond: the last one begins at 17 minutes.
const BUCKETS: usize = 31;

/// Values, each counted in the bucket of the next power of two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Powers {
    counts: [u64; BUCKETS],
    sum: u64,
}

impl Powers {
    /// Counts one.
    pub fn add(&mut self, value: u64) {
        let power = value.max(1).checked_next_power_of_two();
        let bucket = power.map_or(BUCKETS, |power| power.trailing_zeros() as usize);
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// For operators, without the buckets that are empty to the end. Values beyond the last bucket are counted in it.
    pub fn distribution(&self) -> Distribution {
        let used = self.counts.iter().rposition(|count| 0 < *count).map_or(0, |last| last + 1);
        Distribution { counts: self.counts[..used].to_vec(), sum: self.sum }
    }
}

/// Durations in microseconds: a figure from it is at most twice too high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    micros: Powers,
    /// All together.
    pub total: Duration,
    /// The longest.
    pub max: Duration,
}

impl Durations {
    /// Counts one.
    pub fn add(&mut self, duration: Duration) {
        self.micros.add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        self.total += duration;
        self.max = self.max.max(duration);
    }

    /// For operators.
    pub fn distribution(&self) -> Distribution {
        self.micros.distribution()
    }

    /// So many thousandths of all took no longer, rounded up to a power of two of a microsecond, and never above the longest.
    pub fn within(&self, thousandths: u64) -> Duration {
        let counts = &self.micros.counts;
        let all: u64 = counts.iter().sum();
        let wanted = (all * thousandths).div_ceil(1000);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
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
