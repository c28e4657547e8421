//! The entry: the two commonest commands in one pass over their bytes, everything else by lines.
//!
//! Invariant: a fast path either answers exactly what the line parser would, or nothing, and then the line parser
//! answers.

use super::key::Keys;
use super::line;
use super::{ANNOUNCED_BYTES_MAX, Command, Get, KEY_BYTES_MAX, Limits, OpenGet, Parsed, Part, Store, Verb};
use crate::scan::word_end;

/// Parses the command at the beginning of `input`.
#[inline]
pub fn parse<'a>(input: &'a [u8], limits: &Limits) -> Parsed<'a> {
    let fast = match input.first_chunk::<4>() {
        Some(b"get ") => get(input),
        Some(b"set ") => set(input, limits),
        _ => None,
    };
    match fast {
        Some(parsed) => parsed,
        None => line::parse(input, limits),
    }
}

/// Parses the next part of a line of keys, of which the part before said that it goes on.
pub fn parse_keys<'a>(input: &'a [u8], open: &OpenGet) -> Parsed<'a> {
    line::parse_keys(input, open)
}

/// `get <key>\r\n` with one key and nothing unusual.
#[inline]
fn get(input: &[u8]) -> Option<Parsed<'_>> {
    let end = word_end(input, 4);
    if end == 4 || end > 4 + KEY_BYTES_MAX || !is_line_end(input, end) {
        return None;
    }
    let keys = Keys::one(&input[4..end]);
    Some(Parsed::Complete {
        command: Command::Get(Get {
            keys,
            with_cas: false,
            touch: None,
            part: Part::Whole,
        }),
        consumed: end + 2,
    })
}

/// `set <key> <flags> <exptime> <bytes> [noreply]\r\n` with single spaces, plain digits and a length within the limits.
#[inline]
fn set<'a>(input: &'a [u8], limits: &Limits) -> Option<Parsed<'a>> {
    let key_end = word_end(input, 4);
    if key_end == 4 || key_end > 4 + KEY_BYTES_MAX || input.get(key_end) != Some(&b' ') {
        return None;
    }
    let (flags, at) = short_number(input, key_end + 1)?;
    let (exptime, at) = short_number(input, space(input, at)?)?;
    let (length, at) = short_number(input, space(input, at)?)?;
    let (noreply, at) = match input.get(at..)?.strip_prefix(b" noreply") {
        Some(_) => (true, at + b" noreply".len()),
        None => (false, at),
    };
    let flags = u32::try_from(flags).ok()?;
    let exptime = i64::try_from(exptime).ok()?;
    let length = usize::try_from(length).ok()?;
    if length > limits.value_bytes || length > ANNOUNCED_BYTES_MAX || !is_line_end(input, at) {
        return None;
    }
    let body = at + 2;
    if input.len() < body + length + 2 {
        return Some(Parsed::Incomplete {
            needed: body + length + 2,
        });
    }
    if !is_line_end(input, body + length) {
        return None;
    }
    Some(Parsed::Complete {
        command: Command::Store(Store {
            verb: Verb::Set,
            key: &input[4..key_end],
            flags,
            exptime,
            value: &input[body..body + length],
            noreply,
        }),
        consumed: body + length + 2,
    })
}

/// Whether `\r\n` stands at `at`.
#[inline]
fn is_line_end(input: &[u8], at: usize) -> bool {
    input.get(at..).is_some_and(|rest| rest.starts_with(b"\r\n"))
}

/// The place behind a space at `at`.
#[inline]
fn space(input: &[u8], at: usize) -> Option<usize> {
    (input.get(at) == Some(&b' ')).then_some(at + 1)
}

/// A number of one to nineteen digits at `at`, and the place of the first byte behind them, which exists.
#[inline]
fn short_number(input: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    let mut end = at;
    loop {
        let digit = input.get(end)?.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        end += 1;
    }
    // Nineteen digits always fit; more have not been added up rightly.
    (end > at && end - at < 20).then_some((number, end))
}
