//! Meta commands: `mg`, `ms`, `md`, `ma`, `me` and their flags.
//!
//! As in memcached, every command accepts every flag and uses those that it knows; a flag given twice or unknown is an
//! error. Errors are always answered, also in quiet mode.

use super::command::{Command, Direction};
use super::key::{MetaKey, is_key};
use super::line::{BodyLength, Line, trim_start, words};
use super::{OPAQUE_BYTES_MAX, Parsed, text};
use crate::number::{parse_i64, parse_u32, parse_u64};

/// A meta command's key and flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meta<'a> {
    /// The key.
    pub key: MetaKey<'a>,
    /// The flags.
    pub flags: MetaFlags<'a>,
}

/// `ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetaSet<'a> {
    /// Key and flags.
    pub meta: Meta<'a>,
    /// On which condition, and where.
    pub mode: MetaMode,
    /// The value, without its line end.
    pub value: &'a [u8],
}

/// How `ms` stores (flag `M`). With flag `C` the item's CAS token must also be that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaMode {
    /// `S`, the default: whatever was there.
    Set,
    /// `E`: if the key holds nothing.
    Add,
    /// `A`: behind the present value; with flag `N`, also if there is none.
    Append,
    /// `P`: before the present value; with flag `N`, also if there is none.
    Prepend,
    /// `R`: if the key holds something.
    Replace,
}

/// `ma`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetaArithmetic<'a> {
    /// Key and flags.
    pub meta: Meta<'a>,
    /// Up or down.
    pub direction: Direction,
}

/// The flags of a meta command (protocol.txt, "Meta Get" to "Meta Arithmetic").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MetaFlags<'a> {
    /// The flags as they stand on the line.
    text: &'a [u8],
    /// A bit per letter: see [`bit`].
    present: u64,
    compare_cas: u64,
    new_cas: u64,
    delta: u64,
    initial: u64,
    ttl: i64,
    vivify: i64,
    recache: i64,
    client_flags: u32,
    mode: u8,
    opaque: &'a [u8],
}

/// One flag as it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaFlag<'a> {
    /// The flag.
    pub letter: u8,
    /// The text directly behind it.
    pub token: &'a [u8],
}

/// The letters that are flags.
const LETTERS: u64 = letters(b"bcCDEfFhIJklLMNOPqRstTuvx");

/// A bit for a letter; none for anything else.
const fn bit(letter: u8) -> u64 {
    if letter.is_ascii_alphabetic() {
        1 << (letter - b'A')
    } else {
        0
    }
}

/// The bits of several letters.
pub(super) const fn letters(text: &[u8]) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < text.len() {
        bits |= bit(text[at]);
        at += 1;
    }
    bits
}

