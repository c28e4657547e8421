//! The meta commands (protocol.txt, "Meta Commands").
//!
//! An item has two marks. *Stale* (`X`) is set by `md I` and by `ms I` with an older token. *Won* (`W` for the client
//! that it was set for, `Z` for all others) is cleared by the next write.

use tidemark_protocol::memcached::compose::{self, DebugFacts, Facts, Outcome};
use tidemark_protocol::memcached::{
    KeyBuffer, Meta, MetaArithmetic, MetaKey, MetaMode, MetaSet, VALUE_BYTES_MAX, text as reply,
};
use tidemark_store::{Attributes, Found, Key, Refused, ShardGuard};
use tidemark_types::UnixMs;

use super::text::{self, Counted, send_value};
use super::{DB, expiry};
use crate::access::Access;
use crate::counts::Count;
use crate::session::Exec;

/// `mg`, unless its reply has to wait for memory.
pub(super) fn get(meta: &Meta<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    let is_counted = exec.visit.is_counted();
    if !is_counted {
        exec.counts.add(Count::Metas, 1);
    }
    let shard = access.shard_of(key.hash);
    let touches = meta.flags.ttl().is_some();
    let (hits, misses) = if touches {
        (Count::TouchHits, Count::TouchMisses)
    } else {
        (Count::GetHits, Count::GetMisses)
    };
    if meta.flags.has(b'c') {
        // An item gets a token when one is first asked for; see `gets`.
        let _ = shard.token(key, exec.now);
    }
    // `u`: the read shall not count as a use.
    let found = if is_counted {
        shard.peek(key, exec.now)
    } else if meta.flags.has(b'u') {
        shard.get_unused(key, exec.now)
    } else {
        shard.get(key, exec.now)
    };
    if !is_counted {
        exec.counts.hit_or_miss(found.is_some(), hits, misses);
    }
    let Some(found) = found else {
        return match meta.flags.vivify() {
            Some(exptime) => vivify(meta, exptime, key, shard, exec),
            None => compose::meta_miss(&mut exec.out.bytes, meta),
        };
    };
    if meta.flags.wants_value() && !exec.may_answer(found.value().len()) {
        return;
    }
    let old = found.attributes();
    let mut facts = facts_of(&found, &old, exec.now);
    let mut new = old;
    if let Some(exptime) = meta.flags.ttl() {
        new.expiry = expiry(exptime, exec.now).unwrap_or(Some(UnixMs(1)));
        facts.ttl_before_seconds = facts.ttl_seconds;
        facts.ttl_seconds = ttl_seconds(new.expiry, exec.now);
    }
    // The first client that finds the item stale, or about to expire, wins; all others are told that someone has. As in
    // memcached, `R` looks at the time that the item has when its turn comes.
    let first = meta.flags.iter().find(|flag| matches!(flag.letter, b'R' | b'T'));
    let is_before_touch = first.is_some_and(|flag| flag.letter == b'R') && meta.flags.ttl().is_some();
    let left = if is_before_touch {
        facts.ttl_before_seconds
    } else {
        facts.ttl_seconds
    };
    let is_due = meta
        .flags
        .recache()
        .is_some_and(|limit| left.is_some_and(|left| i64::try_from(left).unwrap_or(i64::MAX) < limit));
    facts.stale = old.stale;
    facts.taken = old.won;
    facts.won = !old.won && (old.stale || is_due);
    facts.known = old.token.is_some() && meta.flags.compare_cas() == old.token;
    new.won |= facts.won;
    compose::meta_hit_header(&mut exec.out.bytes, meta, &facts);
    if facts.sends_value(meta) {
        send_value(key, shard, exec);
        exec.out.bytes.extend_from_slice(b"\r\n");
    }
    if new != old && shard.set_attributes(key, new, exec.now).is_err() {
        // There is no reply that says so, and the item must not be there for longer than it was asked to.
        shard.delete(key, exec.now);
    }
}

