//! Two tenants over memory and flash: sizes by the running control plane, beside a fixed ratio (ElCached, HotCloud 2016, Fig. 4).

use std::sync::Arc;
use std::time::Duration;

use tidemark_control::{Change, FlashPatch, Metering, SettingsPatch};
use tidemark_meter::price::{CpuFigure, METERS, Money, Prices, Tariff};
use tidemark_tools::load::{Distribution, ValueSize, Workload};
use tidemark_types::{MIB, UnixMs};

use super::chart::{Chart, Marks, Panel};
use super::others::Others;
use super::report::{Point, Series, Target, add_point};
use super::{Context, Experiment, Outcome};
use crate::Error;
use crate::node::{FLASH_WAIT_US, Load, Node, Parts, Standing};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "elcached-fig4",
    title: "Two tenants in 3 GB: memory and flash apart, beside one to four (ElCached, Fig. 4)",
    minutes: 10,
    about: "\
Two tenants with ElCached's loads, Zipf 1.15 (T1) and exponential (λ = 1e-6, T2), share 3 GB of memory. Everything is a part of that
(see the scale below): memory, flash, requests, keys, the mean of the exponential law. So the requests of a key, and a size over the bytes
of all keys, are the paper's. Store, flash and control plane are the real ones, in virtual time; latencies follow from the counts of
answers. A request takes 42 µs, one that waits for flash 100 µs more, and a miss 11.3 ms in all: what the paper's points for Fig. 3 come to
([elcached-fig3](elcached-fig3.md)), but for flash, where they come to 115 µs.

*Proportional* gives each tenant a part of the memory, and four times as much flash. All splits are swept; the one that is compared with is
the paper's, 1.63 GB for T1. *Elastic* gives the tenants goals for their latency: T1 5 % below its proportional one, T2 its own. The
control plane sizes both tiers for both tenants while it runs, beginning with nothing known. Both ways are measured in the second half of
the requests.

Memory is what was granted, and 10.4 bytes for the index of each object on flash, which the paper does not count. Costs are at the paper's
implied ratio of prices, 116 to 1, and at that of hardware in 2026, 38 to 1. The targets are the paper's savings, at its ratio.

Goals are held to about a hundredth of what a miss takes, which is 113 µs here, since curves come from samples. T2 has nearly all of its keys,
so that its proportional latency is that of its first misses: a third of a hundredth more of its gets miss where flash and memory are sized
to just hold them.",
    run,
};

const REQUESTS: u64 = 800_000_000;
const KEYS: u64 = 4_000_000_000;
const ALPHA: f64 = 1.15;
const LAMBDA: f64 = 1e-6;
const KEY_BYTES: usize = 31;
const MEMORY_BYTES: u64 = 3 << 30;
/// More flash than both tenants have any use for.
const FLASH_BYTES: u64 = 32 << 30;
const PROPORTION: u64 = 4;
/// A pool keeps some memory for what is on its way between tenants.
const SPARE_BYTES: u64 = 4 * MIB;
/// The smallest pool.
const POOL_BYTES_MIN: u64 = 8 * MIB;
const HIT_US: f64 = 42.0;
const MISS_US: f64 = 11_300.0;
const REQUESTS_PER_SECOND: u64 = 50_000;
const INDEX_BYTES: f64 = 10.4;
/// The split that the paper compares with: thousandths of the memory that are T1's.
const COMPARED: u64 = 543;
/// Prices of memory, where flash costs 0.01.
const PRICES: [(&str, f64); 2] = [("1.16", 116.0), ("0.38", 38.0)];
const FLASH_PRICE: &str = "0.01";
const NAMES: [&str; 2] = ["T1", "T2"];
/// T1 is to be faster by so much.
const FASTER: f64 = 0.95;

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// Requests, keys and sizes are the paper's over this.
    divisor: u64,
    /// Thousandths of the memory that are T1's.
    splits: &'static [u64],
}

