//! `tidemark plan`: how much memory and flash the tenants of some traces need, and the cost.
//!
//! The curve of each trace is that of LRU, which both tiers together approximate. Sizes follow from it by
//! [`tidemark_plan::tiers`]. Beside the plan stand the cheapest sizes of the proportional rule, which ties so much
//! flash to each byte of memory. The frontier gives the least cost of each mean latency, by both. Invariant: reported
//! values follow the curves as they are; their hulls only say how money is split between tenants.

mod chart;
mod frontier;

use std::path::PathBuf;

use serde::Serialize;
use tidemark_curve::{Curve, Eviction, Sampling};
use tidemark_plan::tiers::{self, Pools, Shape, Sizes, Target, Tenant, Unreachable};

use crate::Error;
use crate::curve::{self, Progress};
use crate::trace::Format;

pub use chart::Chart;
pub use frontier::Step;
pub use tidemark_plan::tiers::{Latencies, Prices};

/// Memory that an object on flash takes for its index: an entry of 8 bytes in buckets that are full to seven eighths.
pub const INDEX_BYTES_PER_OBJECT: f64 = 10.4;
/// Flash for each byte of memory under the proportional rule (the paper follows Pareto's principle, 1:4).
pub const PROPORTIONAL_FLASH_RATIO: f64 = 4.0;
/// Traces at once.
pub const MAX_TRACES: usize = 256;
/// Prices are of a gibibyte.
pub const PRICED_BYTES: f64 = (1_u64 << 30) as f64;

/// The request for a plan.
#[derive(Clone, Debug)]
pub struct Options {
    /// The traces, each a tenant.
    pub traces: Vec<Source>,
    /// How they are written, where their names do not tell.
    pub format: Option<Format>,
    /// How many keys of each are followed.
    pub sampling: Sampling,
    /// The size of objects whose trace does not say it, in bytes.
    pub value_size_bytes: u64,
    /// The bytes of each object beside its size.
    pub overhead_bytes: u64,
    /// How long the tiers take.
    pub latencies: Latencies,
    /// The price of a gibibyte of each tier.
    pub price_per_gib: Prices,
    /// Memory that an object on flash takes for its index, in bytes.
    pub index_bytes_per_object: f64,
    /// The memory is that of a cache with slab classes, instead of one log.
    pub by_class: bool,
    /// The goal of all tenants together.
    pub goal: Goal,
}

/// A tenant's trace.
#[derive(Clone, Debug)]
pub struct Source {
    /// The tenant's name.
    pub tenant: String,
    /// The trace's file.
    pub path: PathBuf,
    /// The tenant's own latency goal in microseconds, instead of the common one.
    pub latency_us: Option<f64>,
}

/// The goal of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The least cost at which each tenant's mean latency is at most this, in microseconds.
    LatencyUs(f64),
    /// The least mean latency over all requests that this amount buys.
    Spending(f64),
}

/// The plan; serialised, it is what `tidemark plan --json` prints.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The goal of the plan.
    pub goal: Goal,
    /// A gibibyte's price in memory and on flash.
    pub price_per_gib: PriceReport,
    /// How long the tiers take, in microseconds.
    pub latencies_us: LatencyReport,
    /// Whether curves are composed of slab classes.
    pub by_class: bool,
    /// The tenants in the order in which they were given.
    pub tenants: Vec<TenantReport>,
    /// The sum over all tenants, by this plan.
    pub total: Split,
    /// The sum over all tenants, with so much flash for each byte of memory; `null` if that does not reach the goal.
    pub proportional: Option<Split>,
    /// The saving against it, over its cost; `null` if there is nothing to compare.
    pub saved_ratio: Option<f64>,
    /// The least cost for each of these mean latencies, ascending.
    pub frontier: Vec<Step>,
}

/// Prices as they are reported.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PriceReport {
    /// The price of memory.
    pub dram: f64,
    /// The price of flash, without its index.
    pub flash: f64,
}

/// Times as they are reported, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyReport {
    /// Every request's.
    pub memory: f64,
    /// More, for one that misses in memory.
    pub flash: f64,
    /// More, for one that misses on flash.
    pub origin: f64,
}

/// A tenant's part of the plan.
#[derive(Clone, Debug, Serialize)]
pub struct TenantReport {
    /// Its name.
    pub tenant: String,
    /// Requests of its trace.
    pub requests: u64,
    /// Its objects, and their mean size with the overhead of each.
    pub objects: u64,
    /// The mean size of an object, in bytes.
    pub object_bytes: f64,
    /// The memory and flash that it gets.
    #[serde(flatten)]
    pub split: Split,
    /// Requests that memory answers, over all.
    pub memory_hit_ratio: f64,
    /// Requests that flash answers, over all.
    pub flash_hit_ratio: f64,
    /// Its own latency goal, if there is one.
    pub latency_goal_us: Option<f64>,
    /// By how much the goal is out of reach, in microseconds; 0 where it is met, `null` without one.
    pub shortfall_us: Option<f64>,
}

