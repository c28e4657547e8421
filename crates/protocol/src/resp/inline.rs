//! Inline commands: a line of words as a person types it, with Redis's quoting (`sdssplitargs`).
//!
//! In double quotes `\xHH`, `\n`, `\r`, `\t`, `\b`, `\a` and a backslash before anything else are escapes; in single
//! quotes only `\'` is one. A quote may begin within a word; behind a closing one the word must end.

use super::args::ArgList;
use super::error;
use super::{INLINE_BYTES_MAX, Parsed};

/// Parses the line at the beginning of `input`, which is not empty.
pub(super) fn parse(input: &[u8], list: &mut ArgList) -> Parsed {
    let near = &input[..input.len().min(INLINE_BYTES_MAX + 1)];
    let Some(end) = memchr::memchr(b'\n', near) else {
        return if input.len() > INLINE_BYTES_MAX {
            Parsed::Failed(error::TOO_BIG_INLINE)
        } else {
            Parsed::Incomplete {
                needed: input.len() + 1,
            }
        };
    };
    let line = &input[..end];
    let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
    loop {
        rest = &rest[rest.iter().take_while(|byte| is_space(**byte)).count()..];
        if rest.is_empty() {
            break;
        }
        match list.push_unquoted(|word| take_word(rest, word)) {
            Some(behind) => rest = behind,
            None => return Parsed::Failed(error::UNBALANCED_QUOTES),
        }
    }
    if list.args(input).is_empty() {
        Parsed::Nothing { consumed: end + 1 }
    } else {
        Parsed::Complete { consumed: end + 1 }
    }
}

/// White space as C's `isspace` sees it.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Moves one word without its quotes from the beginning of `text` to `word`, and returns the rest. `None` if a quote
/// does not end, or a word does not end behind one.
fn take_word<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    while let Some((&first, behind)) = rest.split_first() {
        match first {
            b' ' | b'\t' | b'\r' => break,
            b'"' => return ends_word(take_double_quoted(behind, word)?),
            b'\'' => return ends_word(take_single_quoted(behind, word)?),
            _ => {
                word.push(first);
                rest = behind;
            }
        }
    }
    Some(rest)
}

/// The text, if a word can end before it.
fn ends_word(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|byte| is_space(*byte)).then_some(rest)
}

/// Moves the text before the closing `"` to `word`, and returns the rest.
fn take_double_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex(*high) << 4 | hex(*low));
                behind
            }
            [b'\\', escaped, behind @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

/// Moves the text before the closing `'` to `word`, and returns the rest.
fn take_single_quoted<'a>(text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\'', behind @ ..] => return Some(behind),
            [b'\\', b'\'', behind @ ..] => {
                word.push(b'\'');
                behind
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
            [] => return None,
        };
    }
}

/// A hexadecimal digit's value.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
