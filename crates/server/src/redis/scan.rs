//! Walking over the keys: SCAN and KEYS.
//!
//! A cursor is the part of a hash that places keys: the shard in the highest of its 53 bits, then the position in the
//! shard. Keys are visited in the order of their hashes, so a cursor means the same however the index grows or shrinks
//! between two calls. Zero begins and ends.

use std::borrow::Cow;
use std::cell::Cell;

use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::glob::{self, Case};
use tidemark_protocol::resp::options::{self, ScanType};
use tidemark_protocol::resp::{Reply, Version};
use tidemark_store::{PLACE_BITS, Shard};
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, TOO_LARGE_REPLY, reply};
use super::dispatch::{Call, Family, Handler};
use crate::access::Access;
use crate::limits::{COMMAND_REPLY_BYTES, KEYS_ANSWERED, REPLY_BYTES, SCANNED_BUCKETS, SCANNED_KEYS};

use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Scan, Handler::Keys(scan)),
    (CommandId::Keys, Handler::Keys(keys)),
];

/// A shard of fewer items has an index of the least size, nearly all of whose buckets are empty.
const SPARSE_ITEMS: u64 = 2048;
/// What it costs to read a bucket, in empty ones: each of about eight items is a load that misses the caches.
const BUCKET_COST: u64 = 8;
/// What one SCAN may cost even if it is asked for few keys, in empty buckets: a small database is walked over in one call,
/// though it has sixteen shards of a thousand buckets; and where another database's items lie between, two milliseconds.
const SCAN_COST: u64 = 16 * 1024;
/// What may be read under one lock.
const LOCK_COST: u64 = SCANNED_BUCKETS as u64 * BUCKET_COST;

/// A place in a tenant's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    shard: usize,
    /// A fraction of 2^64.
    position: u64,
}

impl Place {
    /// The place that a cursor means, in a store of this many shards. A number that no cursor can be lies behind all keys.
    fn of_cursor(cursor: u64, shards: usize) -> Self {
        if cursor >> PLACE_BITS > 0 {
            return Self {
                shard: shards,
                position: 0,
            };
        }
        let bits = shards.trailing_zeros();
        let hash = cursor << (u64::BITS - PLACE_BITS);
        // A shift by 64 is not defined, so it is done in two steps.
        let shard = ((hash >> 1) >> (63 - bits)) as usize;
        Self {
            shard,
            position: hash << bits,
        }
    }

    /// The cursor that means this place; zero for one behind all keys. Keys' positions are whole multiples of a cursor's
    /// unit, so a place between two of them is the same as the later one.
    fn cursor(self, shards: usize) -> u64 {
        let bits = shards.trailing_zeros();
        let unit = 1_u128 << (u64::BITS - PLACE_BITS + bits);
        let cursor = ((self.shard as u128) << (PLACE_BITS - bits)) + u128::from(self.position).div_ceil(unit);
        // Behind the last key of the last shard the sum is 2^53.
        cursor as u64 & (u64::MAX >> (u64::BITS - PLACE_BITS))
    }
}

/// Visits keys of a database from a place on, releasing the lock between every few buckets. `enough` is asked after each
/// bucket; it gets the cost so far, in empty buckets. Returns where to go on, `None` at the end.
fn walk(
    from: Place,
    db: u8,
    now: UnixMs,
    access: &mut Access<'_>,
    mut visit: impl FnMut(&[u8]),
    mut enough: impl FnMut(u64) -> bool,
) -> Option<Place> {
    let mut place = from;
    let mut cost = 0;
    let mut is_enough = false;
    while place.shard < access.store().shards() && !is_enough {
        let shard = access.shard(place.shard);
        let step = if shard.items() < SPARSE_ITEMS { 1 } else { BUCKET_COST };
        let end = cost + LOCK_COST;
        let mut scan = |shard: &Shard| {
            shard.scan(place.position, db, now, &mut visit, || {
                cost += step;
                is_enough = enough(cost);
                is_enough || cost >= end
            })
        };
        let next = if shard.items_in(db) > 0 { scan(shard) } else { None };
        access.pause();
        place = match next {
            Some(position) => Place { position, ..place },
            None => Place {
                shard: place.shard + 1,
                position: 0,
            },
        };
        // The last bucket of a shard is not asked about.
        is_enough = is_enough || (next.is_none() && enough(cost));
    }
    (place.shard < access.store().shards()).then_some(place)
}

/// Keys as they will stand in a reply.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    count: usize,
}

