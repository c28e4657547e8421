//! The arguments of commands about connections and the server.
//!
//! All functions are pure: the server finds out what a name, an address or an id stands for.

use super::args::Args;
use super::command::{Categories, Flags, Row, counted_keys, lookup};
use super::error::{self, ErrorReply};
use super::options::integer;
use super::reply::Version;
use crate::number::parse_canonical_i64;

/// A login.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// The tenant's name; `None` for the open tenant.
    pub name: Option<&'a [u8]>,
    /// The secret's text.
    pub secret: &'a [u8],
}

impl std::fmt::Debug for Credentials<'_> {
    /// Never shows the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.map(|name| name.escape_ascii().to_string());
        f.debug_struct("Credentials")
            .field("name", &name)
            .finish_non_exhaustive()
    }
}

/// `AUTH [name] secret`.
///
/// # Errors
/// More arguments than these.
pub fn auth<'a>(args: Args<'a>) -> Result<Credentials<'a>, ErrorReply<'a>> {
    match args.len() {
        2 => Ok(Credentials {
            name: None,
            secret: args.arg(1),
        }),
        3 => Ok(Credentials {
            name: args.get(1),
            secret: args.arg(2),
        }),
        _ => Err(error::SYNTAX),
    }
}

/// `HELLO [version [AUTH name secret] [SETNAME name]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version to speak from now on; `None` leaves it.
    pub version: Option<Version>,
    /// A login.
    pub login: Option<Credentials<'a>>,
    /// The connection's name.
    pub client_name: Option<&'a [u8]>,
}

/// The arguments of `HELLO`.
///
/// # Errors
/// A version that is none, unknown options, a name that is not allowed.
pub fn hello<'a>(args: Args<'a>) -> Result<Hello<'a>, ErrorReply<'a>> {
    let mut hello = Hello {
        version: None,
        login: None,
        client_name: None,
    };
    let Some(version) = args.get(1) else {
        return Ok(hello);
    };
    hello.version = Some(match integer(version) {
        Ok(2) => Version::Resp2,
        Ok(3) => Version::Resp3,
        Ok(_) => return Err(error::NO_PROTO),
        Err(_) => return Err(error::PROTO_NOT_A_NUMBER),
    });
    let mut index = 2;
    while index < args.len() {
        if let (true, Some(secret)) = (args.is(index, "AUTH"), args.get(index + 2)) {
            hello.login = Some(Credentials {
                name: args.get(index + 1),
                secret,
            });
            index += 3;
        } else if let (true, Some(name)) = (args.is(index, "SETNAME"), args.get(index + 1)) {
            hello.client_name = Some(client_name(name)?);
            index += 2;
        } else {
            return Err(ErrorReply::HelloOption(args.arg(index)));
        }
    }
    Ok(hello)
}

/// A name for a connection: printable ASCII without spaces, so that a list of clients can be split at them. Empty means
/// none.
///
/// # Errors
/// Any other byte.
pub fn client_name<'a>(name: &'a [u8]) -> Result<&'a [u8], ErrorReply<'a>> {
    if name.iter().all(u8::is_ascii_graphic) {
        Ok(name)
    } else {
        Err(error::BAD_CLIENT_NAME)
    }
}

/// `CLIENT SETINFO attribute value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAttribute<'a> {
    /// `LIB-NAME`.
    LibraryName(&'a [u8]),
    /// `LIB-VER`.
    LibraryVersion(&'a [u8]),
}

/// The arguments of `CLIENT SETINFO`.
///
/// # Errors
/// Another attribute, or a value that is not allowed.
pub fn client_set_info<'a>(args: Args<'a>) -> Result<ClientAttribute<'a>, ErrorReply<'a>> {
    let value = args.arg(3);
    let (name, attribute) = if args.is(2, "LIB-NAME") {
        ("lib-name", ClientAttribute::LibraryName(value))
    } else if args.is(2, "LIB-VER") {
        ("lib-ver", ClientAttribute::LibraryVersion(value))
    } else {
        return Err(ErrorReply::UnrecognizedAttribute(args.arg(2)));
    };
    client_name(value).map_err(|_| ErrorReply::BadAttribute(name))?;
    Ok(attribute)
}