/// A miss of `mg` with `N`: an empty item is put there for others to find, and this client wins the right to fill it.
fn vivify(meta: &Meta<'_>, exptime: i64, key: &Key<'_>, shard: &mut ShardGuard<'_>, exec: &mut Exec<'_>) {
    let expiry = expiry(created_exptime(meta, exptime), exec.now);
    let token = token_for(meta, shard, meta.flags.has(b'c'));
    let attributes = Attributes {
        expiry: expiry.unwrap_or(Some(UnixMs(1))),
        token,
        won: true,
        ..Attributes::default()
    };
    if expiry.is_ok()
        && let Err(Refused::Memory) = shard.put(key, b"", attributes, exec.now)
    {
        exec.counts.add(Count::NoMemory, 1);
        exec.out.bytes.extend_from_slice(reply::OUT_OF_MEMORY);
        return;
    }
    // The client that has won has also read it.
    let _ = shard.access(key, exec.now);
    let facts = Facts {
        cas: token.unwrap_or(0),
        ttl_seconds: ttl_seconds(attributes.expiry, exec.now),
        ttl_before_seconds: vivified_seconds(exptime, exec.now),
        won: true,
        ..Facts::default()
    };
    compose::meta_hit(&mut exec.out.bytes, meta, &facts, b"");
}

/// The time that a `t` before a `T` shows of an item that `N` creates: the time that `N` gave it.
fn vivified_seconds(vivify: i64, now: UnixMs) -> Option<u64> {
    ttl_seconds(expiry(vivify, now).unwrap_or(Some(now)), now)
}

/// The expiration time of an item that `N` creates. If `T` is given as well, the later flag of the two says it, as in
/// memcached.
fn created_exptime(meta: &Meta<'_>, vivify: i64) -> i64 {
    let last = meta
        .flags
        .iter()
        .filter(|flag| matches!(flag.letter, b'N' | b'T'))
        .last();
    match (last.map(|flag| flag.letter), meta.flags.ttl()) {
        (Some(b'T'), Some(exptime)) => exptime,
        _ => vivify,
    }
}

/// `ms`.
pub(super) fn set(set: &MetaSet<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Metas, 1);
    exec.counts.add(Count::Sets, 1);
    let meta = &set.meta;
    let shard = access.shard_of(key.hash);
    let old = match set.mode {
        // An item that is found instead was worth asking for.
        MetaMode::Add => shard.access(key, exec.now),
        _ => shard.peek(key, exec.now),
    };
    let old = old.map(|found| found.attributes());
    let mut attributes = Attributes {
        client_flags: meta.flags.client_flags(),
        ..Attributes::default()
    };
    let extends = matches!(set.mode, MetaMode::Append | MetaMode::Prepend);
    // Append and prepend keep the item's time; one that they create has the time of `N`.
    let exptime = if extends {
        meta.flags.vivify().unwrap_or(0)
    } else {
        meta.flags.ttl().unwrap_or(0)
    };
    let mut expiry = expiry(exptime, exec.now);
    match permitted(set, old.as_ref()) {
        Err(outcome) => {
            note_cas(meta, Some(outcome), exec);
            let facts = Facts {
                value_bytes: set.value.len(),
                ..Facts::default()
            };
            return compose::meta_stored(&mut exec.out.bytes, meta, outcome, &facts);
        }
        Ok(Freshness::Current) => {}
        Ok(Freshness::Stale) => {
            // The value is older than the item: it replaces it, but stays marked, with the item's own time.
            let old = old.unwrap_or_default();
            (attributes.stale, attributes.won) = (true, old.won);
            expiry = Ok(old.expiry);
        }
    }
    note_cas(meta, None, exec);
    if let (true, Some(old)) = (extends, old) {
        attributes.client_flags = old.client_flags;
        expiry = Ok(old.expiry);
    }
    attributes.token = token_for(meta, shard, meta.flags.has(b'c'));
    let Ok(expiry) = expiry else {
        // Stored and expired at once.
        shard.delete(key, exec.now);
        let facts = Facts {
            value_bytes: set.value.len(),
            cas: attributes.token.unwrap_or(0),
            ..Facts::default()
        };
        return compose::meta_stored(&mut exec.out.bytes, meta, Outcome::Done, &facts);
    };
    attributes.expiry = expiry;
    match put_value(set, key, access, attributes, exec.now) {
        Ok(length) => {
            let facts = Facts {
                value_bytes: length,
                cas: attributes.token.unwrap_or(0),
                ..Facts::default()
            };
            compose::meta_stored(&mut exec.out.bytes, meta, Outcome::Done, &facts);
        }
        Err(refusal) => {
            // The client holds the old item for replaced.
            access.shard_of(key.hash).delete(key, exec.now);
            exec.counts.add(
                if refusal == reply::TOO_LARGE {
                    Count::TooLarge
                } else {
                    Count::NoMemory
                },
                1,
            );
            exec.out.bytes.extend_from_slice(refusal);
        }
    }
}

