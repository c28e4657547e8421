//! Replies: appended to a buffer, which grows at most once per call.
//!
//! Meta replies carry the requested flags, in the requested order, and heed quiet mode: a reply that the client does
//! not want is not appended. Errors and classic replies without data are the constants of [`super::text`].

use super::key::MetaKey;
use super::meta::{Meta, letters};
use super::text;
use crate::number::{append_i64, append_u64};

/// More than the fixed words and the numbers of any one header take (four of at most 20 digits), in bytes.
const HEADER_BYTES: usize = 128;

/// An item of `get` or `gets`: `VALUE <key> <flags> <bytes> [<cas>]` and the value.
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, value: &[u8]) {
    out.reserve(HEADER_BYTES + key.len() + value.len());
    value_header(out, key, flags, cas, value.len());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The line before a value of `length` bytes; the value and `\r\n` must follow.
#[inline]
pub fn value_header(out: &mut Vec<u8>, key: &[u8], flags: u32, cas: Option<u64>, length: usize) {
    out.reserve(HEADER_BYTES + key.len());
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    if flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        append_u64(out, u64::from(flags));
        out.push(b' ');
    }
    append_u64(out, length as u64);
    if let Some(cas) = cas {
        out.push(b' ');
        append_u64(out, cas);
    }
    out.extend_from_slice(b"\r\n");
}

/// A number on a line: the answer to `incr` and `decr`.
#[inline]
pub fn number(out: &mut Vec<u8>, number: u64) {
    append_u64(out, number);
    out.extend_from_slice(b"\r\n");
}

/// `STAT <name> <value>`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in ["STAT ", name, " ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// `VERSION <version>`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    for part in ["VERSION ", version, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// The facts of an item that meta replies can carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// `s`: the value's length in bytes.
    pub value_bytes: usize,
    /// `c`: the CAS token.
    pub cas: u64,
    /// `f`: the client's own number.
    pub client_flags: u32,
    /// `t`: seconds that are left after the command; `None` without an expiration time.
    pub ttl_seconds: Option<u64>,
    /// `t` if it stands before `T`: seconds that were left before the command.
    pub ttl_before_seconds: Option<u64>,
    /// `l`: seconds since the item was last read, before this command.
    pub idle_seconds: u64,
    /// `h`: whether the item had been read before this command.
    pub was_read: bool,
    /// `W`: this client has won the right to write the item anew.
    pub won: bool,
    /// `X`: the item is marked stale.
    pub stale: bool,
    /// `Z`: another client has won.
    pub taken: bool,
    /// The item has the token that the client named (`C`): it has the value, which is not sent.
    pub known: bool,
}

impl Facts {
    /// Whether the value of a hit is to be sent.
    #[inline]
    pub fn sends_value(&self, meta: &Meta<'_>) -> bool {
        meta.flags.wants_value() && !self.known
    }
}

/// How a meta command ended, when no value is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `HD`: done. Hidden in quiet mode.
    Done,
    /// `NS`: the mode's condition was not met.
    NotStored,
    /// `EX`: another CAS token.
    Exists,
    /// `NF`: no such item.
    NotFound,
}

impl Outcome {
    fn code(self) -> &'static [u8] {
        match self {
            Self::Done => b"HD",
            Self::NotStored => b"NS",
            Self::Exists => b"EX",
            Self::NotFound => b"NF",
        }
    }
}

/// The flags that `mg` returns of an item, beside `W`, `X` and `Z`.
const GET_RETURNS: u64 = letters(b"stcflhOk");
/// The flags that `ms` returns, whatever its outcome.
const SET_RETURNS: u64 = letters(b"Okcs");
/// The flags that `ma` returns of a number.
const ARITHMETIC_RETURNS: u64 = letters(b"tcOk");
/// The flags that every meta command returns without an item.
const PLAIN_RETURNS: u64 = letters(b"Ok");

