//! Moves of chunks out of functions that take no new ones, so that nothing is to be kept warm there.
//!
//! A chunk that moves has its place at both until it is stored at the other, and lives where it was until then.

use std::sync::Arc;

use super::{Pool, TRASH_MAX};
use crate::chunk::ChunkKey;
use crate::codec::chunk_bytes;

/// A chunk that is to move. It is to be reported with [`Pool::moved`] or [`Pool::stayed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Which.
    pub key: ChunkKey,
    /// Its hash.
    pub hash: u64,
    /// The function that it lives in.
    pub from: u16,
    /// The function that it is to live in.
    pub to: u16,
    bytes: u64,
}

impl Pool {
    /// Some chunks of functions that take no new ones, each with a function that has room for it.
    pub fn moves(&mut self, most: usize) -> Vec<Move> {
        let mut moves = Vec::new();
        for from in (self.taking..self.functions.len()).rev() {
            let keys = self.wanted(from as u16);
            let left = most - moves.len();
            moves.extend(
                keys.into_iter()
                    .filter_map(|key| self.reserve(key, from as u16))
                    .take(left),
            );
        }
        moves
    }

    fn reserve(&mut self, key: ChunkKey, from: u16) -> Option<Move> {
        let index = usize::from(key.index);
        let stripe = self.placed_mut(&key)?.clone();
        if stripe.homes[index] != from || !stripe.has(index) {
            return None;
        }
        let bytes = chunk_bytes(stripe.code, stripe.bytes as usize) as u64;
        let has_room = |to: &usize| {
            let function = &self.functions[*to];
            let is_free = !stripe.homes.contains(&(*to as u16)) && !function.chunks.contains(&key);
            is_free && function.used_bytes + bytes <= self.room_bytes
        };
        let open = (0..self.taking).filter(has_room);
        let to = open.min_by_key(|to| self.functions[*to].used_bytes)?;
        self.functions[to].used_bytes += bytes;
        self.functions[to].chunks.insert(key);
        Some(Move {
            key,
            hash: stripe.hashes[index],
            from,
            to: to as u16,
            bytes,
        })
    }

    /// The chunk is stored at its new place: it lives there from now on. Not if it is wanted no more, or elsewhere.
    pub fn moved(&mut self, moved: &Move) -> bool {
        let index = usize::from(moved.key.index);
        // It may have been forgotten and placed anew meanwhile.
        let is_same = |stripe: &&mut super::Stripe| {
            stripe.homes[index] == moved.from && stripe.hashes[index] == moved.hash && !stripe.homes.contains(&moved.to)
        };
        let Some(stripe) = self.placed_mut(&moved.key).filter(is_same) else {
            self.stayed(moved);
            return false;
        };
        let mut homes = stripe.homes.to_vec();
        homes[index] = moved.to;
        stripe.homes = Arc::from(homes);
        stripe.lost &= !(1 << index);
        self.leave(moved.from, moved);
        true
    }

    /// The chunk was not moved, as far as is known.
    pub fn stayed(&mut self, moved: &Move) {
        self.leave(moved.to, moved);
    }

    /// A chunk has its place at a function no more, unless it lives there.
    fn leave(&mut self, function: u16, moved: &Move) {
        let slot = self
            .entries
            .get(&moved.key.content)
            .and_then(|entry| entry.stripes.get(&moved.key.stripe));
        let lives_here = slot.is_some_and(|slot| slot.homes().get(usize::from(moved.key.index)) == Some(&function));
        let function = &mut self.functions[usize::from(function)];
        function.used_bytes -= moved.bytes;
        if !lives_here {
            function.chunks.remove(&moved.key);
            if function.trash.len() < TRASH_MAX {
                function.trash.push(moved.key);
            }
        }
    }
}
