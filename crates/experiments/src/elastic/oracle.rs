//! The least memory that gives a load its goal.
//!
//! A simulation of the same policy answers, decision by decision and item by item ([`tidemark_curve::sim`]). Every item
//! takes its payload and the store's overhead. The overhead is measured on the store itself ([`overhead_bytes`]),
//! because index, ghosts and optional fields depend on the number of items. Segments are left out on purpose: the store
//! has to answer for the cost of their coarseness.

use std::time::Duration;

use tidemark_control::{Change, SettingsPatch};
use tidemark_curve::sim::{Capacity, Eviction, Simulator};
use tidemark_types::{Policy, PolicyChoice, UNIT_BYTES};

use crate::Error;
use crate::node::{Load, Node};
use tidemark_tools::load::{Distribution, Lifetimes, Operation, Requests, Rng, Workload};

/// The gets whose hits count: the last ones of so many parts.
const COUNTED_DIVISOR: u64 = 3;
/// A size this near to the least one counts as it: a two-hundredth, well below every limit.
const NEAR_DIVISOR: u64 = 200;
/// A hit ratio above the goal by at most this part of the allowed misses counts as the goal. A hundredth of the misses
/// may be several hundredths of the memory.
const NEAR_RATIO_OF_MISSES: f64 = 0.005;
/// More steps than halving from the largest size there is to the nearest takes.
const MAX_STEPS: usize = 24;

/// The question to the oracle.
#[derive(Clone, Debug)]
pub struct Question {
    /// The load.
    pub load: Load,
    /// The lifetimes of the items of the beginning, every key stored once; `None` begins empty.
    pub stored_before: Option<Lifetimes>,
    /// How the cache evicts.
    pub policy: Policy,
    /// The bytes of an item beside its key and its value.
    pub overhead_bytes: u64,
    /// After how many requests the load ends; hits are counted over the last third.
    pub requests: u64,
}

/// The least memory for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Oracle {
    /// All that the items take.
    pub bytes: u64,
    /// The hit ratio with it.
    pub hit_ratio: f64,
}

/// Whether a goal can be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// The goal is reached with this.
    With(Oracle),
    /// The goal is not reached with any memory.
    Never {
        /// The hit ratio where everything is kept.
        best_hit_ratio: f64,
    },
}

impl Oracle {
    /// The time until a tenant is judged. It is the sum of a minute, the time to fill this memory at its own miss
    /// ratio, and the time of twice as many gets as there are keys.
    pub fn settling(&self, question: &Question) -> Duration {
        const MORE: Duration = Duration::from_secs(60);
        let Workload { keys, reads_ratio, .. } = question.load.workload;
        let gets_per_second = question.load.rate * reads_ratio;
        let filled_per_second = gets_per_second * (1.0 - self.hit_ratio) * question.mean_item_bytes();
        let seconds = 2.0 * keys as f64 / gets_per_second + self.bytes as f64 / filled_per_second;
        // A cache that never fills takes a day.
        MORE + Duration::from_secs_f64(seconds.min(86_400.0))
    }
}

impl Question {
    /// The least memory with which the hit ratio is at least `goal`.
    ///
    /// # Errors
    /// The load makes no sense.
    pub fn least(&self, goal: f64) -> Result<Reach, Error> {
        let everything = self.everything_bytes();
        let best = self.hit_ratio(everything)?;
        if best < goal {
            return Ok(Reach::Never { best_hit_ratio: best });
        }
        // The goal is between these two sizes; the error of each, by which the next guess is weighted.
        let mut low = (0, -goal);
        let mut high = (everything, best - goal);
        let mut hit_ratio = best;
        for _ in 0..MAX_STEPS {
            if high.0 - low.0 <= (high.0 / NEAR_DIVISOR).max(1)
                || hit_ratio - goal <= NEAR_RATIO_OF_MISSES * (1.0 - goal)
            {
                break;
            }
            let middle = between(low, high);
            let found = self.hit_ratio(middle)?;
            // The end that stays counts for half (the "Illinois" rule), or it would stay for ever.
            if found >= goal {
                (high, hit_ratio) = ((middle, found - goal), found);
                low.1 /= 2.0;
            } else {
                low = (middle, found - goal);
                high.1 /= 2.0;
            }
        }
        Ok(Reach::With(Oracle {
            bytes: high.0,
            hit_ratio,
        }))
    }