impl Scale {
    fn of(context: &Context) -> Self {
        if context.quick {
            Self {
                divisor: 256,
                splits: &[COMPARED],
            }
        } else {
            Self {
                divisor: 64,
                splits: &[125, 250, 375, COMPARED, 625, 750, 875],
            }
        }
    }

    fn memory_bytes(self) -> u64 {
        MEMORY_BYTES / self.divisor
    }

    fn seconds(self) -> u64 {
        REQUESTS / self.divisor / REQUESTS_PER_SECOND
    }

    fn loads(self, seed: u64) -> [Load; 2] {
        let lambda = LAMBDA * self.divisor as f64;
        let distributions = [
            Distribution::Zipf { alpha: ALPHA },
            Distribution::Exponential { lambda },
        ];
        let mut tenant = 0;
        distributions.map(|distribution| {
            tenant += 1;
            Load {
                workload: Workload {
                    value_size: ValueSize::Etc,
                    seed: seed + tenant,
                    ..Workload::gets(KEYS / self.divisor, distribution, KEY_BYTES, 0)
                },
                rate: REQUESTS_PER_SECOND as f64,
            }
        })
    }
}

/// A tenant in the second half: means over its time.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    latency_us: f64,
    memory_bytes: f64,
    flash_bytes: f64,
    memory_hit_ratio: f64,
    miss_ratio: f64,
}

impl Found {
    fn new(from: &Standing, to: &Standing, memory_bytes: f64, flash_bytes: f64) -> Self {
        let gets = (to.moment.gets - from.moment.gets) as f64;
        let misses = gets - (to.moment.hits - from.moment.hits) as f64;
        let hits_of = |standing: &Standing| standing.flash.map_or(0, |flash| flash.hits) as f64;
        let flash_hits = hits_of(to) - hits_of(from);
        Self {
            latency_us: HIT_US + (misses * (MISS_US - HIT_US) + flash_hits * FLASH_WAIT_US as f64) / gets,
            memory_bytes,
            flash_bytes,
            memory_hit_ratio: (gets - misses - flash_hits) / gets,
            miss_ratio: misses / gets,
        }
    }

    /// In units of a byte of flash.
    fn cost(&self, ratio: f64) -> f64 {
        self.memory_bytes * ratio + self.flash_bytes
    }
}

fn metering(memory: &str) -> Result<Metering, Error> {
    let parse = |price: &str| Money::parse(price).ok_or_else(|| Error::Usage(format!("{price} is no price")));
    let mut units = [Money(0); METERS.len()];
    for (meter, price) in METERS.iter().zip(&mut units) {
        match meter.key {
            "memory_gib_hour" => *price = parse(memory)?,
            "flash_gib_hour" => *price = parse(FLASH_PRICE)?,
            _ => {}
        }
    }
    let tariff = Tariff {
        currency: "USD".into(),
        cpu: CpuFigure::Measured,
        free: Vec::new(),
        prices: vec![Prices {
            version: "v1".into(),
            from: UnixMs(0),
            until: None,
            units,
        }],
        instances: Vec::new(),
    };
    Ok(Metering {
        tariff: Some(Arc::new(tariff)),
        ..Metering::new("virtual")
    })
}

/// So much memory, and four times as much flash.
fn fixed(memory_bytes: u64) -> SettingsPatch {
    SettingsPatch {
        floor_bytes: Change::Set(memory_bytes),
        cap_bytes: Change::Set(memory_bytes),
        flash: FlashPatch {
            floor_bytes: Change::Set(memory_bytes * PROPORTION),
            cap_bytes: Change::Set(memory_bytes * PROPORTION),
            ..FlashPatch::default()
        },
        ..SettingsPatch::default()
    }
}

fn goal(latency_us: f64) -> SettingsPatch {
    SettingsPatch {
        latency: Change::Set(Duration::from_micros(latency_us as u64)),
        miss_cost: Change::Set(Duration::from_micros(MISS_US as u64)),
        ..SettingsPatch::default()
    }
}

