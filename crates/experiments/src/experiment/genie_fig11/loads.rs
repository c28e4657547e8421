//! The five loads: requests and goals.

use std::time::Duration;

use tidemark_tools::client::Protocol;
use tidemark_tools::load::{Distribution, Lifetimes, Workload, WorkloadError};

/// A load with its goal.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// The name of the load.
    pub(super) name: &'static str,
    pub(super) workload: Workload,
    /// The hit ratio to reach.
    pub(super) goal: f64,
    /// Whether some keys are much more popular than others.
    pub(super) is_skewed: bool,
    /// The lifetimes of the items of the beginning, every key stored once, as after days of such a load. Without them,
    /// a run of minutes would measure which of the rare keys were never asked for yet. `None` begins with the present
    /// items.
    pub(super) stored_before: Option<Lifetimes>,
    /// How long it lasts at least.
    pub(super) seconds: f64,
    /// The protocol that can state the load's lifetimes.
    pub(super) protocol: Protocol,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Gets a second of each tenant.
    pub(super) gets_per_second: f64,
    /// Keys are fewer by this factor.
    fewer: u64,
    /// How long each load lasts, where that is not its own business.
    seconds: Option<f64>,
}

impl Scale {
    pub(super) fn of(quick: bool) -> Self {
        if quick {
            Self {
                gets_per_second: 20_000.0,
                fewer: 50,
                seconds: Some(20.0),
            }
        } else {
            Self {
                gets_per_second: 200_000.0,
                fewer: 1,
                seconds: None,
            }
        }
    }

    /// Whether only to see that it works: times are too short to settle in.
    pub(super) fn is_quick(&self) -> bool {
        self.seconds.is_some()
    }
}

/// Items of one size and how they are asked for.
#[derive(Clone, Copy)]
struct Shape {
    keys: u64,
    /// Zipf's exponent; 0 is uniform.
    alpha: f64,
    key_bytes: usize,
    value_bytes: usize,
}

/// Lifetimes of the Twitter clusters are shorter here by this factor, so that minutes show what days would.
const TIMES_FASTER: u32 = 1000;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);

/// The loads, those that follow each other on the same tenants together.
///
/// # Errors
/// None: they are fixed.
pub(super) fn demands(scale: Scale, seed: u64) -> Result<Vec<Vec<Demand>>, WorkloadError> {
    let plain = |name, shape: Shape| Demand {
        name,
        is_skewed: shape.alpha > 0.0,
        workload: workload(shape, scale, seed),
        goal: 0.9,
        stored_before: None,
        seconds: scale.seconds.unwrap_or(300.0),
        protocol: Protocol::Memcached,
    };
    let stages = [
        plain("Zipf 1.1, 16+64 bytes", shape(2_000_000, 1.1, 16, 64)),
        plain("uniform, 16+64 bytes", shape(2_000_000, 0.0, 16, 64)),
        plain("uniform, 8+8 bytes", shape(4_000_000, 0.0, 8, 8)),
    ];
    Ok(vec![
        stages.into(),
        vec![cluster24(scale, seed)?],
        vec![cluster48(scale, seed)?],
    ])
}

/// Twitter's cluster 24: nothing but gets are listed, so that sets follow misses.
fn cluster24(scale: Scale, seed: u64) -> Result<Demand, WorkloadError> {
    let lifetimes = [
        (0.71, 14 * DAY),
        (0.19, MINUTE),
        (0.03, 30 * DAY),
        (0.02, DAY),
        (0.02, HOUR),
    ];
    let workload = Workload {
        fresh_ratio: 0.0074,
        lifetimes: Lifetimes::new(lifetimes.map(faster))?,
        ..workload(shape(1_000_000, 1.3726, 32, 699), scale, seed)
    };
    Ok(Demand {
        name: "Twitter cluster 24",
        goal: 0.99,
        is_skewed: true,
        // Three in four outlast the run. Were they half over at its beginning, the goal would be out of reach by a hair.
        stored_before: Some(workload.lifetimes.clone()),
        workload,
        // One get in a hundred misses: memory fills slowly.
        seconds: scale.seconds.unwrap_or(600.0),
        protocol: Protocol::Redis,
    })
}

/// Twitter's cluster 48: 35 sets to 65 gets.
fn cluster48(scale: Scale, seed: u64) -> Result<Demand, WorkloadError> {
    let workload = Workload {
        reads_ratio: 0.65,
        fresh_ratio: 0.284,
        lifetimes: Lifetimes::new([faster((1.0, DAY))])?,
        ..workload(shape(1_000_000, 0.8191, 44, 70), scale, seed)
    };
    Ok(Demand {
        name: "Twitter cluster 48",
        goal: 0.7,
        is_skewed: true,
        // Else all would expire together.
        stored_before: Some(workload.lifetimes.remaining()),
        workload,
        seconds: scale.seconds.unwrap_or(300.0),
        protocol: Protocol::Redis,
    })
}

fn faster((share, lifetime): (f64, Duration)) -> (f64, Duration) {
    (share, lifetime / TIMES_FASTER)
}

fn shape(keys: u64, alpha: f64, key_bytes: usize, value_bytes: usize) -> Shape {
    Shape {
        keys,
        alpha,
        key_bytes,
        value_bytes,
    }
}

fn workload(shape: Shape, scale: Scale, seed: u64) -> Workload {
    let distribution = if shape.alpha > 0.0 {
        Distribution::Zipf { alpha: shape.alpha }
    } else {
        Distribution::Uniform
    };
    Workload {
        seed,
        ..Workload::gets(
            shape.keys / scale.fewer,
            distribution,
            shape.key_bytes,
            shape.value_bytes,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_tools::load::Requests;

    #[test]
    fn every_load_can_be_made_at_every_scale() {
        for quick in [false, true] {
            let scale = Scale::of(quick);
            let demands = demands(scale, 1).unwrap();
            let count = |skewed| {
                demands
                    .iter()
                    .flatten()
                    .filter(|demand| demand.is_skewed == skewed)
                    .count()
            };
            assert_eq!((count(true), count(false)), (3, 2));
            for demand in demands.iter().flatten() {
                demand.workload.key_text().unwrap();
                // Drawing the ranks of millions of keys takes no preparation.
                Requests::new(&demand.workload, (0, 1)).unwrap().draw();
                assert_eq!(scale.is_quick(), demand.seconds < 60.0, "{}", demand.name);
                let expires = !demand.workload.lifetimes.is_empty();
                assert_eq!(expires, demand.protocol == Protocol::Redis, "{}", demand.name);
            }
        }
    }
}
