//! Figures of several rounds.

use serde::Serialize;

/// The middle of several figures, and where the middle half of them lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The median.
    pub(crate) median: f64,
    /// The first quartile.
    pub(crate) low: f64,
    /// The third quartile.
    pub(crate) high: f64,
}

impl Spread {
    /// Of some figures, interpolated between neighbours; of none, zero.
    pub(crate) fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = part * sorted.len().saturating_sub(1) as f64;
            let (below, rest) = (place as usize, place.fract());
            let figure = |i: usize| sorted.get(i.min(sorted.len().saturating_sub(1))).copied().unwrap_or_default();
            figure(below) * (1.0 - rest) + figure(below + 1) * rest
        };
        Self { median: at(0.5), low: at(0.25), high: at(0.75) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles() {
        for (figures, low, median, high) in [
            (&[][..], 0.0, 0.0, 0.0),
            (&[3.0], 3.0, 3.0, 3.0),
            (&[4.0, 2.0], 2.5, 3.0, 3.5),
            (&[5.0, 1.0, 4.0, 2.0, 3.0], 2.0, 3.0, 4.0),
        ] {
            let spread = Spread { median, low, high };
            assert_eq!(Spread::of(figures.iter().copied()), spread, "{figures:?}");
        }
    }
}