/// All requests of both tenants with these settings.
fn measured(scale: Scale, seed: u64, settings: [SettingsPatch; 2], prices: &str) -> Result<[Found; 2], Error> {
    let mut node = Node::of(Parts {
        pool_bytes: (scale.memory_bytes() + SPARE_BYTES).max(POOL_BYTES_MIN),
        workers: 1,
        seed,
        hit_cost: Duration::from_micros(HIT_US as u64),
        flash_bytes: FLASH_BYTES / scale.divisor,
        metering: Some(metering(prices)?),
    })?;
    for ((name, settings), load) in NAMES.into_iter().zip(settings).zip(scale.loads(seed)) {
        node.create(name, settings)?;
        node.load(name, &load)?;
    }
    let half = scale.seconds() / 2;
    node.run(Duration::from_secs(half));
    let before = [node.standing(NAMES[0])?, node.standing(NAMES[1])?];
    let (mut memory, mut flash) = ([0.0; 2], [0.0; 2]);
    for _ in 0..half {
        node.run(Duration::from_secs(1));
        for tenant in 0..NAMES.len() {
            let standing = node.standing(NAMES[tenant])?;
            let (items, bytes) = standing.flash.map_or((0, 0), |flash| (flash.items, flash.grant_bytes));
            memory[tenant] += standing.moment.grant_bytes as f64 + items as f64 * INDEX_BYTES;
            flash[tenant] += bytes as f64;
        }
    }
    let mut found = [Found::default(); 2];
    for (tenant, found) in found.iter_mut().enumerate() {
        let after = node.standing(NAMES[tenant])?;
        *found = Found::new(
            &before[tenant],
            &after,
            memory[tenant] / half as f64,
            flash[tenant] / half as f64,
        );
    }
    Ok(found)
}

/// How much of `of` is saved, in percent.
fn saved(now: f64, of: f64) -> f64 {
    (1.0 - now / of) * 100.0
}

fn targets(elastic: &[Found; 2], proportional: &[Found; 2]) -> Vec<Target> {
    let [ratio, _] = PRICES.map(|(_, ratio)| ratio);
    let both = |tenant: usize, of: fn(&Found, f64) -> f64| {
        saved(of(&elastic[tenant], ratio), of(&proportional[tenant], ratio))
    };
    let memory = |found: &[Found; 2]| found[0].memory_bytes + found[1].memory_bytes;
    vec![
        Target::at_least("T1: latency lower by, %", both(0, |found, _| found.latency_us), 5.0),
        Target::at_least("T2: latency lower by, %", both(1, |found, _| found.latency_us), 0.0),
        Target::at_least("T1: cost lower by, %", both(0, Found::cost), 26.0),
        Target::at_least("T2: cost lower by, %", both(1, Found::cost), 26.0),
        Target::at_least(
            "memory of both lower by, %",
            saved(memory(elastic), memory(proportional)),
            46.0,
        ),
    ]
}

/// The place of a split.
fn place(split: u64) -> String {
    format!("{:.2}", 3.0 * split as f64 / 1000.0)
}

/// A table of one way.
fn add_way(series: &mut Vec<Series>, way: &str, found: &[Found; 2], (ratio, divisor): (f64, f64)) {
    let full = |bytes: f64| bytes * divisor / (1_u64 << 30) as f64;
    for (name, found) in NAMES.into_iter().zip(found) {
        let place = format!("{name}, {way}");
        for (column, value) in [
            ("latency, µs", found.latency_us),
            ("memory, GiB", full(found.memory_bytes)),
            ("flash, GiB", full(found.flash_bytes)),
            ("hits in memory, %", found.memory_hit_ratio * 100.0),
            ("misses, %", found.miss_ratio * 100.0),
            ("cost, GiB of flash", full(found.cost(ratio))),
        ] {
            let point = Point::single(place.clone(), value);
            add_point(
                series,
                (column, "tenants as they were sized", ""),
                ("", "tenant, way"),
                point,
            );
        }
    }
}

