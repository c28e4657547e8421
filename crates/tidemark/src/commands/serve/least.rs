//! From which size on a tenant's objects are cheaper in functions than in its memory, and from which on at the origin alone.
//!
//! How often they are read is seen: the bytes that a tenant moved in a while over those that it holds in functions. Until something was
//! seen it is taken to be once an hour. If nothing is held, what was seen is forgotten in about twenty minutes, so that objects
//! that stayed at the origin are tried again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemark_functions::cost::{Prices, Use};
use tidemark_functions::place::{Costs, EXTENT_BYTES, Place};

use crate::functions_file::{FunctionsFile, Least, PoolFile};

/// Seconds between two looks at how often objects are read.
pub(super) const LOOK_SECONDS: u64 = 60;
/// Reads in an hour of objects of which nothing is known.
const FIRST_READS: f64 = 1.0;
/// How much of a look goes into what is remembered: about the last twenty minutes count.
const LOOK_SHARE: f64 = 0.05;
/// Below this, invoking functions takes longer than sending the object (the paper's Fig. 16).
const FLOOR_BYTES: u64 = 1 << 20;
/// No object is longer.
const MOST_BYTES: u64 = 5 << 40;
/// Bytes in a second from a function of 1.5 GB; a warm-up and a backup in ms, as they are seen.
const FUNCTION_BYTES_PER_MS: f64 = 104_000.0;
const WARM_MS: f64 = 5.0;
const BACKUP_MS: f64 = 100.0;
const HOUR_S: f64 = 3600.0;

/// See the module. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct LeastBytes {
    least: Least,
    costs: Costs,
    /// A tenant of which nothing is known.
    first: Seen,
    tenants: Arc<Mutex<HashMap<u32, Seen>>>,
}

/// The knowledge of a tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    moved_bytes: u64,
    /// Reads of an object in an hour.
    pub(super) reads_an_hour: f64,
    /// The least size that is kept in functions.
    pub(super) least_bytes: u64,
    /// The least size that is kept nowhere, if there is one.
    pub(super) left_bytes: Option<u64>,
}

impl LeastBytes {
    /// For a pool, as its file says.
    pub(super) fn of(file: &FunctionsFile, pool: &PoolFile) -> Self {
        let code = file.codes.rows()[0].1;
        let times = |every: Option<std::time::Duration>| every.map_or(0.0, |every| HOUR_S / every.as_secs_f64());
        let used = Use {
            functions: u32::try_from(pool.count).unwrap_or(u32::MAX),
            memory_gb: pool.memory_mib as f64 / 1024.0,
            code,
            serve_ms: EXTENT_BYTES as f64 / f64::from(code.data()) / FUNCTION_BYTES_PER_MS,
            warm_ms: WARM_MS,
            warm_ups: times(file.warm_every),
            // Both instances of a function are paid.
            backup_ms: 2.0 * BACKUP_MS,
            backups: times(file.backup_every),
        };
        let prices = Prices {
            unit_ms: f64::from(file.unit_ms),
            ..Prices::TODAY
        };
        let mut this = Self {
            least: file.least_object,
            first: Seen::default(),
            costs: Costs {
                pool: used,
                prices,
                memory_gib_hour: file.memory_price,
                // Infinite: to keep an object is always cheaper.
                origin_read: file.origin_read_price.unwrap_or(f64::INFINITY),
                origin_gib: 0.0,
            },
            tenants: Arc::default(),
        };
        this.first = this.seen(0, FIRST_READS);
        this
    }

    /// A tenant whose objects are read so often.
    fn seen(&self, moved_bytes: u64, reads_an_hour: f64) -> Seen {
        let (costs, is_by_cost) = (&self.costs, self.least == Least::Cheapest);
        let cheapest = || {
            costs
                .least_bytes(reads_an_hour, MOST_BYTES)
                .unwrap_or(u64::MAX)
                .max(FLOOR_BYTES)
        };
        Seen {
            moved_bytes,
            reads_an_hour,
            least_bytes: match self.least {
                Least::Bytes(bytes) => bytes,
                Least::Cheapest => cheapest(),
            },
            left_bytes: costs.least_left_bytes(reads_an_hour, MOST_BYTES).filter(|_| is_by_cost),
        }
    }

