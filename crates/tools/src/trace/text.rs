//! Formats of lines of numbers.

use super::source::Source;
use super::{Request, TraceError};

/// One key per line; empty lines are passed over.
pub(super) fn decimal(source: &mut Source) -> Result<Option<Request>, TraceError> {
    loop {
        let Some(line) = source.line(u64::MAX)? else {
            return Ok(None);
        };
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        return match number(text) {
            Some(key) => Ok(Some(Request::of_key(key))),
            None => {
                let found = text.to_vec();
                Err(source.line_error("a decimal key below 2^64", &found))
            }
        };
    }
}

/// Lines `start count 0 line`; the keys of the last line that were not handed out yet.
pub(super) struct Lis {
    source: Source,
    next_key: u64,
    left: u64,
}

impl Lis {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            next_key: 0,
            left: 0,
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<Request>, TraceError> {
        while self.left == 0 {
            let Some(line) = self.source.line(u64::MAX)? else {
                return Ok(None);
            };
            let mut fields = line
                .split(|b| b.is_ascii_whitespace())
                .filter(|field| !field.is_empty());
            let Some(start) = fields.next() else {
                continue;
            };
            let range = number(start).zip(fields.next().and_then(number));
            match range.filter(|(start, count)| start.checked_add(*count).is_some()) {
                Some((start, count)) => (self.next_key, self.left) = (start, count),
                None => {
                    let found = line.to_vec();
                    return Err(self.source.line_error("`start count 0 line`, decimal numbers", &found));
                }
            }
        }
        let key = self.next_key;
        self.next_key += 1;
        self.left -= 1;
        Ok(Some(Request::of_key(key)))
    }
}

/// A decimal number below 2^64 and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}
