//! The commands of the text protocol.

use tidemark_protocol::memcached::{
    Arithmetic, Delete, Direction, Get, Store, Touch, VALUE_BYTES_MAX, Verb, compose, text as reply,
};
use tidemark_protocol::number::parse_u64;
use tidemark_store::{Attributes, Key, Refused, ShardGuard};
use tidemark_types::UnixMs;

use super::{DB, append_unless, expiry};
use crate::access::Access;
use crate::counts::Count;
use crate::limits::{PIN_BYTES, TURN_KEYS};
use crate::session::Exec;

/// Digits of the largest number that `incr` works with.
const NUMBER_BYTES_MAX: usize = 20;

/// `get` and its like for one key, unless its reply has to wait for memory.
pub(super) fn get_one(get: &Get<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    if get_from(get, key, access.shard_of(key.hash), exec) {
        exec.out.bytes.extend_from_slice(reply::END);
    }
}

/// The same for several keys behind the first `answered` ones, with the END unless more keys of the line come. It stops
/// if the replies come to be too many to be held at once, or the next one has to wait for memory. The result is the
/// number of keys answered by then; `None` at the end.
pub(super) fn get_many(
    get: &Get<'_>,
    mut answered: usize,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Option<usize> {
    let most = exec.out.len() + exec.visit.reply_bytes;
    let last = answered + TURN_KEYS;
    let mut is_over = true;
    access.for_each_key(DB, get.keys.into_iter().skip(answered), |shard, key| {
        is_over = exec.out.len() < most && answered < last && get_from(get, &key, shard, exec);
        if is_over {
            answered += 1;
            exec.visit.pass();
        }
        is_over
    });
    if !is_over {
        return Some(answered);
    }
    if !get.part.is_followed() {
        exec.out.bytes.extend_from_slice(reply::END);
    }
    None
}

/// Answers one key. Whether that could be done: else nothing was answered, and the key is to be asked for again when there
/// is memory for its value.
#[inline]
fn get_from(get: &Get<'_>, key: &Key<'_>, shard: &mut ShardGuard<'_>, exec: &mut Exec<'_>) -> bool {
    // An item gets a token when one is first asked for. Without memory for it, zero is shown, which no item ever has.
    let cas = get
        .with_cas
        .then(|| shard.token(key, exec.now).ok().flatten().unwrap_or(0));
    let found = if exec.visit.is_counted() {
        shard.peek(key, exec.now)
    } else {
        let (hits, misses) = if get.touch.is_some() {
            (Count::TouchHits, Count::TouchMisses)
        } else {
            (Count::GetHits, Count::GetMisses)
        };
        let found = shard.get(key, exec.now);
        exec.counts.hit_or_miss(found.is_some(), hits, misses);
        found
    };
    let Some(found) = found else { return true };
    let (value, flags) = (found.value(), found.client_flags());
    let length = value.len();
    if !exec.may_answer(length) {
        return false;
    }
    let out = &mut exec.out.bytes;
    if let tidemark_store::Value::Whole(bytes) = value
        && length < PIN_BYTES
    {
        compose::value(out, key.bytes, flags, cas, bytes);
    } else {
        compose::value_header(out, key.bytes, flags, cas, length);
        send_value(key, shard, exec);
        exec.out.bytes.extend_from_slice(b"\r\n");
    }
    if let Some(exptime) = get.touch {
        // A found item is answered even if the new time has come already.
        let expiry = expiry(exptime, exec.now).unwrap_or(Some(UnixMs(1)));
        if shard.set_expiry(key, expiry, exec.now).is_err() {
            // There is no reply that says so, and the item must not be there for longer than it was asked to.
            shard.delete(key, exec.now);
        }
    }
    true
}

/// Adds a value that was just found to the replies: pinned where it lies if it is large and may be, else copied.
pub(crate) fn send_value(key: &Key<'_>, shard: &mut ShardGuard<'_>, exec: &mut Exec<'_>) {
    let Some(length) = shard.peek(key, exec.now).map(|found| found.value().len()) else {
        return;
    };
    if length >= PIN_BYTES
        && let Some(pinned) = shard.pin(key, length)
    {
        exec.out.push_pinned(pinned, length);
    } else if let Some(found) = shard.peek(key, exec.now) {
        found.value().append_to(&mut exec.out.bytes);
    }
}

/// `set`, `add`, `replace`, `append`, `prepend` and `cas`.
#[inline]
pub(super) fn store(store: &Store<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Sets, 1);
    let answer = match (store.verb, attributes(store, exec)) {
        (Verb::Set, Some(attributes)) => stored(access.put(key, store.value, attributes, exec.now), exec),
        _ => store_conditionally(store, key, access, exec),
    };
    if answer == reply::OUT_OF_MEMORY || answer == reply::TOO_LARGE {
        // The client holds the old item for replaced.
        access.shard_of(key.hash).delete(key, exec.now);
    }
    append_unless(store.noreply, answer, exec);
}

