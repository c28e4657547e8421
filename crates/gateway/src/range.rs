//! Which bytes of an object a request asks for (RFC 9110, 14.2), as S3 reads it. Pure functions.

use std::ops::Range;

/// A `Range` header of one range. S3 ignores ranges that it cannot read, and answers several ranges with the whole
/// object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The whole object.
    Whole,
    /// The bytes from this one to that one, both included; `None`: to the end.
    From(u64, Option<u64>),
    /// The last bytes, so many.
    Last(u64),
}

/// No byte of the object is in the range: `416`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsatisfiable;

impl Asked {
    /// Reads a `Range` header.
    pub(crate) fn parse(header: Option<&str>) -> Self {
        header.and_then(Self::one).unwrap_or(Self::Whole)
    }

    fn one(header: &str) -> Option<Self> {
        let spec = header.trim().strip_prefix("bytes=")?.trim();
        let (first, last) = spec.split_once('-')?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            // A number beyond 64 bits is beyond every object.
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        match (first.trim(), last.trim()) {
            ("", last) => Some(Self::Last(number(last)?)),
            (first, "") => Some(Self::From(number(first)?, None)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// The bytes of an object of this size; `None`: the whole of it, answered with `200`.
    ///
    /// # Errors
    /// The object has no such byte.
    pub(crate) fn of(self, size_bytes: u64) -> Result<Option<Range<u64>>, Unsatisfiable> {
        let range = match self {
            Self::Whole => return Ok(None),
            Self::From(first, last) => {
                let end = last.map_or(size_bytes, |last| last.saturating_add(1).min(size_bytes));
                first..end
            }
            Self::Last(bytes) => size_bytes.saturating_sub(bytes)..size_bytes,
        };
        if range.is_empty() {
            Err(Unsatisfiable)
        } else {
            Ok(Some(range))
        }
    }

    /// The first byte, as far as it is known without the object's size.
    pub(crate) fn first_byte(self) -> Option<u64> {
        match self {
            Self::Whole => Some(0),
            Self::From(first, _) => Some(first),
            Self::Last(_) => None,
        }
    }
}

/// `bytes FIRST-LAST/SIZE` of a reply: the range and the object's size.
pub(crate) fn content_range(header: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    (first <= last && last < size).then_some((first..last + 1, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_s3_reads_them() {
        for (header, asked) in [
            (None, Asked::Whole),
            (Some("bytes=0-0"), Asked::From(0, Some(0))),
            (Some("bytes=5-"), Asked::From(5, None)),
            (Some("bytes=-7"), Asked::Last(7)),
            (Some(" bytes= 1 - 2 "), Asked::From(1, Some(2))),
            (Some("bytes=3-1"), Asked::Whole),
            (Some("bytes=0-1,4-5"), Asked::Whole),
            (Some("bytes=a-b"), Asked::Whole),
            (Some("bytes=-"), Asked::Whole),
            (Some("bytes=+1-2"), Asked::Whole),
            (Some("items=0-1"), Asked::Whole),
            (Some("bytes=0-99999999999999999999999"), Asked::From(0, Some(u64::MAX))),
        ] {
            assert_eq!(Asked::parse(header), asked, "{header:?}");
        }
    }

    #[test]
    fn ranges_are_cut_to_the_object() {
        for (asked, size, range) in [
            (Asked::Whole, 10, Ok(None)),
            (Asked::Whole, 0, Ok(None)),
            (Asked::From(0, Some(0)), 10, Ok(Some(0..1))),
            (Asked::From(5, None), 10, Ok(Some(5..10))),
            (Asked::From(5, Some(u64::MAX)), 10, Ok(Some(5..10))),
            (Asked::From(9, Some(50)), 10, Ok(Some(9..10))),
            (Asked::From(10, None), 10, Err(Unsatisfiable)),
            (Asked::From(0, None), 0, Err(Unsatisfiable)),
            (Asked::Last(3), 10, Ok(Some(7..10))),
            (Asked::Last(30), 10, Ok(Some(0..10))),
            (Asked::Last(0), 10, Err(Unsatisfiable)),
            (Asked::Last(3), 0, Err(Unsatisfiable)),
        ] {
            assert_eq!(asked.of(size), range, "{asked:?} of {size}");
        }
    }

    #[test]
    fn content_ranges_are_read() {
        for (header, read) in [
            ("bytes 0-9/10", Some((0..10, 10))),
            ("bytes 5-5/10", Some((5..6, 10))),
            ("bytes 5-10/10", None),
            ("bytes */10", None),
            ("bytes 0-9/*", None),
            ("0-9/10", None),
        ] {
            assert_eq!(content_range(header), read, "{header}");
        }
    }
}
