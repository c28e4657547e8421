//! To the request: LRU from reuse distances and from simulation, and each policy's simulation, as libcachesim 0.3.5 counts
//! them. The counts come from
//!
//! ```text
//! python3 -m venv v && v/bin/pip install libcachesim==0.3.5 && v/bin/python -c '
//! import libcachesim as l, lzma, struct
//! cloud = [(o, s) for _, o, s, _ in struct.iter_unpack("<IQIq", open("cloudPhysicsIO.oracleGeneral.bin", "rb").read())]
//! orm = [(k, 1) for (k,) in struct.iter_unpack(">I", lzma.open("orm-busy.trace.xz").read())]
//! recs = [(k, 1) for (k,) in struct.iter_unpack(">Q", lzma.open("scarab-recs.trace.xz").read())]
//! def misses(cache, trace):
//!     request = l.Request(); count = 0
//!     for request.obj_id, request.obj_size in trace: count += not cache.get(request)
//!     return count
//! for trace in (cloud, recs, orm):
//!     for percent in (1, 2, 5, 10, 20, 40, 60, 80):
//!         n = sum(dict(trace).values()) * percent // 100
//!         print(n, *(misses(c, trace) for c in (l.LRU(n), l.FIFO(n), l.Clock(n, n_bit_counter=2), l.S3FIFO(n))))'
//! ```

use tidemark_curve::{Eviction, Miniatures, Profile, Sampling, Threshold};
use tidemark_types::Policy;

use super::{Requests, default_sizes, load, skewed};

/// Misses of LRU, FIFO, two-bit clock and S3-FIFO in a size.
type Golden = [(u64, [u64; 4]); 8];

const CLOUD: Golden = [
    (20_297_697, [94_956, 95_293, 94_737, 93_779]),
    (40_595_394, [94_535, 94_717, 94_366, 93_138]),
    (101_488_486, [93_700, 93_741, 93_517, 91_378]),
    (202_976_972, [92_200, 91_954, 91_996, 85_885]),
    (405_953_945, [83_500, 84_369, 83_133, 75_026]),
    (811_907_891, [72_100, 72_227, 70_792, 65_211]),
    (1_217_861_836, [69_062, 72_121, 64_366, 55_646]),
    (1_623_815_782, [48_997, 49_142, 56_877, 49_094]),
];
const ORM: Golden = [
    (763, [1_148_302, 1_203_050, 1_192_420, 1_218_116]),
    (1526, [985_843, 1_026_126, 971_670, 977_972]),
    (3817, [793_473, 841_758, 778_934, 737_918]),
    (7634, [599_636, 660_600, 603_227, 555_731]),
    (15_269, [394_264, 463_958, 393_771, 363_940]),
    (30_539, [210_750, 269_511, 205_382, 192_621]),
    (45_809, [129_818, 171_011, 119_168, 115_417]),
    (61_079, [82_976, 108_659, 82_501, 82_482]),
];
const RECS: Golden = [
    (2583, [813_012, 848_780, 784_543, 712_404]),
    (5167, [728_011, 771_106, 706_717, 647_539]),
    (12_918, [601_347, 644_475, 588_953, 548_665]),
    (25_836, [490_638, 534_307, 481_551, 462_930]),
    (51_673, [379_592, 421_964, 373_594, 375_285]),
    (103_347, [297_215, 330_630, 295_795, 308_170]),
    (155_020, [270_898, 292_293, 270_438, 279_248]),
    (206_694, [260_877, 273_290, 260_910, 262_896]),
];

const POLICIES: [Eviction; 4] = [
    Eviction::Lru,
    Eviction::Policy(Policy::Fifo),
    Eviction::Policy(Policy::Clock),
    Eviction::Policy(Policy::S3Fifo),
];

fn misses(ratio: f64, requests: &Requests) -> u64 {
    (ratio * requests.len() as f64).round() as u64
}

/// LRU's misses at sizes, from reuse distances.
fn exact(requests: &Requests, sizes: &[u64]) -> Vec<u64> {
    let mut profile = Profile::new(Sampling::EXACT, sizes);
    for (key, bytes) in requests {
        profile.request(*key, *bytes);
    }
    let curve = profile.curve();
    let miss_ratios = sizes.iter().map(|size| curve.at(*size).miss_ratio);
    miss_ratios.map(|ratio| misses(ratio, requests)).collect()
}

/// A policy's misses at sizes.
fn simulated(eviction: Eviction, requests: &Requests, sizes: &[u64]) -> Vec<u64> {
    let mut caches: Vec<_> = sizes
        .iter()
        .map(|size| (*size, Miniatures::new(eviction, &[*size], Threshold::ALL, 0)))
        .collect();
    for (key, bytes) in requests {
        for (_, cache) in &mut caches {
            cache.request(*key, *bytes);
        }
    }
    let miss_ratios = caches.iter().map(|(size, cache)| cache.curve().at(*size).miss_ratio);
    miss_ratios.map(|ratio| misses(ratio, requests)).collect()
}

fn check(file: &str, golden: &Golden) {
    let Some(requests) = load(file) else { return };
    let sizes = golden.map(|(bytes, _)| bytes);
    assert_eq!(default_sizes(&requests), sizes, "{file}");
    assert_eq!(
        exact(&requests, &sizes),
        golden.map(|(_, counts)| counts[0]),
        "{file}: exact"
    );
    for (place, eviction) in POLICIES.into_iter().enumerate() {
        let expected = golden.map(|(_, counts)| counts[place]);
        assert_eq!(simulated(eviction, &requests, &sizes), expected, "{file}: {eviction}");
    }
}

#[test]
fn misses_are_those_of_libcachesim() {
    check("cloudPhysicsIO.oracleGeneral.bin", &CLOUD);
    check("orm-busy.trace.xz", &ORM);
    check("scarab-recs.trace.xz", &RECS);
}

#[test]
fn distances_and_simulation_agree_on_lru() {
    for largest_bytes in [1, 5000] {
        let requests = skewed(200_000, 20_000, 0.9, largest_bytes);
        let sizes = default_sizes(&requests);
        let [distances, simulation] = [exact(&requests, &sizes), simulated(Eviction::Lru, &requests, &sizes)];
        assert_eq!(distances, simulation, "objects of up to {largest_bytes} bytes");
        assert!(
            distances.is_sorted_by(|a, b| a > b) && distances[0] < 200_000,
            "{distances:?}"
        );
    }
}
