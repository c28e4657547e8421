//! The miss ratio of a cache at every size.
//!
//! Invariant: a curve never rises (memory need not be used), and begins at no memory, where everything is missed. Its
//! points lie in strictly ascending order of size. It is straight between them, and flat behind the last one.

use std::f64::consts::E;

/// A curve at a size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The size in bytes.
    pub bytes: u64,
    /// Misses over requests, 0 to 1.
    pub miss_ratio: f64,
    /// The standard error of the miss ratio by the sample; 0 where all keys are followed.
    pub standard_error: f64,
}

/// A miss-ratio curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<Point>,
}

/// No memory, no hits.
const ORIGIN: Point = Point {
    bytes: 0,
    miss_ratio: 1.0,
    standard_error: 0.0,
};

/// Ratios this close are one: written as a hit ratio or as a miss ratio, a goal is not quite the same number.
const ROUNDING: f64 = 1e-9;

impl Curve {
    /// The curve through measured points, in any order. A point above one of a smaller size is lowered to it. A point
    /// that is not a number is left out. The lower of two points at one size counts.
    pub fn through(points: impl IntoIterator<Item = Point>) -> Self {
        let mut given: Vec<Point> = points
            .into_iter()
            .filter(|point| point.miss_ratio.is_finite())
            .collect();
        given.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.miss_ratio.total_cmp(&b.miss_ratio)));
        let mut points = vec![ORIGIN];
        let mut last = ORIGIN;
        for point in given {
            let lower = if point.miss_ratio < last.miss_ratio {
                point
            } else {
                last
            };
            let is_at_last = point.bytes == last.bytes;
            last = Point {
                bytes: point.bytes,
                miss_ratio: lower.miss_ratio.clamp(0.0, 1.0),
                standard_error: lower.standard_error,
            };
            if is_at_last {
                points.pop();
            }
            points.push(last);
        }
        Self { points }
    }

    /// The curve's corners, from no memory on.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// The curve at a size.
    pub fn at(&self, bytes: u64) -> Point {
        let right = self.points.partition_point(|point| point.bytes <= bytes);
        // The first point is at 0, so there is always one at or below.
        let left = self.points[right - 1];
        let Some(right) = self.points.get(right).filter(|_| left.bytes < bytes) else {
            return Point { bytes, ..left };
        };
        let share = (bytes - left.bytes) as f64 / (right.bytes - left.bytes) as f64;
        let between = |a: f64, b: f64| a + (b - a) * share;
        Point {
            bytes,
            miss_ratio: between(left.miss_ratio, right.miss_ratio),
            standard_error: between(left.standard_error, right.standard_error),
        }
    }

    /// The least bytes with at least this hit ratio, if any size has it.
    pub fn bytes_for(&self, hit_ratio: f64) -> Option<u64> {
        let goal = 1.0 - hit_ratio + ROUNDING;
        let right = self.points.partition_point(|point| point.miss_ratio > goal);
        let lower = self.points.get(right)?;
        let Some(higher) = right.checked_sub(1).and_then(|left| self.points.get(left)) else {
            return Some(lower.bytes);
        };
        let share = (higher.miss_ratio - goal) / (higher.miss_ratio - lower.miss_ratio);
        let bytes = higher.bytes + ((lower.bytes - higher.bytes) as f64 * share).ceil() as u64;
        Some(bytes.min(lower.bytes))
    }

    /// The last point; behind it the curve is flat.
    pub fn end(&self) -> Point {
        self.points[self.points.len() - 1]
    }

    /// The gain in hit ratio over the last e-fold of memory before the end.
    pub fn last_gain(&self) -> f64 {
        let end = self.end();
        self.at((end.bytes as f64 / E) as u64).miss_ratio - end.miss_ratio
    }

    /// The best hit ratio that memory can buy, as far as the curve goes.
    pub fn best_hit_ratio(&self) -> f64 {
        1.0 - self.end().miss_ratio
    }

    /// The lower convex hull: the corners at which one more byte is worth less than before. (A. M. Andrew's monotone chain,
    /// Information Processing Letters 9.5, 1979.)
    pub fn hull(&self) -> Self {
        let mut points: Vec<Point> = Vec::new();
        for point in &self.points {
            while let [.., a, b] = points[..] {
                if slope(&a, point) > slope(&a, &b) {
                    break;
                }
                points.pop();
            }
            points.push(*point);
        }
        Self { points }
    }
}

