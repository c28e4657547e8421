//! How a key's number is spelt.

use super::WorkloadError;

/// The longest key that both protocols take (memcached's limit).
const MAX_KEY_BYTES: usize = 250;
/// The digits of the largest 64-bit number; longer keys begin with [`FILLER`].
const MAX_DIGITS: usize = 20;
/// The byte that fills the front of long keys.
const FILLER: u8 = b'k';

/// Writes key numbers as texts of one length. They are decimal with leading zeros, or hexadecimal if decimal digits do
/// not suffice. Texts above a length of 20 begin with a fixed prefix. Different numbers have different texts.
#[derive(Clone, Debug)]
pub struct KeyText {
    text: Vec<u8>,
    radix: u64,
    /// The index of the first digit that the last number wrote.
    written_from: usize,
    digits_from: usize,
}

impl KeyText {
    /// Texts of `size_bytes` for the numbers below `count`.
    ///
    /// # Errors
    /// So many numbers have no different texts of that length, or it is more than a key may have.
    pub fn new(size_bytes: usize, count: u64) -> Result<Self, WorkloadError> {
        let last = count.saturating_sub(1);
        let digits = |radix: u64| last.checked_ilog(radix).map_or(1, |log| log as usize + 1);
        if size_bytes > MAX_KEY_BYTES || size_bytes < digits(16) {
            return Err(WorkloadError::KeySize {
                size_bytes,
                count,
                least: digits(16),
                most: MAX_KEY_BYTES,
            });
        }
        let digits_from = size_bytes.saturating_sub(MAX_DIGITS);
        let mut text = vec![FILLER; digits_from];
        text.resize(size_bytes, b'0');
        Ok(Self {
            radix: if size_bytes < digits(10) { 16 } else { 10 },
            written_from: size_bytes,
            digits_from,
            text,
        })
    }

    /// The text of a number below the count.
    #[inline]
    pub fn of(&mut self, number: u64) -> &[u8] {
        self.text[self.written_from..].fill(b'0');
        let mut at = self.text.len();
        let mut rest = number;
        while rest > 0 && at > self.digits_from {
            at -= 1;
            // The radix is known to the compiler in each branch, so that it divides by multiplying.
            let digit = if self.radix == 10 {
                let digit = rest % 10;
                rest /= 10;
                digit
            } else {
                let digit = rest % 16;
                rest /= 16;
                digit
            };
            self.text[at] = DIGITS[digit as usize];
        }
        self.written_from = at;
        &self.text
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (size_bytes, count, number, text) in [
            (1, 1, 0, "0"),
            (1, 10, 9, "9"),
            (1, 16, 15, "f"),
            (8, 100_000_000, 99_999_999, "99999999"),
            (7, 100_000_000, 99_999_999, "5f5e0ff"),
            (16, 1_000_000, 42, "0000000000000042"),
            (24, 1_000_000, 999_999, "kkkk00000000000000999999"),
        ] {
            let mut key = KeyText::new(size_bytes, count).unwrap();
            key.of(count - 1);
            assert_eq!(key.of(number), text.as_bytes());
        }
    }

    #[test]
    fn different_numbers_have_different_texts() {
        for (size_bytes, count) in [(5, 70_000), (4, 10_000), (4, 65_536), (30, 5000)] {
            let mut key = KeyText::new(size_bytes, count).unwrap();
            let mut texts: Vec<Vec<u8>> = (0..count).map(|number| key.of(number).to_vec()).collect();
            texts.sort_unstable();
            texts.dedup();
            assert_eq!(texts.len() as u64, count);
            assert!(texts.iter().all(|text| text.len() == size_bytes));
        }
    }

    #[test]
    fn sizes_that_can_not_be_are_refused() {
        for (size_bytes, count) in [(0, 1), (1, 17), (251, 10), (4, 65_537)] {
            let error = KeyText::new(size_bytes, count).unwrap_err().to_string();
            assert!(error.contains(&format!("--key-size {size_bytes}: ")), "{error}");
        }
    }
}
