//! The pool with functions that forget, come twice, lose replies and return damaged bytes: a thousand seeded schedules.
//!
//! The decisions are the product's ([`Pool`], [`Holding`], the codec); the proxy's tasks are replaced by calls one
//! after another, each of which may fail. Whatever happens, a read returns the bytes that were put, or nothing.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tidemark_functions::Code;
use tidemark_functions::backup::Sending;
use tidemark_functions::chunk::{ChunkKey, ContentId, chunk_hash};
use tidemark_functions::codec::{Rs, StripeCodec as _, chunk_bytes, encode};
use tidemark_functions::holding::Holding;
use tidemark_functions::pool::{Pool, Stripe};

const FUNCTIONS: u16 = 8;
const ROOM_BYTES: u64 = 6_000;
const OBJECTS: u64 = 6;
const STRIPES: u64 = 3;
const STEPS: usize = 150;
/// Schedules of an ordinary run; `TIDEMARK_SCHEDULES` asks for more.
const SCHEDULES: u64 = 1_000;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

struct World {
    dice: Dice,
    pool: Pool,
    code: Code,
    codec: Rs,
    /// The live instances of each function.
    instances: Vec<Vec<Holding<Bytes>>>,
    catalogue: HashMap<(ContentId, u32), Stripe>,
    hits: u64,
    backups: u64,
    moved: u64,
}

fn content(object: u64) -> ContentId {
    [object as u8 + 1; 16]
}

/// The bytes of a stripe; every content and number has other bytes and another length.
fn truth(object: u64, stripe: u32) -> Bytes {
    let mut dice = Dice(object * 1_000 + u64::from(stripe));
    let length = 1 + dice.below(4_000) as usize;
    (0..length).map(|_| dice.below(256) as u8).collect()
}

