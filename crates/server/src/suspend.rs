//! Commands that wait for flash or for a script: what they wait for, and how their connections go on.
//!
//! A command keeps its place at the beginning of its connection's input while its items are read. Nothing behind it is
//! executed, no lock is held, and its worker serves others. When all of them have come, the command is executed from
//! its beginning, and finds its items in memory. At most [`WISHES_MAX`] reads of [`WISHED_BYTES_MAX`] together are
//! wanted at a time. A command of more keys goes on with the next ones when these have come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidemark_flash::{Barrier, Buffer, Listing, Read, SegmentRead};
use tidemark_plane::Purpose;
use tidemark_store::{Key, ShardGuard};
use tidemark_types::UnixMs;

use crate::access::Access;
use crate::connection::Connection;
use crate::limits::{Limits, SUSPENDED_READ_BYTES};
use crate::progress::Progress;
use crate::scripts::Job;
use crate::session::Exec;
use crate::tenant::Tenant;

/// Reads that one command waits for at a time: a disk is busy with so many.
pub(crate) const WISHES_MAX: usize = 64;
/// The limit of the bytes that they read together, unless it is a single one: four of the longest values.
pub(crate) const WISHED_BYTES_MAX: usize = 1 << 20;

/// Reads of a worker that are under way at a time.
pub(crate) const READS_MAX: usize = 128;
/// Memory that they are read into.
pub(crate) const READ_BYTES_MAX: usize = 16 << 20;
/// A command waits so long; an item that was not read by then is a miss.
pub(crate) const FLASH_DEADLINE: Duration = Duration::from_secs(5);

/// The read that a command waits for.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Waits until this was read.
    Read(Read, Purpose),
    /// Waits until this survives a crash.
    Durable(Barrier),
    /// That this script has ended.
    Script(Arc<Job>),
    /// That this segment was read.
    Segment(Arc<Segment>),
}

/// A segment that a walk over the keys on flash waits for.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) read: SegmentRead,
    came: Mutex<Came>,
}

/// The outcome of reading a segment.
#[derive(Debug, Default)]
pub(crate) enum Came {
    /// There is none yet.
    #[default]
    Not,
    Well(Listing),
    /// It could not be read, or is another one by now.
    Badly,
}

impl Came {
    /// The records, if they came.
    pub(crate) fn well(self) -> Option<Listing> {
        match self {
            Self::Well(listing) => Some(listing),
            Self::Not | Self::Badly => None,
        }
    }
}

impl Segment {
    pub(crate) fn new(read: SegmentRead) -> Self {
        Self {
            read,
            came: Mutex::default(),
        }
    }

    /// Takes the bytes that were read, or the failure. Whether they are the segment.
    pub(crate) fn end(&self, bytes: Option<Buffer>) -> bool {
        let listing = bytes.and_then(|bytes| Listing::of(&self.read, bytes));
        let is_good = listing.is_some();
        *self.came.lock() = listing.map_or(Came::Badly, Came::Well);
        is_good
    }

    /// The outcome so far.
    pub(crate) fn take(&self) -> Came {
        std::mem::take(&mut self.came.lock())
    }
}

impl Wish {
    /// Bytes that have to be read for it.
    pub(crate) fn read_bytes(&self) -> usize {
        match self {
            Self::Read(read, _) => read.bytes,
            Self::Segment(segment) => segment.read.bytes(),
            Self::Durable(_) | Self::Script(_) => 0,
        }
    }
}

/// The commands of a tenant that wait for flash, over all workers.
#[derive(Debug, Default)]
pub(crate) struct Suspended {
    commands: AtomicU64,
    read_bytes: AtomicU64,
}

impl Suspended {
    /// Whether no other one may wait. Workers look at the same time: it may be a group of connections more for each.
    pub(crate) fn is_full(&self, limits: &Limits) -> bool {
        self.commands.load(Ordering::Relaxed) >= limits.suspended_commands
            || self.read_bytes.load(Ordering::Relaxed) >= SUSPENDED_READ_BYTES
    }
}

/// A part of the commands and bytes that a tenant may have waiting, until it is dropped. Reads keep theirs also if nobody waits
/// for them any more.
pub(crate) struct Share {
    pub(crate) tenant: Arc<Tenant>,
    commands: u64,
    read_bytes: u64,
}

impl Share {
    pub(crate) fn of_command(tenant: &Arc<Tenant>) -> Self {
        Self::take(tenant, 1, 0)
    }

    pub(crate) fn of_read(tenant: &Arc<Tenant>, bytes: usize) -> Self {
        Self::take(tenant, 0, bytes as u64)
    }

    fn take(tenant: &Arc<Tenant>, commands: u64, read_bytes: u64) -> Self {
        let of = &tenant.suspended;
        of.commands.fetch_add(commands, Ordering::Relaxed);
        of.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        Self {
            tenant: Arc::clone(tenant),
            commands,
            read_bytes,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let of = &self.tenant.suspended;
        of.commands.fetch_sub(self.commands, Ordering::Relaxed);
        of.read_bytes.fetch_sub(self.read_bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({} commands, {} bytes)", self.commands, self.read_bytes)
    }
}

/// A connection whose first command waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// Tells this time from others.
    pub(crate) number: u64,
    /// Wishes that have not come true.
    pub(crate) left: usize,
    pub(crate) since: UnixMs,
    /// The moment from which the time is taken that its reads need; `None`: it waits for no read.
    pub(crate) reading_since: Option<Instant>,
    /// Its part of the tenant's commands that wait for flash, if it does.
    pub(crate) share: Option<Share>,
}

/// The reads that the commands of a connection want in one visit. At most one of them waits: the one that the visit
/// ends before.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    wishes: Vec<Wish>,
    bytes: usize,
    /// Keys of the command at the input's beginning that were sought in earlier visits.
    before: usize,
    /// The same of the command that is executed now, this visit included.
    sought: usize,
    /// The same of the command that is to wait.
    kept: Option<usize>,
}