/// Sizes, their cost, and how long requests take with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    /// Memory for items, in bytes.
    pub memory_bytes: f64,
    /// Memory for the index of flash, in bytes.
    pub index_bytes: f64,
    /// Flash, in bytes.
    pub flash_bytes: f64,
    /// The cost of all three, in the prices' unit.
    pub cost: f64,
    /// The mean latency in microseconds.
    pub latency_us: f64,
}

/// Reads the traces and makes the plan; `observe` is told how far each trace is.
///
/// # Errors
/// The options make no sense, or a trace cannot be read. A latency that no sizes reach is no error: the plan has the best there is, and says
/// what is missing.
pub fn run(options: &Options, observe: &mut dyn FnMut(usize, Progress)) -> Result<Report, Error> {
    check(options)?;
    let mut loads = Vec::new();
    for (index, source) in options.traces.iter().enumerate() {
        let report = curve::run(&curve_options(options, source), &mut |progress| {
            observe(index, progress);
        })?;
        if report.requests == 0 {
            return Err(Error::Usage(format!(
                "{}: the trace has no requests",
                source.path.display()
            )));
        }
        loads.push(Load {
            tenant: source.tenant.clone(),
            latency_goal_us: source.latency_us,
            requests: report.requests,
            objects: report.objects,
            object_bytes: report.distinct_bytes as f64 / report.objects.max(1) as f64,
            curve: report.lru,
        });
    }
    Ok(plan(&loads, options))
}

/// A tenant's load, as far as a plan depends on it.
#[derive(Clone, Debug)]
pub struct Load {
    /// Its name.
    pub tenant: String,
    /// Its own latency goal in microseconds, instead of the common one.
    pub latency_goal_us: Option<f64>,
    /// Its requests: the weight of its latency beside others'.
    pub requests: u64,
    /// Its objects.
    pub objects: u64,
    /// Their mean size.
    pub object_bytes: f64,
    /// Its miss ratio at every size.
    pub curve: Curve,
}

/// The plan for these loads. Only the prices, latencies and the goal of the options count.
pub fn plan(loads: &[Load], options: &Options) -> Report {
    let prices = Prices {
        memory: options.price_per_gib.memory / PRICED_BYTES,
        flash: options.price_per_gib.flash / PRICED_BYTES,
    };
    let tenants = |shape: Option<Shape>| -> Vec<Tenant> {
        let tenant = |load: &Load| {
            let mut tenant = Tenant::new(load.curve.clone(), options.latencies);
            tenant.index_ratio = options.index_bytes_per_object / load.object_bytes.max(1.0);
            tenant.weight = load.requests as f64;
            tenant.shape = shape.unwrap_or(tenant.shape);
            tenant
        };
        loads.iter().map(tenant).collect()
    };
    let elastic = tenants(None);
    let proportional = tenants(Some(Shape::Tied {
        flash_ratio: PROPORTIONAL_FLASH_RATIO,
    }));
    let goals = |load: &Load| match options.goal {
        Goal::LatencyUs(latency_us) => Some(load.latency_goal_us.unwrap_or(latency_us)),
        Goal::Spending(_) => None,
    };
    let goals: Vec<Option<f64>> = loads.iter().map(goals).collect();
    let (sizes, missing) = sizes(&elastic, prices, options.goal, &goals);
    let (tied_sizes, tied_missing) = self::sizes(&proportional, prices, options.goal, &goals);
    let total = split_of_all(&elastic, &sizes, prices);
    let tied = split_of_all(&proportional, &tied_sizes, prices);
    // If either misses a goal, their costs are of different latencies.
    let is_compared = missing.iter().chain(&tied_missing).all(|missing| *missing == 0.0);
    let saved = is_compared && matches!(options.goal, Goal::LatencyUs(_)) && tied.cost > 0.0;
    let reports = loads.iter().zip(&elastic).zip(sizes.iter().zip(&missing)).zip(&goals);
    Report {
        goal: options.goal,
        price_per_gib: PriceReport {
            dram: options.price_per_gib.memory,
            flash: options.price_per_gib.flash,
        },
        latencies_us: LatencyReport {
            memory: options.latencies.memory_us,
            flash: options.latencies.flash_us,
            origin: options.latencies.origin_us,
        },
        by_class: options.by_class,
        tenants: reports
            .map(|(((load, tenant), (sizes, missing)), goal)| {
                let (memory_misses, misses) = tenant.miss_ratios(*sizes);
                TenantReport {
                    tenant: load.tenant.clone(),
                    requests: load.requests,
                    objects: load.objects,
                    object_bytes: load.object_bytes,
                    split: split(tenant, *sizes, prices),
                    memory_hit_ratio: 1.0 - memory_misses,
                    flash_hit_ratio: memory_misses - misses,
                    latency_goal_us: *goal,
                    shortfall_us: goal.map(|_| *missing),
                }
            })
            .collect(),
        total,
        proportional: tied_missing.iter().all(|missing| *missing == 0.0).then_some(tied),
        saved_ratio: saved.then(|| 1.0 - total.cost / tied.cost),
        frontier: frontier::frontier(&elastic, &proportional, prices),
    }
}