fn instance() -> Holding<Bytes> {
    // More than the pool believes: it counts nothing beside the bytes.
    Holding::new(4 * ROOM_BYTES)
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let codes = [(4, 2), (2, 1), (5, 1), (3, 0)];
        let (data, parity) = codes[dice.below(4) as usize];
        Self {
            dice,
            pool: Pool::new(FUNCTIONS.into(), ROOM_BYTES, 6),
            code: Code::new(data, parity).unwrap(),
            codec: Rs::default(),
            instances: (0..FUNCTIONS).map(|_| vec![instance()]).collect(),
            catalogue: HashMap::new(),
            hits: 0,
            backups: 0,
            moved: 0,
        }
    }

    /// An instance of a function answers, after its chunks were compared. `None`: it cannot be reached.
    fn connect(&mut self, function: u16) -> Option<usize> {
        if self.dice.percent(3) {
            return None;
        }
        let at = self.dice.below(self.instances[usize::from(function)].len() as u64) as usize;
        let holding = &mut self.instances[usize::from(function)][at];
        if holding.hash() != self.pool.hash(function) {
            self.pool.reconcile(function, &holding.list());
            assert_eq!(holding.hash(), self.pool.hash(function), "what was announced is known");
        }
        for key in self.pool.take_trash(function, 4) {
            holding.delete(&key);
            self.pool.deleted(function, &key);
        }
        Some(at)
    }

    /// Whether the proxy hears that it is stored.
    fn store(&mut self, function: u16, key: ChunkKey, bytes: Bytes) -> bool {
        let Some(at) = self.connect(function) else {
            return false;
        };
        let hash = chunk_hash(&bytes);
        let is_stored = self.instances[usize::from(function)][at].put(key, bytes, hash);
        if self.dice.percent(3) {
            return false;
        }
        if is_stored {
            self.pool.stored(function, &key, hash);
        }
        is_stored
    }

    fn put(&mut self, object: u64, number: u32) {
        let bytes = truth(object, number);
        let Some(placed) = self.pool.place(content(object), self.code, number, bytes.len() as u32) else {
            return;
        };
        placed
            .evicted
            .iter()
            .for_each(|evicted| self.catalogue.retain(|(known, _), _| known != evicted));
        let chunks = encode(&self.codec, self.code, &bytes).unwrap();
        let hashes: Arc<[u64]> = chunks.iter().map(|chunk| chunk_hash(chunk)).collect();
        let mut lost = 0;
        for (index, (&home, chunk)) in placed.homes.iter().zip(chunks).enumerate() {
            let key = ChunkKey::new(content(object), number, index as u8, self.code);
            if !self.store(home, key, chunk) {
                lost |= 1 << index;
            }
        }
        if self.pool.commit(content(object), number, hashes, lost)
            && let Some(stripe) = self.pool.look(&content(object), number)
            && self.dice.percent(95)
        {
            self.catalogue.insert((content(object), number), stripe);
        }
    }

    /// The chunks that can be had.
    fn gather(&mut self, object: u64, number: u32, stripe: &Stripe) -> Vec<Option<Bytes>> {
        let mut have = vec![None; stripe.homes.len()];
        for (index, &home) in stripe.homes.iter().enumerate() {
            let key = ChunkKey::new(content(object), number, index as u8, stripe.code);
            if !stripe.has(index) {
                continue;
            }
            let Some(at) = self.connect(home) else { continue };
            match self.instances[usize::from(home)][at].get(&key) {
                Some((bytes, _)) if chunk_hash(&bytes) == stripe.hashes[index] => have[index] = Some(bytes),
                _ => {
                    self.pool.lose(&key);
                }
            }
        }
        have
    }

    fn get(&mut self, object: u64, number: u32, seed: u64) {
        let Some(stripe) = self.pool.look(&content(object), number) else {
            return;
        };
        let data = stripe.code.data() as usize;
        let have = self.gather(object, number, &stripe);
        if have.iter().flatten().count() < data {
            return;
        }
        let lost: Vec<usize> = (0..have.len()).filter(|index| have[*index].is_none()).collect();
        let mut all = have.clone();
        if !lost.is_empty() {
            let computed = self.codec.rebuild(stripe.code, have, &lost).unwrap();
            for (index, chunk) in lost.into_iter().zip(computed) {
                assert_eq!(chunk_hash(&chunk), stripe.hashes[index], "seed {seed}");
                let key = ChunkKey::new(content(object), number, index as u8, stripe.code);
                // Put back, if the pool still wants it.
                let is_lost = self
                    .pool
                    .look(&content(object), number)
                    .is_some_and(|now| !now.has(index));
                if is_lost && self.store(stripe.homes[index], key, chunk.clone()) {
                    self.pool.found(&key);
                }
                all[index] = Some(chunk);
            }
        }
        let joined: Vec<u8> = all[..data].iter().flatten().flat_map(|chunk| chunk.to_vec()).collect();
        let right = truth(object, number);
        assert!(
            joined[..right.len()] == right[..],
            "seed {seed}: object {object}, stripe {number}"
        );
        self.hits += 1;
    }

    /// Functions that are not needed are emptied, and something else happens meanwhile.
    fn shrink(&mut self) {
        self.pool.shrink();
        let moves = self.pool.moves(4);
        let (object, number) = (self.dice.below(OBJECTS), self.dice.below(STRIPES) as u32);
        if self.dice.percent(20) {
            self.pool.forget(&content(object));
            self.catalogue.retain(|(known, _), _| *known != content(object));
        }
        if self.dice.percent(20) {
            self.put(object, number);
        }
        for one in &moves {
            let at = self.connect(one.from);
            let found = at.and_then(|at| self.instances[usize::from(one.from)][at].get(&one.key));
            let bytes = found
                .map(|(bytes, _)| bytes)
                .filter(|bytes| chunk_hash(bytes) == one.hash);
            let is_stored = bytes.is_some_and(|bytes| self.store(one.to, one.key, bytes));
            if !is_stored {
                self.pool.stayed(one);
            } else if self.pool.moved(one) {
                self.moved += 1;
                let number = one.key.stripe;
                if let Some(stripe) = self.pool.look(&one.key.content, number) {
                    self.catalogue.insert((one.key.content, number), stripe);
                }
            }
        }
    }

    /// The proxy ends at once and starts again.
    fn restart(&mut self) {
        self.pool = Pool::new(FUNCTIONS.into(), ROOM_BYTES, 6);
        for ((content, number), stripe) in &self.catalogue {
            let stripe = Stripe {
                lost: 0,
                ..stripe.clone()
            };
            self.pool.restore(*content, *number, stripe);
        }
    }

    /// A bit of some chunk flips.
    fn damage(&mut self, function: u16) {
        let holding = &mut self.instances[usize::from(function)][0];
        let Some(chunk) = holding.list().first().copied() else {
            return;
        };
        let (bytes, hash) = holding.get(&chunk.key).unwrap();
        let mut bytes = bytes.to_vec();
        bytes[0] ^= 1;
        holding.put(chunk.key, bytes.into(), hash);
    }

    /// Another instance of a function is brought in step with the first, which changes meanwhile; or it is broken off.
    fn back_up(&mut self, function: u16, seed: u64) {
        let instances = &mut self.instances[usize::from(function)];
        if instances.len() < 2 {
            instances.push(instance());
        }
        let mut destination = instances.pop().unwrap();
        let source = &mut instances[0];
        let mut sending = Sending::new(&source.list(), &destination.list());
        let mut under_way = VecDeque::new();
        let breaks_off_after = self.dice.below(60);
        let mut is_whole = false;
        for step in 0.. {
            if sending.is_done() && under_way.is_empty() {
                is_whole = true;
                break;
            }
            if self.dice.percent(30) && step > breaks_off_after {
                break;
            }
            let held = source.list();
            let some = |dice: &mut Dice| {
                held.get(dice.below(held.len().max(1) as u64) as usize)
                    .map(|chunk| chunk.key)
            };
            match self.dice.below(10) {
                0 => {
                    if let Some(key) = some(&mut self.dice) {
                        source.delete(&key);
                        self.pool.deleted(function, &key);
                        sending.changed(key);
                    }
                }
                1 => {
                    let key = ChunkKey::new([200; 16], self.dice.below(5) as u32, 0, self.code);
                    let bytes = Bytes::from(self.dice.below(1_000).to_be_bytes().to_vec());
                    let hash = chunk_hash(&bytes);
                    source.put(key, bytes, hash);
                    self.pool.stored(function, &key, hash);
                    sending.changed(key);
                }
                2 => some(&mut self.dice).into_iter().for_each(|key| sending.used(key)),
                3..7 => under_way.extend(sending.next_chunk().map(|key| (key, source.peek(&key)))),
                _ => {
                    if let Some((key, sent)) = under_way.pop_front() {
                        match sent {
                            Some((bytes, hash)) => {
                                assert!(destination.put(key, bytes, hash), "seed {seed}: there is room");
                            }
                            None => {
                                destination.delete(&key);
                            }
                        }
                        sending.answered(true);
                    }
                }
            }
        }
        if is_whole {
            assert_eq!(source.hash(), destination.hash(), "seed {seed}: they hold the same");
            self.backups += 1;
        }
        instances.push(destination);
    }

    fn step(&mut self, seed: u64) {
        let (object, number) = (self.dice.below(OBJECTS), self.dice.below(STRIPES) as u32);
        let function = self.dice.below(FUNCTIONS.into()) as u16;
        match self.dice.below(100) {
            0..35 => self.put(object, number),
            35..73 => self.get(object, number, seed),
            73..75 => self.back_up(function, seed),
            75..83 => self.instances[usize::from(function)] = vec![instance()],
            83..87 if self.instances[usize::from(function)].len() < 3 => {
                // A second instance of the name: empty, or as the first was when it was backed up.
                let copy = self.instances[usize::from(function)][0].clone();
                let second = if self.dice.percent(50) { copy } else { instance() };
                self.instances[usize::from(function)].push(second);
            }
            87..92 => self.damage(function),
            92..96 => {
                self.pool.forget(&content(object));
                self.catalogue.retain(|(known, _), _| *known != content(object));
            }
            96 => self.restart(),
            97 => self.shrink(),
            _ => {
                self.connect(function);
            }
        }
        self.check(seed);
    }

    /// Checks the conditions that hold at any time.
    fn check(&mut self, seed: u64) {
        let mut used = vec![0; usize::from(FUNCTIONS)];
        for object in 0..OBJECTS {
            for number in 0..STRIPES as u32 {
                let Some(stripe) = self.pool.look(&content(object), number) else {
                    continue;
                };
                let distinct: HashSet<u16> = stripe.homes.iter().copied().collect();
                assert_eq!(distinct.len(), stripe.homes.len(), "seed {seed}");
                assert!(stripe.left() >= stripe.code.data(), "seed {seed}: it can not be read");
                let each = chunk_bytes(stripe.code, stripe.bytes as usize) as u64;
                stripe.homes.iter().for_each(|home| used[usize::from(*home)] += each);
            }
        }
        for function in 0..FUNCTIONS {
            assert_eq!(
                self.pool.used_by(function),
                used[usize::from(function)],
                "seed {seed}: function {function}"
            );
        }
    }
}

#[test]
fn whatever_happens_bytes_are_right() {
    let asked = std::env::var("TIDEMARK_SCHEDULES")
        .ok()
        .and_then(|text| text.parse().ok());
    let (mut hits, mut backups, mut moved) = (0, 0, 0);
    for seed in 0..asked.unwrap_or(SCHEDULES) {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step(seed));
        hits += world.hits;
        backups += world.backups;
        moved += world.moved;
    }
    assert!(hits > SCHEDULES, "{hits} reads found something");
    assert!(backups > SCHEDULES, "{backups} backups were finished");
    assert!(moved > SCHEDULES / 10, "{moved} chunks moved");
}
