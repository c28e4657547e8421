//! What hits are worth, and what each next unit of memory is worth by that.
//!
//! A tenant that asks its next question when it has the answer to the last one asks `1 / (h t_hit + (1 - h) t_miss)` questions
//! in a unit of time at a hit ratio of `h`. That is its throughput here, whether its clients really wait or not.

use std::fmt;
use std::str::FromStr;

use super::returns::Returns;

/// By what memory is shared that no floor and no goal asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Utility {
    /// The logarithm of the throughput: nobody gains a part of its throughput while others together lose a greater one
    /// (proportional fairness).
    #[default]
    Proportional,
    /// Whoever has the least throughput comes first.
    MaxMin,
    /// The throughput: memory goes where it makes the most, and some may get nothing.
    Throughput,
    /// The time that gets take, all together: as throughput, for loads that do not ask less because they wait.
    Cost,
}

impl Utility {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Proportional, Self::MaxMin, Self::Throughput, Self::Cost];

    /// As it is written in options and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proportional => "proportional",
            Self::MaxMin => "max-min",
            Self::Throughput => "throughput",
            Self::Cost => "cost",
        }
    }
}

impl fmt::Display for Utility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such utility.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UtilityError(String);

impl fmt::Display for UtilityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Utility::ALL.map(Utility::name).join(", ");
        write!(f, "there is no utility `{}`: allowed are {names}", self.0)
    }
}

impl std::error::Error for UtilityError {}

impl FromStr for Utility {
    type Err = UtilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|utility| utility.name() == text);
        // An error must not be as long as what caused it.
        found.ok_or_else(|| UtilityError(text.chars().take(40).collect()))
    }
}

/// What a tenant asks, and what answers cost it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How often it asks.
    pub gets_per_second: f64,
    /// What a hit takes; positive.
    pub hit_cost_us: f64,
    /// What a miss takes: at least what a hit does.
    pub miss_cost_us: f64,
}

impl Load {
    /// What a get takes on average.
    pub fn mean_cost_us(&self, hit_ratio: f64) -> f64 {
        hit_ratio * self.hit_cost_us + (1.0 - hit_ratio) * self.miss_cost_us
    }

    /// The hit ratio at which a get takes so long on average: 0 where a miss is no slower, more than 1 where a hit is.
    pub fn hit_ratio_for(&self, mean_cost_us: f64) -> f64 {
        ((self.miss_cost_us - mean_cost_us) / (self.miss_cost_us - self.hit_cost_us)).max(0.0)
    }

    fn throughput(&self, hit_ratio: f64) -> f64 {
        1.0 / self.mean_cost_us(hit_ratio)
    }
}

/// What makes utilities of different kinds comparable: at the mean of all tenants, one per cent more is worth the same to
/// each. Where all have one kind, it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    throughput: f64,
    cost: f64,
}

/// The exponent of max-min: of alpha-fair utilities, which are the sum at 0, proportional at 1 and max-min at infinity
/// (Mo and Walrand, IEEE/ACM Transactions on Networking 8.5, 2000). At 64 two throughputs differ by at most a 64th for each
/// e-fold by which memory is worth more to one than to the other.
const MAX_MIN_ALPHA: i32 = 64;
/// A throughput this far below the mean, or above it, counts as no less, or more, by max-min: all such come first, or last,
/// alike, and the powers stay numbers.
const MAX_MIN_RANGE: f64 = 10_000.0;

/// At so many points at least it is asked what a size is worth by max-min.
const MAX_MIN_POINTS: usize = 64;

impl Scale {
    /// Of tenants with these loads and hit ratios.
    pub(super) fn of(tenants: impl Iterator<Item = (Load, f64)>) -> Self {
        let (mut throughput, mut cost, mut count) = (0.0, 0.0, 0.0);
        for (load, hit_ratio) in tenants {
            throughput += load.throughput(hit_ratio);
            cost += load.gets_per_second * load.mean_cost_us(hit_ratio);
            count += 1.0;
        }
        let mean = |sum: f64| if sum > 0.0 { sum / count } else { 1.0 };
        Self {
            throughput: mean(throughput),
            cost: mean(cost),
        }
    }

