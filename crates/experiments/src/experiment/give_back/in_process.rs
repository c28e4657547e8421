//! The slices of upkeep in which the store gives memory back, timed one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidemark_store::{Attributes, Hasher, Keeper, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{Clock as _, SystemClock};

use super::{KEPT_BYTES, Load};
use crate::Error;
use crate::experiment::Cores;
use tidemark_tools::load::KeyText;

/// The work of a worker between two turns.
const SLICE: Duration = Duration::from_micros(10);
/// As many as a server with one worker gives a tenant of this size.
const SHARDS: usize = 1;
/// Longer than giving any memory back takes, in nanoseconds.
const LONGEST_NS: u64 = 1_000_000_000;

/// The slices of upkeep, and as many in which nothing is done for as long, in microseconds.
pub(super) fn slices(load: Load, held_bytes: u64, cores: Cores) -> Result<[Slices; 2], Error> {
    // The pool's thread gives the memory to the system on the other core: it would be waited for here.
    let started = cores.on_server_core(|| Pool::start(2 * held_bytes, None));
    let pool = started.flatten().map_err(Error::Memory)?;
    let inbox = KeeperInbox::new(Box::new(|| {}));
    let mut keeper = Keeper::new(Arc::clone(&inbox));
    let config = TenantConfig {
        shards: SHARDS,
        ..TenantConfig::with_keeper(inbox, Hasher::with_seed(1))
    };
    let store = TenantStore::new(&pool, config);
    store.set_grant(held_bytes, 0);
    fill(&store, load, held_bytes)?;
    store.set_grant(KEPT_BYTES, 0);
    let clock = SystemClock;
    let histogram = Histogram::<u64>::new_with_max(LONGEST_NS, 3);
    let mut upkeep = histogram.map_err(|error| Error::Usage(error.to_string()))?;
    let mut nothing = upkeep.clone();
    while store.usage_bytes() > store.grant_bytes() {
        let now = clock.now();
        let began = Instant::now();
        keeper.run(now, SLICE);
        upkeep.saturating_record(nanoseconds(began));
        // They run side by side, so that the machine disturbs both alike.
        let began = Instant::now();
        while began.elapsed() < SLICE {
            std::hint::spin_loop();
        }
        nothing.saturating_record(nanoseconds(began));
    }
    Ok([Slices::of(&upkeep), Slices::of(&nothing)])
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(LONGEST_NS)
}

/// How long slices took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slices {
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) longest_us: f64,
}

impl Slices {
    fn of(histogram: &Histogram<u64>) -> Self {
        let microseconds = |ns: u64| ns as f64 / 1e3;
        Self {
            median_us: microseconds(histogram.value_at_quantile(0.5)),
            p99_us: microseconds(histogram.value_at_quantile(0.99)),
            longest_us: microseconds(histogram.max()),
        }
    }
}

/// Stores keys until the memory is full.
fn fill(store: &Arc<TenantStore>, load: Load, held_bytes: u64) -> Result<(), Error> {
    let keys = load.keys(held_bytes);
    let mut text = KeyText::new(load.key_bytes, keys)?;
    let value = vec![b'v'; load.value_bytes];
    for number in 0..keys {
        let key = store.key(0, text.of(number));
        let stored = store.put(&key, &value, Attributes::default(), SystemClock.now());
        stored.map_err(|refused| Error::Unfit {
            server: "the store".into(),
            reason: format!("{refused:?}"),
        })?;
    }
    Ok(())
}
