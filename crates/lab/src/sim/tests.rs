//! Golden counts. They come from libcachesim 0.3.5 by
//!
//! ```text
//! python3 -m venv v && v/bin/pip install libcachesim==0.3.5 && v/bin/python -c '
//! import libcachesim as l, lzma, struct, sys
//! cloud = [(o, s) for _, o, s, _ in struct.iter_unpack("<IQIq", open("cloudPhysicsIO.oracleGeneral.bin", "rb").read())]
//! orm = [(k, 1) for (k,) in struct.iter_unpack(">I", lzma.open("orm-busy.trace.xz").read())]
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
//! for trace, sizes in ((cloud, (64<<20, 256<<20, 1<<30)), (orm, (1000, 5000, 20000)), (made, (50000, 200000, 800000))):
//!     for n in sizes: print(n, *(hits(c, trace) for c in (l.FIFO(n), l.Clock(n), l.Clock(n, n_bit_counter=2), l.S3FIFO(n))))'
//! ```

use std::path::PathBuf;

use super::*;
use crate::trace::Trace;

/// Hits of FIFO, one-bit clock, two-bit clock and S3-FIFO in a capacity.
type Golden = (u64, [u64; 4]);

const CLOUD: [Golden; 3] = [
    (64 << 20, [19_530, 19_745, 19_819, 21_518]),
    (256 << 20, [24_486, 24_097, 24_270, 32_957]),
    (1 << 30, [41_732, 49_416, 49_426, 57_827]),
];
const ORM: [Golden; 3] = [
    (1000, [3_891_805, 3_928_789, 3_915_218, 3_884_614]),
    (5000, [4_214_417, 4_267_531, 4_286_338, 4_331_960]),
    (20_000, [4_608_406, 4_676_244, 4_681_515, 4_705_872]),
];
const MADE: [Golden; 3] = [
    (50_000, [12_116, 13_084, 13_335, 31_553]),
    (200_000, [39_848, 45_718, 48_267, 66_793]),
    (800_000, [105_088, 120_437, 125_441, 131_601]),
];

fn check(name: &str, trace: &[(u64, u64)], golden: &[Golden]) {
    for (bytes, expected) in golden {
        let capacity = Capacity::of_bytes(*bytes);
        let mut caches: [Box<dyn Simulator>; 4] = [
            Box::new(Fifo::new(capacity)),
            Box::new(Clock::new(capacity, 1)),
            Box::new(Clock::new(capacity, 3)),
            Box::new(S3Fifo::new(capacity)),
        ];
        let hits = caches.each_mut().map(|cache| {
            let hits = trace.iter().filter(|(key, size)| cache.request(*key, *size)).count();
            hits as u64
        });
        assert_eq!(hits, *expected, "{name} in {bytes} bytes");
    }
}

/// The file's requests where the file is there.
fn load(file: &str) -> Option<Vec<(u64, u64)>> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let folder = std::env::var_os("TIDEMARK_TRACES").map_or_else(|| PathBuf::from(default), PathBuf::from);
    let path = folder.join(file);
    path.exists().then(|| {
        let requests = Trace::open(&path, None).unwrap().map(Result::unwrap);
        requests
            .map(|request| (request.key, request.size_bytes.unwrap_or(1)))
            .collect()
    })
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
fn hits_are_those_of_libcachesim() {
    check("the generated load", &made(), &MADE);
    for (file, golden) in [
        ("cloudPhysicsIO.oracleGeneral.bin", &CLOUD),
        ("orm-busy.trace.xz", &ORM),
    ] {
        if let Some(trace) = load(file) {
            check(file, &trace, golden);
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
    let caches: [Box<dyn Simulator>; 3] = [
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