    /// What a hit ratio is worth.
    pub(super) fn utility(&self, utility: Utility, load: &Load, hit_ratio: f64) -> f64 {
        let relative = load.throughput(hit_ratio) / self.throughput;
        match utility {
            Utility::Proportional => relative.ln(),
            Utility::Throughput => relative,
            Utility::MaxMin => {
                // Beyond the range a straight line goes on, so that more is always better.
                let within = relative.clamp(1.0 / MAX_MIN_RANGE, MAX_MIN_RANGE);
                let beyond = (relative - within) * within.powi(-MAX_MIN_ALPHA);
                beyond - within.powi(1 - MAX_MIN_ALPHA) / f64::from(MAX_MIN_ALPHA - 1)
            }
            Utility::Cost => -load.gets_per_second * load.mean_cost_us(hit_ratio) / self.cost,
        }
    }
}

/// What one tenant gains by each unit of memory from where it stands, the dearest first.
#[derive(Clone, Debug)]
pub(super) struct Gains {
    start: f64,
    most: f64,
    weight: f64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    /// Up to each end, so much per unit; falling.
    Pieces(Vec<Piece>),
    /// Nothing is known: its throughput is believed to grow as its memory does.
    Believed,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    end: f64,
    slope: f64,
}

impl Gains {
    /// Of a tenant that has `start` and may have `most`, of which a hit ratio is worth `worth`. That bends where its returns
    /// do, and between for those utilities that value a first hit more than a last one.
    pub(super) fn new(
        start: u64,
        most: u64,
        weight: f64,
        returns: Option<&Returns>,
        utility: Utility,
        worth: impl Fn(f64) -> f64,
    ) -> Self {
        let (start, most) = (start as f64, most as f64);
        let law = match returns {
            None => Law::Believed,
            Some(returns) => {
                let between = returns.bends().filter(|size| *size > start && *size < most);
                let bends: Vec<f64> = std::iter::once(start)
                    .chain(between)
                    .chain(std::iter::once(most))
                    .collect();
                let steps = match utility {
                    Utility::MaxMin => MAX_MIN_POINTS.div_ceil(bends.len().saturating_sub(1).max(1)),
                    _ => 1,
                };
                let inner = |pair: &[f64]| {
                    let (from, step) = (pair[0], (pair[1] - pair[0]) / steps as f64);
                    (0..steps).map(move |index| from + step * index as f64)
                };
                let sizes = bends.windows(2).flat_map(inner).chain(std::iter::once(most));
                Law::Pieces(hull(sizes.map(|size| (size, worth(returns.hit_ratio(size))))))
            }
        };
        Self {
            start,
            most,
            weight,
            law,
        }
    }

    /// How much it takes while a unit costs so much utility.
    pub(super) fn size_at(&self, price: f64) -> f64 {
        match &self.law {
            Law::Believed => (self.weight / price).clamp(self.start, self.most.max(self.start)),
            Law::Pieces(pieces) => {
                let taken = pieces.partition_point(|piece| piece.slope * self.weight >= price);
                taken.checked_sub(1).map_or(self.start, |last| pieces[last].end)
            }
        }
    }

    /// The lowest and the highest price at which its size changes; `None` where none does.
    pub(super) fn prices(&self) -> Option<(f64, f64)> {
        match &self.law {
            Law::Believed => {
                (self.most > self.start).then(|| (self.weight / self.most, self.weight / self.start.max(1.0)))
            }
            Law::Pieces(pieces) => {
                let (first, last) = (pieces.first()?, pieces.last()?);
                Some((last.slope * self.weight, first.slope * self.weight))
            }
        }
    }
}

/// The upper concave hull of a way that does not fall, without its flat end.
fn hull(points: impl Iterator<Item = (f64, f64)>) -> Vec<Piece> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    let slope = |from: (f64, f64), to: (f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    for point in points {
        if corners.last().is_some_and(|last| point.0 <= last.0) {
            continue;
        }
        while let [.., a, b] = corners[..] {
            if slope(b, point) < slope(a, b) {
                break;
            }
            corners.pop();
        }
        corners.push(point);
    }
    let pieces = corners.windows(2).map(|pair| Piece {
        end: pair[1].0,
        slope: slope(pair[0], pair[1]),
    });
    pieces.take_while(|piece| piece.slope > 0.0).collect()
}
