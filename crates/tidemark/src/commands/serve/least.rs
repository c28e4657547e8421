//! From which size on a tenant's objects are cheaper in functions than in its memory.
//!
//! How often they are read is seen: the bytes that a tenant moved in a while over those that it holds. Until something was seen it
//! is taken to be once an hour.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidemark_functions::cost::{Prices, Use};
use tidemark_functions::place::{Costs, EXTENT_BYTES};

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
    tenants: Arc<Mutex<HashMap<u32, Seen>>>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    moved_bytes: u64,
    reads_an_hour: f64,
    least_bytes: u64,
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
        Self {
            least: file.least_object,
            costs: Costs {
                pool: used,
                prices,
                memory_gib_hour: file.memory_price,
                origin_read: 0.0,
                origin_gib: 0.0,
            },
            tenants: Arc::default(),
        }
    }

    fn for_reads(&self, reads_an_hour: f64) -> u64 {
        let least = self.costs.least_bytes(reads_an_hour, MOST_BYTES);
        least.unwrap_or(u64::MAX).max(FLOOR_BYTES)
    }

    /// A tenant's.
    pub(super) fn of_account(&self, account: u32) -> u64 {
        match self.least {
            Least::Bytes(bytes) => bytes,
            Least::Cheapest => {
                let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
                let seen = tenants.get(&account).map(|seen| seen.least_bytes);
                drop(tenants);
                seen.unwrap_or_else(|| self.for_reads(FIRST_READS))
            }
        }
    }

    /// Looks at what tenants moved since the start, and what they hold, in bytes of chunks.
    pub(super) fn learn(&self, accounts: &[(u32, u64, u64)]) {
        let code = self.costs.pool.code;
        let data_share = f64::from(code.data()) / f64::from(code.chunks());
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        for &(account, moved_bytes, held_bytes) in accounts {
            let seen = tenants.entry(account).or_insert(Seen {
                moved_bytes,
                reads_an_hour: FIRST_READS,
                least_bytes: self.for_reads(FIRST_READS),
            });
            let moved = moved_bytes.saturating_sub(seen.moved_bytes) as f64;
            seen.moved_bytes = moved_bytes;
            if held_bytes == 0 {
                continue;
            }
            let now = moved / (held_bytes as f64 * data_share) * HOUR_S / LOOK_SECONDS as f64;
            seen.reads_an_hour += (now - seen.reads_an_hour) * LOOK_SHARE;
            seen.least_bytes = self.for_reads(seen.reads_an_hour);
        }
    }

    /// Each tenant's number, reads of an object in an hour, and least size, for reports.
    pub(super) fn tenants(&self) -> Vec<(u32, f64, u64)> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = tenants
            .keys()
            .map(|account| (*account, tenants[account].reads_an_hour))
            .collect();
        drop(tenants);
        all.sort_by_key(|(account, _)| *account);
        all.into_iter()
            .map(|(account, reads)| (account, reads, self.of_account(account)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the shared pool.
    fn least(file: &str) -> LeastBytes {
        let file = FunctionsFile::parse(file).unwrap();
        LeastBytes::of(&file, &file.pools[0])
    }

    #[test]
    fn what_is_read_more_often_must_be_larger_to_go_to_functions() {
        let least = least("");
        let first = least.of_account(1);
        assert!((FLOOR_BYTES..8 << 20).contains(&first), "{first}");
        let gib = 1 << 30;
        // The first is read sixty times an hour, the second never.
        for minute in 0..60 {
            least.learn(&[(1, minute * gib, gib * 12 / 10), (2, 0, gib)]);
        }
        let (often, never) = (least.of_account(1), least.of_account(2));
        assert!(often > 5 * first && never <= first, "{often}, {first}, {never}");
        let shown = least.tenants();
        assert!(shown[0].1 > 40.0 && shown[1].1 < 0.1, "{shown:?}");
    }

    #[test]
    fn a_size_in_the_file_is_that_of_all() {
        let least = least("least_object = '3MiB'");
        least.learn(&[(1, 1 << 40, 1 << 20)]);
        assert_eq!((least.of_account(1), least.of_account(2)), (3 << 20, 3 << 20));
    }
}
