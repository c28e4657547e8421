//! Cost against latency with memory and flash sized apart, beside a fixed ratio of both (ElCached, HotCloud 2016, Fig. 3).

use tidemark_curve::{Curve, Point as CurvePoint};
use tidemark_plan::tiers::{Latencies, Prices, Shape, Sizes, Tenant, least_cost};

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Target, add_point};
use super::{Context, Experiment, Outcome, Spread};
use crate::Error;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "elcached-fig3",
    title: "Cost of a latency: memory and flash apart, beside one to four (ElCached, Fig. 3)",
    minutes: 1,
    about: "\
The loads of ElCached's Fig. 3: 800 million requests over 4 billion keys of 31+247 bytes, Zipf 1.15 and exponential (λ = 1e-6).
*Elastic* is the least cost of memory and flash for a mean latency (`tidemark_plan::tiers`); *proportional* is the least cost with four
bytes of flash for each byte of memory. Cost is in units of the proportional one at 1 ms, as in the paper.

The miss ratio of an LRU cache follows from the popularity of the keys: all that came within a time T is in the cache (Che, Tung and Wang,
JSAC 2002), and requests before T see what came since the beginning. Nothing is drawn by chance.

The paper does not state its latencies. They are the solution of three equations, its points for Zipf: 60 MB and 11.7 GB have 700 µs,
so have 1.8 GB and 7.3 GB, and 222 and 890 MB have 1 ms, which is what a cost of 8.1 for the second and a price ratio of 116 come to. The
ratio of the prices follows from the paper's costs 0.7 and 8.1. The other ratios are those of hardware in 2026 (38) and of ElastiCache
with data tiering (4.2); with them an object on flash also takes 10.4 bytes of memory for its index, which the paper does not count.

The targets are the paper's savings.",
    run,
};

const REQUESTS: f64 = 8e8;
const KEYS: f64 = 4e9;
const ALPHA: f64 = 1.15;
const LAMBDA: f64 = 1e-6;
const OBJECT_BYTES: f64 = 278.0;
/// Keys of nearly the same popularity are counted together: so many such parts.
const PARTS: usize = 4_000;
/// The most popular keys of Zipf's law are counted one by one.
const SINGLE_KEYS: usize = 200;
/// The last part of the exponential law ends at so many of its means: beyond is less than one request.
const MEANS: f64 = 40.0;
/// Points of a curve.
const POINTS: usize = 400;

/// The paper's points for Zipf: bytes of memory and of flash, and the latency there in microseconds.
const STATED: [(f64, f64, f64); 3] = [(60e6, 11.7e9, 700.0), (1.8e9, 7.3e9, 700.0), (222.5e6, 890e6, 1000.0)];
const PAPER_RATIO: f64 = 116.0;
/// With the index counted.
const RATIOS: [f64; 2] = [38.0, 4.2];
const INDEX_BYTES: f64 = 10.4;
const PROPORTION: f64 = 4.0;
/// Latencies that are looked at, in microseconds.
const STEP_US: usize = 25;
const END_US: usize = 1000;

/// Keys by popularity: the probability of each key of a part, and how many keys it has.
type Popularity = Vec<(f64, f64)>;

/// `count` numbers from one to the other, each the same factor above the one before.
fn geometric(from: f64, to: f64, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |step| from * (to / from).powf(step as f64 / (count - 1) as f64))
}

fn normal(parts: Popularity) -> Popularity {
    let sum: f64 = parts.iter().map(|(weight, keys)| weight * keys).sum();
    parts.into_iter().map(|(weight, keys)| (weight / sum, keys)).collect()
}

fn zipf() -> Popularity {
    let single = (1..SINGLE_KEYS).map(|rank| ((rank as f64).powf(-ALPHA), 1.0));
    let ends: Vec<f64> = geometric(SINGLE_KEYS as f64, KEYS, PARTS).collect();
    let integral = |rank: f64| (rank - 0.5).powf(1.0 - ALPHA) / (ALPHA - 1.0);
    let many = ends.windows(2).map(|ends| {
        let keys = ends[1] - ends[0];
        ((integral(ends[0]) - integral(ends[1])) / keys, keys)
    });
    normal(single.chain(many).collect())
}

fn exponential() -> Popularity {
    let width = MEANS / LAMBDA / PARTS as f64;
    let part = |number: usize| {
        let at = |number: usize| (-LAMBDA * width * number as f64).exp();
        ((at(number) - at(number + 1)) / width, width)
    };
    normal((0..PARTS).map(part).collect())
}