/// `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// Every command is answered.
    On,
    /// None is.
    Off,
    /// The next one is not.
    Skip,
}

/// The argument of `CLIENT REPLY`.
///
/// # Errors
/// Another word.
pub fn client_reply<'a>(args: Args<'a>) -> Result<ReplyMode, ErrorReply<'a>> {
    [
        ("ON", ReplyMode::On),
        ("OFF", ReplyMode::Off),
        ("SKIP", ReplyMode::Skip),
    ]
    .into_iter()
    .find(|(word, _)| args.is(2, word))
    .map(|(_, mode)| mode)
    .ok_or(error::SYNTAX)
}

/// The argument of `CLIENT NO-EVICT` and `CLIENT NO-TOUCH`: `ON` is true.
///
/// # Errors
/// Another word.
pub fn on_off<'a>(args: Args<'a>) -> Result<bool, ErrorReply<'a>> {
    if args.is(2, "ON") {
        Ok(true)
    } else if args.is(2, "OFF") {
        Ok(false)
    } else {
        Err(error::SYNTAX)
    }
}

/// A kind of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientType {
    /// One that sends commands. Every connection here is.
    Normal,
    /// A primary of ours; there is none.
    Master,
    /// A replica of ours; there is none.
    Replica,
    /// A subscriber; there is none.
    PubSub,
}

fn client_type(word: &[u8]) -> Result<ClientType, ErrorReply<'_>> {
    [
        ("normal", ClientType::Normal),
        ("master", ClientType::Master),
        ("slave", ClientType::Replica),
        ("replica", ClientType::Replica),
        ("pubsub", ClientType::PubSub),
    ]
    .into_iter()
    .find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()))
    .map(|(_, kind)| kind)
    .ok_or(ErrorReply::UnknownClientType(word))
}

/// Which connections `CLIENT LIST` describes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientList {
    /// All of them.
    All,
    /// Those of a type.
    Type(ClientType),
    /// Those with these numbers.
    Ids(Vec<u64>),
}

/// The arguments of `CLIENT LIST [TYPE type] [ID id ...]`.
///
/// # Errors
/// Other words, an unknown type, an id that is none.
pub fn client_list<'a>(args: Args<'a>) -> Result<ClientList, ErrorReply<'a>> {
    match args.len() {
        2 => Ok(ClientList::All),
        4 if args.is(2, "TYPE") => client_type(args.arg(3)).map(ClientList::Type),
        4.. if args.is(2, "ID") => args
            .from(3)
            // Any number will do, as in Redis: nobody has a negative one.
            .map(|id| integer(id).ok().map(i64::cast_unsigned))
            .collect::<Option<_>>()
            .map(ClientList::Ids)
            .ok_or(error::BAD_CLIENT_ID),
        _ => Err(error::SYNTAX),
    }
}

/// Which connections `CLIENT KILL` closes: those that meet all conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientKill<'a> {
    /// The connection's number.
    pub id: Option<u64>,
    /// The client's address and port.
    pub address: Option<&'a [u8]>,
    /// The server's address and port.
    pub local_address: Option<&'a [u8]>,
    /// The tenant's name.
    pub user: Option<&'a [u8]>,
    /// The type.
    pub kind: Option<ClientType>,
    /// The least age, in seconds.
    pub max_age_seconds: Option<u64>,
    /// Whether the connection that asks is spared.
    pub skip_me: bool,
    /// Whether it was called by one address only (`CLIENT KILL address`). The reply is then OK, or an error if nobody
    /// has that address, instead of a number.
    pub by_address_only: bool,
}

