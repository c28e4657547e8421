//! memcached's text and meta protocol.
//!
//! The parser follows `doc/protocol.txt` of memcached 1.6 and, where that is silent, memcached's code. Tidemark is
//! stricter in three points. Client flags above 32 bits are refused, and so is a key with a control character. Base64
//! keys are refused unless they are what an encoder would write. No byte of a value is ever taken for a command. The
//! body of a refused storage command is swallowed if its length can be read. The connection is closed if not, or if no
//! line end follows the body. It is also closed at the first line of an HTTP request.
//!
//! Invariant: [`parse`] gives the same answer however the bytes are split and whatever follows them.

mod command;
pub mod compose;
mod exptime;
mod key;
mod line;
mod meta;
mod parse;
pub mod table;
pub mod text;

pub use command::{
    Arithmetic, Command, Delete, Direction, FlushAll, Get, OpenGet, Part, Stats, Store, Touch, Verb, Verbosity,
};
pub use exptime::{Expires, RELATIVE_SECONDS_MAX, expires};
pub use key::{KeyBuffer, Keys, MetaKey, is_key};
pub use meta::{Meta, MetaArithmetic, MetaFlag, MetaFlags, MetaMode, MetaSet};
pub use parse::{parse, parse_keys};

/// The longest key, in bytes, as sent (protocol.txt, "Keys"); also for keys sent in base64.
pub const KEY_BYTES_MAX: usize = 250;
/// The longest command line without its line end, in bytes; memcached closes the connection beyond it. A line of keys may
/// be as long as it likes: beyond this it is read in parts.
pub const LINE_BYTES_MAX: usize = 2048;
/// The longest opaque token of a meta command, in bytes (protocol.txt, "Meta Get").
pub const OPAQUE_BYTES_MAX: usize = 32;
/// The longest value by default, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The largest length, in bytes, that a client may announce for a body that is then swallowed. It fits a signed 64-bit
/// number with the line end behind the body. Beyond it the connection is closed.
const ANNOUNCED_BYTES_MAX: usize = i64::MAX as usize - 2;
/// The largest length that memcached calls too large, in bytes; anything above it is a bad line.
const SAID_BYTES_MAX: usize = i32::MAX as usize - 2;

/// The limits of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest value, in bytes.
    pub value_bytes: usize,
    /// Whether a line of keys (`get`, `gets`, `gat`, `gats`) may be longer than [`LINE_BYTES_MAX`].
    pub long_key_lines: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            value_bytes: VALUE_BYTES_MAX,
            long_key_lines: true,
        }
    }
}

/// The result of [`parse`] at the beginning of its input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Parsed<'a> {
    /// A whole command, body included.
    Complete {
        /// The command; its parts are slices of the input.
        command: Command<'a>,
        /// Bytes of the input that it took.
        consumed: usize,
    },
    /// The beginning of a command. Parsing again is of no use below `needed` bytes.
    Incomplete {
        /// The least number of bytes, from the command's beginning, that can answer anything else.
        needed: usize,
    },
    /// Not a command.
    Failed(Failure),
    /// A storage command whose value is above the limit. Its client takes another value for the key's than the stored
    /// item. The item is to be removed, as in memcached, so that nothing outdated is served.
    TooLarge {
        /// The reply, and the bytes to drop.
        failure: Failure,
        /// The key that was to be written.
        key: MetaKey<'a>,
    },
}

/// A refused command: the reply, and how the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The reply with its line end; empty if the client asked for none.
    pub reply: &'static [u8],
    /// Bytes of the input that it took; all of them if `close`.
    pub consumed: usize,
    /// Bytes behind those to drop as they come: the refused command's body and its line end. If the last two are not
    /// `\r\n` ([`crate::may_end_line`]), the client counted wrongly and the connection must be closed.
    pub swallow: usize,
    /// The next command's beginning cannot be known: send the reply and close.
    pub close: bool,
}
