//! Composed curves beside two tiers that are simulated, and beside the whole curve.

use std::collections::{BTreeMap, HashMap};

use tidemark_curve::{Held, Profile};
use tidemark_types::UnixMs;

use super::super::{Prices, Sizes};
use super::*;

const NOW: UnixMs = UnixMs(1_000);
/// Flash takes items up to here.
const LARGEST_ON_FLASH: u64 = 4_000;
const OWN: Takes = Takes {
    per_byte: 1.0,
    per_item: 0.0,
};
/// An item of 100 bytes takes 130 of memory and 170 of flash.
const MEMORY: Takes = Takes {
    per_byte: 1.1,
    per_item: 20.0,
};
const FLASH: Takes = Takes {
    per_byte: 1.0,
    per_item: 70.0,
};

/// Many small items that are asked for alike, some larger ones, and few that flash does not take, of which some are asked for
/// often.
fn requests() -> impl Iterator<Item = (u64, u64)> {
    let mut state = 11_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as f64 / (1_u64 << 31) as f64
    };
    (0..150_000).map(move |_| {
        let (kind, unit) = (random(), random());
        if kind < 0.5 {
            ((unit * 3_000.0) as u64, 100)
        } else if kind < 0.75 {
            (1_000_000 + (unit * unit * 400.0) as u64, 1_200)
        } else {
            (2_000_000 + (unit.powi(3) * 60.0) as u64, 12_000)
        }
    })
}

fn profile() -> Profile {
    let mut profile = Profile::of_classes(1 << 20, 0, [400, 2_000, LARGEST_ON_FLASH]);
    for (key, bytes) in requests() {
        let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        profile.count_gets(1);
        profile.live_get(key, None, NOW);
        profile.live_set(key, Held { bytes, expiry: None }, NOW);
    }
    profile
}

/// Items by their last use.
#[derive(Default)]
struct Lru {
    uses: BTreeMap<u64, (u64, u64)>,
    last: HashMap<u64, u64>,
    held: f64,
}

impl Lru {
    fn take(&mut self, key: u64, takes: Takes) -> bool {
        let Some(last) = self.last.remove(&key) else {
            return false;
        };
        let (_, bytes) = self.uses.remove(&last).unwrap();
        self.held -= takes.per_byte * bytes as f64 + takes.per_item;
        true
    }

    fn put(&mut self, key: u64, bytes: u64, at: u64, takes: Takes) {
        self.uses.insert(at, (key, bytes));
        self.last.insert(key, at);
        self.held += takes.per_byte * bytes as f64 + takes.per_item;
    }

    fn evict(&mut self, takes: Takes) -> (u64, u64, u64) {
        let (at, (key, bytes)) = self.uses.pop_first().unwrap();
        self.last.remove(&key);
        self.held -= takes.per_byte * bytes as f64 + takes.per_item;
        (key, bytes, at)
    }
}

/// The hit ratios of memory and of both tiers: what memory evicts goes to flash if that takes it, and comes back when it is asked for.
fn simulated(memory_bytes: f64, flash_bytes: f64) -> (f64, f64) {
    let (mut memory, mut flash) = (Lru::default(), Lru::default());
    let (mut first, mut second) = (0, 0);
    for (now, (key, bytes)) in (0..).zip(requests()) {
        if memory.take(key, MEMORY) {
            first += 1;
        } else if flash.take(key, FLASH) {
            second += 1;
        }
        memory.put(key, bytes, now, MEMORY);
        while memory.held > memory_bytes {
            let (key, bytes, at) = memory.evict(MEMORY);
            if bytes <= LARGEST_ON_FLASH {
                flash.put(key, bytes, at, FLASH);
            }
        }
        while flash.held > flash_bytes {
            flash.evict(FLASH);
        }
    }
    let all = 150_000.0;
    (f64::from(first) / all, f64::from(first + second) / all)
}

