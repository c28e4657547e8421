//! Walking over the keys: SCAN and KEYS.
//!
//! A cursor is the part of a hash that places keys: the shard in the highest of its 53 bits, then the position in the
//! shard. Keys are visited in the order of their hashes. A cursor therefore means the same however the index grows or
//! shrinks between two calls. Zero begins and ends.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;

use tidemark_plane::Tier;
use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::glob::{PATTERN_BYTES_MAX, Pattern};
use tidemark_protocol::resp::options::{self, ScanType};
use tidemark_protocol::resp::{ErrorReply, Reply, Version};
use tidemark_store::Shard;
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, no_room, reply, too_large_reply};
use super::below;
use super::dispatch::{Call, Family, Handler};
use super::place::Place;
use crate::access::Access;
use crate::limits::{KEYS_ANSWERED, REPLY_BYTES, SCANNED_BUCKETS, SCANNED_KEYS, TURN_COMPARED_BYTES};
use crate::progress::{Found, Progress, Walk};
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Scan, Handler::Keys(scan)),
    (CommandId::Keys, Handler::Keys(keys)),
];

/// A shard of fewer items has an index of the least size, nearly all of whose buckets are empty.
const SPARSE_ITEMS: u64 = 2048;
/// The cost of reading a bucket, in empty ones: each of about eight items is a load that misses the caches.
const BUCKET_COST: u64 = 8;
/// The limit of one SCAN's cost even if it is asked for few keys, in empty buckets. A small database is walked over in
/// one call, though it has sixteen shards of a thousand buckets. If another database's items lie between, it is as much
/// as 16,384 keys.
const SCAN_COST: u64 = 16 * 1024;
/// The limit of a walk's cost in a turn: about a hundred microseconds.
const TURN_COST: u64 = 1024;
/// Bytes of keys that are copied under one lock; one key may be more. They are compared when it is released.
const LOCK_KEY_BYTES: usize = 16 << 10;
/// The limit of the cost under one lock.
const LOCK_COST: u64 = SCANNED_BUCKETS as u64 * BUCKET_COST;

/// Keys that were met under one lock, one behind the other.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Shows every key, and forgets them.
    fn drain(&mut self, mut visit: impl FnMut(&[u8])) {
        let mut begin = 0;
        for end in self.ends.drain(..) {
            visit(&self.bytes[begin..end]);
            begin = end;
        }
        self.bytes.clear();
    }
}

/// Visits keys of a database from a place on, while no lock is held. `enough` is asked after each bucket; it gets the cost so
/// far, in empty buckets, and how many keys are about to be visited. Returns where to go on, `None` at the end.
fn walk(
    from: Place,
    db: u8,
    now: UnixMs,
    access: &mut Access<'_>,
    mut visit: impl FnMut(&[u8]),
    mut enough: impl FnMut(u64, usize) -> bool,
) -> Option<Place> {
    let mut place = from;
    let mut cost = 0;
    let mut is_enough = false;
    let mut batch = Batch::default();
    while place.shard < access.store().shards() && !is_enough {
        let shard = access.shard(place.shard);
        let step = if shard.items() < SPARSE_ITEMS { 1 } else { BUCKET_COST };
        let end = cost + LOCK_COST;
        let met = Cell::new((0, 0));
        let mut scan = |shard: &Shard| {
            let push = |key: &[u8]| {
                batch.push(key);
                met.set((batch.ends.len(), batch.bytes.len()));
            };
            shard.scan(place.position, db, now, push, || {
                cost += step;
                let (keys, bytes) = met.get();
                is_enough = enough(cost, keys);
                is_enough || cost >= end || bytes >= LOCK_KEY_BYTES
            })
        };
        let next = if shard.items_in(db) > 0 { scan(shard) } else { None };
        access.pause();
        batch.drain(&mut visit);
        place = match next {
            Some(position) => Place { position, ..place },
            None => Place {
                shard: place.shard + 1,
                position: 0,
            },
        };
        // The cost of the last keys, and the last bucket of a shard, are not asked about.
        is_enough = is_enough || enough(cost, 0);
    }
    (place.shard < access.store().shards()).then_some(place)
}

impl Found {
    fn add(&mut self, key: &[u8]) {
        // A bulk string is the same in both versions.
        Reply::new(&mut self.bytes, Version::Resp2).bulk(key);
        self.count += 1;
    }
}

