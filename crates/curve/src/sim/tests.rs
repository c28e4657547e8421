//! Golden counts of a generated load; those of real traces are in the lab's tests. They come from libcachesim 0.3.5 by
//!
//! ```text
//! python3 -m venv v && v/bin/pip install libcachesim==0.3.5 && v/bin/python -c '
//! import libcachesim as l
//! made, state = [], 1
//! for _ in range(200000):
//!     state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
//!     r = state >> 33
//!     key = (r & 1023) * (r >> 10 & 1023) * (r >> 20 & 1023) >> 16
//!     made.append((key, 100 + key % 400))
//! def hits(cache, trace):
//!     request = l.Request(); count = 0
//!     for request.obj_id, request.obj_size in trace: count += cache.get(request)
//!     return count
//! for n in (50000, 200000, 800000):
//!     print(n, *(hits(c, made) for c in (l.LRU(n), l.FIFO(n), l.Clock(n), l.Clock(n, n_bit_counter=2), l.S3FIFO(n))))'
//! ```

use super::*;

/// Hits of LRU, FIFO, one-bit clock, two-bit clock and S3-FIFO in a capacity.
const MADE: [(u64, [u64; 5]); 3] = [
    (50_000, [12_637, 12_116, 13_084, 13_335, 31_553]),
    (200_000, [43_378, 39_848, 45_718, 48_267, 66_793]),
    (800_000, [117_069, 105_088, 120_437, 125_441, 131_601]),
];

#[test]
fn hits_are_those_of_libcachesim() {
    let trace = made();
    for (bytes, expected) in MADE {
        let capacity = Capacity::of_bytes(bytes);
        let mut caches: [Box<dyn Simulator>; 5] = [
            Box::new(Lru::new(capacity)),
            Box::new(Fifo::new(capacity)),
            Box::new(Clock::new(capacity, 1)),
            Box::new(Clock::new(capacity, 3)),
            Box::new(S3Fifo::new(capacity)),
        ];
        let hits = caches.each_mut().map(|cache| {
            let hits = trace.iter().filter(|(key, size)| cache.request(*key, *size)).count();
            hits as u64
        });
        assert_eq!(hits, expected, "in {bytes} bytes");
    }
}

/// The generated load of the command above: skewed, with sizes.
fn made() -> Vec<(u64, u64)> {
    let mut state = 1_u64;
    let draw = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let r = state >> 33;
        let key = ((r & 1023) * (r >> 10 & 1023) * (r >> 20 & 1023)) >> 16;
        (key, 100 + key % 400)
    };
    (0..200_000).map(draw).collect()
}

#[test]
fn overhead_takes_room() {
    let trace: Vec<u64> = (0..10).cycle().take(100).collect();
    let hits = |overhead_bytes| {
        let mut fifo = Fifo::new(Capacity {
            bytes: 1000,
            overhead_bytes,
        });
        trace.iter().filter(|key| fifo.request(**key, 90)).count()
    };
    assert_eq!((hits(10), hits(11)), (90, 0));
}

#[test]
fn what_can_not_fit_is_not_kept() {
    let capacity = Capacity::of_bytes(1000);
    let caches: [Box<dyn Simulator>; 4] = [
        Box::new(Lru::new(capacity)),
        Box::new(Fifo::new(capacity)),
        Box::new(Clock::new(capacity, 3)),
        Box::new(S3Fifo::new(capacity)),
    ];
    for mut cache in caches {
        assert!(!cache.request(1, 50) && cache.request(1, 50));
        assert!(!cache.request(2, 1001) && !cache.request(2, 1001));
        assert!(cache.request(1, 50));
    }
}

#[test]
fn every_name_is_read_back_and_named_in_the_error() {
    let error = "arc".parse::<Eviction>().unwrap_err().to_string();
    let policies = Policy::ALL.map(Eviction::Policy);
    for eviction in policies.into_iter().chain([Eviction::Lru]) {
        assert_eq!(eviction.to_string().parse(), Ok(eviction));
        assert!(error.contains(eviction.name()), "{error}");
    }
    assert!(error.contains("`arc`"), "{error}");
}
