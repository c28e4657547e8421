//! The quantities that a sizer reads off the curve: its place, the size that fits and the possible gain. They also
//! teach the efficiency of the policy.

use super::Sizer;
use super::tuning::{CURVES, INTERVALS};
use crate::count::Measured;
use crate::reach::Prospect;
use crate::reading::Reading;
use crate::slope::{SLOPE_SPAN, efficiency_seen, least_misses, slope_at};

/// The curve at the present size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    /// The slope of hits, by e-folds of memory.
    pub(super) slope: f64,
    /// The same of less memory. They differ where the curve bends: at its end, more gains nothing.
    pub(super) slope_below: f64,
    /// How much the hit ratio would gain from all memory there could be; while keys are still being met, how much it may at
    /// most.
    pub(super) potential: f64,
    /// Standard error of the potential.
    pub(super) error: f64,
}

/// The size that the curve says the tenant needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) bytes: u64,
    pub(super) predicted: f64,
}

impl Sizer {
    /// The result of all the memory available for the goal, by the curve and the learnt efficiency of the policy;
    /// `None` while nothing is known. It has to be asked for after [`Self::step`] with the same reading.
    pub fn prospect(&self, reading: &Reading<'_>) -> Option<Prospect> {
        if reading.curve_gets < CURVES.gets {
            return None;
        }
        let at = reading.curve.at(self.lru_bytes(reading, reading.reach_bytes));
        Some(Prospect {
            hit_ratio: 1.0 - at.miss_ratio,
            standard_error: at.standard_error,
            is_final: !self.load.is_young,
        })
    }

    /// Draws from an interval what does not depend on the goal.
    pub(super) fn learn(&mut self, reading: &Reading<'_>, here: Here, measured: Measured) {
        let Some((seen, slope)) = efficiency_seen(
            reading.curve,
            reading.overhead,
            measured.hit_ratio,
            reading.usage_bytes,
            CURVES.least_slope_of(reading.goal),
        ) else {
            return;
        };
        // If the curve is flat or few gets were measured, the size that goes with a hit ratio is uncertain.
        let uncertainty = 2.0 * measured.standard_error.hypot(here.error) / slope;
        let certainty = 1.0 / (1.0 + uncertainty * 4.0);
        self.policy.intervals += certainty;
        let weight = certainty * CURVES.efficiency_weight.max(1.0 / self.policy.intervals);
        // A long one weighs as the shorter ones that would have been in its place.
        let intervals = (measured.elapsed.as_secs_f64() / INTERVALS.calm.as_secs_f64()).max(1.0);
        let weight = 1.0 - (1.0 - weight).powf(intervals);
        self.policy.efficiency += (seen - self.policy.efficiency) * weight;
    }

    /// Whether a part of the held memory was asked for by another load alone: the present keys have their place.
    pub(super) fn holds_past(&self, reading: &Reading<'_>) -> bool {
        let asked_for_bytes = reading.curve.end().bytes as f64 * reading.overhead;
        self.load.has_changed
            && self.load.is_young
            && asked_for_bytes < CURVES.holds_past_ratio * reading.usage_bytes as f64
    }

    /// An LRU cache's bytes for the real one's.
    fn lru_bytes(&self, reading: &Reading<'_>, bytes: u64) -> u64 {
        (bytes as f64 * self.policy.efficiency / reading.overhead) as u64
    }

    pub(super) fn here(&self, reading: &Reading<'_>) -> Option<Here> {
        if reading.curve_gets < CURVES.gets {
            return None;
        }
        let bytes = self.lru_bytes(reading, reading.usage_bytes) as f64;
        let most_bytes = self.lru_bytes(reading, reading.most_bytes);
        let present = reading.curve.at(bytes as u64);
        let least = if self.load.is_young {
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
    pub(super) fn fit(&self, reading: &Reading<'_>) -> Option<Fit> {
        if reading.curve_gets < CURVES.gets {
            return None;
        }
        let best = reading.curve.best_hit_ratio();
        let aim = if best >= reading.goal + CURVES.below_best {
            reading.goal
        } else {
            reading.goal.min(best - CURVES.below_best)
        };
        let lru_bytes = reading.curve.bytes_for(aim)?;
        let bytes = (lru_bytes as f64 * reading.overhead / self.policy.efficiency) as u64;
        let bytes = bytes.min(reading.most_bytes);
        let predicted = 1.0 - reading.curve.at(self.lru_bytes(reading, bytes)).miss_ratio;
        Some(Fit { bytes, predicted })
    }

    /// The least memory with the best hit ratio that any memory gives, by the curve.
    pub(super) fn useful(&self, reading: &Reading<'_>) -> Option<u64> {
        let most = self.lru_bytes(reading, reading.most_bytes);
        let best = 1.0 - reading.curve.at(most).miss_ratio;
        let lru_bytes = reading.curve.bytes_for((best - CURVES.below_best).max(0.0))?;
        Some((lru_bytes as f64 * reading.overhead / self.policy.efficiency) as u64)
    }
}

/// The hit ratio to expect of another size: the measured one, and the gain or loss by the slope of the curve.
pub(super) fn predicted(reading: &Reading<'_>, here: Here, measured: Measured, bytes: u64) -> f64 {
    let held = reading.usage_bytes.min(reading.grant_bytes).max(1);
    let folds = (bytes.clamp(1, reading.most_bytes.max(1)) as f64 / held as f64).ln();
    let slope = if folds < 0.0 { here.slope_below } else { here.slope };
    (measured.hit_ratio + folds * slope.max(0.0)).clamp(0.0, 1.0)
}
