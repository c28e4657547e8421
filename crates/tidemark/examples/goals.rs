//! Two tenants share a pool by their goals, in virtual time. The program moves the clock and drives the cache itself,
//! so that minutes pass in a moment. `cargo run --release --example goals`

#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::sync::Arc;
use std::time::Duration;

use tidemark::{Builder, Change, HitRatio, ManualClock, SettingsPatch, Tenant, TenantSettings, UnixMs};

/// Requests of each tenant between two ticks of the clock.
const PER_TICK: u64 = 100;
const TICK: Duration = Duration::from_millis(10);

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let clock = Arc::new(ManualClock::new(UnixMs(1_700_000_000_000)));
    let (cache, mut driver) = Builder::new(64 << 20)
        .parallelism(1)
        .clock(Arc::clone(&clock) as _)
        .build_driven()?;
    let settings = TenantSettings {
        hit_ratio: Some(HitRatio::new(0.8)?),
        ..TenantSettings::default()
    };
    let shop = cache.create("shop", settings)?;
    let search = cache.create("search", TenantSettings::default())?;
    let mut random = 1;
    let mut pass = |seconds: u32| -> Result<(), Box<dyn std::error::Error>> {
        for _ in 0..seconds * 100 {
            clock.advance(TICK);
            for _ in 0..PER_TICK {
                look_aside(&shop, &mut random, 20_000)?;
                look_aside(&search, &mut random, 2_000_000)?;
            }
            while driver.step().is_zero() {}
        }
        Ok(())
    };

    pass(60)?;
    let (before, other) = (shop.stats(), search.stats());
    println!(
        "shop, goal 0.8: {} MiB; search: {} MiB",
        before.usage_bytes >> 20,
        other.usage_bytes >> 20
    );
    println!("shop's goal is {}", shop.view()?.goal_state);

    // A goal is changed while the cache is in use; the memory follows.
    let lower = SettingsPatch {
        hit_ratio: Change::Set(HitRatio::new(0.5)?),
        ..SettingsPatch::default()
    };
    shop.set(lower)?;
    pass(60)?;
    let after = shop.stats();
    println!("shop, goal 0.5: {} MiB", after.usage_bytes >> 20);
    for change in shop.moves()? {
        println!(
            "{} to {} MiB: {}",
            change.from_bytes >> 20,
            change.to_bytes >> 20,
            change.reason
        );
    }
    assert!(after.usage_bytes < before.usage_bytes && before.usage_bytes < other.usage_bytes);
    Ok(())
}

/// Keys of a zipf-like popularity: a random part of all keys, a random part of that.
fn look_aside(tenant: &Tenant, random: &mut u64, keys: u64) -> Result<(), tidemark::Error> {
    let mut draw = |below: u64| {
        // Marsaglia's xorshift.
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random % below.max(1)
    };
    let most = draw(keys);
    let key = draw(most).to_le_bytes();
    if tenant.get(&key).is_none() {
        tenant.insert(&key, &[b'v'; 500])?;
    }
    Ok(())
}
