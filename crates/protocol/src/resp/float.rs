//! Numbers with a fraction, for INCRBYFLOAT.
//!
//! Redis adds in the processor's `long double` and writes 17 places, so that 10.5 and 0.1 make 10.6. Rust has no such
//! type. Numbers below 10^20 are counted exactly in units of 10^-17 here. The texts are the same, but without rounding
//! errors (Redis: 3000 and 1e-10 make 3000.00000000010000001). Larger numbers are added as `f64`, which has no fraction
//! there anyway. Infinity and numbers beyond `f64` are refused.

/// Places behind the point (as in Redis).
const PLACES: u32 = 17;
/// Units in one.
const UNITS_PER_ONE: i128 = 10_i128.pow(PLACES);
/// The value from which on `f64` counts. Twice this many units are well within 128 bits.
const EXACT_BELOW: f64 = 1e20;
/// More digits cannot matter: twenty before the point, the places behind it, and one for rounding.
const DIGITS_MAX: usize = 38;
/// The longest text that is read as a number, in bytes (as in Redis).
const TEXT_BYTES_MAX: usize = 5 * 1024;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Float(Form);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// The number in units of 10^-17.
    Exact(i128),
    Wide(f64),
}

impl Float {
    /// Reads a decimal number, perhaps with a sign, a fraction and an exponent; or infinity. `None` for anything else.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let text = str::from_utf8(text).ok()?;
        let near: f64 = text.parse().ok()?;
        if near.is_nan() {
            return None;
        }
        if near.abs() < EXACT_BELOW {
            return Some(Self(Form::Exact(units(text))));
        }
        Some(Self(Form::Wide(near)))
    }

    /// The sum; `None` if it is no finite number.
    #[must_use]
    pub fn plus(self, other: Self) -> Option<Self> {
        if let (Form::Exact(a), Form::Exact(b)) = (self.0, other.0) {
            return Some(Self(Form::Exact(a + b)));
        }
        let sum = self.to_f64() + other.to_f64();
        sum.is_finite().then_some(Self(Form::Wide(sum)))
    }

    /// Appends the number with as many places as it needs, 17 at most, and without an exponent.
    pub fn append_to(self, out: &mut Vec<u8>) {
        let begin = out.len();
        let text = match self.0 {
            Form::Exact(units) => {
                let sign = if units < 0 { "-" } else { "" };
                let magnitude = units.unsigned_abs();
                let one = UNITS_PER_ONE.unsigned_abs();
                format!("{sign}{}.{:017}", magnitude / one, magnitude % one)
            }
            Form::Wide(number) => format!("{number:.17}"),
        };
        out.extend_from_slice(text.as_bytes());
        while out.len() > begin && out.last() == Some(&b'0') {
            out.pop();
        }
        if out.last() == Some(&b'.') {
            out.pop();
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "only where the other number is so large that f64 counts"
    )]
    fn to_f64(self) -> f64 {
        match self.0 {
            Form::Exact(units) => units as f64 / UNITS_PER_ONE as f64,
            Form::Wide(number) => number,
        }
    }
}

/// The units of a well-formed number below [`EXACT_BELOW`], rounded to the nearest.
fn units(text: &str) -> i128 {
    let (digits, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])),
        None => (text, 0),
    };
    // The digits as one integer, times ten to the power of `scale`.
    let mut number = 0_i128;
    let mut scale = exponent + i64::from(PLACES);
    let mut taken = 0;
    let mut behind_point = false;
    for byte in digits.bytes() {
        match byte {
            b'.' => behind_point = true,
            b'0'..=b'9' if taken < DIGITS_MAX => {
                number = number * 10 + i128::from(byte - b'0');
                taken += usize::from(number != 0);
                scale -= i64::from(behind_point);
            }
            b'0'..=b'9' => scale += i64::from(!behind_point),
            _ => {}
        }
    }
    let magnitude = shift(number, scale);
    if text.starts_with('-') { -magnitude } else { magnitude }
}

/// An exponent, as far as it can matter.
fn exponent(text: &str) -> i64 {
    let digits = text.trim_start_matches(['+', '-']);
    let magnitude = digits.bytes().fold(0_i64, |number, byte| {
        (number * 10 + i64::from(byte - b'0')).min(1 << 20)
    });
    if text.starts_with('-') { -magnitude } else { magnitude }
}

/// `number` times ten to the power of `scale`, rounded to the nearest integer, halves away from zero. The product is
/// within bounds because the text's number is.
fn shift(number: i128, scale: i64) -> i128 {
    let power = u32::try_from(scale.unsigned_abs()).unwrap_or(u32::MAX);
    match 10_i128.checked_pow(power) {
        Some(factor) if scale >= 0 => number.saturating_mul(factor),
        Some(factor) => (number + factor / 2) / factor,
        // Only zero is below the bound with such a power above it; with one below, nothing is left.
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        let sum = Float::parse(a.as_bytes())?.plus(Float::parse(b.as_bytes())?)?;
        let mut out = Vec::new();
        sum.append_to(&mut out);
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn sums() {
        for (a, b, text) in [
            ("10.5", "0.1", "10.6"),
            ("10.6", "-10.6", "0"),
            ("0", "3.0e3", "3000"),
            ("3000", "1e-10", "3000.0000000001"),
            ("0.1", "0.2", "0.3"),
            ("3", "0.3333333333333333333333", "3.33333333333333333"),
            ("3", "0.6666666666666666666666", "3.66666666666666667"),
            ("0", "1e17", "100000000000000000"),
            ("100000000000000000", "3000", "100000000000003000"),
            ("1", "12345678901234567890.5", "12345678901234567891.5"),
            ("99999999999999900000", "99999999999999900000", "199999999999999800000"),
            ("0", "1e20", "100000000000000000000"),
            ("1e20", "1e20", "200000000000000000000"),
            ("-1.5", "0.25", "-1.25"),
            ("-0", "0", "0"),
            ("-0.5", "0.5", "0"),
            (".5", "5.", "5.5"),
            ("+1", "1", "2"),
            ("1E2", "0", "100"),
            ("1e-18", "0", "0"),
            ("5e-18", "0", "0.00000000000000001"),
            ("1e-400", "1", "1"),
            ("0e999999999999", "1", "1"),
            ("0.00000000000000001", "0", "0.00000000000000001"),
            ("000000000000000000000000000000000000000000001.50", "0", "1.5"),
            (
                "123456789012345678901234567890e-15",
                "0",
                "123456789012345.67890123456789",
            ),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(text), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", "abc", "nan", "NaN", "-nan", " 1", "1 ", "1e", "0x10", "--1", "1.2.3", "1,5", "é", ".",
        ] {
            assert_eq!(Float::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Float::parse(&b"1".repeat(TEXT_BYTES_MAX + 1)), None);
        for (a, b) in [("1", "inf"), ("inf", "-inf"), ("1.7e308", "1.7e308"), ("1", "1e400")] {
            assert_eq!(sum(a, b), None, "{a} + {b}");
        }
    }
}
