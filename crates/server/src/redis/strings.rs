//! Whole values: GET, SET and their like.

use tidemark_protocol::resp::command::{CommandId, Row};
use tidemark_protocol::resp::options::{self, GetExOption, SetCondition, SetExpiry, Unit};
use tidemark_protocol::resp::{Args, error};
use tidemark_store::{Attributes, EXPIRY_MAX, Key, ShardGuard, Value};
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, TOO_LARGE_REPLY, append_value, copy_value, fail, reply};
use super::dispatch::{Call, Family, Handler};
use crate::access::Access;
use crate::counts::{Count, Stage};
use crate::limits::{COMMAND_REPLY_BYTES, PIN_BYTES};
use crate::session::{Exec, Session};
use crate::step::Condition;

pub(super) const HANDLERS: Family = &[
    (CommandId::Get, Handler::Keys(get)),
    (CommandId::Set, Handler::Keys(set_with_options)),
    (CommandId::SetNx, Handler::Keys(set_with_options)),
    (CommandId::SetEx, Handler::Keys(set_with_options)),
    (CommandId::PSetEx, Handler::Keys(set_with_options)),
    (CommandId::GetSet, Handler::Keys(get_set)),
    (CommandId::GetDel, Handler::Keys(get_del)),
    (CommandId::GetEx, Handler::Keys(get_ex)),
    (CommandId::MGet, Handler::Keys(mget)),
    (CommandId::MSet, Handler::Keys(mset)),
    (CommandId::MSetNx, Handler::Keys(mset_nx)),
];

/// Looks a key up for its value: counts for the hit ratio, and as a use unless the client asked for none.
#[inline]
fn look_up<'s>(
    key: &Key<'_>,
    shard: &'s mut ShardGuard<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Option<tidemark_store::Found<'s>> {
    let found = if session.is_reading_quietly() {
        shard.get_unused(key, exec.now)
    } else {
        shard.get(key, exec.now)
    };
    exec.counts
        .hit_or_miss(found.is_some(), Count::GetHits, Count::GetMisses);
    found
}

/// Appends a key's value. Whether there is one; if not, nothing is appended.
#[inline]
pub(super) fn fetch(
    key: &Key<'_>,
    shard: &mut ShardGuard<'_>,
    may_pin: bool,
    session: &Session,
    exec: &mut Exec<'_>,
) -> bool {
    let Some(found) = look_up(key, shard, session, exec) else {
        return false;
    };
    match found.value() {
        Value::Whole(bytes) if bytes.len() < PIN_BYTES => reply(session, exec).bulk(bytes),
        _ => append_value(key, shard, may_pin, session, exec),
    }
    true
}

/// `SET key value` as part of a window.
#[inline]
pub(super) fn set(key: &Key<'_>, value: &[u8], access: &mut Access<'_>, session: &Session, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Sets, 1);
    match access.put(key, value, Attributes::default(), exec.now) {
        Ok(()) => reply(session, exec).ok(),
        Err(refused) => {
            let mark = exec.out.bytes.len();
            let row = tidemark_protocol::resp::command::lookup(b"set");
            fail(&refused.into(), row, Stage::Execution, mark, session, exec);
        }
    }
}

/// What a writing command does besides writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(super) row: &'static Row,
    condition: SetCondition<'a>,
    expiry: SetExpiry,
    /// The old value is the reply.
    get: bool,
}

impl How<'_> {
    /// What is asked of the key before it is written.
    pub(super) fn condition(&self) -> Condition {
        match self.condition {
            SetCondition::Always => Condition::None,
            SetCondition::IfAbsent => Condition::Absent,
            SetCondition::IfPresent | SetCondition::IfEqual(_) => Condition::Present,
        }
    }
}

