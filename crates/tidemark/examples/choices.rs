//! Further decisions and events of a program. Items are let in by name or by a custom rule. A tenant holds as much
//! memory as its custom strategy says, or as its hits are worth. The program hears of each item that leaves and each
//! move of memory. The example runs in virtual time. `cargo run --release --example choices`

#![expect(clippy::print_stdout, reason = "an example tells what it does")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidemark::{
    Admission, AdmissionChoice, Builder, Candidate, Driver, Error, Events, Left, LeftItem, Load, ManualClock, MoveView,
    ResizeStrategy, SizeReading, Tenant, TenantSettings, UnixMs, UtilityFunction,
};

/// Counts and notes. It is called where the cache works, so it does no more than that.
#[derive(Default)]
struct Told {
    evicted: AtomicU64,
    moves: Mutex<Vec<String>>,
}

impl Events for Told {
    fn left(&self, _tenant: &str, item: &LeftItem<'_>) {
        if item.why == Left::Evicted {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn moved(&self, tenant: &str, change: &MoveView) {
        let text = format!("{tenant}: {} MiB, {}", change.to_bytes >> 20, change.reason);
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// Lets in items that live long enough to be worth their place.
struct LongLived;

impl Admission for LongLived {
    fn admits(&self, candidate: &Candidate<'_>) -> bool {
        !candidate.is_full
            || candidate
                .lifetime
                .is_none_or(|lifetime| lifetime > Duration::from_secs(10))
    }
}

/// Wants nine tenths of the hits that all memory would give, in as little memory as that takes.
struct NineTenths;

impl ResizeStrategy for NineTenths {
    fn wanted_bytes(&mut self, reading: &SizeReading<'_>) -> u64 {
        let best = reading.curve.hit_ratio_at(reading.most_bytes);
        // With few lookups a curve says little: the size stays as it is.
        let known = best.filter(|_| reading.curve.gets() > 10_000);
        let bytes = known.and_then(|best| reading.curve.bytes_for(0.9 * best));
        bytes.map_or(reading.grant_bytes, |bytes| bytes.clamp(1 << 20, reading.most_bytes))
    }
}

/// The saving of a hit, in money: each tenant's misses are paid for at another price.
struct Price {
    of_a_miss: f64,
}

impl UtilityFunction for Price {
    fn worth(&mut self, load: &Load, hit_ratio: f64) -> f64 {
        self.of_a_miss * load.gets_per_second * hit_ratio
    }
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (told, clock) = (
        Arc::new(Told::default()),
        Arc::new(ManualClock::new(UnixMs(1_700_000_000_000))),
    );
    let (cache, mut driver) = Builder::new(64 << 20)
        .parallelism(1)
        .clock(Arc::clone(&clock) as _)
        .events(Arc::clone(&told) as _)
        .build_driven()?;

    // A rule by name: items that come once, as in a scan, displace nothing. Names can be read from a configuration.
    let small = TenantSettings {
        cap_bytes: Some(4 << 20),
        ..TenantSettings::default()
    };
    let users = cache.create("users", small)?;
    users.set_admission("second-time".parse()?);
    (0..5_000_u32).try_for_each(|user| users.insert(&user.to_le_bytes(), &[1; 400]))?;
    let refused = (0..50_000_u32).filter(|page| {
        let scanned = [&b"scanned"[..], &page.to_le_bytes()].concat();
        matches!(users.insert(&scanned, &[2; 400]), Err(Error::NotAdmitted))
    });
    println!("of 50000 scanned items, {} were not let in", refused.count());
    let kept = (0..5_000_u32)
        .filter(|user| users.contains(&user.to_le_bytes()))
        .count();
    println!(
        "of 5000 users, {kept} are there; {} items went",
        told.evicted.load(Ordering::Relaxed)
    );
    assert!(kept > 4_000 && users.stats().not_admitted > 30_000);

    // A custom rule.
    users.set_admission(AdmissionChoice::Custom(Arc::new(LongLived)));
    let brief = users.insert_for(b"brief", b"value", Duration::from_secs(1));
    assert!(matches!(brief, Err(Error::NotAdmitted)));
    users.insert_for(b"long", b"value", Duration::from_secs(60))?;

    // A custom strategy decides the memory.
    let search = cache.create("search", TenantSettings::default())?;
    search.set_sizing(Some(Box::new(NineTenths)))?;
    let mut state = 1_u64;
    for _ in 0..4_000 {
        ask(&search, &mut state)?;
        pass(&clock, &mut driver);
    }
    let stats = search.stats();
    println!("search holds {} MiB of 64 MiB", stats.usage_bytes >> 20);
    let moves = told.moves.lock().unwrap_or_else(PoisonError::into_inner);
    moves.iter().for_each(|change| println!("{change}"));
    assert!(stats.usage_bytes < 40 << 20 && !moves.is_empty() && stats.faults == 0);
    drop(moves);

    // By what hits are worth: two ask the same, and a miss of the one costs ten times what one of the other does.
    search.set_sizing(None)?;
    let offers = cache.create("offers", TenantSettings::default())?;
    search.set_utility(Some(Box::new(Price { of_a_miss: 0.001 })))?;
    offers.set_utility(Some(Box::new(Price { of_a_miss: 0.01 })))?;
    for _ in 0..12_000 {
        ask(&search, &mut state)?;
        ask(&offers, &mut state)?;
        pass(&clock, &mut driver);
    }
    let [cheap, dear] = [&search, &offers].map(|tenant| tenant.stats().usage_bytes >> 20);
    println!("search holds {cheap} MiB, offers {dear} MiB");
    assert!(dear > cheap + 8 && offers.stats().faults == 0);
    Ok(())
}

/// A hundred lookups, a few keys often and many seldom; missed values are stored.
fn ask(tenant: &Tenant, state: &mut u64) -> Result<(), Error> {
    for _ in 0..100 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let fraction = (*state >> 11) as f64 / (1_u64 << 53) as f64;
        let key = ((fraction.powi(4) * 100_000.0) as u64).to_le_bytes();
        if tenant.get(&key).is_none() {
            tenant.insert(&key, &[b'v'; 500])?;
        }
    }
    Ok(())
}

fn pass(clock: &ManualClock, driver: &mut Driver) {
    clock.advance(Duration::from_millis(10));
    while driver.step().is_zero() {}
}
