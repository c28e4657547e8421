//! How much memory each eviction policy needs for nine hits in ten, and how fast it is then: Genie's Fig. 7 and 18, for
//! every policy of the store (Genie, TKDE 2025, sections V.A and VI.I).

use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use tidemark_curve::Eviction;
use tidemark_curve::sim::Capacity;
use tidemark_types::{LogShare, Policy, UNIT_BYTES};

use super::chart::{Chart, Marks, Panel};
use super::look_aside::{Found, Items, LookAside};
use super::others::Others;
use super::replay_hit_ratio::ITEM_HEADER_BYTES;
use super::report::{Point, Series, Target};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;
use tidemark_tools::load::{Distribution, Keys, Order, Rng, ValueSize};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "genie-fig7",
    title: "Memory for nine hits in ten, and throughput, by eviction policy (Genie, Fig. 7 and 18)",
    minutes: 10,
    about: "\
How much more memory than an exact LRU each eviction policy needs for a hit ratio of 90 %, from even to very skewed
popularity, and how many requests a second one thread then does. `approx-lru:SHARE` is the policy of MICA and Genie: items
that are used while more than that share of the log is newer are copied to its newest end. Genie's own rule is `fifo` for
a skew below 1, else `approx-lru:0.5`.

The store is used in process, without a server: one tenant in one shard, one look-aside client (a get, and a set of what was
missed), virtual time. Keys have 16 bytes; all values are equally long, so long that the exact LRU would take 5.75 MiB, which
is about 90 segments of 64 KiB, but not longer than that 16 items fill a segment, so that at the greatest skew there are fewer
segments. For each policy the grant is bisected to the unit of 64 KiB, and what lies between two grants is interpolated.

A policy's memory is what the tenant holds, segments and index. That of the exact LRU is the number of keys with which it
has 90 % hits on the same requests, each taking a header of 7 bytes, its key, its value, and as many bytes of index as an item
has in the run that it is compared with. So what a policy has above 1 is keys that it keeps in vain, copies, and the ends of
segments that are not full yet or empty again. Beside it stands what the policy would need if it had no segments and no
bytes but items: the keys that it needs in simulation, over the exact LRU's. Dead memory is what lies in the segments without
being an item. Throughput is that of one thread with the grant that was found, the policies measured by turns.

The targets are the cost of Genie's policies: 1.2 to 1.3 for `approx-lru:0.5` from uniform popularity to Zipf 1.1, 1.0 to 1.2
for `fifo` up to Zipf 1, where Genie uses it; and for both, that the store adds no more than 3 % to what they need in
simulation. Where one of the former is missed, simulation says whether anybody could meet it.",
    run,
};

/// The hit ratio to reach, hits over requests.
const GOAL_RATIO: f64 = 0.9;
const KEY_BYTES: usize = 16;
/// The memory that the exact LRU is to take. Segments are small parts of it, and even a third more is below the 8 MiB
/// from which on segments are larger.
const LRU_BYTES: u64 = 5_888 << 10;
/// About what an item takes in the index, for choosing its size and the first grants.
const INDEX_BYTES: u64 = 10;
/// Items that fill a segment of a unit, at least: with fewer, its end would often be empty.
const SEGMENT_ITEMS_MIN: u64 = 16;
/// The grants that are tried lie between these parts of the exact LRU's memory, in tenths.
const GRANT_TENTHS: (u64, u64) = (3, 25);
/// The paper's figures that are targets: the policy, the skew up to which, the least and the most of the exact LRU's
/// memory.
const TARGETS: [(Policy, f64, f64, f64); 2] = [
    (Policy::ApproxLru(LogShare::HALF), 1.1, 1.2, 1.3),
    (Policy::Fifo, 1.0, 1.0, 1.2),
];
/// The most that memory may be over that of the simulated policy.
const OVER_SIMULATION_MAX: f64 = 1.03;
/// Drawn: as many as there are colours. The tables have all.
const DRAWN: [&str; 6] = [
    "fifo",
    "clock",
    "s3fifo",
    "approx-lru:0.5",
    "approx-lru:0.7",
    "approx-lru:0.9",
];

/// How much is done.
struct Scale {
    /// Zipf's exponents.
    alphas: Vec<f64>,
    keys: u64,
    /// Requests until hits count, and those that count.
    warm_up: usize,
    counted: usize,
    /// Rounds of throughput.
    rounds: usize,
}

