//! Executing RESP commands.

use tidemark_protocol::resp::command::{CommandId, resolve};
use tidemark_protocol::resp::{ArgList, Args, ErrorReply, Limits, Reply, error};
use tidemark_store::{Attributes, Key, KeyHash, Refused, ShardGuard};

use crate::access::Access;
use crate::counts::Count;
use crate::limits::{LOGIN_BYTES, PIN_BYTES};
use crate::session::{Exec, Session};

/// A command that goes through a window.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Get { key: &'a [u8] },
    Set { key: &'a [u8], value: &'a [u8] },
}

/// What a command of this connection may be at most.
pub(crate) fn limits(session: &Session) -> Limits {
    if session.needs_login() {
        return Limits { bulk_bytes: LOGIN_BYTES, command_bytes: LOGIN_BYTES, ..Limits::BEFORE_LOGIN };
    }
    Limits::with_value_bytes(tidemark_protocol::memcached::VALUE_BYTES_MAX)
}

/// The key of a command that can go through a window, and the command; `None` for one that must be executed by itself.
pub(crate) fn step<'a>(args: &ArgList, input: &'a [u8], session: &Session) -> Option<(&'a [u8], Step<'a>)> {
    if session.transaction.is_some() || session.needs_login() {
        return None;
    }
    let row = resolve(args.args(input)).ok()?;
    let arg = |index| args.place(index).map(|place| &input[place]);
    match row.id {
        CommandId::Get if session.permissions.allows(row.permissions) => {
            let key = arg(1)?;
            Some((key, Step::Get { key }))
        }
        CommandId::Set if session.permissions.allows(row.permissions) && args.place(3).is_none() => {
            let (key, value) = (arg(1)?, arg(2)?);
            Some((key, Step::Set { key, value }))
        }
        _ => None,
    }
}

/// Executes a command of a window.
pub(crate) fn execute_step(
    step: &Step<'_>,
    hash: KeyHash,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) {
    let shard = access.shard_of(hash);
    match *step {
        Step::Get { key } => get(&Key { db: session.db, bytes: key, hash }, session, shard, exec),
        Step::Set { key, value } => {
            let key = Key { db: session.db, bytes: key, hash };
            exec.counts.add(Count::Sets, 1);
            let stored = shard.put(&key, value, Attributes::default(), exec.now);
            let mut reply = Reply::new(&mut exec.out.bytes, session.version);
            match stored {
                Ok(()) => reply.ok(),
                Err(Refused::Memory) => reply.error(&error::OUT_OF_MEMORY),
            }
        }
    }
}

fn get(key: &Key<'_>, session: &Session, shard: &mut ShardGuard<'_>, exec: &mut Exec<'_>) {
    let mut reply = Reply::new(&mut exec.out.bytes, session.version);
    let Some(found) = shard.get(key, exec.now) else {
        exec.counts.add(Count::GetMisses, 1);
        return reply.null();
    };
    exec.counts.add(Count::GetHits, 1);
    match found.value() {
        tidemark_store::Value::Whole(bytes) if bytes.len() < PIN_BYTES => reply.bulk(bytes),
        value => {
            reply.bulk_header(value.len());
            crate::memcached::send_value(key, shard, exec);
            exec.out.bytes.extend_from_slice(b"\r\n");
        }
    }
}

/// Executes a command by itself. `raw` is the command as it was sent.
pub(crate) fn execute(args: Args<'_>, raw: &[u8], session: &mut Session, exec: &mut Exec<'_>) {
    let _ = raw;
    let mut reply = Reply::new(&mut exec.out.bytes, session.version);
    match resolve(args) {
        Ok(row) if row.id == CommandId::Ping => reply.simple("PONG"),
        Ok(row) => reply.error(&ErrorReply::NotOffered(row.name.as_bytes())),
        Err(error) => reply.error(&error),
    }
}

/// Answers with an error that is not a command's own.
pub(crate) fn refuse(error: &ErrorReply<'_>, session: &mut Session, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Errors, 1);
    Reply::new(&mut exec.out.bytes, session.version).error(error);
}
