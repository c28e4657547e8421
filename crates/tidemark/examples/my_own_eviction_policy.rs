//! A custom eviction policy that likes small values, compared with the built-in ones. The example also shows a policy
//! that fails. `cargo run --release --example my_own_eviction_policy`

#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemark::{Cache, Change, EvictionPolicy, Policy, Resident, SettingsPatch, Tenant, TenantSettings, Verdict};

const REQUESTS: u64 = 100_000;
/// A page is small and a picture large. All pages take a tenth of the memory of all pictures, and are asked for as
/// often.
const PAGES: u64 = 10_000;
const PAGE_BYTES: usize = 400;
const PICTURES: u64 = 2_000;
const PICTURE_BYTES: usize = 20_000;
/// Room for all pages and a few pictures.
const MEMORY_BYTES: u64 = 8 << 20;

/// An item stays if it was used once for every page of memory that it takes. A load of many small values and few large
/// ones has more hits so: a large one that goes makes room for fifty small ones.
#[derive(Default)]
struct SmallOnesStay {
    judged: AtomicU64,
}

impl EvictionPolicy for SmallOnesStay {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        // Under a lock, and several at a time: a counter is all right, a file would not be.
        self.judged.fetch_add(1, Ordering::Relaxed);
        let uses_wanted = 1 + item.value_bytes / 4096;
        if usize::from(item.uses) >= uses_wanted {
            // It pays one use for staying, as with the two-bit clock.
            Verdict::Keep { uses: item.uses - 1 }
        } else {
            Verdict::Drop
        }
    }
}

/// One with a bug.
struct Unfinished;

impl EvictionPolicy for Unfinished {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        // No key has as many bytes.
        if item.key[..100].is_ascii() {
            Verdict::Keep { uses: 1 }
        } else {
            Verdict::Drop
        }
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Cache::with_memory(64 << 20)?;
    let small = TenantSettings {
        cap_bytes: Some(MEMORY_BYTES),
        ..TenantSettings::default()
    };
    let shop = cache.create("shop", small)?;
    let mut best = 0.0_f64;
    for policy in Policy::PLAIN {
        shop.set(named(policy))?;
        let ratio = hit_ratio(&shop)?;
        println!("{policy}: {ratio:.3}");
        best = best.max(ratio);
    }

    let own = Arc::new(SmallOnesStay::default());
    shop.set_eviction(Arc::clone(&own) as _)?;
    let ratio = hit_ratio(&shop)?;
    println!(
        "small ones stay: {ratio:.3}, {} items judged",
        own.judged.load(Ordering::Relaxed)
    );
    assert!(ratio > best && shop.view()?.policy_in_force == "custom");

    fail(&shop)?;
    // Another one may be tried at once, or one of those that are built in.
    shop.set_eviction(own)?;
    assert!(hit_ratio(&shop)? > best && shop.stats().faults == 1);
    shop.set(named(Policy::S3Fifo))?;
    Ok(())
}

/// A policy that fails harms nobody: the tenant goes on with `fifo`, and says why. (The panic's own message comes
/// first. A program that is built with `panic = "abort"` would end instead.)
fn fail(shop: &Tenant) -> Result<(), tidemark::Error> {
    shop.set_eviction(Arc::new(Unfinished))?;
    hit_ratio(shop)?;
    let in_force = shop.view()?.policy_in_force;
    for fault in shop.faults() {
        println!("{fault}; in force instead: {in_force}");
    }
    assert_eq!((shop.stats().faults, in_force.as_str()), (1, "fifo"));
    Ok(())
}

fn named(policy: Policy) -> SettingsPatch {
    SettingsPatch {
        policy: Change::Set(tidemark::PolicyChoice::Fixed(policy)),
        ..SettingsPatch::default()
    }
}

/// The hit ratio of a load that is always the same, in an empty cache.
fn hit_ratio(tenant: &Tenant) -> Result<f64, tidemark::Error> {
    tenant.clear();
    let (mut state, mut hits) = (1_u64, 0);
    let mut draw = |below: u64| {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    for _ in 0..REQUESTS {
        let (key, value_bytes) = if draw(2) == 0 {
            (format!("page {}", draw(PAGES)), PAGE_BYTES)
        } else {
            (format!("picture {}", draw(PICTURES)), PICTURE_BYTES)
        };
        // Whether it is there is all that is wanted: no copy is made.
        if tenant.get_with(key.as_bytes(), |_| ()).is_some() {
            hits += 1;
        } else {
            tenant.insert(key.as_bytes(), &vec![b'v'; value_bytes])?;
        }
    }
    Ok(f64::from(hits) / REQUESTS as f64)
}
