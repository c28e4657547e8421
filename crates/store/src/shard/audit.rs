//! Checks a shard's invariants from the ground up. For tests.

use std::collections::{HashMap, HashSet};

use super::{DATABASES, Shard};
use crate::item::{Record, record};
use crate::segment::SegmentId;

impl Shard {
    /// # Panics
    /// If an invariant of the store does not hold.
    pub(crate) fn audit(&self) {
        let mut live_items = 0;
        // Units of live stubs, and of dead ones that are being sent.
        let mut outside_units: HashSet<u32> = self
            .outside_pins
            .values()
            .flat_map(|pin| pin.units.iter().copied())
            .collect();
        let mut per_db: HashMap<u8, (u64, u64)> = HashMap::new();
        for (id, segment) in self.log.iter() {
            let (mut live, mut outside) = (0, 0);
            self.walk(id, |place, item| {
                live += item.bytes();
                live_items += 1;
                outside += item.outside_count();
                let hash = self.shared.hasher.hash(item.db(), item.key());
                let found = self
                    .index
                    .find(self.arena(), self.position(hash), hash.tag(), |p| p == place);
                assert!(found.is_some(), "no entry for the live item at {place}");
                outside_units.extend(item.outside());
                if !(self.flush_pending && self.is_flushed(place, item)) {
                    let counts = per_db.entry(item.db()).or_default();
                    counts.0 += 1;
                    counts.1 += u64::from(item.expiry().is_some());
                }
            });
            assert_eq!(segment.live_bytes as usize, live, "live bytes of {id:?} {segment:?}");
            assert_eq!(segment.outside_units, outside, "units outside of {id:?}");
        }
        assert_eq!(self.index.len(), live_items, "entries and live items");
        self.log.audit();
        for db in 0..DATABASES as u8 {
            let counted = (self.items_in(db), self.expiring_in(db));
            assert_eq!(counted, per_db.get(&db).copied().unwrap_or_default(), "database {db}");
        }
        assert_eq!(self.outside, outside_units, "units outside of the log");
        self.audit_units();
    }

    fn audit_units(&self) {
        let segments: u64 = self.log.iter().map(|(_, segment)| segment.run.units()).sum();
        let detached = self.log.detached_units();
        let spare = self.spare.map_or(0, |run| run.units());
        let ghosts = self.ghosts.as_ref().map_or(0, |ghosts| ghosts.units());
        let held =
            segments + detached + spare + ghosts + self.index.units() + self.outside.len() as u64 + self.reserved_units;
        assert_eq!(self.units, held, "units held");
    }

    /// Visits the live items of a segment; of a victim those moved together at its front and those not yet walked.
    fn walk(&self, id: SegmentId, mut visit: impl FnMut(u64, crate::item::Item<'_>)) {
        let segment = &self.log[id];
        let (front, cursor) = self
            .evictions
            .walked(id)
            .unwrap_or((segment.used_bytes, segment.used_bytes));
        for (from, to) in [(0, front), (cursor, segment.used_bytes)] {
            let mut at = from;
            while at < to {
                let place = segment.run.offset() + u64::from(at);
                // SAFETY: both ranges are sequences of items and fillers in a segment of this shard, which is borrowed.
                match unsafe { record(self.arena().at(place, 1)) } {
                    Record::Filler(bytes) => at += bytes as u32,
                    Record::Item(item) => {
                        at += item.bytes() as u32;
                        if !item.is_dead() {
                            visit(place, item);
                        }
                    }
                }
            }
            assert_eq!(at, to, "{id:?} ends inside of an item");
        }
    }
}