impl Scale {
    fn of(context: &Context) -> Self {
        if context.quick {
            Self {
                alphas: vec![0.0, 0.8, 1.1],
                keys: 10_000,
                warm_up: 200_000,
                counted: 200_000,
                rounds: 3,
            }
        } else {
            Self {
                alphas: vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.1, 1.2, 1.4],
                keys: 50_000,
                warm_up: 1_000_000,
                counted: 1_000_000,
                rounds: 5,
            }
        }
    }
}

/// Every policy, the one with a share at those of the paper.
fn policies() -> impl Iterator<Item = Policy> {
    let shares = (5..=10).filter_map(|tenths| LogShare::from_thousandths(tenths * 100));
    Policy::PLAIN.into_iter().chain(shares.map(Policy::ApproxLru))
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let scale = Scale::of(context);
    let others = Others::watch();
    let mut results = Vec::new();
    for (alpha, stream) in scale.alphas.iter().zip(0..) {
        let load = Load::new(&scale, *alpha, Rng::stream(context.seed, stream))?;
        context.tell(&format!(
            "Zipf {alpha:.1}: an exact LRU of {} keys, values of {} bytes",
            load.lru_keys, load.value_bytes
        ));
        results.push(load.results(scale.rounds, context.seed)?);
    }
    Ok(Outcome {
        scale: format!(
            "{} keys; {} requests for each grant, of which the last {} count; {} rounds of throughput",
            scale.keys,
            scale.warm_up + scale.counted,
            scale.counted,
            scale.rounds
        ),
        targets: targets(&scale.alphas, &results),
        series: series(&scale.alphas, &results),
        chart: chart(&scale.alphas, &results),
        others_cores: others.cores(),
    })
}

/// Requests for keys of one popularity.
struct Load {
    warm_up: Vec<u32>,
    counted: Vec<u32>,
    /// Keys with which an exact LRU reaches the goal.
    lru_keys: u64,
    items: Items,
    value_bytes: usize,
}

/// The result of a policy at one popularity.
#[derive(Clone, Debug)]
struct PolicyResult {
    policy: Policy,
    /// Keys over the exact LRU's, in simulation.
    simulated_ratio: f64,
    /// If the goal was reached.
    reached: Option<Reached>,
    /// Requests per second, of each round.
    throughput: Vec<f64>,
}

/// A grant that reaches the goal.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reached {
    grant_units: u64,
    /// Memory over the exact LRU's.
    memory_ratio: f64,
    /// Dead memory over all.
    dead_ratio: f64,
}

impl Load {
    fn new(scale: &Scale, alpha: f64, mut rng: Rng) -> Result<Self, Error> {
        let keys = Keys::new(scale.keys, Distribution::Zipf { alpha }, Order::Scrambled)?;
        let mut draw = |count: usize| -> Vec<u32> { (0..count).map(|_| keys.draw(&mut rng) as u32).collect() };
        let (warm_up, counted) = (draw(scale.warm_up), draw(scale.counted));
        let lru_keys = simulated_keys(Eviction::Lru, &warm_up, &counted, 1..scale.keys);
        let value_bytes = value_bytes(lru_keys);
        Ok(Self {
            warm_up,
            counted,
            lru_keys,
            items: Items {
                keys: scale.keys,
                key_bytes: KEY_BYTES,
                values: ValueSize::Fixed(value_bytes),
            },
            value_bytes,
        })
    }

    fn results(&self, rounds: usize, seed: u64) -> Result<Vec<PolicyResult>, Error> {
        let mut results = Vec::new();
        for policy in policies() {
            let range = self.lru_keys / 2..self.lru_keys * 2;
            let keys = simulated_keys(Eviction::Policy(policy), &self.warm_up, &self.counted, range);
            results.push(PolicyResult {
                policy,
                simulated_ratio: keys as f64 / self.lru_keys as f64,
                reached: self.reach(policy, seed)?,
                throughput: Vec::new(),
            });
        }
        self.time(&mut results, rounds, seed)?;
        Ok(results)
    }

