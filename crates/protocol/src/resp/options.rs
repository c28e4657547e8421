//! The options of commands about keys, read as Redis reads them: first the words, then the numbers.
//!
//! All functions are pure. Times stay as they were sent until [`Deadline::resolve`] is given the present.

use std::ops::Range;

use tidemark_types::UnixMs;

use super::args::Args;
use super::command::Row;
use super::error::{self, ErrorReply};
use crate::number::{parse_canonical_i64, parse_u64};

/// The number that an argument is.
///
/// # Errors
/// [`error::NOT_AN_INTEGER`].
#[inline]
pub fn integer<'a>(text: &[u8]) -> Result<i64, ErrorReply<'a>> {
    parse_canonical_i64(text).ok_or(error::NOT_AN_INTEGER)
}

/// The number that `DECRBY` adds.
///
/// # Errors
/// No number, or the one whose opposite is none.
pub fn negated_integer<'a>(text: &[u8]) -> Result<i64, ErrorReply<'a>> {
    integer(text)?.checked_neg().ok_or(error::DECREMENT_OVERFLOW)
}

/// The database that `SELECT` names, below `databases`.
///
/// # Errors
/// No number, none of 32 bits, or beyond the last database.
pub fn database<'a>(text: &[u8], databases: u32) -> Result<u32, ErrorReply<'a>> {
    let number = i32::try_from(integer(text)?).map_err(|_| error::NOT_A_SMALL_INTEGER)?;
    u32::try_from(number)
        .ok()
        .filter(|number| *number < databases)
        .ok_or(error::DB_OUT_OF_RANGE)
}

/// When a key shall expire, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The time so long after now.
    After(i64),
    /// The time since 1970.
    At(i64),
}

impl Deadline {
    /// The moment in milliseconds since 1970; it may have passed, and be negative.
    ///
    /// # Errors
    /// Beyond the end of 64-bit time: an invalid expire time of command `row`.
    #[inline]
    pub fn resolve(self, now: UnixMs, row: &'static Row) -> Result<i64, ErrorReply<'static>> {
        match self {
            Self::At(moment) => Ok(moment),
            Self::After(span) => i64::try_from(now.0)
                .ok()
                .and_then(|now| now.checked_add(span))
                .ok_or(ErrorReply::InvalidExpire(row)),
        }
    }
}

/// How a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeForm {
    Seconds,
    Milliseconds,
    UnixSeconds,
    UnixMilliseconds,
}

impl TimeForm {
    /// The words of `SET` and `GETEX`.
    fn from_option(args: Args<'_>, index: usize) -> Option<Self> {
        let word = args.arg(index);
        [
            (&b"EX"[..], Self::Seconds),
            (b"PX", Self::Milliseconds),
            (b"EXAT", Self::UnixSeconds),
            (b"PXAT", Self::UnixMilliseconds),
        ]
        .into_iter()
        .find(|(name, _)| word.eq_ignore_ascii_case(name))
        .map(|(_, form)| form)
    }

    /// The time that `text` means; whether it may be zero or less is for the caller to say.
    fn deadline<'a>(self, text: &[u8], row: &'static Row) -> Result<Deadline, ErrorReply<'a>> {
        let number = integer(text)?;
        let milliseconds = match self {
            Self::Seconds | Self::UnixSeconds => number.checked_mul(1000).ok_or(ErrorReply::InvalidExpire(row))?,
            Self::Milliseconds | Self::UnixMilliseconds => number,
        };
        Ok(match self {
            Self::Seconds | Self::Milliseconds => Deadline::After(milliseconds),
            Self::UnixSeconds | Self::UnixMilliseconds => Deadline::At(milliseconds),
        })
    }

    /// The same where only times above zero are allowed.
    fn positive_deadline<'a>(self, text: &[u8], row: &'static Row) -> Result<Deadline, ErrorReply<'a>> {
        match self.deadline(text, row)? {
            Deadline::After(number) | Deadline::At(number) if number <= 0 => Err(ErrorReply::InvalidExpire(row)),
            deadline => Ok(deadline),
        }
    }
}

/// The condition of a `SET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCondition<'a> {
    /// None.
    Always,
    /// `NX`: the key holds nothing.
    IfAbsent,
    /// `XX`: the key holds something.
    IfPresent,
    /// `IFEQ`: the key holds this value (Valkey 8.1).
    IfEqual(&'a [u8]),
}

/// The action of a `SET` on the key's expiration time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetExpiry {
    /// Removes it.
    Clear,
    /// `KEEPTTL`: leaves it.
    Keep,
    /// `EX`, `PX`, `EXAT`, `PXAT`: makes it this one.
    Deadline(Deadline),
}

/// The options of `SET key value ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetOptions<'a> {
    /// When to write.
    pub condition: SetCondition<'a>,
    /// The action on the expiration time.
    pub expiry: SetExpiry,
    /// `GET`: the old value is the reply.
    pub get: bool,
}

