//! Axes with round numbers: the places of values, and the labels beside them.

/// An axis of sizes: logarithmic, because caches differ by factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    first: f64,
    last: f64,
}

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// The place along the axis, 0 to 1.
    pub(super) at: f64,
    /// The text at the mark.
    pub(super) label: String,
}

/// Powers of ten that an axis may have with a label at their doubles and fivefolds, too.
const DENSE_DECADES: f64 = 2.5;

impl Sizes {
    /// An axis that shows these sizes in bytes.
    pub(super) fn new(first: u64, last: u64) -> Self {
        let first = first.max(1) as f64;
        Self {
            first,
            // An axis of no length has no places.
            last: (last as f64).max(first * 2.0),
        }
    }

    /// The place of a size within the axis, 0 to 1.
    pub(super) fn at(&self, bytes: f64) -> f64 {
        (bytes / self.first).ln() / (self.last / self.first).ln()
    }

    /// The size at a place.
    pub(super) fn bytes_at(&self, at: f64) -> u64 {
        (self.first * (self.last / self.first).powf(at)).round() as u64
    }

    /// Round sizes.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let decades = (self.last / self.first).log10();
        let factors: &[f64] = if decades <= DENSE_DECADES {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.first.log10().floor());
        while power <= self.last {
            for size in factors.iter().map(|factor| factor * power) {
                // A little beyond the ends is rounding.
                if (-1e-9..=1.0 + 1e-9).contains(&self.at(size)) {
                    ticks.push(Tick {
                        at: self.at(size),
                        label: size_label(size),
                    });
                }
            }
            power *= 10.0;
        }
        ticks
    }
}

/// A round size in decimal units.
fn size_label(bytes: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes, 0);
    while value >= 999.5 && unit + 1 < units.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    format!("{} {}", value.round(), units[unit])
}

/// An axis of ratios from zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratios {
    step: f64,
    last: f64,
}

impl Ratios {
    /// An axis that shows ratios up to this one.
    pub(super) fn new(largest: f64) -> Self {
        let steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];
        let enough = |step: &f64| largest <= step * 5.0 + 1e-9;
        let step = steps.into_iter().find(enough).unwrap_or(0.2);
        Self {
            step,
            last: (largest / step - 1e-9).ceil().max(1.0) * step,
        }
    }

    /// The place of a ratio within the axis, 0 to 1.
    pub(super) fn at(&self, ratio: f64) -> f64 {
        ratio / self.last
    }

    /// Round percentages.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let count = (self.last / self.step).round() as u32;
        (0..=count)
            .map(|n| {
                let percent = f64::from(n) * self.step * 100.0;
                Tick {
                    at: f64::from(n) / f64::from(count),
                    label: format!("{} %", (percent * 10.0).round() / 10.0),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        for (first, last, labels) in [
            (1, 1, &["1 B", "2 B"][..]),
            (763, 76_349, &["1 kB", "2 kB", "5 kB", "10 kB", "20 kB", "50 kB"]),
            (
                20_000_000,
                2_000_000_000,
                &["20 MB", "50 MB", "100 MB", "200 MB", "500 MB", "1 GB", "2 GB"],
            ),
            (
                10,
                10_000_000,
                &["10 B", "100 B", "1 kB", "10 kB", "100 kB", "1 MB", "10 MB"],
            ),
        ] {
            let axis = Sizes::new(first, last);
            let ticks = axis.ticks();
            assert_eq!(ticks.iter().map(|tick| tick.label.as_str()).collect::<Vec<_>>(), labels);
            assert!(ticks.is_sorted_by(|a, b| a.at < b.at));
            assert_eq!((axis.bytes_at(0.0), axis.bytes_at(1.0)), (first, last.max(2)));
        }
    }

    #[test]
    fn ratios_have_few_steps() {
        for (largest, labels) in [
            (1.0, &["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"][..]),
            (0.53, &["0 %", "20 %", "40 %", "60 %"]),
            (0.04, &["0 %", "1 %", "2 %", "3 %", "4 %"]),
            (0.0, &["0 %", "0.1 %"]),
        ] {
            let labelled: Vec<String> = Ratios::new(largest)
                .ticks()
                .into_iter()
                .map(|tick| tick.label)
                .collect();
            assert_eq!(labelled, labels, "{largest}");
        }
    }
}
