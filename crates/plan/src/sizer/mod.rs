//! How much memory one tenant needs for its hit ratio.
//!
//! Two things are followed apart: the source of the size ([`Phase`]) and the standing of the goal ([`Verdict`]).
//!
//! ```text
//!             a size was measured                  meets                 no memory would help
//!   Fitting ----------------------> Tuning   Open -------> Met     Open, Met -----------------> Doubted
//!      ^                              |        ^            |                                      |
//!      |  another load, another goal  |        +------------+                       patience ends  |
//!      +------------------------------+       missed, and memory may help                          v
//!                                             (also from Doubted and Hopeless)                 Hopeless
//! ```
//!
//! | event | phase | verdict | consequence |
//! |---|---|---|---|
//! | the hit ratio leaves what was expected: another load | `Fitting` | `Open` | the policy is learnt anew; after a recent move, shrinking waits longer |
//! | the goal moves by more than a step mends | `Fitting` | `Open` | shrinking waits no more |
//! | the cache is full, and the curve asks for more | - | - | `Fitting`: the size jumps to the curve's |
//! | the size or its use changes | - | - | an interval begins after a quiet moment |
//! | an interval of a full cache, or one that meets the goal | `Tuning` | - | what was learnt of the policy weighs in |
//! | an interval meets the goal | - | `Met` | its size is enough; above the goal, a step down |
//! | an interval misses it, and memory may help | - | `Open` | a step up |
//! | an interval misses it, and no memory would help | - | `Doubted`, then `Hopeless` | `Hopeless`: a step towards what is of use |
//!
//! Invariant: a size is only left for a reason. Either the load changed, or a whole interval at that size missed the goal
//! by more than chance explains. It grows only if the curve shows misses that more memory would turn into hits, or ends
//! too early to say. It asks for no more than before while the tenant's memory is not used yet. A size is asked for
//! until it is granted, or until something says that it is not needed.

mod hold;
mod look;
mod phase;
mod tuning;

use std::time::Duration;

use tidemark_types::{UNIT_BYTES, UnixMs};

use crate::count::{Count, Measured};
use crate::load::LoadWatch;
use crate::reach::{HitGoal, MET_WITHIN, meets};
use crate::reading::{GoalState, Reading, Sizing};
use crate::slope::EFFICIENCY;
use hold::Hold;
use look::{Fit, Here, predicted};
use phase::{Evidence, Phase, Verdict};
use tuning::{CURVES, INTERVALS, MISSES, STEPS};

/// One tenant's way to its goal.
#[derive(Debug, Default)]
pub struct Sizer {
    phase: Phase,
    verdict: Verdict,
    load: Load,
    interval: Interval,
    policy: Learnt,
    hold: Hold,
    asked: Asked,
    /// The last interval's measurement.
    measured: Option<Measured>,
    best: Option<f64>,
    /// The least size at which an interval met the goal.
    enough: Option<u64>,
    /// The goal that was aimed at last, but for its small moves since.
    goal: Option<f64>,
}

/// The present requirement of the tenant.
#[derive(Debug)]
struct Load {
    watch: LoadWatch,
    /// When it began; `None` until the first reading.
    since: Option<Count>,
    /// Whether keys that seem to be new may just not have been met yet.
    is_young: bool,
    /// Whether there was ever another one.
    has_changed: bool,
}

/// The measurement in progress.
#[derive(Debug, Default)]
struct Interval {
    /// The count at its beginning; `None` until the first reading.
    from: Option<Count>,
    /// Until then none begins.
    quiet_until: UnixMs,
    /// The grant of the last reading.
    grant_bytes: u64,
    is_full: bool,
}

/// The knowledge of the tenant's policy.
#[derive(Debug)]
struct Learnt {
    /// Memory of an LRU cache over that of the real policy, for the same hit ratio.
    efficiency: f64,
    /// The number of intervals that taught it, each weighted by its certainty.
    intervals: f64,
    /// By how much another policy hits oftener in the same memory, and was not drawn from the size yet.
    gained: f64,
}

/// The last answer.
#[derive(Debug, Default)]
struct Asked {
    answer: Sizing,
    /// The goal for which that size exceeded the available memory. Other tenants may come first, and give it up only as
    /// they no longer need it. 0 stands for any goal of a remembered size. `None` if nothing is waited for.
    waits_for: Option<f64>,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            watch: LoadWatch::default(),
            since: None,
            is_young: true,
            has_changed: false,
        }
    }
}