/// The options of `SET`, from the third argument on.
///
/// # Errors
/// Unknown or conflicting words; a time that is no number or not above zero.
#[inline]
pub fn set<'a>(args: Args<'a>, row: &'static Row) -> Result<SetOptions<'a>, ErrorReply<'a>> {
    let plain = SetOptions {
        condition: SetCondition::Always,
        expiry: SetExpiry::Clear,
        get: false,
    };
    if args.len() <= 3 {
        Ok(plain)
    } else {
        set_words(args, row, plain)
    }
}

fn set_words<'a>(args: Args<'a>, row: &'static Row, plain: SetOptions<'a>) -> Result<SetOptions<'a>, ErrorReply<'a>> {
    let mut options = plain;
    // As in Redis a word may be repeated, if with its like only.
    let mut time: Option<(TimeForm, &[u8])> = None;
    let mut index = 3;
    while index < args.len() {
        let argument = args.get(index + 1);
        if args.is(index, "NX") && matches!(options.condition, SetCondition::Always | SetCondition::IfAbsent) {
            options.condition = SetCondition::IfAbsent;
        } else if args.is(index, "XX") && matches!(options.condition, SetCondition::Always | SetCondition::IfPresent) {
            options.condition = SetCondition::IfPresent;
        } else if args.is(index, "GET") {
            options.get = true;
        } else if args.is(index, "KEEPTTL") && time.is_none() {
            options.expiry = SetExpiry::Keep;
        } else if let (true, SetCondition::Always, Some(value)) = (args.is(index, "IFEQ"), options.condition, argument)
        {
            options.condition = SetCondition::IfEqual(value);
            index += 1;
        } else if let (Some(form), Some(text)) = (TimeForm::from_option(args, index), argument)
            && options.expiry != SetExpiry::Keep
            && time.is_none_or(|(earlier, _)| earlier == form)
        {
            time = Some((form, text));
            index += 1;
        } else {
            return Err(error::SYNTAX);
        }
        index += 1;
    }
    if let Some((form, text)) = time {
        options.expiry = SetExpiry::Deadline(form.positive_deadline(text, row)?);
    }
    Ok(options)
}

/// The time of `SETEX` and `PSETEX`.
///
/// # Errors
/// No number, or not above zero.
pub fn set_with_time<'a>(args: Args<'a>, row: &'static Row, unit: Unit) -> Result<Deadline, ErrorReply<'a>> {
    let form = match unit {
        Unit::Seconds => TimeForm::Seconds,
        Unit::Milliseconds => TimeForm::Milliseconds,
    };
    form.positive_deadline(args.arg(2), row)
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// The action of `GETEX` on the key's expiration time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetExOption {
    /// Nothing.
    Leave,
    /// `PERSIST`: removes it.
    Persist,
    /// `EX`, `PX`, `EXAT`, `PXAT`: makes it this one.
    Deadline(Deadline),
}

/// The options of `GETEX`, from the second argument on.
///
/// # Errors
/// Unknown or conflicting words; a time that is no number or not above zero.
pub fn get_ex<'a>(args: Args<'a>, row: &'static Row) -> Result<GetExOption, ErrorReply<'a>> {
    let mut persist = false;
    let mut time: Option<(TimeForm, &[u8])> = None;
    let mut index = 2;
    while index < args.len() {
        if args.is(index, "PERSIST") && time.is_none() {
            persist = true;
        } else if let (Some(form), Some(text)) = (TimeForm::from_option(args, index), args.get(index + 1))
            && !persist
            && time.is_none_or(|(earlier, _)| earlier == form)
        {
            time = Some((form, text));
            index += 1;
        } else {
            return Err(error::SYNTAX);
        }
        index += 1;
    }
    match time {
        Some((form, text)) => Ok(GetExOption::Deadline(form.positive_deadline(text, row)?)),
        None if persist => Ok(GetExOption::Persist),
        None => Ok(GetExOption::Leave),
    }
}

/// `EXPIRE`, `PEXPIRE`, `EXPIREAT` and `PEXPIREAT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    /// When; a time that has passed deletes the key.
    pub deadline: Deadline,
    /// `NX`: only if the key has no expiration time.
    pub if_none: bool,
    /// `XX`: only if it has one.
    pub if_some: bool,
    /// `GT`: only if the new one is later; no expiration time counts as the latest.
    pub if_later: bool,
    /// `LT`: only if the new one is earlier.
    pub if_earlier: bool,
}

impl Expire {
    /// Whether a key whose expiration time is `present` (milliseconds since 1970) shall get `new` instead.
    pub fn applies(&self, present: Option<i64>, new: i64) -> bool {
        match present {
            None => !self.if_some && !self.if_later,
            Some(present) => !self.if_none && (!self.if_later || new > present) && (!self.if_earlier || new < present),
        }
    }
}