/// How SET, SETNX, SETEX or PSETEX write, and which argument is the value.
fn how<'a>(args: Args<'a>, row: &'static Row) -> Result<(usize, How<'a>), Failure<'a>> {
    let plain = How {
        row,
        condition: SetCondition::Always,
        expiry: SetExpiry::Clear,
        get: false,
    };
    let unit = match row.id {
        CommandId::SetNx => {
            return Ok((
                2,
                How {
                    condition: SetCondition::IfAbsent,
                    ..plain
                },
            ));
        }
        CommandId::SetEx => Unit::Seconds,
        CommandId::PSetEx => Unit::Milliseconds,
        _ => {
            let options = options::set(args, row)?;
            return Ok((
                2,
                How {
                    condition: options.condition,
                    expiry: options.expiry,
                    get: options.get,
                    ..plain
                },
            ));
        }
    };
    let deadline = options::set_with_time(args, row, unit)?;
    Ok((
        3,
        How {
            expiry: SetExpiry::Deadline(deadline),
            ..plain
        },
    ))
}

/// The same where nothing is borrowed from the arguments, for a window. `None` for IFEQ and for what is wrong.
pub(super) fn plain_how(args: Args<'_>, row: &'static Row) -> Option<(usize, How<'static>)> {
    let (value_at, how) = how(args, row).ok()?;
    let condition = match how.condition {
        SetCondition::Always => SetCondition::Always,
        SetCondition::IfAbsent => SetCondition::IfAbsent,
        SetCondition::IfPresent => SetCondition::IfPresent,
        SetCondition::IfEqual(_) => return None,
    };
    Some((
        value_at,
        How {
            condition,
            row: how.row,
            expiry: how.expiry,
            get: how.get,
        },
    ))
}

/// Writes a value if the condition is met, and answers.
pub(super) fn store(
    key: &Key<'_>,
    value: &[u8],
    how: &How<'_>,
    access: &mut Access<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Done<'static> {
    let deadline = match how.expiry {
        SetExpiry::Deadline(deadline) => Some(deadline.resolve(exec.now, how.row)?),
        SetExpiry::Clear | SetExpiry::Keep => None,
    };
    let needs_old = how.get || how.condition != SetCondition::Always || how.expiry == SetExpiry::Keep;
    let found = if needs_old {
        access.shard_of(key.hash).access(key, exec.now)
    } else {
        None
    };
    if how.get {
        match &found {
            Some(found) => copy_value(found.value(), session, exec),
            None => reply(session, exec).null(),
        }
    }
    let is_met = match how.condition {
        SetCondition::Always => true,
        SetCondition::IfAbsent => found.is_none(),
        SetCondition::IfPresent => found.is_some(),
        SetCondition::IfEqual(expected) => found.as_ref().is_some_and(|found| is_equal(&found.value(), expected)),
    };
    let old_expiry = found.and_then(|found| found.attributes().expiry);
    if is_met {
        exec.counts.add(Count::Sets, 1);
        let expiry = if how.expiry == SetExpiry::Keep {
            old_expiry
        } else {
            deadline.map(moment)
        };
        let attributes = Attributes {
            expiry,
            ..Attributes::default()
        };
        if expiry.is_some_and(|expiry| expiry <= exec.now) {
            // Written and expired at once.
            access.shard_of(key.hash).delete(key, exec.now);
        } else if needs_old {
            // Under the lock under which the old item was looked at.
            access.put_locked(key, value, attributes, exec.now)?;
        } else {
            access.put(key, value, attributes, exec.now)?;
        }
    }
    let mut reply = reply(session, exec);
    match how.row.id {
        _ if how.get => {}
        CommandId::SetNx => reply.integer(i64::from(is_met)),
        _ if is_met => reply.ok(),
        _ => reply.null(),
    }
    Ok(())
}

/// A moment in milliseconds since 1970 as the store keeps it.
pub(super) fn moment(unix_ms: i64) -> UnixMs {
    UnixMs(u64::try_from(unix_ms).unwrap_or(0)).min(EXPIRY_MAX)
}

fn is_equal(value: &Value<'_>, expected: &[u8]) -> bool {
    match value {
        Value::Whole(bytes) => *bytes == expected,
        Value::Pieces(_) => value.len() == expected.len() && value.to_vec() == expected,
    }
}

