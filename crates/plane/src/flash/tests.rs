//! Memory and flash together, driven as a front does, without sockets.

use std::sync::Arc;

use tidemark_flash::device::SimDevice;
use tidemark_store::{Attributes, Hasher, KeeperInbox, Pool, TenantStore};
use tidemark_types::{DataPlane, MIB, ManualClock, Plan, TenantId, UnixMs};

use crate::tests::{Counting, tenant};
use crate::{Flash, Plane, PlaneParts, Purpose, Tier};

const NOW: UnixMs = UnixMs(1_000);
const MEMORY_BYTES: u64 = 8 * MIB;
const FLASH_BYTES: u64 = 96 * MIB;
const KEYS: u64 = 40_000;
/// A write drops what has its tag on flash unread, which one key in some thousands is taken for.
const FOUND_MIN: u64 = KEYS - KEYS / 500;

struct Node {
    device: Arc<SimDevice>,
    plane: Plane<Counting>,
    store: Arc<TenantStore>,
    tier: Arc<Tier>,
}

fn node() -> Node {
    let device = Arc::new(SimDevice::new(FLASH_BYTES, 1));
    let flash = Flash::open(Arc::<SimDevice>::clone(&device), [7; 16], &[], None).unwrap();
    let parts = PlaneParts {
        pool: Pool::without_thread(MEMORY_BYTES, Some(2 * MEMORY_BYTES)).unwrap(),
        hasher: Hasher::with_seed(flash.store().hash_seed()),
        keepers: Arc::new([KeeperInbox::new(Box::new(|| {}))]),
        alarm: Arc::new(|| {}),
        clock: Arc::new(ManualClock::new(NOW)),
        flash: Some(flash),
    };
    let plane = Plane::new(parts, Counting);
    let mut plan = tenant(1, "a", 1);
    plan.grant_bytes = MEMORY_BYTES;
    plan.id = TenantId(1);
    plane.apply(&Plan {
        sequence: 1,
        pool_bytes: MEMORY_BYTES,
        tenants: vec![plan],
    });
    let tenant = plane.tenant(b"a").unwrap();
    Node {
        store: Arc::clone(&tenant.store),
        tier: Arc::clone(tenant.tier.as_ref().unwrap()),
        device,
        plane,
    }
}

fn name(n: u64) -> Vec<u8> {
    format!("key-{n}").into_bytes()
}

fn value(n: u64, version: u64) -> Vec<u8> {
    format!("{n}.{version} ").repeat(40 + n as usize % 60).into_bytes()
}

impl Node {
    fn set(&self, n: u64, version: u64) {
        let name = name(n);
        let key = self.store.key(0, &name);
        self.store
            .put(&key, &value(n, version), Attributes::default(), NOW)
            .unwrap();
    }

    fn get(&self, n: u64) -> Option<Vec<u8>> {
        let name = name(n);
        let key = self.store.key(0, &name);
        let mut shard = self.tier.fetch(&self.store, &key, Purpose::Get, NOW);
        shard.get(&key, NOW).map(|found| found.value().to_vec())
    }

    fn found(&self, version: impl Fn(u64) -> u64) -> u64 {
        let is_there = |n: &u64| {
            let found = self.get(*n);
            assert!(found.is_none() || found == Some(value(*n, version(*n))), "key {n}");
            found.is_some()
        };
        (0..KEYS).filter(is_there).count() as u64
    }
}

#[test]
fn what_is_rewritten_again_and_again_stays() {
    let node = node();
    for version in 1..=6 {
        (0..KEYS).for_each(|n| node.set(n, version));
        let found = node.found(|_| version);
        assert!(found >= FOUND_MIN, "{found} of {KEYS} of version {version}");
    }
}

#[test]
fn hits_of_gets_are_told_from_others() {
    let node = node();
    (0..KEYS).for_each(|n| node.set(n, 1));
    // The oldest are on flash.
    let ask = |n: u64, purpose| {
        let name = name(n);
        let key = node.store.key(0, &name);
        drop(node.tier.fetch(&node.store, &key, purpose, NOW));
    };
    let hits = || (node.tier.used().hits, node.tier.used().get_hits);
    (0..100).for_each(|n| ask(n, Purpose::Other));
    let (all, of_gets) = hits();
    assert!((95..=100).contains(&all) && of_gets == 0, "{all} {of_gets}");
    // In memory now: flash is not asked again.
    (0..100).for_each(|n| ask(n, Purpose::Get));
    assert_eq!(hits(), (all, 0));
    (100..200).for_each(|n| ask(n, Purpose::Get));
    let (both, of_gets) = hits();
    assert!(
        (95..=100).contains(&of_gets) && both == all + of_gets,
        "{both} {of_gets}"
    );
}

#[test]
fn a_device_that_fails_is_told_also_of_tenants_that_were_not_touched_since() {
    let node = node();
    node.set(1, 1);
    node.plane.tenant(b"a").unwrap().touch_store();
    let failed = || {
        let snapshot = node.plane.snapshot();
        (snapshot.pool.has_flash_failed, snapshot.tenants.len())
    };
    assert_eq!(failed(), (false, 1));
    node.device.set_gone(true);
    assert!(node.tier.flash().store().flush(node.tier.number, None).is_err());
    assert_eq!(failed(), (true, 0));
}

#[test]
fn a_key_with_the_tag_of_another_is_read_for_once_until_it_is_written() {
    let node = node();
    (0..KEYS).for_each(|n| node.set(n, 1));
    let seek = |n: u64| {
        let name = name(n);
        let key = node.store.key(0, &name);
        let mut shard = node.store.lock(node.store.shard_of(key.hash));
        node.tier.seek(&mut shard, &key, Purpose::Get, NOW)
    };
    // About one absent key in some thousands has the tag of one on flash.
    let alike = (KEYS..40 * KEYS).find(|n| seek(*n).is_some()).unwrap();
    assert!(seek(alike).is_some(), "nobody has read for it");
    assert_eq!(node.get(alike), None);
    assert!(seek(alike).is_none(), "it is known to be absent");
    node.set(alike, 2);
    (0..KEYS).for_each(|n| node.set(n, 3));
    assert!(seek(alike).is_some(), "it went to flash");
    assert_eq!(node.get(alike), Some(value(alike, 2)));
}
