//! Values that are numbers: INCR, DECR and their like.

use tidemark_protocol::number::parse_canonical_i64;
use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::float::Float;
use tidemark_protocol::resp::{error, options};
use tidemark_store::{Attributes, Value};

use super::answer::{Done, reply};
use super::dispatch::{Call, Family, Handler};
use crate::access::Access;
use crate::counts::Count;
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Incr, Handler::Keys(add_integer)),
    (CommandId::Decr, Handler::Keys(add_integer)),
    (CommandId::IncrBy, Handler::Keys(add_integer)),
    (CommandId::DecrBy, Handler::Keys(add_integer)),
    (CommandId::IncrByFloat, Handler::Keys(add_float)),
];

/// Characters of the longest 64-bit number.
const INTEGER_BYTES_MAX: usize = 20;

/// The attributes of a number that is written anew: it keeps its expiration time and loses its token.
fn of_new(old: Option<Attributes>) -> Attributes {
    Attributes {
        token: None,
        ..old.unwrap_or_default()
    }
}

/// INCR, DECR, INCRBY and DECRBY.
fn add_integer<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let (delta, hits, misses) = match call.row.id {
        CommandId::Incr => (1, Count::IncrementHits, Count::IncrementMisses),
        CommandId::IncrBy => (
            options::integer(call.args.arg(2))?,
            Count::IncrementHits,
            Count::IncrementMisses,
        ),
        CommandId::Decr => (-1, Count::DecrementHits, Count::DecrementMisses),
        _ => (
            options::negated_integer(call.args.arg(2))?,
            Count::DecrementHits,
            Count::DecrementMisses,
        ),
    };
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let found = shard.access(&key, exec.now);
    exec.counts.hit_or_miss(found.is_some(), hits, misses);
    let old = match &found {
        None => 0,
        Some(found) => integer(found.value()).ok_or(error::NOT_AN_INTEGER)?,
    };
    let attributes = of_new(found.map(|found| found.attributes()));
    let new = old.checked_add(delta).ok_or(error::OVERFLOW)?;
    shard.put(&key, itoa::Buffer::new().format(new).as_bytes(), attributes, exec.now)?;
    reply(session, exec).integer(new);
    Ok(())
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Whole(text) if text.len() <= INTEGER_BYTES_MAX => parse_canonical_i64(text),
        _ => None,
    }
}

fn add_float<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let found = shard.access(&key, exec.now);
    exec.counts
        .hit_or_miss(found.is_some(), Count::IncrementHits, Count::IncrementMisses);
    let old = match &found {
        None => Float::parse(b"0"),
        Some(found) => match found.value() {
            Value::Whole(text) => Float::parse(text),
            Value::Pieces(_) => None,
        },
    };
    let attributes = of_new(found.map(|found| found.attributes()));
    let (old, delta) = old.zip(Float::parse(call.args.arg(2))).ok_or(error::NOT_A_FLOAT)?;
    let new = old.plus(delta).ok_or(error::NOT_FINITE)?;
    let mut text = Vec::new();
    new.append_to(&mut text);
    shard.put(&key, &text, attributes, exec.now)?;
    reply(session, exec).bulk(&text);
    Ok(())
}
