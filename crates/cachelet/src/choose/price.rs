//! Prices: the mean time of an operation under each configuration, from the same counters.
//!
//! A key's reads are sorted by the worth that a copy would have had ([`super::counters::Reuse`]). Each kind has its
//! steps in each protocol: messages between nodes, bytes, calls to the store. No configuration thus needs to be tried
//! to be priced. The price leaves out how long messages queue; [`super::residual`] learns that. Times are microseconds.

use super::counters::{Counters, KeyCounters, Reuse};
use crate::config::coherence::{Protocol as _, Spread};
use crate::config::replacement::Policy as _;
use crate::config::write::Acknowledges as _;
use crate::config::{Admission, Coherence, Config, Domain, Replicates as _};

/// How long steps take, as measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// A message between nodes, one way.
    pub hop_us: f64,
    /// How long a message keeps its sender busy.
    pub message_us: f64,
    /// The same for a byte of it.
    pub node_us_per_byte: f64,
    /// A call to the store and back.
    pub store_us: f64,
    /// The same for a byte of it.
    pub store_us_per_byte: f64,
    /// Moving a copy within the order of replacement when it is used.
    pub touch_us: f64,
    /// The time for which a switch sends reads to the store.
    pub pause_us: f64,
}

impl Default for Rates {
    /// The defaults are the simulator's costs.
    fn default() -> Self {
        Self {
            hop_us: 1_000.0,
            message_us: 20.0,
            node_us_per_byte: 0.0008,
            store_us: 30_000.0,
            store_us_per_byte: 0.008,
            touch_us: 0.5,
            pause_us: 8_000.0,
        }
    }
}

/// A queue is never counted as fuller than this.
const FULL: f64 = 0.9;

/// The operations of a domain in an interval, ready to be priced.
#[derive(Clone, Debug)]
pub struct Load {
    keys: Vec<KeyCounters>,
    interval_us: f64,
    nodes: f64,
    clusters: f64,
    /// Cachelets of all nodes, by scope.
    cachelets: [f64; 3],
    /// Copies of all nodes.
    copies: f64,
    /// Operations of the sampled keys.
    pub operations: f64,
}

impl Load {
    /// The load of some counters.
    #[must_use]
    pub fn of(counters: &Counters) -> Self {
        let (keys, _) = counters.keys();
        let rows = keys.iter().flat_map(|key| &key.rows);
        let operations: u64 = rows.map(|(_, row)| u64::from(row.reads) + u64::from(row.writes)).sum();
        let mut clusters: Vec<_> = counters.reports.iter().map(|report| report.cluster).collect();
        clusters.sort_unstable();
        clusters.dedup();
        Self {
            keys,
            interval_us: counters.interval_us as f64,
            nodes: counters.reports.len().max(1) as f64,
            clusters: clusters.len().max(1) as f64,
            cachelets: [0, 1, 2].map(|scope| {
                let of_node = |report: &super::Report| f64::from(report.cachelets[scope].max(1));
                counters.reports.iter().map(of_node).sum::<f64>().max(1.0)
            }),
            copies: counters.reports.iter().map(|report| report.copies).sum::<u64>() as f64,
            operations: operations as f64,
        }
    }

    /// The features of it.
    #[must_use]
    pub fn features(&self) -> Features {
        let mut sums = Features::default();
        for key in &self.keys {
            let weight = key.uses();
            let writes: f64 = key.rows.iter().map(|(_, row)| f64::from(row.writes)).sum();
            let changed: f64 = key.rows.iter().map(|(_, row)| f64::from(row.reuse[2].changed)).sum();
            let [by_instance, by_function, by_application] = [0, 1, 2].map(|scope| key.repeated(scope));
            sums.size_bytes += weight * key.size_bytes();
            sums.sharers += weight * key.rows.len() as f64;
            sums.write_ratio += writes;
            sums.changed_ratio += changed;
            sums.instances_ratio += (by_application - by_instance).max(0.0);
            sums.functions_ratio += (by_application - by_function).max(0.0);
        }
        let operations = self.operations.max(1.0);
        Features {
            size_bytes: sums.size_bytes / operations,
            sharers: sums.sharers / operations,
            write_ratio: sums.write_ratio / operations,
            changed_ratio: sums.changed_ratio / operations,
            elements: self.copies / self.nodes,
            per_second: self.operations * 1e6 / self.interval_us.max(1.0),
            clusters: self.clusters,
            instances_ratio: sums.instances_ratio / operations,
            functions_ratio: sums.functions_ratio / operations,
            size_spread: self.spread(KeyCounters::size_bytes),
            popularity_spread: self.spread(KeyCounters::uses),
            small_reuse_ratio: self.small_reuse_ratio(),
        }
    }

