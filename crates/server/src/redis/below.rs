//! SCAN, KEYS and RANDOMKEY of a tenant with flash: walks over flash and over memory.
//!
//! Keys move between both meanwhile, so that no order of two walks meets them all: one that is evicted behind a walk
//! over flash and before one over memory is missed. So there are three stages: all segments on flash, then memory, then the
//! segments that got records since the walk began. A key that is there all the time is met, unless it is evicted and
//! written again between the second stage and the third. Keys that both have are met twice.
//!
//! A segment is read whole, and a command waits for it as for a key ([`crate::suspend`]). No lock is held meanwhile.
//!
//! A transaction waits before its locks are taken, for the segment that its first SCAN begins in. Where a SCAN comes to another
//! one, it ends with a cursor to go on from.

use std::borrow::Cow;
use std::sync::Arc;

use tidemark_flash::{Next, SegmentRead};
use tidemark_plane::Tier;
use tidemark_protocol::resp::glob::Pattern;
use tidemark_protocol::resp::options::{self, Scan, ScanType};
use tidemark_protocol::resp::{Args, ErrorReply};

use super::answer::{Done, Failure, reply};
use super::place::{Below, Place, Reads, Stage};
use super::refused_for_flash;
use super::scan::{Bounds, check_keys, later, send_rest};
use crate::access::Access;
use crate::limits::{
    FLASH_RANDOM_COST, FLASH_SCANNED_KEYS, FLASH_SEGMENT_COST, FLASH_TURN_RECORDS, KEYS_ANSWERED, SCANNED_KEYS,
    TURN_COMPARED_BYTES,
};
use crate::progress::{Progress, Walk};
use crate::session::{Exec, Session};
use crate::suspend::{Came, Segment, Wait};
use crate::tenant::Tenant;

/// Records that are looked at before what they cost is asked.
const PIECE: usize = 16;

const WITHIN: &str = "ERR KEYS of a tenant with flash waits for it, which a transaction cannot: use SCAN";
const LATE: &str = "ERR flash did not answer in time: use SCAN";

/// How a walk went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Went {
    /// A turn's share is done, or something is waited for.
    On,
    /// It is at its bounds.
    Bound,
    /// It is over.
    End,
    /// Flash took too long, or may not be waited for.
    Late,
}

impl Below {
    /// Sees to it that the walk is in a segment: `None` if it is.
    fn enter(&mut self, tier: &Tier, exec: &mut Exec<'_>) -> Option<Went> {
        if let Some(waiting) = self.waiting.take() {
            match waiting.take() {
                Came::Not => return Some(Went::Late),
                Came::Well(listing) => self.listing = Some(listing),
                Came::Badly => self.pass_to(self.slot + 1),
            }
        }
        if self.listing.is_none() {
            match self.next(tier) {
                Next::End => return Some(Went::End),
                Next::Here(listing) => {
                    if listing.slot() != self.slot {
                        self.pass_to(listing.slot());
                    }
                    self.listing = Some(listing);
                }
                Next::Read(read) => {
                    if read.slot() != self.slot {
                        self.pass_to(read.slot());
                    }
                    if let Reads::Ahead(ahead) = &mut self.reads {
                        self.listing = ahead.take().filter(|listing| listing.is_of(&read));
                        return self.listing.is_none().then_some(Went::Late);
                    }
                    let segment = Arc::new(Segment::new(read));
                    self.waiting = Some(Arc::clone(&segment));
                    exec.visit.waits.push(Wait::Segment(segment));
                    return Some(Went::On);
                }
            }
        }
        if let (Some(random), Some(listing)) = (self.random.take(), &self.listing) {
            self.record = (random % listing.records().max(1) as u64) as usize;
        }
        None
    }
}

