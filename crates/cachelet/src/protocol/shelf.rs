//! The copies of a cachelet, within its budget.
//!
//! The shelf decides which copies there are; the shell may keep their bytes ([`Bodies::Outside`]). The shelf then asks it to keep or
//! drop them. Invariant: each copy has the name of its own bytes. So bytes of another copy are never taken for them, whatever the
//! shell has lost, and in whichever order it acts.

use std::collections::BTreeMap;

use crate::config::Replacement;
use crate::config::replacement::Order;
use crate::message::{Content, Fill, Have, Output};
use crate::types::{BodyName, Held, Key, Stamp, Version};

/// Memory that a copy takes beside its value: key, stamp, version and places in the maps.
pub const COPY_OVERHEAD_BYTES: u64 = 64;

/// The keeper of copies' bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bodies {
    /// The cachelet itself.
    #[default]
    Here,
    /// The shell: see [`Output::Keep`].
    Outside,
}

/// Whether a copy may be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It is current while the lease holds and no invalidation came.
    Valid,
    /// It must be validated first, under every protocol.
    Must,
    /// It waits for the second phase of an update.
    Staged,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Copy {
    /// The content; `Content::Same` does not occur.
    pub content: Content,
    /// Its place in the order.
    pub stamp: Stamp,
    /// Its version, if the store has it.
    pub version: Option<Version>,
    /// Whether it may be served.
    pub state: State,
    /// When the request was sent that last showed it to be current.
    pub validated_at_us: u64,
}

impl Copy {
    /// The copy as its reader states it.
    #[must_use]
    pub fn have(&self) -> Have {
        Have {
            stamp: self.stamp,
            version: self.version.clone(),
        }
    }

    /// Whether an answer that a copy is current is about this one.
    #[must_use]
    pub fn is_meant_by(&self, fill: &Fill) -> bool {
        self.stamp == fill.stamp || (self.version.is_some() && self.version == fill.version)
    }

    /// The name of its bytes, if the shell keeps them.
    fn body(&self) -> Option<&BodyName> {
        match &self.content {
            Content::Is(value) => value.outside(),
            Content::Same | Content::Nothing => None,
        }
    }

    fn bytes(&self) -> u64 {
        let value = match &self.content {
            Content::Is(value) => value.size_bytes,
            Content::Same | Content::Nothing => 0,
        };
        value + COPY_OVERHEAD_BYTES
    }
}

/// The copies of a cachelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Shelf {
    copies: BTreeMap<Key, Copy>,
    order: Order,
    policy: Replacement,
    used_bytes: u64,
    budget_bytes: u64,
    bodies: Bodies,
    next_body: u64,
    /// Bodies that the shell is to keep, and to drop, until the end of the step.
    to_keep: Vec<Output>,
    to_drop: Vec<Output>,
}

impl Shelf {
    /// An empty shelf.
    pub(super) fn new(policy: Replacement, budget_bytes: u64, bodies: Bodies) -> Self {
        Self {
            copies: BTreeMap::new(),
            order: Order::default(),
            policy,
            used_bytes: 0,
            budget_bytes,
            bodies,
            next_body: 1,
            to_keep: Vec::new(),
            to_drop: Vec::new(),
        }
    }

    /// Puts what the shell is asked for around the other actions of a step. Bytes are there before anybody is told of them, and
    /// are dropped after the last use.
    pub(super) fn ask_shell(&mut self, outputs: Vec<Output>) -> Vec<Output> {
        if self.to_keep.is_empty() && self.to_drop.is_empty() {
            return outputs;
        }
        let mut all = std::mem::take(&mut self.to_keep);
        all.extend(outputs);
        all.append(&mut self.to_drop);
        all
    }

    /// The shell has lost a copy's bytes, and with them the copy is gone.
    pub(super) fn lose(&mut self, name: &BodyName) {
        if self.copies.get(&name.key).and_then(Copy::body) == Some(name) {
            self.take(&name.key);
        }
    }

    /// How many copies there are.
    pub(super) fn count(&self) -> usize {
        self.copies.len()
    }

    /// A copy.
    pub(super) fn get(&self, key: &Key) -> Option<&Copy> {
        self.copies.get(key)
    }

    /// A copy, to change its state.
    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Copy> {
        self.copies.get_mut(key)
    }

