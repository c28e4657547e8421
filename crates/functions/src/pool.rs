//! Which chunks lie in which functions. Pure: the proxy carries its decisions out.
//!
//! Invariant: a function's room counts every chunk that the pool believes to be there or on its way there. The chunks of a
//! stripe lie in distinct functions. The stripes of an *extent* (16 of them) share functions where room allows, so that one
//! invocation of each serves them all. Functions beyond those that take new chunks are emptied: their chunks move ([`moves`]).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::Code;
use crate::chunk::{Announced, ChunkKey, ContentId, mark};
use crate::clock_order::ClockOrder;
use crate::codec::chunk_bytes;

mod moves;

pub use moves::Move;

/// Stripes that share functions.
const EXTENT_STRIPES: u32 = 16;
/// Functions that are taken into use together, as many as a stripe of 10+2 needs.
pub const STEP_FUNCTIONS: usize = 12;
/// From this occupancy on, more functions are taken into use, if there are more.
const GROW_OCCUPANCY_PERCENT: u64 = 90;
/// Below this occupancy of the remaining ones, functions take no new chunks, and are emptied.
const SHRINK_OCCUPANCY_PERCENT: u64 = 60;
/// Chunks to delete that are remembered of a function; more are found when it lists its chunks.
const TRASH_MAX: usize = 65_536;

/// Objects of which nothing is left that are remembered until they are taken.
const GONE_MAX: usize = 65_536;

/// The place of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// How it is coded.
    pub code: Code,
    /// Its bytes.
    pub bytes: u32,
    /// The function of each chunk.
    pub homes: Arc<[u16]>,
    /// The hash of each.
    pub hashes: Arc<[u64]>,
    /// Which are known to be lost: a bit each.
    pub lost: u64,
}

impl Stripe {
    /// Whether a chunk is not known to be lost.
    pub fn has(&self, index: usize) -> bool {
        self.lost & (1 << index) == 0
    }

    /// How many chunks are not known to be lost.
    pub fn left(&self) -> u32 {
        self.code.chunks() - self.lost.count_ones()
    }
}

/// The place of a new stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How it is to be coded.
    pub code: Code,
    /// The function of each chunk.
    pub homes: Arc<[u16]>,
    /// Objects that were evicted for it.
    pub evicted: Vec<ContentId>,
}

/// The chunks that a function announced, compared with those that it should hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Chunks that it has lost.
    pub lost: usize,
    /// Chunks that nobody wants any more, or that are other bytes.
    pub unknown: usize,
    /// Stripes that cannot be read any more.
    pub reset: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    code: Code,
    /// The account that pays for it.
    account: Option<u32>,
    stripes: HashMap<u32, Slot>,
    homes: HashMap<u32, Arc<[u16]>>,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Its chunks are on their way.
    Placing {
        homes: Arc<[u16]>,
        bytes: u32,
    },
    Placed(Stripe),
}

impl Slot {
    fn homes(&self) -> &Arc<[u16]> {
        match self {
            Self::Placing { homes, .. } => homes,
            Self::Placed(stripe) => &stripe.homes,
        }
    }

