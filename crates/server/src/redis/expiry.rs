//! When keys expire: EXPIRE, TTL, PERSIST and their like.

use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::options;
use tidemark_types::UnixMs;

use super::answer::{Done, reply};
use super::dispatch::{Call, Family, Handler};
use super::strings::moment;
use crate::access::Access;
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Expire, Handler::Keys(expire)),
    (CommandId::PExpire, Handler::Keys(expire)),
    (CommandId::ExpireAt, Handler::Keys(expire)),
    (CommandId::PExpireAt, Handler::Keys(expire)),
    (CommandId::Ttl, Handler::Keys(time_left)),
    (CommandId::PTtl, Handler::Keys(time_left)),
    (CommandId::ExpireTime, Handler::Keys(time_left)),
    (CommandId::PExpireTime, Handler::Keys(time_left)),
    (CommandId::Persist, Handler::Keys(persist)),
];

/// The answers of the time commands for a key that is not there, and for one without an expiration time.
const NO_KEY: i64 = -2;
const NO_EXPIRY: i64 = -1;

/// EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
fn expire<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let expire = options::expire(call.args, call.row)?;
    let new = expire.deadline.resolve(exec.now, call.row)?;
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let old = shard.peek(&key, exec.now).map(|found| found.attributes());
    let is_done = match old {
        Some(old) if expire.applies(old.expiry.map(unix_ms), new) => {
            shard.set_expiry(&key, Some(moment(new)), exec.now)?
        }
        _ => false,
    };
    reply(session, exec).integer(i64::from(is_done));
    Ok(())
}

/// TTL, PTTL, EXPIRETIME and PEXPIRETIME.
fn time_left<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let found = access
        .shard_of(key.hash)
        .peek(&key, exec.now)
        .map(|found| found.attributes().expiry);
    let answer = match found {
        None => NO_KEY,
        Some(None) => NO_EXPIRY,
        Some(Some(expiry)) => {
            let left = unix_ms(UnixMs(expiry.0.saturating_sub(exec.now.0)));
            match call.row.id {
                CommandId::Ttl => to_seconds(left),
                CommandId::PTtl => left,
                CommandId::ExpireTime => to_seconds(unix_ms(expiry)),
                _ => unix_ms(expiry),
            }
        }
    };
    reply(session, exec).integer(answer);
    Ok(())
}

fn persist<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let old = shard.peek(&key, exec.now).map(|found| found.attributes());
    let is_done = match old {
        Some(old) if old.expiry.is_some() => shard.set_expiry(&key, None, exec.now)?,
        _ => false,
    };
    reply(session, exec).integer(i64::from(is_done));
    Ok(())
}

/// A moment as the protocol counts it. The store's moments are far below the end of signed numbers.
fn unix_ms(moment: UnixMs) -> i64 {
    i64::try_from(moment.0).unwrap_or(i64::MAX)
}

/// Milliseconds in seconds, rounded as Redis does.
fn to_seconds(milliseconds: i64) -> i64 {
    milliseconds.saturating_add(500) / 1000
}