    /// Every copy, to change its state.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Copy)> {
        self.copies.iter_mut()
    }

    /// Keeps the copies that are to be kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&Key, &Copy) -> bool) {
        let dropped = self.copies.iter().filter(|(key, copy)| !is_kept(key, copy));
        let dropped: Vec<_> = dropped.map(|(key, _)| key.clone()).collect();
        for key in dropped {
            self.remove(&key);
        }
    }

    /// Says that a copy was served.
    pub(super) fn touch(&mut self, key: &Key, now_us: u64) {
        self.order.touch(self.policy, key, now_us);
    }

    /// Keeps a copy, in place of an older one, if it fits the budget; whether it did.
    pub(super) fn insert(&mut self, key: &Key, mut copy: Copy, now_us: u64) -> bool {
        let old_body = self.copies.get(key).and_then(Copy::body);
        if copy.body().is_some() && copy.body() != old_body {
            // The copy that was asked about went meanwhile, and its bytes with it.
            return false;
        }
        let bytes = copy.bytes();
        if bytes > self.budget_bytes {
            self.remove(key);
            return false;
        }
        self.hand_out(key, &mut copy);
        if let Some(old) = self.copies.remove(key) {
            self.used_bytes -= old.bytes();
            // Bytes that are kept for the key take the place of those before.
            self.to_drop
                .extend(old.body().filter(|_| copy.body().is_none()).cloned().map(Output::Drop));
        }
        self.used_bytes += bytes;
        self.order.insert(self.policy, key, bytes, now_us);
        self.copies.insert(key.clone(), copy);
        self.shrink();
        // If the policy ranks it lowest, it is the first to go.
        self.copies.contains_key(key)
    }

    /// Has the shell keep the bytes of a new copy, if it is the one to do so.
    fn hand_out(&mut self, key: &Key, copy: &mut Copy) {
        if self.bodies == Bodies::Here {
            return;
        }
        let Content::Is(value) = &mut copy.content else { return };
        if value.outside().is_some() {
            return;
        }
        let name = BodyName {
            key: key.clone(),
            number: self.next_body,
        };
        self.next_body += 1;
        self.to_keep.push(Output::Keep {
            name: name.clone(),
            value: value.clone(),
        });
        value.held = Held::Outside(name);
    }

    /// Drops a copy.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Copy> {
        let copy = self.take(key)?;
        self.to_drop.extend(copy.body().cloned().map(Output::Drop));
        Some(copy)
    }

    fn take(&mut self, key: &Key) -> Option<Copy> {
        let copy = self.copies.remove(key)?;
        self.used_bytes -= copy.bytes();
        self.order.forget(key);
        Some(copy)
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.retain(|_, _| false);
        self.order = Order::default();
    }

    /// Copies beyond the budget are dropped at once.
    pub(super) fn set_budget(&mut self, budget_bytes: u64) {
        self.budget_bytes = budget_bytes;
        self.shrink();
    }

    /// From now on, copies go in this policy's order; those that are here keep their places until they are used.
    pub(super) fn set_policy(&mut self, policy: Replacement) {
        self.policy = policy;
    }

    /// The bytes of the copies.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn shrink(&mut self) {
        while self.used_bytes > self.budget_bytes {
            let Some(victim) = self.order.evict(self.policy) else {
                return;
            };
            self.remove(&victim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Value;

    fn copy(size_bytes: u64) -> Copy {
        Copy {
            content: Content::Is(Value::simulated(1, size_bytes)),
            stamp: Stamp::default(),
            version: None,
            state: State::Valid,
            validated_at_us: 0,
        }
    }

    #[test]
    fn the_budget_is_kept() {
        let mut shelf = Shelf::new(Replacement::Fifo, 1_000, Bodies::Here);
        for number in 0..20 {
            shelf.insert(&Key::new(&format!("k{number}")), copy(36 + number), 0);
            assert!(shelf.used_bytes() <= 1_000);
        }
        assert!(shelf.get(&Key::new("k0")).is_none() && shelf.get(&Key::new("k19")).is_some());
        assert!(
            !shelf.insert(&Key::new("k19"), copy(2_000), 0),
            "larger than the budget"
        );
        assert!(shelf.get(&Key::new("k19")).is_none(), "the old content is gone, too");
        shelf.set_budget(0);
        assert_eq!(shelf.used_bytes(), 0);
    }

    #[test]
    fn the_shell_keeps_the_bytes_of_each_copy_until_it_goes() {
        let mut shelf = Shelf::new(Replacement::Fifo, 1_000, Bodies::Outside);
        let key = |name: &str| Key::new(name);
        let name = |key: &str, number| BodyName {
            key: Key::new(key),
            number,
        };
        // The names that are kept and dropped.
        let asked = |shelf: &mut Shelf| {
            let outputs = shelf.ask_shell(Vec::new());
            let of = |output: &Output| match output {
                Output::Keep { name, .. } => (true, name.clone()),
                Output::Drop(name) => (false, name.clone()),
                other => panic!("{other:?}"),
            };
            outputs.iter().map(of).collect::<Vec<_>>()
        };
        assert!(shelf.insert(&key("a"), copy(400), 0));
        assert_eq!(asked(&mut shelf), [(true, name("a", 1))]);
        // A newer one takes its place by itself.
        assert!(shelf.insert(&key("a"), copy(400), 0));
        assert_eq!(asked(&mut shelf), [(true, name("a", 2))]);
        // The same one with other facts stays.
        let same = shelf.get(&key("a")).unwrap().clone();
        assert!(shelf.insert(&key("a"), same.clone(), 0));
        assert!(asked(&mut shelf).is_empty());
        // There is room for one more, but not for two.
        assert!(shelf.insert(&key("b"), copy(400), 0));
        assert!(shelf.insert(&key("c"), copy(400), 0));
        assert_eq!(
            asked(&mut shelf),
            [(true, name("b", 3)), (true, name("c", 4)), (false, name("a", 2))]
        );
        assert!(!shelf.insert(&key("a"), same, 0), "its bytes are gone");
        // An object that is absent has no bytes.
        let nothing = Copy {
            content: Content::Nothing,
            ..copy(0)
        };
        assert!(shelf.insert(&key("b"), nothing, 0));
        assert_eq!(asked(&mut shelf), [(false, name("b", 3))]);
        // The shell lost bytes of a copy that is not there any more, and of one that is.
        shelf.lose(&name("c", 2));
        assert!(shelf.get(&key("c")).is_some());
        shelf.lose(&name("c", 4));
        assert!(shelf.get(&key("c")).is_none());
        assert!(asked(&mut shelf).is_empty());
        assert!(shelf.insert(&key("d"), copy(400), 0));
        shelf.clear();
        assert_eq!(asked(&mut shelf), [(true, name("d", 5)), (false, name("d", 5))]);
        assert_eq!(shelf.used_bytes(), 0);
    }
}
