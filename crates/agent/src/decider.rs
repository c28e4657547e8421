//! When a domain's document goes on, and its next state. Pure but for its earlier observations; time comes in as a
//! value.
//!
//! Every agent decides by itself and writes with compare-and-set, so that it does not matter who does. The agent of the
//! domain's first cachelet does it at once, the others after a while each.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_cachelet::membership::{Document, Known};
use tidemark_cachelet::types::{CacheletId, Epoch};
use tidemark_cachelet::view::Member;

use crate::layout::AppRecord;
use crate::mirror::DomainState;

/// A lease lasts so long at etcd since the last request for it came.
pub const LEASE_SECONDS: u64 = 3;
/// For so long a cachelet acts since it sent that request: a tenth less, for clocks that do not run alike.
pub const LEASE_US: u64 = LEASE_SECONDS * 900_000;
/// How much longer a lost member is waited for.
const GUARD_US: u64 = 300_000;
/// The same when etcd came back from a backup: leases may have been forgotten while they held.
const RESTORED_GUARD_US: u64 = LEASE_SECONDS * 1_000_000 + GUARD_US;
/// How long writes of a lost cachelet may be on their way: twice as long as a call to the store may take.
const GRACE_US: u64 = 2 * tidemark_gateway::coherent::CALL_PATIENCE.as_micros() as u64;
/// How much longer the next agent waits until it does what another one should have done.
const TURN_US: u64 = 400_000;

/// The observations of one agent about one domain.
#[derive(Clone, Debug, Default)]
pub struct Decider {
    /// The times since which cachelets are gone.
    gone: BTreeMap<CacheletId, u64>,
    /// The view in force, and the time since which it is.
    in_force: Option<(Epoch, u64)>,
    /// The document that is to be replaced, and the time since which it is.
    is_due: Option<(u64, u64)>,
    doubt: Option<Doubt>,
}

/// etcd may have forgotten what was before: this agent saw it for the first time, or it came back from a backup.
#[derive(Clone, Copy, Debug)]
pub struct Doubt {
    /// When that was.
    pub at_us: u64,
    /// etcd's revision then: what is of a later one was not forgotten.
    pub revision: u64,
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The domain.
    pub state: &'a DomainState,
    /// The record of the application.
    pub app: &'a AppRecord,
    /// The agent's own cachelets.
    pub own: &'a BTreeSet<CacheletId>,
    /// The highest epoch of the domain that the agent has seen.
    pub seen: Epoch,
    /// etcd's revision, as far as it is known.
    pub revision: u64,
    /// The time.
    pub now_us: u64,
}

impl Decider {
    /// One that has observed nothing yet. etcd may have forgotten what was before `doubt`.
    #[must_use]
    pub fn of(doubt: Option<Doubt>) -> Self {
        Self {
            doubt,
            ..Self::default()
        }
    }

    /// The document that is to replace the present one, if it is this agent's turn.
    pub fn next(&mut self, situation: &Situation<'_>) -> Option<Document> {
        let Situation {
            state,
            app,
            own,
            now_us,
            ..
        } = *situation;
        let live = live(state);
        self.look(state, &live, now_us);
        let rank = live.iter().position(|member| own.contains(&member.id))?;
        let revision = state.document.as_ref().map_or(0, |document| document.revision);
        let document = match &state.document {
            Some(document) => document.value.clone(),
            None => Document::new(app.config, app.promise),
        };
        if self.is_doubted(state, now_us) {
            return None;
        }
        let next = document.advance(&self.known(situation, &document, live));
        if next.is_none() {
            self.is_due = None;
            return None;
        }
        let since = match self.is_due {
            Some((of, since)) if of == revision => since,
            _ => {
                self.is_due = Some((revision, now_us));
                now_us
            }
        };
        next.filter(|_| now_us >= since + rank as u64 * TURN_US)
    }