/// Goes on over flash, for a turn's share of records.
fn go_below(walk: &mut Walk, below: &mut Below, bounds: &Bounds, db: u8, tier: &Tier, exec: &mut Exec<'_>) -> Went {
    if let Some(went) = below.enter(tier, exec) {
        return went;
    }
    let Some(listing) = below.listing.take() else {
        return Went::On;
    };
    let store = tier.flash().store();
    let end = listing.records().min(below.record + FLASH_TURN_RECORDS);
    let mut compared = 0;
    while below.record < end && !walk.is_bound(bounds) && compared < TURN_COMPARED_BYTES {
        let to = end.min(below.record + PIECE);
        store.list(&listing, below.record..to, db, |key| {
            walk.seen += 1;
            compared += walk.pattern.as_ref().map_or(0, |pattern| pattern.steps(key.len()));
            if walk
                .pattern
                .as_ref()
                .is_none_or(|pattern: &Pattern| pattern.matches(key))
            {
                walk.add(key, bounds);
            }
        });
        walk.cost += (to - below.record) as u64;
        below.record = to;
    }
    if below.record >= listing.records() {
        walk.cost += FLASH_SEGMENT_COST;
        below.pass_to(below.slot + 1);
    } else {
        below.listing = Some(listing);
    }
    if walk.is_bound(bounds) { Went::Bound } else { Went::On }
}

/// Goes on in whatever stage the walk is. It is over after the last one.
fn go_on(
    walk: &mut Walk,
    bounds: &Bounds,
    tier: &Tier,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Went {
    let Some(mut below) = walk.below.take() else {
        return Went::End;
    };
    access.pause();
    let went = match below.stage {
        Stage::Memory => match walk.go_on(bounds, session.db, access, exec.now) {
            // A place that is behind all others when it is rounded is the end, too.
            Some(place) if place.cursor(access.store().shards()) > 0 => Went::On,
            _ => Went::End,
        },
        Stage::Flash | Stage::Since => go_below(walk, &mut below, bounds, session.db, tier, exec),
    };
    let next = match (went, below.stage) {
        (Went::End, Stage::Flash) => Some(Stage::Memory),
        (Went::End, Stage::Memory) => Some(Stage::Since),
        _ => None,
    };
    if let Some(stage) = next {
        below.stage = stage;
        below.pass_to(0);
    }
    walk.below = Some(below);
    match went {
        Went::End if next.is_none() => Went::End,
        Went::On | Went::End if walk.is_bound(bounds) => Went::Bound,
        Went::End => Went::On,
        went => went,
    }
}

/// Whether a walk may begin, which will have to wait for flash.
fn check_begin(session: &Session, exec: &mut Exec<'_>) -> Result<(), Failure<'static>> {
    let is_full = |tenant: &Arc<Tenant>| tenant.suspended.is_full(&exec.shared.limits);
    if exec.visit.progress.is_none() && session.tenant.as_ref().is_some_and(is_full) {
        return Err(refused_for_flash(exec));
    }
    Ok(())
}

/// The walk of SCAN or KEYS, which begins at a cursor or goes on. `None`: it is over, and the rest of its keys was sent.
fn walk_of(
    cursor: u64,
    pattern: Option<&[u8]>,
    tier: &Tier,
    session: &Session,
    access: &Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<Option<Walk>, Failure<'static>> {
    check_begin(session, exec)?;
    match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Reply { bytes, sent }) => send_rest(bytes, sent, false, exec).map(|()| None),
        Some(Progress::Walk(walk)) => Ok(Some(walk)),
        _ => {
            let (below, place) = Below::of_cursor(cursor, access.store().shards(), || tier.mark());
            Ok(Some(begun(place, pattern, below)?))
        }
    }
}

/// The segment that a SCAN in a transaction begins in, if that has to be read.
pub(super) fn segment_of(args: Args<'_>, tenant: &Tenant) -> Option<SegmentRead> {
    let tier = tenant.tier.as_deref()?;
    let cursor = options::scan(args).ok()?.cursor;
    let (below, _) = Below::of_cursor(cursor, tenant.store.shards(), || tier.mark());
    match below.stage {
        Stage::Memory => None,
        Stage::Flash | Stage::Since => match below.next(tier) {
            Next::Read(read) => Some(read),
            Next::Here(_) | Next::End => None,
        },
    }
}

