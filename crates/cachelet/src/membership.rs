//! Memberships: how a domain goes from one view to the next one. A pure function over the document that the
//! coordination engine keeps; the caller writes the result back with compare-and-set.
//!
//! A change has three steps. *Prepare*: every live member stops serving, finishes its writes, and says that it is
//! drained. A lost member is waited for until its lease has surely ended. *Recover*, only if some were lost: members
//! with intents of lost homes finish these writes at the store. *Commit*: the new view is in force. Invariant: when a
//! view is in force, no write of an earlier one is on its way, except for keys that the view suspects.

use std::collections::BTreeSet;

use crate::config::{Config, Promise};
use crate::types::{CacheletId, Epoch};
use crate::view::{Member, Reach, Trial, View};

/// The coordination engine's document of a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Document {
    /// The view in force.
    pub view: View,
    /// The change that is under way.
    pub change: Option<Change>,
}

/// A change under way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Change {
    /// The view that will be in force.
    pub view: View,
    /// The coordination engine's revision when it was decided. The write that begins it has a later one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub decided_at: u64,
    /// How far it is.
    pub phase: Phase,
    /// Members of the view in force that serve nothing any more.
    pub drained: BTreeSet<CacheletId>,
    /// Members that have finished the lost ones' writes.
    pub recovered: BTreeSet<CacheletId>,
    /// Members that went without being drained.
    pub lost: BTreeSet<CacheletId>,
}

/// How far a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Phase {
    /// Members drain.
    Prepare,
    /// Intents of lost homes are finished.
    Recover,
}

/// The facts when a document is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Cachelets whose lease is alive.
    pub live: Vec<Member>,
    /// Cachelets that have been gone for longer than a lease lasts, by the observer's own clock.
    pub surely_gone: BTreeSet<CacheletId>,
    /// The configuration that is wanted.
    pub config: Config,
    /// The trial that is wanted.
    pub trial: Option<Trial>,
    /// The highest epoch that anybody has seen. It is above the document's where that was restored from a backup.
    pub highest_seen: Epoch,
    /// The revision of the coordination engine at which all of this was so. Epochs are above it, so that none is given out
    /// twice, not even by a document that was lost and begun anew; the engine gives the write of a change at least its epoch.
    pub revision: u64,
    /// Time by the observer's clock.
    pub now_us: u64,
    /// How long writes of a lost cachelet may be on their way.
    pub grace_us: u64,
}

impl Document {
    /// A domain that nobody has joined.
    #[must_use]
    pub fn new(config: Config, promise: Promise) -> Self {
        Self {
            view: View::empty(config, promise),
            change: None,
        }
    }

    /// The document after this one, if there is one.
    #[must_use]
    pub fn advance(&self, known: &Known) -> Option<Self> {
        match &self.change {
            None if self.is_wanted(&self.view, known) && !self.has_old_suspicion(known) => None,
            None => Some(self.propose(known, &BTreeSet::new())),
            // Whoever was drained for a change that others have left behind has acted again since.
            Some(_) if self.is_of_a_backup(known) && !self.is_new(known) => Some(self.propose(known, &BTreeSet::new())),
            Some(change) if !self.is_wanted(&change.view, known) => Some(self.propose(known, &change.drained)),
            Some(change) => self.proceed(change, known),
        }
    }

    /// The document with a member's word that it is drained for the change under way.
    #[must_use]
    pub fn drained(&self, id: CacheletId, epoch: Epoch) -> Option<Self> {
        self.noted(epoch, |change| change.drained.insert(id))
    }

    /// The document with a member's word that it has finished the writes of those that are lost.
    #[must_use]
    pub fn recovered(&self, id: CacheletId, epoch: Epoch) -> Option<Self> {
        self.noted(epoch, |change| {
            change.phase == Phase::Recover && change.recovered.insert(id)
        })
    }

    fn noted(&self, epoch: Epoch, note: impl Fn(&mut Change) -> bool) -> Option<Self> {
        let mut noted = self.clone();
        let change = noted.change.as_mut().filter(|change| change.view.epoch == epoch)?;
        note(change).then_some(noted)
    }

    fn is_wanted(&self, view: &View, known: &Known) -> bool {
        view.members == known.live
            && view.config == known.config
            && view.trial == known.trial
            && view.epoch >= known.highest_seen
    }

