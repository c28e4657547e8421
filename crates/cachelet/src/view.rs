//! A view: the members of a domain and its configuration at one epoch.
//!
//! All members compute homes, successors, leaders and suspicions from the same view, so that they agree without asking.
//! Invariant: everything that two members must agree on is a function of (view, key) alone.

use crate::config::{Coherence, Config, Promise, Replicates as _, Replication, WritePolicy};
use crate::types::{CacheletId, Epoch, Key, key_hash, mix};

/// A member of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Member {
    /// Which cachelet.
    pub id: CacheletId,
    /// The cluster that it is in.
    pub cluster: u32,
}

/// Keys whose last writes may still be on their way from a cachelet that was lost. They are validated at the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Suspicion {
    /// The members when it was lost.
    pub members: Vec<CacheletId>,
    /// Those that were lost.
    pub lost: Vec<CacheletId>,
    /// Which keys are meant.
    pub reach: Reach,
    /// The end of it, by the clock of the agent that decides on memberships.
    pub until_us: u64,
}

/// Which keys a suspicion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Reach {
    /// Those whose home was lost together with the successor that held its intents.
    HomeAndSuccessor,
    /// Those whose home was lost.
    Home,
    /// All: nobody knows the members that may have written.
    All,
}

/// A configuration that is tried on a part of the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Trial {
    /// The configuration on trial.
    pub config: Config,
    /// The partition of keys that tries it.
    pub partition: u8,
}

/// Partitions of keys by their hash; a trial has one of them.
pub const PARTITIONS: u8 = 16;

/// Members and configuration of a domain at one epoch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct View {
    /// Its number.
    pub epoch: Epoch,
    /// The members, sorted by identity; never empty when it is in force.
    pub members: Vec<Member>,
    /// The configuration.
    pub config: Config,
    /// The promise to the tenant.
    pub promise: Promise,
    /// A configuration on trial.
    pub trial: Option<Trial>,
    /// Keys that are validated at the store for now.
    pub suspicions: Vec<Suspicion>,
}

/// The partition that a key is in.
#[must_use]
pub fn partition(key: &Key) -> u8 {
    (key_hash(key) >> 32) as u8 % PARTITIONS
}

/// The two highest of `ids` by rendezvous hashing for a key: when the first is removed, the second becomes the first.
fn first_two(ids: impl Iterator<Item = CacheletId>, key: &Key) -> (Option<CacheletId>, Option<CacheletId>) {
    let hash = key_hash(key);
    let (mut first, mut second) = (None, None);
    for id in ids {
        let weight = Some((mix(hash ^ mix(id.0)), id));
        if weight > first {
            second = first;
            first = weight;
        } else if weight > second {
            second = weight;
        }
    }
    let id = |weight: Option<(u64, CacheletId)>| weight.map(|(_, id)| id);
    (id(first), id(second))
}

impl Suspicion {
    fn is_about(&self, key: &Key) -> bool {
        let (home, successor) = first_two(self.members.iter().copied(), key);
        let is_lost = |id: Option<CacheletId>| id.is_none_or(|id| self.lost.contains(&id));
        match self.reach {
            Reach::All => true,
            Reach::Home => is_lost(home),
            Reach::HomeAndSuccessor => is_lost(home) && is_lost(successor),
        }
    }
}

impl View {
    /// A view without members, before the first one joins.
    #[must_use]
    pub fn empty(config: Config, promise: Promise) -> Self {
        Self {
            epoch: Epoch(0),
            members: Vec::new(),
            config,
            promise,
            trial: None,
            suspicions: Vec::new(),
        }
    }

    /// The members' identities.
    pub fn ids(&self) -> impl Iterator<Item = CacheletId> {
        self.members.iter().map(|member| member.id)
    }

    /// Whether a cachelet is a member.
    #[must_use]
    pub fn has(&self, id: CacheletId) -> bool {
        self.members.binary_search_by_key(&id, |member| member.id).is_ok()
    }

    /// The cachelet that orders a key's writes.
    #[must_use]
    pub fn home(&self, key: &Key) -> CacheletId {
        first_two(self.ids(), key).0.unwrap_or(CacheletId(0))
    }

    /// The cachelet that becomes the home when the home goes.
    #[must_use]
    pub fn successor(&self, key: &Key) -> Option<CacheletId> {
        first_two(self.ids(), key).1
    }

    /// The leader of a member's cluster: its member with the lowest identity. One that is no member leads itself.
    #[must_use]
    pub fn leader(&self, id: CacheletId) -> CacheletId {
        self.cluster_of(id).next().unwrap_or(id)
    }