    /// The place of a tenant's object.
    pub(super) fn place(&self, account: u32, size_bytes: u64) -> Place {
        let seen = self.of_account(account);
        if seen.left_bytes.is_some_and(|left| size_bytes >= left) {
            Place::Origin
        } else if size_bytes >= seen.least_bytes {
            Place::Functions
        } else {
            Place::Memory
        }
    }

    fn of_account(&self, account: u32) -> Seen {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.get(&account).copied().unwrap_or(self.first)
    }

    /// Looks at what tenants moved since the start, and what they hold, in bytes of chunks.
    pub(super) fn learn(&self, accounts: &[(u32, u64, u64)]) {
        let code = self.costs.pool.code;
        let data_share = f64::from(code.data()) / f64::from(code.chunks());
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        for &(account, moved_bytes, held_bytes) in accounts {
            let seen = tenants.entry(account).or_insert(Seen {
                moved_bytes,
                ..self.first
            });
            let moved = moved_bytes.saturating_sub(seen.moved_bytes) as f64;
            let now = match held_bytes {
                0 => FIRST_READS,
                held => moved / (held as f64 * data_share) * HOUR_S / LOOK_SECONDS as f64,
            };
            let reads_an_hour = seen.reads_an_hour + (now - seen.reads_an_hour) * LOOK_SHARE;
            *seen = self.seen(moved_bytes, reads_an_hour);
        }
    }

    /// Each tenant's number, and what is known of it, for reports.
    pub(super) fn tenants(&self) -> Vec<(u32, Seen)> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = tenants.iter().map(|(account, seen)| (*account, *seen)).collect();
        drop(tenants);
        all.sort_by_key(|(account, _)| *account);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes for the shared pool.
    fn least(file: &str) -> LeastBytes {
        let file = FunctionsFile::parse(file).unwrap();
        LeastBytes::of(&file, &file.pools[0])
    }

    #[test]
    fn what_is_read_more_often_must_be_larger_to_go_to_functions() {
        let least = least("");
        let first = least.of_account(1).least_bytes;
        assert!((FLOOR_BYTES..8 << 20).contains(&first), "{first}");
        let gib = 1 << 30;
        // The first is read sixty times an hour, the second never.
        for minute in 0..60 {
            least.learn(&[(1, minute * gib, gib * 12 / 10), (2, 0, gib)]);
        }
        let [often, never] = [1, 2].map(|account| least.of_account(account).least_bytes);
        assert!(often > 5 * first && never <= first, "{often}, {first}, {never}");
        let shown = least.tenants();
        assert!(
            shown[0].1.reads_an_hour > 40.0 && shown[1].1.reads_an_hour < 0.1,
            "{shown:?}"
        );
        assert_eq!(
            least.place(2, 5 << 40),
            Place::Functions,
            "nobody said what the origin costs"
        );
    }

    #[test]
    fn what_is_read_seldom_stays_at_the_origin_until_it_is_forgotten() {
        let least = least("origin_read_price = '0.01'");
        let (gib, large) = (1 << 30, 400 << 20);
        let place = || least.place(1, large);
        assert_eq!((place(), least.place(1, 4096)), (Place::Functions, Place::Memory));
        let look = |held| (0..120).for_each(|_| least.learn(&[(1, 0, held)]));
        look(gib);
        assert_eq!(place(), Place::Origin, "{:?}", least.tenants());
        assert_eq!(least.place(1, 4096), Place::Memory);
        look(0);
        assert_eq!(place(), Place::Functions, "{:?}", least.tenants());
    }

    #[test]
    fn a_size_in_the_file_is_that_of_all() {
        let least = least("least_object = '3MiB'\norigin_read_price = '0.000001'");
        least.learn(&[(1, 1 << 40, 1 << 20)]);
        for account in [1, 2] {
            let places = [(3 << 20) - 1, 3 << 20].map(|bytes| least.place(account, bytes));
            assert_eq!(places, [Place::Memory, Place::Functions]);
        }
    }
}