    /// The least grant that reaches the goal, and the memory that would reach it just so.
    fn reach(&self, policy: Policy, seed: u64) -> Result<Option<Reached>, Error> {
        let lru_units = (self.lru_bytes(INDEX_BYTES as f64) / UNIT_BYTES as f64) as u64;
        let (low, high) = GRANT_TENTHS;
        let between = ((lru_units * low / 10).max(1), lru_units * high / 10 + 1);
        let bracket = bracket(between, |units| {
            let mut cache = LookAside::new(policy, units * UNIT_BYTES, self.items, seed)?;
            cache.pass(&self.warm_up);
            Ok(cache.measure(&self.counted))
        })?;
        Ok(bracket.map(|bracket| Reached {
            grant_units: bracket.units,
            memory_ratio: bracket.at_goal(|found| self.memory_ratio(found)),
            dead_ratio: bracket.at_goal(|found| found.dead_bytes / found.usage_bytes),
        }))
    }

    /// Memory over the exact LRU's.
    fn memory_ratio(&self, found: &Found) -> f64 {
        found.usage_bytes / self.lru_bytes(found.index_bytes / found.items)
    }

    /// The memory of the exact LRU if an item has so many bytes of index.
    fn lru_bytes(&self, index_bytes: f64) -> f64 {
        let in_segment = ITEM_HEADER_BYTES as usize + KEY_BYTES + self.value_bytes;
        self.lru_keys as f64 * (in_segment as f64 + index_bytes)
    }