impl Default for Learnt {
    fn default() -> Self {
        Self {
            efficiency: 1.0,
            intervals: 0.0,
            gained: 0.0,
        }
    }
}

impl Sizer {
    /// One that wants so much until something is known of the load: the tenant's need before it was idle.
    pub fn remembering(bytes: u64) -> Self {
        Self {
            asked: Asked {
                answer: Sizing {
                    bytes,
                    ..Sizing::default()
                },
                waits_for: Some(0.0),
            },
            ..Self::default()
        }
    }

    /// The same of a load that is known since `since`: keys that were met before the goal was set are not new.
    #[must_use]
    pub fn knowing_since(mut self, since: Count) -> Self {
        self.load.since = Some(since);
        self
    }

    /// From now on another policy decides, with so many more hits per get in the same memory.
    pub fn gain(&mut self, hit_ratio: f64) {
        self.policy.gained += hit_ratio;
    }

    /// Whether the goal is reached, as far as was measured.
    pub fn state(&self) -> GoalState {
        self.verdict.state()
    }

    /// The best hit ratio that the memory there could be would give, once it is known.
    pub fn best_hit_ratio(&self) -> Option<f64> {
        self.best
    }

    /// Memory of an LRU cache over that of the tenant's policy for the same hit ratio, as far as it was learnt.
    pub fn efficiency(&self) -> f64 {
        self.policy.efficiency
    }

    /// Takes a reading; gives the size to have from now on.
    pub fn step(&mut self, reading: &Reading<'_>) -> Sizing {
        let count = Count {
            at: reading.now,
            gets: reading.gets,
            hits: reading.hits,
        };
        let load = *self.load.since.get_or_insert(count);
        let aimed_at = *self.goal.get_or_insert(reading.goal);
        if (aimed_at - reading.goal).abs() > MISSES.fit_beyond {
            self.goal = Some(reading.goal);
            self.aim_anew();
        }
        if self.is_moved_by_others(reading) {
            self.load.watch.expect_anything();
        }
        if self.load.watch.note(count) {
            self.restart(count);
            return Sizing {
                bytes: reading.grant_bytes,
                predicted: None,
                load_changed: true,
            };
        }
        let is_full = self.look_at_size(reading, count);
        let asked_for = reading.gets.saturating_sub(load.gets);
        self.load.is_young = asked_for < CURVES.young_gets_per_key.saturating_mul(reading.keys);
        let here = self.here(reading);
        let fit = self.fit(reading);
        if self.policy.gained > 0.0 {
            // The observations are of the policy before.
            self.interval.from = Some(count);
        }
        let measured = self.measure(count);
        if let Some(measured) = measured {
            self.measured = Some(measured);
            // Near the goal there is nothing left to fill or to shrink: a hit ratio that leaves it from here on is
            // another load.
            if (measured.hit_ratio - reading.goal).abs() <= 2.0 * MET_WITHIN {
                self.load.watch.set_expected(measured.hit_ratio);
            }
        }
        self.judge(reading, here);
        let sizing = self.size(reading, here, fit, measured);
        let moves = sizing.bytes != self.standing(reading).bytes;
        self.ask(reading, sizing, moves);
        if let Some(measured) = measured {
            if !moves && measured.elapsed >= INTERVALS.calm {
                self.load.watch.set_expected(measured.hit_ratio);
            }
            if moves || measured.elapsed >= self.longest_interval(reading, is_full, measured) {
                self.interval.from = Some(count);
                if let Some(here) = here.filter(|_| is_full && !self.holds_past(reading)) {
                    self.learn(reading, here, measured);
                }
            }
        }
        sizing
    }

    /// Whether others took the requested memory, or left memory to a goal that claims none: the hit ratio follows.
    fn is_moved_by_others(&self, reading: &Reading<'_>) -> bool {
        let before = self.interval.grant_bytes;
        let is_taken = reading.grant_bytes < before && is_less(reading.grant_bytes, self.asked.answer.bytes);
        let is_left = reading.grant_bytes > before && self.state() == GoalState::Infeasible;
        is_taken || is_left
    }

