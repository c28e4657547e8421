//! The records of a shard's work for sampled keys.
//!
//! Invariant: every counted get makes one record if its key is sampled. So does every write, delete and change of an
//! expiry that was done. Evictions make none: they depend on the available memory, and gets tell of them.

use tidemark_types::{Sample, SampleKind, Samples, SamplingThreshold, UNIT_BYTES, UnixMs};

use super::{Key, Shard, Value};

impl Shard {
    /// Hands the records over. From now on as many keys are sampled as was set last.
    pub(crate) fn take_samples(&mut self) -> Samples {
        self.sampler.take(self.shared.sampling_threshold())
    }

    /// Samples no more keys than this threshold takes.
    pub(crate) fn lower_sampling(&mut self, threshold: SamplingThreshold) {
        self.sampler.lower_to(threshold);
    }

    /// Records that a database, or all, were emptied in all shards.
    pub(crate) fn sample_flush(&mut self, db: Option<u8>, now: UnixMs) {
        if self.sampler.is_on() {
            let db = db.unwrap_or(Sample::ALL_DATABASES);
            self.record(self.blank(SampleKind::Flush, 0, db, now));
        }
    }

    #[inline]
    pub(super) fn is_sampled(&self, key: &Key<'_>) -> bool {
        self.sampler.takes(key.hash.order())
    }

    /// Records a get of a sampled key that is about to be done. It looks the key up by itself, so that the gets of all
    /// other keys need not keep their findings for it.
    #[cold]
    pub(super) fn sample_get(&mut self, key: &Key<'_>, now: UnixMs) {
        match self.lookup(key, now) {
            Some((_, place)) => self.sample_item(SampleKind::GetHit, key, place, now),
            None => self.sample_absent(SampleKind::GetMiss, key, now),
        }
    }

    /// Records what happened to a sampled key that is not there, or not any more.
    #[cold]
    pub(super) fn sample_absent(&mut self, kind: SampleKind, key: &Key<'_>, now: UnixMs) {
        self.record(self.blank(kind, key.hash.order(), key.db, now));
    }

    /// Records what happened to a sampled key, whose item is at `place`.
    #[cold]
    pub(super) fn sample_item(&mut self, kind: SampleKind, key: &Key<'_>, place: u64, now: UnixMs) {
        let item = self.item(place);
        let payload = item.key().len() + Value::of(item, self.arena()).len();
        let taken = item.bytes() + item.outside_count() as usize * UNIT_BYTES as usize;
        self.record(Sample {
            expires_after_ms: Sample::expires_after_ms(item.expiry(), now),
            payload_bytes: payload as u32,
            item_bytes: taken as u32,
            ..self.blank(kind, key.hash.order(), key.db, now)
        });
    }

    fn blank(&self, kind: SampleKind, order: u64, db: u8, now: UnixMs) -> Sample {
        Sample {
            order,
            sequence: self.shared.next_sample(),
            second: now.seconds() as u32,
            millisecond: (now.0 % 1000) as u16,
            expires_after_ms: Sample::NO_EXPIRY,
            payload_bytes: 0,
            item_bytes: 0,
            kind,
            db,
        }
    }

    fn record(&mut self, sample: Sample) {
        if let Some(lower) = self.sampler.push(sample) {
            self.shared.lower_sampling(lower);
        }
    }
}
