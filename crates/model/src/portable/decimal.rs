//! Decimal numbers, as IEEE 754 has them besides its binary ones.

use std::fmt;

/// `digits` times ten to the power of `exponent`, below zero if `negative`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// Whether the sign is minus; zero has a sign too.
    pub negative: bool,
    /// The digits: 34 at most.
    pub digits: u128,
    /// The power of ten.
    pub exponent: i32,
}

impl Decimal {
    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negative { "-" } else { "" };
        write!(f, "{sign}{}E{}", self.digits, self.exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_the_nearest_double() {
        for (negative, digits, exponent, want) in [
            (false, 125, -2, 1.25),
            (true, 1, 0, -1.0),
            (false, 0, 6111, 0.0),
            (false, 9_999_999_999_999_999_999_999_999_999_999_999, 6111, f64::INFINITY),
            (false, 1, -6176, 0.0),
            (false, 1, -1, 0.1),
        ] {
            assert_eq!(Decimal { negative, digits, exponent }.to_f64(), want, "{digits}E{exponent}");
        }
    }
}