impl Wanted {
    /// In a visit to a connection of whose first command so many keys were sought.
    pub(crate) fn since(before: usize) -> Self {
        Self {
            before,
            ..Self::default()
        }
    }

    /// Turns to a command, which is the one at the input's beginning or not.
    #[inline]
    pub(crate) fn enter(&mut self, is_first: bool) {
        self.sought = if is_first { self.before } else { 0 };
    }

    /// Keys of the command that were sought.
    pub(crate) fn sought(&self) -> usize {
        self.sought
    }

    /// One more was sought.
    pub(crate) fn note_sought(&mut self) {
        self.sought += 1;
    }

    /// Has the command wait for something.
    pub(crate) fn push(&mut self, wish: Wish) -> bool {
        self.bytes += wish.read_bytes();
        self.wishes.push(wish);
        true
    }

    /// Whether a command waits for as much as it may.
    fn is_full(&self) -> bool {
        self.wishes.len() >= WISHES_MAX || self.bytes >= WISHED_BYTES_MAX
    }

    /// Whether more reads can be asked for beside those of a command that waits.
    pub(crate) fn may_add(&self) -> bool {
        !self.wishes.is_empty() && !self.is_full()
    }

    /// The command that is executed now is to wait.
    pub(crate) fn keep(&mut self) {
        self.kept = Some(self.sought);
    }

    /// The state to remember of the command that the visit ends before.
    pub(crate) fn left(&self, is_first: bool) -> usize {
        self.kept.unwrap_or(if is_first { self.before } else { 0 })
    }

    /// Nothing is waited for after all.
    pub(crate) fn forget(&mut self) {
        self.wishes.clear();
        self.bytes = 0;
    }

    /// The reads that are waited for.
    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, Wish> {
        self.wishes.drain(..)
    }
}

/// Asks for a key, whose shard this is.
pub(crate) fn seek(
    tenant: &Tenant,
    shard: &mut ShardGuard<'_>,
    key: &Key<'_>,
    purpose: Purpose,
    now: UnixMs,
) -> Option<Wish> {
    let read = tenant.tier.as_ref()?.seek(shard, key, purpose, now)?;
    Some(Wish::Read(read, purpose))
}

/// The barrier that the replies of a visit have to wait for, of a tenant whose writes are acknowledged only when they survive a crash. Replies
/// to reads wait, too: nobody is to have seen a write that a crash undoes.
#[inline]
pub(crate) fn pending(connection: &Connection) -> Option<Barrier> {
    let tier = connection.session.tenant.as_ref()?.tier.as_ref()?;
    let barrier = tier.strict_barrier()?;
    (!tier.flash().store().is_settled(barrier)).then_some(barrier)
}

impl Exec<'_> {
    /// Has a command that has flushed a tenant's items wait until that survives a crash. Whether it has to.
    pub(crate) fn awaits_flush(&mut self, tenant: &Tenant) -> bool {
        let Some(tier) = &tenant.tier else { return false };
        let barrier = tier.barrier();
        if tier.flash().store().is_settled(barrier) {
            return false;
        }
        self.visit.progress = Some(Box::new(Progress::Flushed));
        self.visit.wanted.push(Wish::Durable(barrier))
    }

    /// Whether a command that has to wait for flash may not, because as many of the tenant's do as may. Then it waits for nothing.
    pub(crate) fn is_kept_from_flash(&mut self, tenant: &Tenant) -> bool {
        // One that has waited goes on: it is one of those that are counted.
        let is_full = !self.visit.is_resumed() && tenant.suspended.is_full(&self.shared.limits);
        if is_full {
            self.visit.wanted.forget();
        }
        is_full
    }

    /// Asks for those of a command's keys that were not sought yet. Whether some have to be waited for.
    pub(crate) fn seeks<'k>(
        &mut self,
        tenant: &Tenant,
        (db, purpose): (u8, Purpose),
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        self.seek_all(tenant, keys.map(|key| (db, key, purpose)))
    }

    /// The same of keys in several databases. They are the same ones, in the same order, each time.
    pub(crate) fn seek_all<'k>(
        &mut self,
        tenant: &Tenant,
        keys: impl Iterator<Item = (u8, &'k [u8], Purpose)>,
    ) -> bool {
        let mut access = Access::each(&tenant.store);
        let wanted = &mut self.visit.wanted;
        for (db, bytes, purpose) in keys.skip(wanted.sought) {
            if wanted.is_full() {
                break;
            }
            wanted.sought += 1;
            let key = access.store().key(db, bytes);
            if let Some(wish) = seek(tenant, access.shard_of(key.hash), &key, purpose, self.now) {
                wanted.push(wish);
            }
        }
        !wanted.wishes.is_empty()
    }
}
