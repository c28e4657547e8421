//! The gain of one tenant from memory: its hit ratio by size, without the steps at which no size can rest.

use std::f64::consts::E;

use tidemark_curve::{Curve, Point};

/// More corners change no decision, and a plan for a thousand tenants would take longer.
const CORNERS_MAX: usize = 32;

/// Hit ratio by size. It never falls, and each next unit of memory gains at most as much as the one before (the concave
/// hull of a measured curve). It is flat behind the last corner.
#[derive(Clone, Debug, PartialEq)]
pub struct Returns {
    /// The corners, from no memory on, ascending.
    corners: Vec<Corner>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Corner {
    size: f64,
    hit_ratio: f64,
    standard_error: f64,
}

impl Returns {
    /// Follows from a curve in bytes, with `units_per_byte` units held for each byte of the curve. `None` if the curve
    /// says nothing.
    pub fn of(curve: &Curve, units_per_byte: f64) -> Option<Self> {
        let hull = extended(curve).hull();
        let points = hull.points();
        if points.len() < 2 {
            return None;
        }
        // The last corner stays: memory beyond it is worth nothing.
        let every = points.len().div_ceil(CORNERS_MAX);
        let last = points.len() - 1;
        let kept = points
            .iter()
            .enumerate()
            .filter(|(index, _)| index % every == 0 || *index == last);
        let corners = kept
            .map(|(_, point)| Corner {
                size: point.bytes as f64 * units_per_byte,
                hit_ratio: 1.0 - point.miss_ratio,
                standard_error: point.standard_error,
            })
            .collect();
        Some(Self { corners })
    }

    /// The hit ratio at a size.
    pub fn hit_ratio(&self, size: f64) -> f64 {
        let right = self.corners.partition_point(|corner| corner.size <= size);
        let Some(left) = right.checked_sub(1).and_then(|left| self.corners.get(left)) else {
            return 0.0;
        };
        let Some(right) = self.corners.get(right) else {
            return left.hit_ratio;
        };
        left.hit_ratio + (right.hit_ratio - left.hit_ratio) * (size - left.size) / (right.size - left.size)
    }

    /// The least size with this hit ratio; with the best one if none has it.
    pub fn size_for(&self, hit_ratio: f64) -> f64 {
        let best = self.corners.last().map_or(0.0, |corner| corner.hit_ratio);
        let hit_ratio = hit_ratio.min(best);
        let right = self.corners.partition_point(|corner| corner.hit_ratio < hit_ratio);
        let Some(upper) = self.corners.get(right) else {
            return self.corners.last().map_or(0.0, |corner| corner.size);
        };
        let Some(lower) = right.checked_sub(1).and_then(|left| self.corners.get(left)) else {
            return upper.size;
        };
        let share = (hit_ratio - lower.hit_ratio) / (upper.hit_ratio - lower.hit_ratio);
        lower.size + (upper.size - lower.size) * share
    }

    /// The sizes at which it bends, ascending.
    pub(super) fn bends(&self) -> impl Iterator<Item = f64> {
        self.corners.iter().map(|corner| corner.size)
    }

    /// The steps from one bend to the next: how much memory, and the hit ratio that it brings. Each brings less for its
    /// memory than the one before.
    pub fn steps(&self) -> impl Iterator<Item = (f64, f64)> {
        let step = |pair: &[Corner]| (pair[1].size - pair[0].size, pair[1].hit_ratio - pair[0].hit_ratio);
        self.corners.windows(2).map(step)
    }

