//! A model of objects' contents: whatever clients write and caches lose, a read returns what the origin has, or fails where it has to.

use super::large::{LEAST, Place, STRIPE, large_bench};
use super::*;

const KEYS: u64 = 5;
const STEPS: usize = 60;
const SEEDS: u64 = 6;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % most
    }
}

struct World {
    dice: Dice,
    bench: Bench,
    place: Arc<Place>,
    /// The objects that the origin has, by key.
    model: std::collections::BTreeMap<String, Bytes>,
    /// Whether the origin answers reads as it should.
    is_sound: bool,
    context: String,
}

impl World {
    fn content(&mut self) -> Bytes {
        let sizes = [0, 1, 1000, MIB, MIB + 1, LEAST, 2 * STRIPE + 77];
        let size = sizes[self.dice.below(sizes.len() as u64) as usize];
        bytes(size, self.dice.below(u64::MAX))
    }

    /// From now on the origin's answers end after so many bytes, or do not.
    fn set(&mut self, cut_bytes: Option<u64>) {
        self.is_sound = cut_bytes.is_none();
        self.bench.origin.set(Faults {
            cut_bytes,
            ..Faults::default()
        });
        // Fills that began before fail whoever waits for them.
        while self.bench.gateway.as_ref().unwrap().totals().pending_blocks > 0 {
            std::thread::yield_now();
        }
    }

    fn write(&mut self, key: String) {
        let object = self.content();
        let wrong_sum = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
        let target = format!("/{key}");
        match self.dice.below(6) {
            0 => {
                let got = self.bench.put(&target, &object, &wrong_sum);
                assert_eq!(got.status, StatusCode::BAD_REQUEST, "{}", self.context);
            }
            1 => {
                self.bench.origin.set(Faults {
                    status: Some(StatusCode::FORBIDDEN),
                    ..Faults::default()
                });
                let got = self.bench.put(&target, &object, &[]);
                assert_eq!(got.status, StatusCode::FORBIDDEN, "{}", self.context);
                self.set(None);
            }
            _ => {
                let got = self.bench.put(&target, &object, &[]);
                assert_eq!(got.status, StatusCode::OK, "{}: {}", self.context, got.text());
                self.model.insert(key, object);
            }
        }
    }

    fn read(&mut self, key: &str) {
        let right = self.model.get(key).cloned();
        let length = right.as_ref().map_or(10, Bytes::len) as u64;
        let (first, more) = (self.dice.below(length + 2), self.dice.below(length + 2));
        let range = match self.dice.below(4) {
            0 => None,
            1 => Some(format!("bytes={first}-")),
            2 => Some(format!("bytes=-{more}")),
            _ => Some(format!("bytes={first}-{}", first + more)),
        };
        let by = if self.dice.below(4) == 0 { 1 } else { 0 };
        let headers: Vec<(&str, &str)> = range.iter().map(|range| ("range", range.as_str())).collect();
        let got = self.bench.send(&Ask {
            by: &self.bench.keys[by],
            headers,
            ..self.bench.ask(Method::GET, &format!("/{key}"))
        });
        let context = format!("{}, {range:?}: {}", self.context, got.status);
        if !self.is_sound && (got.body.is_none() || got.status.is_server_error()) {
            return;
        }
        let Some(right) = right else {
            return assert_eq!(got.status, StatusCode::NOT_FOUND, "{context}");
        };
        match crate::range::Asked::parse(range.as_deref()).of(right.len() as u64) {
            Err(_) => assert_eq!(got.status, StatusCode::RANGE_NOT_SATISFIABLE, "{context}"),
            Ok(range) => {
                let range = range.map_or(0..right.len(), |range| range.start as usize..range.end as usize);
                assert!(got.status.is_success(), "{context}");
                assert!(got.body == Some(right.slice(range)), "{context}");
                assert_eq!(got.header("etag"), origin::etag(&right).to_str().unwrap(), "{context}");
            }
        }
    }

    fn step(&mut self, others_write: bool) {
        let key = format!("bucket/open/{}", self.dice.below(KEYS));
        match self.dice.below(20) {
            0..6 => self.write(key),
            6..14 => self.read(&key),
            14 => {
                let got = self.bench.send(&self.bench.ask(Method::DELETE, &format!("/{key}")));
                assert!(got.status.is_success(), "{}", self.context);
                self.model.remove(&key);
            }
            15 => {
                let (number, all) = (self.dice.below(3) as u32, self.dice.below(2) == 0);
                (0..9)
                    .filter(|stripe| all || *stripe == number)
                    .for_each(|stripe| self.place.lose(stripe));
            }
            16 => {
                let memory = self.dice.below(2) as usize;
                self.bench.memories[memory].blocks.lock().clear();
            }
            17 => {
                let is_full = self.dice.below(2) == 0;
                self.bench.memories[0].is_full.store(is_full, Ordering::Relaxed);
            }
            18 => {
                let cut = [None, Some(self.dice.below(2 << 20))][self.dice.below(2) as usize];
                self.set(cut);
            }
            _ if others_write => {
                let object = self.content();
                self.bench.origin.put(&key, object.clone());
                self.model.insert(key, object);
            }
            _ => self.read(&key),
        }
    }
}

#[test]
fn whatever_is_written_and_lost_reads_are_those_of_a_map() {
    for (seed, freshness) in (0..SEEDS).flat_map(|seed| [(seed, "forever"), (seed, "0")]) {
        let (bench, place) = large_bench(freshness);
        let mut world = World {
            dice: Dice(seed),
            bench,
            place,
            model: std::collections::BTreeMap::default(),
            is_sound: true,
            context: String::new(),
        };
        for step in 0..STEPS {
            world.context = format!("seed {seed}, {freshness}, step {step}");
            world.step(freshness == "0");
        }
    }
}