    fn has_old_suspicion(&self, known: &Known) -> bool {
        let is_old = |until_us: u64| until_us <= known.now_us;
        self.view.suspicions.iter().any(|suspicion| is_old(suspicion.until_us))
    }

    /// Whether there were views in force since: the document was restored from a backup.
    fn is_of_a_backup(&self, known: &Known) -> bool {
        known.highest_seen > self.view.epoch
    }

    /// Whether the change under way is later than all that anybody has seen.
    fn is_new(&self, known: &Known) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.view.epoch > known.highest_seen)
    }

    fn propose(&self, known: &Known, drained: &BTreeSet<CacheletId>) -> Self {
        let pending = self.change.as_ref().map_or(self.view.epoch, |change| change.view.epoch);
        let seen = pending.max(self.view.epoch).max(known.highest_seen);
        let last = seen.max(Epoch(known.revision));
        let mut suspicions = self.view.suspicions.clone();
        suspicions.retain(|suspicion| suspicion.until_us > known.now_us);
        let view = View {
            epoch: Epoch(last.0 + 1),
            members: known.live.clone(),
            config: known.config,
            promise: self.view.promise,
            trial: known.trial,
            suspicions,
        };
        Self {
            view: self.view.clone(),
            change: Some(Change {
                view,
                decided_at: known.revision,
                phase: Phase::Prepare,
                drained: drained.clone(),
                recovered: BTreeSet::new(),
                lost: BTreeSet::new(),
            }),
        }
    }

    fn proceed(&self, change: &Change, known: &Known) -> Option<Self> {
        let is_live = |id: &CacheletId| known.live.iter().any(|member| member.id == *id);
        let (here, gone): (Vec<_>, Vec<_>) = self
            .view
            .ids()
            .filter(|id| !change.drained.contains(id))
            .partition(is_live);
        // A live member that is not drained is waited for; a lost one, until its lease has surely ended.
        if !here.is_empty() || !gone.iter().all(|id| known.surely_gone.contains(id)) {
            return None;
        }
        let lost: BTreeSet<_> = gone.into_iter().collect();
        match change.phase {
            Phase::Prepare if lost.is_empty() && !self.is_of_a_backup(known) => {
                Some(Self::committed(change.view.clone()))
            }
            Phase::Prepare => {
                let mut next = self.clone();
                if let Some(change) = &mut next.change {
                    change.phase = Phase::Recover;
                    change.lost = lost;
                }
                Some(next)
            }
            Phase::Recover => {
                let mut waited = self.view.ids().filter(|id| !change.lost.contains(id)).filter(is_live);
                waited
                    .all(|id| change.recovered.contains(&id))
                    .then(|| self.committed_after_loss(change, known))
            }
        }
    }

    fn committed(view: View) -> Self {
        Self { view, change: None }
    }

    fn committed_after_loss(&self, change: &Change, known: &Known) -> Self {
        let until_us = known.now_us + known.grace_us;
        let mut view = change.view.clone();
        // Suspected keys may have been written by the members that are lost now.
        for suspicion in &mut view.suspicions {
            suspicion.until_us = until_us;
        }
        let lost = change.lost.iter().copied().collect();
        let mut suspicion = self.view.suspicion(lost, until_us);
        if self.is_of_a_backup(known) {
            // Nobody knows which homes there were since.
            suspicion.reach = Reach::All;
        }
        view.suspicions.push(suspicion);
        Self::committed(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(live: &[u64], gone: &[u64]) -> Known {
        let member = |id: &u64| Member {
            id: CacheletId(*id),
            cluster: 0,
        };
        Known {
            live: live.iter().map(member).collect(),
            surely_gone: gone.iter().map(|id| CacheletId(*id)).collect(),
            config: Config::CONCORD,
            trial: None,
            highest_seen: Epoch(0),
            revision: 0,
            now_us: 1_000,
            grace_us: 500,
        }
    }

    fn domain_of(ids: &[u64]) -> Document {
        let first = Document::new(Config::CONCORD, Promise::default());
        let known = known(ids, &[]);
        let settled = first.advance(&known).unwrap().advance(&known).unwrap();
        assert_eq!(settled.advance(&known), None, "nothing is left to do");
        settled
    }

    #[test]
    fn a_change_waits_for_every_live_member() {
        let domain = domain_of(&[1, 2]);
        let joined = known(&[1, 2, 3], &[]);
        let proposed = domain.advance(&joined).unwrap();
        let epoch = proposed.change.as_ref().unwrap().view.epoch;
        assert_eq!(proposed.advance(&joined), None);
        let one = proposed.drained(CacheletId(1), epoch).unwrap();
        assert_eq!(one.advance(&joined), None);
        assert_eq!(one.drained(CacheletId(2), Epoch(99)), None, "of another change");
        let both = one.drained(CacheletId(2), epoch).unwrap();
        let view = both.advance(&joined).unwrap().view;
        assert_eq!((view.epoch, view.members.len(), view.suspicions.len()), (epoch, 3, 0));
    }

    #[test]
    fn the_lost_are_waited_for_and_leave_a_suspicion_that_ends() {
        let domain = domain_of(&[1, 2, 3]);
        let proposed = domain.advance(&known(&[1, 2], &[])).unwrap();
        let epoch = proposed.change.as_ref().unwrap().view.epoch;
        let drained = proposed.drained(CacheletId(1), epoch).unwrap();
        let drained = drained.drained(CacheletId(2), epoch).unwrap();
        assert_eq!(drained.advance(&known(&[1, 2], &[])), None, "its lease may be alive");
        let recovering = drained.advance(&known(&[1, 2], &[3])).unwrap();
        assert_eq!(recovering.advance(&known(&[1, 2], &[3])), None);
        let recovered = recovering.recovered(CacheletId(1), epoch).unwrap();
        let recovered = recovered.recovered(CacheletId(2), epoch).unwrap();
        let view = recovered.advance(&known(&[1, 2], &[3])).unwrap();
        assert_eq!(view.view.suspicions.len(), 1);
        let later = Known {
            now_us: 1_500,
            ..known(&[1, 2], &[3])
        };
        let next = view.advance(&later).unwrap();
        assert_eq!(next.change.unwrap().view.suspicions, Vec::new());
    }

    #[test]
    fn epochs_pass_what_anybody_has_seen() {
        let domain = domain_of(&[1]);
        let restored = Known {
            highest_seen: Epoch(50),
            ..known(&[1], &[])
        };
        let proposed = domain.advance(&restored).unwrap();
        assert_eq!(proposed.change.unwrap().view.epoch, Epoch(51));
    }

    #[test]
    fn epochs_pass_the_engine_s_revision_and_go_on_where_it_went_back() {
        let at = |revision| Known {
            revision,
            ..known(&[1, 2], &[])
        };
        let proposed = domain_of(&[1]).advance(&at(700)).unwrap();
        assert_eq!(proposed.change.as_ref().unwrap().view.epoch, Epoch(701));
        // A document that was lost and is begun anew: no epoch comes twice.
        let anew = Document::new(Config::CONCORD, Promise::default());
        let anew = anew.advance(&at(702)).unwrap();
        assert_eq!(anew.change.as_ref().unwrap().view.epoch, Epoch(703));
        let committed = anew.advance(&at(703)).unwrap();
        let restored = Known {
            live: known(&[1, 2, 3], &[]).live,
            ..at(40)
        };
        let next = committed.advance(&restored).unwrap();
        assert_eq!(next.change.unwrap().view.epoch, Epoch(704));
    }

    #[test]
    fn a_backup_of_a_change_is_not_gone_on_with() {
        let domain = domain_of(&[1, 2]);
        let joined = known(&[1, 2, 3], &[]);
        let proposed = domain.advance(&joined).unwrap();
        let epoch = proposed.change.as_ref().unwrap().view.epoch;
        let backup = proposed.drained(CacheletId(1), epoch).unwrap();
        let backup = backup.drained(CacheletId(2), epoch).unwrap();
        // It came into force, and all of them have been in it, before etcd went back.
        let mut restored = Known {
            highest_seen: epoch,
            ..known(&[4], &[])
        };
        let anew = backup.advance(&restored).unwrap();
        let change = anew.change.as_ref().unwrap();
        assert!(change.view.epoch > epoch, "an epoch is not given out twice");
        assert!(change.drained.is_empty());
        assert_eq!(anew.advance(&restored), None, "their leases may be alive");
        restored.surely_gone = [1, 2].map(CacheletId).into();
        let recovering = anew.advance(&restored).unwrap();
        let view = recovering.advance(&restored).unwrap().view;
        assert_eq!(view.suspicions[0].reach, Reach::All);
    }
}