    /// The standard error of the difference between the hit ratios at two sizes. Both come from the same gets: only those
    /// that make the difference can be wrong. A share h of n of them has the standard error sqrt(h (1 - h) / n), which tells
    /// n.
    pub(super) fn error_between(&self, from: f64, to: f64) -> f64 {
        let larger = from.max(to);
        let at = self.corners.partition_point(|corner| corner.size < larger);
        let Some(corner) = self.corners.get(at).or(self.corners.last()) else {
            return 0.0;
        };
        let difference = (self.hit_ratio(to) - self.hit_ratio(from)).abs();
        let spread = corner.hit_ratio * (1.0 - corner.hit_ratio);
        if spread <= 0.0 {
            return corner.standard_error;
        }
        corner.standard_error * (difference * (1.0 - difference) / spread).sqrt()
    }
}

/// The curve with a guess beyond its end. The curve ends at the keys that were met, and new ones are asked for again,
/// for which memory pays then. The hit ratio is therefore taken to grow over the next e-fold of memory by as much as
/// over the last one. If the last one gained nothing, as with keys that are never asked for again, neither does the
/// next.
fn extended(curve: &Curve) -> Curve {
    let end = curve.end();
    let beyond = Point {
        bytes: (end.bytes as f64 * E) as u64,
        miss_ratio: (end.miss_ratio - curve.last_gain()).max(0.0),
        standard_error: end.standard_error,
    };
    Curve::through(curve.points().iter().copied().chain([beyond]))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn curve(points: &[(u64, f64)]) -> Curve {
        Curve::through(points.iter().map(|(bytes, miss_ratio)| Point {
            bytes: *bytes,
            miss_ratio: *miss_ratio,
            standard_error: 0.01,
        }))
    }

    #[test]
    fn sizes_and_hit_ratios_go_both_ways() {
        // The point at 30 lies in a hollow: from 20 to 40 the way is straight.
        let points = [(10, 0.5), (20, 0.4), (30, 0.39), (40, 0.3), (200, 0.3)];
        let returns = Returns::of(&curve(&points), 2.0).unwrap();
        for (size, hit_ratio) in [
            (0.0, 0.0),
            (10.0, 0.25),
            (20.0, 0.5),
            (60.0, 0.65),
            (80.0, 0.7),
            (1e9, 0.7),
        ] {
            assert!((returns.hit_ratio(size) - hit_ratio).abs() < 1e-12, "{size}");
            if size <= 80.0 {
                assert!((returns.size_for(hit_ratio) - size).abs() < 1e-9, "{hit_ratio}");
            }
        }
        assert_eq!(returns.size_for(0.9), 80.0);
        // 0.01 of error at a hit ratio of 0.7 are 2,100 gets, and of those 0.2 make the difference.
        let error = returns.error_between(20.0, 80.0);
        assert!((error - (0.2_f64 * 0.8 / 2100.0).sqrt()).abs() < 1e-6, "{error}");
        assert_eq!(
            (returns.error_between(80.0, 80.0), returns.error_between(80.0, 1e9)),
            (0.0, 0.0)
        );
        assert_eq!(Returns::of(&curve(&[]), 1.0), None);
    }

    #[test]
    fn beyond_its_end_a_curve_goes_on_as_it_did() {
        for (points, at_100, beyond) in [
            // It gained 0.1 over the last e-fold: as much again over the next, and nothing behind that.
            (vec![(37, 0.6), (100, 0.5)], 0.5, 0.6),
            (vec![(37, 0.5), (100, 0.5)], 0.5, 0.5),
            (vec![(37, 0.4), (100, 0.04)], 0.96, 1.0),
        ] {
            let returns = Returns::of(&curve(&points), 1.0).unwrap();
            assert!((returns.hit_ratio(100.0) - at_100).abs() < 0.05, "{points:?}");
            for size in [272.0, 1e6] {
                assert!((returns.hit_ratio(size) - beyond).abs() < 0.02, "{points:?} {size}");
            }
        }
    }

    #[test]
    fn few_corners_say_as_much() {
        let law = |bytes: u64| 1.0 - (bytes as f64 / 1e6).sqrt();
        let fine: Vec<(u64, f64)> = (1..1000).map(|n| (n * 1000, law(n * 1000))).collect();
        let returns = Returns::of(&curve(&fine), 1.0).unwrap();
        assert!(returns.corners.len() <= CORNERS_MAX + 1);
        for n in 100..1000 {
            let size = (n * 1000) as f64;
            assert!(
                (returns.hit_ratio(size) - (1.0 - law(n * 1000))).abs() < 0.005,
                "{size}"
            );
        }
    }
}