impl<'a> MetaFlags<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, &'static [u8]> {
        let mut flags = Self {
            text,
            present: 0,
            compare_cas: 0,
            new_cas: 0,
            delta: 1,
            initial: 0,
            ttl: 0,
            vivify: 0,
            recache: 0,
            client_flags: 0,
            mode: 0,
            opaque: b"",
        };
        let mut error = None;
        for flag in flags.iter() {
            let letter = bit(flag.letter);
            if letter & LETTERS == 0 {
                return Err(text::INVALID_FLAG);
            }
            if flags.present & letter != 0 {
                return Err(text::DUPLICATE_FLAG);
            }
            flags.present |= letter;
            // As in memcached, the last bad number names the error, unless a flag is unknown or doubled.
            error = flags.take(flag).err().or(error);
        }
        match error {
            Some(reply) => Err(reply),
            None if flags.opaque.len() > OPAQUE_BYTES_MAX => Err(text::OPAQUE_TOO_LONG),
            None => Ok(flags),
        }
    }

    /// Reads a flag's token, if it has one.
    fn take(&mut self, flag: MetaFlag<'a>) -> Result<(), &'static [u8]> {
        let token = flag.token;
        match flag.letter {
            b'N' => self.vivify = parse_i64(token).ok_or(text::BAD_TOKEN)?,
            b'T' => self.ttl = parse_i64(token).ok_or(text::BAD_TOKEN)?,
            b'R' => self.recache = parse_i64(token).ok_or(text::BAD_TOKEN)?,
            b'C' => self.compare_cas = parse_u64(token).ok_or(text::BAD_TOKEN)?,
            b'E' => self.new_cas = parse_u64(token).ok_or(text::BAD_TOKEN)?,
            b'F' => self.client_flags = parse_u32(token).ok_or(text::BAD_FORMAT)?,
            b'J' => self.initial = parse_u64(token).ok_or(text::BAD_TOKEN)?,
            b'D' => self.delta = parse_u64(token).ok_or(text::BAD_TOKEN)?,
            b'M' => match token {
                [mode] => self.mode = *mode,
                _ => return Err(text::BAD_MODE_LENGTH),
            },
            b'O' => self.opaque = token,
            _ => {}
        }
        Ok(())
    }

    /// Whether a flag was given.
    #[inline]
    pub fn has(&self, letter: u8) -> bool {
        self.present & bit(letter) != 0
    }

    /// `q`: the ordinary answer is not wanted. Composing heeds it.
    #[inline]
    pub fn quiet(&self) -> bool {
        self.has(b'q')
    }

    /// `v`: the value is wanted.
    #[inline]
    pub fn wants_value(&self) -> bool {
        self.has(b'v')
    }

    /// `C`: the CAS token that the item must have.
    #[inline]
    pub fn compare_cas(&self) -> Option<u64> {
        self.has(b'C').then_some(self.compare_cas)
    }

    /// `E`: the CAS token that the item shall get if it is changed.
    #[inline]
    pub fn new_cas(&self) -> Option<u64> {
        self.has(b'E').then_some(self.new_cas)
    }

    /// `T`: the new expiration time: see [`super::expires`].
    #[inline]
    pub fn ttl(&self) -> Option<i64> {
        self.has(b'T').then_some(self.ttl)
    }

    /// `N`: a missing item is created, with this expiration time.
    #[inline]
    pub fn vivify(&self) -> Option<i64> {
        self.has(b'N').then_some(self.vivify)
    }

    /// `R`: a client that finds less than this time left wins the right to write anew.
    #[inline]
    pub fn recache(&self) -> Option<i64> {
        self.has(b'R').then_some(self.recache)
    }

    /// `F`: the client's own number; zero if not given.
    #[inline]
    pub fn client_flags(&self) -> u32 {
        self.client_flags
    }

    /// `D`: the difference for `ma`; one if not given.
    #[inline]
    pub fn delta(&self) -> u64 {
        self.delta
    }

    /// `J`: the first value for `ma` with `N`; zero if not given.
    #[inline]
    pub fn initial(&self) -> u64 {
        self.initial
    }

    /// `O`: the token to send back; empty if not given, or given empty.
    #[inline]
    pub fn opaque(&self) -> &'a [u8] {
        self.opaque
    }

    /// The flags in the order in which they were sent.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = MetaFlag<'a>> + use<'a> {
        words(self.text).filter_map(|word| {
            let (letter, token) = word.split_first()?;
            Some(MetaFlag { letter: *letter, token })
        })
    }

    /// Whether any of these flags was given.
    #[inline]
    pub(super) fn has_any(&self, letters: u64) -> bool {
        self.present & letters != 0
    }
}

/// The first word of a text and the rest behind it.
fn first_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = trim_start(text);
    text.split_at(memchr::memchr(b' ', text).unwrap_or(text.len()))
}

/// Key and flags, or the error to answer.
fn parse_meta<'a>(key: &'a [u8], flags: &'a [u8]) -> Result<Meta<'a>, &'static [u8]> {
    if !is_key(key) {
        return Err(text::BAD_FORMAT);
    }
    let flags = MetaFlags::parse(flags)?;
    let key = MetaKey::parse(key, flags.has(b'b')).ok_or(text::BAD_BASE64)?;
    Ok(Meta { key, flags })
}

