//! Many tenants that share pools, money or a mean latency: a price for each makes them independent of each other.

use super::answer::{Offer, Want};
use super::search::{self, Answer, Near};
use super::{Prices, Shape, Sizes, Tenant};

/// The limits of all tenants together, in bytes; infinity means no limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pools {
    /// Memory.
    pub memory_bytes: f64,
    /// Flash.
    pub flash_bytes: f64,
    /// Whether the index of flash is taken from the memory; else it lies beside. It costs the same.
    pub holds_index: bool,
}

/// The target of the plan.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// The least cost at which each tenant has its latency, where it has one. Each microsecond above it counts as the
    /// penalty in money: a larger one where a goal is to yield later.
    Each(&'a [Option<Goal>]),
    /// The least cost with this mean latency in microseconds over all requests.
    Mean(f64),
    /// The least mean latency over all requests that this amount of money buys.
    Spending(f64),
}

/// A tenant's latency as a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// The mean latency in microseconds.
    pub latency_us: f64,
    /// Money for each microsecond above it.
    pub penalty: f64,
}

/// The sizes of each tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The sizes, in the order of the tenants.
    pub sizes: Vec<Sizes>,
    /// The saving by another byte of the memory pool, in money (with [`Target::Spending`] in weighted microseconds).
    pub memory_worth: f64,
    /// The same of the flash pool.
    pub flash_worth: f64,
}

impl Pools {
    /// No limits.
    pub const ANY: Self = Self {
        memory_bytes: f64::INFINITY,
        flash_bytes: f64::INFINITY,
        holds_index: true,
    };
}

impl Tenant {
    /// A goal that yields to nothing at these prices: its penalty is twice the price of this tenant's dearest
    /// microsecond.
    pub fn firm(&self, latency_us: f64, prices: Prices) -> Goal {
        let flash = prices.flash_with_index(self.index_ratio);
        let price = match self.shape {
            Shape::Free { .. } => prices.memory.max(flash / (1.0 - self.overlap_ratio)),
            Shape::Tied { flash_ratio } => prices.memory + flash_ratio * flash,
        };
        let us = self
            .latencies
            .flash_us
            .min(self.latencies.origin_us)
            .max(f64::MIN_POSITIVE);
        Goal {
            latency_us,
            penalty: 2.0 * price / (us * self.memory.facets.least_gain().min(self.both.facets.least_gain())),
        }
    }
}

/// The best sizes of all tenants within the pools, by the hulls of their curves.
///
/// If floors alone exceed a pool, sizes exceed it, too.
pub fn solve(tenants: &[Tenant], prices: Prices, pools: Pools, target: Target<'_>) -> Plan {
    let weight: f64 = tenants.iter().map(|tenant| tenant.weight).sum();
    let market = Market {
        tenants,
        prices,
        pools,
        goals: match target {
            Target::Each(goals) => goals,
            Target::Mean(_) | Target::Spending(_) => &[],
        },
        weight: weight.max(f64::MIN_POSITIVE),
        memory: Near::default(),
        flash: Near::default(),
        of_goals: vec![Near::default(); tenants.len()],
    };
    let first_latency = market.first_latency_price();
    let total = match target {
        Target::Each(_) => market.within_pools(1.0, 0.0),
        Target::Mean(latency_us) => {
            let at = |price: f64| {
                let total = market.within_pools(1.0, price);
                Level {
                    excess: total.latency_us - latency_us,
                    base: total.cost,
                    total,
                }
            };
            search::price(first_latency, &Near::default(), at).1.total
        }
        Target::Spending(amount) => {
            let at = |price: f64| {
                let total = market.within_pools(price, 1.0);
                Level {
                    excess: total.cost - amount,
                    base: total.latency_us,
                    total,
                }
            };
            search::price(1.0 / first_latency, &Near::default(), at).1.total
        }
    };
    Plan {
        sizes: total.sizes,
        memory_worth: total.memory_worth,
        flash_worth: total.flash_worth,
    }
}

struct Market<'a> {
    tenants: &'a [Tenant],
    prices: Prices,
    pools: Pools,
    /// Empty, or one for each tenant.
    goals: &'a [Option<Goal>],
    /// The weight of all tenants.
    weight: f64,
    /// The prices that were found last: of the pools, and of latency to each tenant.
    memory: Near,
    flash: Near,
    of_goals: Vec<Near>,
}

/// The sizes of all tenants at some prices.
#[derive(Clone, Debug)]
struct Total {
    sizes: Vec<Sizes>,
    cost: f64,
    /// Mean by weight.
    latency_us: f64,
    /// Penalties of goals that are missed.
    penalties: f64,
    memory_bytes: f64,
    flash_bytes: f64,
    memory_worth: f64,
    flash_worth: f64,
}

/// A total as the answer to one of the prices that are searched for.
#[derive(Clone, Debug)]
struct Level {
    total: Total,
    excess: f64,
    base: f64,
}

