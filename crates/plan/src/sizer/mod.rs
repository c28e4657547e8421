//! How much memory one tenant needs for its hit ratio.
//!
//! Invariant: a size is only left for a reason: the load changed, or a whole window was measured at it that missed the goal
//! by more than chance explains. It grows only where the curve shows misses that more memory would turn into hits, or ends
//! too early to say, and asks for no more than it asked for already while what it has is not used yet. What was asked for
//! is asked for until it is granted, or something says that it is not needed.

use std::time::Duration;

use tidemark_types::{UNIT_BYTES, UnixMs};

use crate::load::LoadWatch;
use crate::reach::{MET_WITHIN, Prospect, meets};
use crate::reading::{GoalState, Reading, Sizing};
use crate::slope::{EFFICIENCY, SLOPE_SPAN, efficiency_seen, least_misses, slope_at};
use crate::window::{Count, Measured};

/// A window is this many gets, within these times.
const WINDOW_GETS: u64 = 10_000;
const WINDOW_MIN: Duration = Duration::from_secs(5);
const WINDOW_MAX: Duration = Duration::from_secs(5 * 60);
/// The first moments at a new size show the move, not the size: what was evicted is missed until the policy has sorted
/// itself out.
const AFTER_MOVE: Duration = Duration::from_secs(3);
/// Near the goal, memory is taken back only after a window of this length: what an eviction costs shows when the keys are
/// asked for again.
const WINDOW_SHRINK: Duration = Duration::from_secs(10);
const SHRINK_NEAR: f64 = 0.05;
/// A window that gives no reason for a move goes on for this long: the longer it is, the smaller a miss it shows. Where
/// chance could still hide one that counts, it goes on up to [`WINDOW_MAX`]: with a goal of 0.8, below 21,000 gets a second.
/// Not while the cache fills: the hit ratio is on its way then, and the mean of a while is of the past.
const WINDOW_CALM: Duration = Duration::from_secs(30);
/// Until something was learnt of the load's policy, for this long: a curve that takes the policy for LRU may see no use for
/// memory that is needed.
const WINDOW_CALM_AT_FIRST: Duration = Duration::from_secs(10);
/// A curve of fewer gets says nothing.
const FIT_GETS_MIN: u64 = 2_000;
/// While each key was asked for less often than this on average, keys that seem to be new may just not have been met yet.
const YOUNG_GETS_PER_KEY: u64 = 4;
/// Who holds more than what is asked for now, as far as it is known, holds something else: by more than sampling explains.
const HOLDS_PAST: f64 = 0.875;
/// A hit ratio that can not be reached is replaced by one this much below the best: its last hits cost the most.
const BELOW_BEST: f64 = 0.003;
/// Standard errors that chance does not reach, in windows of that length, and in shorter ones: those are looked at many times,
/// each of which chance could use.
const CERTAIN: f64 = 2.0;
const CERTAIN_EARLY: f64 = 3.0;
/// A miss of the goal by less is left. A shorter window than this shows more than there is, because gets of one moment
/// resemble each other, and a size that follows it would swing.
const DEAD_BAND: f64 = 0.001;
/// Or by less than this part of the misses that the goal allows, if that is less: where one get in a hundred may miss, a
/// thousandth can be a third of the memory.
const DEAD_BAND_OF_MISSES: f64 = 0.03;
const DEAD_BAND_WINDOW: Duration = Duration::from_secs(20);
/// The most that a size grows or shrinks by what was measured alone.
const GROW_MAX: f64 = 0.25;
const SHRINK_MAX: f64 = 0.15;
/// Of what is held, so much beyond it is kept when what is not used is given up: such a cache counts as nearly full.
const UNUSED_KEPT_DIVISOR: u64 = 16;
/// The part of a step that is done: the rest would often be too much.
const CAUTION: f64 = 0.8;
/// A curve that is flatter than this, in hit ratio per e-fold of memory, is taken to be this steep.
const LEAST_SLOPE: f64 = 0.02;
/// Or than this part of the misses that the goal allows, if that is less.
const LEAST_SLOPE_OF_MISSES: f64 = 0.2;
/// A miss of the goal by more is what the curve, not a step, should mend; and so is a goal that moves by more.
const FIT_BEYOND: f64 = 0.03;
/// Least weight of a certain window in it; the first ones of a load weigh as in their mean.
const EFFICIENCY_WEIGHT: f64 = 0.3;
/// Half a window that is certain, or several that are less so.
const LEARNT_SOMETHING: f64 = 0.5;
/// A size that was enough once is no more after a window of this length that missed the goal.
const WINDOW_ENOUGH: Duration = Duration::from_secs(20);
/// A size that had to grow soon after it shrank waits so long with the next shrinking, and twice as long the next time.
const HOLD_MIN: Duration = Duration::from_secs(20);
const HOLD_MAX: Duration = Duration::from_secs(10 * 60);
/// A step of at most this part of the size is small.
const SMALL_STEP_DIVISOR: u64 = 10;
/// A goal that is missed for so long at a size that more memory does not help is called infeasible.
const PATIENCE: Duration = Duration::from_secs(60);