/// Up to where a walk goes.
pub(super) struct Bounds {
    /// Keys that are looked at.
    pub(super) keys: u64,
    /// The cost, in empty buckets.
    pub(super) cost: u64,
    /// Keys that are found.
    pub(super) found: usize,
    /// Bytes that they take in the reply.
    pub(super) bytes: usize,
}

impl Bounds {
    /// Those of one SCAN that is to look at so many keys.
    pub(super) fn of_scan(keys: u64) -> Self {
        Self {
            keys,
            cost: SCAN_COST.max(keys),
            found: usize::MAX,
            bytes: REPLY_BYTES,
        }
    }
}

impl Walk {
    /// A walk that has not begun.
    pub(super) fn new(place: Place, pattern: Option<&[u8]>) -> Result<Self, ErrorReply<'static>> {
        let pattern = match pattern {
            None | Some(b"*") => None,
            Some(pattern) => {
                let too_long = ErrorReply::AboveLimit("a pattern", PATTERN_BYTES_MAX, "bytes");
                Some(Pattern::new(pattern).ok_or(too_long)?)
            }
        };
        Ok(Self {
            place,
            pattern,
            found: Found::default(),
            seen: 0,
            cost: 0,
            names: None,
            below: None,
        })
    }

    /// Adds a key that matches, if it is not beyond the bounds and not there yet.
    pub(super) fn add(&mut self, key: &[u8], bounds: &Bounds) {
        let is_new = |names: &mut HashSet<Box<[u8]>>| names.insert(key.into());
        if self.found.count <= bounds.found && self.names.as_mut().is_none_or(is_new) {
            self.found.add(key);
        }
    }

    /// Goes on within the bounds, and unless it is part of a transaction, for a turn's share. `None` if it reached the end.
    pub(super) fn go_on(&mut self, bounds: &Bounds, db: u8, access: &mut Access<'_>, now: UnixMs) -> Option<Place> {
        let turn_cost = if access.keeps_locks() { u64::MAX } else { TURN_COST };
        let compared_max = if access.keeps_locks() {
            u64::MAX
        } else {
            TURN_COMPARED_BYTES
        };
        let bytes_before = self.found.bytes.len();
        let (seen, compared, cost_before) = (Cell::new(self.seen), Cell::new(0), self.cost);
        let (count, bytes) = (Cell::new(self.found.count), Cell::new(bytes_before));
        let visit = |key: &[u8]| {
            seen.set(seen.get() + 1);
            let is_found = self.pattern.as_ref().is_none_or(|pattern| {
                compared.set(compared.get() + pattern.steps(key.len()));
                pattern.matches(key)
            });
            let is_new = |names: &mut HashSet<Box<[u8]>>| names.insert(key.into());
            if is_found && count.get() <= bounds.found && self.names.as_mut().is_none_or(is_new) {
                self.found.add(key);
                count.set(self.found.count);
                bytes.set(self.found.bytes.len());
            }
        };
        let enough = |cost: u64, met: usize| {
            self.cost = cost_before + cost;
            let is_share =
                cost >= turn_cost || compared.get() >= compared_max || bytes.get() >= bytes_before + REPLY_BYTES;
            is_share
                || seen.get() + met as u64 >= bounds.keys
                || self.cost >= bounds.cost
                || count.get() > bounds.found
                || bytes.get() >= bounds.bytes
        };
        let next = walk(self.place, db, now, access, visit, enough);
        self.seen = seen.get();
        if let Some(place) = next {
            self.place = place;
        }
        next
    }

    /// Whether it has come to its bounds.
    pub(super) fn is_bound(&self, bounds: &Bounds) -> bool {
        self.seen >= bounds.keys
            || self.cost >= bounds.cost
            || self.found.count > bounds.found
            || self.found.bytes.len() >= bounds.bytes
    }
}

/// Goes on later with the present keys.
pub(super) fn later<'a>(progress: Progress, exec: &mut Exec<'_>) -> Done<'a> {
    exec.visit.progress = Some(Box::new(progress));
    Err(Failure::Later)
}

/// Sends the rest of a reply, a visit's share of it if the command is not part of a transaction.
pub(super) fn send_rest<'a>(bytes: Vec<u8>, sent: usize, is_within: bool, exec: &mut Exec<'_>) -> Done<'a> {
    let most = if is_within { usize::MAX } else { exec.visit.reply_bytes };
    let end = bytes.len().min(sent.saturating_add(most));
    exec.out.bytes.extend_from_slice(&bytes[sent..end]);
    if end == bytes.len() {
        return Ok(());
    }
    later(Progress::Reply { bytes, sent: end }, exec)
}

