//! The place below memory: items that memory gives up go there, and items that are asked for again come back.
//!
//! Invariant: of an item that lies below and in memory, both are the same. Every change of a key makes what lies below of it
//! out of date under the same lock.

use tidemark_types::UnixMs;

use super::write::Origin;
use super::{Key, Refused, Shard, Value, second_of};
use crate::hash::KeyHash;
use crate::item::{Attributes, Draft};
use crate::shared::Leaving;

impl Shard {
    /// Whether something lies below the tenant's memory.
    #[inline]
    pub(super) fn has_below(&self) -> bool {
        self.shared.below().is_some()
    }

    /// Makes the copies of a key below memory out of date.
    #[inline]
    pub(super) fn forget_below(&self, key: &Key<'_>) {
        if let Some(below) = self.shared.below() {
            below.forget(key.hash);
        }
    }

    /// Hands an item down that is about to be evicted.
    #[inline]
    pub(super) fn demote(&self, place: u64, hash: KeyHash) {
        if self.has_below() {
            self.hand_down(place, hash);
        }
    }

    #[cold]
    fn hand_down(&self, place: u64, hash: KeyHash) {
        let Some(below) = self.shared.below() else { return };
        let item = self.item(place);
        let attributes = item.attributes();
        if attributes.stale || attributes.won {
            // Marks are not kept below, and an item without them would pass for a fresh one.
            return below.forget(hash);
        }
        let ghosts = self.ghosts.as_ref();
        below.demote(&Leaving {
            key: Key {
                db: item.db(),
                bytes: item.key(),
                hash,
            },
            value: Value::of(item, self.arena()),
            attributes,
            was_used: item.is_used() || ghosts.is_some_and(|ghosts| ghosts.contains(self.arena(), hash)),
        });
    }

    /// Takes an item back that lay below, unless the key has one. It is no write: nothing is counted or recorded.
    pub(crate) fn restore(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: Attributes,
        now: UnixMs,
    ) -> Result<(), Refused> {
        if self.peek(key, now).is_some() {
            return Ok(());
        }
        if let Some(token) = attributes.token {
            self.note_token(token);
        }
        if value.len() > self.inline_value_max() {
            return self.put_large(key, value, attributes, Origin::Below, now);
        }
        let draft = Draft {
            db: key.db,
            key: key.bytes,
            value,
            is_stub: false,
            attributes,
            accessed: second_of(now),
        };
        self.append(key, None, &draft, Origin::Below, now)
    }
}
