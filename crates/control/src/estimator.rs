//! One tenant's curve, from the data plane's samples of its keys.
//!
//! Invariant: all cost is bounded. The number of followed keys has a maximum. The sampled part of the keys follows from
//! it, and from the number of records a second that the tenant is allowed.

use std::time::Duration;

use crate::hit_cost::HitCost;
use crate::miss_cost::MissCost;
use crate::pace::Between;
use tidemark_curve::{ClassBounds, Contest, Curve, Depth, Held, Profile, Skew, Threshold};
use tidemark_types::{
    MIB, Policy, Sample, SampleKind, SamplingThreshold, ShardSnapshot, TenantSnapshot, UNIT_BYTES, UnixMs,
};

/// Keys that are followed at most.
pub(crate) const KEYS_MAX: usize = 8_192;
/// Fewer would make a curve that says nothing.
pub(crate) const KEYS_MIN: usize = 256;
/// The memory of a key: its record, its places in the table, the row and the heap.
const KEY_BYTES: u64 = 192;
/// The memory of an item in the miniature caches of three policies, with the keys whose sizes they remember.
const CONTEST_ITEM_BYTES: u64 = 450;
/// If fewer keys could be followed beside them, miniature caches cost the curve too much.
const CONTEST_KEYS_MIN: usize = 1_024;
/// The memory of an estimator beside its keys and the counts of their distances.
const OWN_BYTES: u64 = 8 << 10;
/// Distances below this are not told apart: a quarter of the smallest grant.
const GRAIN_BYTES: u64 = UNIT_BYTES / 4;
/// Older counts count half after this time and this many gets.
const HALF_LIFE: Duration = Duration::from_secs(20);
const HALF_LIFE_GETS: f64 = 100_000.0;
/// If nobody waits for a goal, the time grows to a part of that for which the load is known, and at most to this. A
/// small difference between tenants is worth more time than a change of load.
const PATIENT_DIVISOR: u32 = 4;
const PATIENT_MAX: Duration = Duration::from_secs(120);
/// Fading oftener would only cost time.
const FADE_EVERY: Duration = Duration::from_secs(2);
/// Uses of keys, which show the skew, are of the last minutes.
const FADE_USES_EVERY: Duration = Duration::from_secs(60);
/// More keys are sampled no sooner than this after the last time.
const RAISE_EVERY: Duration = Duration::from_secs(10);
/// A tenant that was not reported of for so long asks for nothing.
const QUIET_AFTER: Duration = Duration::from_secs(5);
/// Until then reports may still have earlier samples.
const RAISE_TAKES: Duration = Duration::from_secs(3);
/// Keys that only a cache this much larger than all memory would hold are forgotten.
const TRIM_BEYOND: f64 = 1.5;
/// Taking over so many records takes some ten microseconds.
const RECORDS_PER_PIECE: usize = 64;
/// Memory for a byte of items, while too little is held to say.
const OVERHEAD_AT_FIRST: f64 = 1.2;
const OVERHEAD: (f64, f64) = (1.02, 2.0);
/// The largest items of the size classes, in bytes: beside small ones what each takes for itself counts, and flash takes none of the
/// last class.
const CLASS_BOUNDS: ClassBounds = [512, 8 << 10, LARGEST_ON_FLASH_BYTES];
/// Values above a quarter of a MiB stay in memory. A key and what goes with it are a little more.
const LARGEST_ON_FLASH_BYTES: u64 = (256 << 10) + 256;
/// Classes of which flash takes items.
pub(crate) const CLASSES_ON_FLASH: usize = CLASS_BOUNDS.len();
/// Less is too little to say.
const OVERHEAD_LIVE_BYTES_MIN: u64 = 2 * MIB;

/// How far a tenant's curve reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The bytes that it may come to hold.
    pub(crate) bytes: u64,
    /// Hits are counted by size class: there is flash, which takes items of other sizes differently.
    pub(crate) has_classes: bool,
}

/// The limits of an estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Keys that it follows.
    pub(crate) keys: usize,
    /// Items that each of the competing policies' miniature caches may have.
    pub(crate) contest_items: usize,
}

impl Limits {
    /// The least that says something.
    pub(crate) const LEAST: Self = Self {
        keys: KEYS_MIN,
        contest_items: 0,
    };

