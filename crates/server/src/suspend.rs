//! Commands that wait for flash or for a script: what they wait for, and how their connections go on.
//!
//! A command keeps its place at the beginning of its connection's input while its items are read. Nothing behind it is
//! executed, no lock is held, and its worker serves others. When all of them have come, the command is executed from
//! its beginning, and finds its items in memory. At most [`waits::WAITS_MAX`] reads of [`waits::WAITED_BYTES_MAX`] together are
//! wanted at a time. A command of more keys goes on with the next ones when these have come.

mod parked;
mod segment;
mod suspended;
mod waits;

use std::time::Duration;

use tidemark_flash::Barrier;
use tidemark_plane::Purpose;
use tidemark_store::{Key, ShardGuard};
use tidemark_types::UnixMs;

use crate::access::Access;
use crate::connection::Connection;
use crate::progress::Progress;
use crate::session::Exec;
use crate::tenant::Tenant;

pub(crate) use parked::{Parked, Share};
pub(crate) use segment::{Came, Segment};
pub(crate) use suspended::Suspended;
pub(crate) use waits::{Wait, Waits};

/// Reads of a worker that are under way at a time.
pub(crate) const READS_MAX: usize = 128;
/// Memory that they are read into.
pub(crate) const READ_BYTES_MAX: usize = 16 << 20;
/// A command waits so long; an item that was not read by then is a miss.
pub(crate) const FLASH_DEADLINE: Duration = Duration::from_secs(5);

/// Asks for a key, whose shard this is.
pub(crate) fn seek(
    tenant: &Tenant,
    shard: &mut ShardGuard<'_>,
    key: &Key<'_>,
    purpose: Purpose,
    now: UnixMs,
) -> Option<Wait> {
    let read = tenant.tier.as_ref()?.seek(shard, key, purpose, now)?;
    Some(Wait::Read(read, purpose))
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
        self.visit.waits.push(Wait::Durable(barrier))
    }

    /// Whether a command that has to wait for flash may not, because as many of the tenant's do as may. Then it waits for nothing.
    pub(crate) fn is_kept_from_flash(&mut self, tenant: &Tenant) -> bool {
        // One that has waited goes on: it is one of those that are counted.
        let is_full = !self.visit.is_resumed() && tenant.suspended.is_full(&self.shared.limits);
        if is_full {
            self.visit.waits.forget();
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
        let waits = &mut self.visit.waits;
        for (db, bytes, purpose) in keys.skip(waits.sought()) {
            if waits.is_full() {
                break;
            }
            waits.note_sought();
            let key = access.store().key(db, bytes);
            if let Some(wait) = seek(tenant, access.shard_of(key.hash), &key, purpose, self.now) {
                waits.push(wait);
            }
        }
        !waits.is_empty()
    }
}