fn get<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let may_pin = !access.keeps_locks();
    if !fetch(&key, access.shard_of(key.hash), may_pin, session, exec) {
        reply(session, exec).null();
    }
    Ok(())
}

/// SET, SETNX, SETEX and PSETEX.
fn set_with_options<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let (value_at, how) = how(call.args, call.row)?;
    let key = access.store().key(session.db, call.args.arg(1));
    store(&key, call.args.arg(value_at), &how, access, session, exec)
}

fn get_set<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let how = How {
        row: call.row,
        condition: SetCondition::Always,
        expiry: SetExpiry::Clear,
        get: true,
    };
    let key = access.store().key(session.db, call.args.arg(1));
    store(&key, call.args.arg(2), &how, access, session, exec)
}

fn get_del<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let may_pin = !access.keeps_locks();
    let shard = access.shard_of(key.hash);
    if fetch(&key, shard, may_pin, session, exec) {
        shard.delete(&key, exec.now);
    } else {
        reply(session, exec).null();
    }
    Ok(())
}

fn get_ex<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let option = options::get_ex(call.args, call.row);
    if let Err(error::SYNTAX) = option {
        return Err(error::SYNTAX.into());
    }
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let Some(found) = look_up(&key, shard, session, exec) else {
        // As in Redis, a wrong time is an error only where there is something to expire.
        reply(session, exec).null();
        return Ok(());
    };
    let attributes = found.attributes();
    let expiry = match option? {
        GetExOption::Leave => attributes.expiry,
        GetExOption::Persist => None,
        GetExOption::Deadline(deadline) => Some(moment(deadline.resolve(exec.now, call.row)?)),
    };
    // Copied: the time may be refused for want of memory, and a value that moves can not be pinned.
    copy_value(found.value(), session, exec);
    if expiry != attributes.expiry {
        shard.set_expiry(&key, expiry, exec.now)?;
    }
    Ok(())
}

fn mget<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let begin = exec.out.len();
    let mut is_too_large = false;
    let may_pin = !access.keeps_locks();
    let keys = call.args.from(1);
    reply(session, exec).array(keys.len());
    access.for_each_key(session.db, keys, |shard, key| {
        if !fetch(&key, shard, may_pin, session, exec) {
            reply(session, exec).null();
        }
        is_too_large = exec.out.len() - begin > COMMAND_REPLY_BYTES;
        !is_too_large
    });
    if is_too_large {
        Err(TOO_LARGE_REPLY.into())
    } else {
        Ok(())
    }
}

/// Writes all pairs, in shards that are locked. If one is refused, those before it are gone too, as if they had been
/// evicted: nobody sees a part of a refused command.
fn put_all<'a>(args: Args<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let mut values = args.from(2).step_by(2);
    let mut outcome = Ok(());
    let mut count = 0;
    access.for_each_key(session.db, args.from(1).step_by(2), |shard, key| {
        let value = values.next().unwrap_or_default();
        outcome = shard.put(&key, value, Attributes::default(), exec.now);
        count += usize::from(outcome.is_ok());
        outcome.is_ok()
    });
    exec.counts.add(Count::Sets, count as u32);
    if outcome.is_err() {
        let written = args.from(1).step_by(2).take(count);
        access.for_each_key(session.db, written, |shard, key| {
            shard.delete(&key, exec.now);
            true
        });
    }
    Ok(outcome?)
}

fn mset<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    access.hold_keys(session.db, call.args.from(1).step_by(2));
    put_all(call.args, session, access, exec)?;
    reply(session, exec).ok();
    Ok(())
}

fn mset_nx<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let keys = call.args.from(1).step_by(2);
    access.hold_keys(session.db, keys.clone());
    let mut all_absent = true;
    access.for_each_key(session.db, keys, |shard, key| {
        all_absent = shard.peek(&key, exec.now).is_none();
        all_absent
    });
    if all_absent {
        put_all(call.args, session, access, exec)?;
    }
    reply(session, exec).integer(i64::from(all_absent));
    Ok(())
}