    /// In so many bytes, for a curve that reaches so far, of a tenant whose policies compete or not; `None` if that is too
    /// little.
    pub(crate) fn within(bytes: u64, span: Span, compete: bool) -> Option<Self> {
        let bytes = bytes.saturating_sub(fixed_bytes(span));
        let fit = |each: u64| usize::try_from(bytes / each).unwrap_or(KEYS_MAX).min(KEYS_MAX);
        let beside = fit(KEY_BYTES + CONTEST_ITEM_BYTES);
        let limits = if compete && beside >= CONTEST_KEYS_MIN {
            Self {
                keys: beside,
                contest_items: beside,
            }
        } else {
            Self {
                keys: fit(KEY_BYTES),
                contest_items: 0,
            }
        };
        (limits.keys >= KEYS_MIN).then_some(limits)
    }
}

/// The least memory that an estimator is worth whose curve reaches so far.
pub(crate) fn least_bytes(span: Span) -> u64 {
    fixed_bytes(span) + KEYS_MIN as u64 * KEY_BYTES
}

/// The memory that does not depend on the number of followed keys.
fn fixed_bytes(span: Span) -> u64 {
    let reach_bytes = (span.bytes as f64 * TRIM_BEYOND) as u64;
    OWN_BYTES + Profile::distance_bytes(GRAIN_BYTES, reach_bytes, span.has_classes)
}

/// The knowledge of a tenant's keys.
#[derive(Debug)]
pub(crate) struct Estimator {
    profile: Profile,
    limits: Limits,
    /// The threshold that the next plan asks the data plane to use.
    asked: SamplingThreshold,
    /// The counter of gets in the last report.
    gets: u64,
    /// Gets since the last fading.
    gets_to_fade: f64,
    faded_at: UnixMs,
    /// The time since which the load is known.
    began_at: UnixMs,
    is_patient: bool,
    uses_faded_at: UnixMs,
    raised_at: UnixMs,
    reported_at: UnixMs,
    /// Records and gets a second, smoothed.
    records_per_second: f64,
    gets_per_second: f64,
    overhead: f64,
    /// Databases that records were of, a bit for each.
    databases: u16,
    contest: Option<Contest>,
    hit_cost: HitCost,
    flash_wait: HitCost,
    miss_cost: MissCost,
}

impl Estimator {
    /// Nothing known yet, and every key sampled. Gets are counted from `gets_before` on.
    pub(crate) fn new(limits: Limits, now: UnixMs, gets_before: u64) -> Self {
        Self::with(Profile::of_samples(limits.keys, GRAIN_BYTES), limits, now, gets_before)
    }

    /// The same with hits counted by size class, too.
    pub(crate) fn of_classes(limits: Limits, now: UnixMs, gets_before: u64) -> Self {
        let profile = Profile::of_classes(limits.keys, GRAIN_BYTES, CLASS_BOUNDS);
        Self::with(profile, limits, now, gets_before)
    }

    fn with(profile: Profile, limits: Limits, now: UnixMs, gets_before: u64) -> Self {
        Self {
            profile,
            limits,
            asked: SamplingThreshold::ALL,
            gets: gets_before,
            gets_to_fade: 0.0,
            faded_at: now,
            began_at: now,
            is_patient: false,
            uses_faded_at: now,
            raised_at: UnixMs(0),
            reported_at: now,
            records_per_second: 0.0,
            gets_per_second: 0.0,
            overhead: OVERHEAD_AT_FIRST,
            databases: 0,
            contest: None,
            hit_cost: HitCost::default(),
            flash_wait: HitCost::default(),
            miss_cost: MissCost::default(),
        }
    }

    /// Takes what happened since the last report.
    pub(crate) fn observe(&mut self, now: UnixMs, report: &TenantSnapshot, between: Between<'_>) {
        let gets = report.counters.gets.saturating_sub(self.gets);
        self.gets = report.counters.gets;
        self.overhead = overhead(report.usage_bytes, &report.shards);
        self.hit_cost.observe(now, report.counters.served);
        if let Some(flash) = report.counters.flash {
            self.flash_wait.observe(now, flash.waited);
        }
        self.fade(now, gets);
        if report.samples.threshold == SamplingThreshold::OFF {
            return;
        }
        // A plan that is not in force yet would have taken no more than was asked for.
        self.profile
            .sample(Threshold::of(report.samples.threshold.min(self.asked)));
        self.profile.count_gets(gets);
        for piece in report.samples.records.chunks(RECORDS_PER_PIECE) {
            for sample in piece {
                self.take(sample);
            }
            between();
        }
        let elapsed = now.since(self.reported_at).as_secs_f64().max(0.001);
        self.reported_at = now;
        // Over about three seconds, whatever the time between reports.
        let weight = 1.0 - (-elapsed / 3.0).exp();
        let records = report.samples.records.len() as f64;
        self.records_per_second += (records / elapsed - self.records_per_second) * weight;
        self.gets_per_second += (gets as f64 / elapsed - self.gets_per_second) * weight;
    }

