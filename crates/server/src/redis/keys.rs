//! Keys whatever their values are: DEL, EXISTS, RENAME and their like, and whole databases.

use std::hash::{BuildHasher, Hasher, RandomState};

use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::{error, options};
use tidemark_store::{Attributes, Key, ShardGuard};

use super::answer::{Done, Failure, reply};
use super::below;
use super::dispatch::{Call, Family, Handler};
use super::scan::{first_key_from, tier_of};
use crate::access::Access;
use crate::counts::Count;
use crate::limits::TURN_KEYS;
use crate::progress::Progress;
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Del, Handler::Keys(delete)),
    (CommandId::Unlink, Handler::Keys(delete)),
    (CommandId::Exists, Handler::Keys(exists)),
    (CommandId::Touch, Handler::Keys(touch)),
    (CommandId::Type, Handler::Keys(type_of)),
    (CommandId::Rename, Handler::Keys(rename)),
    (CommandId::RenameNx, Handler::Keys(rename)),
    (CommandId::RandomKey, Handler::Keys(random_key)),
    (CommandId::DbSize, Handler::Keys(db_size)),
    (CommandId::FlushDb, Handler::Keys(flush_db)),
    (CommandId::FlushAll, Handler::Keys(flush_all)),
];

/// Answers with the number of keys for which `f` is true. A long list goes on in later turns, unless it is part of a
/// transaction.
fn count<'a>(
    call: Call<'a>,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
    mut f: impl FnMut(&mut ShardGuard<'_>, &Key<'_>, &mut Exec<'_>) -> bool,
) -> Done<'a> {
    let (mut next, mut count) = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Keys { next, count }) => (next, count),
        _ => (0, 0),
    };
    let keys = call.args.from(1);
    let all = keys.len();
    let most = if access.keeps_locks() { all } else { TURN_KEYS };
    access.for_each_key(session.db, keys.skip(next).take(most), |shard, key| {
        count += i64::from(f(shard, &key, exec));
        next += 1;
        true
    });
    if next < all {
        exec.visit.progress = Some(Box::new(Progress::Keys { next, count }));
        return Err(Failure::Later);
    }
    reply(session, exec).integer(count);
    Ok(())
}

fn delete<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    count(call, session, access, exec, |shard, key, exec| {
        let was_there = shard.delete(key, exec.now);
        exec.counts
            .hit_or_miss(was_there, Count::DeleteHits, Count::DeleteMisses);
        was_there
    })
}

fn exists<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    count(call, session, access, exec, |shard, key, exec| {
        shard.peek(key, exec.now).is_some()
    })
}

fn touch<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    count(call, session, access, exec, |shard, key, exec| {
        let is_there = shard.access(key, exec.now).is_some();
        exec.counts.hit_or_miss(is_there, Count::TouchHits, Count::TouchMisses);
        is_there
    })
}

fn type_of<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let is_there = access.shard_of(key.hash).peek(&key, exec.now).is_some();
    reply(session, exec).simple(if is_there { "string" } else { "none" });
    Ok(())
}

/// RENAME and RENAMENX.
fn rename<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    access.hold_keys(session.db, call.args.from(1));
    let from = access.store().key(session.db, call.args.arg(1));
    let to = access.store().key(session.db, call.args.arg(2));
    let is_same = from.bytes == to.bytes;
    let only_if_free = call.row.id == CommandId::RenameNx;
    let found = access
        .shard_of(from.hash)
        .access(&from, exec.now)
        .ok_or(error::NO_SUCH_KEY)?;
    let (value, attributes) = (found.value().to_vec(), found.attributes());
    let is_done = if only_if_free {
        !is_same && access.shard_of(to.hash).peek(&to, exec.now).is_none()
    } else {
        true
    };
    if is_done && !is_same {
        let attributes = Attributes {
            token: None,
            ..attributes
        };
        access.shard_of(to.hash).put(&to, &value, attributes, exec.now)?;
        access.shard_of(from.hash).delete(&from, exec.now);
    }
    match only_if_free {
        true => reply(session, exec).integer(i64::from(is_done)),
        false => reply(session, exec).ok(),
    }
    Ok(())
}

fn random_key<'a>(_: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    // Seeded by the system and different at every call.
    let random = RandomState::new().build_hasher().finish();
    let mut items = Vec::new();
    access.for_each_shard(|shard| items.push(shard.items_in(session.db)));
    let in_memory: u64 = items.iter().sum();
    // A transaction does not wait for flash.
    if let Some(tier) = tier_of(session).filter(|_| !access.keeps_locks()) {
        let is_on_flash = match exec.visit.progress.as_deref() {
            Some(Progress::Walk(_)) => true,
            Some(_) => false,
            None => {
                let on_flash = tier.items_in(session.db);
                random.rotate_left(32) % (in_memory + on_flash).max(1) < on_flash
            }
        };
        if is_on_flash && let Some(found) = below::random_key(random, tier, session, access, exec)? {
            exec.out.bytes.extend_from_slice(&found);
            return Ok(());
        }
    }
    let mut rest = random % in_memory.max(1);
    let picked = items.iter().position(|items| {
        let is_here = rest < *items;
        rest = rest.saturating_sub(*items);
        is_here
    });
    let Some(shard) = picked else {
        reply(session, exec).null();
        return Ok(());
    };
    let key = access
        .shard(shard)
        .random_key(session.db, random, exec.now)
        .map(<[u8]>::to_vec);
    // If another database has nearly all items, picking blindly rarely meets one of this.
    let key = match key {
        Some(key) => Some(key),
        None => first_key_from(shard, random, session.db, access, exec)?,
    };
    match key {
        Some(key) => reply(session, exec).bulk(&key),
        None => reply(session, exec).null(),
    }
    Ok(())
}

fn db_size<'a>(_: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let mut items = 0;
    access.for_each_shard(|shard| items += shard.items_in(session.db));
    let tier = session.tenant.as_ref().and_then(|tenant| tenant.tier.as_ref());
    items += tier.map_or(0, |tier| tier.items_in(session.db));
    reply(session, exec).integer(items as i64);
    Ok(())
}

fn flush_db<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    flush(call, Some(session.db), session, access, exec)
}

fn flush_all<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    flush(call, None, session, access, exec)
}

fn flush<'a>(
    call: Call<'a>,
    db: Option<u8>,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    options::flush(call.args)?;
    let is_done = exec.visit.progress.take().is_some();
    if !is_done {
        exec.counts.add(Count::Flushes, 1);
        access.flush(db, exec.now);
        // A transaction, which holds locks, does not wait.
        if let Some(tenant) = &session.tenant
            && !access.keeps_locks()
            && exec.awaits_flush(tenant)
        {
            return Err(Failure::Later);
        }
    }
    reply(session, exec).ok();
    Ok(())
}
