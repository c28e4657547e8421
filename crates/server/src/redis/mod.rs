//! Executing RESP commands, as Redis 7.0.15 does (the few newer ones as the version that brought them).
//!
//! A command goes one of two ways. GET and SET go through windows ([`step`], [`execute_step`]), which load their data
//! ahead. Every other command is executed by itself ([`execute`]). It is looked up in the protocol's table and checked
//! against it. Then it is either queued (MULTI) or handed to its handler ([`dispatch`]); each family of handlers has a
//! file.
//!
//! Invariants: a handler that fails has written nothing that stays, neither keys nor a reply. One that goes on in a
//! later turn ([`Failure::Later`]) has remembered its progress ([`crate::progress`]), and its answers so far stay.

mod answer;
mod below;
mod client;
mod config;
mod connection;
mod counters;
mod describe;
mod dispatch;
mod expiry;
mod info;
mod keys;
mod place;
mod ranges;
mod scan;
mod scripts;
mod server;
mod strings;
mod transactions;

use std::borrow::Cow;

use tidemark_plane::{Limited, Purpose, Throttled};
use tidemark_protocol::http;
use tidemark_protocol::resp::command::{CommandId, Flags, Row, lookup, resolve};
use tidemark_protocol::resp::{ArgList, Args, ErrorReply, Limits, Reply, error, glob};
use tidemark_store::{KEY_BYTES_MAX, Key, KeyHash};
use tidemark_types::Outcome;

use crate::access::Access;
use crate::condition::Condition;
use crate::counts::{Count, Stage};
use crate::limits::{DESCRIBED_NAMES, DESCRIPTION_BYTES, LOGIN_BYTES};
use crate::progress::Progress;
use crate::session::{Exec, Session};
use crate::tenant::refused_as;

pub(crate) use place::{Below, Place};

use answer::{Failure, drop_unwanted, fail, no_room};
use dispatch::{Call, perform};
use strings::AROUND_VALUE_BYTES;

/// A command that goes through a window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OneKey<'a> {
    Get {
        key: &'a [u8],
    },
    /// SET with nothing but a key and a value: the usual case.
    Set {
        key: &'a [u8],
        value: &'a [u8],
    },
    /// SET with options, SETNX, SETEX, PSETEX.
    Store {
        key: &'a [u8],
        value: &'a [u8],
        how: strings::How<'static>,
    },
}

/// The limits of a command of this connection.
pub(crate) fn limits(session: &Session) -> Limits {
    if session.needs_login() {
        return Limits {
            bulk_bytes: LOGIN_BYTES,
            command_bytes: LOGIN_BYTES,
            ..Limits::BEFORE_LOGIN
        };
    }
    Limits::with_value_bytes(tidemark_protocol::memcached::VALUE_BYTES_MAX)
}

/// The key of a command that can go through a window, and the command; `None` for one that must be executed by itself.
#[inline]
pub(crate) fn step<'a>(args: &ArgList, input: &'a [u8], session: &Session) -> Option<(&'a [u8], OneKey<'a>)> {
    if session.transaction.is_some() || session.reply_mode.is_silent() || is_inline(input) {
        return None;
    }
    let row = resolve(args.args(input)).ok()?;
    // Before login nothing is permitted.
    if !session.permissions.allows(row.permissions) {
        return None;
    }
    let arg = |index| args.place(index).map(|place| &input[place]);
    let step = match row.id {
        CommandId::Get if !session.is_reading_quietly() && !session.is_tracking() => OneKey::Get { key: arg(1)? },
        CommandId::Set if args.place(3).is_none() => OneKey::Set {
            key: arg(1)?,
            value: arg(2)?,
        },
        CommandId::Set | CommandId::SetNx | CommandId::SetEx | CommandId::PSetEx => {
            let (value_at, how) = strings::plain_how(args.args(input), row)?;
            OneKey::Store {
                key: arg(1)?,
                value: arg(value_at)?,
                how,
            }
        }
        _ => return None,
    };
    let key = step.key();
    session.client.note_command(row.id);
    (key.len() <= KEY_BYTES_MAX).then_some((key, step))
}

