//! Commands that wait for flash or for a script: what they wait for, and how their connections go on.
//!
//! A command keeps its place at the beginning of its connection's input while its items are read. Nothing behind it is
//! executed, no lock is held, and its worker serves others. When all of them have come, the command is executed from
//! its beginning, and finds its items in memory. At most [`WISHES_MAX`] reads of [`WISHED_BYTES_MAX`] together are
//! wanted at a time. A command of more keys goes on with the next ones when these have come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemark_flash::{Barrier, Read};
use tidemark_store::{Key, ShardGuard};
use tidemark_types::UnixMs;

use crate::access::Access;
use crate::connection::Connection;
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
    Read(Read),
    /// Waits until this survives a crash.
    Durable(Barrier),
    /// That this script has ended.
    Script(Arc<Job>),
}

/// A connection whose first command waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parked {
    /// Tells this time from others.
    pub(crate) number: u64,
    /// Wishes that have not come true.
    pub(crate) left: usize,
    pub(crate) since: UnixMs,
    /// The moment from which the time is taken that its reads need; `None`: it waits for no read.
    pub(crate) reading_since: Option<Instant>,
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
        if let Wish::Read(read) = &wish {
            self.bytes += read.bytes;
        }
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

    /// The reads that are waited for.
    pub(crate) fn take(&mut self) -> std::vec::Drain<'_, Wish> {
        self.wishes.drain(..)
    }
}

/// Asks for a key, whose shard this is.
pub(crate) fn seek(tenant: &Tenant, shard: &mut ShardGuard<'_>, key: &Key<'_>, now: UnixMs) -> Option<Wish> {
    tenant.tier.as_ref()?.seek(shard, key, now).map(Wish::Read)
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

    /// Asks for those of a command's keys that were not sought yet. Whether some have to be waited for.
    pub(crate) fn seeks<'k>(&mut self, tenant: &Tenant, db: u8, keys: impl Iterator<Item = &'k [u8]>) -> bool {
        self.seek_all(tenant, keys.map(|key| (db, key)))
    }

    /// The same of keys in several databases. They are the same ones, in the same order, each time.
    pub(crate) fn seek_all<'k>(&mut self, tenant: &Tenant, keys: impl Iterator<Item = (u8, &'k [u8])>) -> bool {
        let mut access = Access::each(&tenant.store);
        let wanted = &mut self.visit.wanted;
        for (db, bytes) in keys.skip(wanted.sought) {
            if wanted.is_full() {
                break;
            }
            wanted.sought += 1;
            let key = access.store().key(db, bytes);
            if let Some(wish) = seek(tenant, access.shard_of(key.hash), &key, self.now) {
                wanted.push(wish);
            }
        }
        !wanted.wishes.is_empty()
    }
}
