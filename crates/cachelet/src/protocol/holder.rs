//! The other side: ending and validating copies, giving a copy to the home, holding intents.

use super::change::Draining;
use super::{Cachelet, Copy, HELD_INTENTS, State, Turn};
use crate::membership::Phase;
use crate::message::{Body, Content, Intent, Update};
use crate::types::{CacheletId, Epoch, Key, Stamp, Version};

/// An invalidation.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) from: CacheletId,
    pub(super) epoch: Epoch,
    pub(super) transaction: u64,
    pub(super) stamp: Stamp,
    pub(super) update: Option<Update>,
}

impl Cachelet {
    /// A key's value is about to change: the copy here ends.
    pub(super) fn invalidate(&mut self, turn: &mut Turn, key: &Key, order: Order, pass_on: bool) {
        self.raise_floors(key, order.stamp);
        let holds = self.end_copy(turn, key, &order);
        if pass_on {
            return self.pass_on(turn, key, order, holds);
        }
        let body = Body::Invalidated {
            transaction: order.transaction,
            key: key.clone(),
            holds,
        };
        turn.send(self.me, order.from, order.epoch, body);
    }

    /// Whether a copy remains.
    fn end_copy(&mut self, turn: &Turn, key: &Key, order: &Order) -> bool {
        let Some(copy) = self.shelf.get(key) else {
            return false;
        };
        if copy.stamp >= order.stamp {
            return true;
        }
        let Some(update) = &order.update else {
            self.shelf.remove(key);
            return false;
        };
        let copy = Copy {
            content: update.content.clone(),
            stamp: order.stamp,
            version: None,
            state: if update.at_once { State::Valid } else { State::Staged },
            validated_at_us: turn.now_us,
        };
        self.shelf.insert(key, copy, turn.now_us)
    }

    /// The second phase of an update.
    pub(super) fn validate(
        &mut self,
        turn: &mut Turn,
        key: &Key,
        stamp: Stamp,
        version: Option<&Version>,
        pass_on: bool,
    ) {
        if let Some(copy) = self.shelf.get_mut(key)
            && copy.state == State::Staged
            && copy.stamp == stamp
        {
            copy.state = State::Valid;
            copy.version = version.cloned();
        }
        if pass_on {
            for follower in self
                .view
                .cluster_of(self.me)
                .filter(|id| *id != self.me)
                .collect::<Vec<_>>()
            {
                let body = Body::Validate {
                    key: key.clone(),
                    stamp,
                    version: version.cloned(),
                    pass_on: false,
                };
                self.send(turn, follower, body);
            }
        }
    }

    /// The home has no copy and asks for this one. Only a copy with the stamp that it names will do: another one may be
    /// older, or staged and never committed.
    pub(super) fn asked_for_copy(
        &mut self,
        turn: &mut Turn,
        from: CacheletId,
        transaction: u64,
        key: Key,
        stamp: Stamp,
    ) {
        let is_meant = |copy: &&Copy| copy.state == State::Valid && copy.stamp == stamp;
        let content = self.shelf.get(&key).filter(is_meant).map(|copy| copy.content.clone());
        let may_come = self.may_get_copy(&key);
        let body = Body::Fetched {
            transaction,
            may_come,
            key,
            content: content.filter(|content| *content != Content::Same),
        };
        self.send(turn, from, body);
    }

    /// Holds a write in case that the home is lost. The last one of a key counts.
    pub(super) fn hold(&mut self, turn: &mut Turn, from: CacheletId, transaction: u64, key: Key, intent: Intent) {
        let is_recovering = |draining: &Draining| draining.phase == Phase::Recover;
        if self.draining.as_ref().is_some_and(is_recovering) || self.is_expelled {
            return;
        }
        if self.held.len() >= HELD_INTENTS && !self.held.contains_key(&key) {
            return;
        }
        let is_old = |held: &Intent| held.stamp > intent.stamp;
        if !self.held.get(&key).is_some_and(is_old) {
            self.held.insert(key.clone(), intent);
        }
        self.send(turn, from, Body::Held { transaction, key });
    }

    /// The store has it.
    pub(super) fn release(&mut self, key: &Key, stamp: Stamp) {
        if self.held.get(key).is_some_and(|held| held.stamp <= stamp) {
            self.held.remove(key);
        }
    }
}
