//! RESP2 and RESP3, Redis's protocol: requests as arrays of bulk strings or as inline lines, replies in either version.
//!
//! The module follows Redis 7.0 to the word in errors, argument checks and reply types. The rows of [`command`] are
//! data, and the parsers of [`options`] and [`session`] pure functions. The server runs its commands by them.
//!
//! Invariant: [`parse`] gives the same answer however the bytes are split and whatever follows them.

mod args;
pub mod command;
mod discard;
pub mod error;
pub mod float;
pub mod glob;
mod inline;
pub mod options;
mod parse;
mod reply;
pub mod session;
mod table;
mod unsupported;

pub use args::{ArgList, Args};
pub use discard::{Discard, Discarded};
pub use error::ErrorReply;
pub use parse::{parse, parse_more};
pub use reply::{Reply, Version};

/// The most arguments of a command, its name included: where each is takes 8 bytes. Redis's own limit is 2^31 - 1.
pub const ARGS_MAX: usize = 1024 * 1024;
/// The longest argument that is answered with an error instead of a closed connection, in bytes (Redis's default
/// `proto-max-bulk-len`).
pub const BULK_BYTES_MAX: usize = 512 << 20;
/// The longest inline line, and the longest text that may stand for a length, in bytes (Redis's
/// `PROTO_INLINE_MAX_SIZE`).
pub const INLINE_BYTES_MAX: usize = 64 << 10;
/// The most arguments of a command before login (as in Redis).
pub const ARGS_BEFORE_LOGIN_MAX: usize = 10;
/// The longest argument before login, in bytes (as in Redis).
pub const BULK_BYTES_BEFORE_LOGIN_MAX: usize = 16 << 10;

/// The limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Arguments, the command's name included.
    pub args: usize,
    /// One argument, in bytes.
    pub bulk_bytes: usize,
    /// The whole command as sent, in bytes.
    pub command_bytes: usize,
    /// Whether the connection has yet to log in: more is then an error of its own, and the connection is closed.
    pub before_login: bool,
}

impl Limits {
    /// Redis's limits before login.
    pub const BEFORE_LOGIN: Self = Self {
        args: ARGS_BEFORE_LOGIN_MAX,
        bulk_bytes: BULK_BYTES_BEFORE_LOGIN_MAX,
        command_bytes: (ARGS_BEFORE_LOGIN_MAX + 1) * BULK_BYTES_BEFORE_LOGIN_MAX,
        before_login: true,
    };

    /// Redis's limits after login, for values of at most `value_bytes`; a command may carry eight such values.
    pub fn with_value_bytes(value_bytes: usize) -> Self {
        Self {
            args: ARGS_MAX,
            bulk_bytes: value_bytes,
            command_bytes: value_bytes.saturating_mul(8).max(INLINE_BYTES_MAX),
            before_login: false,
        }
    }
}

/// The result of [`parse`] at the beginning of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole command: its arguments are in the list that was passed.
    Complete {
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// An empty line, or an array without elements: no command and no reply.
    Nothing {
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// The beginning of a command. Parsing again is of no use below `needed` bytes. A connection that keeps the list
    /// goes on with [`parse_more`]; otherwise the command is read again from its beginning.
    Incomplete {
        /// The least number of bytes, from the command's beginning, that can answer anything else.
        needed: usize,
    },
    /// A command that is too large. Reply with the error, then feed what follows to `rest`.
    Refused {
        /// The reply.
        error: ErrorReply<'static>,
        /// Bytes of the input that it took.
        consumed: usize,
        /// Drops the command's remaining bytes as they come.
        rest: Discard,
    },
    /// Not RESP: reply with the error and close, since the next command's beginning cannot be known.
    Failed(ErrorReply<'static>),
}