    fn bytes(&self) -> u32 {
        match self {
            Self::Placing { bytes, .. } => *bytes,
            Self::Placed(stripe) => stripe.bytes,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Function {
    used_bytes: u64,
    /// The chunks that should be there.
    chunks: HashSet<ChunkKey>,
    /// The sum of the marks of all that it said it stored and did not say it deleted.
    hash: u64,
    marks: HashMap<ChunkKey, u64>,
    trash: Vec<ChunkKey>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pool {
    functions: Vec<Function>,
    room_bytes: u64,
    /// Those from 0 on take new chunks.
    taking: usize,
    least_in_use: usize,
    entries: HashMap<ContentId, Entry>,
    order: ClockOrder<ContentId>,
    /// Objects of which nothing is left, since they were taken.
    gone: Vec<ContentId>,
}

impl Pool {
    /// Over so many functions with room for so many bytes of chunks each. At least `least_in_use` of them are in use.
    pub fn new(functions: usize, room_bytes: u64, least_in_use: usize) -> Self {
        let least_in_use = least_in_use.min(functions);
        Self {
            functions: vec![Function::default(); functions],
            room_bytes,
            taking: least_in_use,
            least_in_use,
            entries: HashMap::new(),
            order: ClockOrder::default(),
            gone: Vec::new(),
        }
    }

    /// Finds functions for a stripe of an object, evicts others if there is no room, and reserves it. `None`: it is there, or
    /// on its way, or cannot be placed.
    pub fn place(&mut self, content: ContentId, code: Code, stripe: u32, bytes: u32) -> Option<Placement> {
        let code = self.entries.get(&content).map_or(code, |entry| entry.code);
        let is_there = self
            .entries
            .get(&content)
            .is_some_and(|entry| entry.stripes.contains_key(&stripe));
        let (chunks, each) = (code.chunks() as usize, chunk_bytes(code, bytes as usize) as u64);
        if is_there || bytes == 0 || chunks > self.functions.len() || each > self.room_bytes {
            return None;
        }
        self.grow_for(chunks, each * chunks as u64);
        let mut evicted = Vec::new();
        let homes = loop {
            if let Some(homes) = self.choose(content, stripe, chunks, each) {
                break homes;
            }
            let victim = self.order.victim(|other| *other == content)?;
            self.forget(&victim);
            evicted.push(victim);
        };
        let entry = self.entries.entry(content).or_insert_with(|| Entry {
            code,
            account: None,
            stripes: HashMap::new(),
            homes: HashMap::new(),
        });
        entry.homes.insert(stripe / EXTENT_STRIPES, Arc::clone(&homes));
        let slot = Slot::Placing {
            homes: Arc::clone(&homes),
            bytes,
        };
        entry.stripes.insert(stripe, slot);
        self.order.touch(content);
        for (index, &home) in homes.iter().enumerate() {
            let function = &mut self.functions[usize::from(home)];
            function.used_bytes += each;
            function
                .chunks
                .insert(ChunkKey::new(content, stripe, index as u8, code));
        }
        Some(Placement { code, homes, evicted })
    }

    /// Those of the extent if all have room, or the emptiest.
    fn choose(&self, content: ContentId, stripe: u32, chunks: usize, each: u64) -> Option<Arc<[u16]>> {
        let has_room = |home: usize| home < self.taking && self.functions[home].used_bytes + each <= self.room_bytes;
        let entry = self.entries.get(&content);
        if let Some(homes) = entry.and_then(|entry| entry.homes.get(&(stripe / EXTENT_STRIPES)))
            && homes.iter().all(|home| has_room(usize::from(*home)))
        {
            return Some(Arc::clone(homes));
        }
        let mut open: Vec<usize> = (0..self.taking).filter(|home| has_room(*home)).collect();
        if open.len() < chunks {
            return None;
        }
        // Ties are broken by the content, so that equal functions share the load.
        let salt = u64::from_be_bytes([
            content[0], content[1], content[2], content[3], content[4], content[5], 0, 0,
        ]);
        let turn = |home: usize| (home as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        open.sort_by_key(|&home| (self.functions[home].used_bytes, turn(home)));
        Some(open[..chunks].iter().map(|&home| home as u16).collect())
    }

    fn grow_for(&mut self, chunks: usize, more_bytes: u64) {
        let is_short = |pool: &Self| {
            let room = pool.taking as u64 * pool.room_bytes;
            pool.taking < chunks || (pool.used_bytes() + more_bytes) * 100 > room * GROW_OCCUPANCY_PERCENT
        };
        while self.taking < self.functions.len() && is_short(self) {
            self.taking = (self.taking + STEP_FUNCTIONS).min(self.functions.len());
        }
    }

    /// Has functions take no new chunks where the others have room to spare for all. Returns how many.
    pub fn shrink(&mut self) -> usize {
        let (used, before) = (self.used_bytes(), self.taking);
        let is_enough = |left: usize| {
            left >= self.least_in_use && used * 100 <= left as u64 * self.room_bytes * SHRINK_OCCUPANCY_PERCENT
        };
        let mut left = before;
        while left > 0 && is_enough(left - 1) {
            left -= 1;
        }
        self.taking = left;
        before - left
    }

    /// All chunks of a stripe that was placed are stored, but those that are `lost`. Whether it is still wanted, and readable.
    pub fn commit(&mut self, content: ContentId, stripe: u32, hashes: Arc<[u64]>, lost: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&content) else {
            return false;
        };
        let code = entry.code;
        let Some(slot) = entry.stripes.get_mut(&stripe) else {
            return false;
        };
        let Slot::Placing { homes, bytes } = slot else {
            return false;
        };
        let placed = Stripe {
            code,
            bytes: *bytes,
            homes: Arc::clone(homes),
            hashes,
            lost,
        };
        *slot = Slot::Placed(placed.clone());
        if placed.left() < code.data() {
            self.forget_stripe(content, stripe);
            return false;
        }
        true
    }

    /// Takes a stripe back as it was remembered: at the start.
    pub fn restore(&mut self, content: ContentId, stripe: u32, placed: Stripe) {
        let is_known = |home: &u16| usize::from(*home) < self.functions.len();
        if placed.homes.len() != placed.code.chunks() as usize || !placed.homes.iter().all(is_known) {
            return;
        }
        let each = chunk_bytes(placed.code, placed.bytes as usize) as u64;
        for (index, &home) in placed.homes.iter().enumerate() {
            let key = ChunkKey::new(content, stripe, index as u8, placed.code);
            self.taking = self.taking.max(usize::from(home) + 1);
            let function = &mut self.functions[usize::from(home)];
            function.used_bytes += each;
            function.chunks.insert(key);
            if placed.has(index) {
                self.stored(home, &key, placed.hashes[index]);
            }
        }
        let entry = self.entries.entry(content).or_insert_with(|| Entry {
            code: placed.code,
            account: None,
            stripes: HashMap::new(),
            homes: HashMap::new(),
        });
        entry.stripes.insert(stripe, Slot::Placed(placed));
        self.order.touch(content);
    }

    /// The place of a stripe. The call counts as a use of its object.
    pub fn look(&mut self, content: &ContentId, stripe: u32) -> Option<Stripe> {
        let Slot::Placed(placed) = self.entries.get(content)?.stripes.get(&stripe)? else {
            return None;
        };
        let placed = placed.clone();
        self.order.touch(*content);
        Some(placed)
    }

    /// Notes that a chunk is lost. Whether its stripe can still be read; if not, it is forgotten.
    pub fn lose(&mut self, key: &ChunkKey) -> bool {
        let Some(stripe) = self.placed_mut(key) else {
            return true;
        };
        stripe.lost |= 1 << key.index;
        let (is_readable, home) = (
            stripe.left() >= stripe.code.data(),
            stripe.homes[usize::from(key.index)],
        );
        self.deleted(home, key);
        if !is_readable {
            self.forget_stripe(key.content, key.stripe);
        }
        is_readable
    }

    /// Notes that a lost chunk was put back.
    pub fn found(&mut self, key: &ChunkKey) {
        if let Some(stripe) = self.placed_mut(key) {
            stripe.lost &= !(1 << key.index);
        }
    }

    fn placed_mut(&mut self, key: &ChunkKey) -> Option<&mut Stripe> {
        match self.entries.get_mut(&key.content)?.stripes.get_mut(&key.stripe)? {
            Slot::Placed(stripe) if usize::from(key.index) < stripe.homes.len() => Some(stripe),
            _ => None,
        }
    }

    /// Forgets an object: its chunks are deleted when their functions run next. Whether it was there.
    pub fn forget(&mut self, content: &ContentId) -> bool {
        let Some(entry) = self.entries.get(content) else {
            return false;
        };
        let mut stripes: Vec<u32> = entry.stripes.keys().copied().collect();
        stripes.sort_unstable();
        stripes.iter().for_each(|&stripe| self.forget_stripe(*content, stripe));
        true
    }

    /// Forgets a stripe.
    pub fn forget_stripe(&mut self, content: ContentId, stripe: u32) {
        let Some(entry) = self.entries.get_mut(&content) else {
            return;
        };
        let code = entry.code;
        let Some(slot) = entry.stripes.remove(&stripe) else {
            return;
        };
        let each = chunk_bytes(code, slot.bytes() as usize) as u64;
        for (index, &home) in slot.homes().iter().enumerate() {
            let key = ChunkKey::new(content, stripe, index as u8, code);
            let function = &mut self.functions[usize::from(home)];
            function.used_bytes -= each;
            function.chunks.remove(&key);
            if function.trash.len() < TRASH_MAX {
                function.trash.push(key);
            }
        }
        let is_empty = self.entries.get(&content).is_some_and(|entry| entry.stripes.is_empty());
        if is_empty {
            self.entries.remove(&content);
            self.order.remove(&content);
            if self.gone.len() < GONE_MAX {
                self.gone.push(content);
            }
        }
    }

    /// Objects of which nothing is left, whatever became of it, since the last call.
    pub fn take_gone(&mut self) -> Vec<ContentId> {
        std::mem::take(&mut self.gone)
    }

    /// The function says that it stored a chunk.
    pub fn stored(&mut self, function: u16, key: &ChunkKey, hash: u64) {
        let mark = mark(key, hash);
        let function = &mut self.functions[usize::from(function)];
        let before = function.marks.insert(*key, mark).unwrap_or(0);
        function.hash = function.hash.wrapping_sub(before).wrapping_add(mark);
    }

    /// The function says that it has a chunk no more.
    pub fn deleted(&mut self, function: u16, key: &ChunkKey) {
        let function = &mut self.functions[usize::from(function)];
        if let Some(mark) = function.marks.remove(key) {
            function.hash = function.hash.wrapping_sub(mark);
        }
    }

    /// The hash of all that a function should hold.
    pub fn hash(&self, function: u16) -> u64 {
        self.functions[usize::from(function)].hash
    }

    /// Chunks that a function is to delete, which are its no more from now on.
    pub fn take_trash(&mut self, function: u16, most: usize) -> Vec<ChunkKey> {
        let function = &mut self.functions[usize::from(function)];
        let from = function.trash.len().saturating_sub(most);
        let mut taken = function.trash.split_off(from);
        // Chunks that were put there again meanwhile stay.
        taken.retain(|key| !function.chunks.contains(key));
        taken
    }

    /// Compares a function's chunks with those that it should hold.
    pub fn reconcile(&mut self, function: u16, held: &[Announced]) -> Reconciled {
        let there: HashMap<ChunkKey, u64> = held.iter().map(|chunk| (chunk.key, chunk.hash)).collect();
        let mut result = Reconciled::default();
        let known = &mut self.functions[usize::from(function)];
        known.marks.clear();
        known.hash = 0;
        for (key, hash) in &there {
            self.stored(function, key, *hash);
        }
        for key in self.wanted(function) {
            // One that is to move here may not have arrived yet.
            let lives_here = |stripe: &&mut Stripe| stripe.homes[usize::from(key.index)] == function;
            let Some(right) = self
                .placed_mut(&key)
                .filter(lives_here)
                .map(|stripe| stripe.hashes[usize::from(key.index)])
            else {
                continue;
            };
            if there.get(&key) == Some(&right) {
                self.found(&key);
                continue;
            }
            result.lost += 1;
            let is_held = there.contains_key(&key);
            result.reset += usize::from(!self.lose(&key));
            if is_held {
                result.unknown += 1;
                self.discard(function, key);
            }
        }
        let function_chunks = &self.functions[usize::from(function)].chunks;
        let unknown: Vec<ChunkKey> = held
            .iter()
            .map(|chunk| chunk.key)
            .filter(|key| !function_chunks.contains(key))
            .collect();
        result.unknown += unknown.len();
        unknown.into_iter().for_each(|key| self.discard(function, key));
        result
    }

    /// The chunks that a function should hold, in an order that equal pools share.
    fn wanted(&self, function: u16) -> Vec<ChunkKey> {
        let mut keys: Vec<ChunkKey> = self.functions[usize::from(function)].chunks.iter().copied().collect();
        keys.sort_unstable();
        keys
    }

    fn discard(&mut self, function: u16, key: ChunkKey) {
        let trash = &mut self.functions[usize::from(function)].trash;
        if trash.len() < TRASH_MAX && !trash.contains(&key) {
            trash.push(key);
        }
    }

    /// The stripes of which a function should hold a chunk that is lost.
    pub fn homeless(&mut self, function: u16, most: usize) -> Vec<(ContentId, u32)> {
        let keys = self.wanted(function);
        let is_lost = |key: &ChunkKey| {
            let index = usize::from(key.index);
            self.placed_mut(key)
                .is_some_and(|stripe| stripe.homes[index] == function && !stripe.has(index))
        };
        let lost = keys.into_iter().filter(is_lost).take(most);
        lost.map(|key| (key.content, key.stripe)).collect()
    }

    /// An account pays for an object, unless another one does.
    pub fn own(&mut self, content: &ContentId, account: u32) {
        if let Some(entry) = self.entries.get_mut(content) {
            entry.account.get_or_insert(account);
        }
    }

    /// Bytes of chunks by who pays for them.
    pub fn held_by_account(&self) -> HashMap<u32, u64> {
        let mut held = HashMap::new();
        for entry in self.entries.values() {
            let Some(account) = entry.account else { continue };
            let chunks = u64::from(entry.code.chunks());
            let bytes = |slot: &Slot| chunk_bytes(entry.code, slot.bytes() as usize) as u64 * chunks;
            *held.entry(account).or_default() += entry.stripes.values().map(bytes).sum::<u64>();
        }
        held
    }

    /// Bytes of all chunks.
    pub fn used_bytes(&self) -> u64 {
        self.functions.iter().map(|function| function.used_bytes).sum()
    }

    /// Bytes that one function has of chunks.
    pub fn used_by(&self, function: u16) -> u64 {
        self.functions[usize::from(function)].used_bytes
    }

    /// Chunks that a function should hold.
    pub fn chunks_of(&self, function: u16) -> usize {
        self.functions[usize::from(function)].chunks.len()
    }

    /// How many functions take new chunks, or still hold some.
    pub fn in_use(&self) -> usize {
        let holds = |function: &Function| !function.chunks.is_empty();
        let holding = self.functions.iter().rposition(holds).map_or(0, |last| last + 1);
        holding.max(self.taking)
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.entries.len()
    }

    /// Whether something of an object is there.
    pub fn has_object(&self, content: &ContentId) -> bool {
        self.entries.contains_key(content)
    }

    /// All stripes that can be read, for tests and reports.
    pub fn stripes(&self) -> usize {
        let count = |entry: &Entry| entry.stripes.len();
        self.entries.values().map(count).sum()
    }
}

#[cfg(test)]
mod tests;
