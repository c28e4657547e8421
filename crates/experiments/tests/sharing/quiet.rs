//! Tenants that hold next to nothing, beside others that take all memory. Their fresh items stay, whether they come
//! back between rounds, in the middle of one, or while their memory is being taken back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemark_control::{Change, SettingsPatch};
use tidemark_experiments::node::{Load, Node};
use tidemark_store::{Attributes, TenantStore};
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::{MIB, UnixMs};

const SECOND: Duration = Duration::from_secs(1);
/// The clock's step.
const TICK: Duration = Duration::from_millis(10);
/// With the time that all of them take to come, five minutes, after which a tenant is idle.
const SILENCE: Duration = Duration::from_secs(286);
/// Ticks from one that comes to the next. They differ, so that some are silent for longer than others.
const APART_TICKS: [u32; 4] = [30, 33, 27, 30];
/// Comes and goes of quiet tenants: each at its own moment of a second.
const QUIET: usize = 40;
/// Keys of each, in all of its shards.
const KEYS: u8 = 12;
/// It stores one after the other, over several rounds.
const BETWEEN_KEYS: Duration = Duration::from_millis(170);
/// Its items are looked for until then, every tick.
const LOOKS: u32 = 250;

/// The action of a quiet tenant when it comes back.
#[derive(Clone, Copy, Debug)]
enum Before {
    Nothing,
    Flush,
    /// Everything of another database stays.
    FlushOne,
    /// One that was arranged before.
    FlushDue,
}

/// Stores one, asks twice for its token, and stores by that.
fn store_one(store: &Arc<TenantStore>, number: u8, now: UnixMs) -> Result<(), String> {
    let name = [b'k', number];
    let key = store.key(0, &name);
    let shard = store.shard_of(key.hash);
    let stored = store.put(&key, b"first", Attributes::default(), now);
    stored.map_err(|refused| format!("set {number}: {refused}"))?;
    let gets = || store.lock(shard).token(&key, now).ok().flatten();
    let (first, second) = (gets(), gets());
    if first.is_none() || first != second {
        return Err(format!("gets {number}: {first:?} {second:?}"));
    }
    let mut guard = store.lock(shard);
    let found = guard.peek(&key, now).map(|found| found.attributes().token);
    if found != Some(first) {
        return Err(format!("cas {number}: {found:?}"));
    }
    let attributes = Attributes {
        token: Some(guard.new_token()),
        ..Attributes::default()
    };
    let stored = guard.put(&key, b"other", attributes, now);
    stored.map_err(|refused| format!("cas {number}: {refused}"))
}

/// Finds the first keys, without a get, which would keep it from being idle.
fn look(store: &Arc<TenantStore>, keys: u8, now: UnixMs) -> Result<(), String> {
    for number in 0..keys {
        let name = [b'k', number];
        let key = store.key(0, &name);
        let mut guard = store.lock(store.shard_of(key.hash));
        let found = guard.peek(&key, now);
        if found.is_none_or(|found| !found.value().parts().flatten().eq(b"other")) {
            return Err(format!("{number} of {keys} is gone"));
        }
    }
    Ok(())
}

/// One that comes back at a moment.
struct Guest {
    name: String,
    due: UnixMs,
    /// In the middle of a round, or between two.
    is_in_round: bool,
    before: Before,
    /// Keys stored since then.
    stored: u8,
}

impl Guest {
    fn visit(&mut self, store: &Arc<TenantStore>, now: UnixMs) {
        match self.before {
            _ if self.stored > 0 => {}
            Before::Nothing => {}
            Before::Flush => store.flush(None, now),
            Before::FlushOne => store.flush(Some(0), now),
            Before::FlushDue => {
                store.flush_at(now);
                store.flush_if_due(now);
            }
        }
        let done = store_one(store, self.stored, now);
        self.stored += 1;
        self.due = now.plus(BETWEEN_KEYS);
        self.check(store, done, now);
    }