#[test]
fn two_tiers_hit_as_composed_and_not_as_the_whole_curve_says() {
    let profile = profile();
    let composed = Composed::of(&profile.depths(), MEMORY, FLASH, 3);
    let whole = profile.curve();
    let mut farthest: f64 = 0.0;
    for (memory, flash) in [
        (100e3, 0.0),
        (100e3, 200e3),
        (300e3, 200e3),
        (300e3, 500e3),
        (600e3, 300e3),
    ] {
        let (first, both) = simulated(memory, flash);
        let predicted = composed.hit_ratios(memory, flash);
        assert!(
            (predicted.0 - first).abs() < 0.015 && (predicted.1 - both).abs() < 0.015,
            "{memory} {flash}: {predicted:?} of {first} {both}"
        );
        // With the mean of what an item takes.
        let by_whole = 1.0 - whole.at(((memory + flash) / 1.13) as u64).miss_ratio;
        farthest = farthest.max((by_whole - both).abs());
        // And back: the flash with which so many hit.
        if flash > 0.0 {
            let back = composed.flash_for(predicted.1, memory).unwrap();
            assert!((back - flash).abs() < flash * 0.01 + 1.0, "{back} of {flash}");
        }
    }
    assert!(farthest > 0.05, "the whole curve is as good: {farthest}");
    assert_eq!(composed.flash_for(0.999_999, 100e3), None);
}

const LATENCIES: Latencies = Latencies {
    memory_us: 50.0,
    flash_us: 100.0,
    origin_us: 900.0,
};

#[test]
fn the_program_s_latency_is_that_of_the_hits() {
    let composed = Composed::of(&profile().depths(), MEMORY, FLASH, 3);
    let now = 300e3;
    let tenant = composed.tenant(LATENCIES, now, 0.8).unwrap();
    // Bytes that move are charged by whole waits, whatever part of the hits falls with which curve.
    assert_eq!(tenant.times, LATENCIES);
    assert!(tenant.latencies.flash_us > LATENCIES.flash_us && tenant.latencies.origin_us < LATENCIES.origin_us);
    let by_hits = |memory: f64, flash: f64| {
        let (first, both) = composed.hit_ratios(memory, flash * 0.8);
        50.0 + 100.0 * (1.0 - first) + 900.0 * (1.0 - both)
    };
    for (memory, flash, error) in [
        (now, 0.0, 1.0),
        (now, 100e3, 1.0),
        (now, 400e3, 1.0),
        // Away from the memory in force it is near.
        (now * 1.5, 300e3, 40.0),
        (now / 2.0, 300e3, 40.0),
    ] {
        let sizes = Sizes {
            memory_bytes: memory,
            flash_bytes: flash,
        };
        let (program, hits) = (tenant.latency_us(sizes), by_hits(memory, flash));
        assert!((program - hits).abs() < error, "{program} and {hits} with {sizes:?}");
    }
}

#[test]
fn one_class_that_takes_its_own_bytes_is_the_whole_curve() {
    let mut profile = Profile::of_classes(1 << 20, 0, [400, 2_000, LARGEST_ON_FLASH]);
    for (key, _) in requests() {
        let key = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        profile.count_gets(1);
        profile.live_get(key, None, NOW);
        profile.live_set(
            key,
            Held {
                bytes: 300,
                expiry: None,
            },
            NOW,
        );
    }
    let composed = Composed::of(&profile.depths(), OWN, OWN, 3);
    let one = composed.tenant(LATENCIES, 200e3, 0.9).unwrap();
    let mut whole = Tenant::new(profile.curve(), LATENCIES);
    whole.overlap_ratio = 0.1;
    assert!((one.overlap_ratio - whole.overlap_ratio).abs() < 1e-9);
    let prices = Prices {
        memory: 38.0,
        flash: 1.0,
    };
    for (memory, flash) in [(0.0, 0.0), (1e5, 0.0), (0.0, 4e5), (2e5, 3e5), (1e6, 1e6)] {
        let sizes = Sizes {
            memory_bytes: memory,
            flash_bytes: flash,
        };
        let (a, b) = (one.latency_us(sizes), whole.latency_us(sizes));
        assert!((a - b).abs() < 0.5, "{a} and {b} with {sizes:?}");
        assert_eq!(one.cost(sizes, prices), whole.cost(sizes, prices));
    }
}

#[test]
fn where_no_class_hits_on_flash_there_is_no_program() {
    let profile = profile();
    assert!(
        Composed::of(&profile.depths(), MEMORY, FLASH, 0)
            .tenant(LATENCIES, 1e5, 0.8)
            .is_none()
    );
    assert!(
        Composed::of(&[], MEMORY, FLASH, 3)
            .tenant(LATENCIES, 1e5, 0.8)
            .is_none()
    );
    let all = Composed::of(&profile.depths(), MEMORY, FLASH, 3);
    // Nothing is held yet: what there is in all says what a byte of memory is.
    assert!(all.tenant(LATENCIES, 0.0, 0.8).is_some());
    assert!(all.items_per_flash_byte() > 1.0 / 1_270.0 && all.items_per_flash_byte() < 1.0 / 170.0);
}
