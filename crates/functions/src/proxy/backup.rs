//! Backups: two instances of one function are brought in step through a relay here (the paper's section 4.2, Figure 10).
//!
//! The source is asked over its connection. Since it is busy with that, the cloud answers an invocation beside it with another
//! instance, the destination. Both connect to this proxy, which passes on what they say. The source serves meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::member::{Event, Member, Pending, call};
use super::stats::add;
use super::{Inner, Job};
use crate::event::{Returned, Work};
use crate::tls::Stream;
use crate::wire::{Frame, Join};

/// A backup that takes longer is given up. A function of 10 GB that is copied whole at 100 MB/s takes less.
const BACKUP_PATIENCE: Duration = Duration::from_secs(120);
/// Bytes that a relay has under way, each way.
const RELAY_BYTES: usize = 64 << 10;

/// A member's state of its backup.
#[derive(Debug, Default)]
pub(super) struct Backup {
    /// The end of the relay that has come, and which it is, until the other comes.
    first: Option<(bool, Stream)>,
    /// Since when the source is at it.
    began: Option<Instant>,
}

impl Member {
    /// A backup is wanted: unless one is under way, or there is nothing to back up.
    pub(super) fn want_backup(&mut self) {
        let is_backup = |pending: &Pending| matches!(pending.job, Job::Backup);
        let is_wanted = self.waiting.iter().chain(self.sent.values()).any(is_backup);
        if !is_wanted && !self.link.has_peer() && self.inner.pool().chunks_of(self.index) > 0 {
            let (job, attempts) = (Job::Backup, 0);
            self.waiting.push_back(Pending { job, attempts });
        }
    }

    /// The source is asked: the destination is invoked beside it.
    pub(super) fn begin_backup(&mut self, id: u32) -> Frame {
        self.backup = Backup {
            first: None,
            began: Some(Instant::now()),
        };
        if let Some((name, event)) = self.invocation(Work::Backup, self.link.epoch()) {
            self.link.set_peer(true);
            let (inner, to) = (Arc::clone(&self.inner), self.events.0.clone());
            tokio::spawn(async move {
                let copied = call(&inner, &name, event, Work::Backup, Arc::default()).await;
                let _ = to.send(Event::Copied(copied)).await;
            });
        }
        Frame::Backup { id }
    }

    /// One end of the relay is here. When both are, they are joined.
    pub(super) fn join(&mut self, join: &Join, stream: Stream) {
        if join.epoch != self.link.epoch() || self.backup.began.is_none() {
            return;
        }
        match self.backup.first.take() {
            Some((is_source, first)) if is_source != join.is_source => {
                tokio::spawn(relay(Arc::clone(&self.inner), first, stream));
            }
            _ => self.backup.first = Some((join.is_source, stream)),
        }
    }

    /// The source has nothing to do with it any more: it has finished, or given up, or is gone.
    pub(super) fn end_backup(&mut self, is_done: bool) {
        let counts = &self.inner.counts;
        add(
            if is_done {
                &counts.backups
            } else {
                &counts.failed_backups
            },
            1,
        );
        if let Some(began) = self.backup.began.take() {
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            add(&self.backing_ms, took_ms);
        }
        self.backup.first = None;
    }

    /// The destination returned.
    pub(super) fn copied(&mut self, returned: Option<Returned>) {
        self.link.set_peer(false);
        if let Some(returned) = returned {
            self.instances.copied(returned.instance);
        }
    }
}

/// Passes on what two instances say to each other, until both have said all.
async fn relay(inner: Arc<Inner>, mut one: Stream, mut other: Stream) {
    let passing = tokio::io::copy_bidirectional_with_sizes(&mut one, &mut other, RELAY_BYTES, RELAY_BYTES);
    if let Ok(Ok((there, back))) = tokio::time::timeout(BACKUP_PATIENCE, passing).await {
        add(&inner.counts.backup_bytes, there + back);
    }
}

/// The instances of a function that are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instances {
    /// The one that was invoked last.
    last: Option<u64>,
    /// The other, if there was a backup.
    peer: Option<u64>,
}

impl Instances {
    /// An instance was invoked. Whether it takes the place of one that was reclaimed.
    pub(super) fn invoked(&mut self, instance: u64) -> bool {
        if self.last == Some(instance) {
            return false;
        }
        if self.peer == Some(instance) {
            std::mem::swap(&mut self.last, &mut self.peer);
            return false;
        }
        self.last.replace(instance).is_some()
    }

    /// An instance was brought in step with the last.
    fn copied(&mut self, instance: u64) {
        if self.last != Some(instance) {
            self.peer = Some(instance);
        }
    }

    /// The one that was invoked last.
    pub(super) fn last(&self) -> Option<u64> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_no_stranger() {
        let mut instances = Instances::default();
        assert!(!instances.invoked(1), "the first one");
        instances.copied(2);
        assert!(!instances.invoked(2) && !instances.invoked(1) && !instances.invoked(2));
        assert!(instances.invoked(3), "both are gone");
        assert_eq!(instances.last(), Some(3));
    }
}
