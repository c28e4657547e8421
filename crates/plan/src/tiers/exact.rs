//! One tenant on its curve as it is: cliffs stay cliffs.
//!
//! Between the curve's points everything is linear. The best sizes therefore lie where memory, or memory and flash
//! together, are at one of its points, or without flash. All of these are tried.

use tidemark_curve::Curve;

use super::{Prices, Shape, Sizes, Tenant};

/// A latency that no sizes have.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the least latency is {best_latency_us:.1} us, {short_us:.1} us more than asked for")]
pub struct Unreachable {
    /// The least that there is, in microseconds.
    pub best_latency_us: f64,
    /// The latency above the goal.
    pub short_us: f64,
}

/// Latencies this close, relative to each other, are one.
const ROUNDING: f64 = 1e-9;

/// The sizes of least cost with at most this latency; the tenant's ranges of sizes are not looked at.
///
/// # Errors
/// No sizes have it.
pub fn least_cost(tenant: &Tenant, prices: Prices, latency_us: f64) -> Result<Sizes, Unreachable> {
    let tried = match tenant.shape {
        Shape::Free { .. } => free_for(tenant, latency_us),
        Shape::Tied { flash_ratio } => vec![tied_for(tenant, flash_ratio, latency_us)],
    };
    let is_met = |sizes: &Sizes| tenant.latency_us(*sizes) <= latency_us * (1.0 + ROUNDING);
    let cost = |sizes: &Sizes| tenant.cost(*sizes, prices);
    let best = tried
        .into_iter()
        .filter(is_met)
        .min_by(|a, b| cost(a).total_cmp(&cost(b)));
    best.ok_or_else(|| {
        let end = tenant.reached_bytes();
        let best_latency_us = tenant.latency_us(Sizes {
            memory_bytes: end,
            flash_bytes: end,
        });
        Unreachable {
            best_latency_us,
            short_us: best_latency_us - latency_us,
        }
    })
}

/// The sizes of least latency that cost at most this; of several, the cheapest. The tenant's ranges of sizes are not
/// looked at.
pub fn least_latency(tenant: &Tenant, prices: Prices, spending: f64) -> Sizes {
    let end = tenant.reached_bytes();
    let spending = spending.max(0.0);
    let tried = match tenant.shape {
        Shape::Free { .. } => free_within(tenant, prices, spending),
        Shape::Tied { flash_ratio } => {
            let price = prices.memory + flash_ratio * prices.flash_with_index(tenant.index_ratio);
            vec![tied(affordable(spending, price).min(end), flash_ratio)]
        }
    };
    let rank = |sizes: &Sizes| (tenant.latency_us(*sizes), tenant.cost(*sizes, prices));
    let best = tried.into_iter().min_by(|a, b| {
        let ((latency_a, cost_a), (latency_b, cost_b)) = (rank(a), rank(b));
        if (latency_a - latency_b).abs() <= ROUNDING * latency_a.abs() {
            cost_a.total_cmp(&cost_b)
        } else {
            latency_a.total_cmp(&latency_b)
        }
    });
    best.unwrap_or_default()
}

/// The miss ratio of a curve at a size that need not be whole.
pub(super) fn miss_ratio(curve: &Curve, bytes: f64) -> f64 {
    let points = curve.points();
    let right = points.partition_point(|point| point.bytes as f64 <= bytes);
    let Some(left) = right.checked_sub(1).map(|index| points[index]) else {
        return 1.0;
    };
    let Some(right) = points.get(right) else {
        return left.miss_ratio;
    };
    let share = (bytes - left.bytes as f64) / (right.bytes - left.bytes) as f64;
    left.miss_ratio + (right.miss_ratio - left.miss_ratio) * share
}

/// The least size with at most this miss ratio, if any has it.
fn bytes_for(curve: &Curve, miss_ratio: f64) -> Option<f64> {
    let points = curve.points();
    let right = points.partition_point(|point| point.miss_ratio > miss_ratio);
    let lower = points.get(right)?;
    let Some(higher) = right.checked_sub(1).map(|index| points[index]) else {
        return Some(lower.bytes as f64);
    };
    let share = (higher.miss_ratio - miss_ratio) / (higher.miss_ratio - lower.miss_ratio);
    Some(higher.bytes as f64 + (lower.bytes - higher.bytes) as f64 * share)
}