/// Whether what `ms` stores is as new as the item that is there.
enum Freshness {
    Current,
    Stale,
}

/// Whether `ms` may store, by its mode and token.
fn permitted(set: &MetaSet<'_>, old: Option<&Attributes>) -> Result<Freshness, Outcome> {
    let may_create = set.meta.flags.vivify().is_some();
    let wanted = set.meta.flags.compare_cas();
    match (set.mode, old) {
        (MetaMode::Add, Some(_)) => return Err(Outcome::NotStored),
        // With a token, replacing is `cas`, which says that there is no item.
        (MetaMode::Replace, None) if wanted.is_none() => return Err(Outcome::NotStored),
        (MetaMode::Append | MetaMode::Prepend, None) if !may_create => return Err(Outcome::NotStored),
        _ => {}
    }
    let Some(wanted) = wanted else {
        return Ok(Freshness::Current);
    };
    match (set.mode, old) {
        (MetaMode::Set | MetaMode::Replace, None) => Err(Outcome::NotFound),
        (_, None) => Ok(Freshness::Current),
        // As in memcached: no item has token 0, and appending does not compare it.
        (MetaMode::Append | MetaMode::Prepend, Some(_)) if wanted == 0 => Ok(Freshness::Current),
        (_, Some(_)) if wanted == 0 => Err(Outcome::Exists),
        (_, Some(old)) if old.token == Some(wanted) => Ok(Freshness::Current),
        // An item without a token was written after any token for it was given, so every token is older.
        (MetaMode::Set | MetaMode::Replace, Some(old))
            if set.meta.flags.has(b'I') && old.token.is_none_or(|token| wanted < token) =>
        {
            Ok(Freshness::Stale)
        }
        _ => Err(Outcome::Exists),
    }
}

fn note_cas(meta: &Meta<'_>, refused: Option<Outcome>, exec: &mut Exec<'_>) {
    if meta.flags.compare_cas().is_none() {
        return;
    }
    match refused {
        None | Some(Outcome::NotFound) => exec
            .counts
            .hit_or_miss(refused.is_none(), Count::CasHits, Count::CasMisses),
        Some(_) => exec.counts.add(Count::CasBad, 1),
    }
}

/// Writes `ms`'s value, joined to the old one if the mode says so, under the lock under which that was looked at. Returns
/// the new length, or the reply that refuses it.
fn put_value(
    set: &MetaSet<'_>,
    key: &Key<'_>,
    access: &mut Access<'_>,
    attributes: Attributes,
    now: UnixMs,
) -> Result<usize, &'static [u8]> {
    let old = access.shard_of(key.hash).peek(key, now).map(|found| found.value());
    let joined = match (set.mode, old) {
        (MetaMode::Append, Some(old)) => Some([&old.to_vec(), set.value].concat()),
        (MetaMode::Prepend, Some(old)) => Some([set.value, &old.to_vec()].concat()),
        _ => None,
    };
    let value = joined.as_deref().unwrap_or(set.value);
    if value.len() > VALUE_BYTES_MAX {
        return Err(reply::TOO_LARGE);
    }
    match access.put_locked(key, value, attributes, now) {
        Ok(()) => Ok(value.len()),
        Err(Refused::Memory) => Err(reply::OUT_OF_MEMORY),
    }
}