    /// Whether the document may be of a backup, and cachelets that it does not know may have leases of the time before. A change
    /// that was decided since is none of a backup. Its epoch does not tell: after a restore, epochs go on above the revision, and
    /// a later backup has such ones. The members of the view are waited for by themselves if they are there.
    fn is_doubted(&self, state: &DomainState, now_us: u64) -> bool {
        let (Some(doubt), Some(document)) = (self.doubt, &state.document) else {
            return false;
        };
        let Document { view, change } = &document.value;
        let is_here = !view.members.is_empty() && view.ids().all(|id| state.members.contains_key(&id));
        let is_late = now_us >= doubt.at_us + RESTORED_GUARD_US;
        !is_late && (!is_here || change.as_ref().is_some_and(|change| change.decided_at < doubt.revision))
    }

    /// Notes who is gone since when, and since when the view is in force.
    fn look(&mut self, state: &DomainState, live: &[Member], now_us: u64) {
        let Some(document) = state.document.as_ref().map(|document| &document.value) else {
            return;
        };
        let epoch = document.view.epoch;
        if self.in_force.is_none_or(|(known, _)| known != epoch) {
            self.in_force = Some((epoch, now_us));
        }
        // A leaving member has its key, and acts until it is drained.
        let is_gone = |id: &CacheletId| !live.iter().any(|member| member.id == *id) && !state.members.contains_key(id);
        let mut gone = BTreeMap::new();
        for id in document.view.ids().filter(is_gone) {
            gone.insert(id, self.gone.get(&id).copied().unwrap_or(now_us));
        }
        self.gone = gone;
    }

    fn known(&self, situation: &Situation<'_>, document: &Document, live: Vec<Member>) -> Known {
        let now_us = situation.now_us;
        // A lease that this etcd knows nothing of was renewed before the doubt for the last time.
        let is_doubtful = self.doubt.is_some_and(|doubt| now_us < doubt.at_us + RESTORED_GUARD_US);
        let surely = self
            .gone
            .iter()
            .filter(|(_, since)| !is_doubtful && now_us >= **since + GUARD_US);
        let seen = situation.state.members.values().map(|member| Epoch(member.value.seen));
        Known {
            live,
            surely_gone: surely.map(|(id, _)| *id).collect(),
            config: situation.app.config,
            trial: situation.app.trial,
            highest_seen: seen.chain([situation.seen]).max().unwrap_or_default(),
            revision: situation.revision,
            now_us: self.suspicion_time(document, now_us),
            grace_us: GRACE_US,
        }
    }

    /// The time of suspicions is that of the document: agents' clocks have nothing in common. A suspicion ends when this agent
    /// has seen its view in force for the whole of the grace time.
    fn suspicion_time(&self, document: &Document, now_us: u64) -> u64 {
        let until = document.view.suspicions.iter().map(|suspicion| suspicion.until_us);
        let is_over = self.in_force.is_some_and(|(_, since)| now_us >= since + GRACE_US);
        if is_over {
            until.max().unwrap_or_default()
        } else {
            until.min().unwrap_or_default().saturating_sub(1)
        }
    }
}