/// The arguments of `CLIENT KILL`, in the old form and the new one.
///
/// # Errors
/// Unknown or incomplete conditions, an id or an age that is none, an unknown type.
pub fn client_kill<'a>(args: Args<'a>) -> Result<ClientKill<'a>, ErrorReply<'a>> {
    if args.len() == 3 {
        return Ok(ClientKill {
            address: args.get(2),
            by_address_only: true,
            ..ClientKill::default()
        });
    }
    let mut kill = ClientKill {
        skip_me: true,
        ..ClientKill::default()
    };
    let mut index = 2;
    while index < args.len() {
        let value = args.get(index + 1).ok_or(error::SYNTAX)?;
        if args.is(index, "ID") {
            kill.id = Some(positive(value).ok_or(error::CLIENT_ID_NOT_POSITIVE)?);
        } else if args.is(index, "MAXAGE") {
            let age = parse_canonical_i64(value).ok_or(error::MAXAGE_NOT_A_NUMBER)?;
            let age = u64::try_from(age).ok().filter(|age| *age > 0);
            kill.max_age_seconds = Some(age.ok_or(error::MAXAGE_NOT_POSITIVE)?);
        } else if args.is(index, "TYPE") {
            kill.kind = Some(client_type(value)?);
        } else if args.is(index, "ADDR") {
            kill.address = Some(value);
        } else if args.is(index, "LADDR") {
            kill.local_address = Some(value);
        } else if args.is(index, "USER") {
            kill.user = Some(value);
        } else if args.is(index, "SKIPME") && value.eq_ignore_ascii_case(b"yes") {
            kill.skip_me = true;
        } else if args.is(index, "SKIPME") && value.eq_ignore_ascii_case(b"no") {
            kill.skip_me = false;
        } else {
            return Err(error::SYNTAX);
        }
        index += 2;
    }
    Ok(kill)
}

fn positive(text: &[u8]) -> Option<u64> {
    let number = integer(text).ok()?;
    u64::try_from(number).ok().filter(|number| *number > 0)
}

/// Which commands `COMMAND LIST` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandFilter<'a> {
    /// All of them.
    All,
    /// Those of an ACL category; `None` for one that does not exist.
    Category(Option<Categories>),
    /// Those whose name matches a pattern.
    Pattern(&'a [u8]),
    /// Those of a module; there is none.
    Module,
}

/// The arguments of `COMMAND LIST [FILTERBY MODULE|ACLCAT|PATTERN name]`.
///
/// # Errors
/// Other words.
pub fn command_list<'a>(args: Args<'a>) -> Result<CommandFilter<'a>, ErrorReply<'a>> {
    match args.len() {
        2 => Ok(CommandFilter::All),
        5 if args.is(2, "FILTERBY") && args.is(3, "MODULE") => Ok(CommandFilter::Module),
        5 if args.is(2, "FILTERBY") && args.is(3, "ACLCAT") => {
            Ok(CommandFilter::Category(Categories::from_name(args.arg(4))))
        }
        5 if args.is(2, "FILTERBY") && args.is(3, "PATTERN") => Ok(CommandFilter::Pattern(args.arg(4))),
        _ => Err(error::SYNTAX),
    }
}

/// The keys of the command that follows `COMMAND GETKEYS`, as places among all of its arguments.
///
/// # Errors
/// No such command, a wrong number of arguments, or no keys.
pub fn command_get_keys<'a>(args: Args<'a>) -> Result<impl Iterator<Item = &'a [u8]>, ErrorReply<'a>> {
    const SHIFT: usize = 2;
    let row: &'static Row = lookup(args.arg(SHIFT)).ok_or(error::INVALID_COMMAND)?;
    let called = args.behind(SHIFT);
    let has_keys = row.keys.first > 0 || row.flags.has(Flags::MOVABLE_KEYS);
    if has_keys && !row.accepts(called.len()) {
        return Err(error::INVALID_ARITY);
    }
    if !has_keys || (row.flags.has(Flags::MOVABLE_KEYS) && counted_keys(called)?.is_empty()) {
        return Err(error::NO_KEYS);
    }
    Ok(row.key_places(called).map(move |place| called.arg(place)))
}
