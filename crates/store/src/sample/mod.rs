//! Recording what happens to sampled keys, until it is handed over.
//!
//! Each shard keeps records of its own, under its lock. Invariant: they are all those that the shard's threshold takes,
//! of everything since the last hand-over. A buffer that fills up does not lose any: the threshold is lowered until
//! there is room again. The remaining records are those that the lower threshold would have made from the beginning.

use tidemark_types::{Sample, SampleKind, Samples, SamplingThreshold};

/// The limit of a tenant's records between two hand-overs: 128 KiB. Halving so many takes 12 us, and a shard's lock may
/// be held for 20. A few tenants that fill theirs every second keep the estimators as busy as they may be.
const SAMPLES_MAX: usize = 4096;
/// Each shard's part of that is at least this, so that those of an unevenly used one suffice.
const SHARD_SAMPLES_MIN: usize = 256;

/// The records of a shard.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The threshold only falls between two hand-overs.
    threshold: SamplingThreshold,
    records: Vec<Sample>,
    records_max: usize,
}

impl Sampler {
    pub(crate) fn new(threshold: SamplingThreshold, shard_bits: u32) -> Self {
        Self {
            threshold,
            records: Vec::new(),
            records_max: (SAMPLES_MAX >> shard_bits).max(SHARD_SAMPLES_MIN),
        }
    }

    /// Whether a key of this order is sampled.
    #[inline]
    pub(crate) fn takes(&self, order: u64) -> bool {
        self.threshold.takes(order)
    }

    /// Whether any key is.
    pub(crate) fn is_on(&self) -> bool {
        self.threshold > SamplingThreshold::OFF
    }

    /// Keeps a record. If there were too many, the threshold is now lower and returned.
    pub(crate) fn push(&mut self, sample: Sample) -> Option<SamplingThreshold> {
        if let Some(last) = self.records.last_mut()
            && sample.kind == SampleKind::Flush
            && (last.kind, last.db) == (sample.kind, sample.db)
        {
            // The later one tells all, and a client that does nothing but flush fills nothing.
            *last = sample;
            return None;
        }
        self.records.push(sample);
        if self.records.len() < self.records_max {
            return None;
        }
        let is_flush = |sample: &&Sample| sample.kind == SampleKind::Flush;
        if self.records.iter().filter(is_flush).count() > self.records_max / 4 {
            self.keep_last_flushes();
            return None;
        }
        // Half of the records go. Their order in the buffer does not matter: each has its number.
        let middle = self.records.len() / 2;
        let (_, median, _) = self.records.select_nth_unstable_by_key(middle, |sample| sample.order);
        let lower = SamplingThreshold::below(median.order);
        self.lower_to(lower);
        Some(lower)
    }

    /// Keeps only the last flush of each database: it removes all that the others removed. Flushes have no key, so that
    /// no threshold leaves them out. A client that flushes several databases in turn would fill everything.
    fn keep_last_flushes(&mut self) {
        let mut last: Vec<Sample> = Vec::new();
        self.records.retain(|sample| {
            if sample.kind != SampleKind::Flush {
                return true;
            }
            match last.iter_mut().find(|known| known.db == sample.db) {
                // Numbers may have begun anew at zero meanwhile.
                Some(known) if known.sequence.wrapping_sub(sample.sequence) < 1 << 31 => {}
                Some(known) => *known = *sample,
                None => last.push(*sample),
            }
            false
        });
        self.records.extend(last);
    }

    /// Samples no more keys than this threshold takes, nor has since the last hand-over.
    pub(crate) fn lower_to(&mut self, threshold: SamplingThreshold) {
        if threshold < self.threshold {
            self.threshold = threshold;
            self.records.retain(|sample| threshold.takes(sample.order));
        }
        if threshold == SamplingThreshold::OFF {
            self.records = Vec::new();
        }
    }

    /// Hands everything over and begins anew with another threshold.
    pub(crate) fn take(&mut self, next: SamplingThreshold) -> Samples {
        Samples {
            threshold: std::mem::replace(&mut self.threshold, next),
            records: std::mem::take(&mut self.records),
        }
    }
}

/// The records of a tenant's shards: those that the lowest threshold among them takes, in the order in which things
/// happened. Without shards nothing has happened, and any threshold would have said so.
pub(crate) fn merged(shards: Vec<Samples>, without_shards: SamplingThreshold) -> Samples {
    let lowest = shards.iter().map(|shard| shard.threshold).min();
    let threshold = lowest.unwrap_or(without_shards);
    let differ = shards.iter().any(|shard| shard.threshold != threshold);
    let mut records = Vec::new();
    for shard in shards {
        if records.is_empty() {
            records = shard.records;
        } else {
            records.extend(shard.records);
        }
    }
    if differ {
        records.retain(|sample| threshold.takes(sample.order));
    }
    if let Some(first) = records.first() {
        // Numbers may have begun anew at zero meanwhile: they are counted from half a round before one of them.
        let origin = first.sequence.wrapping_sub(1 << 31);
        records.sort_unstable_by_key(|sample| sample.sequence.wrapping_sub(origin));
    }
    Samples { threshold, records }
}

#[cfg(test)]
mod tests;