/// One tenant's way to its goal.
#[derive(Debug)]
pub struct Sizer {
    watch: LoadWatch,
    /// Where the window began; `None` until the first reading.
    window: Option<Count>,
    /// When what is now asked for began.
    load: Option<Count>,
    /// Whether keys that seem to be new may just not have been met yet.
    is_young: bool,
    /// The grant of the last reading.
    grant_bytes: u64,
    was_full: bool,
    /// Direct-Fit; else Fine-Grained Resizing.
    is_fitting: bool,
    /// Memory of an LRU cache over that of the real policy, for the same hit ratio.
    efficiency: f64,
    /// What it was learnt from: windows, each as far as it was certain.
    learnt: f64,
    /// The last window.
    measured: Option<Measured>,
    state: GoalState,
    best: Option<f64>,
    /// Since when the goal is missed though more memory would not help.
    helpless_since: Option<UnixMs>,
    /// The least size at which a window met the goal.
    enough: Option<u64>,
    shrunk_at: Option<UnixMs>,
    grown_at: Option<UnixMs>,
    hold: Duration,
    hold_until: UnixMs,
    /// Until then no window begins.
    quiet_until: UnixMs,
    /// What was answered last.
    answer: Sizing,
    /// The goal for which that asked for more than there was: others may come first, and give it up only as they need it no
    /// more. 0 is any goal, what was remembered. `None` where nothing is waited for.
    waits_for: Option<f64>,
    /// Whether the load was ever another one.
    has_changed: bool,
    /// The goal that was aimed at last, but for what it moved little by little.
    goal: Option<f64>,
    /// By how much another policy hits oftener in the same memory, and was not drawn from the size yet.
    gained: f64,
}

impl Default for Sizer {
    fn default() -> Self {
        Self {
            watch: LoadWatch::default(),
            window: None,
            load: None,
            is_young: true,
            grant_bytes: 0,
            was_full: false,
            is_fitting: true,
            efficiency: 1.0,
            learnt: 0.0,
            measured: None,
            state: GoalState::Converging,
            best: None,
            helpless_since: None,
            enough: None,
            shrunk_at: None,
            grown_at: None,
            hold: Duration::ZERO,
            hold_until: UnixMs(0),
            quiet_until: UnixMs(0),
            answer: Sizing::default(),
            waits_for: None,
            has_changed: false,
            goal: None,
            gained: 0.0,
        }
    }
}

/// The curve at the present size.
#[derive(Clone, Copy, Debug)]
struct Here {
    /// Of hits, by e-folds of memory.
    slope: f64,
    /// The same of less memory. They differ where the curve bends: at its end, more gains nothing.
    slope_below: f64,
    /// How much the hit ratio would gain from all memory there could be; while keys are still being met, how much it may at
    /// most.
    potential: f64,
    /// Standard error of the potential.
    error: f64,
}

/// What the curve says the tenant needs.
#[derive(Clone, Copy, Debug)]
struct Fit {
    bytes: u64,
    predicted: f64,
}

