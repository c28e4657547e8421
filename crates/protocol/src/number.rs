//! Decimal numbers, read by hand with overflow checks and written without a detour through `fmt`.
//!
//! There are two ways of reading. memcached's (`strtol`) allows a sign and leading zeros. Redis's (`string2ll`) allows
//! only the one text that the number would be written as. Neither allows white space, another base or anything behind
//! the digits.

/// No 64-bit number has more digits; a text of this many or fewer less one cannot overflow.
const U64_DIGITS_MAX: usize = 20;

/// Reads an unsigned number as memcached does: digits, perhaps behind a `+`.
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    digits(text.strip_prefix(b"+").unwrap_or(text))
}

/// Reads an unsigned number that has no sign, not even a `+`.
#[inline]
pub fn parse_digits(text: &[u8]) -> Option<u64> {
    digits(text)
}

/// Reads an unsigned 32-bit number as memcached does.
#[inline]
pub fn parse_u32(text: &[u8]) -> Option<u32> {
    parse_u64(text).and_then(|number| u32::try_from(number).ok())
}

/// Reads a signed number as memcached does: digits, perhaps behind a `+` or a `-`.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text.strip_prefix(b"-") {
        Some(magnitude) => 0_i64.checked_sub_unsigned(digits(magnitude)?),
        None => parse_u64(text).and_then(|number| i64::try_from(number).ok()),
    }
}

/// Reads a signed number as Redis does: no `+`, no leading zero, no `-0`.
#[inline]
pub fn parse_canonical_i64(text: &[u8]) -> Option<i64> {
    match text {
        [digit @ b'0'..=b'9'] => Some(i64::from(digit - b'0')),
        [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => parse_i64(text),
        _ => None,
    }
}

/// Appends a number in decimal.
#[inline]
pub fn append_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number in decimal, with a `-` if it is negative.
#[inline]
pub fn append_i64(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// One digit or more and nothing else, as a number if it fits.
#[inline]
fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    if text.len() >= U64_DIGITS_MAX {
        return long_digits(text);
    }
    let mut number = 0_u64;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + u64::from(digit);
    }
    Some(number)
}

/// The same for texts that may not fit, leading zeros included.
#[cold]
fn long_digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcached_numbers() {
        for (text, unsigned, signed) in [
            ("0", Some(0), Some(0)),
            ("7", Some(7), Some(7)),
            ("007", Some(7), Some(7)),
            ("+7", Some(7), Some(7)),
            ("-7", None, Some(-7)),
            ("-0", None, Some(0)),
            ("00000000000000000000000000000001", Some(1), Some(1)),
            ("9223372036854775807", Some(i64::MAX as u64), Some(i64::MAX)),
            ("9223372036854775808", Some(1 << 63), None),
            ("-9223372036854775808", None, Some(i64::MIN)),
            ("-9223372036854775809", None, None),
            ("18446744073709551615", Some(u64::MAX), None),
            ("18446744073709551616", None, None),
            ("99999999999999999999", None, None),
            ("", None, None),
            ("+", None, None),
            ("-", None, None),
            ("+-1", None, None),
            ("--1", None, None),
            ("-+1", None, None),
            ("1x", None, None),
            ("0x10", None, None),
            (" 1", None, None),
            ("1 ", None, None),
            ("1.0", None, None),
            ("1\t", None, None),
            ("\u{661}", None, None),
        ] {
            assert_eq!(parse_u64(text.as_bytes()), unsigned, "{text:?}");
            assert_eq!(parse_i64(text.as_bytes()), signed, "{text:?}");
        }
        assert_eq!(parse_u32(b"4294967295"), Some(u32::MAX));
        assert_eq!(parse_u32(b"4294967296"), None);
    }

    #[test]
    fn redis_numbers_have_one_text() {
        for (text, number) in [
            ("0", Some(0)),
            ("9", Some(9)),
            ("10", Some(10)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("+1", None),
            ("1a", None),
            ("a", None),
            (" 1", None),
            ("1 ", None),
        ] {
            assert_eq!(parse_canonical_i64(text.as_bytes()), number, "{text:?}");
        }
    }

    #[test]
    fn numbers_are_written_so_that_they_are_read_back() {
        for number in [0, 1, -1, 99, 100, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            append_i64(&mut out, number);
            assert_eq!(parse_canonical_i64(&out), Some(number));
        }
        let mut out = Vec::new();
        append_u64(&mut out, u64::MAX);
        assert_eq!(parse_u64(&out), Some(u64::MAX));
    }
}