    /// Begins a new interval if the size or its use changed. Whether all that may be held is held.
    fn look_at_size(&mut self, reading: &Reading<'_>, count: Count) -> bool {
        let interval = &mut self.interval;
        let is_full = reading.is_full() || interval.is_full && reading.is_nearly_full();
        // More than is used changes nothing: it may come bit by bit, as fast as it is filled.
        let is_resized =
            reading.grant_bytes < interval.grant_bytes || (is_full && reading.grant_bytes != interval.grant_bytes);
        if interval.from.is_none() || is_resized || is_full != interval.is_full {
            interval.quiet_until = reading.now.plus(INTERVALS.quiet_after_move);
            interval.is_full = is_full;
        }
        interval.grant_bytes = reading.grant_bytes;
        if reading.now <= interval.quiet_until {
            interval.from = Some(count);
        }
        is_full
    }

    /// Takes over an answer, and whether it is waited for.
    fn ask(&mut self, reading: &Reading<'_>, answer: Sizing, moves: bool) {
        self.asked.waits_for = if !is_less(reading.grant_bytes, answer.bytes) {
            None
        } else if moves {
            Some(reading.goal)
        } else {
            self.asked.waits_for
        };
        self.asked.answer = answer;
    }

    /// How long an interval goes on that gives no reason for a move.
    fn longest_interval(&self, reading: &Reading<'_>, is_full: bool, measured: Measured) -> Duration {
        if is_full && self.policy.intervals < CURVES.learnt_something {
            INTERVALS.calm_at_first
        } else if !is_full || MISSES.certain * measured.standard_error <= MISSES.dead_band_of(reading.goal) {
            INTERVALS.calm
        } else {
            INTERVALS.most
        }
    }

    /// The goal changed noticeably. The knowledge of the load and its policy stays true.
    fn aim_anew(&mut self) {
        self.phase = Phase::Fitting;
        self.verdict = Verdict::Open;
        self.enough = None;
        self.hold.release();
        self.asked.waits_for = None;
    }

    /// The load is another one.
    fn restart(&mut self, count: Count) {
        self.load.watch.expect_anything();
        self.load.has_changed = true;
        self.load.since = Some(count);
        self.interval.from = Some(count);
        // The items of the load before are still being asked for or missed.
        self.interval.quiet_until = count.at.plus(INTERVALS.quiet_after_move);
        self.phase = Phase::Fitting;
        self.verdict = Verdict::Open;
        self.asked.waits_for = None;
        self.policy = Learnt {
            gained: self.policy.gained,
            ..Learnt::default()
        };
        self.best = None;
        self.measured = None;
        self.enough = None;
        self.hold.note_change(count.at);
    }

    /// The interval's measurement, if it is long enough to say something.
    fn measure(&self, count: Count) -> Option<Measured> {
        let measured = count.since(self.interval.from?)?;
        let is_whole = measured.gets >= INTERVALS.gets && measured.elapsed >= INTERVALS.least;
        (is_whole || measured.elapsed >= INTERVALS.most).then_some(measured)
    }

    /// Whether the goal is met, can be met, or cannot.
    fn judge(&mut self, reading: &Reading<'_>, here: Option<Here>) {
        let (Some(here), Some(measured)) = (here, self.measured) else {
            return;
        };
        // The gain from more memory is the curve's beyond the present size, on top of the measured hit ratio.
        let best = (measured.hit_ratio + here.potential).min(1.0);
        let is_at_most = reading.grant_bytes >= reading.most_bytes && reading.is_full();
        let chance = 2.0 * here.error.hypot(measured.standard_error);
        let evidence = if meets(HitGoal::plainly(reading.goal), &measured) {
            Evidence::Meets
        } else if is_at_most || best + MET_WITHIN + chance < reading.goal {
            Evidence::Helpless
        } else {
            Evidence::MayHelp
        };
        let patience = MISSES.patience * if self.load.is_young { 2 } else { 1 };
        self.verdict = self.verdict.after(evidence, reading.now, patience);
        if self.verdict == Verdict::Met {
            self.best = Some(best);
        } else if self.verdict.is_out_of_patience(reading.now, patience) {
            self.best = Some(if is_at_most { measured.hit_ratio } else { best });
        }
    }

