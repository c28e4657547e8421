//! The lower convex hull of a curve as lines between corners, and where a sum of two such hulls stops to be worth a price.

use tidemark_curve::Curve;

/// A convex curve that falls from corner to corner and is flat behind the last one.
#[derive(Clone, Debug)]
pub(super) struct Facets {
    /// Sizes in bytes, ascending from 0, and the miss ratio at each.
    corners: Vec<(f64, f64)>,
    /// The fall of the miss ratio per byte from each corner to the next, descending; one less than corners.
    gains: Vec<f64>,
}

impl Facets {
    pub(super) fn of(curve: &Curve) -> Self {
        let hull = curve.hull();
        let mut corners: Vec<(f64, f64)> = hull
            .points()
            .iter()
            .map(|point| (point.bytes as f64, point.miss_ratio))
            .collect();
        // A flat end buys nothing.
        while let [.., before, last] = corners[..] {
            if before.1 > last.1 {
                break;
            }
            corners.pop();
        }
        let gains = corners
            .windows(2)
            .map(|w| (w[0].1 - w[1].1) / (w[1].0 - w[0].0))
            .collect();
        Self { corners, gains }
    }

    pub(super) fn miss_ratio(&self, bytes: f64) -> f64 {
        let right = self.corners.partition_point(|corner| corner.0 <= bytes);
        let Some(index) = right.checked_sub(1) else {
            return 1.0;
        };
        let (at, miss_ratio) = self.corners[index];
        miss_ratio - self.gains.get(index).map_or(0.0, |gain| gain * (bytes - at))
    }

    /// The first corner at which one more byte gains no more than this.
    pub(super) fn until(&self, gain: f64) -> f64 {
        self.corners[self.gains.partition_point(|of_facet| *of_facet > gain)].0
    }

    /// The least that a byte gains that gains anything.
    pub(super) fn least_gain(&self) -> f64 {
        self.gains.last().copied().unwrap_or(1.0)
    }

    /// The gain of the last byte.
    pub(super) fn gain_below(&self, bytes: f64) -> f64 {
        let right = self.corners.partition_point(|corner| corner.0 < bytes);
        right
            .checked_sub(1)
            .and_then(|index| self.gains.get(index))
            .copied()
            .unwrap_or(0.0)
    }

    /// The gain of one more byte.
    fn gain_at(&self, bytes: f64) -> f64 {
        let right = self.corners.partition_point(|corner| corner.0 <= bytes);
        right
            .checked_sub(1)
            .and_then(|index| self.gains.get(index))
            .copied()
            .unwrap_or(0.0)
    }

    /// The smallest x from 0 on at which the weighted gains are together no more than `gain`. The sum is `first` times
    /// the gain at x, plus `second` times another one's gain at `stretch` x plus `shift`. The second gain counts `stretch`.
    pub(super) fn until_both(
        &self,
        first: f64,
        (other, second): (&Self, f64),
        stretch: f64,
        shift: f64,
        gain: f64,
    ) -> f64 {
        let both = |x: f64| first * self.gain_at(x) + second * stretch * other.gain_at(stretch * x + shift);
        let mut best = f64::INFINITY;
        let at = self.corners.partition_point(|corner| both(corner.0) > gain);
        if let Some(corner) = self.corners.get(at) {
            best = corner.0;
        }
        // Rounding may leave the shifted corner a little below itself, in the facet before it.
        let back = |corner: &(f64, f64)| {
            let x = (corner.0 - shift) / stretch;
            if stretch * x + shift < corner.0 {
                x.next_up().max(x * (1.0 + 1e-15))
            } else {
                x
            }
        };
        let at = other.corners.partition_point(|corner| {
            let x = back(corner);
            x < 0.0 || both(x) > gain
        });
        if let Some(corner) = other.corners.get(at) {
            best = best.min(back(corner));
        }
        best
    }
}