impl<'a> OneKey<'a> {
    pub(crate) fn key(&self) -> &'a [u8] {
        match *self {
            Self::Get { key } | Self::Set { key, .. } | Self::Store { key, .. } => key,
        }
    }

    /// The command's name.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Get { .. } => "get",
            Self::Set { .. } => "set",
            Self::Store { how, .. } => how.row.name,
        }
    }

    /// Whether it writes whatever there is of its key, and answers nothing of that.
    pub(crate) fn is_blind(&self) -> bool {
        match self {
            Self::Get { .. } => false,
            Self::Set { .. } => true,
            Self::Store { how, .. } => how.is_blind(),
        }
    }

    /// Whether it may make a key, or a longer value.
    pub(crate) fn adds_data(&self) -> bool {
        !matches!(self, Self::Get { .. })
    }

    /// The value that it stores, and the condition.
    pub(crate) fn stored_value(&self) -> Option<(&'a [u8], Condition)> {
        match *self {
            Self::Get { .. } => None,
            Self::Set { value, .. } => Some((value, Condition::None)),
            Self::Store { value, how, .. } => Some((value, how.condition())),
        }
    }
}

/// Executes a command of a window.
#[inline]
pub(crate) fn execute_step(
    step: &OneKey<'_>,
    hash: KeyHash,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) {
    access.flush_if_due(exec.now);
    let key = |bytes| Key {
        db: session.db,
        bytes,
        hash,
    };
    match *step {
        OneKey::Get { key: bytes } => {
            // One that waits for memory is executed again.
            if let Ok(is_there) = strings::fetch(&key(bytes), access.shard_of(hash), session, exec) {
                if !is_there {
                    Reply::new(&mut exec.out.bytes, session.version).null();
                }
                let outcome = if is_there { Outcome::Ok } else { Outcome::Miss };
                exec.counts.note(CommandId::Get, outcome);
            }
        }
        OneKey::Set { key: bytes, value } => {
            let before = exec.counts.before();
            strings::set(&key(bytes), value, access, session, exec);
            exec.counts.command(CommandId::Set, before);
        }
        OneKey::Store { key: bytes, value, how } => {
            let (before, mark) = (exec.counts.before(), exec.out.bytes.len());
            if let Err(failure) = strings::store(&key(bytes), value, &how, access, session, exec) {
                fail(&failure, Some(how.row), Stage::Execution, mark, session, exec);
            }
            if exec.visit.wait_bytes == 0 {
                exec.counts.command(how.row.id, before);
            }
        }
    }
}

/// Executes a command by itself. `raw` is the command as it was sent. Whether it is finished: else it is to be executed again
/// in a later turn, when its replies so far are sent.
pub(crate) fn execute(args: Args<'_>, raw: &[u8], session: &mut Session, exec: &mut Exec<'_>) -> bool {
    if is_http(args, raw) {
        session.is_ending = true;
        return true;
    }
    let mark = exec.out.bytes.len();
    let before = exec.counts.goes_on(std::mem::take(&mut session.so_far));
    match admit(args, raw, session, exec) {
        Ok(Some(call)) => {
            session.client.note_command(call.row.id);
            // Memory is held for a reply that is made already.
            let is_made = matches!(exec.visit.progress.as_deref(), Some(Progress::Reply { .. }));
            let done = match check_size(call) {
                Ok(bytes) if !is_made && !exec.may_answer(bytes) => Err(no_room(exec)),
                Ok(_) if seeks(call, session, exec) => Err(suspended(call, session, exec)),
                Ok(_) => perform(call, session, exec),
                Err(error) => Err(error.into()),
            };
            let has_failed = done.is_err();
            match done {
                Err(Failure::Later) => {
                    drop_unwanted(mark, session, exec);
                    session.so_far = exec.counts.so_far(before);
                    return false;
                }
                Ok(()) if call.row.id == CommandId::Exec => {}
                Ok(()) => drop_unwanted(mark, session, exec),
                Err(failure) => end_failed(&failure, Some(call.row), Stage::Execution, mark, session, exec),
            }
            if session.is_tracking() {
                client::invalidate(call, session, exec);
            }
            match (call.row.id, session.tenant.is_some()) {
                (_, false) => {}
                // Hits and misses of its commands are counted with each of them.
                (CommandId::Exec, true) if !has_failed => exec.counts.note(CommandId::Exec, Outcome::Ok),
                (id, true) => exec.counts.command(id, before),
            }
        }
        Ok(None) => {
            Reply::new(&mut exec.out.bytes, session.version).queued();
            drop_unwanted(mark, session, exec);
        }
        Err((row, failure)) => {
            let failure = transactions::refused(row, failure, session);
            end_failed(&failure, row, Stage::BeforeExecution, mark, session, exec);
        }
    }
    session.reply_mode.end_command();
    true
}

pub(crate) use scripts::may_call;