impl Sizer {
    /// One that wants so much until something is known of the load: what the tenant needed before it was idle.
    pub fn remembering(bytes: u64) -> Self {
        Self {
            answer: Sizing {
                bytes,
                ..Sizing::default()
            },
            waits_for: Some(0.0),
            ..Self::default()
        }
    }

    /// The same of a load that is known since `since`: keys that were met before the goal was set are not new.
    #[must_use]
    pub fn knowing_since(self, since: Count) -> Self {
        Self {
            load: Some(since),
            ..self
        }
    }

    /// From now on another policy decides, with so many more hits per get in the same memory.
    pub fn gain(&mut self, hit_ratio: f64) {
        self.gained += hit_ratio;
    }

    /// Whether the goal is reached, as far as was measured.
    pub fn state(&self) -> GoalState {
        self.state
    }

    /// The best hit ratio that the memory there could be would give, once it is known.
    pub fn best_hit_ratio(&self) -> Option<f64> {
        self.best
    }

    /// Memory of an LRU cache over that of the tenant's policy for the same hit ratio, as far as it was learnt.
    pub fn efficiency(&self) -> f64 {
        self.efficiency
    }

    /// What all the memory that there is for the goal would give, by the curve and what was learnt of the policy; `None`
    /// while nothing is known. To be asked after [`Self::step`] with the same reading.
    pub fn prospect(&self, reading: &Reading<'_>) -> Option<Prospect> {
        if reading.curve_gets < FIT_GETS_MIN {
            return None;
        }
        let at = reading.curve.at(self.lru_bytes(reading, reading.reach_bytes));
        Some(Prospect {
            hit_ratio: 1.0 - at.miss_ratio,
            standard_error: at.standard_error,
            is_final: !self.is_young,
        })
    }

    /// Takes a reading; gives the size to have from now on.
    pub fn step(&mut self, reading: &Reading<'_>) -> Sizing {
        let count = Count {
            at: reading.now,
            gets: reading.gets,
            hits: reading.hits,
        };
        let load = *self.load.get_or_insert(count);
        let aimed_at = *self.goal.get_or_insert(reading.goal);
        if (aimed_at - reading.goal).abs() > FIT_BEYOND {
            self.goal = Some(reading.goal);
            self.aim_anew();
        }
        if reading.grant_bytes < self.grant_bytes && is_less(reading.grant_bytes, self.answer.bytes) {
            // Others took it.
            self.watch.expect_anything();
        }
        if reading.grant_bytes > self.grant_bytes && self.state == GoalState::Infeasible {
            // Others left it.
            self.watch.expect_anything();
        }
        if self.watch.note(count) {
            self.has_changed = true;
            self.restart(count);
            return Sizing {
                bytes: reading.grant_bytes,
                predicted: None,
                load_changed: true,
            };
        }
        let is_full = reading.is_full() || self.was_full && reading.is_nearly_full();
        // More than is used changes nothing: it may come bit by bit, as fast as it is filled.
        let is_resized = reading.grant_bytes < self.grant_bytes || (is_full && reading.grant_bytes != self.grant_bytes);
        if self.window.is_none() || is_resized || is_full != self.was_full {
            self.quiet_until = reading.now.plus(AFTER_MOVE);
            self.was_full = is_full;
        }
        self.grant_bytes = reading.grant_bytes;
        if reading.now <= self.quiet_until {
            self.window = Some(count);
        }
        self.is_young = reading.gets.saturating_sub(load.gets) < YOUNG_GETS_PER_KEY.saturating_mul(reading.keys);
        let here = self.here(reading);
        let fit = self.fit(reading);
        if self.gained > 0.0 {
            // What was seen is of the policy before.
            self.window = Some(count);
        }
        let measured = self.measure(count);
        if let Some(measured) = measured {
            self.measured = Some(measured);
            // Near the goal there is nothing left to fill or to shrink: what leaves it from here on is another load.
            if (measured.hit_ratio - reading.goal).abs() <= 2.0 * MET_WITHIN {
                self.watch.set_expected(measured.hit_ratio);
            }
        }
        self.judge(reading, here);
        let sizing = self.size(reading, here, fit, measured);
        let moves = sizing.bytes != self.standing(reading).bytes;
        self.waits_for = if !is_less(reading.grant_bytes, sizing.bytes) {
            None
        } else if moves {
            Some(reading.goal)
        } else {
            self.waits_for
        };
        self.answer = sizing;
        let ends = |measured: &Measured| {
            let length = if is_full && self.learnt < LEARNT_SOMETHING {
                WINDOW_CALM_AT_FIRST
            } else if !is_full || CERTAIN * measured.standard_error <= dead_band(reading.goal) {
                WINDOW_CALM
            } else {
                WINDOW_MAX
            };
            moves || measured.elapsed >= length
        };
        if let Some(measured) = measured {
            if !moves && measured.elapsed >= WINDOW_CALM {
                self.watch.set_expected(measured.hit_ratio);
            }
            if ends(&measured) {
                self.window = Some(count);
                if let Some(here) = here.filter(|_| is_full && !self.holds_past(reading)) {
                    self.learn(reading, here, measured);
                }
            }
        }
        sizing
    }