/// The change of the miss ratio per byte.
fn slope(from: &Point, to: &Point) -> f64 {
    (to.miss_ratio - from.miss_ratio) / (to.bytes - from.bytes) as f64
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn point(bytes: u64, miss_ratio: f64) -> Point {
        Point {
            bytes,
            miss_ratio,
            standard_error: 0.0,
        }
    }

    #[test]
    fn lookups_go_both_ways() {
        let curve = Curve::through([point(100, 0.5), point(300, 0.1), point(200, 0.5)]);
        for (bytes, miss_ratio) in [
            (0, 1.0),
            (50, 0.75),
            (100, 0.5),
            (150, 0.5),
            (250, 0.3),
            (300, 0.1),
            (9999, 0.1),
        ] {
            assert!((curve.at(bytes).miss_ratio - miss_ratio).abs() < 1e-12, "{bytes}");
        }
        for (hit_ratio, bytes) in [
            (0.0, Some(0)),
            (0.25, Some(50)),
            (0.5, Some(100)),
            (0.7, Some(250)),
            (0.9, Some(300)),
            (0.91, None),
        ] {
            assert_eq!(curve.bytes_for(hit_ratio), bytes, "{hit_ratio}");
        }
        assert!((curve.best_hit_ratio() - 0.9).abs() < 1e-12);
    }

    #[test]
    fn nothing_known_is_everything_missed() {
        let curve = Curve::through([point(10, f64::NAN)]);
        assert_eq!(curve.points(), [ORIGIN]);
        assert_eq!((curve.at(0), curve.at(7).miss_ratio), (ORIGIN, 1.0));
        assert_eq!(
            (curve.bytes_for(0.0), curve.bytes_for(0.1), curve.hull()),
            (Some(0), None, curve.clone())
        );
        assert_eq!(Curve::through([point(0, 0.25)]).at(0).miss_ratio, 0.25);
    }

    #[test]
    fn a_cliff_is_bridged_by_the_hull() {
        let curve = Curve::through([point(99, 1.0), point(100, 0.0)]);
        assert_eq!(curve.hull().points(), [ORIGIN, point(100, 0.0)]);
    }

    proptest! {
        #[test]
        fn curves_never_rise_and_hulls_are_convex_and_below(given in vec((0_u64..1 << 40, -0.1_f64..1.1), 0..60)) {
            let curve = Curve::through(given.iter().map(|(bytes, miss_ratio)| point(*bytes, *miss_ratio)));
            let points = curve.points();
            prop_assert!(points.is_sorted_by(|a, b| a.bytes < b.bytes && a.miss_ratio >= b.miss_ratio));
            prop_assert!(points.iter().all(|point| (0.0..=1.0).contains(&point.miss_ratio)));
            for (bytes, miss_ratio) in &given {
                prop_assert!(curve.at(*bytes).miss_ratio <= miss_ratio.max(0.0));
                // A lookup there and back never needs more, and reaches the requested ratio.
                let hit_ratio = 1.0 - curve.at(*bytes).miss_ratio;
                let back = curve.bytes_for(hit_ratio).unwrap();
                prop_assert!(back <= bytes + 1, "{back} for {hit_ratio}, which {bytes} has");
                prop_assert!(1.0 - curve.at(back).miss_ratio >= hit_ratio - 2.0 * ROUNDING);
            }
            let hull = curve.hull();
            prop_assert!(hull.points().windows(3).all(|w| slope(&w[0], &w[1]) < slope(&w[1], &w[2])));
            for point in points {
                prop_assert!(hull.at(point.bytes).miss_ratio <= point.miss_ratio + 1e-12);
            }
            prop_assert!(hull.points().iter().all(|point| points.contains(point)));
            prop_assert_eq!(hull.hull(), hull);
        }
    }
}
