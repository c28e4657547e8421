//! The CLOCK order of things: which goes next, and which were used last. Used by the pool over objects (who is evicted) and
//! by a function over chunks (who is backed up first). Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// Things in a circle with a hand. A use marks a thing; the hand takes the first that is not marked, and unmarks on its way.
#[derive(Clone, Debug)]
pub struct ClockOrder<K> {
    slots: Vec<Option<(K, bool)>>,
    places: HashMap<K, usize>,
    free: Vec<usize>,
    hand: usize,
}

impl<K> Default for ClockOrder<K> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            places: HashMap::new(),
            free: Vec::new(),
            hand: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> ClockOrder<K> {
    /// How many things there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Notes a use; a thing that is not there is put behind the hand.
    pub fn touch(&mut self, key: K) {
        if let Some(&place) = self.places.get(&key) {
            if let Some((_, is_marked)) = &mut self.slots[place] {
                *is_marked = true;
            }
            return;
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.slots[place] = Some((key, false));
                place
            }
            None => {
                self.slots.push(Some((key, false)));
                self.slots.len() - 1
            }
        };
        self.places.insert(key, place);
    }

    /// Takes a thing out.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(place) = self.places.remove(key) else {
            return false;
        };
        self.slots[place] = None;
        self.free.push(place);
        true
    }

    /// The thing that goes next, but none that `spares`. It stays until it is removed.
    pub fn victim(&mut self, spares: impl Fn(&K) -> bool) -> Option<K> {
        // Twice around: the first pass may only unmark.
        for _ in 0..self.slots.len().saturating_mul(2) {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.slots.len();
            if let Some((key, is_marked)) = &mut self.slots[place] {
                if spares(key) {
                    continue;
                }
                if !*is_marked {
                    return Some(*key);
                }
                *is_marked = false;
            }
        }
        None
    }

    /// All things, those first that the hand reaches last: most recently used to least (the order of a backup).
    pub fn from_most_recent(&self) -> Vec<K> {
        let around = (0..self.slots.len()).map(|step| (self.hand + self.slots.len() - 1 - step) % self.slots.len());
        let all: Vec<(K, bool)> = around.filter_map(|place| self.slots[place]).collect();
        let marked = all.iter().filter(|(_, is_marked)| *is_marked);
        let others = all.iter().filter(|(_, is_marked)| !*is_marked);
        marked.chain(others).map(|(key, _)| *key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(order: &mut ClockOrder<u32>) -> Option<u32> {
        let victim = order.victim(|_| false)?;
        order.remove(&victim);
        Some(victim)
    }

    #[test]
    fn what_was_used_goes_later() {
        let mut order = ClockOrder::default();
        (1..=4).for_each(|key| order.touch(key));
        order.touch(1);
        order.touch(3);
        assert_eq!(order.from_most_recent(), [3, 1, 4, 2]);
        let taken: Vec<u32> = std::iter::from_fn(|| take(&mut order)).collect();
        assert_eq!(taken, [2, 4, 1, 3]);
        assert!(order.is_empty() && order.victim(|_| false).is_none());
    }

    #[test]
    fn some_are_spared() {
        let mut order = ClockOrder::default();
        (1..=3).for_each(|key| order.touch(key));
        assert_eq!(order.victim(|key| *key != 3), Some(3));
        assert_eq!(order.victim(|_| true), None);
        assert!(order.remove(&2) && !order.remove(&2));
        order.touch(9);
        assert_eq!(
            (order.len(), order.from_most_recent().len()),
            (3, 3),
            "a free slot is used again"
        );
    }
}