/// The curve of an LRU cache that is empty at first.
fn curve(parts: &Popularity) -> Curve {
    let at = |time: f64| {
        let (mut keys_held, mut miss_ratio) = (0.0, 0.0);
        for &(probability, keys) in parts {
            let unseen = (-probability * time).exp();
            keys_held += keys * (1.0 - unseen);
            let young = (1.0 - unseen) / (probability * REQUESTS);
            miss_ratio += keys * probability * (young + (1.0 - time / REQUESTS) * unseen);
        }
        CurvePoint {
            bytes: (keys_held * OBJECT_BYTES) as u64,
            miss_ratio,
            standard_error: 0.0,
        }
    };
    Curve::through(geometric(1.0, REQUESTS, POINTS).map(at))
}

/// The solution of three linear equations (Cramer's rule).
fn solved(rows: [[f64; 3]; 3], right: [f64; 3]) -> [f64; 3] {
    let determinant = |m: &[[f64; 3]; 3]| {
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
            + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    };
    let whole = determinant(&rows);
    std::array::from_fn(|column| {
        let mut with = rows;
        for (row, value) in with.iter_mut().zip(right) {
            row[column] = value;
        }
        determinant(&with) / whole
    })
}

/// The latencies with which the paper's points are as it says.
fn fitted(zipf: &Curve) -> Latencies {
    let miss_ratio = |bytes: f64| zipf.at(bytes as u64).miss_ratio;
    let rows = STATED.map(|(memory, flash, _)| [1.0, miss_ratio(memory), miss_ratio(memory + flash)]);
    let [memory_us, flash_us, origin_us] = solved(rows, STATED.map(|(_, _, latency_us)| latency_us));
    Latencies {
        memory_us,
        flash_us,
        origin_us,
    }
}

/// A load at a ratio of prices.
struct Case {
    elastic: Tenant,
    proportional: Tenant,
    prices: Prices,
    /// The cost that is one.
    unit: f64,
}

impl Case {
    fn new(curve: &Curve, latencies: Latencies, ratio: f64, index_bytes: f64) -> Result<Self, Error> {
        let mut elastic = Tenant::new(curve.clone(), latencies);
        elastic.index_ratio = index_bytes / OBJECT_BYTES;
        let mut proportional = elastic.clone();
        proportional.shape = Shape::Tied {
            flash_ratio: PROPORTION,
        };
        let mut case = Self {
            elastic,
            proportional,
            prices: Prices {
                memory: ratio,
                flash: 1.0,
            },
            unit: 1.0,
        };
        let dearest = case.cost(&case.proportional, END_US as f64);
        case.unit = dearest
            .ok_or_else(|| Error::Usage("no sizes have a latency of 1 ms".into()))?
            .0;
        Ok(case)
    }

    fn cost(&self, tenant: &Tenant, latency_us: f64) -> Option<(f64, Sizes)> {
        let sizes = least_cost(tenant, self.prices, latency_us).ok()?;
        Some((tenant.cost(sizes, self.prices) / self.unit, sizes))
    }

    /// Latencies that both can give, and what they cost: elastic, then proportional.
    fn costs(&self) -> Vec<(usize, f64, f64)> {
        let both = |us: usize| {
            let elastic = self.cost(&self.elastic, us as f64)?;
            let proportional = self.cost(&self.proportional, us as f64)?;
            Some((us, elastic.0, proportional.0))
        };
        (STEP_US..=END_US).step_by(STEP_US).filter_map(both).collect()
    }
}

