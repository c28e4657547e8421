//! How unevenly keys are used: the exponent of Zipf's law.
//!
//! The method is Genie's (IEEE TKDE 2025, section V.A). On logarithmic scales Zipf's law is a line, whose slope least
//! squares find on the popular head. R squared tells how well it fits; from 0.8 on the law is taken to hold.

/// A law `uses ~ rank^-alpha`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skew {
    /// The exponent: 0 where all keys are used alike.
    pub alpha: f64,
    /// The share of the head's variation that the law explains, 0 to 1.
    pub r_squared: f64,
}

/// Popular keys that are looked at, at most: beyond, counts are small and say little.
const HEAD_KEYS: usize = 1000;
/// Keys used less often are left out: chance would decide their rank.
const USES_MIN: u64 = 8;
/// Fewer keys make no line.
const KEYS_MIN: usize = 10;
/// Logarithms that vary less are those of equal numbers.
const LEVEL: f64 = 1e-12;
/// An R squared from here on is a good fit.
const GOOD_FIT: f64 = 0.8;

impl Skew {
    /// The law of these counts of uses; none where too few keys are used often enough.
    pub fn of(uses: impl Iterator<Item = u64>) -> Option<Self> {
        let mut uses: Vec<u64> = uses.filter(|uses| *uses >= USES_MIN).collect();
        if uses.len() < KEYS_MIN {
            return None;
        }
        let head = HEAD_KEYS.min(uses.len());
        uses.select_nth_unstable_by(head - 1, |a, b| b.cmp(a));
        uses.truncate(head);
        uses.sort_unstable_by(|a, b| b.cmp(a));
        // A sampled rank is less certain the smaller it is: half a rank less removes the bias of that (X. Gabaix,
        // R. Ibragimov, "Rank - 1/2", Journal of Business & Economic Statistics 29.1, 2011).
        let points = uses
            .iter()
            .enumerate()
            .map(|(place, uses)| ((place as f64 + 0.5).ln(), (*uses as f64).ln()));
        Some(Self::of_line(points))
    }

    /// Whether the law may be relied on.
    pub fn is_good_fit(&self) -> bool {
        self.r_squared >= GOOD_FIT
    }

    fn of_line(points: impl Iterator<Item = (f64, f64)> + Clone) -> Self {
        let (mut n, mut x, mut y) = (0.0, 0.0, 0.0);
        for point in points.clone() {
            (n, x, y) = (n + 1.0, x + point.0, y + point.1);
        }
        let (mean_x, mean_y) = (x / n, y / n);
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in points {
            let (x, y) = (x - mean_x, y - mean_y);
            (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
        }
        Self {
            alpha: (-xy / xx).max(0.0),
            // All alike: a level line, which fits wholly.
            r_squared: if yy > LEVEL * n { xy * xy / (xx * yy) } else { 1.0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponent_of_zipf_s_law_is_found() {
        for alpha in [0.0, 0.5, 0.99, 1.4] {
            let law = (0..100_000).map(|rank| (1e6 * (f64::from(rank) + 0.5).powf(-alpha)) as u64);
            let skew = Skew::of(law).unwrap();
            assert!((skew.alpha - alpha).abs() < 0.01, "{alpha}: {skew:?}");
            assert!(skew.is_good_fit(), "{skew:?}");
        }
    }

    #[test]
    fn what_is_no_line_fits_badly() {
        let two_levels = (0..1000).map(|key| if key < 900 { 1000 } else { 10 });
        assert!(!Skew::of(two_levels).unwrap().is_good_fit());
    }

    #[test]
    fn too_little_says_nothing() {
        assert_eq!(Skew::of((0..9).map(|_| 100)), None);
        assert_eq!(Skew::of((0..1000).map(|_| 7)), None);
        assert!(Skew::of((0..10).map(|_| 8)).is_some());
    }
}
