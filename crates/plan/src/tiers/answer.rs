//! One tenant's best sizes when memory, flash and latency have prices.

use super::search::{self, Answer, Near};
use super::{Shape, Sizes, Tenant};

/// Prices at which a tenant decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// The price of a byte of memory.
    pub(super) memory: f64,
    /// The price of a byte of flash, with its index.
    pub(super) flash: f64,
    /// The worth of a microsecond of mean latency.
    pub(super) latency: f64,
}

/// A mean latency that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    /// The latency in microseconds.
    pub(super) latency_us: f64,
    /// The worth of each microsecond above the limit, beside that of latency anyway.
    pub(super) penalty: f64,
}

impl Tenant {
    /// The sizes that cost least at these prices, latency included. A want counts its penalty above the latency that is
    /// wanted, and nothing below. `near` remembers the worth of latency at which it is met.
    pub(super) fn best(&self, offer: Offer, want: Option<Want>, near: &Near) -> Sizes {
        let Some(want) = want else {
            return self.best_at(offer);
        };
        let goal = |penalty: f64| {
            let sizes = self.best_at(Offer {
                latency: offer.latency + penalty,
                ..offer
            });
            let latency_us = self.hull_latency_us(sizes);
            Reply {
                sizes,
                excess: latency_us - want.latency_us,
                base: offer.memory * sizes.memory_bytes + offer.flash * sizes.flash_bytes + offer.latency * latency_us,
            }
        };
        let most = goal(want.penalty);
        if most.excess > 0.0 {
            return most.sizes;
        }
        search::price(want.penalty / 1024.0, near, |price| goal(price.min(want.penalty)))
            .1
            .sizes
    }

    fn best_at(&self, offer: Offer) -> Sizes {
        if offer.latency <= 0.0 {
            return self.least();
        }
        match self.shape {
            Shape::Free { .. } => self.best_free(offer),
            Shape::Tied { flash_ratio } => {
                let stretch = 1.0 + flash_ratio * (1.0 - self.overlap_ratio);
                let price = (offer.memory + flash_ratio * offer.flash) / offer.latency;
                let memory_bytes = self.both_until(stretch, 0.0, price);
                Sizes {
                    memory_bytes,
                    flash_bytes: memory_bytes * flash_ratio,
                }
            }
        }
    }

    /// Memory reaches up to where it is no longer worth its price. Memory and flash together do likewise, and flash
    /// completes the sum. If that is more or less flash than is allowed, flash is the limit and memory carries it
    /// along.
    fn best_free(&self, offer: Offer) -> Sizes {
        let Shape::Free { memory, flash } = self.shape else {
            return Sizes::default();
        };
        let of_flash = 1.0 - self.overlap_ratio;
        // The price of one byte more in both together, and of memory in place of flash.
        let reach_price = offer.flash / of_flash;
        let instead_price = offer.memory - reach_price;
        let within = |bytes: f64| bytes.max(memory.least).min(memory.most);
        let along = |flash_bytes: f64| Sizes {
            memory_bytes: within(self.both_until(1.0, flash_bytes * of_flash, offer.memory / offer.latency)),
            flash_bytes,
        };
        let per_byte = |price: f64, us: f64| {
            if us > 0.0 {
                price / (offer.latency * us)
            } else {
                f64::INFINITY
            }
        };
        // If memory costs less than flash, flash is worth something only beyond a cap of memory.
        let memory_bytes = if instead_price <= 0.0 {
            memory.most
        } else {
            within(
                self.memory
                    .facets
                    .until(per_byte(instead_price, self.latencies.flash_us)),
            )
        };
        let reach = self.both.facets.until(per_byte(reach_price, self.latencies.origin_us));
        let flash_bytes = (reach - memory_bytes) / of_flash;
        if flash_bytes < flash.least {
            along(flash.least)
        } else if flash_bytes > flash.most {
            along(flash.most)
        } else {
            Sizes {
                memory_bytes,
                flash_bytes,
            }
        }
    }

    fn least(&self) -> Sizes {
        match self.shape {
            Shape::Free { memory, flash } => Sizes {
                memory_bytes: memory.least,
                flash_bytes: flash.least,
            },
            Shape::Tied { .. } => Sizes::default(),
        }
    }

    fn both_until(&self, stretch: f64, shift: f64, gain: f64) -> f64 {
        let (first, second) = (self.latencies.flash_us, self.latencies.origin_us);
        let (memory, both) = (&self.memory.facets, &self.both.facets);
        memory.until_both(first, (both, second), stretch, shift, gain)
    }
}

/// Sizes at a price of latency.
#[derive(Clone, Copy, Debug)]
struct Reply {
    sizes: Sizes,
    excess: f64,
    base: f64,
}

impl Answer for Reply {
    fn excess(&self) -> f64 {
        self.excess
    }

    fn base(&self) -> f64 {
        self.base
    }

    fn mixed(&self, other: &Self, share: f64) -> Self {
        let between = |a: f64, b: f64| a + (b - a) * share;
        Self {
            sizes: Sizes {
                memory_bytes: between(self.sizes.memory_bytes, other.sizes.memory_bytes),
                flash_bytes: between(self.sizes.flash_bytes, other.sizes.flash_bytes),
            },
            excess: between(self.excess, other.excess),
            base: between(self.base, other.base),
        }
    }
}
