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

use tidemark_types::LogShare;

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

fn share(thousandths: u16) -> LogShare {
    LogShare::from_thousandths(thousandths).unwrap()
}

fn hits(mut cache: impl Simulator, trace: &[(u64, u64)]) -> u64 {
    trace.iter().filter(|(key, size)| cache.request(*key, *size)).count() as u64
}

#[test]
fn with_the_whole_log_as_its_share_approx_lru_is_fifo() {
    let trace = made();
    for (bytes, [lru, fifo, ..]) in MADE {
        let capacity = Capacity::of_bytes(bytes);
        let of_share = |thousandths| hits(ApproxLru::new(capacity, share(thousandths)), &trace);
        assert_eq!(of_share(1000), fifo, "in {bytes} bytes");
        // A smaller share keeps used objects, and wastes room on them.
        assert!(
            (1..lru).contains(&of_share(0)) && of_share(500) != fifo,
            "in {bytes} bytes"
        );
    }
}

#[test]
fn approx_lru_copies_what_is_used_past_the_share() {
    // The log holds four. An object used with two newer ones stays where it is. With three it is copied, and its own
    // first entry goes for that.
    for (used_after, evicted_by_the_fifth) in [(2, true), (3, false)] {
        let mut cache = ApproxLru::new(Capacity::of_bytes(4), share(500));
        assert!((1..2 + used_after).all(|key| !cache.request(key, 1)));
        assert!(cache.request(1, 1));
        assert!((2 + used_after..6).all(|key| !cache.request(key, 1)));
        assert_eq!(!cache.request(1, 1), evicted_by_the_fifth, "used after {used_after}");
    }
}

/// Requests of Zipf's law, and how many of them only fill the cache.
fn zipf(alpha: f64) -> (Vec<u64>, usize) {
    const KEYS: u32 = 10_000;
    const REQUESTS: usize = 160_000;
    let mut sum = 0.0;
    let sums: Vec<f64> = (1..=KEYS)
        .map(|rank| {
            sum += f64::from(rank).powf(-alpha);
            sum
        })
        .collect();
    let mut state = 1_u64;
    let draw = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let point = (state >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        sums.partition_point(|sum| *sum <= point) as u64
    };
    ((0..REQUESTS).map(draw).collect(), REQUESTS / 2)
}

/// Objects of one byte that a cache must have room for so that nine in ten requests are hits.
fn room_for_nine_in_ten(eviction: Eviction, (requests, warm_up): &(Vec<u64>, usize)) -> f64 {
    let is_enough = |bytes: &u64| {
        let mut cache = eviction.simulator(Capacity::of_bytes(*bytes));
        let (first, rest) = requests.split_at(*warm_up);
        for key in first {
            cache.request(*key, 1);
        }
        let hits = rest.iter().filter(|key| cache.request(**key, 1)).count();
        hits * 10 >= rest.len() * 9
    };
    let (mut low, mut high) = (1, 20_000);
    while low < high {
        let middle = (low + high) / 2;
        if is_enough(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    high as f64
}

#[test]
fn approx_lru_costs_what_the_paper_says() {
    // The memory of the first-in-first-out log and of the half-share one, divided by that of LRU. The characteristic
    // time gives it (H. Che, Y. Tung, Z. Wang, IEEE JSAC 20.7, 2002). A key asked for with probability p is in a log of
    // time T for T and absent for 1/p. With copies past T/2, it is there for T/2 + (1 - e)/p and absent for e/p, where
    // e is exp(-pT/2).
    for (alpha, fifo, half) in [
        (0.0, 1.0, 1.304),
        (0.8, 1.074, 1.27),
        (1.0, 1.167, 1.229),
        (1.1, 1.26, 1.211),
    ] {
        let load = zipf(alpha);
        let lru = room_for_nine_in_ten(Eviction::Lru, &load);
        for (policy, expected) in [(Policy::Fifo, fifo), (Policy::ApproxLru(LogShare::HALF), half)] {
            let found = room_for_nine_in_ten(Eviction::Policy(policy), &load) / lru;
            assert!(
                (found - expected).abs() < 0.03,
                "{policy} at {alpha}: {found}, not {expected}"
            );
        }
    }
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
    let caches: [Box<dyn Simulator>; 5] = [
        Box::new(Lru::new(capacity)),
        Box::new(Fifo::new(capacity)),
        Box::new(Clock::new(capacity, 3)),
        Box::new(S3Fifo::new(capacity)),
        Box::new(ApproxLru::new(capacity, LogShare::HALF)),
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
    let policies = Policy::PLAIN.into_iter().chain([Policy::ApproxLru(LogShare::HALF)]);
    for eviction in policies.map(Eviction::Policy).chain([Eviction::Lru]) {
        assert_eq!(eviction.to_string().parse(), Ok(eviction));
        assert!(error.contains(&eviction.to_string()), "{error}");
    }
    assert!(error.contains("`arc`"), "{error}");
    assert_eq!(
        "approx-lru:0.70".parse(),
        Ok(Eviction::Policy(Policy::ApproxLru(share(700))))
    );
    assert!("approx-lru".parse::<Eviction>().is_err(), "without a share");
}