/// The walk of a SCAN in a transaction.
fn walk_within(
    options: &Scan<'_>,
    tier: &Tier,
    access: &Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<Walk, ErrorReply<'static>> {
    let ahead = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Ahead(listing)) => listing,
        _ => None,
    };
    let (mut below, place) = Below::of_cursor(options.cursor, access.store().shards(), || tier.mark());
    below.reads = Reads::Ahead(ahead);
    begun(place, options.pattern, below)
}

/// SCAN.
pub(super) fn scan<'a>(
    options: &Scan<'_>,
    tier: &Tier,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    let (shards, is_within) = (access.store().shards(), access.keeps_locks());
    let walk = if is_within {
        Some(walk_within(options, tier, access, exec)?)
    } else {
        walk_of(options.cursor, options.pattern, tier, session, access, exec)?
    };
    let Some(mut walk) = walk else { return Ok(()) };
    let wanted = options.count.clamp(FLASH_SCANNED_KEYS, SCANNED_KEYS as u64);
    let bounds = Bounds::of_scan(wanted);
    let went = match options.types {
        ScanType::Strings => loop {
            let went = go_on(&mut walk, &bounds, tier, session, access, exec);
            if went != Went::On || !is_within {
                break went;
            }
        },
        // There are no keys of another type: the walk is over.
        ScanType::Nothing => Went::End,
    };
    let cursor = match (went, &walk.below) {
        (Went::On, _) => return later(Progress::Walk(walk), exec),
        (Went::Bound | Went::Late, Some(below)) => below.cursor(walk.place, shards),
        _ => 0,
    };
    let mut reply = reply(session, exec);
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    reply.array(walk.found.count);
    send_rest(walk.found.bytes, 0, is_within, exec)
}

/// KEYS: each key once.
pub(super) fn keys<'a>(
    pattern: &[u8],
    tier: &Tier,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    if access.keeps_locks() {
        return Err(Failure::Own(Cow::Borrowed(WITHIN)));
    }
    let Some(mut walk) = walk_of(0, Some(pattern), tier, session, access, exec)? else {
        return Ok(());
    };
    walk.names.get_or_insert_default();
    let bounds = Bounds {
        keys: u64::MAX,
        cost: u64::MAX,
        found: KEYS_ANSWERED,
        bytes: exec.reply_bytes_max(),
    };
    let went = go_on(&mut walk, &bounds, tier, session, access, exec);
    check_keys(&walk, exec)?;
    match went {
        Went::On => return later(Progress::Walk(walk), exec),
        Went::Late => return Err(Failure::Own(Cow::Borrowed(LATE))),
        Went::Bound | Went::End => {}
    }
    reply(session, exec).array(walk.found.count);
    send_rest(walk.found.bytes, 0, false, exec)
}

/// A key on flash at random, as it stands in a reply. `None`: none was met.
pub(super) fn random_key(
    random: u64,
    tier: &Tier,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<Option<Vec<u8>>, Failure<'static>> {
    check_begin(session, exec)?;
    let mut walk = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Walk(walk)) => walk,
        _ => {
            let (mut below, place) = Below::of_cursor(0, access.store().shards(), || tier.mark());
            below.slot = ((random >> 32) % tier.flash().store().segments().max(1) as u64) as u32;
            below.random = Some(random);
            begun(place, None, below)?
        }
    };
    let bounds = Bounds {
        keys: u64::MAX,
        cost: FLASH_RANDOM_COST,
        found: 0,
        bytes: usize::MAX,
    };
    access.pause();
    let Some(mut below) = walk.below.take() else {
        return Ok(None);
    };
    let went = go_below(&mut walk, &mut below, &bounds, session.db, tier, exec);
    if walk.found.count > 0 {
        return Ok(Some(walk.found.bytes));
    }
    if went == Went::End && !below.is_anew {
        below.is_anew = true;
        below.pass_to(0);
    } else if went != Went::On {
        return Ok(None);
    }
    walk.below = Some(below);
    exec.visit.progress = Some(Box::new(Progress::Walk(walk)));
    Err(Failure::Later)
}

fn begun(place: Place, pattern: Option<&[u8]>, below: Below) -> Result<Walk, ErrorReply<'static>> {
    let mut walk = Walk::new(place, pattern)?;
    walk.below = Some(Box::new(below));
    Ok(walk)
}