fn scan<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let options = options::scan(call.args)?;
    if let Some(tier) = tier_of(session) {
        return below::scan(&options, tier, session, access, exec);
    }
    let shards = access.store().shards();
    let mut walk = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Reply { bytes, sent }) => return send_rest(bytes, sent, access.keeps_locks(), exec),
        Some(Progress::Walk(walk)) => walk,
        _ => Walk::new(Place::of_cursor(options.cursor, shards), options.pattern)?,
    };
    let wanted = options.count.min(SCANNED_KEYS as u64);
    let bounds = Bounds::of_scan(wanted);
    let next = match options.types {
        ScanType::Strings => walk.go_on(&bounds, session.db, access, exec.now),
        // There are no keys of another type: the walk is over.
        ScanType::Nothing => None,
    };
    if next.is_some() && !walk.is_bound(&bounds) && !access.keeps_locks() {
        return later(Progress::Walk(walk), exec);
    }
    let cursor = next.map_or(0, |place| place.cursor(shards));
    let mut reply = reply(session, exec);
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    reply.array(walk.found.count);
    send_rest(walk.found.bytes, 0, access.keeps_locks(), exec)
}

/// The tenant's flash, if it has some.
pub(super) fn tier_of(session: &Session) -> Option<&Tier> {
    session.tenant.as_ref()?.tier.as_deref()
}

/// Whether KEYS may answer what a walk has found.
pub(super) fn check_keys(walk: &Walk, exec: &mut Exec<'_>) -> Result<(), Failure<'static>> {
    if walk.found.count > KEYS_ANSWERED {
        let text = format!("ERR KEYS answers at most {KEYS_ANSWERED} keys, and more match: use SCAN");
        return Err(Failure::Own(Cow::Owned(text)));
    }
    if walk.found.bytes.len() >= exec.reply_bytes_max() {
        return Err(too_large_reply(exec));
    }
    Ok(())
}

fn keys<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    if let Some(tier) = tier_of(session) {
        return below::keys(call.args.arg(1), tier, session, access, exec);
    }
    let mut walk = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Reply { bytes, sent }) => return send_rest(bytes, sent, access.keeps_locks(), exec),
        Some(Progress::Walk(walk)) => walk,
        _ => Walk::new(Place { shard: 0, position: 0 }, Some(call.args.arg(1)))?,
    };
    let is_within = access.keeps_locks();
    let bounds = Bounds {
        keys: u64::MAX,
        cost: if is_within { SCAN_COST } else { u64::MAX },
        found: KEYS_ANSWERED,
        bytes: exec.reply_bytes_max(),
    };
    let next = walk.go_on(&bounds, session.db, access, exec.now);
    check_keys(&walk, exec)?;
    if next.is_some() {
        if is_within {
            let text = "ERR KEYS looks at too many keys for a transaction: use SCAN";
            return Err(Failure::Own(Cow::Borrowed(text)));
        }
        return later(Progress::Walk(walk), exec);
    }
    if is_within && !exec.may_answer(walk.found.bytes.len()) {
        return Err(no_room(exec));
    }
    reply(session, exec).array(walk.found.count);
    send_rest(walk.found.bytes, 0, access.keeps_locks(), exec)
}

/// The first key of a database from a position of a shard on, or from the beginning of all if there is none behind it.
pub(super) fn first_key_from(
    shard: usize,
    position: u64,
    db: u8,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<Option<Vec<u8>>, Failure<'static>> {
    let (mut place, mut is_anew) = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Search { place, is_anew }) => (place, is_anew),
        _ => (Place { shard, position }, false),
    };
    // Within a transaction it is looked for only so far.
    let turn_cost = if access.keeps_locks() { SCAN_COST } else { TURN_COST };
    let found = Cell::new(None);
    loop {
        let is_found = Cell::new(false);
        let visit = |key: &[u8]| {
            if !is_found.replace(true) {
                found.set(Some(key.to_vec()));
            }
        };
        let enough = |cost, met| met > 0 || is_found.get() || cost >= turn_cost;
        let next = walk(place, db, exec.now, access, visit, enough);
        match next {
            _ if is_found.get() => return Ok(found.into_inner()),
            Some(_) if access.keeps_locks() => return Ok(None),
            Some(place) => {
                exec.visit.progress = Some(Box::new(Progress::Search { place, is_anew }));
                return Err(Failure::Later);
            }
            None if is_anew => return Ok(None),
            None => (place, is_anew) = (Place { shard: 0, position: 0 }, true),
        }
    }
}