    fn mean(&self, of: impl Fn(&KeyCounters) -> f64) -> f64 {
        self.keys.iter().map(of).sum::<f64>() / self.keys.len().max(1) as f64
    }

    /// The standard deviation over keys, by the mean.
    fn spread(&self, of: fn(&KeyCounters) -> f64) -> f64 {
        let mean = self.mean(of);
        let variance = self.mean(|key| (of(key) - mean).powi(2));
        variance.sqrt() / mean.max(1e-9)
    }

    /// How often the values that go first by priority, which are the smaller ones, are read again.
    fn small_reuse_ratio(&self) -> f64 {
        let mean_bytes = self.mean(KeyCounters::size_bytes);
        let small = self.keys.iter().filter(|key| key.size_bytes() <= mean_bytes);
        let (mut repeated, mut uses) = (0.0, 0.0);
        for key in small {
            repeated += key.repeated(2);
            uses += key.uses();
        }
        repeated / f64::max(uses, 1.0)
    }

    /// The mean time of an operation under a configuration.
    #[must_use]
    pub fn price_us(&self, config: &Config, rates: &Rates) -> f64 {
        let total: f64 = self
            .keys
            .iter()
            .map(|key| Pricing::new(self, key, config, rates).total_us())
            .sum();
        total / self.operations.max(1.0)
    }
}

/// The features of a load: the metrics of table 1 of UniCache, but for the tolerance of faults, which is the tenant's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct Features {
    /// Mean size of the values that were used.
    pub size_bytes: f64,
    /// Mean number of nodes that use a key.
    pub sharers: f64,
    /// Writes per operation.
    pub write_ratio: f64,
    /// Reads per operation that found what another node had written.
    pub changed_ratio: f64,
    /// Copies of a node, on the average.
    pub elements: f64,
    /// Operations in a second.
    pub per_second: f64,
    /// Clusters of the domain.
    pub clusters: f64,
    /// Reads per operation that another instance of the node had made current before.
    pub instances_ratio: f64,
    /// Reads per operation that another function of the node had made current before.
    pub functions_ratio: f64,
    /// How unlike the sizes of keys are: their standard deviation by their mean.
    pub size_spread: f64,
    /// How unlike the numbers of operations on keys are.
    pub popularity_spread: f64,
    /// Reads per operation on values up to the mean size that found what was read before.
    pub small_reuse_ratio: f64,
}

impl Features {
    /// Writes for each read that found what another node had written; zero if there are no writes or no such reads.
    #[must_use]
    pub fn write_run(&self) -> f64 {
        if self.changed_ratio > 0.0 {
            self.write_ratio / self.changed_ratio
        } else {
            0.0
        }
    }
}

/// The mean time of an operation under a configuration.
#[must_use]
pub fn price_us(counters: &Counters, config: &Config, rates: &Rates) -> f64 {
    Load::of(counters).price_us(config, rates)
}

impl KeyCounters {
    fn uses(&self) -> f64 {
        self.rows.iter().map(|(_, row)| f64::from(row.reads + row.writes)).sum()
    }

    /// Reads of values that were current in a scope, by its place.
    fn repeated(&self, scope: usize) -> f64 {
        self.rows
            .iter()
            .map(|(_, row)| f64::from(row.reuse[scope].repeated))
            .sum()
    }

    fn size_bytes(&self) -> f64 {
        self.rows.iter().map(|(_, row)| row.size_bytes).max().unwrap_or(0) as f64
    }
}

