//! The commands as data: their names, arguments and permissions, and how one is found by name.
//!
//! Rows agree with Redis 7.0.15's answers to COMMAND INFO (`tests/protocol/commands.rs` compares them). Finding one
//! costs a few nanoseconds. Names of up to sixteen bytes are two words, folded to lower case, in a table that is built
//! when the program is compiled.

use std::fmt;
use std::ops::Range;

use tidemark_types::Permissions;

use super::args::Args;
use super::error::{self, ErrorReply};
pub use super::table::{COMMANDS, CommandId};
use super::unsupported;
use crate::number::parse_canonical_i64;

/// A command or a subcommand.
#[derive(Clone, Copy)]
pub struct Row {
    /// Which one.
    pub id: CommandId,
    /// The name in lower case; a subcommand's as `client|list`.
    pub name: &'static str,
    /// Redis's arity: so many arguments with the name, or, if negative, at least so many.
    pub arity: i16,
    /// The command's flags.
    pub flags: Flags,
    /// The places of its keys.
    pub keys: KeyPlaces,
    /// ACL categories beside those that follow from the flags; ask [`Row::categories`].
    pub(super) own_categories: Categories,
    /// The permissions that a connection's secret must have.
    pub permissions: Permissions,
    /// The version of Redis that brought it (Valkey's for commands that Redis lacks).
    pub since: &'static str,
    /// Redis's group.
    pub group: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Redis's hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// Subcommands; if there are any, the second argument names one.
    pub subcommands: &'static [Self],
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Row {}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The places of a command's keys. The first one's is counted from the name as zero, the last one's from behind if it
/// is negative. The step is between them. A first place of zero means no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlaces {
    /// The first key.
    pub first: u8,
    /// The last key.
    pub last: i8,
    /// The distance from one key to the next.
    pub step: u8,
}

impl KeyPlaces {
    pub(super) const NONE: Self = Self {
        first: 0,
        last: 0,
        step: 0,
    };
    pub(super) const ONE: Self = Self {
        first: 1,
        last: 1,
        step: 1,
    };
    pub(super) const TWO: Self = Self {
        first: 1,
        last: 2,
        step: 1,
    };
    pub(super) const ALL: Self = Self {
        first: 1,
        last: -1,
        step: 1,
    };
    pub(super) const PAIRS: Self = Self {
        first: 1,
        last: -1,
        step: 2,
    };

    /// The places of the keys among `args` arguments, and the step from one to the next.
    #[inline]
    fn range(self, args: usize) -> (Range<usize>, usize) {
        let end = match usize::try_from(self.last) {
            Ok(last) => (last + 1).min(args),
            Err(_) => (args + 1).saturating_sub(usize::from(self.last.unsigned_abs())),
        };
        let first = usize::from(self.first);
        let range = if first == 0 { 0..0 } else { first..end.max(first) };
        (range, usize::from(self.step).max(1))
    }
}

/// The place of the number of keys in EVAL and its like; the keys follow it.
const COUNT_AT: usize = 2;