    /// The members of a member's cluster, in order.
    pub fn cluster_of(&self, id: CacheletId) -> impl Iterator<Item = CacheletId> {
        let cluster = self.members.iter().find(|member| member.id == id);
        let cluster = cluster.map(|member| member.cluster);
        let is_in = move |member: &&Member| Some(member.cluster) == cluster;
        self.members.iter().filter(is_in).map(|member| member.id)
    }

    /// Whether a key's last writes may be on their way from a lost cachelet.
    #[must_use]
    pub fn is_suspect(&self, key: &Key) -> bool {
        self.suspicions.iter().any(|suspicion| suspicion.is_about(key))
    }

    /// The configuration that holds for a key.
    #[must_use]
    pub fn config_for(&self, key: &Key) -> Config {
        let tried = self.trial.filter(|trial| trial.partition == partition(key));
        let config = tried.map_or(self.config, |trial| trial.config);
        if self.suspicions.is_empty() || !self.is_suspect(key) {
            return config;
        }
        Config {
            coherence: Coherence::SequenceAtStore,
            write: WritePolicy::Through,
            replication: Replication::None,
            domain: crate::config::Domain::Flat,
            ..config
        }
    }

    /// The suspicion that losing some members leaves behind.
    #[must_use]
    pub fn suspicion(&self, lost: Vec<CacheletId>, until_us: u64) -> Suspicion {
        let configs = [Some(self.config), self.trial.map(|trial| trial.config)];
        let configs = configs.into_iter().flatten();
        // No intents are held of writes to keys that are suspected already.
        let suspected = (!self.suspicions.is_empty()).then_some(Reach::Home);
        let reach = configs.map(|config| Self::reach(&config)).chain(suspected).max();
        Suspicion {
            members: self.ids().collect(),
            lost,
            reach: reach.unwrap_or(Reach::All),
            until_us,
        }
    }

    fn reach(config: &Config) -> Reach {
        if config.replication.has_intents() || config.replication.has_data() {
            Reach::HomeAndSuccessor
        } else {
            Reach::Home
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(ids: &[u64]) -> View {
        let member = |&id: &u64| Member {
            id: CacheletId(id),
            cluster: u32::try_from(id / 3).unwrap(),
        };
        View {
            members: ids.iter().map(member).collect(),
            ..View::empty(Config::CONCORD, Promise::default())
        }
    }

    #[test]
    fn a_lost_home_is_followed_by_its_successor_and_nothing_else_moves() {
        let (before, after) = (view(&[1, 2, 3, 4]), view(&[1, 2, 4]));
        let mut moved = 0;
        for number in 0..1_000 {
            let key = Key::new(&format!("k{number}"));
            if before.home(&key) == CacheletId(3) {
                moved += 1;
                assert_eq!(before.successor(&key), Some(after.home(&key)));
            } else {
                assert_eq!(before.home(&key), after.home(&key));
            }
        }
        assert!((150..350).contains(&moved), "{moved} of 1,000 keys were at one of four");
    }

    #[test]
    fn leaders_lead_their_clusters() {
        let view = view(&[1, 2, 3, 4, 7]);
        for (id, leader) in [(1, 1), (2, 1), (3, 3), (4, 3), (7, 7), (99, 99)] {
            assert_eq!(view.leader(CacheletId(id)), CacheletId(leader), "of {id}");
        }
    }

    #[test]
    fn suspicions_reach_as_far_as_the_configuration_lets_them() {
        let mut view = view(&[1, 2, 3]);
        let mut check = |replication, lost: &[u64], expected: bool| {
            view.config.replication = replication;
            let suspicion = view.suspicion(lost.iter().map(|id| CacheletId(*id)).collect(), 1);
            let keys: Vec<_> = (0..200).map(|number| Key::new(&format!("k{number}"))).collect();
            let about = keys.iter().filter(|key| suspicion.is_about(key)).count();
            // Never all keys: each write goes through a home.
            assert!(about < 200, "{replication:?} {lost:?}: {about}");
            assert_eq!(about > 0, expected, "{replication:?} {lost:?}: {about}");
            suspicion
        };
        let suspicion = check(Replication::None, &[1], true);
        check(Replication::Coherence, &[1], false);
        check(Replication::Coherence, &[1, 2], true);
        view.suspicions.push(suspicion);
        let suspicion = view.suspicion(vec![CacheletId(1)], 1);
        assert_eq!(
            (suspicion.reach, view.config.replication),
            (Reach::Home, Replication::Coherence)
        );
    }
}