    /// The hit ratio with this much memory.
    ///
    /// # Errors
    /// The load makes no sense.
    pub fn hit_ratio(&self, bytes: u64) -> Result<f64, Error> {
        let workload = &self.load.workload;
        let mut requests = Requests::new(workload, (0, 1))?;
        let mut cache = Aging::new(self, bytes);
        if let Some(lifetimes) = &self.stored_before {
            for key in 0..workload.keys {
                cache.store_before(key, lifetimes);
            }
        }
        let counted_from = self.requests - self.requests / COUNTED_DIVISOR;
        let (mut gets, mut hits) = (0_u64, 0_u64);
        for number in 0..self.requests {
            let (key, is_get) = match requests.draw() {
                Operation::Get(key) => (key, true),
                Operation::Set(key) => (key, false),
            };
            let hit = cache.request(key, is_get, number as f64 / self.load.rate);
            if is_get && number >= counted_from {
                gets += 1;
                hits += u64::from(hit);
            }
        }
        Ok(hits as f64 / gets.max(1) as f64)
    }

    /// An item with all that it takes, in the mean over the keys.
    fn mean_item_bytes(&self) -> f64 {
        /// More keys than it takes to know a mean well.
        const KEYS: u64 = 10_000;
        let workload = &self.load.workload;
        let count = workload.keys.min(KEYS);
        let sum: u64 = (0..count).map(|key| workload.payload_bytes(key)).sum();
        self.overhead_bytes as f64 + sum as f64 / count as f64
    }

    /// Memory in which all keys fit, those that are asked for once too as long as they are not many times the others.
    pub fn everything_bytes(&self) -> u64 {
        /// More memory than for so many times the keys brings next to nothing.
        const FRESH_MAX: f64 = 2.0;
        /// Policies that keep a part of their memory for new items leave as much unused.
        const SPARE: f64 = 1.2;
        let Workload {
            keys,
            reads_ratio,
            fresh_ratio,
            ..
        } = self.load.workload;
        let fresh = self.requests as f64 * reads_ratio * fresh_ratio;
        let items = keys as f64 + fresh.min(FRESH_MAX * keys as f64);
        (items * self.mean_item_bytes() * SPARE) as u64
    }
}

/// A size between two others, by where a line through their errors on a logarithmic scale meets the goal.
fn between(low: (u64, f64), high: (u64, f64)) -> u64 {
    // Below a thousandth of the larger one there is nothing to be found.
    let bottom = low.0.max(high.0 / 1000).max(1) as f64;
    let share = -low.1 / (high.1 - low.1);
    let guess = bottom * (high.0 as f64 / bottom).powf(share.clamp(0.05, 0.95));
    (guess as u64).clamp(low.0 + 1, high.0 - 1)
}

/// A simulated cache whose items may expire. The simulators know no expiry. An expired item is another one from then
/// on, and the old one keeps its place until it is evicted.
struct Aging<'q> {
    workload: &'q Workload,
    cache: Box<dyn Simulator + Send>,
    rng: Rng,
    /// By key, how often it has expired, and when it does next in seconds; empty where nothing expires.
    ages: Vec<(u32, f64)>,
}

impl<'q> Aging<'q> {
    fn new(question: &'q Question, bytes: u64) -> Self {
        let workload = &question.load.workload;
        let capacity = Capacity {
            bytes,
            overhead_bytes: question.overhead_bytes,
        };
        let aging = if workload.lifetimes.is_empty() {
            0
        } else {
            workload.keys
        };
        Self {
            workload,
            cache: Eviction::Policy(question.policy).simulator(capacity),
            rng: Rng::new(workload.seed ^ 1),
            ages: vec![(0, f64::INFINITY); usize::try_from(aging).unwrap_or(usize::MAX)],
        }
    }