    fn take(&mut self, sample: &Sample) {
        let now = UnixMs(u64::from(sample.second) * 1000);
        let held = Held {
            bytes: u64::from(sample.item_bytes),
            expiry: sample.expiry(),
        };
        if let Some(contest) = &mut self.contest {
            match sample.kind {
                SampleKind::GetHit => contest.get(sample.order, Some(held.bytes)),
                SampleKind::GetMiss => contest.get(sample.order, None),
                SampleKind::Fill => contest.set(sample.order, held.bytes),
                SampleKind::Overwrite | SampleKind::Retime | SampleKind::Delete | SampleKind::Flush => {}
            }
        }
        match sample.kind {
            SampleKind::GetMiss => self.miss_cost.missed(sample.order, sample.at()),
            SampleKind::Fill => self.miss_cost.filled(sample.order, sample.at()),
            _ => {}
        }
        match sample.kind {
            SampleKind::GetHit => self.profile.live_get(sample.order, Some(held), now),
            SampleKind::GetMiss => self.profile.live_get(sample.order, None, now),
            SampleKind::Fill | SampleKind::Overwrite => self.profile.live_set(sample.order, held, now),
            SampleKind::Retime => self.profile.live_retime(sample.order, held),
            SampleKind::Delete => self.profile.delete(sample.order),
            SampleKind::Flush => return self.flush(sample.db),
        }
        self.databases |= 1 << (sample.db % 16);
    }

    /// A database was emptied. The databases of keys are not known. If there are several, the others' keys become
    /// unknown too, and are met again as hits that say nothing.
    fn flush(&mut self, db: u8) {
        if db == Sample::ALL_DATABASES || self.databases & (1 << (db % 16)) != 0 {
            self.profile.clear();
            self.databases = 0;
        }
    }

    fn fade(&mut self, now: UnixMs, gets: u64) {
        self.gets_to_fade += gets as f64;
        let elapsed = now.since(self.faded_at);
        if elapsed >= FADE_EVERY {
            let half_life = if self.is_patient {
                (now.since(self.began_at) / PATIENT_DIVISOR).clamp(HALF_LIFE, PATIENT_MAX)
            } else {
                HALF_LIFE
            };
            let lives = (elapsed.as_secs_f64() / half_life.as_secs_f64()).min(self.gets_to_fade / HALF_LIFE_GETS);
            self.profile.fade(0.5_f64.powf(lives));
            self.gets_to_fade = 0.0;
            self.faded_at = now;
        }
        if now.since(self.uses_faded_at) >= FADE_USES_EVERY {
            self.profile.fade_uses();
            self.uses_faded_at = now;
        }
    }

    /// The load is another one than until now: a sure curve would be one of the past.
    pub(crate) fn note_change(&mut self, now: UnixMs) {
        self.began_at = now;
    }

    /// Whether a curve that is sure is better than one that is new.
    pub(crate) fn set_patient(&mut self, is_patient: bool) {
        self.is_patient = is_patient;
    }

    /// The load is another one: the curve begins anew. Keys and the order of their use stay known.
    pub(crate) fn begin_anew(&mut self, now: UnixMs) {
        self.note_change(now);
        self.profile.fade(0.0);
        self.profile.forget_horizon();
        self.faded_at = now;
        self.gets_to_fade = 0.0;
    }

    /// Keeps within bounds: so much memory, so many records a second, and nothing that only a cache far larger than
    /// `memory_bytes` would hold. Whether the data plane is to sample another part of the keys.
    pub(crate) fn keep_within(
        &mut self,
        now: UnixMs,
        limits: Limits,
        records_per_second: f64,
        memory_bytes: u64,
    ) -> bool {
        if limits.keys != self.limits.keys {
            self.profile.limit_keys(limits.keys);
        }
        self.limits = limits;
        let known_bytes = (memory_bytes as f64 / self.overhead * TRIM_BEYOND) as u64;
        self.profile.trim(known_bytes);
        self.profile.limit_distances(known_bytes);
        let mut part = self.profile.threshold().sampling();
        let excess = self.records_per_second(now) / records_per_second.max(1.0);
        let has_room = self.profile.sampled_keys() < limits.keys as u64 / 2 && excess < 0.4;
        if excess > 1.0 {
            part = scaled(part, 1.0 / excess);
            // The smoothed rate would otherwise lower it again and again.
            self.records_per_second /= excess;
        } else if has_room && now.since(self.raised_at) >= RAISE_EVERY {
            part = scaled(part, 2.0);
            self.raised_at = now;
        } else if now.since(self.raised_at) < RAISE_TAKES {
            part = part.max(self.asked);
        }
        std::mem::replace(&mut self.asked, part) != part
    }

