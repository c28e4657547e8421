//! A pool of functions in virtual time: a cloud, a proxy and a load, all of which follow from a seed.
//!
//! Decisions are the product's own: [`Pool`], [`Link`](tidemark_functions::link::Link),
//! [`Lifetime`](tidemark_functions::lifetime::Lifetime), [`Holding`](tidemark_functions::holding::Holding),
//! [`Sending`](tidemark_functions::backup::Sending), [`turn`](tidemark_functions::schedule::turn),
//! [`Late`](tidemark_functions::late::Late) and [`billed_ms`]. The tasks and sockets around them are replaced by events:
//! `member` is what the proxy's member does, `instance` what the function's program does, `cloud` what the cloud does,
//! `objects` what the gateway and the proxy's reads and writes do. Bytes are only counted: a chunk is its length and its hash.
//!
//! Invariant: nothing here knows the time of day, threads, or the order of a hash map. Times are microseconds since the start.

mod cloud;
mod instance;
mod load;
mod member;
mod objects;
mod world;

use tidemark_functions::availability::Reclaim;
use tidemark_functions::codec::CodeTable;
use tidemark_functions::cost::Prices;
use tidemark_functions::pool::Pool;
use tidemark_functions::proxy::Reading;

pub use load::{Asked, made, made_small, of_trace, registry};

/// Seconds of an hour: what is counted is counted by the hour.
pub(crate) const HOUR_S: u64 = 3600;

/// A pool, its proxy and its cloud.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Functions in the pool.
    pub functions: u16,
    /// Memory of each, for which the cloud is paid.
    pub memory_bytes: u64,
    /// Bytes of chunks that each holds.
    pub room_bytes: u64,
    /// Functions that are always in use.
    pub least_functions: usize,
    /// Which code an object gets.
    pub codes: CodeTable,
    /// How stripes are read.
    pub reading: Reading,
    /// Durations are billed in units of this.
    pub unit_ms: u32,
    /// How often a function that is not used is invoked; `None`: never.
    pub warm_every_s: Option<u64>,
    /// How often a function has another instance brought in step with it; `None`: never.
    pub backup_every_s: Option<u64>,
    /// Whether lost chunks are computed as soon as the loss is found, or when their stripe is read.
    pub refill_at_once: bool,
    /// How many instances the cloud takes back in a minute: of the first ones of all functions, and as many of the second.
    pub reclaim: Option<Reclaim>,
    /// How long things take in the cloud.
    pub cloud: CloudTimes,
    /// The seed of all chance.
    pub seed: u64,
}

/// How long things take in the cloud.
#[derive(Clone, Copy, Debug)]
pub struct CloudTimes {
    /// From the call until a warm function begins, in us: the least and the most.
    pub invoke_us: (u64, u64),
    /// More for an instance that is started for it, in us. It is not billed.
    pub cold_us: u64,
    /// From the proxy to a function or back, in us.
    pub hop_us: u64,
    /// The bandwidth of a function, each way, in bytes a second.
    pub bytes_per_s: u64,
    /// Invocations that have less.
    pub stragglers: Option<Stragglers>,
}

/// Invocations on a busy machine of the cloud's.
#[derive(Clone, Copy, Debug)]
pub struct Stragglers {
    /// One invocation in so many is one, by chance.
    pub one_in: u64,
    /// How many times as long everything takes that it sends or is sent.
    pub times: u64,
}

impl Default for CloudTimes {
    /// The paper's: 13 ms for a warm function in the mean (5.2), 50 to 160 MB/s from 128 to 3,008 MB of memory (5), which
    /// is 104 MB/s at 1.5 GB. A cold start takes longer by a fifth of a second, a hop a quarter of a millisecond (ours).
    fn default() -> Self {
        Self {
            invoke_us: (8_000, 18_000),
            cold_us: 200_000,
            hop_us: 250,
            bytes_per_s: 104_000_000,
            stragglers: None,
        }
    }
}

/// The purpose of an invocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Reads and writes.
    Serving,
    /// So that the cloud keeps the instance.
    Warm,
    /// Either side of a backup.
    Backup,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Serving, Self::Warm, Self::Backup];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Warm => "warm-up",
            Self::Backup => "backup",
        }
    }
}

/// The bill of one purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Billed {
    /// Invocations.
    pub invocations: u64,
    /// Their durations in whole units, in ms.
    pub ms: u64,
}

impl Billed {
    /// In dollars, for functions of so much memory.
    pub fn dollars(&self, prices: &Prices, memory_bytes: u64) -> f64 {
        let gb = memory_bytes as f64 / f64::from(1 << 30);
        self.invocations as f64 * prices.invocation + self.ms as f64 / 1000.0 * gb * prices.gb_second
    }
}

/// The events of an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hour {
    /// Requests for objects that ended in it.
    pub requests: u64,
    /// Those that functions answered whole.
    pub hits: u64,
    /// Objects that should have been there, of which something was lost.
    pub resets: u64,
    /// Hits for which a lost chunk was computed.
    pub recoveries: u64,
    /// Instances that the cloud took back.
    pub reclaimed: u64,
    /// The bill, by [`Purpose`].
    pub billed: [Billed; 3],
}

/// The outcome of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Hour by hour.
    pub hours: Vec<Hour>,
    /// Objects that were evicted.
    pub evicted: u64,
    /// Lost chunks that were computed and stored again.
    pub repaired_chunks: u64,
    /// Reads of stripes that asked for more because a chunk was late.
    pub hedged: u64,
    /// Backups after which two instances held the same, and others.
    pub backups: [u64; 2],
    /// Bytes that went from one instance to another.
    pub backup_bytes: u64,
    /// The time from a request for an object that functions answered to its last byte, in us.
    pub took_us: Vec<u64>,
}

impl Found {
    /// The sum of all hours.
    pub fn all(&self) -> Hour {
        let add = |mut sum: Hour, hour: &Hour| {
            sum.requests += hour.requests;
            sum.hits += hour.hits;
            sum.resets += hour.resets;
            sum.recoveries += hour.recoveries;
            sum.reclaimed += hour.reclaimed;
            for (sum, more) in sum.billed.iter_mut().zip(hour.billed) {
                sum.invocations += more.invocations;
                sum.ms += more.ms;
            }
            sum
        };
        self.hours.iter().fold(Hour::default(), add)
    }

    fn hour(&mut self, now_us: u64) -> &mut Hour {
        let hour = (now_us / 1_000_000 / HOUR_S) as usize;
        if self.hours.len() <= hour {
            self.hours.resize(hour + 1, Hour::default());
        }
        &mut self.hours[hour]
    }
}

impl Hour {
    /// 1 - RESETs / hits (the paper's 5.2).
    pub fn availability(&self) -> f64 {
        1.0 - self.resets as f64 / self.hits.max(1) as f64
    }

    /// Hits of requests.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.requests.max(1) as f64
    }

    /// In dollars, by [`Purpose`].
    pub fn dollars(&self, prices: &Prices, memory_bytes: u64) -> [f64; 3] {
        self.billed.map(|billed| billed.dollars(prices, memory_bytes))
    }
}

/// Passes a load through a pool, and waits until the functions sleep. The load is in the order of its times.
pub fn run(setup: &Setup, load: &[Asked]) -> Found {
    let pool = Pool::new(setup.functions.into(), setup.room_bytes, setup.least_functions);
    world::World::new(setup, load, pool).run()
}

#[cfg(test)]
mod tests;
