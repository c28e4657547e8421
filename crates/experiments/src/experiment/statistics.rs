//! The distribution of several rounds of one measurement.

use serde::Serialize;

/// The middle of several values and the quartiles around it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Half of the values are below.
    pub median: f64,
    /// A quarter of the values is below.
    pub low: f64,
    /// A quarter of the values is above.
    pub high: f64,
}

impl Spread {
    /// The spread of any values, in any order; `None` without values. It is interpolated between two values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = share * last as f64;
            let below = place.floor() as usize;
            let above = (below + 1).min(last);
            sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
        };
        Some(Self {
            median: at(0.5),
            low: at(0.25),
            high: at(0.75),
        })
    }

    /// The spread of the ratios of values that were measured in the same round.
    pub fn of_ratios(pairs: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        Self::of(pairs.into_iter().map(|(above, below)| above / below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_interpolated() {
        let spread = |median, low, high| Some(Spread { median, low, high });
        for (values, expected) in [
            (&[][..], None),
            (&[3.0], spread(3.0, 3.0, 3.0)),
            (&[4.0, 2.0], spread(3.0, 2.5, 3.5)),
            (&[5.0, 1.0, 3.0, 2.0, 4.0], spread(3.0, 2.0, 4.0)),
            (&[1.0, 2.0, 3.0, 100.0], spread(2.5, 1.75, 27.25)),
        ] {
            assert_eq!(Spread::of(values.iter().copied()), expected, "{values:?}");
        }
    }

    #[test]
    fn ratios_are_of_one_round_each() {
        // Noise that both share goes: each round's ratio is a half.
        let ratios = Spread::of_ratios([(1.0, 2.0), (50.0, 100.0), (3.0, 6.0)]);
        assert_eq!(
            ratios.map(|ratios| (ratios.low, ratios.median, ratios.high)),
            Some((0.5, 0.5, 0.5))
        );
    }
}