/// The mean part that is saved of latencies within a range, in percent.
fn saved(costs: &[(usize, f64, f64)], range: std::ops::RangeInclusive<usize>) -> f64 {
    let within: Vec<f64> = costs
        .iter()
        .filter(|(us, _, _)| range.contains(us))
        .map(|(_, elastic, proportional)| (1.0 - elastic / proportional) * 100.0)
        .collect();
    within.iter().sum::<f64>() / within.len().max(1) as f64
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    context.tell("curves");
    let curves = [("Zipf 1.15", curve(&zipf())), ("exponential", curve(&exponential()))];
    let latencies = fitted(&curves[0].1);
    let (mut targets, mut series, mut panels) = (Vec::new(), Vec::new(), Vec::new());
    let mut add = |name: &str, measure: &str, unit: &str, (condition, x): (&str, &str), place: String, value: f64| {
        add_point(
            &mut series,
            (name, measure, unit),
            (condition, x),
            Point::single(place, value),
        );
    };
    for (name, us) in [
        ("memory", latencies.memory_us),
        ("flash", latencies.flash_us),
        ("origin", latencies.origin_us),
    ] {
        add("fitted", "latencies", "µs", ("", "of"), name.into(), us);
    }
    let cases = std::iter::once((PAPER_RATIO, 0.0)).chain(RATIOS.map(|ratio| (ratio, INDEX_BYTES)));
    for (ratio, index_bytes) in cases {
        for (load, curve) in &curves {
            context.tell(&format!("{load}, {ratio} to 1"));
            let case = Case::new(curve, latencies, ratio, index_bytes)?;
            let costs = case.costs();
            let condition = format!("{load}, prices {ratio} to 1");
            for (us, elastic, proportional) in &costs {
                let place = || us.to_string();
                add(
                    "elastic",
                    "cost",
                    "proportional at 1 ms",
                    (&condition, "latency, µs"),
                    place(),
                    *elastic,
                );
                add(
                    "proportional",
                    "cost",
                    "proportional at 1 ms",
                    (&condition, "latency, µs"),
                    place(),
                    *proportional,
                );
            }
            add(
                "saved",
                "cost saved, mean",
                "%",
                ("", "case"),
                condition.clone(),
                saved(&costs, 0..=END_US),
            );
            if ratio == PAPER_RATIO {
                targets.extend(paper_targets(load, &case, &costs));
            }
            panels.push(panel(&condition, &costs));
        }
    }
    Ok(Outcome {
        scale: format!(
            "{} million requests, curves of {POINTS} points; fitted l1 {:.1} µs, l2 {:.1} µs, ldb {:.0} µs",
            REQUESTS / 1e6,
            latencies.memory_us,
            latencies.flash_us,
            latencies.origin_us
        ),
        targets,
        series,
        chart: Chart {
            title: "Least cost for a mean latency".into(),
            panels,
        },
        others_cores: others.cores(),
    })
}

fn paper_targets(load: &str, case: &Case, costs: &[(usize, f64, f64)]) -> Vec<Target> {
    if load.starts_with("Zipf") {
        let at_700 = saved(costs, 700..=700);
        let memory_bytes = case
            .cost(&case.elastic, 700.0)
            .map_or(f64::INFINITY, |(_, sizes)| sizes.memory_bytes);
        return vec![
            Target::at_least("Zipf: cost saved at 700 µs, %", at_700, 91.0),
            Target::at_least("Zipf: cost saved over the range, %", saved(costs, 0..=END_US), 60.0),
            Target::at_most("Zipf: memory for 700 µs, MB", memory_bytes / 1e6, 60.0),
        ];
    }
    vec![
        Target::at_least("exponential: cost saved below 250 µs, %", saved(costs, 0..=249), 10.0),
        Target::at_least(
            "exponential: cost saved beyond 300 µs, %",
            saved(costs, 301..=END_US),
            70.0,
        ),
    ]
}

fn panel(title: &str, costs: &[(usize, f64, f64)]) -> Panel {
    let drawn = |value: f64| {
        Some(Spread {
            median: value,
            low: value,
            high: value,
        })
    };
    let place = |us: usize| {
        if us.is_multiple_of(200) {
            us.to_string()
        } else {
            String::new()
        }
    };
    Panel {
        title: title.to_owned(),
        x_label: "mean latency, µs".into(),
        y_label: "cost".into(),
        places: costs.iter().map(|(us, _, _)| place(*us)).collect(),
        marks: Marks::Course,
        series: vec![
            (
                "elastic".into(),
                costs.iter().map(|(_, elastic, _)| drawn(*elastic)).collect(),
            ),
            (
                "proportional (1:4)".into(),
                costs.iter().map(|(_, _, proportional)| drawn(*proportional)).collect(),
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_equations_have_their_solution() {
        let found = solved([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 3.0]], [5.0, 5.0, 10.0]);
        for (value, expected) in found.into_iter().zip([1.0, 2.0, 3.0]) {
            assert!((value - expected).abs() < 1e-9, "{found:?}");
        }
    }

    #[test]
    fn the_fitted_latencies_give_the_paper_s_points() {
        let curve = curve(&zipf());
        let latencies = fitted(&curve);
        assert!(latencies.memory_us > 0.0 && latencies.flash_us > 0.0 && latencies.origin_us > 0.0);
        let tenant = Tenant::new(curve, latencies);
        for (memory_bytes, flash_bytes, latency_us) in STATED {
            let found = tenant.latency_us(Sizes {
                memory_bytes,
                flash_bytes,
            });
            assert!((found - latency_us).abs() < 0.5, "{found} for {latency_us}");
        }
    }
}