/// The time and the options of `EXPIRE`, `PEXPIRE`, `EXPIREAT` or `PEXPIREAT`, told apart by `row`.
///
/// # Errors
/// Unknown or conflicting words; a time that is no number or beyond 64 bits.
pub fn expire<'a>(args: Args<'a>, row: &'static Row) -> Result<Expire, ErrorReply<'a>> {
    use super::command::CommandId::{ExpireAt, PExpire, PExpireAt};
    let (mut if_none, mut if_some, mut if_later, mut if_earlier) = (false, false, false, false);
    for index in 3..args.len() {
        let option = [
            ("NX", &mut if_none),
            ("XX", &mut if_some),
            ("GT", &mut if_later),
            ("LT", &mut if_earlier),
        ];
        match option.into_iter().find(|(name, _)| args.is(index, name)) {
            Some((_, set)) => *set = true,
            None => return Err(ErrorReply::UnsupportedOption(args.arg(index))),
        }
    }
    if if_none && (if_some || if_later || if_earlier) {
        return Err(error::NX_AND_OTHERS);
    }
    if if_later && if_earlier {
        return Err(error::GT_AND_LT);
    }
    let form = match row.id {
        PExpire => TimeForm::Milliseconds,
        ExpireAt => TimeForm::UnixSeconds,
        PExpireAt => TimeForm::UnixMilliseconds,
        _ => TimeForm::Seconds,
    };
    let deadline = form.deadline(args.arg(2), row)?;
    Ok(Expire {
        deadline,
        if_none,
        if_some,
        if_later,
        if_earlier,
    })
}

/// Which types `SCAN` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanType {
    /// All of them, or strings, which here is the same.
    Strings,
    /// A type of which there are no keys.
    Nothing,
}

/// `SCAN cursor ...`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The cursor at which to go on; zero begins.
    pub cursor: u64,
    /// `MATCH`: a pattern for [`super::glob::matches`].
    pub pattern: Option<&'a [u8]>,
    /// `COUNT`: about how many keys to look at.
    pub count: u64,
    /// `TYPE`.
    pub types: ScanType,
}

/// How many keys `SCAN` looks at if it is not told (as in Redis).
pub const SCAN_COUNT: u64 = 10;

/// The arguments of `SCAN`.
///
/// # Errors
/// No cursor, unknown words, a count that is no number or below one.
pub fn scan<'a>(args: Args<'a>) -> Result<Scan<'a>, ErrorReply<'a>> {
    let cursor = args.arg(1);
    let is_plain = cursor.first().is_some_and(u8::is_ascii_digit);
    let cursor = parse_u64(cursor).filter(|_| is_plain).ok_or(error::INVALID_CURSOR)?;
    let mut scan = Scan {
        cursor,
        pattern: None,
        count: SCAN_COUNT,
        types: ScanType::Strings,
    };
    let mut index = 2;
    while index < args.len() {
        let argument = args.get(index + 1).ok_or(error::SYNTAX)?;
        if args.is(index, "COUNT") {
            scan.count = u64::try_from(integer(argument)?)
                .ok()
                .filter(|count| *count > 0)
                .ok_or(error::SYNTAX)?;
        } else if args.is(index, "MATCH") {
            scan.pattern = Some(argument);
        } else if args.is(index, "TYPE") {
            let is_string = argument.eq_ignore_ascii_case(b"string");
            scan.types = if is_string {
                ScanType::Strings
            } else {
                ScanType::Nothing
            };
        } else {
            return Err(error::SYNTAX);
        }
        index += 2;
    }
    Ok(scan)
}

/// How `FLUSHDB` and `FLUSHALL` may be called: with nothing, `ASYNC` or `SYNC`, which here are the same.
///
/// # Errors
/// Anything else.
pub fn flush<'a>(args: Args<'a>) -> Result<(), ErrorReply<'a>> {
    match args.len() {
        1 => Ok(()),
        2 if args.is(1, "ASYNC") || args.is(1, "SYNC") => Ok(()),
        _ => Err(error::SYNTAX),
    }
}

/// The offset at which `SETRANGE` writes. Writing nothing is allowed anywhere.
///
/// # Errors
/// No number, a negative one, or an end beyond `value_bytes`.
pub fn offset<'a>(args: Args<'a>, value_bytes: usize) -> Result<usize, ErrorReply<'a>> {
    let offset = integer(args.arg(2))?;
    if offset < 0 {
        return Err(error::OFFSET_OUT_OF_RANGE);
    }
    usize::try_from(offset)
        .ok()
        .filter(|offset| {
            let end = offset.checked_add(args.arg(3).len());
            args.arg(3).is_empty() || end.is_some_and(|end| end <= value_bytes)
        })
        .ok_or(error::STRING_TOO_LONG)
}

/// The part of a value of `length` bytes that `GETRANGE` returns: from the first number to the second one, both
/// counted, negative ones from behind.
///
/// # Errors
/// One of the two is no number.
pub fn range<'a>(args: Args<'a>, length: usize) -> Result<Range<usize>, ErrorReply<'a>> {
    let (start, end) = (integer(args.arg(2))?, integer(args.arg(3))?);
    Ok(clamp_range(start, end, length))
}

fn clamp_range(start: i64, end: i64, length: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |index: i64| {
        let distance = usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX);
        if index < 0 {
            length.saturating_sub(distance)
        } else {
            distance
        }
    };
    let (start, end) = (place(start), place(end).saturating_add(1).min(length));
    if start < end { start..end } else { 0..0 }
}
