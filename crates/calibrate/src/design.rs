//! Which loads are measured: spread over all characteristics at once by a Halton sequence that is shifted by the seed.

use serde::{Deserialize, Serialize};
use tidemark_tools::client::Protocol;
use tidemark_tools::load::Rng;

/// Shorter keys than this cannot name keys that are asked for once, so that nothing misses in their loads.
const MISSING_KEY_BYTES: usize = 10;
/// The bases of the sequence, one for each characteristic.
const BASES: [u32; 9] = [2, 3, 5, 7, 11, 13, 17, 19, 23];

/// A characteristic's range.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: f64,
    most: f64,
    /// Whether it spans decades, so that its logarithm is spread evenly.
    is_logarithmic: bool,
}

impl Range {
    const fn new(least: f64, most: f64, is_logarithmic: bool) -> Self {
        Self {
            least,
            most,
            is_logarithmic,
        }
    }

    fn at(self, part: f64) -> f64 {
        if self.is_logarithmic {
            self.least * (self.most / self.least).powf(part)
        } else {
            self.least + (self.most - self.least) * part
        }
    }
}

const KEY_BYTES: Range = Range::new(8.0, 128.0, false);
const VALUE_BYTES: Range = Range::new(8.0, 1024.0, true);
const READS: Range = Range::new(0.5, 0.95, false);
const SKEW: Range = Range::new(0.0, 0.99, false);
const PIPELINE: Range = Range::new(1.0, 50.0, true);
const HIT_RATIO: Range = Range::new(0.5, 1.0, false);
const CONNECTIONS: Range = Range::new(1.0, 32.0, true);
/// From what a core's caches hold to far beyond, and stored within half a second.
const KEYS: Range = Range::new(10_000.0, 200_000.0, true);

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Its number in the design.
    pub number: u32,
    /// Whether it speaks RESP, else memcached's text protocol.
    pub is_resp: bool,
    /// Bytes per key.
    pub key_bytes: usize,
    /// Bytes per value.
    pub value_bytes: usize,
    /// Gets as a part of all commands.
    pub reads: f64,
    /// The exponent of Zipf's law; 0: uniform.
    pub skew: f64,
    /// Gets that find something, as a part of gets.
    pub hit_ratio: f64,
    /// Commands that a connection sends at a time.
    pub pipeline: usize,
    /// Connections.
    pub connections: usize,
    /// Keys that are stored.
    pub keys: u64,
}

impl LoadSpec {
    /// How it is spoken.
    pub fn protocol(&self) -> Protocol {
        if self.is_resp {
            Protocol::Redis
        } else {
            Protocol::Memcached
        }
    }
}

/// Characteristics that are also measured half a range beyond what is trained on, each by itself.
pub const BEYOND: [&str; 8] = [
    "key_bytes",
    "value_bytes",
    "read_share",
    "skew",
    "hit_ratio",
    "pipeline",
    "connections",
    "items",
];

/// The loads of a calibration.
#[derive(Clone, Debug)]
pub struct Design {
    /// Those that are trained on or held out.
    pub loads: Vec<LoadSpec>,
    /// One for each of [`BEYOND`]; they are numbered behind the others.
    pub beyond: Vec<LoadSpec>,
}

impl Design {
    /// So many loads.
    pub fn new(loads: u32, seed: u64) -> Self {
        let mut rng = Rng::stream(seed, 0);
        let shifts = BASES.map(|_| rng.unit());
        let loads: Vec<LoadSpec> = (0..loads).map(|number| spec(number, &shifts)).collect();
        let first = loads.len() as u32;
        let beyond = (first..)
            .zip(BEYOND)
            .map(|(number, name)| beyond(number, name))
            .collect();
        Self { loads, beyond }
    }

    /// All loads, in the order in which they are measured.
    pub fn all(&self) -> impl Iterator<Item = &LoadSpec> {
        self.loads.iter().chain(&self.beyond)
    }
}

fn spec(number: u32, shifts: &[f64; BASES.len()]) -> LoadSpec {
    let part = |place: usize| (radical_inverse(number + 1, BASES[place]) + shifts[place]).fract();
    let key_bytes = KEY_BYTES.at(part(1)).round() as usize;
    LoadSpec {
        number,
        is_resp: part(0) < 0.5,
        key_bytes,
        value_bytes: VALUE_BYTES.at(part(2)).round() as usize,
        reads: short(READS.at(part(3))),
        skew: short(SKEW.at(part(4))),
        hit_ratio: hit_ratio(key_bytes, short(HIT_RATIO.at(part(5)))),
        pipeline: PIPELINE.at(part(6)).round() as usize,
        connections: CONNECTIONS.at(part(7)).round() as usize,
        keys: KEYS.at(part(8)).round() as u64,
    }
}