/// The sizes of each tenant, and how much is missing to its goal in microseconds.
fn sizes(tenants: &[Tenant], prices: Prices, goal: Goal, goals: &[Option<f64>]) -> (Vec<Sizes>, Vec<f64>) {
    match goal {
        Goal::LatencyUs(_) => {
            let each = tenants.iter().zip(goals).map(|(tenant, goal)| {
                let goal = goal.unwrap_or(f64::INFINITY);
                tiers::least_cost(tenant, prices, goal).map_or_else(
                    |Unreachable {
                         best_latency_us,
                         short_us,
                     }| {
                        // The best there is, at the least that it costs.
                        let best = tiers::least_cost(tenant, prices, best_latency_us);
                        (best.unwrap_or_default(), short_us)
                    },
                    |sizes| (sizes, 0.0),
                )
            });
            each.unzip()
        }
        Goal::Spending(amount) => {
            let split = tiers::solve(tenants, prices, Pools::ANY, Target::Spending(amount));
            let each = tenants.iter().zip(split.sizes);
            let sizes = each.map(|(tenant, sizes)| tiers::least_latency(tenant, prices, tenant.cost(sizes, prices)));
            (sizes.collect(), vec![0.0; tenants.len()])
        }
    }
}

fn split(tenant: &Tenant, sizes: Sizes, prices: Prices) -> Split {
    Split {
        memory_bytes: sizes.memory_bytes,
        index_bytes: sizes.flash_bytes * tenant.index_ratio,
        flash_bytes: sizes.flash_bytes,
        cost: tenant.cost(sizes, prices),
        latency_us: tenant.latency_us(sizes),
    }
}

/// Sums, and the mean latency over all requests.
fn split_of_all(tenants: &[Tenant], sizes: &[Sizes], prices: Prices) -> Split {
    let weight: f64 = tenants.iter().map(|tenant| tenant.weight).sum();
    let mut all = Split::default();
    for (tenant, sizes) in tenants.iter().zip(sizes) {
        let one = split(tenant, *sizes, prices);
        all.memory_bytes += one.memory_bytes;
        all.index_bytes += one.index_bytes;
        all.flash_bytes += one.flash_bytes;
        all.cost += one.cost;
        all.latency_us += one.latency_us * tenant.weight / weight;
    }
    all
}

fn curve_options(options: &Options, source: &Source) -> curve::Options {
    curve::Options {
        path: source.path.clone(),
        format: options.format,
        eviction: Eviction::Lru,
        sampling: options.sampling,
        sizes: Vec::new(),
        value_size_bytes: options.value_size_bytes,
        overhead_bytes: options.overhead_bytes,
        by_class: options.by_class,
    }
}

fn check(options: &Options) -> Result<(), Error> {
    let usage = |text: String| Err(Error::Usage(text));
    if options.traces.is_empty() || options.traces.len() > MAX_TRACES {
        return usage(format!(
            "{} traces: allowed are 1 to {MAX_TRACES}",
            options.traces.len()
        ));
    }
    for (index, source) in options.traces.iter().enumerate() {
        if options.traces[..index]
            .iter()
            .any(|other| other.tenant == source.tenant)
        {
            return usage(format!(
                "two traces are of tenant `{}`: name one of them, as NAME=FILE",
                source.tenant
            ));
        }
    }
    let positive = |number: f64| number.is_finite() && number > 0.0;
    let Prices { memory, flash } = options.price_per_gib;
    if !positive(memory) || !positive(flash) {
        return usage(format!("--price dram={memory},flash={flash}: prices are more than 0"));
    }
    let Latencies {
        memory_us,
        flash_us,
        origin_us,
    } = options.latencies;
    if !(memory_us.is_finite() && memory_us >= 0.0 && positive(flash_us) && positive(origin_us)) {
        return usage("--latencies: those of flash and the origin are more than 0".into());
    }
    match options.goal {
        Goal::Spending(amount) if !(amount.is_finite() && amount >= 0.0) => {
            usage(format!("--spending {amount}: it is 0 or more"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
