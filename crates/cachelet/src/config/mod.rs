//! The configuration of a domain: one value for each dimension, and the promise to the tenant.
//!
//! Each dimension is a small trait, each value a module that implements it. The protocol asks the traits; it never
//! compares configurations. Invariant: `Config::is_valid` holds for every configuration that a domain adopts, whatever
//! chose it. The dimensions are those of UniCache (AIOps'24, table 1), with admission as the seventh.

pub mod admission;
pub mod coherence;
pub mod domain;
pub mod replacement;
pub mod replication;
pub mod scope;
pub mod write;

pub use admission::Admission;
pub use coherence::Coherence;
pub use domain::Domain;
pub use replacement::Replacement;
pub use replication::{Replicates, Replication};
pub use scope::Scope;
pub use write::WritePolicy;

/// How fresh a read is, per key. The tenant chooses it; no configuration weakens it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Level {
    /// A read returns the last value whose write was acknowledged before the read began, or a later one.
    #[default]
    Linearizable,
    /// A read may return a value that was replaced at most so many microseconds before it began.
    Bounded(u64),
    /// A read returns some value that was written.
    Eventual,
}

/// Which acknowledged writes survive. It is fixed when a domain is created and never learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Durability {
    /// A write is acknowledged when the store has it.
    #[default]
    Strict,
    /// A write may be lost with the cachelets that hold it.
    None,
}

/// One value per dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// Which instances share a cachelet.
    pub scope: Scope,
    /// When a write is acknowledged.
    pub write: WritePolicy,
    /// Which copy goes when there is no room.
    pub replacement: Replacement,
    /// How copies are kept coherent.
    pub coherence: Coherence,
    /// The state that a second cachelet holds for the home.
    pub replication: Replication,
    /// How messages reach the holders of copies.
    pub domain: Domain,
    /// Whether values are kept at all.
    pub admission: Admission,
}

/// The promise to the tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Promise {
    /// How fresh reads are.
    pub level: Level,
    /// Which writes survive.
    pub durability: Durability,
}

impl Config {
    /// Concord's fixed configuration (HPCA'25): per application, through, LRU, invalidation, flat, no replication.
    pub const CONCORD: Self = Self {
        scope: Scope::Application,
        write: WritePolicy::Through,
        replacement: Replacement::Lru,
        coherence: Coherence::Invalidate,
        replication: Replication::None,
        domain: Domain::Flat,
        admission: Admission::Keep,
    };

    /// The baseline of UniCache's evaluation: per instance, sequence numbers at the store.
    pub const BASELINE_STORE: Self = Self {
        scope: Scope::Instance,
        coherence: Coherence::SequenceAtStore,
        ..Self::CONCORD
    };

    /// The same with sequence numbers at the home, as Faa$T (SoCC'21) keeps them.
    pub const BASELINE_HOME: Self = Self {
        coherence: Coherence::SequenceAtHome,
        ..Self::BASELINE_STORE
    };

    /// Whether a domain with this promise may adopt it.
    #[must_use]
    pub fn is_valid(&self, promise: Promise) -> bool {
        let back = self.write == WritePolicy::Back;
        let directory = self.coherence.has_directory();
        let lossless = !back || promise.durability == Durability::None;
        // A reader that validates at the store must find acknowledged writes there.
        let store_is_current = !back || self.coherence != Coherence::SequenceAtStore;
        let linearizable = self.coherence != Coherence::UpdateOnePhase || promise.level == Level::Eventual;
        let reaches = self.domain == Domain::Flat || directory;
        let replicates = back || !self.replication.has_data();
        lossless && store_is_current && linearizable && reaches && replicates
    }

    /// Whether every read goes to the store, which has all acknowledged writes.
    #[must_use]
    pub fn reads_at_store(&self) -> bool {
        let is_current = self.write == WritePolicy::Through;
        self.coherence == Coherence::SequenceAtStore || (is_current && self.admission == Admission::Bypass)
    }

    /// In how many dimensions it differs from another one.
    #[must_use]
    pub fn differences(&self, other: &Self) -> usize {
        let differ = [
            self.scope != other.scope,
            self.write != other.write,
            self.replacement != other.replacement,
            self.coherence != other.coherence,
            self.replication != other.replication,
            self.domain != other.domain,
            self.admission != other.admission,
        ];
        differ.into_iter().filter(|differs| *differs).count()
    }

    /// Every valid configuration, in a fixed order.
    #[must_use]
    pub fn all(promise: Promise) -> Vec<Self> {
        let mut all = Vec::new();
        for scope in Scope::ALL {
            for write in WritePolicy::ALL {
                for replacement in Replacement::ALL {
                    for coherence in Coherence::ALL {
                        for (replication, domain) in replicated_domains() {
                            for admission in Admission::ALL {
                                all.push(Self {
                                    scope,
                                    write,
                                    replacement,
                                    coherence,
                                    replication,
                                    domain,
                                    admission,
                                });
                            }
                        }
                    }
                }
            }
        }
        all.retain(|config| config.is_valid(promise));
        all
    }
}

fn replicated_domains() -> impl Iterator<Item = (Replication, Domain)> {
    let pairs = |replication| Domain::ALL.map(|domain| (replication, domain));
    Replication::ALL.into_iter().flat_map(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_promise_masks_configurations() {
        let strict = Config::all(Promise::default());
        let lossy = Config::all(Promise {
            durability: Durability::None,
            ..Promise::default()
        });
        assert!(strict.iter().all(|config| config.write == WritePolicy::Through));
        assert!(lossy.len() > strict.len());
        assert!(lossy.iter().any(|config| config.write == WritePolicy::Back));
        assert!(lossy.iter().all(|config| config.coherence != Coherence::UpdateOnePhase));
        for fixed in [Config::CONCORD, Config::BASELINE_HOME, Config::BASELINE_STORE] {
            assert!(strict.contains(&fixed), "{fixed:?}");
        }
    }
}