    /// The goal is noticeably another one. What was learnt of the load and its policy stays true.
    fn aim_anew(&mut self) {
        self.is_fitting = true;
        self.state = GoalState::Converging;
        self.helpless_since = None;
        self.enough = None;
        self.hold = Duration::ZERO;
        self.hold_until = UnixMs(0);
        self.waits_for = None;
    }

    fn restart(&mut self, count: Count) {
        self.watch.expect_anything();
        self.window = Some(count);
        self.load = Some(count);
        self.is_fitting = true;
        self.waits_for = None;
        self.efficiency = 1.0;
        self.learnt = 0.0;
        // What the load before left behind is still being asked for or missed.
        self.quiet_until = count.at.plus(AFTER_MOVE);
        self.state = GoalState::Converging;
        self.best = None;
        self.measured = None;
        self.helpless_since = None;
        self.enough = None;
        // A load that flips between two needs keeps the larger one's memory.
        let resized_at = self.shrunk_at.max(self.grown_at);
        if resized_at.is_some_and(|at| count.at.since(at) < self.hold.max(HOLD_MIN) * 3) {
            self.hold_longer(count.at);
        }
    }

    fn hold_longer(&mut self, now: UnixMs) {
        self.hold = (self.hold * 2).clamp(HOLD_MIN, HOLD_MAX);
        self.hold_until = now.plus(self.hold);
    }

    /// The window's measurement, if it is long enough to say something.
    fn measure(&self, count: Count) -> Option<Measured> {
        let measured = count.since(self.window?)?;
        let is_whole = measured.gets >= WINDOW_GETS && measured.elapsed >= WINDOW_MIN;
        (is_whole || measured.elapsed >= WINDOW_MAX).then_some(measured)
    }

    /// Draws from a window what does not depend on the goal.
    fn learn(&mut self, reading: &Reading<'_>, here: Here, measured: Measured) {
        let Some((seen, slope)) = efficiency_seen(
            reading.curve,
            reading.overhead,
            measured.hit_ratio,
            reading.usage_bytes,
            least_slope(reading.goal),
        ) else {
            return;
        };
        // Where the curve is flat or few gets were measured, the size that goes with a hit ratio is anybody's guess.
        let uncertainty = 2.0 * measured.standard_error.hypot(here.error) / slope;
        let certainty = 1.0 / (1.0 + uncertainty * 4.0);
        self.learnt += certainty;
        let weight = certainty * EFFICIENCY_WEIGHT.max(1.0 / self.learnt);
        // A long one weighs as the shorter ones that would have been in its place.
        let windows = (measured.elapsed.as_secs_f64() / WINDOW_CALM.as_secs_f64()).max(1.0);
        let weight = 1.0 - (1.0 - weight).powf(windows);
        self.efficiency += (seen - self.efficiency) * weight;
    }

    /// Whether a part of what is held was asked for by another load alone: what is asked for now has its place.
    fn holds_past(&self, reading: &Reading<'_>) -> bool {
        let asked_for_bytes = reading.curve.end().bytes as f64 * reading.overhead;
        self.has_changed && self.is_young && asked_for_bytes < HOLDS_PAST * reading.usage_bytes as f64
    }

