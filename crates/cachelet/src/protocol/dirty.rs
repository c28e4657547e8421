//! Values that were acknowledged ahead of the store (write-back), and their way there.

use super::store_write::{Circumstances, Next, StoreWrite, Written};
use super::{Cachelet, Purpose, Turn};
use crate::message::StoreReply;
use crate::types::{Key, Stamp, Value, Version, WriteId};

/// A value that the store does not have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Dirty {
    pub(super) value: Option<Value>,
    write: WriteId,
    stamp: Stamp,
    /// The version that the store has.
    pub(super) replaces: Version,
    flush_at_us: u64,
    /// The value that is on its way, which may be an older one.
    flush: Option<StoreWrite>,
}

impl Dirty {
    pub(super) fn deadline_us(&self) -> Option<u64> {
        match &self.flush {
            Some(flush) => flush.retry_at_us(),
            None => Some(self.flush_at_us),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.value.as_ref().map_or(0, |value| value.size_bytes)
    }
}

impl Cachelet {
    /// The write holds ahead of the store.
    pub(super) fn commit_dirty(&mut self, turn: &mut Turn, key: &Key) {
        let flush_at_us = turn.now_us + self.settings.flush_us;
        let Some(intent) = self.intent_of_transaction(key) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let old = entry.dirty.take();
        entry.dirty = Some(Dirty {
            value: intent.value,
            write: intent.write,
            stamp: intent.stamp,
            replaces: old.as_ref().map_or(intent.replaces, |old| old.replaces.clone()),
            flush_at_us: old.as_ref().map_or(flush_at_us, |old| old.flush_at_us),
            flush: old.and_then(|old| old.flush),
        });
        self.applied(turn, key, None);
        if self.draining.is_some() {
            self.flush(turn, key);
        }
    }

    /// Sends a value to the store now.
    fn flush(&mut self, turn: &mut Turn, key: &Key) {
        let Some(dirty) = self.entries.get_mut(key).and_then(|entry| entry.dirty.as_mut()) else {
            return;
        };
        if dirty.flush.is_none() {
            dirty.flush = Some(StoreWrite::new(
                dirty.value.clone(),
                dirty.write,
                dirty.replaces.clone(),
            ));
            self.go_on_flushing(turn, key, |write, about| write.request(about));
        }
    }

    /// Sends everything to the store now.
    pub(super) fn flush_all(&mut self, turn: &mut Turn) {
        let dirty = self.entries.iter().filter(|(_, entry)| entry.dirty.is_some());
        let keys: Vec<_> = dirty.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.flush(turn, &key);
        }
    }

    fn go_on_flushing(
        &mut self,
        turn: &mut Turn,
        key: &Key,
        step: impl FnOnce(&mut StoreWrite, Circumstances) -> Next,
    ) {
        let about = self.circumstances(turn);
        let retry_us = self.settings.retry_us;
        let Some(dirty) = self.entries.get_mut(key).and_then(|entry| entry.dirty.as_mut()) else {
            return;
        };
        let Some(flush) = &mut dirty.flush else {
            return;
        };
        let mut next = step(flush, about);
        if let Next::Ended(Written::Moved(version) | Written::Unknown(version)) = next {
            // Nobody but this home writes; a writer outside of the domain wrote before.
            flush.replace(version);
            next = flush.request(about);
        }
        match next {
            Next::Call(request) => self.call(turn, key, request, Purpose::Flush(key.clone())),
            Next::Wait => {}
            Next::Ended(Written::Applied(version)) => self.flushed(turn, key, version),
            // Without a lease, the successor's copy is what remains.
            Next::Ended(_) => {
                dirty.flush = None;
                dirty.flush_at_us = turn.now_us + retry_us;
            }
        }
    }

    pub(super) fn flush_replied(&mut self, turn: &mut Turn, key: &Key, reply: StoreReply) {
        self.go_on_flushing(turn, key, |write, about| write.reply(reply, about));
    }

    fn flushed(&mut self, turn: &mut Turn, key: &Key, version: Version) {
        let config = self.view.config_for(key);
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Some(dirty) = &mut entry.dirty else {
            return;
        };
        let flushed = dirty.flush.take();
        if flushed.is_some_and(|flush| flush.write() != dirty.write) {
            // A newer value was acknowledged meanwhile.
            dirty.replaces = version;
            return self.flush(turn, key);
        }
        let stamp = dirty.stamp;
        entry.dirty = None;
        entry.version = Some(version);
        self.send_release(turn, key, stamp, &config);
    }

    pub(super) fn tick_dirty(&mut self, turn: &mut Turn, key: &Key) {
        let Some(dirty) = self.entries.get_mut(key).and_then(|entry| entry.dirty.as_mut()) else {
            return;
        };
        if dirty.deadline_us().is_none_or(|deadline_us| deadline_us > turn.now_us) {
            return;
        }
        if dirty.flush.is_some() {
            self.go_on_flushing(turn, key, |write, about| write.request(about));
        } else {
            self.flush(turn, key);
        }
    }

    /// Bytes that were acknowledged and that the store does not have.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        let dirty = self.entries.iter().filter_map(|(_, entry)| entry.dirty.as_ref());
        dirty.map(Dirty::size_bytes).sum()
    }

    pub(super) fn has_dirty(&self) -> bool {
        self.entries.iter().any(|(_, entry)| entry.dirty.is_some())
    }

    /// The mistake R9.
    pub(super) fn drop_dirty(&mut self) {
        for entry in self.entries.iter_mut() {
            if entry.dirty.take().is_some() {
                entry.is_known = false;
            }
        }
    }
}
