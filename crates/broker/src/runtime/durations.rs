//! How long writes took, and how much they had: histograms in little memory.

use std::time::Duration;

use postroad_admin::Distribution;
use postroad_journal::Log2Histogram;

/// For operators. Values beyond the last bucket are counted in it.
pub fn distribution(powers: &Log2Histogram) -> Distribution {
    Distribution { counts: powers.counts().to_vec(), sum: powers.sum() }
}

/// Durations in microseconds: a figure from it is at most twice too high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    micros: Log2Histogram,
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
        distribution(&self.micros)
    }

    /// Quantile: this number of thousandths took no longer, rounded up to a power of two of a
    /// microsecond, and never above the longest.
    pub fn within(&self, thousandths: u64) -> Duration {
        let counts = self.micros.counts();
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