    /// The size that the tenant has, or still waits for.
    fn standing(&self, reading: &Reading<'_>) -> Sizing {
        let is_wanted = |goal: f64| goal <= reading.goal && is_less(reading.grant_bytes, self.asked.answer.bytes);
        let waits = self.asked.waits_for.is_some_and(is_wanted);
        Sizing {
            bytes: if waits {
                self.asked.answer.bytes
            } else {
                reading.grant_bytes
            }
            .min(reading.most_bytes),
            predicted: self.asked.answer.predicted.filter(|_| waits),
            load_changed: false,
        }
    }

    /// A remembered size that is still waited for. It knows better than the curve and the misses of the first keys.
    fn remembered(&self, reading: &Reading<'_>) -> Option<u64> {
        let standing = self.standing(reading);
        let is_remembered = self.load.is_young && standing.predicted.is_none() && standing.bytes > reading.grant_bytes;
        is_remembered.then_some(standing.bytes)
    }

    fn size(
        &mut self,
        reading: &Reading<'_>,
        here: Option<Here>,
        fit: Option<Fit>,
        measured: Option<Measured>,
    ) -> Sizing {
        let stay = Sizing {
            bytes: reading.grant_bytes.min(reading.most_bytes),
            predicted: None,
            load_changed: false,
        };
        let gained = std::mem::take(&mut self.policy.gained);
        if let Some(here) = here.filter(|_| gained > 0.0)
            && let Some(given_up) = self.give_up(reading, here, gained)
        {
            return given_up;
        }
        if self.phase == Phase::Fitting
            && let Some(fitted) = fit.and_then(|fit| self.fitted(reading, fit))
        {
            return fitted;
        }
        let (Some(measured), Some(here)) = (measured, here) else {
            return self.standing(reading);
        };
        let is_full = reading.is_full();
        let missed = reading.goal - measured.hit_ratio;
        self.note_enough(reading, missed, measured.elapsed);
        self.phase = self.phase.after_interval(is_full, missed > 0.0);
        if missed.abs() <= least_that_counts(reading.goal, &measured) {
            return stay;
        }
        let is_hopeless = self.state() == GoalState::Infeasible;
        let waits = !is_full || self.remembered(reading).is_some();
        if missed > 0.0 && waits && !is_hopeless {
            return self.standing(reading);
        }
        let bytes = if missed > 0.0 && is_hopeless {
            self.useful(reading)
                .map_or(reading.grant_bytes, |useful| released(reading, useful))
        } else if missed > 0.0 {
            self.grown(reading, here, fit, missed)
        } else {
            self.shrunk(reading, here, missed, measured.elapsed)
        };
        // Steps that no segment would notice are not worth a move.
        if !is_less(bytes, reading.grant_bytes) && !is_less(reading.grant_bytes, bytes) {
            return stay;
        }
        self.resize(reading, bytes, Some(predicted(reading, here, measured, bytes)))
    }

    /// Another policy gained hits: less memory has the same, and waiting for an interval that shows it would be a minute above
    /// the goal.
    fn give_up(&mut self, reading: &Reading<'_>, here: Here, gained: f64) -> Option<Sizing> {
        let enough = |gained: f64| {
            let folds = gained / here.slope_below.max(CURVES.least_slope_of(reading.goal));
            (-folds).exp().max(1.0 - STEPS.shrink_most)
        };
        self.policy.efficiency = (self.policy.efficiency / enough(gained)).min(EFFICIENCY.1);
        let answer = &mut self.asked.answer;
        answer.bytes = (answer.bytes as f64 * enough(gained)) as u64;
        let is_met = self.state() == GoalState::Met && self.phase == Phase::Tuning && reading.is_full();
        let before = self.measured.filter(|_| is_met)?;
        let beyond = gained - (reading.goal - before.hit_ratio).max(0.0);
        if beyond <= 0.0 {
            return None;
        }
        let bytes = (reading.grant_bytes as f64 * enough(beyond)) as u64;
        Some(self.resize(reading, bytes, Some(before.hit_ratio + gained - beyond)))
    }

    /// Direct-Fit upwards. On the way to the size that is waited for the curve gets better, and the load may ask for
    /// less.
    fn fitted(&mut self, reading: &Reading<'_>, fit: Fit) -> Option<Sizing> {
        let least = self.remembered(reading).unwrap_or(reading.grant_bytes);
        if reading.is_full() && fit.bytes > least + least / 32 {
            return Some(self.resize(reading, fit.bytes, Some(fit.predicted)));
        }
        let answer = &mut self.asked.answer;
        if !self.load.is_young && fit.bytes < answer.bytes {
            (answer.bytes, answer.predicted) = (fit.bytes, Some(fit.predicted));
        }
        None
    }