    /// A get with the set that follows a miss, or a set. Whether the item was there.
    fn request(&mut self, key: u64, is_get: bool, seconds: f64) -> bool {
        let bytes = self.workload.payload_bytes(key);
        // A key that is asked for once may expire unnoticed.
        let Some(age) = usize::try_from(key).ok().and_then(|key| self.ages.get_mut(key)) else {
            return self.cache.request(key, bytes);
        };
        if age.1 <= seconds {
            *age = (age.0 + 1, f64::INFINITY);
        }
        let hit = self.cache.request(key | u64::from(age.0) << GENERATION_SHIFT, bytes);
        if !(hit && is_get) {
            age.1 = seconds + seconds_of(self.workload.lifetimes.draw(&mut self.rng));
        }
        hit
    }

    /// Stores a key just before the first request.
    fn store_before(&mut self, key: u64, lifetimes: &Lifetimes) {
        self.cache.request(key, self.workload.payload_bytes(key));
        if let Some(age) = usize::try_from(key).ok().and_then(|key| self.ages.get_mut(key)) {
            age.1 = seconds_of(lifetimes.draw(&mut self.rng));
        }
    }
}

/// `None` is for good.
fn seconds_of(lifetime: Option<Duration>) -> f64 {
    lifetime.map_or(f64::INFINITY, |lifetime| lifetime.as_secs_f64())
}

/// Keys have lower numbers than this power of two.
const GENERATION_SHIFT: u32 = 40;

/// The bytes of an item beside its key and its value in a full store of this size. They are the index, the ghosts, the
/// header and the fields that follow it. Free room of open segments and dead bytes are not counted. The load's values
/// have one size, and its items do not all fit.
///
/// # Errors
/// The load makes no sense, or there is no such memory.
pub fn overhead_bytes(load: &Load, policy: Policy, bytes: u64) -> Result<u64, Error> {
    const TENANT: &str = "probe";
    /// Requests per virtual second: as fast as a server could be asked.
    const RATE: f64 = 1e6;
    /// Long enough to fill any memory that a load needs at this rate; usually it takes less.
    const SECONDS_MAX: usize = 300;
    /// A memory that is full is turned over meanwhile, so that there are ghosts.
    const SETTLED_SECONDS: usize = 3;
    let cap = bytes.max(MIN_PROBE_BYTES).next_multiple_of(UNIT_BYTES);
    // The reserve that is never granted is less than an eighth.
    let mut node = Node::new(cap + cap / 8 + MIN_PROBE_BYTES, 1, load.workload.seed)?;
    node.create(
        TENANT,
        SettingsPatch {
            cap_bytes: Change::Set(cap),
            policy: Change::Set(PolicyChoice::Fixed(policy)),
            ..SettingsPatch::default()
        },
    )?;
    let fast = Load {
        rate: RATE,
        workload: Workload {
            // The cache fills soon so: the size of an item does not depend on how often it is asked for.
            distribution: Distribution::Uniform,
            fresh_ratio: 0.0,
            ..load.workload.clone()
        },
    };
    node.load(TENANT, &fast)?;
    let (mut seconds, mut settled_for, mut usage_bytes) = (0, 0, 0);
    while seconds < SECONDS_MAX && settled_for < SETTLED_SECONDS {
        node.run(Duration::from_secs(1));
        let now_bytes = node.standing(TENANT)?.moment.usage_bytes;
        // Full, or it holds all there is.
        settled_for += usize::from(now_bytes + now_bytes / 16 >= cap || now_bytes == usage_bytes);
        usage_bytes = now_bytes;
        seconds += 1;
    }
    let standing = node.standing(TENANT)?;
    let sum = |of: fn(&tidemark_types::ShardSnapshot) -> u64| standing.shards.iter().map(of).sum::<u64>();
    let idle = sum(|shard| shard.free_bytes) + sum(|shard| shard.dead_bytes);
    let payload = load.workload.payload_bytes(0);
    let per_item = standing.moment.usage_bytes.saturating_sub(idle) as f64 / standing.items.max(1) as f64;
    Ok((per_item - payload as f64).round().max(0.0) as u64)
}