    fn check(&self, store: &Arc<TenantStore>, done: Result<(), String>, now: UnixMs) {
        let found = done.and_then(|()| look(store, self.stored, now));
        let Self {
            name,
            is_in_round,
            before,
            ..
        } = self;
        let at = now.seconds();
        assert_eq!(found, Ok(()), "{name} {before:?} in a round {is_in_round}, at {at} s");
    }

    fn is_due(&self, now: UnixMs) -> bool {
        self.stored < KEYS && self.due <= now
    }
}

/// A pool that others fill and want more of, and those who will be silent.
fn crowded() -> (Node, Vec<String>) {
    let mut node = Node::new(256 * MIB, 2, 1).unwrap();
    for (seed, name) in (1..).zip(["hungry", "thirsty"]) {
        node.create(name, SettingsPatch::default()).unwrap();
        let workload = Workload {
            seed,
            ..Workload::gets(1_000_000, Distribution::Uniform, 16, 16_000)
        };
        node.load(name, &Load { workload, rate: 300.0 }).unwrap();
    }
    let names: Vec<String> = (0..QUIET).map(|number| format!("quiet-{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let settings = SettingsPatch {
            floor_bytes: if number % 4 < 2 { Change::Set(MIB) } else { Change::Keep },
            ..SettingsPatch::default()
        };
        node.create(name, settings).unwrap();
    }
    node.run(60 * SECOND);
    (node, names)
}

#[test]
fn who_comes_back_to_a_full_pool_keeps_what_it_stores() {
    let (mut node, names) = crowded();
    let guests: Arc<Mutex<Vec<Guest>>> = Arc::default();
    let in_rounds = Arc::clone(&guests);
    node.meanwhile(move |visits| {
        let now = visits.now();
        for guest in in_rounds.lock().unwrap().iter_mut() {
            if guest.is_in_round && guest.is_due(now) {
                let name = guest.name.clone();
                visits.visit(&name, |store, now| guest.visit(store, now));
            }
        }
    });
    let flushes = [Before::Nothing, Before::Flush, Before::FlushOne, Before::FlushDue];
    let mut taken = 0;
    for (cycle, apart) in (0..).zip(APART_TICKS) {
        // In the first cycle they are new, in the others they come as their memory is about to be taken or just was.
        node.run(if cycle == 0 { SECOND } else { SILENCE });
        let held = |node: &Node| {
            names
                .iter()
                .filter(|name| node.store(name).unwrap().usage_bytes() > 0)
                .count()
        };
        let held_before = held(&node);
        let begin = node.now();
        *guests.lock().unwrap() = (0..)
            .zip(&names)
            .map(|(number, name)| Guest {
                name: name.clone(),
                due: begin.plus(TICK * (apart * number)),
                is_in_round: (number + cycle) % 2 == 0,
                before: flushes[((number / 2 + cycle) % 4) as usize],
                stored: 0,
            })
            .collect();
        let mut left = LOOKS;
        while left > 0 {
            for guest in guests.lock().unwrap().iter_mut() {
                let (store, now) = (node.store(&guest.name).unwrap(), node.now());
                if guest.stored > 0 {
                    guest.check(&store, Ok(()), now);
                }
                if !guest.is_in_round && guest.is_due(now) {
                    let name = guest.name.clone();
                    node.visit(&name, |store, now| guest.visit(store, now)).unwrap();
                }
            }
            node.run(TICK);
            let all_came = guests.lock().unwrap().iter().all(|guest| guest.stored > 0);
            left -= u32::from(all_came);
        }
        taken += held_before;
        let evicted: u64 = names
            .iter()
            .map(|name| node.store(name).unwrap().sum(|shard| shard.counters().evicted))
            .sum();
        println!("cycle {cycle}: {held_before} held something before, {evicted} items were evicted");
    }
    assert!(taken > QUIET, "{taken}");
}