    /// Fine-Grained Resizing upwards.
    fn grown(&self, reading: &Reading<'_>, here: Here, fit: Option<Fit>, missed: f64) -> u64 {
        // Memory that the curve sees no use for would be wasted.
        let helps = here.potential > (missed / 2.0).min(0.02).max(2.0 * here.error.min(0.005));
        if !helps || self.holds_past(reading) {
            return reading.grant_bytes;
        }
        let step = (STEPS.caution * missed / here.slope.max(CURVES.least_slope_of(reading.goal)))
            .exp_m1()
            .min(STEPS.grow_most);
        let stepped = (reading.grant_bytes as f64 * (1.0 + step)) as u64;
        let fitted = fit.filter(|_| missed > MISSES.fit_beyond).map_or(0, |fit| fit.bytes);
        let wanted = stepped.max(fitted).max(reading.grant_bytes);
        match self.enough {
            Some(enough) => wanted.min(enough.max(reading.grant_bytes)),
            None => wanted,
        }
    }

    /// Notes the size that was enough, to go back to and not beyond. A curve can be flat above a size and steep below,
    /// as when the working set just fits. It says of a step down that it costs nothing, and of the way back that it
    /// takes a multiple. After the way back, evicted keys have to be asked for again before it shows.
    fn note_enough(&mut self, reading: &Reading<'_>, missed: f64, interval: Duration) {
        if missed <= 0.0 {
            self.enough = Some(reading.grant_bytes);
        } else if interval >= INTERVALS.enough && self.enough.is_some_and(|enough| reading.grant_bytes >= enough) {
            self.enough = None;
        }
    }

    /// Fine-Grained Resizing downwards.
    fn shrunk(&self, reading: &Reading<'_>, here: Here, missed: f64, interval: Duration) -> u64 {
        let is_early = missed > -MISSES.near && interval < INTERVALS.shrink;
        if self.hold.holds(reading.now) || is_early {
            return reading.grant_bytes;
        }
        let held = reading.usage_bytes.min(reading.grant_bytes);
        if !reading.is_nearly_full() {
            // Unused memory is given up first, and alone. The hit ratio is that of a cache that still changes, as when
            // its first items expire, and not of its size.
            return held + held / STEPS.unused_kept_divisor;
        }
        let step = (STEPS.caution * missed / here.slope_below.max(CURVES.least_slope_of(reading.goal)))
            .exp_m1()
            .max(-STEPS.shrink_most);
        (held as f64 * (1.0 + step)) as u64
    }

    fn resize(&mut self, reading: &Reading<'_>, bytes: u64, predicted: Option<f64>) -> Sizing {
        let bytes = bytes.min(reading.most_bytes);
        // A small step near the goal changes the hit ratio by less than another load would, and is no swing.
        if bytes.abs_diff(reading.grant_bytes) > reading.grant_bytes / STEPS.small_divisor {
            self.hold.note_move(reading.now, bytes > reading.grant_bytes);
            self.load.watch.expect_anything();
        } else if bytes < reading.grant_bytes {
            self.load.watch.expect_less();
        }
        Sizing {
            bytes,
            predicted,
            load_changed: false,
        }
    }
}

/// Whether it is less by so much that a segment would notice.
fn is_less(bytes: u64, than: u64) -> bool {
    bytes + UNIT_BYTES.max(bytes / 256) <= than
}

/// The least miss of a goal, or distance above it, that this interval shows beyond chance.
fn least_that_counts(goal: f64, measured: &Measured) -> f64 {
    let shortness = MISSES.dead_band_interval.as_secs_f64() / measured.elapsed.as_secs_f64();
    let errors = if measured.elapsed < INTERVALS.calm {
        MISSES.certain_early
    } else {
        MISSES.certain
    };
    (MISSES.dead_band_of(goal) * shortness.max(1.0)).max(errors * measured.standard_error)
}

/// A step towards the useful size, if a goal cannot be reached. The rest serves others better, and more is taken only
/// from free memory.
fn released(reading: &Reading<'_>, useful_bytes: u64) -> u64 {
    let least = reading.grant_bytes - (reading.grant_bytes as f64 * STEPS.shrink_most) as u64;
    useful_bytes.max(least)
}

#[cfg(test)]
mod tests;