    /// Measures how fast each policy is with the grant that it needs, by turns.
    fn time(&self, results: &mut [PolicyResult], rounds: usize, seed: u64) -> Result<(), Error> {
        let mut caches = Vec::new();
        for result in results {
            let Some(reached) = result.reached else { continue };
            let mut cache = LookAside::new(result.policy, reached.grant_units * UNIT_BYTES, self.items, seed)?;
            cache.pass(&self.warm_up);
            caches.push((cache, &mut result.throughput));
        }
        for requests in self.counted.chunks(self.counted.len().div_ceil(rounds)) {
            for (cache, throughput) in &mut caches {
                let begin = Instant::now();
                black_box(cache.pass(requests));
                throughput.push(requests.len() as f64 / begin.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }
}

/// The length of values with which so many items take about [`LRU_BYTES`] and fill segments of a unit to their ends.
fn value_bytes(keys: u64) -> usize {
    let wanted = (LRU_BYTES / keys).saturating_sub(INDEX_BYTES).max(1);
    let in_segment = UNIT_BYTES / (UNIT_BYTES / wanted).max(SEGMENT_ITEMS_MIN);
    (in_segment as usize).saturating_sub(ITEM_HEADER_BYTES as usize + KEY_BYTES)
}

/// The least keys in a range with which the goal is reached, to a thousandth; its end if fewer are not enough.
fn simulated_keys(eviction: Eviction, warm_up: &[u32], counted: &[u32], range: Range<u64>) -> u64 {
    let is_enough = |keys: u64| {
        let mut cache = eviction.simulator(Capacity::of_bytes(keys));
        for key in warm_up {
            cache.request(u64::from(*key), 1);
        }
        let hits = counted.iter().filter(|key| cache.request(u64::from(**key), 1)).count();
        hits as f64 >= GOAL_RATIO * counted.len() as f64
    };
    let Range { mut start, mut end } = range;
    while end - start > end / 1000 {
        let middle = (start + end) / 2;
        if is_enough(middle) {
            end = middle;
        } else {
            start = middle + 1;
        }
    }
    end
}

/// Two grants, one unit apart, between which the goal is reached.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    below: Found,
    above: Found,
    /// The larger one.
    units: u64,
}

impl Bracket {
    /// A figure at the goal, on the line between its values at the two grants.
    fn at_goal(&self, of: impl Fn(&Found) -> f64) -> f64 {
        let Self { below, above, .. } = self;
        let share = (GOAL_RATIO - below.hit_ratio) / (above.hit_ratio - below.hit_ratio);
        of(below) + (of(above) - of(below)) * share
    }
}

/// Bisects grants, in units; `None` if the goal is not reached between them.
fn bracket(
    (mut low, mut high): (u64, u64),
    mut measure: impl FnMut(u64) -> Result<Found, Error>,
) -> Result<Option<Bracket>, Error> {
    let (mut below, mut above) = (measure(low)?, measure(high)?);
    if below.hit_ratio >= GOAL_RATIO || above.hit_ratio < GOAL_RATIO {
        return Ok(None);
    }
    while high - low > 1 {
        let middle = (low + high) / 2;
        let found = measure(middle)?;
        if found.hit_ratio < GOAL_RATIO {
            (low, below) = (middle, found);
        } else {
            (high, above) = (middle, found);
        }
    }
    Ok(Some(Bracket {
        below,
        above,
        units: high,
    }))
}

fn label(alpha: f64) -> String {
    format!("{alpha:.1}")
}

fn targets(alphas: &[f64], results: &[Vec<PolicyResult>]) -> Vec<Target> {
    let mut targets = Vec::new();
    for (policy, alpha_max, least, most) in TARGETS {
        let meant = alphas.iter().zip(results).filter(|(alpha, _)| **alpha <= alpha_max);
        for (alpha, results) in meant {
            let Some(own) = results.iter().find(|result| result.policy == policy) else {
                continue;
            };
            // A goal that was not reached meets no target.
            let ratio = own.reached.map_or(f64::NAN, |reached| reached.memory_ratio);
            let name = |what: &str| format!("{policy}, Zipf {alpha:.1}: memory over {what}");
            let over_simulation = ratio / own.simulated_ratio;
            targets.push(Target::at_least(name("the exact LRU's"), ratio, least));
            targets.push(Target::at_most(name("the exact LRU's"), ratio, most));
            targets.push(Target::at_most(
                name("that in simulation"),
                over_simulation,
                OVER_SIMULATION_MAX,
            ));
        }
    }
    targets
}

/// A measure: its name, its unit, and its value in a result.
type Measure = (&'static str, &'static str, fn(&PolicyResult) -> Option<Value>);

/// A single figure, or several rounds'.
enum Value {
    Single(f64),
    Rounds(Spread),
}

const MEMORY: Measure = ("memory over the exact LRU's", "ratio", |result| {
    Some(Value::Single(result.reached?.memory_ratio))
});
const SIMULATED: Measure = ("keys over the exact LRU's, in simulation", "ratio", |result| {
    Some(Value::Single(result.simulated_ratio))
});
const THROUGHPUT: Measure = ("throughput of one thread", "requests/s", |result| {
    Spread::of(result.throughput.iter().copied()).map(Value::Rounds)
});
const DEAD: Measure = ("dead memory over all", "ratio", |result| {
    Some(Value::Single(result.reached?.dead_ratio))
});

fn series(alphas: &[f64], results: &[Vec<PolicyResult>]) -> Vec<Series> {
    let mut all = Vec::new();
    for (measure, unit, of) in [MEMORY, SIMULATED, DEAD, THROUGHPUT] {
        for (place, policy) in policies().enumerate() {
            let point = |(alpha, results): (&f64, &Vec<PolicyResult>)| {
                Some(match of(results.get(place)?)? {
                    Value::Single(value) => Point::single(label(*alpha), value),
                    Value::Rounds(spread) => Point::spread(label(*alpha), spread),
                })
            };
            all.push(Series {
                name: policy.to_string(),
                measure: measure.into(),
                unit: unit.into(),
                condition: String::new(),
                x: "alpha".into(),
                points: alphas.iter().zip(results).filter_map(point).collect(),
            });
        }
    }
    all
}

fn chart(alphas: &[f64], results: &[Vec<PolicyResult>]) -> Chart {
    let panel = |title: &str, (_, unit, of): Measure| {
        let drawn = |(place, policy): (usize, Policy)| {
            let value = |results: &Vec<PolicyResult>| match of(results.get(place)?)? {
                Value::Single(value) => Spread::of([value]),
                Value::Rounds(spread) => Some(spread),
            };
            (policy.to_string(), results.iter().map(value).collect())
        };
        Panel {
            title: title.into(),
            x_label: "Zipf's alpha".into(),
            y_label: unit.into(),
            places: alphas.iter().map(|alpha| label(*alpha)).collect(),
            marks: Marks::Lines,
            series: policies()
                .enumerate()
                .filter(|(_, policy)| DRAWN.contains(&policy.to_string().as_str()))
                .map(drawn)
                .collect(),
        }
    };
    Chart {
        title: "What nine hits in ten take, by eviction policy".into(),
        panels: vec![
            panel("Memory over the exact LRU's", MEMORY),
            panel("Requests per second of one thread", THROUGHPUT),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(hit_ratio: f64, usage_bytes: f64) -> Found {
        Found {
            hit_ratio,
            usage_bytes,
            index_bytes: 0.0,
            dead_bytes: 0.0,
            items: 1.0,
        }
    }

    #[test]
    fn the_goal_is_bracketed_and_interpolated() {
        // Hits grow by two points a unit: 90 % at 37.5 units.
        let measure = |units: u64| Ok(found(0.15 + 0.02 * units as f64, units as f64));
        let bracket = |between| bracket(between, measure).unwrap();
        for between in [(1, 42), (37, 38), (5, 100)] {
            let bracket = bracket(between).unwrap();
            assert_eq!(bracket.units, 38);
            assert!((bracket.at_goal(|found| found.usage_bytes) - 37.5).abs() < 1e-9);
        }
        assert!(bracket((1, 37)).is_none() && bracket((38, 100)).is_none());
    }

    #[test]
    fn items_fill_segments_and_the_exact_lru_about_its_memory() {
        for (keys, expected) in [(45_000, 100), (9_000, 638), (2_000, 3_097), (400, 4_073)] {
            let value_bytes = value_bytes(keys);
            assert_eq!(value_bytes, expected, "{keys} keys");
            let item_bytes = 7 + 16 + value_bytes as u64;
            assert!(UNIT_BYTES % item_bytes < UNIT_BYTES / item_bytes, "{keys} keys");
        }
    }

    #[test]
    fn an_exact_lru_needs_what_its_distances_say() {
        // Nine keys in turn, and in each round one that is asked for once.
        let requests: Vec<u32> = (0..10_000_u32)
            .map(|n| if n % 10 == 0 { 1000 + n } else { n % 10 })
            .collect();
        let (warm_up, counted) = requests.split_at(1000);
        // Eight of the nine and a new one come between two uses of a key, which is the tenth.
        assert_eq!(simulated_keys(Eviction::Lru, warm_up, counted, 1..20_000), 10);
        assert_eq!(simulated_keys(Eviction::Lru, warm_up, counted, 1..9), 9, "not enough");
    }

    /// In a small cache the paper's findings and the necessary ones hold, and come again from the same seed.
    #[test]
    fn policies_need_what_they_should() {
        let scale = Scale {
            alphas: vec![0.8],
            keys: 3000,
            warm_up: 40_000,
            counted: 40_000,
            rounds: 2,
        };
        let load = Load::new(&scale, 0.8, Rng::new(1)).unwrap();
        let ratio = |policy| load.reach(policy, 1).unwrap().unwrap().memory_ratio;
        let share = |thousandths| Policy::ApproxLru(LogShare::from_thousandths(thousandths).unwrap());
        let [fifo, half, whole] = [Policy::Fifo, share(500), share(1000)].map(ratio);
        assert_eq!(fifo, whole);
        assert!((1.0..1.2).contains(&fifo), "{fifo}");
        assert!((1.15..1.4).contains(&half), "{half}");
        assert_eq!(ratio(Policy::Fifo), fifo);
        let mut results = vec![PolicyResult {
            policy: Policy::Fifo,
            simulated_ratio: 1.0,
            reached: load.reach(Policy::Fifo, 1).unwrap(),
            throughput: Vec::new(),
        }];
        load.time(&mut results, scale.rounds, 1).unwrap();
        assert_eq!(results[0].throughput.len(), 2);
    }

    #[test]
    fn what_is_not_reached_meets_no_target_and_has_no_point() {
        let result = |policy: Policy, memory_ratio: Option<f64>| PolicyResult {
            policy,
            simulated_ratio: 1.2,
            reached: memory_ratio.map(|memory_ratio| Reached {
                grant_units: 1,
                memory_ratio,
                dead_ratio: 0.1,
            }),
            throughput: memory_ratio.into_iter().collect(),
        };
        let of_half = |ratio| -> Vec<PolicyResult> {
            let is_half = |policy: &Policy| *policy == Policy::ApproxLru(LogShare::HALF);
            policies()
                .map(|policy| result(policy, if is_half(&policy) { ratio } else { Some(1.1) }))
                .collect()
        };
        let alphas = [0.0, 1.4];
        let results = [of_half(None), of_half(Some(1.25))];
        let met: Vec<bool> = targets(&alphas, &results).iter().map(|target| target.met).collect();
        // At alpha 0 only: no limit of the one, all of the other.
        assert_eq!(met, [false, false, false, true, true, true]);
        let series = series(&alphas, &results);
        assert_eq!(series.len(), 4 * 9);
        for series in series {
            let is_measured = series.measure != SIMULATED.0;
            let expected = if is_measured && series.name == "approx-lru:0.5" {
                1
            } else {
                2
            };
            assert_eq!(series.points.len(), expected, "{}", series.name);
        }
        let svg = chart(&alphas, &results).svg();
        assert_eq!(svg.matches("<polyline").count(), 2 * DRAWN.len());
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