/// The least memory in which overhead is measured: less is mostly open segments.
const MIN_PROBE_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn question(distribution: Distribution) -> Question {
        Question {
            load: Load {
                workload: Workload::gets(10_000, distribution, 16, 64),
                rate: 1000.0,
            },
            stored_before: None,
            policy: Policy::S3Fifo,
            overhead_bytes: 20,
            requests: 200_000,
        }
    }

    #[test]
    fn uniform_keys_need_their_share_of_all() {
        let question = question(Distribution::Uniform);
        let Reach::With(oracle) = question.least(0.9).unwrap() else {
            panic!("not reached");
        };
        let share = oracle.bytes as f64 / (10_000.0 * 100.0);
        assert!((share - 0.9).abs() < 0.01, "{share}");
        assert!((0.9..0.902).contains(&oracle.hit_ratio), "{oracle:?}");
        // 20 s for twice the keys, 9,000 items at 100 misses a second, and a minute.
        let seconds = oracle.settling(&question).as_secs_f64();
        assert!((seconds - 170.0).abs() < 5.0, "{seconds}");
    }

    #[test]
    fn the_found_size_is_the_least() {
        for (alpha, goal) in [(0.8, 0.5), (0.8, 0.9), (1.1, 0.9)] {
            let question = question(Distribution::Zipf { alpha });
            let Reach::With(oracle) = question.least(goal).unwrap() else {
                panic!("not reached");
            };
            assert!(oracle.hit_ratio >= goal, "{oracle:?}");
            let less = question.hit_ratio(oracle.bytes - oracle.bytes / 50).unwrap();
            assert!(less < goal, "{alpha} {goal}: {less} with less than {oracle:?}");
        }
    }

    #[test]
    fn what_can_not_be_reached_is_said_with_the_best() {
        let mut question = question(Distribution::Zipf { alpha: 1.1 });
        question.load.workload.fresh_ratio = 0.3;
        let Reach::Never { best_hit_ratio } = question.least(0.8).unwrap() else {
            panic!("reached");
        };
        // Seven gets in ten are for keys that come again, of which a few are rare and make room for those that do not.
        assert!((0.66..0.702).contains(&best_hit_ratio), "{best_hit_ratio}");
    }

    #[test]
    fn a_warm_cache_has_no_first_misses() {
        for (stored_before, most) in [(Some(Lifetimes::default()), 1.0), (None, 0.95)] {
            let is_warm = stored_before.is_some();
            let question = Question {
                stored_before,
                requests: 30_000,
                ..question(Distribution::Uniform)
            };
            let ratio = question.hit_ratio(question.everything_bytes()).unwrap();
            // A third of a third of the 10,000 keys was not asked for before the last third.
            assert!(ratio <= most && (ratio == 1.0) == is_warm, "{ratio}");
        }
    }

    #[test]
    fn what_expires_is_missed() {
        let seconds = Duration::from_secs(1);
        let mut question = question(Distribution::Uniform);
        // Each key is asked for every ten seconds in the mean, at random times: a miss, then as many hits as gets in 20 s.
        question.load.workload.lifetimes = Lifetimes::new([(1.0, 20 * seconds)]).unwrap();
        let room_for_what_expired = 10;
        let ratio = question
            .hit_ratio(question.everything_bytes() * room_for_what_expired)
            .unwrap();
        assert!((ratio - 2.0 / 3.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn what_was_stored_before_expires_evenly() {
        let mut question = question(Distribution::Uniform);
        let lifetimes = Lifetimes::new([(1.0, Duration::from_secs(20))]).unwrap();
        (question.stored_before, question.requests) = (Some(lifetimes.remaining()), 9000);
        question.load.workload.lifetimes = lifetimes;
        // With whole lifetimes none would expire in nine seconds. In the seventh, a third of the expired keys was asked
        // for again.
        let ratio = question.hit_ratio(question.everything_bytes()).unwrap();
        assert!((0.72..0.82).contains(&ratio), "{ratio}");
    }

    #[test]
    fn overhead_is_that_of_the_store() {
        let mut question = question(Distribution::Zipf { alpha: 0.9 });
        // With all keys in memory, and with a part of them.
        for keys in [10_000, 200_000] {
            question.load.workload.keys = keys;
            let bytes = overhead_bytes(&question.load, Policy::S3Fifo, 8 << 20).unwrap();
            // Header 7, index entry 8 at a fill of 0.6 to 0.87, ghosts, the unused ends of segments.
            assert!((15..=24).contains(&bytes), "{keys}: {bytes}");
        }
    }
}