/// The cachelets that are to be members, sorted.
fn live(state: &DomainState) -> Vec<Member> {
    let staying = state.members.iter().filter(|(_, member)| !member.value.is_leaving);
    staying
        .map(|(id, member)| Member {
            id: *id,
            cluster: member.value.cluster,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::config::{Coherence, Config, Promise};
    use tidemark_gateway::access::Entry;

    use super::*;
    use crate::layout::MemberRecord;
    use crate::mirror::At;

    struct Domain {
        state: DomainState,
        app: AppRecord,
        deciders: Vec<(BTreeSet<CacheletId>, Decider)>,
        revision: u64,
    }

    impl Domain {
        /// With one agent per cachelet.
        fn of(ids: &[u64]) -> Self {
            let mut domain = Self {
                state: DomainState::default(),
                app: AppRecord {
                    access: Entry::first(tidemark_types::TenantId(1)),
                    promise: Promise::default(),
                    config: Config::CONCORD,
                    pinned: BTreeSet::new(),
                    trial: None,
                    reason: String::new(),
                },
                deciders: Vec::new(),
                revision: 1,
            };
            for id in ids {
                domain.join(*id);
                domain
                    .deciders
                    .push((BTreeSet::from([CacheletId(*id)]), Decider::default()));
            }
            domain
        }

        fn join(&mut self, id: u64) {
            let value = MemberRecord {
                node: format!("n{id}"),
                address: "127.0.0.1:1".parse().unwrap(),
                cluster: 0,
                label: String::new(),
                seen: 0,
                is_leaving: false,
            };
            self.state.members.insert(CacheletId(id), At { value, revision: 1 });
        }

        fn ask(&mut self, agent: usize, now_us: u64) -> Option<Document> {
            let (own, decider) = &mut self.deciders[agent];
            decider.next(&Situation {
                state: &self.state,
                app: &self.app,
                own,
                seen: Epoch(0),
                revision: self.revision,
                now_us,
            })
        }

        fn set(&mut self, document: Document) {
            self.revision += 1;
            let revision = self.revision;
            self.state.document = Some(At {
                value: document,
                revision,
            });
        }

        /// The first agent sees etcd for the first time, or restored.
        fn doubt(&mut self, at_us: u64) {
            let revision = self.revision;
            self.deciders[0].1 = Decider::of(Some(Doubt { at_us, revision }));
        }

        /// The first agent decides until nothing is left to do; members drain at once.
        fn settle(&mut self, now_us: u64) {
            for _ in 0..10 {
                let Some(next) = self.ask(0, now_us) else { return };
                self.set(next);
                self.drain();
            }
            panic!("it does not settle");
        }

        fn drain(&mut self) {
            let mut document = self.state.document.clone().unwrap().value;
            let Some(epoch) = document.change.as_ref().map(|change| change.view.epoch) else {
                return;
            };
            for id in self.state.members.keys() {
                document = document.drained(*id, epoch).unwrap_or(document);
                document = document.recovered(*id, epoch).unwrap_or(document);
            }
            self.set(document);
        }

        fn members(&self) -> Vec<u64> {
            self.state
                .document
                .as_ref()
                .unwrap()
                .value
                .view
                .ids()
                .map(|id| id.0)
                .collect()
        }
    }

    #[test]
    fn the_first_decides_and_the_others_after_a_while() {
        let mut domain = Domain::of(&[1, 2, 3]);
        assert!(domain.ask(0, 0).is_some());
        assert!(domain.ask(1, 0).is_none() && domain.ask(1, TURN_US).is_some());
        assert!(domain.ask(2, 0).is_none() && domain.ask(2, TURN_US).is_none());
        domain.settle(0);
        assert_eq!(domain.members(), [1, 2, 3]);
        for agent in 0..3 {
            assert!(domain.ask(agent, 60_000_000).is_none(), "nothing is left to do");
        }
    }

    #[test]
    fn whoever_is_gone_is_waited_for_and_suspected_for_a_while() {
        let mut domain = Domain::of(&[1, 2, 3]);
        domain.settle(0);
        domain.state.members.remove(&CacheletId(3));
        let now_us = 10_000_000;
        domain.settle(now_us);
        assert_eq!(domain.members(), [1, 2, 3], "its lease may hold");
        domain.settle(now_us + GUARD_US);
        assert_eq!(domain.members(), [1, 2]);
        let suspicions = |domain: &Domain| domain.state.document.as_ref().unwrap().value.view.suspicions.len();
        assert_eq!(suspicions(&domain), 1);
        // Another agent that comes in late counts the grace time from then.
        let late_us = now_us + GUARD_US + GRACE_US / 2;
        assert!(domain.ask(1, late_us).is_none());
        assert!(domain.ask(1, late_us + GRACE_US - 1).is_none());
        assert!(domain.ask(0, late_us).is_none());
        domain.settle(now_us + GUARD_US);
        domain.settle(now_us + GUARD_US + GRACE_US);
        assert_eq!(suspicions(&domain), 0);
    }

    #[test]
    fn after_a_restore_whoever_is_gone_is_waited_for_as_long_as_a_lease_may_hold() {
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.state.members.remove(&CacheletId(2));
        let now_us = 10_000_000;
        domain.doubt(now_us);
        domain.settle(now_us);
        domain.settle(now_us + GUARD_US);
        assert_eq!(domain.members(), [1, 2]);
        domain.settle(now_us + RESTORED_GUARD_US - 1);
        assert_eq!(domain.members(), [1, 2]);
        domain.settle(now_us + RESTORED_GUARD_US);
        assert_eq!(domain.members(), [1]);
    }

    #[test]
    fn a_lease_that_ends_while_etcd_is_doubted_is_not_waited_for_twice() {
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        let now_us = 10_000_000;
        domain.doubt(now_us);
        // The agent of the second one ended before this one began; its key stays until etcd ends the lease.
        domain.settle(now_us);
        let ended_us = now_us + LEASE_SECONDS * 1_000_000;
        domain.state.members.remove(&CacheletId(2));
        domain.settle(ended_us);
        assert_eq!(domain.members(), [1, 2]);
        domain.settle(ended_us + GUARD_US);
        assert_eq!(domain.members(), [1]);
    }

    #[test]
    fn a_change_of_a_backup_is_doubted_also_after_an_earlier_restore() {
        let mut domain = Domain::of(&[1, 2]);
        // Since an earlier restore, epochs are far above the revision.
        domain.state.members.get_mut(&CacheletId(1)).unwrap().value.seen = 5_000;
        domain.settle(0);
        domain.app.config.coherence = Coherence::SequenceAtStore;
        let changing = domain.ask(0, 1).unwrap();
        domain.set(changing);
        domain.drain();
        assert!(domain.state.document.as_ref().unwrap().value.change.is_some());
        // Restored once more, from a backup of now.
        let now_us = 10_000_000;
        domain.doubt(now_us);
        assert!(domain.ask(0, now_us + RESTORED_GUARD_US - 1).is_none());
        assert!(domain.ask(0, now_us + RESTORED_GUARD_US).is_some());
    }

    #[test]
    fn whoever_a_backup_has_forgotten_is_waited_for_as_well() {
        let now_us = 10_000_000;
        // A third cachelet has a lease of the time before, and no key any more.
        let forgotten = |domain: &mut Domain| {
            domain.doubt(now_us);
            let early = domain.ask(0, now_us + RESTORED_GUARD_US - 1);
            (early, domain.ask(0, now_us + RESTORED_GUARD_US))
        };
        // Nobody was there at the time of the backup.
        let mut domain = Domain::of(&[1]);
        let empty = Document::new(Config::CONCORD, Promise::default());
        domain.set(empty);
        let (early, late) = forgotten(&mut domain);
        assert!(early.is_none() && late.is_some());
        // Or a change was under way, for which all had drained.
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.app.config.coherence = Coherence::SequenceAtStore;
        let changing = domain.ask(0, 1).unwrap();
        domain.set(changing);
        domain.drain();
        let (early, late) = forgotten(&mut domain);
        assert!(early.is_none() && late.is_some());
        // A change that began since is none of a backup.
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.app.config.coherence = Coherence::SequenceAtStore;
        domain.doubt(now_us);
        domain.settle(now_us);
        let view = &domain.state.document.as_ref().unwrap().value.view;
        assert_eq!(view.config.coherence, Coherence::SequenceAtStore);
    }

    #[test]
    fn whoever_leaves_is_not_lost() {
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.state.members.get_mut(&CacheletId(2)).unwrap().value.is_leaving = true;
        domain.settle(1);
        let view = &domain.state.document.as_ref().unwrap().value.view;
        assert_eq!((view.members.len(), view.suspicions.len()), (1, 0));
    }

    #[test]
    fn another_configuration_is_taken_up() {
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.app.config.coherence = Coherence::SequenceAtStore;
        domain.settle(1);
        let view = &domain.state.document.as_ref().unwrap().value.view;
        assert_eq!(view.config.coherence, Coherence::SequenceAtStore);
    }

    #[test]
    fn epochs_pass_what_was_seen_before_a_restore() {
        let mut domain = Domain::of(&[1, 2]);
        domain.settle(0);
        domain.state.members.get_mut(&CacheletId(1)).unwrap().value.seen = 50;
        domain.settle(1);
        assert_eq!(domain.state.document.as_ref().unwrap().value.view.epoch, Epoch(51));
    }
}