/// One key under one configuration.
struct Pricing<'a> {
    key: &'a KeyCounters,
    config: &'a Config,
    rates: &'a Rates,
    load: &'a Load,
    size: f64,
    reads: f64,
    writes: f64,
    /// Cachelets that use the key.
    sharers: f64,
    /// The share of a value's copies that is still there when it is read again.
    resident: f64,
    reuse: Sums,
    /// How likely the home is on another node.
    remote: f64,
    /// How likely it is another cachelet of the same node.
    beside: f64,
    /// How likely two cachelets are on two nodes.
    apart: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    repeated: f64,
    resident: f64,
    changed: f64,
    first: f64,
}

impl Sums {
    fn add(&mut self, reuse: &Reuse, policy: usize) {
        self.repeated += f64::from(reuse.repeated);
        self.resident += f64::from(reuse.resident[policy]);
        self.changed += f64::from(reuse.changed);
        self.first += f64::from(reuse.first);
    }
}

impl<'a> Pricing<'a> {
    fn new(load: &'a Load, key: &'a KeyCounters, config: &'a Config, rates: &'a Rates) -> Self {
        let (scope, policy) = (config.scope as usize, config.replacement as usize);
        let mut reuse = Sums::default();
        let (mut reads, mut writes, mut sharers) = (0.0, 0.0, 0.0);
        for (_, row) in &key.rows {
            reuse.add(&row.reuse[scope], policy);
            reads += f64::from(row.reads);
            writes += f64::from(row.writes);
            sharers += f64::from(row.cachelets[scope].max(1));
        }
        // Nodes are taken to have as many cachelets each.
        let (nodes, cachelets) = (load.nodes, load.cachelets[scope]);
        let of_node = cachelets / nodes;
        let resident = if reuse.repeated > 0.0 {
            reuse.resident / reuse.repeated
        } else {
            1.0
        };
        Self {
            key,
            config,
            rates,
            load,
            size: key.size_bytes(),
            reads,
            writes,
            sharers,
            resident,
            reuse,
            remote: 1.0 - 1.0 / nodes,
            beside: 1.0 / nodes - 1.0 / cachelets,
            apart: (cachelets - of_node) / (cachelets - 1.0).max(1.0),
        }
    }

    fn total_us(&self) -> f64 {
        let read_us = match (self.config.admission, self.config.coherence) {
            (Admission::Bypass, _) => self.reads * self.store_us(),
            (_, Coherence::SequenceAtStore) => self.validated_at_store_us(),
            (_, Coherence::SequenceAtHome) => self.validated_at_home_us(),
            (_, Coherence::Invalidate) => self.directory_us(self.reuse.changed),
            (_, Coherence::Update | Coherence::UpdateOnePhase) => {
                self.directory_us(self.reuse.changed * (1.0 - self.resident))
            }
        };
        read_us + self.touches_us() + self.writes_us()
    }

    /// The time to the store and back with the value.
    fn store_us(&self) -> f64 {
        self.rates.store_us + self.size * self.rates.store_us_per_byte
    }

    fn round_us(&self) -> f64 {
        2.0 * (self.rates.hop_us + self.rates.message_us)
    }

    /// The same between cachelets of one node.
    fn beside_us(&self) -> f64 {
        self.beside * 2.0 * self.rates.message_us
    }

    fn value_us(&self) -> f64 {
        self.size * self.rates.node_us_per_byte
    }

    /// Asking the home, or the leader, for a value.
    fn home_us(&self) -> f64 {
        self.asked_rounds() * self.round_us() + self.beside_us() + self.remote * self.value_us()
    }

    /// How many round trips it takes to ask.
    fn asked_rounds(&self) -> f64 {
        if self.config.domain == Domain::Flat {
            return self.remote;
        }
        let (clusters, nodes) = (self.load.clusters, self.load.nodes);
        let is_apart = 1.0 - 1.0 / clusters;
        let is_follower = 1.0 - clusters / nodes;
        // The leader asks the home for the first reader of its cluster, and has a copy for the others.
        let readers = (self.sharers / clusters).max(1.0);
        self.remote + is_apart * is_follower / readers - is_apart * (1.0 - 1.0 / readers) * (1.0 - is_follower)
    }