/// Key and flags of a command without a body, or the failure.
fn without_body<'a>(line: Line<'a, '_>) -> Result<Meta<'a>, &'static [u8]> {
    let (key, flags) = first_word(line.arguments);
    parse_meta(key, flags)
}

pub(super) fn get<'a>(line: Line<'a, '_>) -> Parsed<'a> {
    match without_body(line) {
        Ok(meta) => line.complete(Command::MetaGet(meta)),
        Err(reply) => line.fail(reply),
    }
}

pub(super) fn delete<'a>(line: Line<'a, '_>) -> Parsed<'a> {
    match without_body(line) {
        Ok(meta) => line.complete(Command::MetaDelete(meta)),
        Err(reply) => line.fail(reply),
    }
}

pub(super) fn arithmetic<'a>(line: Line<'a, '_>) -> Parsed<'a> {
    let meta = match without_body(line) {
        Ok(meta) => meta,
        Err(reply) if [text::BAD_FORMAT, text::OPAQUE_TOO_LONG, text::BAD_BASE64].contains(&reply) => {
            return line.fail(reply);
        }
        Err(_) => return line.fail(text::BAD_ARITHMETIC_FLAG),
    };
    let direction = match meta.flags.mode {
        0 | b'I' | b'+' => Direction::Increment,
        b'D' | b'-' => Direction::Decrement,
        _ => return line.fail(text::BAD_ARITHMETIC_MODE),
    };
    line.complete(Command::MetaArithmetic(MetaArithmetic { meta, direction }))
}

/// The length of a refused `ms`'s body. It can be read if no flag behind it looks like one, too. A space in the key
/// moves all words, and an empty key moves them the other way.
pub(super) fn set_length(line: Line<'_, '_>) -> BodyLength {
    let (_, rest) = first_word(line.arguments);
    let (length, flags) = first_word(rest);
    let is_moved = words(flags).any(|flag| !flag[0].is_ascii_alphabetic());
    if is_moved || line.arguments.starts_with(b"  ") {
        BodyLength::Unreadable
    } else {
        BodyLength::parse(length)
    }
}

/// `ms <key> <length> <flags>*`, then the body.
pub(super) fn set<'a>(line: Line<'a, '_>) -> Parsed<'a> {
    let (key, rest) = first_word(line.arguments);
    if key.is_empty() {
        return line.fail_with_body(text::BAD_FORMAT, BodyLength::Unreadable);
    }
    let (length, flags) = first_word(rest);
    let BodyLength::Known(bytes) = BodyLength::parse(length) else {
        return line.fail_with_body(text::BAD_FORMAT, BodyLength::Unreadable);
    };
    let length = set_length(line);
    let meta = match parse_meta(key, flags) {
        Ok(meta) => meta,
        Err(reply) => return line.fail_with_body(reply, length),
    };
    let mode = match meta.flags.mode {
        0 | b'S' => MetaMode::Set,
        b'E' => MetaMode::Add,
        b'A' => MetaMode::Append,
        b'P' => MetaMode::Prepend,
        b'R' => MetaMode::Replace,
        _ => return line.fail_with_body(text::BAD_SET_MODE, length),
    };
    match line.body(bytes, false) {
        Ok((value, consumed)) => Parsed::Complete {
            command: Command::MetaSet(MetaSet { meta, mode, value }),
            consumed,
        },
        Err(reason) => reason.parsed(meta.key),
    }
}

/// `me <key> [b]`; anything else behind the key is ignored, as in memcached.
pub(super) fn debug<'a>(line: Line<'a, '_>) -> Parsed<'a> {
    let (key, rest) = first_word(line.arguments);
    let encoded = first_word(rest).0 == b"b";
    let key = is_key(key).then(|| MetaKey::parse(key, encoded)).flatten();
    match key {
        Some(key) => line.complete(Command::MetaDebug(key)),
        None => line.fail(text::BAD_FORMAT),
    }
}