impl Market<'_> {
    /// The best of all within both pools, where money and latency count so much.
    fn within_pools(&self, money: f64, latency: f64) -> Total {
        if self.pools.memory_bytes == f64::INFINITY {
            return self.within_flash(money, latency, 0.0);
        }
        let at = |price: f64| {
            let total = self.within_flash(money, latency, price);
            Level {
                excess: total.memory_bytes - self.pools.memory_bytes,
                base: total.value(money, latency),
                total,
            }
        };
        let (price, answer) = search::price(self.first_price(money, latency), &self.memory, at);
        Total {
            memory_worth: price,
            ..answer.total
        }
    }

    fn within_flash(&self, money: f64, latency: f64, memory_price: f64) -> Total {
        if self.pools.flash_bytes == f64::INFINITY {
            return self.total(money, latency, memory_price, 0.0);
        }
        let at = |price: f64| {
            let total = self.total(money, latency, memory_price, price);
            Level {
                excess: total.flash_bytes - self.pools.flash_bytes,
                base: total.value(money, latency) + memory_price * total.memory_bytes,
                total,
            }
        };
        let (price, answer) = search::price(self.first_price(money, latency), &self.flash, at);
        Total {
            flash_worth: price,
            ..answer.total
        }
    }

    fn total(&self, money: f64, latency: f64, memory_price: f64, flash_price: f64) -> Total {
        let mut total = Total {
            sizes: Vec::with_capacity(self.tenants.len()),
            cost: 0.0,
            latency_us: 0.0,
            penalties: 0.0,
            memory_bytes: 0.0,
            flash_bytes: 0.0,
            memory_worth: 0.0,
            flash_worth: 0.0,
        };
        let memory = money * self.prices.memory + memory_price;
        let index_price = if self.pools.holds_index {
            memory
        } else {
            money * self.prices.memory
        };
        for (index, tenant) in self.tenants.iter().enumerate() {
            let offer = Offer {
                memory,
                flash: money * self.prices.flash + flash_price + tenant.index_ratio * index_price,
                latency: latency * tenant.weight / self.weight,
            };
            let goal = self.goals.get(index).copied().flatten();
            let want = goal.map(|goal| Want {
                latency_us: goal.latency_us,
                penalty: goal.penalty,
            });
            let sizes = tenant.best(offer, want, &self.of_goals[index]);
            let latency_us = tenant.hull_latency_us(sizes);
            total.cost += tenant.cost(sizes, self.prices);
            total.latency_us += latency_us * tenant.weight / self.weight;
            total.penalties += goal.map_or(0.0, |goal| goal.penalty * (latency_us - goal.latency_us).max(0.0));
            total.memory_bytes += if self.pools.holds_index {
                tenant.memory_bytes(sizes)
            } else {
                sizes.memory_bytes
            };
            total.flash_bytes += sizes.flash_bytes;
            total.sizes.push(sizes);
        }
        total
    }

    /// A guess at a pool's price: the price of memory anyway, or the worth of latency per byte.
    fn first_price(&self, money: f64, latency: f64) -> f64 {
        (money * self.prices.memory + latency * self.prices.memory / self.first_latency_price()).max(f64::MIN_POSITIVE)
    }

    /// A guess at the worth of a microsecond: all memory that curves reach, for all time that it saves.
    fn first_latency_price(&self) -> f64 {
        let all = |of: fn(&Tenant) -> f64| self.tenants.iter().map(of).sum::<f64>();
        let bytes = all(Tenant::reached_bytes);
        let us = all(|tenant| tenant.latencies.flash_us + tenant.latencies.origin_us);
        let guess = self.prices.memory * bytes / us;
        if guess.is_normal() { guess } else { 1.0 }
    }
}

impl Total {
    fn value(&self, money: f64, latency: f64) -> f64 {
        money * self.cost + latency * self.latency_us + self.penalties
    }
}

impl Answer for Level {
    fn excess(&self) -> f64 {
        self.excess
    }

    fn base(&self) -> f64 {
        self.base
    }

    fn mixed(&self, other: &Self, share: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * share;
        let (one, two) = (&self.total, &other.total);
        let sizes = one.sizes.iter().zip(&two.sizes).map(|(a, b)| Sizes {
            memory_bytes: between(a.memory_bytes, b.memory_bytes),
            flash_bytes: between(a.flash_bytes, b.flash_bytes),
        });
        Self {
            total: Total {
                sizes: sizes.collect(),
                cost: between(one.cost, two.cost),
                latency_us: between(one.latency_us, two.latency_us),
                penalties: between(one.penalties, two.penalties),
                memory_bytes: between(one.memory_bytes, two.memory_bytes),
                flash_bytes: between(one.flash_bytes, two.flash_bytes),
                memory_worth: between(one.memory_worth, two.memory_worth),
                flash_worth: between(one.flash_worth, two.flash_worth),
            },
            excess: between(self.excess, other.excess),
            base: between(self.base, other.base),
        }
    }
}
