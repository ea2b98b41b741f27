//! Decimal numbers (1.6.13 to 1.6.15): IEEE 754-2008, section 3.5.2, with the significand as a
//! binary integer.

use postroad_model::portable::{Decimal, Value};

/// One of the three widths.
pub struct Width {
    bits: u32,
    exponent_bits: u32,
    bias: i32,
    digits_max: u128,
}

pub const DECIMAL_32: Width = Width { bits: 32, exponent_bits: 8, bias: 101, digits_max: 9_999_999 };
pub const DECIMAL_64: Width =
    Width { bits: 64, exponent_bits: 10, bias: 398, digits_max: 9_999_999_999_999_999 };
pub const DECIMAL_128: Width = Width {
    bits: 128,
    exponent_bits: 14,
    bias: 6176,
    digits_max: 9_999_999_999_999_999_999_999_999_999_999_999,
};

impl Width {
    /// The number of these bits; infinities and NaN are doubles.
    pub fn read(&self, number: u128) -> Value {
        let negative = number >> (self.bits - 1) & 1 == 1;
        let below_sign = number & ((1 << (self.bits - 1)) - 1);
        let lead = below_sign >> (self.bits - 6);
        if lead == 0b11111 {
            return Value::Double(f64::NAN);
        }
        if lead == 0b11110 {
            return Value::Double(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        // Two set bits after the sign: the exponent begins after them, and the digits have three
        // bits more, 100.
        let long = lead >> 3 == 0b11;
        let digit_bits = self.bits - 1 - self.exponent_bits - if long { 2 } else { 0 };
        let implied = if long { 0b100 << digit_bits } else { 0 };
        let digits = below_sign & ((1 << digit_bits) - 1) | implied;
        let exponent = (below_sign >> digit_bits & ((1 << self.exponent_bits) - 1)) as i32 - self.bias;
        // More digits than the width has stand for zero (3.5.2).
        let digits = if digits > self.digits_max { 0 } else { digits };
        Value::Decimal(Decimal { negative, digits, exponent })
    }

    /// The bits of a number; `None` if it does not fit.
    pub fn write(&self, decimal: Decimal) -> Option<u128> {
        let digit_bits = self.bits - 1 - self.exponent_bits;
        let exponent = u128::try_from(decimal.exponent.checked_add(self.bias)?).ok()?;
        let fits = decimal.digits <= self.digits_max
            && decimal.digits >> digit_bits == 0
            && exponent < 0b11 << (self.exponent_bits - 2);
        let sign = u128::from(decimal.negative) << (self.bits - 1);
        fits.then_some(sign | exponent << digit_bits | decimal.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(negative: bool, digits: u128, exponent: i32) -> Value {
        Value::Decimal(Decimal { negative, digits, exponent })
    }

    #[test]
    fn decimals_of_each_width_are_read() {
        for (case, width, bits, want) in [
            ("7.50 in 32 bits", &DECIMAL_32, 0x3180_02EE, decimal(false, 750, -2)),
            ("most digits in 32 bits", &DECIMAL_32, 0x6CB8_967F, decimal(false, 9_999_999, 0)),
            ("too many digits in 32 bits", &DECIMAL_32, 0x6CBF_FFFF, decimal(false, 0, 0)),
            ("-7.50 in 64 bits", &DECIMAL_64, 0xB180_0000_0000_02EE, decimal(true, 750, -2)),
            ("zero in 64 bits", &DECIMAL_64, 0x31C0_0000_0000_0000, decimal(false, 0, 0)),
            (
                "1E+3 in 128 bits",
                &DECIMAL_128,
                0x3046_0000_0000_0000_0000_0000_0000_0001,
                decimal(false, 1, 3),
            ),
            ("infinity", &DECIMAL_32, 0x7800_0000, Value::Double(f64::INFINITY)),
            ("-infinity", &DECIMAL_64, 0xF800_0000_0000_0000, Value::Double(f64::NEG_INFINITY)),
        ] {
            assert_eq!(width.read(bits), want, "case: {case}");
            if let Value::Decimal(value) = want {
                let again = width.write(value).map(|bits| width.read(bits));
                assert!(again.is_none_or(|again| again == want), "case: {case}");
            }
        }
        assert!(matches!(DECIMAL_32.read(0x7C00_0000), Value::Double(nan) if nan.is_nan()));
    }

    #[test]
    fn what_does_not_fit_is_not_written() {
        let number = |digits, exponent| Decimal { negative: false, digits, exponent };
        for (case, value, fits) in [
            ("largest", number(DECIMAL_128.digits_max, 6111), true),
            ("smallest", number(1, -6176), true),
            ("too many digits", number(DECIMAL_128.digits_max + 1, 0), false),
            ("too large", number(1, 6112), false),
            ("too small", number(1, -6177), false),
        ] {
            assert_eq!(DECIMAL_128.write(value).is_some(), fits, "case: {case}");
        }
    }
}