/// A storage command that looks at the old item.
fn store_conditionally(
    store: &Store<'_>,
    key: &Key<'_>,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> &'static [u8] {
    let shard = access.shard_of(key.hash);
    match store.verb {
        Verb::Set => stored_and_over(key, shard, exec),
        Verb::Add if shard.access(key, exec.now).is_some() => reply::NOT_STORED,
        Verb::Add => put(store, key, access, exec),
        Verb::Replace if shard.peek(key, exec.now).is_some() => put(store, key, access, exec),
        Verb::Replace => reply::NOT_STORED,
        Verb::Append | Verb::Prepend => extend(store, key, shard, exec),
        Verb::Cas(token) => compare_and_put(store, token, key, access, exec),
    }
}

/// Stores under the lock under which the old item was looked at.
#[inline]
fn put(store: &Store<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) -> &'static [u8] {
    match attributes(store, exec) {
        Some(attributes) => stored(access.put_locked(key, store.value, attributes, exec.now), exec),
        None => stored_and_over(key, access.shard_of(key.hash), exec),
    }
}

/// The attributes stored beside the value; `None` if the item would be expired at once.
fn attributes(store: &Store<'_>, exec: &Exec<'_>) -> Option<Attributes> {
    let expiry = expiry(store.exptime, exec.now).ok()?;
    Some(Attributes {
        expiry,
        client_flags: store.flags,
        ..Attributes::default()
    })
}