/// The token of an item that is written: the one that the client chose, a new one if it is to be shown, else none.
fn token_for(meta: &Meta<'_>, shard: &mut ShardGuard<'_>, is_shown: bool) -> Option<u64> {
    match meta.flags.new_cas() {
        Some(token) => {
            shard.note_token(token);
            Some(token)
        }
        None => is_shown.then(|| shard.new_token()),
    }
}

/// `md`.
pub(super) fn delete(meta: &Meta<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Metas, 1);
    let shard = access.shard_of(key.hash);
    let Some(old) = shard.peek(key, exec.now).map(|found| found.attributes()) else {
        exec.counts.hit_or_miss(false, Count::DeleteHits, Count::DeleteMisses);
        return compose::meta_outcome(&mut exec.out.bytes, meta, Outcome::NotFound);
    };
    if meta.flags.compare_cas().is_some_and(|wanted| old.token != Some(wanted)) {
        exec.counts.add(Count::DeleteMisses, 1);
        return compose::meta_outcome(&mut exec.out.bytes, meta, Outcome::Exists);
    }
    let done = if meta.flags.has(b'I') || meta.flags.has(b'x') {
        mark_or_empty(meta, old, key, shard, exec.now)
    } else {
        exec.counts.add(Count::DeleteHits, 1);
        shard.delete(key, exec.now);
        Ok(())
    };
    match done {
        Ok(()) => compose::meta_outcome(&mut exec.out.bytes, meta, Outcome::Done),
        Err(Refused::Memory) => {
            // An item that was to be marked or emptied must not be served as before.
            shard.delete(key, exec.now);
            exec.counts.add(Count::NoMemory, 1);
            exec.out.bytes.extend_from_slice(reply::OUT_OF_MEMORY);
        }
    }
}

/// `md` with `I` or `x`. `I` marks the item stale, so that the next client wins the right to write it anew. `x` takes
/// its value and its client's flags away.
fn mark_or_empty(
    meta: &Meta<'_>,
    old: Attributes,
    key: &Key<'_>,
    shard: &mut ShardGuard<'_>,
    now: UnixMs,
) -> Result<(), Refused> {
    // Emptying is a write like any other: marks of before do not outlive it.
    let mut new = Attributes {
        stale: false,
        won: false,
        ..old
    };
    if meta.flags.has(b'I') {
        new.stale = true;
        if let Some(exptime) = meta.flags.ttl() {
            new.expiry = expiry(exptime, now).unwrap_or(Some(UnixMs(1)));
        }
    }
    // The token changes, as with every write.
    new.token = meta.flags.new_cas();
    if let Some(token) = new.token {
        shard.note_token(token);
    }
    if meta.flags.has(b'x') {
        new.client_flags = 0;
        return shard.put(key, b"", new, now);
    }
    shard.set_attributes(key, new, now).map(|_| ())
}

