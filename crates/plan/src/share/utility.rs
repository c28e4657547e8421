//! The worth of hits, and the resulting worth of each next unit of memory.
//!
//! A tenant with one client that waits for each answer asks `1 / (h t_hit + (1 - h) t_miss)` questions in a unit of
//! time. The hit ratio is `h`. That is its throughput here, whether its clients really wait or not.

use std::fmt;
use std::str::FromStr;

use super::Claimant;

/// By what memory is shared that no floor and no goal asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Utility {
    /// The logarithm of the throughput: nobody gains a part of its throughput while others together lose a greater one
    /// (proportional fairness).
    #[default]
    Proportional,
    /// The tenant with the least throughput comes first.
    MaxMin,
    /// The throughput: memory goes where it makes the most, and some may get nothing.
    Throughput,
    /// The time that gets take, all together: as throughput, for loads that do not ask less because they wait.
    Cost,
}

impl Utility {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::Proportional, Self::MaxMin, Self::Throughput, Self::Cost];

    /// The name in options and the API.
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
        // An error must not be as long as its cause.
        found.ok_or_else(|| UtilityError(text.chars().take(40).collect()))
    }
}

/// The rate of a tenant's gets, and the cost of answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How often it asks.
    pub gets_per_second: f64,
    /// The time of a hit; positive.
    pub hit_cost_us: f64,
    /// The time of a miss: at least that of a hit.
    pub miss_cost_us: f64,
}

impl Load {
    /// The mean time of a get.
    pub fn mean_cost_us(&self, hit_ratio: f64) -> f64 {
        hit_ratio * self.hit_cost_us + (1.0 - hit_ratio) * self.miss_cost_us
    }

    /// The hit ratio at which a get takes so long on average. It is 0 if a miss is no slower, more than 1 if a hit is.
    pub fn hit_ratio_for(&self, mean_cost_us: f64) -> f64 {
        ((self.miss_cost_us - mean_cost_us) / (self.miss_cost_us - self.hit_cost_us)).max(0.0)
    }

    fn throughput(&self, hit_ratio: f64) -> f64 {
        1.0 / self.mean_cost_us(hit_ratio)
    }
}

/// A tenant's custom worth of each hit ratio, asked at every hundredth, with straight lines between. It never falls.
#[derive(Clone, Debug, PartialEq)]
pub struct HitWorth(Vec<f64>);

/// A hit ratio cannot be worth that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitWorthError {
    hit_ratio: f64,
    worth: f64,
}

impl fmt::Display for HitWorthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { hit_ratio, worth }, most) = (self, HitWorth::MOST);
        write!(f, "said that a hit ratio of {hit_ratio} is worth {worth}: ")?;
        write!(
            f,
            "allowed are -{most:e} to {most:e}, and no less than a lower hit ratio is"
        )
    }
}

impl std::error::Error for HitWorthError {}

impl HitWorth {
    /// The furthest from zero that anything may be worth.
    pub const MOST: f64 = 1e9;
    const STEPS: u32 = 100;
    /// A smaller rise counts as flat: memory is not shared by differences that rounding makes. For large numbers the
    /// bound is higher.
    const LEAST_RISE: f64 = 1e-9;

    /// Asks for 0, 0.01 and so on to 1, in this order.
    ///
    /// # Errors
    /// The first answer that is no number within [`Self::MOST`], or less than the one before.
    pub fn of(mut worth: impl FnMut(f64) -> f64) -> Result<Self, HitWorthError> {
        let mut points: Vec<f64> = Vec::with_capacity(Self::STEPS as usize + 1);
        for hit_ratio in Self::asked() {
            let worth = worth(hit_ratio);
            let before = points.last().copied().unwrap_or(f64::NEG_INFINITY);
            let rounding = Self::LEAST_RISE.max(4.0 * f64::EPSILON * worth.abs());
            // A value that is not a number has no order among others.
            let is_possible = worth.abs() <= Self::MOST && worth >= before - rounding;
            if !is_possible {
                return Err(HitWorthError { hit_ratio, worth });
            }
            points.push(if worth - before < rounding { before } else { worth });
        }
        Ok(Self(points))
    }

    /// The hit ratios at which it may bend, ascending.
    fn asked() -> impl Iterator<Item = f64> {
        (0..=Self::STEPS).map(|step| f64::from(step) / f64::from(Self::STEPS))
    }

    /// The worth of a hit ratio from 0 to 1.
    fn at(&self, hit_ratio: f64) -> f64 {
        let place = hit_ratio.clamp(0.0, 1.0) * f64::from(Self::STEPS);
        let left = place as usize;
        let Some(right) = self.0.get(left + 1) else {
            return self.0[left];
        };
        self.0[left] + (right - self.0[left]) * place.fract()
    }
}

/// The scale that makes utilities of different kinds comparable. At the mean of all tenants, one per cent more is worth
/// the same to each. If all have one kind, it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    throughput: f64,
    cost: f64,
}

