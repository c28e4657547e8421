//! The place that keeps an object at least cost: memory, functions, or the origin alone. Pure. Sizes are bytes, costs
//! dollars an hour.
//!
//! Memory costs what it takes, however often it is read. Functions cost little for what they hold and something for each read (the
//! paper's Equations 4 to 6). The origin costs for reads only.

use crate::cost::{Prices, Use};

/// Bytes of an object that one invocation of each of its functions serves.
pub const EXTENT_BYTES: u64 = 64 << 20;
/// The part of a function's memory for chunks.
const ROOM_SHARE: f64 = 0.85;
const GIB: f64 = (1 << 30) as f64;
/// Halvings until a size is found to the byte.
const STEPS: u32 = 63;

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the tenant's memory.
    Memory,
    /// In the memory of functions.
    Functions,
    /// Nowhere but at the origin.
    Origin,
}

impl Place {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Functions, Self::Origin];

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Functions => "functions",
            Self::Origin => "origin",
        }
    }
}

/// The prices of places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// The pool of functions, and how it is used.
    pub pool: Use,
    /// The cloud's prices for it.
    pub prices: Prices,
    /// A GiB of memory for an hour.
    pub memory_gib_hour: f64,
    /// A read of an object from the origin: its charge, and what waiting for it is worth.
    pub origin_read: f64,
    /// A GiB read from it.
    pub origin_gib: f64,
}

impl Costs {
    /// The cost of an hour of an object of so many bytes that is read so often.
    pub fn hour(&self, place: Place, object_bytes: u64, reads: f64) -> f64 {
        let gib = object_bytes as f64 / GIB;
        match place {
            Place::Memory => gib * self.memory_gib_hour,
            Place::Functions => gib * self.functions_gib_hour() + reads * self.functions_read(object_bytes),
            Place::Origin => reads * (self.origin_read + gib * self.origin_gib),
        }
    }

    /// The cheapest; memory before functions before the origin where they cost the same.
    pub fn cheapest(&self, object_bytes: u64, reads: f64) -> Place {
        let cheaper = |best: Place, place: Place| {
            let is_cheaper = self.hour(place, object_bytes, reads) < self.hour(best, object_bytes, reads);
            if is_cheaper { place } else { best }
        };
        Place::ALL.into_iter().fold(Place::Memory, cheaper)
    }

    /// The least size from which on functions are cheaper than memory for objects that are read so often. `None`: none is, up to
    /// `most_bytes`.
    pub fn least_bytes(&self, reads: f64, most_bytes: u64) -> Option<u64> {
        least(most_bytes, |bytes| {
            self.hour(Place::Functions, bytes, reads) < self.hour(Place::Memory, bytes, reads)
        })
    }

    /// The least size from which on the origin alone is cheapest for objects that are read so often. `None`: it is not, up to
    /// `most_bytes`.
    pub fn least_left_bytes(&self, reads: f64, most_bytes: u64) -> Option<u64> {
        least(most_bytes, |bytes| self.cheapest(bytes, reads) == Place::Origin)
    }

    /// The cost of functions for a GiB that they hold, read or not: warm-ups and backups.
    fn functions_gib_hour(&self) -> f64 {
        let standing = self.pool.hour(&self.prices, 0.0).total() / f64::from(self.pool.functions);
        let redundancy = f64::from(self.pool.code.chunks()) / f64::from(self.pool.code.data());
        standing / (self.pool.memory_gb * ROOM_SHARE) * redundancy
    }

    fn functions_read(&self, object_bytes: u64) -> f64 {
        let extents = object_bytes.div_ceil(EXTENT_BYTES).max(1) as f64;
        self.pool.hour(&self.prices, extents).serving
    }
}

/// The least number up to `most` from which on something holds.
fn least(most: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(most) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    for _ in 0..STEPS {
        let middle = low + (high - low) / 2;
        if middle > low && holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn costs() -> Costs {
        Costs {
            pool: Use::paper(),
            prices: Prices::PAPER,
            // The paper's node by what it holds.
            memory_gib_hour: 10.368 / 635.61,
            origin_read: 0.01,
            origin_gib: 0.09,
        }
    }

    #[test]
    fn what_is_small_or_read_often_goes_to_memory_and_what_is_large_and_read_seldom_to_functions() {
        let costs = costs();
        assert_eq!(costs.cheapest(4 << 10, 10.0), Place::Memory);
        assert_eq!(costs.cheapest(50 * MIB, 3_600.0), Place::Memory);
        assert_eq!(costs.cheapest(50 * MIB, 1.0), Place::Functions);
        assert_eq!(costs.cheapest(50 * MIB, 0.000_1), Place::Origin);
        assert_eq!(costs.cheapest(50 * MIB, 0.0), Place::Origin);
    }

    #[test]
    fn the_least_size_grows_with_popularity_and_is_where_costs_cross() {
        let costs = costs();
        let sizes: Vec<u64> = [0.01, 0.1, 1.0, 4.0]
            .into_iter()
            .map(|reads| costs.least_bytes(reads, 1 << 40).unwrap())
            .collect();
        assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
        for (reads, bytes) in [0.01, 0.1, 1.0].into_iter().zip(sizes) {
            let difference =
                |bytes| costs.hour(Place::Functions, bytes, reads) - costs.hour(Place::Memory, bytes, reads);
            assert!(
                difference(bytes) < 0.0 && difference(bytes - 1) >= 0.0,
                "{reads}: {bytes}"
            );
        }
        assert_eq!(costs.least_bytes(1e9, 1 << 40), None);
    }

    #[test]
    fn what_is_read_seldom_stays_at_the_origin_from_some_size_on() {
        let costs = Costs {
            origin_gib: 0.0,
            ..costs()
        };
        let least = costs.least_left_bytes(0.01, 1 << 40).unwrap();
        assert_eq!(costs.cheapest(least, 0.01), Place::Origin);
        assert_ne!(costs.cheapest(least - 1, 0.01), Place::Origin);
        assert!(least < costs.least_left_bytes(0.1, 1 << 40).unwrap());
        let free = Costs {
            origin_read: f64::INFINITY,
            ..costs
        };
        assert_eq!(
            free.least_left_bytes(0.01, 1 << 40),
            None,
            "a read of it is out of the question"
        );
    }

    #[test]
    fn dear_functions_hold_nothing() {
        let costs = Costs {
            memory_gib_hour: 0.0001,
            ..costs()
        };
        assert_eq!(costs.least_bytes(0.0, 1 << 40), None);
    }
}
