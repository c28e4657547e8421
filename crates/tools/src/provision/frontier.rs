//! The least cost of each mean latency.

use serde::Serialize;
use tidemark_plan::tiers::{self, Pools, Prices, Shape, Sizes, Target, Tenant};

use super::{Split, split_of_all};

/// Latencies of the frontier.
const STEPS: u32 = 24;

/// A mean latency over all requests, and the cheapest sizes with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The latency in microseconds.
    pub latency_us: f64,
    /// Memory and flash sized apart.
    pub elastic: Split,
    /// So much flash for each byte of memory; `null` where that has no such latency.
    pub proportional: Option<Split>,
}

/// Steps from the best latency to that without a cache, evenly apart. The last one costs nothing and is left out.
pub(super) fn frontier(elastic: &[Tenant], proportional: &[Tenant], prices: Prices) -> Vec<Step> {
    let weight: f64 = elastic.iter().map(|tenant| tenant.weight).sum();
    let mean = |of: fn(&Tenant) -> f64| {
        elastic
            .iter()
            .map(|tenant| of(tenant) * tenant.weight / weight)
            .sum::<f64>()
    };
    let (best, worst) = (
        mean(Tenant::best_latency_us),
        mean(|tenant| tenant.latency_us(Sizes::default())),
    );
    let step = |n: u32| {
        let latency_us = best + (worst - best) * f64::from(n) / f64::from(STEPS);
        Step {
            latency_us,
            elastic: cheapest(elastic, prices, latency_us),
            proportional: Some(cheapest(proportional, prices, latency_us)),
        }
    };
    if worst <= best {
        return Vec::new();
    }
    (0..STEPS).map(step).collect()
}

/// Hulls say which tenant gets what latency; its curve gives the cost.
fn cheapest(tenants: &[Tenant], prices: Prices, latency_us: f64) -> Split {
    let one = |tenant: &Tenant, latency_us: f64| {
        // The very best latency is missed by rounding at most.
        let best = tenant.best_latency_us();
        tiers::least_cost(tenant, prices, latency_us.max(best)).unwrap_or_else(|_| largest(tenant))
    };
    let sizes: Vec<Sizes> = match tenants {
        [tenant] => vec![one(tenant, latency_us)],
        _ => {
            let split = tiers::solve(tenants, prices, Pools::ANY, Target::Mean(latency_us));
            let each = tenants.iter().zip(split.sizes);
            each.map(|(tenant, sizes)| one(tenant, tenant.hull_latency_us(sizes)))
                .collect()
        }
    };
    split_of_all(tenants, &sizes, prices)
}

/// All in memory.
fn largest(tenant: &Tenant) -> Sizes {
    let memory_bytes = tenant.reached_bytes();
    let flash_bytes = match tenant.shape {
        Shape::Free { .. } => 0.0,
        Shape::Tied { flash_ratio } => memory_bytes * flash_ratio,
    };
    Sizes {
        memory_bytes,
        flash_bytes,
    }
}