/// `ma`.
pub(super) fn arithmetic(arithmetic: &MetaArithmetic<'_>, key: &Key<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Metas, 1);
    let (meta, now) = (&arithmetic.meta, exec.now);
    let shard = access.shard_of(key.hash);
    let old = shard.peek(key, now).map(|found| found.attributes());
    // As in memcached, token 0 compares with nothing.
    if let (Some(wanted @ 1..), Some(old)) = (meta.flags.compare_cas(), old)
        && old.token != Some(wanted)
    {
        return compose::meta_outcome(&mut exec.out.bytes, meta, Outcome::Exists);
    }
    let token = token_for(meta, shard, meta.flags.has(b'c'));
    let mut expiry_now = old.and_then(|old| old.expiry);
    let mut seconds_before = ttl_seconds(expiry_now, now);
    let counted = text::count(arithmetic.direction, meta.flags.delta(), key, shard, now, |old| {
        if let Some(exptime) = meta.flags.ttl() {
            expiry_now = expiry(exptime, now).unwrap_or(Some(UnixMs(1)));
        }
        Attributes {
            expiry: expiry_now,
            token,
            ..old
        }
    });
    text::note_counted(&counted, arithmetic.direction, exec);
    let number = match counted {
        Counted::To(number) => number,
        Counted::NotANumber => return exec.out.bytes.extend_from_slice(reply::NON_NUMERIC),
        Counted::NoMemory => return exec.out.bytes.extend_from_slice(reply::OUT_OF_MEMORY),
        Counted::Missing => match create_number(meta, token, key, shard, exec) {
            Some(expiry) => {
                expiry_now = expiry;
                seconds_before = vivified_seconds(meta.flags.vivify().unwrap_or(0), now);
                meta.flags.initial()
            }
            None => return,
        },
    };
    let facts = Facts {
        cas: token.unwrap_or(0),
        ttl_seconds: ttl_seconds(expiry_now, now),
        ttl_before_seconds: seconds_before,
        ..Facts::default()
    };
    compose::meta_number(&mut exec.out.bytes, meta, &facts, number);
}

/// A miss of `ma`: creates the number if `N` was given, else says so. The expiry of the created item.
fn create_number(
    meta: &Meta<'_>,
    token: Option<u64>,
    key: &Key<'_>,
    shard: &mut ShardGuard<'_>,
    exec: &mut Exec<'_>,
) -> Option<Option<UnixMs>> {
    let Some(vivify) = meta.flags.vivify() else {
        compose::meta_outcome(&mut exec.out.bytes, meta, Outcome::NotFound);
        return None;
    };
    let expiry = expiry(created_exptime(meta, vivify), exec.now).unwrap_or(Some(UnixMs(1)));
    let mut digits = itoa::Buffer::new();
    let attributes = Attributes {
        expiry,
        token,
        ..Attributes::default()
    };
    let is_over = expiry.is_some_and(|expiry| expiry <= exec.now);
    let number = digits.format(meta.flags.initial()).as_bytes();
    if !is_over && shard.put(key, number, attributes, exec.now).is_err() {
        exec.counts.add(Count::NoMemory, 1);
        exec.out.bytes.extend_from_slice(reply::OUT_OF_MEMORY);
        return None;
    }
    Some(expiry)
}

/// `me`.
pub(super) fn debug(meta_key: MetaKey<'_>, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    let mut buffer = KeyBuffer::new();
    let key = access.store().key(DB, meta_key.bytes(&mut buffer));
    let found = access.shard_of(key.hash).peek(&key, exec.now);
    let facts = found.map(|found| {
        let attributes = found.attributes();
        DebugFacts {
            ttl_seconds: ttl_seconds(attributes.expiry, exec.now),
            idle_seconds: u64::from(found.idle_seconds(exec.now)),
            cas: attributes.token.unwrap_or(0),
            was_read: found.was_used(),
            item_bytes: found.item_bytes(),
        }
    });
    compose::meta_debug(&mut exec.out.bytes, meta_key, facts.as_ref());
}

fn facts_of(found: &Found<'_>, attributes: &Attributes, now: UnixMs) -> Facts {
    Facts {
        value_bytes: found.value().len(),
        cas: attributes.token.unwrap_or(0),
        client_flags: attributes.client_flags,
        ttl_seconds: ttl_seconds(attributes.expiry, now),
        ttl_before_seconds: None,
        idle_seconds: u64::from(found.idle_seconds(now)),
        was_read: found.was_used(),
        won: false,
        stale: false,
        taken: false,
        known: false,
    }
}

/// Whole seconds left, rounded up: an item that is there has at least one.
fn ttl_seconds(expiry: Option<UnixMs>, now: UnixMs) -> Option<u64> {
    expiry.map(|expiry| expiry.0.saturating_sub(now.0).div_ceil(1000))
}
