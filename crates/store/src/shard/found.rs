//! An item as it was found.

use tidemark_types::UnixMs;

use super::{Value, second_of};
use crate::arena::Arena;
use crate::item::{Attributes, Item};

/// An item that was found, readable while the shard is borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    pub(super) item: Item<'a>,
    pub(super) arena: &'a Arena,
    pub(super) was_used: bool,
    pub(super) accessed: u16,
}

impl<'a> Found<'a> {
    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'a> {
        Value::of(self.item, self.arena)
    }

    /// The memcached client's flags.
    #[inline]
    pub fn client_flags(&self) -> u32 {
        self.item.client_flags()
    }

    /// Everything besides key and value.
    pub fn attributes(&self) -> Attributes {
        self.item.attributes()
    }

    /// Bytes that the item takes in its segment.
    pub fn item_bytes(&self) -> usize {
        self.item.bytes()
    }

    /// Whether the item was read before this time.
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Seconds since the last access before this one: exact to a minute, counted modulo 18 hours.
    pub fn idle_seconds(&self, now: UnixMs) -> u16 {
        second_of(now).wrapping_sub(self.accessed)
    }
}
