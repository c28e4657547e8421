//! The coordination engine: leases and the domain's document, with the pure decisions of [`crate::membership`].

use std::collections::BTreeMap;

use crate::config::Config;
use crate::membership::{Document, Known};
use crate::types::{CacheletId, Epoch};
use crate::view::{Member, Trial};

/// How long a lease lasts at the engine since the last request for it came.
pub const LEASE_US: u64 = 1_000_000;

/// How much longer a lost member is waited for.
const GUARD_US: u64 = 100_000;

/// The engine.
#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    pub(super) document: Document,
    leases: BTreeMap<CacheletId, (u64, u32)>,
    gone: BTreeMap<CacheletId, u64>,
    pub(super) wanted: Config,
    pub(super) trial: Option<Trial>,
    highest_seen: Epoch,
    revision: u64,
    grace_us: u64,
    backup: Option<(Document, u64)>,
}

impl Coordinator {
    pub(super) fn new(document: Document, grace_us: u64) -> Self {
        Self {
            wanted: document.view.config,
            trial: None,
            document,
            leases: BTreeMap::new(),
            gone: BTreeMap::new(),
            highest_seen: Epoch(0),
            revision: 0,
            grace_us,
            backup: None,
        }
    }

    /// A request for a lease; whether it is granted. Whoever is gone stays gone.
    pub(super) fn renew(&mut self, id: CacheletId, cluster: u32, seen: Epoch, now_us: u64) -> bool {
        self.highest_seen = self.highest_seen.max(seen);
        if self.gone.contains_key(&id) {
            return false;
        }
        self.leases.insert(id, (now_us, cluster));
        self.revision += 1;
        true
    }

    /// Looks at leases and document; whether the document changed.
    pub(super) fn look(&mut self, now_us: u64) -> bool {
        let expired = self.leases.iter().filter(|(_, (at_us, _))| at_us + LEASE_US < now_us);
        let expired: Vec<_> = expired.map(|(id, _)| *id).collect();
        for id in expired {
            self.leases.remove(&id);
            self.gone.insert(id, now_us);
        }
        // A member of the view that is unknown here was there before a restore.
        for id in self.document.view.ids().collect::<Vec<_>>() {
            if !self.leases.contains_key(&id) {
                self.gone.entry(id).or_insert(now_us);
            }
        }
        let mut changed = false;
        while let Some(next) = self.document.advance(&self.known(now_us)) {
            self.document = next;
            self.revision += 1;
            changed = true;
        }
        changed
    }

    fn known(&self, now_us: u64) -> Known {
        let live = self.leases.iter().map(|(id, (_, cluster))| Member {
            id: *id,
            cluster: *cluster,
        });
        let gone = self.gone.iter().filter(|(_, at_us)| **at_us + GUARD_US < now_us);
        Known {
            live: live.collect(),
            surely_gone: gone.map(|(id, _)| *id).collect(),
            config: self.wanted,
            trial: self.trial,
            highest_seen: self.highest_seen,
            revision: self.revision,
            now_us,
            grace_us: self.grace_us,
        }
    }

    /// Keeps a backup.
    pub(super) fn back_up(&mut self) {
        self.backup = Some((self.document.clone(), self.revision));
    }

    /// Comes back as it was at the backup, with no leases. Whoever had one is gone.
    pub(super) fn restore(&mut self, now_us: u64) {
        if let Some((document, revision)) = self.backup.clone() {
            (self.document, self.revision) = (document, revision);
            let ids: Vec<_> = self.leases.keys().copied().collect();
            self.leases.clear();
            self.gone.extend(ids.into_iter().map(|id| (id, now_us + LEASE_US)));
        }
    }
}
