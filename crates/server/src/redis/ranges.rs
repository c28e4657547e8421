//! Parts of values: APPEND, STRLEN, GETRANGE, SETRANGE.

use tidemark_protocol::memcached::VALUE_BYTES_MAX;
use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::{error, options};
use tidemark_store::{Attributes, Found, Key, ShardGuard};

use super::answer::{Done, no_room, reply};
use super::dispatch::{Call, Family, Handler};
use crate::access::Access;
use crate::counts::Count;
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Append, Handler::Keys(append)),
    (CommandId::StrLen, Handler::Keys(strlen)),
    (CommandId::GetRange, Handler::Keys(get_range)),
    (CommandId::Substr, Handler::Keys(get_range)),
    (CommandId::SetRange, Handler::Keys(set_range)),
];

/// Looks a key up to read a part of it: a use, unless the client asked for none, but nothing for the hit ratio.
fn read<'s>(key: &Key<'_>, shard: &'s mut ShardGuard<'_>, session: &Session, exec: &Exec<'_>) -> Option<Found<'s>> {
    if session.is_reading_quietly() {
        shard.peek(key, exec.now)
    } else {
        shard.access(key, exec.now)
    }
}

fn append<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let addition = call.args.arg(2);
    let (mut value, attributes) = match shard.access(&key, exec.now) {
        None => (Vec::new(), Attributes::default()),
        Some(found) => {
            let old = found.value();
            if old.len() + addition.len() > VALUE_BYTES_MAX {
                return Err(error::STRING_TOO_LONG.into());
            }
            let mut value = Vec::with_capacity(old.len() + addition.len());
            old.append_to(&mut value);
            (value, found.attributes())
        }
    };
    value.extend_from_slice(addition);
    write(&key, &value, attributes, shard, session, exec)
}

/// Writes a changed value and answers with its length. The expiration time stays; the token goes, since it is a write.
fn write(
    key: &Key<'_>,
    value: &[u8],
    attributes: Attributes,
    shard: &mut ShardGuard<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Done<'static> {
    exec.counts.add(Count::Sets, 1);
    shard.put(
        key,
        value,
        Attributes {
            token: None,
            ..attributes
        },
        exec.now,
    )?;
    reply(session, exec).integer(value.len() as i64);
    Ok(())
}

fn strlen<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let length = read(&key, access.shard_of(key.hash), session, exec).map_or(0, |found| found.value().len());
    reply(session, exec).integer(length as i64);
    Ok(())
}

fn get_range<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    // The numbers are checked before the key is looked for.
    options::range(call.args, 0)?;
    let key = access.store().key(session.db, call.args.arg(1));
    let Some(found) = read(&key, access.shard_of(key.hash), session, exec) else {
        reply(session, exec).bulk(b"");
        return Ok(());
    };
    let value = found.value();
    let range = options::range(call.args, value.len())?;
    if !exec.may_answer(range.len()) {
        return Err(no_room(exec));
    }
    reply(session, exec).bulk_header(range.len());
    value.append_range(range.start, range.end, &mut exec.out.bytes);
    exec.out.bytes.extend_from_slice(b"\r\n");
    Ok(())
}

fn set_range<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let offset = options::offset(call.args, VALUE_BYTES_MAX)?;
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let part = call.args.arg(3);
    let found = shard.access(&key, exec.now);
    if part.is_empty() {
        let length = found.map_or(0, |found| found.value().len());
        reply(session, exec).integer(length as i64);
        return Ok(());
    }
    let attributes = found.map_or(Attributes::default(), |found| found.attributes());
    let mut value = found.map_or(Vec::new(), |found| found.value().to_vec());
    let end = offset + part.len();
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    write(&key, &value, attributes, shard, session, exec)
}