/// Pairs of which one is the cheapest with this latency.
fn free_for(tenant: &Tenant, latency_us: f64) -> Vec<Sizes> {
    let (memory, both, latencies) = (&tenant.memory.curve, &tenant.both.curve, tenant.latencies);
    let of_flash = 1.0 - tenant.overlap_ratio;
    let pair = |memory_bytes: f64, reach: f64| Sizes {
        memory_bytes: memory_bytes.min(reach),
        flash_bytes: (reach - memory_bytes).max(0.0) / of_flash,
    };
    let left = latency_us * (1.0 + ROUNDING / 2.0) - latencies.memory_us;
    let mut tried = vec![tied_for(tenant, 0.0, latency_us)];
    // This much in both together; then this much in memory.
    for point in both.points() {
        let in_memory = (left - latencies.origin_us * point.miss_ratio) / latencies.flash_us;
        tried.extend(bytes_for(memory, in_memory).map(|memory_bytes| pair(memory_bytes, point.bytes as f64)));
    }
    for point in memory.points() {
        let (bytes, in_both) = (
            point.bytes as f64,
            (left - latencies.flash_us * point.miss_ratio) / latencies.origin_us,
        );
        tried.extend(bytes_for(both, in_both).map(|reach| pair(bytes, reach.max(bytes))));
    }
    tried
}

/// Pairs of which one is the best for this money.
fn free_within(tenant: &Tenant, prices: Prices, spending: f64) -> Vec<Sizes> {
    let end = tenant.reached_bytes();
    let of_flash = 1.0 - tenant.overlap_ratio;
    let reach_price = prices.flash_with_index(tenant.index_ratio) / of_flash;
    let pair = |memory_bytes: f64, reach: f64| Sizes {
        memory_bytes,
        flash_bytes: (reach - memory_bytes).max(0.0) / of_flash,
    };
    let only_memory = affordable(spending, prices.memory).min(end);
    let mut tried = vec![pair(only_memory, only_memory)];
    for bytes in tenant.memory.curve.points().iter().map(|point| point.bytes as f64) {
        let left = spending - prices.memory * bytes;
        if left >= 0.0 {
            tried.push(pair(bytes, (bytes + affordable(left, reach_price)).min(end.max(bytes))));
        }
    }
    for bytes in tenant.both.curve.points().iter().map(|point| point.bytes as f64) {
        let left = spending - reach_price * bytes;
        if left >= 0.0 {
            tried.push(pair(affordable(left, prices.memory - reach_price).min(bytes), bytes));
        }
    }
    tried
}

/// How much money buys; all that there is where it costs nothing.
fn affordable(money: f64, price: f64) -> f64 {
    if price > 0.0 { money / price } else { f64::INFINITY }
}

fn tied(memory_bytes: f64, flash_ratio: f64) -> Sizes {
    Sizes {
        memory_bytes,
        flash_bytes: memory_bytes * flash_ratio,
    }
}

/// The least memory with so much flash for each of its bytes that has this latency. If none has it, the result is the
/// most that is of use.
fn tied_for(tenant: &Tenant, flash_ratio: f64, latency_us: f64) -> Sizes {
    let stretch = 1.0 + flash_ratio * (1.0 - tenant.overlap_ratio);
    let memory = tenant.memory.curve.points().iter().map(|point| point.bytes as f64);
    let both = tenant
        .both
        .curve
        .points()
        .iter()
        .map(|point| point.bytes as f64 / stretch);
    let mut bends: Vec<f64> = memory.chain(both).collect();
    bends.sort_by(f64::total_cmp);
    let latency = |memory_bytes: f64| tenant.latency_us(tied(memory_bytes, flash_ratio));
    let first = bends.partition_point(|memory_bytes| latency(*memory_bytes) > latency_us);
    let (Some(enough), Some(before)) = (bends.get(first), first.checked_sub(1)) else {
        let most = if first == 0 { 0.0 } else { tenant.reached_bytes() };
        return tied(most, flash_ratio);
    };
    let (few, many) = (bends[before], *enough);
    let share = (latency(few) - latency_us) / (latency(few) - latency(many));
    tied(few + (many - few) * share, flash_ratio)
}
