//! The sizer's numbers, by meaning, each with its reason.
//!
//! A number that is called a safety bound can be halved or doubled without failing a test of `sizer/tests.rs`. It
//! bounds how far a rare case goes, and is not tuned. `docs/design/sizing.md` has the table.

use std::time::Duration;

/// The intervals of gets over which measurements count.
#[derive(Debug)]
pub(super) struct Intervals {
    /// An interval has so many gets: of a hit ratio of 0.9 their standard error is 0.003.
    pub(super) gets: u64,
    /// It lasts so long at least: gets of one moment resemble each other.
    pub(super) least: Duration,
    /// It lasts so long at most: few gets say something only together.
    pub(super) most: Duration,
    /// An interval that gives no reason for a move goes on for this long: the longer it is, the smaller a miss it shows.
    /// If chance could still hide a miss that counts, it goes on up to [`Self::most`]: with a goal of 0.8, below 21,000
    /// gets a second. A filling cache is the exception: its hit ratio is on its way, and the mean of a while is of the
    /// past.
    pub(super) calm: Duration,
    /// The same, until the efficiency of the load's policy is known. A curve that takes the policy for LRU may see no
    /// use for memory that is needed.
    pub(super) calm_at_first: Duration,
    /// The first moments at a new size show the move, not the size: evicted keys are missed until the policy has
    /// settled.
    pub(super) quiet_after_move: Duration,
    /// Near the goal, memory is taken back only after an interval of this length. The cost of an eviction shows when the
    /// keys are asked for again.
    pub(super) shrink: Duration,
    /// A size that was enough once is no more after an interval of this length that missed the goal.
    /// A safety bound.
    pub(super) enough: Duration,
}

/// Which misses of a goal count.
#[derive(Debug)]
pub(super) struct Misses {
    /// Standard errors that chance does not exceed in calm intervals.
    pub(super) certain: f64,
    /// The same in shorter intervals, which are looked at many times: chance could use each look. A safety bound.
    pub(super) certain_early: f64,
    /// A miss of the goal by less is left.
    pub(super) dead_band: f64,
    /// The dead band as a share of the misses that the goal allows, if that is less. If one get in a hundred may miss,
    /// a thousandth can be a third of the memory. A safety bound.
    pub(super) dead_band_ratio: f64,
    /// A shorter interval than this shows more than there is, because gets of one moment resemble each other. A size that
    /// follows it would swing. A safety bound.
    pub(super) dead_band_interval: Duration,
    /// A hit ratio above the goal by more is far from it: memory is taken back without a long interval.
    pub(super) near: f64,
    /// The curve, not a step, should mend a miss of the goal by more, and a goal that moves by more. A safety bound.
    pub(super) fit_beyond: f64,
    /// A goal is called infeasible when it is missed for so long at a size that more memory does not help. The time
    /// doubles while new keys are still being met. A safety bound.
    pub(super) patience: Duration,
}

/// The use that is made of a curve.
#[derive(Debug)]
pub(super) struct Curves {
    /// A curve of fewer gets says nothing. A safety bound.
    pub(super) gets: u64,
    /// While each key was asked for less often than this on average, keys that seem to be new may just not have been met yet.
    /// A safety bound.
    pub(super) young_gets_per_key: u64,
    /// A tenant that holds more than its present keys, as far as they are known, holds other items. The margin is more
    /// than sampling explains.
    pub(super) holds_past_ratio: f64,
    /// A hit ratio that cannot be reached is replaced by one this much below the best: its last hits cost the most.
    /// A safety bound.
    pub(super) below_best: f64,
    /// A curve that is flatter than this, in hit ratio per e-fold of memory, is taken to be this steep.
    /// A safety bound.
    pub(super) least_slope: f64,
    /// The same as a part of the misses that the goal allows, if that is less. A safety bound.
    pub(super) least_slope_ratio: f64,
    /// The least weight of a certain interval in the learnt efficiency of the policy; the first ones of a load weigh as
    /// in their mean. A safety bound.
    pub(super) efficiency_weight: f64,
    /// Half an interval that is certain, or several that are less so.
    /// A safety bound.
    pub(super) learnt_something: f64,
}

/// How far a size moves, and how often.
#[derive(Debug)]
pub(super) struct Steps {
    /// The part of a step that is done: the rest would often be too much.
    pub(super) caution: f64,
    /// The most that a size grows by measurements alone, as a part of it. A safety bound.
    pub(super) grow_most: f64,
    /// The most that a size shrinks at a time, as a part of it.
    pub(super) shrink_most: f64,
    /// The part of the held memory that is kept beyond it when unused memory is given up: such a cache counts as nearly
    /// full.
    pub(super) unused_kept_divisor: u64,
    /// A step of at most this part of the size is small: it changes the hit ratio by less than another load would.
    pub(super) small_divisor: u64,
    /// A size that had to grow soon after it shrank waits so long with the next shrinking, and twice as long the next time.
    /// A safety bound.
    pub(super) hold_least: Duration,
    /// The longest such wait. A safety bound.
    pub(super) hold_most: Duration,
}

pub(super) const INTERVALS: Intervals = Intervals {
    gets: 10_000,
    least: Duration::from_secs(5),
    most: Duration::from_secs(5 * 60),
    calm: Duration::from_secs(30),
    calm_at_first: Duration::from_secs(10),
    quiet_after_move: Duration::from_secs(3),
    shrink: Duration::from_secs(10),
    enough: Duration::from_secs(20),
};

pub(super) const MISSES: Misses = Misses {
    certain: 2.0,
    certain_early: 3.0,
    dead_band: 0.001,
    dead_band_ratio: 0.03,
    dead_band_interval: Duration::from_secs(20),
    near: 0.05,
    fit_beyond: 0.03,
    patience: Duration::from_secs(60),
};

pub(super) const CURVES: Curves = Curves {
    gets: 2_000,
    young_gets_per_key: 4,
    holds_past_ratio: 0.875,
    below_best: 0.003,
    least_slope: 0.02,
    least_slope_ratio: 0.2,
    efficiency_weight: 0.3,
    learnt_something: 0.5,
};

pub(super) const STEPS: Steps = Steps {
    caution: 0.8,
    grow_most: 0.25,
    shrink_most: 0.15,
    unused_kept_divisor: 16,
    small_divisor: 10,
    hold_least: Duration::from_secs(20),
    hold_most: Duration::from_secs(10 * 60),
};

impl Misses {
    /// The miss of this goal that is left.
    pub(super) fn dead_band_of(&self, goal: f64) -> f64 {
        self.dead_band.min(self.dead_band_ratio * (1.0 - goal))
    }
}

impl Curves {
    /// The least slope that a curve is taken to have near this goal.
    pub(super) fn least_slope_of(&self, goal: f64) -> f64 {
        self.least_slope.min(self.least_slope_ratio * (1.0 - goal))
    }
}