/// A hit of `mg`: `VA <bytes> <flags>*` and the value if it was asked for, else `HD <flags>*`.
#[inline]
pub fn meta_hit(out: &mut Vec<u8>, meta: &Meta<'_>, facts: &Facts, value: &[u8]) {
    if !facts.sends_value(meta) {
        return meta_hit_header(out, meta, facts);
    }
    out.reserve(reply_bytes(meta) + value.len());
    meta_hit_header(out, meta, facts);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// The line of [`meta_hit`]; if the value was asked for, it and `\r\n` must follow. `facts.value_bytes` is its length.
#[inline]
pub fn meta_hit_header(out: &mut Vec<u8>, meta: &Meta<'_>, facts: &Facts) {
    out.reserve(reply_bytes(meta));
    if facts.sends_value(meta) {
        out.extend_from_slice(b"VA ");
        append_u64(out, facts.value_bytes as u64);
    } else {
        out.extend_from_slice(b"HD");
    }
    append_flags(out, meta, facts, GET_RETURNS);
    for (is_set, mark) in [(facts.taken, b" Z"), (facts.stale, b" X"), (facts.won, b" W")] {
        if is_set {
            out.extend_from_slice(mark);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// A miss of `mg`: `EN`. Hidden in quiet mode.
pub fn meta_miss(out: &mut Vec<u8>, meta: &Meta<'_>) {
    if !meta.flags.quiet() {
        append_line(out, b"EN", meta, &Facts::default(), PLAIN_RETURNS);
    }
}

/// The end of `ms`. `facts` are those of the stored item; if nothing was stored, of the sent one, with token zero.
pub fn meta_stored(out: &mut Vec<u8>, meta: &Meta<'_>, outcome: Outcome, facts: &Facts) {
    match outcome {
        Outcome::Done if meta.flags.quiet() => {}
        _ => append_line(out, outcome.code(), meta, facts, SET_RETURNS),
    }
}

/// The end of `md`, and of `ma` where there is no number to show.
pub fn meta_outcome(out: &mut Vec<u8>, meta: &Meta<'_>, outcome: Outcome) {
    if outcome != Outcome::Done || !meta.flags.quiet() {
        append_line(out, outcome.code(), meta, &Facts::default(), PLAIN_RETURNS);
    }
}

/// A number that `ma` has made: `VA <bytes> <flags>*` and the number if it was asked for, else `HD <flags>*`. Hidden in
/// quiet mode.
pub fn meta_number(out: &mut Vec<u8>, meta: &Meta<'_>, facts: &Facts, number: u64) {
    if meta.flags.quiet() {
        return;
    }
    if !meta.flags.wants_value() {
        return append_line(out, b"HD", meta, facts, ARITHMETIC_RETURNS);
    }
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(number).as_bytes();
    out.extend_from_slice(b"VA ");
    append_u64(out, digits.len() as u64);
    append_flags(out, meta, facts, ARITHMETIC_RETURNS);
    for part in [b"\r\n", digits, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// The facts of an item in the reply of `me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugFacts {
    /// Seconds that are left; `None` without an expiration time.
    pub ttl_seconds: Option<u64>,
    /// Seconds since the item was last read.
    pub idle_seconds: u64,
    /// The CAS token; zero if none was ever asked for.
    pub cas: u64,
    /// Whether the item was read since it was written.
    pub was_read: bool,
    /// The item's whole size in bytes.
    pub item_bytes: usize,
}

/// The answer to `me`: `ME <key> <name>=<value>*`; for a miss, [`text::META_MISS`].
pub fn meta_debug(out: &mut Vec<u8>, key: MetaKey<'_>, facts: Option<&DebugFacts>) {
    let Some(facts) = facts else {
        return out.extend_from_slice(text::META_MISS);
    };
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(key.sent);
    let expires = facts.ttl_seconds.map_or(-1, i64_from);
    for (name, number) in [(&b" exp="[..], expires), (b" la=", i64_from(facts.idle_seconds))] {
        out.extend_from_slice(name);
        append_i64(out, number);
    }
    out.extend_from_slice(b" cas=");
    append_u64(out, facts.cas);
    out.extend_from_slice(if facts.was_read {
        b" fetch=yes cls=0 size="
    } else {
        b" fetch=no cls=0 size="
    });
    append_u64(out, facts.item_bytes as u64);
    out.extend_from_slice(b"\r\n");
}

/// Room for any reply's line.
fn reply_bytes(meta: &Meta<'_>) -> usize {
    2 * HEADER_BYTES + meta.key.sent.len()
}

/// A number of seconds; centuries beyond the type stop at its end.
fn i64_from(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn append_line(out: &mut Vec<u8>, code: &[u8], meta: &Meta<'_>, facts: &Facts, returned: u64) {
    out.reserve(reply_bytes(meta));
    out.extend_from_slice(code);
    append_flags(out, meta, facts, returned);
    out.extend_from_slice(b"\r\n");
}

/// Those of the flags in `returned` that were sent, in the order sent.
#[inline]
fn append_flags(out: &mut Vec<u8>, meta: &Meta<'_>, facts: &Facts, returned: u64) {
    if !meta.flags.has_any(returned) {
        return;
    }
    let mut touched = false;
    for flag in meta.flags.iter() {
        touched |= flag.letter == b'T';
        if letters(&[flag.letter]) & returned == 0 {
            continue;
        }
        out.extend_from_slice(&[b' ', flag.letter]);
        match flag.letter {
            b's' => append_u64(out, facts.value_bytes as u64),
            b'c' => append_u64(out, facts.cas),
            b'f' => append_u64(out, u64::from(facts.client_flags)),
            b'l' => append_u64(out, facts.idle_seconds),
            b'h' => out.push(if facts.was_read { b'1' } else { b'0' }),
            b'O' => out.extend_from_slice(flag.token),
            b'k' => {
                out.extend_from_slice(meta.key.sent);
                out.extend_from_slice(if meta.key.encoded { b" b" } else { b"" });
            }
            _ => {
                let before = !touched && meta.flags.has(b'T');
                let left = if before {
                    facts.ttl_before_seconds
                } else {
                    facts.ttl_seconds
                };
                append_i64(out, left.map_or(-1, i64_from));
            }
        }
    }
}