    /// An LRU cache's bytes for the real one's.
    fn lru_bytes(&self, reading: &Reading<'_>, bytes: u64) -> u64 {
        (bytes as f64 * self.efficiency / reading.overhead) as u64
    }

    fn here(&self, reading: &Reading<'_>) -> Option<Here> {
        if reading.curve_gets < FIT_GETS_MIN {
            return None;
        }
        let bytes = self.lru_bytes(reading, reading.usage_bytes) as f64;
        let most_bytes = self.lru_bytes(reading, reading.most_bytes);
        let present = reading.curve.at(bytes as u64);
        let least = if self.is_young {
            least_misses(reading.curve, most_bytes)
        } else {
            reading.curve.at(most_bytes).miss_ratio
        };
        Some(Here {
            slope: slope_at(reading.curve, bytes),
            slope_below: slope_at(reading.curve, bytes / SLOPE_SPAN),
            potential: present.miss_ratio - least,
            error: present.standard_error,
        })
    }

    /// Direct-Fit: the curve's size for the goal.
    fn fit(&self, reading: &Reading<'_>) -> Option<Fit> {
        if reading.curve_gets < FIT_GETS_MIN {
            return None;
        }
        let best = reading.curve.best_hit_ratio();
        let aim = if best >= reading.goal + BELOW_BEST {
            reading.goal
        } else {
            reading.goal.min(best - BELOW_BEST)
        };
        let lru_bytes = reading.curve.bytes_for(aim)?;
        let bytes = (lru_bytes as f64 * reading.overhead / self.efficiency) as u64;
        let bytes = bytes.min(reading.most_bytes);
        let predicted = 1.0 - reading.curve.at(self.lru_bytes(reading, bytes)).miss_ratio;
        Some(Fit { bytes, predicted })
    }

    /// Whether the goal is met, can be met, or can not.
    fn judge(&mut self, reading: &Reading<'_>, here: Option<Here>) {
        let (Some(here), Some(measured)) = (here, self.measured) else {
            return;
        };
        // What more memory would give is what the curve says beyond the present size, on top of what was measured.
        let best = (measured.hit_ratio + here.potential).min(1.0);
        if meets(reading.goal, &measured) {
            self.state = GoalState::Met;
            self.helpless_since = None;
            self.best = Some(best);
            return;
        }
        let is_at_most = reading.grant_bytes >= reading.most_bytes && reading.is_full();
        let is_helpless =
            is_at_most || best + MET_WITHIN + 2.0 * here.error.hypot(measured.standard_error) < reading.goal;
        if !is_helpless {
            self.state = GoalState::Converging;
            self.helpless_since = None;
            return;
        }
        let since = *self.helpless_since.get_or_insert(reading.now);
        if reading.now.since(since) >= if self.is_young { PATIENCE * 2 } else { PATIENCE } {
            self.state = GoalState::Infeasible;
            self.best = Some(if is_at_most { measured.hit_ratio } else { best });
        }
    }

    /// What it has, or still waits for.
    fn standing(&self, reading: &Reading<'_>) -> Sizing {
        let is_wanted = |goal: f64| goal <= reading.goal && is_less(reading.grant_bytes, self.answer.bytes);
        let waits = self.waits_for.is_some_and(is_wanted);
        Sizing {
            bytes: if waits { self.answer.bytes } else { reading.grant_bytes }.min(reading.most_bytes),
            predicted: self.answer.predicted.filter(|_| waits),
            load_changed: false,
        }
    }