impl Found {
    fn add(&mut self, key: &[u8]) {
        // A bulk string is the same in both versions.
        Reply::new(&mut self.bytes, Version::Resp2).bulk(key);
        self.count += 1;
    }

    fn answer(&self, session: &Session, exec: &mut Exec<'_>) {
        reply(session, exec).array(self.count);
        exec.out.bytes.extend_from_slice(&self.bytes);
    }
}

fn scan<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let options = options::scan(call.args)?;
    let shards = access.store().shards();
    let wanted = options.count.min(SCANNED_KEYS as u64);
    let seen = Cell::new(0);
    let mut found = Found::default();
    let bytes = Cell::new(0);
    let visit = |key: &[u8]| {
        seen.set(seen.get() + 1);
        if options
            .pattern
            .is_none_or(|pattern| glob::matches(pattern, key, Case::Exact))
        {
            found.add(key);
            bytes.set(found.bytes.len());
        }
    };
    let enough = |cost| seen.get() >= wanted || cost >= SCAN_COST.max(wanted) || bytes.get() >= REPLY_BYTES;
    let next = match options.types {
        ScanType::Strings => walk(
            Place::of_cursor(options.cursor, shards),
            session.db,
            exec.now,
            access,
            visit,
            enough,
        ),
        // There are no keys of another type: the walk is over.
        ScanType::Nothing => None,
    };
    let cursor = next.map_or(0, |place| place.cursor(shards));
    let mut reply = reply(session, exec);
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    found.answer(session, exec);
    Ok(())
}

fn keys<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let pattern = call.args.arg(1);
    let mut found = Found::default();
    let (count, bytes) = (Cell::new(0), Cell::new(0));
    let visit = |key: &[u8]| {
        if count.get() <= KEYS_ANSWERED && glob::matches(pattern, key, Case::Exact) {
            found.add(key);
            count.set(found.count);
            bytes.set(found.bytes.len());
        }
    };
    let enough = |_| count.get() > KEYS_ANSWERED || bytes.get() > COMMAND_REPLY_BYTES;
    walk(
        Place { shard: 0, position: 0 },
        session.db,
        exec.now,
        access,
        visit,
        enough,
    );
    if found.count > KEYS_ANSWERED {
        let text = format!("ERR KEYS answers at most {KEYS_ANSWERED} keys, and more match: use SCAN");
        return Err(Failure::Own(Cow::Owned(text)));
    }
    if found.bytes.len() > COMMAND_REPLY_BYTES {
        return Err(TOO_LARGE_REPLY.into());
    }
    found.answer(session, exec);
    Ok(())
}

/// The first key of a database from a position of a shard on, or from the beginning of all if there is none behind it.
pub(super) fn first_key_from(
    shard: usize,
    position: u64,
    db: u8,
    access: &mut Access<'_>,
    now: UnixMs,
) -> Option<Vec<u8>> {
    let found = Cell::new(None);
    for from in [Place { shard, position }, Place { shard: 0, position: 0 }] {
        let is_found = Cell::new(false);
        let visit = |key: &[u8]| {
            if !is_found.replace(true) {
                found.set(Some(key.to_vec()));
            }
        };
        walk(from, db, now, access, visit, |_| is_found.get());
        if is_found.get() {
            break;
        }
    }
    found.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_keep_their_place_and_zero_is_only_the_beginning_and_the_end() {
        for (shards, shard, position, cursor) in [
            (1, 0, 0, 0),
            (1, 0, 1 << 11, 1),
            (1, 0, u64::MAX << 11, (1 << 53) - 1),
            (4, 0, 1 << 13, 1),
            (4, 1, 0, 1 << 51),
            (4, 3, 0, 3 << 51),
            (4, 3, 4 << 60, (3 << 51) + (1 << 49)),
            (64, 63, 0, 63 << 47),
        ] {
            let place = Place { shard, position };
            assert_eq!(place.cursor(shards), cursor, "{place:?} of {shards}");
            assert_eq!(Place::of_cursor(cursor, shards), place, "{cursor} of {shards}");
        }
        // Between two keys: the later one.
        assert_eq!(Place { shard: 0, position: 5 }.cursor(4), 1);
        // Behind the last key of a shard: the next shard, or the end.
        for (shard, cursor) in [(2, 3 << 51), (3, 0)] {
            let position = u64::MAX;
            assert_eq!(Place { shard, position }.cursor(4), cursor);
        }
        // No cursor that was ever given.
        for cursor in [1 << 53, 1 << 63, u64::MAX] {
            assert_eq!(Place::of_cursor(cursor, 4).shard, 4, "{cursor}");
        }
    }
}