    /// The threshold that the data plane is to use.
    pub(crate) fn asked(&self) -> SamplingThreshold {
        self.asked
    }

    /// Records a second that the data plane makes.
    pub(crate) fn records_per_second(&self, now: UnixMs) -> f64 {
        self.while_reported(now, self.records_per_second)
    }

    /// Gets a second, sampled or not.
    pub(crate) fn gets_per_second(&self, now: UnixMs) -> f64 {
        self.while_reported(now, self.gets_per_second)
    }

    /// Nothing is reported of a tenant that nothing is asked of.
    fn while_reported(&self, now: UnixMs, rate: f64) -> f64 {
        if now.since(self.reported_at) < QUIET_AFTER {
            rate
        } else {
            0.0
        }
    }

    /// Lets these policies compete in the tenant's present memory, and gives the competition. `None` while there is too
    /// little to tell them apart, or too little memory for it.
    pub(crate) fn contest(&mut self, policies: &[Policy], usage_bytes: u64, items: u64) -> Option<&mut Contest> {
        // The bytes of items, and of the keys that the policy in force remembers of others. A policy that does has less
        // for items.
        let bytes = usage_bytes as f64 / self.overhead;
        let sizes = |policy: &Policy| {
            let ghost_bytes = policy.ghost_bytes_per_item() * items as f64;
            (*policy, (bytes - ghost_bytes.min(bytes / 2.0)) as u64)
        };
        let policies: Vec<_> = policies.iter().map(sizes).collect();
        let threshold = self.profile.threshold();
        if items as f64 * threshold.ratio() > self.limits.contest_items as f64 {
            self.contest = None;
            return None;
        }
        if !self
            .contest
            .as_ref()
            .is_some_and(|contest| contest.is_about(&policies, threshold))
        {
            self.contest = Contest::new(&policies, items, threshold);
        }
        self.contest.as_mut()
    }

    /// Ends the competition.
    pub(crate) fn end_contest(&mut self) {
        self.contest = None;
    }

    /// The time of a hit from the client's side, as far as it was measured.
    pub(crate) fn hit_cost(&self) -> Option<Duration> {
        self.hit_cost.mean()
    }

    /// The time that a command waits for an item on flash, as far as it was measured.
    pub(crate) fn flash_wait(&self) -> Option<Duration> {
        self.flash_wait.mean()
    }

    /// The time of a miss from the client's side, as far as it was seen.
    pub(crate) fn miss_cost(&self) -> Option<Duration> {
        self.miss_cost.mean()
    }

    /// The curve of an LRU cache of bare items.
    pub(crate) fn curve(&self) -> Curve {
        self.profile.curve()
    }

    /// Hits and bytes of each size class, by depth.
    pub(crate) fn depths(&self) -> Vec<Depth> {
        self.profile.depths()
    }

    /// Gets that the curve is made of.
    pub(crate) fn curve_gets(&self) -> u64 {
        self.profile.gets()
    }

    /// When something was last known of it.
    pub(crate) fn reported_at(&self) -> UnixMs {
        self.reported_at
    }

    /// Keys that there are, as far as they were met.
    pub(crate) fn keys(&self) -> u64 {
        self.profile.keys()
    }

    /// How unevenly the keys are used.
    pub(crate) fn skew(&self) -> Option<Skew> {
        self.profile.skew()
    }

    /// Memory held for each byte of bare items.
    pub(crate) fn overhead(&self) -> f64 {
        self.overhead
    }
}

fn scaled(part: SamplingThreshold, factor: f64) -> SamplingThreshold {
    // At least one of 2^24, so that a threshold that fell for a busy time can rise again.
    SamplingThreshold::new(((f64::from(part.get()) * factor) as u32).max(1))
}

/// Memory that a tenant holds for each byte of live items.
fn overhead(usage_bytes: u64, shards: &[ShardSnapshot]) -> f64 {
    let beside: u64 = shards
        .iter()
        .map(|shard| shard.index_bytes + shard.free_bytes + shard.dead_bytes)
        .sum();
    let live = usage_bytes.saturating_sub(beside);
    if live < OVERHEAD_LIVE_BYTES_MIN {
        return OVERHEAD_AT_FIRST;
    }
    (usage_bytes as f64 / live as f64).clamp(OVERHEAD.0, OVERHEAD.1)
}

#[cfg(test)]
mod tests;