/// With three digits, so that it is the same when it was written and read again.
fn short(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn hit_ratio(key_bytes: usize, wanted: f64) -> f64 {
    if key_bytes < MISSING_KEY_BYTES { 1.0 } else { wanted }
}

/// A load in the middle of everything but for one characteristic, which is half a range beyond it: above, or below where nothing
/// is above.
fn beyond(number: u32, name: &str) -> LoadSpec {
    let above = |range: Range| range.most + (range.most - range.least) / 2.0;
    let below = |range: Range| range.least - (range.most - range.least) / 2.0;
    let (reads, skew, hit_ratio) = (READS.at(0.5), SKEW.at(0.5), HIT_RATIO.at(0.5));
    let middle = LoadSpec {
        number,
        is_resp: number.is_multiple_of(2),
        key_bytes: KEY_BYTES.at(0.5) as usize,
        value_bytes: VALUE_BYTES.at(0.5) as usize,
        reads: short(reads),
        skew: short(skew),
        hit_ratio: short(hit_ratio),
        pipeline: PIPELINE.at(0.5) as usize,
        connections: CONNECTIONS.at(0.5) as usize,
        keys: KEYS.at(0.5) as u64,
    };
    match name {
        "key_bytes" => LoadSpec {
            key_bytes: above(KEY_BYTES) as usize,
            ..middle
        },
        "value_bytes" => LoadSpec {
            value_bytes: above(VALUE_BYTES) as usize,
            ..middle
        },
        "read_share" => LoadSpec {
            reads: short(below(READS)),
            ..middle
        },
        "skew" => LoadSpec {
            skew: short(above(SKEW)),
            ..middle
        },
        "hit_ratio" => LoadSpec {
            hit_ratio: short(below(HIT_RATIO)),
            ..middle
        },
        "pipeline" => LoadSpec {
            pipeline: above(PIPELINE) as usize,
            ..middle
        },
        "connections" => LoadSpec {
            connections: above(CONNECTIONS) as usize,
            ..middle
        },
        _ => LoadSpec {
            keys: above(KEYS) as u64,
            ..middle
        },
    }
}

/// The digits of a number in a base, mirrored at the point: 0 to 1 (Halton, 1960).
fn radical_inverse(mut number: u32, base: u32) -> f64 {
    let (mut value, mut digit) = (0.0, 1.0 / f64::from(base));
    while number > 0 {
        value += f64::from(number % base) * digit;
        number /= base;
        digit /= f64::from(base);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_mirrored() {
        for (number, base, expected) in [(1, 2, 0.5), (2, 2, 0.25), (3, 2, 0.75), (5, 3, 2.0 / 3.0 + 1.0 / 9.0)] {
            assert!(
                (radical_inverse(number, base) - expected).abs() < 1e-12,
                "{number} {base}"
            );
        }
    }

    /// The places of characteristics that are beyond their ranges.
    fn outside(spec: &LoadSpec) -> Vec<usize> {
        let values = [
            (spec.key_bytes as f64, KEY_BYTES),
            (spec.value_bytes as f64, VALUE_BYTES),
            (spec.reads, READS),
            (spec.skew, SKEW),
            (spec.hit_ratio, HIT_RATIO),
            (spec.pipeline as f64, PIPELINE),
            (spec.connections as f64, CONNECTIONS),
            (spec.keys as f64, KEYS),
        ];
        let is_outside = |(value, range): &(f64, Range)| !(range.least..=range.most).contains(value);
        (0..values.len()).filter(|place| is_outside(&values[*place])).collect()
    }

    #[test]
    fn loads_are_within_their_ranges_and_everywhere_in_them() {
        for seed in [1, 2, 77] {
            let design = Design::new(150, seed);
            for spec in &design.loads {
                assert_eq!(outside(spec), Vec::<usize>::new(), "{spec:?}");
            }
            // A quarter of each range has about a quarter of the loads.
            let quarter = |of: fn(&LoadSpec) -> f64, range: Range| {
                let below = design.loads.iter().filter(|spec| of(spec) < range.at(0.25));
                below.count()
            };
            for count in [
                quarter(|spec| spec.reads, READS),
                quarter(|spec| spec.skew, SKEW),
                quarter(|spec| spec.value_bytes as f64, VALUE_BYTES),
            ] {
                assert!((30..=45).contains(&count), "{seed} {count}");
            }
            let resp = design.loads.iter().filter(|spec| spec.is_resp).count();
            assert!((70..=80).contains(&resp), "{seed} {resp}");
        }
        assert_eq!(Design::new(20, 5).loads, Design::new(20, 5).loads);
        assert_ne!(Design::new(20, 5).loads, Design::new(20, 6).loads);
    }

    #[test]
    fn each_characteristic_is_beyond_its_range_once() {
        let design = Design::new(20, 1);
        for (place, spec) in design.beyond.iter().enumerate() {
            assert_eq!(outside(spec), [place], "{spec:?}");
            assert_eq!(spec.number, 20 + place as u32);
        }
    }
}
