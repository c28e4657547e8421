//! The commands as the server sees them.

use tidemark_types::Permissions;

use super::key::{Keys, MetaKey};
use super::meta::{Meta, MetaArithmetic, MetaSet};

/// A command of the text or meta protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// `get`, `gets`, `gat`, `gats`.
    Get(Get<'a>),
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`. The first one of a connection may be a login.
    Store(Store<'a>),
    /// `incr`, `decr`.
    Arithmetic(Arithmetic<'a>),
    /// `touch`.
    Touch(Touch<'a>),
    /// `delete`.
    Delete(Delete<'a>),
    /// `flush_all`.
    FlushAll(FlushAll),
    /// `version`.
    Version,
    /// `verbosity`.
    Verbosity(Verbosity),
    /// `stats`.
    Stats(Stats<'a>),
    /// `quit`: close without a reply.
    Quit,
    /// `mg`.
    MetaGet(Meta<'a>),
    /// `ms`.
    MetaSet(MetaSet<'a>),
    /// `md`.
    MetaDelete(Meta<'a>),
    /// `ma`.
    MetaArithmetic(MetaArithmetic<'a>),
    /// `me`.
    MetaDebug(MetaKey<'a>),
    /// `mn`.
    MetaNoop,
}

impl Command<'_> {
    /// The permissions that the connection's secret must have.
    #[inline]
    pub fn permissions(&self) -> Permissions {
        const READ_WRITE: Permissions = Permissions::READ.with(Permissions::WRITE);
        match self {
            Self::Get(Get { touch: None, .. }) | Self::MetaDebug(_) => Permissions::READ,
            Self::Get(_) => READ_WRITE,
            Self::MetaGet(meta) if meta.flags.ttl().is_some() || meta.flags.vivify().is_some() => READ_WRITE,
            Self::MetaGet(_) => Permissions::READ,
            Self::Store(_) | Self::Arithmetic(_) | Self::Touch(_) | Self::Delete(_) => Permissions::WRITE,
            Self::MetaSet(_) | Self::MetaDelete(_) | Self::MetaArithmetic(_) => Permissions::WRITE,
            Self::FlushAll(_) => Permissions::FLUSH,
            // Other connections, and figures that others look at, too.
            Self::Stats(stats) if stats.concerns_others() => Permissions::ADMIN,
            Self::Version | Self::Verbosity(_) | Self::Stats(_) | Self::Quit | Self::MetaNoop => Permissions::NONE,
        }
    }

    /// Whether the client waits for no answer, whatever comes of the command.
    pub fn has_noreply(&self) -> bool {
        match self {
            Self::Store(Store { noreply, .. })
            | Self::Arithmetic(Arithmetic { noreply, .. })
            | Self::Touch(Touch { noreply, .. })
            | Self::Delete(Delete { noreply, .. })
            | Self::FlushAll(FlushAll { noreply, .. })
            | Self::Verbosity(Verbosity { noreply, .. }) => *noreply,
            _ => false,
        }
    }
}

/// Reads one key or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Get<'a> {
    /// The keys, in the order asked.
    pub keys: Keys<'a>,
    /// Whether the reply carries CAS tokens (`gets`, `gats`).
    pub with_cas: bool,
    /// The new expiration time (`gat`, `gats`), as sent: see [`super::expires`].
    pub touch: Option<i64>,
    /// Which part of its line this is.
    pub part: Part,
}

/// A part of a line of keys. A line above [`super::LINE_BYTES_MAX`] is many commands, one for each part of about that
/// length, so that only the coming part is held. Behind a command that says so, [`super::parse_keys`] reads the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The whole line.
    Whole,
    /// More keys follow.
    Begun,
    /// The last part. It may have no keys.
    Last,
    /// A part with a word that is no key. The line is refused; whether its end is here.
    Bad {
        /// Whether the line ends with this part.
        is_last: bool,
    },
}

impl Part {
    /// Whether further parts of the line come.
    #[inline]
    pub fn is_followed(self) -> bool {
        matches!(self, Self::Begun | Self::Bad { is_last: false })
    }
}

/// A line of keys that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenGet {
    /// The same as in [`Get`].
    pub with_cas: bool,
    /// The same as in [`Get`].
    pub touch: Option<i64>,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Stores whatever was there.
    Set,
    /// If the key holds nothing.
    Add,
    /// If the key holds something.
    Replace,
    /// Behind the present value; flags and expiration time are ignored.
    Append,
    /// Before the present value; flags and expiration time are ignored.
    Prepend,
    /// If the item's CAS token is this one.
    Cas(u64),
}

/// Stores a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Store<'a> {
    /// On which condition, and where.
    pub verb: Verb,
    /// The key.
    pub key: &'a [u8],
    /// The client's own number, given back with the value.
    pub flags: u32,
    /// The expiration time as sent: see [`super::expires`].
    pub exptime: i64,
    /// The value, without its line end.
    pub value: &'a [u8],
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Wraps at 2^64.
    Increment,
    /// Stops at 0.
    Decrement,
}

/// Changes a number in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arithmetic<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Up or down.
    pub direction: Direction,
    /// The number to add or subtract.
    pub delta: u64,
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Gives an item a new expiration time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The expiration time as sent: see [`super::expires`].
    pub exptime: i64,
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Removes an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delete<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Removes all items, now or later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlushAll {
    /// When, as an expiration time is written: see [`super::expires`]; zero and less mean now.
    pub delay: i64,
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Sets the level of logging.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verbosity {
    /// The level.
    pub level: u32,
    /// Whether the client asked for no reply.
    pub noreply: bool,
}

/// Asks for statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stats<'a> {
    pub(super) text: &'a [u8],
}

impl<'a> Stats<'a> {
    /// The requested kind (`settings`, `items`, ...) and any further words; none for the general ones.
    pub fn arguments(self) -> impl Iterator<Item = &'a [u8]> {
        super::line::words(self.text)
    }

    /// Whether connections are listed or figures begun anew.
    fn concerns_others(self) -> bool {
        matches!(self.arguments().next(), Some(b"conns" | b"reset"))
    }
}
