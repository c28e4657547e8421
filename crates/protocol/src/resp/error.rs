//! Error replies in Redis 7.0's words.
//!
//! At most [`QUOTED_BYTES_MAX`] bytes of a client's input are quoted, and a line end in it becomes spaces. An error is
//! therefore always one short line.

use std::fmt;

use super::args::Args;
use super::command::Row;

/// The most bytes of a client's word that an error repeats (as in Redis).
pub const QUOTED_BYTES_MAX: usize = 128;

/// An error to reply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReply<'a> {
    /// A text that never changes, its code first.
    Fixed(&'static str),
    /// Something else than `$` where an argument should begin.
    ExpectedBulk(u8),
    /// Too few or too many arguments for this command.
    WrongArity(&'static Row),
    /// No time for this command: zero or less where that is not allowed, or beyond the clock's end.
    InvalidExpire(&'static Row),
    /// The connection's secret does not permit this command.
    NotPermitted(&'static Row),
    /// No such command: all its arguments.
    UnknownCommand(Args<'a>),
    /// No such subcommand of this command.
    UnknownSubcommand(&'static Row, &'a [u8]),
    /// A command of Redis that Tidemark does not have: its name.
    NotOffered(&'a [u8]),
    /// A subcommand of Redis that Tidemark does not have.
    SubcommandNotOffered(&'static Row, &'a [u8]),
    /// An option that `HELLO` does not have, or one without its arguments.
    HelloOption(&'a [u8]),
    /// An option that `EXPIRE` and its like do not have.
    UnsupportedOption(&'a [u8]),
    /// No type of clients.
    UnknownClientType(&'a [u8]),
    /// An attribute that `CLIENT SETINFO` does not have.
    UnrecognizedAttribute(&'a [u8]),
    /// A value that `CLIENT SETINFO` does not allow for this attribute.
    BadAttribute(&'static str),
    /// `CLIENT KILL USER` with a name that no tenant has.
    NoSuchUser(&'a [u8]),
    /// Above a limit of Tidemark's: which, its value, and its unit.
    AboveLimit(&'static str, usize, &'static str),
}

macro_rules! fixed {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub const $name: ErrorReply<'static> = ErrorReply::Fixed($text);)*
    };
}

fixed! {
    /// Options that exclude each other, or words where none belong.
    SYNTAX = "ERR syntax error";
    /// An argument or a value that is no 64-bit number.
    NOT_AN_INTEGER = "ERR value is not an integer or out of range";
    /// A number beyond 32 bits.
    NOT_A_SMALL_INTEGER = "ERR value is out of range, value must between -2147483648 and 2147483647";
    /// An argument or a value that is no number with a fraction.
    NOT_A_FLOAT = "ERR value is not a valid float";
    /// `INCRBYFLOAT` beyond all numbers.
    NOT_FINITE = "ERR increment would produce NaN or Infinity";
    /// A sum beyond 64 bits.
    OVERFLOW = "ERR increment or decrement would overflow";
    /// `DECRBY` by the one number that has no opposite.
    DECREMENT_OVERFLOW = "ERR decrement would overflow";
    /// A negative offset.
    OFFSET_OUT_OF_RANGE = "ERR offset is out of range";
    /// A value, or a whole command, above the limit.
    STRING_TOO_LONG = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    /// A key of another type. Every key here is a string, so this only completes the codes that clients match on.
    WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value";
    /// `RENAME` of nothing.
    NO_SUCH_KEY = "ERR no such key";
    /// `SELECT` beyond the last database.
    DB_OUT_OF_RANGE = "ERR DB index is out of range";
    /// No cursor of `SCAN`.
    INVALID_CURSOR = "ERR invalid cursor";
    /// `EXPIRE` with options that exclude each other.
    NX_AND_OTHERS = "ERR NX and XX, GT or LT options at the same time are not compatible";
    /// The same of the other two.
    GT_AND_LT = "ERR GT and LT options at the same time are not compatible";
    /// Anything before login.
    NO_AUTH = "NOAUTH Authentication required.";
    /// `HELLO` before login and without one.
    NO_AUTH_HELLO = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
        AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
        same time";
    /// A wrong name or secret.
    WRONG_PASS = "WRONGPASS invalid username-password pair or user is disabled.";
    /// `AUTH <secret>` where the open tenant needs none.
    NO_PASSWORD_SET = "ERR AUTH <password> called without any password configured for the default user. Are you \
        sure your configuration is correct?";
    /// A version that `HELLO` does not have.
    NO_PROTO = "NOPROTO unsupported protocol version";
    /// A version that is no number.
    PROTO_NOT_A_NUMBER = "ERR Protocol version is not an integer or out of range";
    /// A name for a client that could not be listed.
    BAD_CLIENT_NAME = "ERR Client names cannot contain spaces, newlines or special characters.";
    /// `CLIENT KILL` with an id that is none.
    CLIENT_ID_NOT_POSITIVE = "ERR client-id should be greater than 0";
    /// `CLIENT KILL MAXAGE` with something that is no number.
    MAXAGE_NOT_A_NUMBER = "ERR maxage is not an integer or out of range";
    /// `CLIENT KILL MAXAGE` with an age that is none.
    MAXAGE_NOT_POSITIVE = "ERR maxage should be greater than 0";
    /// `CLIENT LIST` with an id that is none.
    BAD_CLIENT_ID = "ERR Invalid client ID";
    /// `CLIENT KILL` of an address that nobody has.
    NO_SUCH_CLIENT = "ERR No such client";
    /// `MULTI` within `MULTI`.
    NESTED_MULTI = "ERR MULTI calls can not be nested";
    /// `EVAL` with fewer keys than none.
    NEGATIVE_KEYS = "ERR Number of keys can't be negative";
    /// `EVAL` with fewer arguments than keys.
    TOO_MANY_KEYS = "ERR Number of keys can't be greater than number of args";
    /// `EVALSHA` of a script that is not known.
    NO_SCRIPT = "NOSCRIPT No matching script. Please use EVAL.";
    /// `SCRIPT KILL` while no script of the tenant runs.
    NOT_BUSY = "NOTBUSY No scripts in execution right now.";
    /// `WATCH` within `MULTI`.
    WATCH_IN_MULTI = "ERR WATCH inside MULTI is not allowed";
    /// `EXEC` alone.
    EXEC_WITHOUT_MULTI = "ERR EXEC without MULTI";
    /// `DISCARD` alone.
    DISCARD_WITHOUT_MULTI = "ERR DISCARD without MULTI";
    /// `EXEC` after a command that could not be queued.
    EXEC_ABORT = "EXECABORT Transaction discarded because of previous errors.";
    /// `COMMAND GETKEYS` of a command that does not exist.
    INVALID_COMMAND = "ERR Invalid command specified";
    /// `COMMAND GETKEYS` with too few or too many arguments.
    INVALID_ARITY = "ERR Invalid number of arguments specified for command";
    /// `COMMAND GETKEYS` of a command without keys.
    NO_KEYS = "ERR The command has no key arguments";
    /// No memory could be had for a value.
    OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'.";

    /// `*` with something that is no number of arguments.
    INVALID_MULTIBULK_LENGTH = "ERR Protocol error: invalid multibulk length";
    /// `$` with something that is no length.
    INVALID_BULK_LENGTH = "ERR Protocol error: invalid bulk length";
    /// No line end behind a string of the length that was said. Redis reads on, in the middle of the string.
    NO_LINE_END = "ERR Protocol error: expected a line end behind the string";
    /// A line that does not end.
    TOO_BIG_INLINE = "ERR Protocol error: too big inline request";
    /// A number of arguments that does not end.
    TOO_BIG_MULTIBULK_COUNT = "ERR Protocol error: too big mbulk count string";
    /// A length that does not end.
    TOO_BIG_BULK_COUNT = "ERR Protocol error: too big bulk count string";
    /// A quote that does not end.
    UNBALANCED_QUOTES = "ERR Protocol error: unbalanced quotes in request";
    /// Too many arguments before login.
    UNAUTHENTICATED_MULTIBULK = "ERR Protocol error: unauthenticated multibulk length";
    /// Too long an argument before login.
    UNAUTHENTICATED_BULK = "ERR Protocol error: unauthenticated bulk length";
}

impl ErrorReply<'_> {
    /// Appends the error's text, without `-` and line end, in one line.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        self.append_raw(out);
        for byte in &mut out[begin..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }

    fn append_raw(&self, out: &mut Vec<u8>) {
        let byte;
        let (before, word, after): (&str, &[u8], &str) = match *self {
            Self::Fixed(text) => (text, b"", ""),
            Self::ExpectedBulk(other) => {
                byte = [other];
                ("ERR Protocol error: expected '$', got '", &byte, "'")
            }
            Self::WrongArity(row) => ("ERR wrong number of arguments for '", row.name.as_bytes(), "' command"),
            Self::InvalidExpire(row) => ("ERR invalid expire time in '", row.name.as_bytes(), "' command"),
            Self::NotPermitted(row) => {
                let before = "NOPERM this user has no permissions to run the '";
                (before, row.name.as_bytes(), "' command")
            }
            Self::UnknownCommand(args) => return append_unknown(out, args),
            Self::UnknownSubcommand(row, given) => {
                let container = row.name.to_ascii_uppercase();
                let after = format!("'. Try {container} HELP.");
                return join(out, "ERR unknown subcommand '", given, &after);
            }
            Self::NotOffered(name) => ("ERR the command '", name, "' is not offered by Tidemark"),
            Self::SubcommandNotOffered(row, name) => {
                let container = row.name.to_ascii_uppercase();
                let before = format!("ERR the command '{container} ");
                return join(out, &before, name, "' is not offered by Tidemark");
            }
            Self::HelloOption(given) => ("ERR Syntax error in HELLO option '", given, "'"),
            Self::UnsupportedOption(given) => ("ERR Unsupported option ", given, ""),
            Self::UnknownClientType(given) => ("ERR Unknown client type '", given, "'"),
            Self::UnrecognizedAttribute(given) => ("ERR Unrecognized option '", given, "'"),
            Self::BadAttribute(name) => {
                let after = " cannot contain spaces, newlines or special characters.";
                ("ERR ", name.as_bytes(), after)
            }
            Self::NoSuchUser(given) => ("ERR No such user '", given, "'"),
            Self::AboveLimit(what, limit, unit) => {
                let after = format!(" is above the limit of {limit} {unit}");
                return join(out, "ERR ", what.as_bytes(), &after);
            }
        };
        join(out, before, word, after);
    }
}

impl fmt::Display for ErrorReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        self.append_to(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl std::error::Error for ErrorReply<'_> {}

fn join(out: &mut Vec<u8>, before: &str, word: &[u8], after: &str) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(quoted(word));
    out.extend_from_slice(after.as_bytes());
}

/// The part of a client's word that an error repeats. As in Redis, it is no more than a bound, and ends at a zero byte.
fn quoted(word: &[u8]) -> &[u8] {
    until_zero(&word[..word.len().min(QUOTED_BYTES_MAX)])
}

fn until_zero(word: &[u8]) -> &[u8] {
    &word[..memchr::memchr(0, word).unwrap_or(word.len())]
}

/// The form of Redis's `rejectCommandFormat` for an unknown command. Arguments are repeated until they have taken 128
/// bytes, quotes and spaces counted.
fn append_unknown(out: &mut Vec<u8>, args: Args<'_>) {
    join(
        out,
        "ERR unknown command '",
        args.arg(0),
        "', with args beginning with: ",
    );
    let mut taken = 0;
    for arg in args.from(1) {
        if taken >= QUOTED_BYTES_MAX {
            break;
        }
        let shown = until_zero(&arg[..arg.len().min(QUOTED_BYTES_MAX - taken)]);
        join(out, "'", shown, "' ");
        taken += shown.len() + 3;
    }
}