/// The places of the keys of EVAL and its like.
///
/// # Errors
/// The number of keys is none, is negative, or is more than there are arguments.
#[cold]
pub fn counted_keys(args: Args<'_>) -> Result<Range<usize>, ErrorReply<'static>> {
    let count = parse_canonical_i64(args.arg(COUNT_AT)).ok_or(error::NOT_AN_INTEGER)?;
    let count = usize::try_from(count).map_err(|_| error::NEGATIVE_KEYS)?;
    let first = COUNT_AT + 1;
    if count > args.len().saturating_sub(first) {
        return Err(error::TOO_MANY_KEYS);
    }
    Ok(first..first + count)
}

/// A set of named bits.
macro_rules! bit_set {
    ($(#[$doc:meta])* $set:ident { $($(#[$bit_doc:meta])* $name:ident = $bit:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $set(u32);

        impl $set {
            $($(#[$bit_doc])* pub const $name: Self = Self(1 << $bit);)*
            /// Nothing.
            pub const NONE: Self = Self(0);

            /// Both sets together.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether everything in `other` is in this set.
            #[inline]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The names in Redis's order.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((Self::$name, $text)),*].into_iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, name)| name)
            }

            /// The set of this one name, in any case.
            pub fn from_name(name: &[u8]) -> Option<Self> {
                let all = [$((Self::$name, $text)),*];
                all.into_iter().find(|(_, text)| name.eq_ignore_ascii_case(text.as_bytes())).map(|(bit, _)| bit)
            }
        }
    };
}

bit_set! {
    /// The properties of a command, in the words of COMMAND INFO.
    Flags {
        /// Changes keys.
        WRITE = 0, "write";
        /// Reads keys.
        READONLY = 1, "readonly";
        /// Refused when there is no memory.
        DENYOOM = 2, "denyoom";
        /// About the server or other connections.
        ADMIN = 3, "admin";
        /// Not for scripts.
        NOSCRIPT = 4, "noscript";
        /// The command is allowed while data is loaded.
        LOADING = 5, "loading";
        /// The command is allowed on a replica that has lost its primary.
        STALE = 6, "stale";
        /// Kept out of the slow log.
        SKIP_SLOWLOG = 7, "skip_slowlog";
        /// Takes constant or logarithmic time.
        FAST = 8, "fast";
        /// Needs no login.
        NO_AUTH = 9, "no_auth";
        /// The command is allowed while a script runs too long.
        ALLOW_BUSY = 10, "allow_busy";
        /// Kept out of what MONITOR shows.
        SKIP_MONITOR = 11, "skip_monitor";
        /// May be called without keys.
        NO_MANDATORY_KEYS = 12, "no_mandatory_keys";
        /// The places of its keys depend on its arguments.
        MOVABLE_KEYS = 13, "movablekeys";
    }
}

bit_set! {
    /// ACL categories.
    Categories {
        /// About keys of any type.
        KEYSPACE = 0, "keyspace";
        /// Reads keys.
        READ = 1, "read";
        /// Changes keys.
        WRITE = 2, "write";
        /// About strings.
        STRING = 3, "string";
        /// About the server or other connections.
        ADMIN = 4, "admin";
        /// Takes constant or logarithmic time.
        FAST = 5, "fast";
        /// The rest.
        SLOW = 6, "slow";
        /// The command has to be used with care.
        DANGEROUS = 7, "dangerous";
        /// About the connection.
        CONNECTION = 8, "connection";
        /// About transactions.
        TRANSACTION = 9, "transaction";
        /// About scripts.
        SCRIPTING = 10, "scripting";
    }
}

impl Row {
    /// Whether the command takes so many arguments, its name counted.
    #[inline]
    pub fn accepts(&self, args: usize) -> bool {
        let wanted = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { args >= wanted } else { args == wanted }
    }

    /// All ACL categories: those of its own and those that follow from the flags.
    pub fn categories(&self) -> Categories {
        let mut all = self.own_categories;
        for (flag, categories) in [
            (Flags::WRITE, Categories::WRITE),
            (Flags::READONLY, Categories::READ),
            (Flags::ADMIN, Categories::ADMIN.with(Categories::DANGEROUS)),
        ] {
            // The commands that a script calls say what it does to its keys.
            if self.flags.has(flag) && !all.has(Categories::SCRIPTING) {
                all = all.with(categories);
            }
        }
        let is_fast = self.flags.has(Flags::FAST);
        all.with(if is_fast { Categories::FAST } else { Categories::SLOW })
    }

    /// Whether the command runs at once within MULTI instead of being queued.
    #[inline]
    pub fn runs_within_multi(&self) -> bool {
        use CommandId::{Discard, Exec, Multi, Quit, Reset, Watch};
        matches!(self.id, Exec | Discard | Multi | Watch | Quit | Reset)
    }

    /// The places of the command's keys among its arguments, also where these say how many there are.
    #[inline]
    pub fn key_places(&self, args: Args<'_>) -> impl ExactSizeIterator<Item = usize> + use<> {
        let counted = self.flags.has(Flags::MOVABLE_KEYS);
        let (range, step) = if counted {
            (counted_keys(args).unwrap_or_default(), 1)
        } else {
            self.keys.range(args.len())
        };
        range.step_by(step)
    }

    /// The subcommand of this name, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Self> {
        self.subcommands.iter().find(|row| {
            let own = row.name.split_once('|').map_or("", |(_, own)| own);
            own.as_bytes().eq_ignore_ascii_case(name)
        })
    }
}

/// The command that these arguments call, checked for its number of arguments.
///
/// # Errors
/// Unknown commands and subcommands, those that Tidemark does not offer, and a wrong number of arguments.
#[inline]
pub fn resolve(args: Args<'_>) -> Result<&'static Row, ErrorReply<'_>> {
    let Some(row) = lookup(args.arg(0)) else {
        return Err(unknown(args));
    };
    let row = match args.get(1) {
        Some(name) if !row.subcommands.is_empty() => row.subcommand(name).ok_or_else(|| unknown_sub(row, name))?,
        _ => row,
    };
    if row.accepts(args.len()) && is_number_allowed(row, args.len()) {
        Ok(row)
    } else {
        Err(ErrorReply::WrongArity(row))
    }
}

/// The rule that an arity cannot express.
#[inline]
fn is_number_allowed(row: &Row, args: usize) -> bool {
    match row.id {
        CommandId::MSet | CommandId::MSetNx => args % 2 == 1,
        CommandId::Ping => args <= 2,
        _ => true,
    }
}

#[cold]
fn unknown(args: Args<'_>) -> ErrorReply<'_> {
    let name = args.arg(0);
    if unsupported::is_command(name) {
        return ErrorReply::NotOffered(name);
    }
    ErrorReply::UnknownCommand(args)
}

#[cold]
fn unknown_sub<'a>(row: &'static Row, name: &'a [u8]) -> ErrorReply<'a> {
    if unsupported::is_subcommand(row.name, name) {
        return ErrorReply::SubcommandNotOffered(row, name);
    }
    ErrorReply::UnknownSubcommand(row, name)
}

/// The command of this name, in any case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static Row> {
    // Nearly every command is one of these two.
    if let [first, b'e' | b'E', b't' | b'T'] = name {
        match first {
            b'g' | b'G' => return COMMANDS.first(),
            b's' | b'S' => return COMMANDS.get(1),
            _ => {}
        }
    }
    let key = NameKey::new(name)?;
    let mut at = key.slot();
    loop {
        let slot = &INDEX[at % SLOTS];
        if slot.key.is(key) {
            let row = COMMANDS.get(usize::from(slot.row));
            // An underscore is joined with another byte by what makes letters lower.
            return row.filter(|row| !slot.has_underscore || row.name.as_bytes().eq_ignore_ascii_case(name));
        }
        if slot.key.length == 0 {
            return None;
        }
        at += 1;
    }
}

/// A name of one to sixteen bytes as two words, lower and upper case alike. The words overlap for most lengths, so that
/// they are read without a loop. Setting bit 5 makes letters lower; that it also joins other bytes does no harm,
/// because none of them becomes a letter.
#[derive(Clone, Copy)]
struct NameKey {
    low: u64,
    high: u64,
    length: u8,
}

/// Slots of the index: a power of two, more than three times the number of commands, so that most searches end at once.
const SLOTS: usize = 256;

#[derive(Clone, Copy)]
struct Slot {
    key: NameKey,
    row: u8,
    has_underscore: bool,
}

impl NameKey {
    const EMPTY: Self = Self {
        low: 0,
        high: 0,
        length: 0,
    };

    #[inline]
    const fn new(name: &[u8]) -> Option<Self> {
        const CASE: u64 = 0x2020_2020_2020_2020;
        let (low, high) = match name.len() {
            length @ 1..=3 => {
                let ends = (name[0] as u64) | (name[length - 1] as u64) << 8;
                (ends | (name[length / 2] as u64) << 16, 0)
            }
            4..=7 => match (name.first_chunk(), name.last_chunk()) {
                (Some(first), Some(last)) => {
                    let high = (u32::from_le_bytes(*last) as u64) << 32;
                    (u32::from_le_bytes(*first) as u64 | high, 0)
                }
                _ => return None,
            },
            8..=16 => match (name.first_chunk(), name.last_chunk()) {
                (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
                _ => return None,
            },
            _ => return None,
        };
        Some(Self {
            low: low | CASE,
            high: high | CASE,
            length: name.len() as u8,
        })
    }

    #[inline]
    const fn is(self, other: Self) -> bool {
        self.low == other.low && self.high == other.high && self.length == other.length
    }

    /// The slot at which the search begins.
    #[inline]
    const fn slot(self) -> usize {
        // Any odd constant with well mixed bits will do; this one is 2^64 divided by the golden ratio.
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let word = self.low ^ self.high.rotate_left(23) ^ self.length as u64;
        (word.wrapping_mul(MIX) >> (64 - SLOTS.trailing_zeros())) as usize
    }
}

static INDEX: [Slot; SLOTS] = build_index();

const fn build_index() -> [Slot; SLOTS] {
    let mut index = [Slot {
        key: NameKey::EMPTY,
        row: 0,
        has_underscore: false,
    }; SLOTS];
    let mut row = 0;
    while row < COMMANDS.len() {
        let Some(key) = NameKey::new(COMMANDS[row].name.as_bytes()) else {
            panic!("a command's name is longer than sixteen bytes");
        };
        let mut at = key.slot();
        while index[at % SLOTS].key.length != 0 {
            at += 1;
        }
        index[at % SLOTS] = Slot {
            key,
            row: row as u8,
            has_underscore: has_underscore(COMMANDS[row].name.as_bytes()),
        };
        row += 1;
    }
    index
}

const fn has_underscore(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if name[at] == b'_' {
            return true;
        }
        at += 1;
    }
    false
}

const _: () = assert!(COMMANDS.len() * 3 <= SLOTS && COMMANDS.len() <= 256);
// `lookup` takes these two by their places.
const _: () = assert!(matches!(COMMANDS[0].id, CommandId::Get) && matches!(COMMANDS[1].id, CommandId::Set));