/// The exponent of max-min among alpha-fair utilities. These are the sum at 0, proportional at 1 and max-min at
/// infinity (Mo and Walrand, IEEE/ACM Transactions on Networking 8.5, 2000). At 64 two throughputs differ by at most a
/// 64th for each e-fold in the ratio of memory's worth to the two.
const MAX_MIN_ALPHA: u32 = 1 << MAX_MIN_SQUARINGS;
/// How often a number is squared for that power.
const MAX_MIN_SQUARINGS: u32 = 6;
/// The range of throughputs that max-min tells apart, as a factor around the mean. All throughputs below it come first
/// alike, all above it last alike, and the powers stay numbers.
const MAX_MIN_RANGE: f64 = 10_000.0;

/// The worth of a size by max-min is asked at so many points at least.
const MAX_MIN_POINTS: usize = 64;

impl Scale {
    /// The scale of tenants with these loads and hit ratios.
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

    /// The worth of a hit ratio to a tenant.
    pub(super) fn worth(&self, claimant: &Claimant<'_>, hit_ratio: f64) -> f64 {
        match claimant.custom_worth {
            Some(own) => own.at(hit_ratio),
            None => self.utility(claimant.utility, &claimant.load, hit_ratio),
        }
    }

    fn utility(&self, utility: Utility, load: &Load, hit_ratio: f64) -> f64 {
        let relative = load.throughput(hit_ratio) / self.throughput;
        match utility {
            Utility::Proportional => relative.ln(),
            Utility::Throughput => relative,
            Utility::MaxMin => {
                // Beyond the range a straight line goes on, so that more is always better.
                let within = relative.clamp(1.0 / MAX_MIN_RANGE, MAX_MIN_RANGE);
                let power = (0..MAX_MIN_SQUARINGS).fold(within, |power, _| power * power);
                ((relative - within) - within / f64::from(MAX_MIN_ALPHA - 1)) / power
            }
            Utility::Cost => -load.gets_per_second * load.mean_cost_us(hit_ratio) / self.cost,
        }
    }
}

/// The gain of one tenant from each unit of memory beyond its present size, the dearest first.
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
    /// The gains of a tenant that has `start`. They bend where its returns do and where its custom worth does. They
    /// also bend between, for utilities that value a first hit more than a last one.
    pub(super) fn of(claimant: &Claimant<'_>, start: u64, scale: &Scale, scratch: &mut Corners) -> Self {
        let (start, most) = (start as f64, claimant.most as f64);
        let law = match claimant.returns {
            None => Law::Believed,
            Some(returns) => {
                let is_between = |size: &f64| *size > start && *size < most;
                let own = claimant.custom_worth.into_iter().flat_map(|_| HitWorth::asked());
                let own = own.map(|hit_ratio| returns.size_for(hit_ratio));
                let mut bends: Vec<f64> = returns.bends().chain(own).filter(is_between).collect();
                bends.extend([start, most]);
                bends.sort_unstable_by(f64::total_cmp);
                let steps = match (claimant.custom_worth, claimant.utility) {
                    (None, Utility::MaxMin) => MAX_MIN_POINTS.div_ceil(bends.len() - 1),
                    _ => 1,
                };
                let bends: Vec<(f64, f64)> = bends.iter().map(|size| (*size, returns.hit_ratio(*size))).collect();
                // Between bends the hit ratio is a straight line.
                let inner = |pair: &[(f64, f64)]| {
                    let part = |from: f64, to: f64| (from, (to - from) / steps as f64);
                    let ((size, more), (hit_ratio, better)) = (part(pair[0].0, pair[1].0), part(pair[0].1, pair[1].1));
                    (0..steps).map(move |index| (size + more * index as f64, hit_ratio + better * index as f64))
                };
                let last = bends.last().copied();
                let points = bends.windows(2).flat_map(inner).chain(last);
                Law::Pieces(hull(
                    points.map(|(size, hit_ratio)| (size, scale.worth(claimant, hit_ratio))),
                    scratch,
                ))
            }
        };
        Self {
            start,
            most,
            weight: claimant.weight,
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

/// Corners of a hull, each with the slope of the way to it: room that is used again.
pub(super) type Corners = Vec<((f64, f64), f64)>;

/// The upper concave hull of a way that does not fall, without its flat end.
fn hull(points: impl Iterator<Item = (f64, f64)>, before: &mut Corners) -> Vec<Piece> {
    let mut points = points;
    let Some(first) = points.next() else {
        return Vec::new();
    };
    let (mut last, mut last_slope) = (first, f64::INFINITY);
    // Those before the last one.
    before.clear();
    for point in points {
        if point.0 <= last.0 {
            continue;
        }
        let slope_from = |from: (f64, f64)| (point.1 - from.1) / (point.0 - from.0);
        let mut slope = slope_from(last);
        while slope >= last_slope
            && let Some(corner) = before.pop()
        {
            (last, last_slope) = corner;
            slope = slope_from(last);
        }
        before.push((last, last_slope));
        (last, last_slope) = (point, slope);
    }
    before.push((last, last_slope));
    let rising = before.iter().skip(1).take_while(|(_, slope)| *slope > 0.0);
    let mut pieces = Vec::with_capacity(before.len());
    pieces.extend(rising.map(|((end, _), slope)| Piece {
        end: *end,
        slope: *slope,
    }));
    pieces
}