    /// Reads that are the first ones of the whole domain.
    fn first_of_all(&self) -> f64 {
        let is_new = self.key.rows.iter().all(|(_, row)| row.is_new);
        if is_new && self.writes == 0.0 {
            self.reuse.first.min(1.0)
        } else {
            0.0
        }
    }

    fn directory_us(&self, changed: f64) -> f64 {
        let evicted = self.reuse.repeated - self.reuse.resident;
        let asked = evicted + changed + self.reuse.first;
        let from_store = evicted * (1.0 - self.resident) + self.first_of_all();
        asked * self.home_us() + from_store * self.store_us() + self.blocked_us(self.reads)
    }

    fn validated_at_home_us(&self) -> f64 {
        let rest = self.reads - self.reuse.resident;
        let evicted = self.reuse.repeated - self.reuse.resident;
        let from_store = evicted * (1.0 - self.resident) + self.first_of_all();
        self.reuse.resident * (self.remote * self.round_us() + self.beside_us())
            + rest * self.home_us()
            + from_store * self.store_us()
            + self.blocked_us(self.reads)
    }

    fn validated_at_store_us(&self) -> f64 {
        let rest = self.reads - self.reuse.resident;
        self.reuse.resident * self.rates.store_us + rest * self.store_us()
    }

    fn touches_us(&self) -> f64 {
        if self.config.replacement.moves_on_use() {
            self.reuse.resident * self.rates.touch_us
        } else {
            0.0
        }
    }

    fn writes_us(&self) -> f64 {
        if self.writes == 0.0 {
            return 0.0;
        }
        let to_home_us = self.remote * (self.round_us() + self.value_us()) + self.beside_us();
        self.writes * (to_home_us + self.at_home_us()) + self.queued_us()
    }

    /// How long a write is under way at its home.
    fn at_home_us(&self) -> f64 {
        let hold_us = if self.config.replication.has_intents() || self.config.replication.has_data() {
            self.round_us() + self.value_us()
        } else {
            0.0
        };
        let store_us = if self.config.write.before_the_store() {
            0.0
        } else {
            self.store_us()
        };
        self.told_us().max(hold_us) + store_us
    }

    /// How long it takes until all holders have answered.
    fn told_us(&self) -> f64 {
        if self.config.admission == Admission::Bypass {
            // Nobody has a copy.
            return 0.0;
        }
        let others = (self.sharers - 1.0).max(0.0);
        let (holders, bytes_us) = match self.config.coherence.spread() {
            Spread::None => return 0.0,
            Spread::Invalidate => {
                let taken = (self.reuse.changed + self.reuse.first) / self.writes;
                (others.min(taken), 0.0)
            }
            Spread::Stage | Spread::Apply => (others * self.resident, self.value_us()),
        };
        if holders < 0.01 {
            return 0.0;
        }
        let message_us = self.rates.message_us + self.apart * bytes_us;
        let round_us = (holders * self.apart).min(1.0) * self.round_us();
        // The second phase is sent before the writer's answer.
        let again_us = if self.config.coherence.spread() == Spread::Stage {
            self.rates.message_us
        } else {
            0.0
        };
        match self.config.domain {
            Domain::Flat => round_us + holders * (message_us + again_us),
            Domain::Hierarchical => {
                let clusters = holders.min(self.load.clusters);
                let followers = self.load.cachelets[self.config.scope as usize] / self.load.clusters - 1.0;
                2.0 * round_us + (clusters + followers) * message_us + clusters * again_us
            }
        }
    }

    fn occupancy(&self) -> f64 {
        (self.writes * self.at_home_us() / self.load.interval_us.max(1.0)).min(FULL)
    }

    /// Reads that come while a write is under way wait for its end.
    fn blocked_us(&self, reads: f64) -> f64 {
        if self.writes == 0.0 {
            0.0
        } else {
            reads * self.occupancy() * self.at_home_us() / 2.0
        }
    }

    /// Writes wait for each other.
    fn queued_us(&self) -> f64 {
        let occupancy = self.occupancy();
        self.writes * occupancy / (2.0 * (1.0 - occupancy)) * self.at_home_us()
    }
}