fn run(context: &Context) -> Result<Outcome, Error> {
    let others = Others::watch();
    let scale = Scale::of(context);
    let memory_bytes = scale.memory_bytes() / MIB * MIB;
    let (mut series, mut swept) = (Vec::new(), Vec::new());
    for split in scale.splits {
        context.tell(&format!("proportional, {} GB for T1", place(*split)));
        let first = memory_bytes * split / 1000;
        let settings = [fixed(first), fixed(memory_bytes - first)];
        swept.push((*split, measured(scale, context.seed, settings, PRICES[0].0)?));
    }
    let compared = swept.iter().find(|(split, _)| *split == COMPARED);
    let proportional = compared.map_or_else(Default::default, |(_, found)| *found);
    let mut elastic = Vec::new();
    for (price, ratio) in PRICES {
        context.tell(&format!("elastic, prices {ratio} to 1"));
        let goals = [
            goal(proportional[0].latency_us * FASTER),
            goal(proportional[1].latency_us),
        ];
        let found = measured(scale, context.seed, goals, price)?;
        let figures = (ratio, scale.divisor as f64);
        add_way(
            &mut series,
            &format!("proportional, prices {ratio} to 1"),
            &proportional,
            figures,
        );
        add_way(&mut series, &format!("elastic, prices {ratio} to 1"), &found, figures);
        elastic.push(found);
    }
    let sweep = sweep(&swept, &elastic[0]);
    let drawn: Vec<Panel> = NAMES
        .into_iter()
        .map(|name| {
            let own: Vec<&Series> = sweep.iter().filter(|series| series.name.starts_with(name)).collect();
            Panel::of_series(name, Marks::Lines, &own)
        })
        .collect();
    series.extend(sweep);
    Ok(Outcome {
        scale: format!(
            "a part in {}: {} requests of each tenant in {} virtual seconds, {} keys, {} MiB of memory",
            scale.divisor,
            REQUESTS / scale.divisor,
            scale.seconds(),
            KEYS / scale.divisor,
            memory_bytes / MIB,
        ),
        targets: targets(&elastic[0], &proportional),
        series,
        chart: Chart {
            title: "Mean latency of two tenants in 3 GB of memory".into(),
            panels: drawn,
        },
        others_cores: others.cores(),
    })
}

/// The latencies by split, each beside the elastic one.
fn sweep(swept: &[(u64, [Found; 2])], elastic: &[Found; 2]) -> Vec<Series> {
    let mut series = Vec::new();
    for (split, found) in swept {
        for (tenant, name) in NAMES.into_iter().enumerate() {
            for (way, found) in [("proportional", &found[tenant]), ("elastic", &elastic[tenant])] {
                let point = Point::single(place(*split), found.latency_us);
                add_point(
                    &mut series,
                    (&format!("{name}, {way}"), "mean latency by the split", "µs"),
                    ("", "memory of T1, GB"),
                    point,
                );
            }
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportional_tenants_hold_what_their_split_says_and_a_larger_one_is_faster() {
        let scale = Scale {
            divisor: 1024,
            splits: &[],
        };
        let of_split = |first_mib: u64| {
            let settings = [fixed(first_mib * MIB), fixed((3 - first_mib) * MIB)];
            measured(scale, 1, settings, PRICES[0].0).unwrap()
        };
        let (small, large) = (of_split(1), of_split(2));
        assert!(small[0].latency_us > large[0].latency_us, "{small:?} {large:?}");
        assert!(small[1].latency_us <= large[1].latency_us, "{small:?} {large:?}");
        let index_bytes = small[0].memory_bytes - MIB as f64;
        assert!(index_bytes > 0.0 && index_bytes < MIB as f64, "{small:?}");
        assert_eq!(small[0].flash_bytes, (PROPORTION * MIB) as f64);
    }

    #[test]
    fn a_cost_is_memory_at_its_ratio_and_flash() {
        let found = Found {
            memory_bytes: 2.0,
            flash_bytes: 5.0,
            ..Found::default()
        };
        assert_eq!(found.cost(10.0), 25.0);
        assert_eq!(saved(25.0, 100.0), 75.0);
    }
}
