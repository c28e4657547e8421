//! Weights in a row of slots, and how much lies behind a slot: the order statistics that reuse distances are made of.
//!
//! A tree of fixed width. A node holds, for each of its children, the sum of the children up to and with it. The weight
//! behind a slot therefore takes one line of memory per level. A change is an addition to neighbouring numbers, which
//! the processor does several at a time. Invariant: a node's last sum is the number that its parent counts it with.

/// Children of a node: two cache lines of sums.
const WIDTH: usize = 1 << WIDTH_BITS;
const WIDTH_BITS: usize = 4;

/// The sums of one node.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
struct Node([u64; WIDTH]);

impl Node {
    const EMPTY: Self = Self([0; WIDTH]);

    /// The weight of the children behind this one.
    #[inline]
    fn behind(&self, child: usize) -> u64 {
        self.0[WIDTH - 1] - self.0[child]
    }

    /// Adds to a child, and so to the sums of those behind it; a subtraction is the addition of its complement.
    #[inline]
    fn add(&mut self, child: usize, weight: u64) {
        // Without a branch, so that it becomes a few instructions on wide registers.
        for (place, sum) in self.0.iter_mut().enumerate() {
            *sum = sum.wrapping_add(if place >= child { weight } else { 0 });
        }
    }

    /// Turns weights into sums; gives the last.
    fn accumulate(&mut self) -> u64 {
        let mut sum = 0;
        for weight in &mut self.0 {
            sum += *weight;
            *weight = sum;
        }
        sum
    }
}

/// Weights by slot. All weights together stay below 2^64.
#[derive(Debug)]
pub(crate) struct Order {
    /// The levels, from the slots' to the root's.
    levels: Vec<Vec<Node>>,
    slots: usize,
}

impl Order {
    /// So many slots, of which the first have these weights and the others none.
    pub(crate) fn build(slots: usize, weights: impl Iterator<Item = u64>) -> Self {
        let mut level = vec![Node::EMPTY; slots.div_ceil(WIDTH).max(1)];
        for (slot, weight) in weights.enumerate() {
            level[slot / WIDTH].0[slot % WIDTH] = weight;
        }
        let mut levels = Vec::new();
        loop {
            let mut above = vec![Node::EMPTY; level.len().div_ceil(WIDTH)];
            for (place, node) in level.iter_mut().enumerate() {
                above[place / WIDTH].0[place % WIDTH] = node.accumulate();
            }
            let is_root = level.len() == 1;
            levels.push(level);
            if is_root {
                return Self { levels, slots };
            }
            level = above;
        }
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots
    }

    /// The weight behind a slot.
    pub(crate) fn behind(&self, slot: usize) -> u64 {
        let (mut place, mut behind) = (slot, 0);
        for level in &self.levels {
            behind += level[place >> WIDTH_BITS].behind(place % WIDTH);
            place >>= WIDTH_BITS;
        }
        behind
    }

    /// Adds to a slot's weight.
    #[inline]
    pub(crate) fn add(&mut self, slot: usize, weight: u64) {
        let mut place = slot;
        for level in &mut self.levels {
            level[place >> WIDTH_BITS].add(place % WIDTH, weight);
            place >>= WIDTH_BITS;
        }
    }

    /// Takes a slot's weight away, which has to be `weight`, and says what lies behind it.
    #[inline]
    pub(crate) fn take(&mut self, slot: usize, weight: u64) -> u64 {
        let (mut place, mut behind) = (slot, 0);
        for level in &mut self.levels {
            let node = &mut level[place >> WIDTH_BITS];
            behind += node.behind(place % WIDTH);
            node.add(place % WIDTH, weight.wrapping_neg());
            place >>= WIDTH_BITS;
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_a_slot_is_what_a_walk_finds() {
        for slots in [1, 15, 16, 17, 256, 257, 5000] {
            let mut weights: Vec<u64> = (0..slots as u64).map(|slot| slot * 7 % 31).collect();
            let mut order = Order::build(slots, weights.iter().copied());
            for step in 0..2000 {
                let slot = step * 131 % slots;
                let behind: u64 = weights[slot + 1..].iter().sum();
                assert_eq!(order.behind(slot), behind, "slot {slot} of {slots}");
                assert_eq!(order.take(slot, weights[slot]), behind, "slot {slot} of {slots}");
                weights[slot] = step as u64 % 97;
                order.add(slot, weights[slot]);
            }
        }
    }
}