/// A command that a script calls, as it would be sent.
pub(crate) fn as_command(args: &[&[u8]]) -> Vec<u8> {
    transactions::array_of(args.iter().copied())
}

/// Executes a command that a script calls, on the store that `access` is to, whose shards are locked.
pub(crate) fn perform_for_script(
    args: Args<'_>,
    row: &'static Row,
    session: &mut Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) {
    let mark = exec.out.bytes.len();
    if let Err(failure) = dispatch::perform_within(Call { args, row }, session, access, exec) {
        fail(&failure, Some(row), Stage::Execution, mark, session, exec);
    }
}

/// Asks for those of a command's keys that lie on flash. Whether that has to be waited for.
#[inline]
fn seeks(call: Call<'_>, session: &Session, exec: &mut Exec<'_>) -> bool {
    match &session.tenant {
        Some(tenant) if tenant.tier.is_some() => match call.row.id {
            // They write whatever there is.
            CommandId::MSet => false,
            CommandId::Set if call.args.len() == 3 => false,
            CommandId::Exec => transactions::seeks(tenant, session, exec),
            _ => {
                let keys = call.row.key_places(call.args).map(|place| call.args.arg(place));
                exec.seeks(tenant, (session.db, purpose(call.row.id)), keys)
            }
        },
        _ => false,
    }
}

/// Whether a command is a get.
fn purpose(id: CommandId) -> Purpose {
    use CommandId as Id;
    match id {
        Id::Get | Id::MGet | Id::GetEx | Id::GetDel => Purpose::Get,
        _ => Purpose::Other,
    }
}

/// A command has to wait for flash, or is refused because too many do.
#[cold]
fn suspended(call: Call<'_>, session: &mut Session, exec: &mut Exec<'_>) -> Failure<'static> {
    let is_refused = session
        .tenant
        .as_ref()
        .is_some_and(|tenant| exec.is_kept_from_flash(tenant));
    if !is_refused {
        return Failure::Later;
    }
    if call.row.id == CommandId::Exec {
        // Nothing of it is done.
        transactions::forget(session);
    }
    refused_for_flash(exec)
}

/// As many of the tenant's commands as may wait for flash do so.
fn refused_for_flash(exec: &mut Exec<'_>) -> Failure<'static> {
    let refused = Throttled::for_flash();
    exec.counts.add(refused_as(&refused), 1);
    throttled(&refused)
}

/// How many bytes a command may answer that do not depend on the tenant's items.
///
/// # Errors
/// It asks for descriptions of more things than are described at a time, or by a name that is too long to be one.
fn check_size(call: Call<'_>) -> Result<usize, ErrorReply<'static>> {
    use CommandId as Id;
    match call.row.id {
        Id::CommandDocs | Id::CommandInfo | Id::CommandList | Id::ConfigGet | Id::ClientList => {
            if call.args.len() > DESCRIBED_NAMES {
                return Err(ErrorReply::AboveLimit("a description", DESCRIBED_NAMES, "names"));
            }
            if call.args.from(2).any(|name| name.len() > glob::PATTERN_BYTES_MAX) {
                return Err(ErrorReply::AboveLimit("a pattern", glob::PATTERN_BYTES_MAX, "bytes"));
            }
            Ok(DESCRIPTION_BYTES)
        }
        Id::Info | Id::Command | Id::Scan | Id::Keys => Ok(DESCRIPTION_BYTES),
        Id::Echo | Id::Ping | Id::CommandGetKeys => {
            Ok(call.args.from(1).map(|arg| AROUND_VALUE_BYTES + arg.len()).sum())
        }
        _ => Ok(0),
    }
}

/// Whether a command was sent as a line of words.
fn is_inline(raw: &[u8]) -> bool {
    raw.first() != Some(&b'*')
}

/// Whether a command is a line of an HTTP request.
fn is_http(args: Args<'_>, raw: &[u8]) -> bool {
    let last = args.arg(args.len().saturating_sub(1));
    http::is_first_word(args.arg(0)) || (is_inline(raw) && http::is_version(last))
}

/// Answers with an error, if the client wants it.
fn end_failed(
    failure: &Failure<'_>,
    row: Option<&Row>,
    stage: Stage,
    mark: usize,
    session: &Session,
    exec: &mut Exec<'_>,
) {
    fail(failure, row, stage, mark, session, exec);
    drop_unwanted(mark, session, exec);
}

/// Checks a command as Redis does, in its order. `None` if it was queued.
fn admit<'a>(
    args: Args<'a>,
    raw: &[u8],
    session: &mut Session,
    exec: &mut Exec<'_>,
) -> Result<Option<Call<'a>>, (Option<&'static Row>, Failure<'a>)> {
    let row = match resolve(args) {
        Ok(row) => row,
        Err(error) => match error {
            // As in Redis, other faults of arguments are found when the command is executed.
            ErrorReply::WrongArity(row) if transactions::is_open(session) && row.accepts(args.len()) => row,
            ErrorReply::WrongArity(row) => return Err((Some(row), error.into())),
            _ => return Err((None, error.into())),
        },
    };
    let call = Call { args, row };
    let refused = |error: ErrorReply<'a>| Err((Some(row), error.into()));
    if session.needs_login() && !row.flags.has(Flags::NO_AUTH) {
        return Err((Some(row), connection::homeless(error::NO_AUTH, session)));
    }
    if !session.permissions.allows(row.permissions) {
        exec.counts.add(Count::Denied, 1);
        return refused(ErrorReply::NotPermitted(row));
    }
    let mut keys = row.key_places(args).map(|place| args.arg(place));
    if keys.any(|key| key.len() > KEY_BYTES_MAX) {
        return refused(ErrorReply::AboveLimit("a key", KEY_BYTES_MAX, "bytes"));
    }
    if transactions::is_open(session) && !row.runs_within_multi() {
        transactions::queue(call, raw, session, exec).map_err(|failure| (Some(row), failure))?;
        return Ok(None);
    }
    Ok(Some(call))
}