    /// What was remembered and is still waited for: it knows better than the curve and the misses of the first keys.
    fn remembered(&self, reading: &Reading<'_>) -> Option<u64> {
        let standing = self.standing(reading);
        let is_remembered = self.is_young && standing.predicted.is_none() && standing.bytes > reading.grant_bytes;
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
        let is_full = reading.is_full();
        let gained = std::mem::take(&mut self.gained);
        if gained > 0.0
            && let Some(here) = here
        {
            // Less memory has the same hits: waiting for a window that shows it would be a minute above the goal.
            let enough = |gained: f64| {
                let folds = gained / here.slope_below.max(least_slope(reading.goal));
                (-folds).exp().max(1.0 - SHRINK_MAX)
            };
            self.efficiency = (self.efficiency / enough(gained)).min(EFFICIENCY.1);
            self.answer.bytes = (self.answer.bytes as f64 * enough(gained)) as u64;
            let was_met = self
                .measured
                .filter(|_| self.state == GoalState::Met && !self.is_fitting && is_full);
            if let Some(before) = was_met {
                let beyond = gained - (reading.goal - before.hit_ratio).max(0.0);
                if beyond > 0.0 {
                    let bytes = (reading.grant_bytes as f64 * enough(beyond)) as u64;
                    return self.resize(reading, bytes, Some(before.hit_ratio + gained - beyond));
                }
            }
        }
        if let Some(fit) = fit.filter(|_| self.is_fitting) {
            let least = self.remembered(reading).unwrap_or(reading.grant_bytes);
            if is_full && fit.bytes > least + least / 32 {
                return self.resize(reading, fit.bytes, Some(fit.predicted));
            }
            // On the way there the curve gets better, and the load may ask for less.
            if !self.is_young && fit.bytes < self.answer.bytes {
                (self.answer.bytes, self.answer.predicted) = (fit.bytes, Some(fit.predicted));
            }
        }
        let (Some(measured), Some(here)) = (measured, here) else {
            return self.standing(reading);
        };
        let missed = reading.goal - measured.hit_ratio;
        self.note_enough(reading, missed, measured.elapsed);
        // What was measured at a size knows better than the curve whether it is enough.
        self.is_fitting &= !is_full && missed > 0.0;
        let shortness = DEAD_BAND_WINDOW.as_secs_f64() / measured.elapsed.as_secs_f64();
        let errors = if measured.elapsed < WINDOW_CALM {
            CERTAIN_EARLY
        } else {
            CERTAIN
        };
        if missed.abs() <= (dead_band(reading.goal) * shortness.max(1.0)).max(errors * measured.standard_error) {
            return stay;
        }
        let waits = !is_full || self.remembered(reading).is_some();
        if missed > 0.0 && waits && self.state != GoalState::Infeasible {
            return self.standing(reading);
        }
        let bytes = if missed > 0.0 && self.state == GoalState::Infeasible {
            self.useful(reading)
                .map_or(reading.grant_bytes, |useful| self.released(reading, useful))
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

    /// Fine-Grained Resizing upwards.
    fn grown(&self, reading: &Reading<'_>, here: Here, fit: Option<Fit>, missed: f64) -> u64 {
        // Memory that the curve sees no use for would be wasted.
        let helps = here.potential > (missed / 2.0).min(0.02).max(2.0 * here.error.min(0.005));
        if !helps || self.holds_past(reading) {
            return reading.grant_bytes;
        }
        let step = (CAUTION * missed / here.slope.max(least_slope(reading.goal)))
            .exp_m1()
            .min(GROW_MAX);
        let stepped = (reading.grant_bytes as f64 * (1.0 + step)) as u64;
        let fitted = fit.filter(|_| missed > FIT_BEYOND).map_or(0, |fit| fit.bytes);
        let wanted = stepped.max(fitted).max(reading.grant_bytes);
        match self.enough {
            Some(enough) => wanted.min(enough.max(reading.grant_bytes)),
            None => wanted,
        }
    }

    /// Notes what was enough, to go back to and not beyond: where a curve is flat above a size and steep below, as where all
    /// that is asked for again just fits, it says of a step down that it costs nothing, and of the way back that it takes a
    /// multiple. Back there, what was evicted has to be asked for again before it shows.
    fn note_enough(&mut self, reading: &Reading<'_>, missed: f64, window: Duration) {
        if missed <= 0.0 {
            self.enough = Some(reading.grant_bytes);
        } else if window >= WINDOW_ENOUGH && self.enough.is_some_and(|enough| reading.grant_bytes >= enough) {
            self.enough = None;
        }
    }

    /// Fine-Grained Resizing downwards.
    fn shrunk(&self, reading: &Reading<'_>, here: Here, missed: f64, window: Duration) -> u64 {
        let is_early = missed > -SHRINK_NEAR && window < WINDOW_SHRINK;
        if reading.now < self.hold_until || is_early {
            return reading.grant_bytes;
        }
        let held = reading.usage_bytes.min(reading.grant_bytes);
        if !reading.is_nearly_full() {
            // What is not used is given up first, and alone: the hit ratio is that of a cache that still changes, as where
            // what it began with expires, and not of its size.
            return held + held / UNUSED_KEPT_DIVISOR;
        }
        let step = (CAUTION * missed / here.slope_below.max(least_slope(reading.goal)))
            .exp_m1()
            .max(-SHRINK_MAX);
        (held as f64 * (1.0 + step)) as u64
    }

    /// The least memory with the best hit ratio that any memory gives, by the curve.
    fn useful(&self, reading: &Reading<'_>) -> Option<u64> {
        let most = self.lru_bytes(reading, reading.most_bytes);
        let best = 1.0 - reading.curve.at(most).miss_ratio;
        let lru_bytes = reading.curve.bytes_for((best - BELOW_BEST).max(0.0))?;
        Some((lru_bytes as f64 * reading.overhead / self.efficiency) as u64)
    }

    /// A step towards what is of use, where a goal can not be reached: the rest serves others better, and more of it is taken
    /// only from what is free.
    fn released(&self, reading: &Reading<'_>, useful_bytes: u64) -> u64 {
        let least = reading.grant_bytes - (reading.grant_bytes as f64 * SHRINK_MAX) as u64;
        useful_bytes.max(least)
    }

    fn resize(&mut self, reading: &Reading<'_>, bytes: u64, predicted: Option<f64>) -> Sizing {
        let bytes = bytes.min(reading.most_bytes);
        // A small step near the goal changes the hit ratio by less than another load would, and is no swing.
        if bytes.abs_diff(reading.grant_bytes) > reading.grant_bytes / SMALL_STEP_DIVISOR {
            self.note_move(reading.now, bytes > reading.grant_bytes);
            self.watch.expect_anything();
        } else if bytes < reading.grant_bytes {
            self.watch.expect_less();
        }
        Sizing {
            bytes,
            predicted,
            load_changed: false,
        }
    }

    fn note_move(&mut self, now: UnixMs, grows: bool) {
        if !grows {
            if self.grown_at.is_none_or(|at| now.since(at) > HOLD_MAX) {
                self.hold = Duration::ZERO;
            }
            self.shrunk_at = Some(now);
            return;
        }
        let too_soon = self.hold.max(HOLD_MIN) * 3;
        if self.shrunk_at.take().is_some_and(|at| now.since(at) < too_soon) {
            self.hold_longer(now);
        }
        self.grown_at = Some(now);
    }
}

/// The hit ratio to expect of another size: the one that was measured, and by the slope of the curve what it gains or loses.
fn predicted(reading: &Reading<'_>, here: Here, measured: Measured, bytes: u64) -> f64 {
    let held = reading.usage_bytes.min(reading.grant_bytes).max(1);
    let folds = (bytes.clamp(1, reading.most_bytes.max(1)) as f64 / held as f64).ln();
    let slope = if folds < 0.0 { here.slope_below } else { here.slope };
    (measured.hit_ratio + folds * slope.max(0.0)).clamp(0.0, 1.0)
}

/// Whether it is less by so much that a segment would notice.
fn is_less(bytes: u64, than: u64) -> bool {
    bytes + UNIT_BYTES.max(bytes / 256) <= than
}

fn dead_band(goal: f64) -> f64 {
    DEAD_BAND.min(DEAD_BAND_OF_MISSES * (1.0 - goal))
}

fn least_slope(goal: f64) -> f64 {
    LEAST_SLOPE.min(LEAST_SLOPE_OF_MISSES * (1.0 - goal))
}

#[cfg(test)]
#[path = "sizer_tests.rs"]
mod tests;
