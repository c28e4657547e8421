//! The slices of upkeep in which the store gives memory back, timed one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidemark_store::{Attributes, Hasher, Keeper, KeeperInbox, Pool, TenantConfig, TenantStore};
use tidemark_types::{Clock as _, Policy, SystemClock};

use super::{KEPT_BYTES, Load};
use crate::Error;
use crate::experiment::Cores;
use crate::load::KeyText;

/// What a worker does between two turns.
const SLICE: Duration = Duration::from_micros(20);
/// As many as a server with one worker gives a tenant of this size.
const SHARDS: usize = 4;
/// Longer than giving any memory back takes, in nanoseconds.
const LONGEST_NS: u64 = 1_000_000_000;

/// The median, the 99th percentile and the longest of the slices, in microseconds.
pub(super) fn slices_us(load: Load, held_bytes: u64, cores: Cores) -> Result<[f64; 3], Error> {
    // The pool's thread gives the memory to the system on the other core: it would be waited for here.
    let started = cores.on_server_core(|| Pool::start(2 * held_bytes, None));
    let pool = started.flatten().map_err(Error::Memory)?;
    let inbox = KeeperInbox::new(Box::new(|| {}));
    let mut keeper = Keeper::new(Arc::clone(&inbox));
    let config = TenantConfig {
        shards: SHARDS,
        policy: Policy::default(),
        hasher: Hasher::with_seed(1),
        keepers: [inbox].into(),
        first_keeper: 0,
        alarm: Arc::new(|| {}),
        usage_changed: Arc::new(|| {}),
    };
    let store = TenantStore::new(&pool, config);
    store.set_grant(held_bytes, 0);
    fill(&store, load, held_bytes)?;
    store.set_grant(KEPT_BYTES, 0);
    let clock = SystemClock;
    let histogram = Histogram::<u64>::new_with_max(LONGEST_NS, 3);
    let mut histogram = histogram.map_err(|error| Error::Usage(error.to_string()))?;
    while store.usage_bytes() > store.grant_bytes() {
        let now = clock.now();
        let began = Instant::now();
        keeper.run(now, SLICE);
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(LONGEST_NS);
        histogram.saturating_record(took);
    }
    let microseconds = |ns: u64| ns as f64 / 1e3;
    Ok([
        microseconds(histogram.value_at_quantile(0.5)),
        microseconds(histogram.value_at_quantile(0.99)),
        microseconds(histogram.max()),
    ])
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
