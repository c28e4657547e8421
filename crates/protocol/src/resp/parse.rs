//! Requests: arrays of bulk strings here, inline lines in [`super::inline`].
//!
//! As Redis does, the byte behind the `\r` of a length is skipped unread. Behind a string there must be a line end,
//! which Redis does not look at. A client that counts wrongly would otherwise have a part of the string read as a
//! command.

use super::args::{ArgList, Progress};
use super::discard::Discard;
use super::error::{self, ErrorReply};
use super::inline;
use super::{BULK_BYTES_MAX, INLINE_BYTES_MAX, Limits, Parsed};
use crate::number::parse_canonical_i64;

/// The shortest argument: `$0\r\n\r\n`.
const ARG_BYTES_MIN: usize = 6;

/// Parses the command at the beginning of `input`; `list` takes its arguments.
#[inline]
pub fn parse(input: &[u8], limits: &Limits, list: &mut ArgList) -> Parsed {
    list.clear();
    match input.first() {
        Some(b'*') => multibulk(input, limits, list),
        Some(_) => inline::parse(input, list),
        None => Parsed::Incomplete { needed: 1 },
    }
}

/// Goes on where the last call for this command stopped: `input` begins with the same bytes, and `list` has not been
/// used in between. A command of many arguments that comes in many pieces is so read once, not once per piece.
#[inline]
pub fn parse_more(input: &[u8], limits: &Limits, list: &mut ArgList) -> Parsed {
    match std::mem::take(&mut list.progress) {
        Progress { left: 0, .. } => parse(input, limits, list),
        progress => arguments(input, limits, list, progress),
    }
}

/// A length and the place behind its line end, or why not.
pub(super) enum Length {
    /// The number and where the next thing begins.
    Known(i64, usize),
    /// The line end has not come.
    Incomplete,
    /// No number.
    Invalid,
    /// No line end within the limit.
    TooLong,
}

/// Reads the length whose first digit is at `at`.
#[inline]
pub(super) fn length(input: &[u8], at: usize) -> Length {
    // Nearly all lengths have one to four digits; anything else is looked at again from the start.
    let mut number = 0_i64;
    let mut end = at;
    while let Some(digit @ b'0'..=b'9') = input.get(end) {
        number = number * 10 + i64::from(digit - b'0');
        end += 1;
        if end > at + 9 {
            return unusual_length(input, at);
        }
    }
    let leading_zero = input.get(at) == Some(&b'0') && end > at + 1;
    if end > at && !leading_zero && input.get(end) == Some(&b'\r') && input.len() > end + 1 {
        return Length::Known(number, end + 2);
    }
    unusual_length(input, at)
}

/// The same for negative, long, wrong and incomplete ones.
#[cold]
fn unusual_length(input: &[u8], at: usize) -> Length {
    let rest = input.get(at..).unwrap_or_default();
    let near = &rest[..rest.len().min(INLINE_BYTES_MAX + 1)];
    let Some(end) = memchr::memchr(b'\r', near) else {
        return if rest.len() > INLINE_BYTES_MAX {
            Length::TooLong
        } else {
            Length::Incomplete
        };
    };
    if rest.len() < end + 2 {
        return Length::Incomplete;
    }
    match parse_canonical_i64(&rest[..end]) {
        Some(number) => Length::Known(number, at + end + 2),
        None => Length::Invalid,
    }
}

/// Reads an argument's `$<length>\r\n` at `at`: the length, and the place of its first byte. `None` if more must come.
#[inline]
pub(super) fn bulk_length(input: &[u8], at: usize) -> Result<Option<(usize, usize)>, ErrorReply<'static>> {
    match input.get(at) {
        Some(b'$') => {}
        Some(other) => return Err(ErrorReply::ExpectedBulk(*other)),
        None => return Ok(None),
    }
    match length(input, at + 1) {
        Length::Known(length, begin) => match usize::try_from(length) {
            Ok(length) if length <= BULK_BYTES_MAX => Ok(Some((length, begin))),
            _ => Err(error::INVALID_BULK_LENGTH),
        },
        Length::Incomplete => Ok(None),
        Length::Invalid => Err(error::INVALID_BULK_LENGTH),
        Length::TooLong => Err(error::TOO_BIG_BULK_COUNT),
    }
}

/// `*<arguments>\r\n`, then the arguments.
#[inline]
fn multibulk(input: &[u8], limits: &Limits, list: &mut ArgList) -> Parsed {
    let (count, at) = match length(input, 1) {
        Length::Known(count, at) if count <= 0 => return Parsed::Nothing { consumed: at },
        Length::Known(count, at) => (usize::try_from(count).unwrap_or(usize::MAX), at),
        Length::Incomplete => {
            return Parsed::Incomplete {
                needed: input.len() + 1,
            };
        }
        Length::Invalid => return Parsed::Failed(error::INVALID_MULTIBULK_LENGTH),
        Length::TooLong => return Parsed::Failed(error::TOO_BIG_MULTIBULK_COUNT),
    };
    if count > limits.args {
        return Parsed::Failed(if limits.before_login {
            error::UNAUTHENTICATED_MULTIBULK
        } else {
            error::INVALID_MULTIBULK_LENGTH
        });
    }
    arguments(input, limits, list, Progress { at, left: count })
}

/// As many times as are left: `$<length>\r\n<bytes>\r\n`.
#[inline]
fn arguments(input: &[u8], limits: &Limits, list: &mut ArgList, progress: Progress) -> Parsed {
    let command_bytes = limits.command_bytes.min(u32::MAX as usize);
    let mut at = progress.at;
    for left in (0..progress.left).rev() {
        // The least bytes that must still come behind this argument's last byte.
        let behind = 2 + left * ARG_BYTES_MIN;
        if at + ARG_BYTES_MIN - 2 + behind > command_bytes {
            return too_large(limits, at, Discard::args(left + 1));
        }
        let (length, begin) = match bulk_length(input, at) {
            Ok(Some(found)) => found,
            Ok(None) => {
                list.progress = Progress { at, left: left + 1 };
                return Parsed::Incomplete {
                    needed: input.len() + 1,
                };
            }
            Err(error) => return Parsed::Failed(error),
        };
        if length > limits.bulk_bytes || begin + length + behind > command_bytes {
            return too_large(limits, begin, Discard::within(length + 2, left));
        }
        let end = begin + length + 2;
        if input.len() < end {
            list.progress = Progress { at, left: left + 1 };
            return Parsed::Incomplete { needed: end };
        }
        if input[end - 2..end] != *b"\r\n" {
            return Parsed::Failed(error::NO_LINE_END);
        }
        list.push(begin, length);
        at = end;
    }
    Parsed::Complete { consumed: at }
}

/// A command above the limits.
#[cold]
fn too_large(limits: &Limits, consumed: usize, rest: Discard) -> Parsed {
    if limits.before_login {
        return Parsed::Failed(error::UNAUTHENTICATED_BULK);
    }
    Parsed::Refused {
        error: error::STRING_TOO_LONG,
        consumed,
        rest,
    }
}