/// Stored and expired at once: the old item is gone, and nothing is there now.
fn stored_and_over(key: &Key<'_>, shard: &mut ShardGuard<'_>, exec: &Exec<'_>) -> &'static [u8] {
    shard.delete(key, exec.now);
    reply::STORED
}

fn stored(result: Result<(), Refused>, exec: &mut Exec<'_>) -> &'static [u8] {
    match result {
        Ok(()) => reply::STORED,
        Err(Refused::Memory) => {
            exec.counts.add(Count::NoMemory, 1);
            reply::OUT_OF_MEMORY
        }
    }
}

/// `append` and `prepend`: the item keeps its flags and its expiration time, and loses its token and its marks, since it is
/// a write.
fn extend(store: &Store<'_>, key: &Key<'_>, shard: &mut ShardGuard<'_>, exec: &mut Exec<'_>) -> &'static [u8] {
    let Some(found) = shard.access(key, exec.now) else {
        return reply::NOT_STORED;
    };
    let (old, kept) = (found.value(), found.attributes());
    let attributes = Attributes {
        expiry: kept.expiry,
        client_flags: kept.client_flags,
        ..Attributes::default()
    };
    let length = old.len() + store.value.len();
    if length > VALUE_BYTES_MAX {
        exec.counts.add(Count::TooLarge, 1);
        return reply::TOO_LARGE;
    }
    let mut value = Vec::with_capacity(length);
    if store.verb == Verb::Prepend {
        value.extend_from_slice(store.value);
    }
    old.append_to(&mut value);
    if store.verb == Verb::Append {
        value.extend_from_slice(store.value);
    }
    stored(shard.put(key, &value, attributes, exec.now), exec)
}

fn compare_and_put(
    store: &Store<'_>,
    token: u64,
    key: &Key<'_>,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> &'static [u8] {
    let Some(found) = access.shard_of(key.hash).peek(key, exec.now) else {
        exec.counts.hit_or_miss(false, Count::CasHits, Count::CasMisses);
        return reply::NOT_FOUND;
    };
    // An item without a token was written since the last time that anybody asked for one.
    if found.attributes().token != Some(token) {
        exec.counts.add(Count::CasBad, 1);
        return reply::EXISTS;
    }
    exec.counts.add(Count::CasHits, 1);
    put(store, key, access, exec)
}

/// The outcome for an item that was to be counted up or down.
pub(super) enum Counted {
    Missing,
    NotANumber,
    NoMemory,
    /// The new number.
    To(u64),
}

/// Counts an item up, wrapping at 2^64, or down, stopping at zero. `attributes` makes the new ones of the old ones.
pub(super) fn count(
    direction: Direction,
    delta: u64,
    key: &Key<'_>,
    shard: &mut ShardGuard<'_>,
    now: UnixMs,
    attributes: impl FnOnce(Attributes) -> Attributes,
) -> Counted {
    let Some(found) = shard.access(key, now) else {
        return Counted::Missing;
    };
    let old = match found.value() {
        tidemark_store::Value::Whole(text) if text.len() <= NUMBER_BYTES_MAX => leading_number(text),
        _ => None,
    };
    let Some(old) = old else { return Counted::NotANumber };
    let attributes = attributes(Attributes {
        token: None,
        ..found.attributes()
    });
    let new = match direction {
        Direction::Increment => old.wrapping_add(delta),
        Direction::Decrement => old.saturating_sub(delta),
    };
    let mut digits = itoa::Buffer::new();
    match shard.put(key, digits.format(new).as_bytes(), attributes, now) {
        Ok(()) => Counted::To(new),
        Err(Refused::Memory) => {
            // A client that counts on must not do so from an old number.
            shard.delete(key, now);
            Counted::NoMemory
        }
    }
}

/// A number with white space around it: before it as `strtoull` allows it, behind it as memcached itself may have put it.
fn leading_number(text: &[u8]) -> Option<u64> {
    parse_u64(text.trim_ascii())
}

/// `incr` and `decr`.
pub(super) fn arithmetic(arithmetic: &Arithmetic<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    let (direction, shard) = (arithmetic.direction, access.shard_of(key.hash));
    let counted = count(direction, arithmetic.delta, key, shard, exec.now, |attributes| {
        attributes
    });
    note_counted(&counted, direction, exec);
    match counted {
        Counted::Missing => append_unless(arithmetic.noreply, reply::NOT_FOUND, exec),
        Counted::NotANumber => append_unless(arithmetic.noreply, reply::NON_NUMERIC, exec),
        Counted::NoMemory => append_unless(arithmetic.noreply, reply::OUT_OF_MEMORY, exec),
        Counted::To(_) if arithmetic.noreply => {}
        Counted::To(number) => compose::number(&mut exec.out.bytes, number),
    }
}

pub(super) fn note_counted(counted: &Counted, direction: Direction, exec: &mut Exec<'_>) {
    let (hits, misses) = match direction {
        Direction::Increment => (Count::IncrementHits, Count::IncrementMisses),
        Direction::Decrement => (Count::DecrementHits, Count::DecrementMisses),
    };
    match counted {
        Counted::Missing | Counted::To(_) => {
            let is_there = matches!(counted, Counted::To(_));
            exec.counts.hit_or_miss(is_there, hits, misses);
        }
        Counted::NoMemory => exec.counts.add(Count::NoMemory, 1),
        Counted::NotANumber => {}
    }
}

/// `touch`.
pub(super) fn touch(touch: &Touch<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    let shard = access.shard_of(key.hash);
    let there = shard.access(key, exec.now).is_some();
    exec.counts.hit_or_miss(there, Count::TouchHits, Count::TouchMisses);
    let expiry = expiry(touch.exptime, exec.now).unwrap_or(Some(UnixMs(1)));
    let answer = match shard.set_expiry(key, expiry, exec.now) {
        Ok(true) => reply::TOUCHED,
        Ok(false) => reply::NOT_FOUND,
        Err(Refused::Memory) => {
            exec.counts.add(Count::NoMemory, 1);
            shard.delete(key, exec.now);
            reply::OUT_OF_MEMORY
        }
    };
    append_unless(touch.noreply, answer, exec);
}

/// `delete`.
pub(super) fn delete(delete: &Delete<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    let was_there = access.shard_of(key.hash).delete(key, exec.now);
    exec.counts
        .hit_or_miss(was_there, Count::DeleteHits, Count::DeleteMisses);
    append_unless(
        delete.noreply,
        if was_there { reply::DELETED } else { reply::NOT_FOUND },
        exec,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_have_spaces_around_them() {
        for (text, number) in [
            (&b"42"[..], Some(42)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"9  ", Some(9)),
            (b"  9", Some(9)),
            (b"\t9 ", Some(9)),
            (b"9 9", None),
            (b"-1", None),
            (b"", None),
            (b"  ", None),
            (b"1a", None),
        ] {
            assert_eq!(leading_number(text), number, "{}", text.escape_ascii());
        }
    }
}