/// Answers with an error that is not a command's own.
pub(crate) fn refuse(error: &ErrorReply<'_>, session: &mut Session, exec: &mut Exec<'_>) {
    let failure = connection::homeless(*error, session);
    refuse_with(failure, None, session, exec);
}

/// How many operations a command is: each of its keys is one. Logins count none. The end of a transaction counts none
/// either: its commands were counted when they were queued.
pub(crate) fn operations(args: Args<'_>) -> u64 {
    let Ok(row) = resolve(args) else { return 1 };
    if row.flags.has(Flags::NO_AUTH) || matches!(row.id, CommandId::Exec | CommandId::Discard) {
        return 0;
    }
    (row.key_places(args).len() as u64).max(1)
}

/// The row of a command in the command table; `None` if it is no command.
pub(crate) fn command_row(args: Args<'_>) -> Option<&'static Row> {
    resolve(args).ok()
}

/// Whether a command may make a key, or a longer value: those that Redis refuses without memory.
pub(crate) fn adds_data(args: Args<'_>) -> bool {
    resolve(args).is_ok_and(|row| row.flags.has(Flags::DENYOOM))
}

/// Answers a command that is above a limit of its tenant's, and would be executed by itself.
#[cold]
pub(crate) fn refuse_throttled(args: Args<'_>, refused: &Throttled, session: &mut Session, exec: &mut Exec<'_>) {
    exec.counts.add(refused_as(refused), 1);
    refuse_with(throttled(refused), resolve(args).ok(), session, exec);
}

/// Answers a command of a window that is above a limit of its tenant's.
#[cold]
pub(crate) fn refuse_step(step: &OneKey<'_>, refused: &Throttled, session: &Session, exec: &mut Exec<'_>) {
    exec.counts.add(refused_as(refused), 1);
    let row = match step {
        OneKey::Get { .. } => lookup(b"get"),
        OneKey::Set { .. } => lookup(b"set"),
        OneKey::Store { how, .. } => Some(how.row),
    };
    let mark = exec.out.bytes.len();
    fail(&throttled(refused), row, Stage::BeforeExecution, mark, session, exec);
}

/// The code is the one that Tair, which is compatible with Redis, has for this ("Client-side throttling" in its
/// manual). Clients are told to try again with it, and with no other.
///
/// To try a refused write again is of no use before the month ends: that has the code of a server without memory for it.
fn throttled(refused: &Throttled) -> Failure<'static> {
    let code = match refused.limit {
        Limited::Spending => "OOM",
        Limited::Operations | Limited::Bytes => "THROTTLED",
        Limited::Flash => "TRYAGAIN",
    };
    Failure::Own(Cow::Owned(format!("{code} {refused}")))
}

/// Answers commands that are not executed.
fn refuse_with(failure: Failure<'_>, row: Option<&'static Row>, session: &mut Session, exec: &mut Exec<'_>) {
    let mark = exec.out.bytes.len();
    let failure = transactions::refused(row, failure, session);
    end_failed(&failure, row, Stage::BeforeExecution, mark, session, exec);
    session.reply_mode.end_command();
}
