//! The rules by which the study's tenants share their pool.

use tidemark_control::{Change, SettingsPatch, Utility};
use tidemark_types::{HitRatio, UNIT_BYTES};

use super::{MISS_US, Setting, TENANTS};

/// The part of the pool that fixed grants may take. The rest is never granted, so that a newcomer can begin.
const GRANTABLE: f64 = 63.0 / 64.0;

/// A hit ratio that a tenant asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The hit ratio of the goal.
    pub hit_ratio: HitRatio,
    /// Goals of a higher one are served first.
    pub priority: u8,
}

/// A rule.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Tidemark's, with this utility; each tenant has a floor of this part of the pool.
    Tidemark {
        /// The utility of all tenants.
        utility: Utility,
        /// Each one's floor over the pool.
        floor: f64,
        /// The goals of some of them.
        goals: [Option<Goal>; TENANTS],
    },
    /// The share of each as long as these are there, over the pool; every set of tenants that occurs must be there.
    Fixed(Vec<([bool; TENANTS], [f64; TENANTS])>),
    /// A model of CacheLib's optimizer, from a quarter for each.
    CacheLib,
}

impl Rule {
    /// Tidemark's, where nobody asks for a hit ratio.
    pub fn tidemark(utility: Utility, floor: f64) -> Self {
        Self::Tidemark {
            utility,
            floor,
            goals: [None; TENANTS],
        }
    }

    /// A quarter of the pool for each, whichever tenants are there.
    pub fn quarter() -> Self {
        Self::fixed([1.0 / TENANTS as f64; TENANTS])
    }

    /// An equal share for each that is there.
    pub fn equal() -> Self {
        Self::weights([1.0; TENANTS])
    }

    /// The study's own: nearly all for the most skewed tenant, and the rest in proportion.
    pub fn custom() -> Self {
        Self::weights([0.91, 0.03, 0.03, 0.03])
    }

    /// Each of those that are there gets its part of their sum.
    pub fn weights(weights: [f64; TENANTS]) -> Self {
        Self::of_sets(|there| {
            let of_those = |tenant: usize| if there[tenant] { weights[tenant] } else { 0.0 };
            let all: f64 = (0..TENANTS).map(of_those).sum();
            std::array::from_fn(|tenant| of_those(tenant) / all)
        })
    }

    /// The same for each, whichever tenants are there.
    pub fn fixed(parts: [f64; TENANTS]) -> Self {
        Self::of_sets(|_| parts)
    }

    /// The shares that follow from the present tenants, for every set of tenants.
    pub fn of_sets(parts: impl Fn([bool; TENANTS]) -> [f64; TENANTS]) -> Self {
        let sets = (1..1 << TENANTS).map(|bits: usize| std::array::from_fn(|tenant| bits >> tenant & 1 == 1));
        Self::Fixed(sets.map(|there| (there, parts(there))).collect())
    }

    /// A tenant's settings while these are there.
    pub(super) fn patch(&self, setting: &Setting, there: [bool; TENANTS], tenant: usize) -> SettingsPatch {
        match self {
            Self::Tidemark { utility, floor, goals } => {
                let goal = goals[tenant];
                SettingsPatch {
                    floor_bytes: Change::Set(whole_units(setting.pool_bytes() as f64 * floor)),
                    utility: Change::Set(*utility),
                    miss_cost: Change::Set(setting.cost(MISS_US)),
                    hit_ratio: goal.map_or(Change::Keep, |goal| Change::Set(goal.hit_ratio)),
                    priority: goal.map_or(Change::Keep, |goal| Change::Set(goal.priority)),
                    ..SettingsPatch::default()
                }
            }
            Self::Fixed(table) => {
                let found = table.iter().find(|(set, _)| *set == there);
                fixed(setting, found.map_or(0.0, |(_, parts)| parts[tenant]))
            }
            Self::CacheLib => fixed(setting, 1.0 / TENANTS as f64),
        }
    }
}

fn whole_units(bytes: f64) -> u64 {
    bytes as u64 / UNIT_BYTES * UNIT_BYTES
}

/// A cap that is always granted: exactly so much of the pool, whatever others want.
fn fixed(setting: &Setting, part: f64) -> SettingsPatch {
    SettingsPatch {
        cap_bytes: Change::Set(whole_units(setting.pool_bytes() as f64 * part * GRANTABLE)),
        ..SettingsPatch::default()
    }
}
