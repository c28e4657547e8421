//! Walks over the keys: what is alive is shown, and a second walk shows what was put in meanwhile.

use std::collections::BTreeSet;

use tidemark_flash::{Listing, Next};

use super::*;

const KEYS: u64 = 12_000;

/// The keys of a walk over all segments, or those after a mark. Each is shown once.
fn walk(store: &Store, db: u8, since: Option<u32>) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let mut slot = 0;
    loop {
        let listing = match store.segment_from(TENANT, slot, since) {
            Next::End => return keys,
            Next::Here(listing) => listing,
            Next::Read(read) => {
                let mut bytes = Buffer::zeroed(read.bytes());
                let is_read = store.device().read(read.offset, bytes.as_mut()).is_ok();
                match Listing::of(&read, bytes).filter(|_| is_read) {
                    Some(listing) => listing,
                    None => {
                        store.lose(&read);
                        slot = read.slot() + 1;
                        continue;
                    }
                }
            }
        };
        store.list(&listing, 0..listing.records(), db, |key| {
            assert!(keys.insert(String::from_utf8(key.to_vec()).unwrap()), "twice: {key:?}");
        });
        slot = listing.slot() + 1;
    }
}

fn present(store: &Store, range: std::ops::Range<u64>) -> BTreeSet<String> {
    let is_there = |n: &u64| get(store, *n).is_some();
    range.filter(is_there).map(|n| format!("key:{n}")).collect()
}

#[test]
fn a_walk_shows_what_is_alive_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("flash"), Staleness::None);
    assert_eq!(walk(&store, 0, None), BTreeSet::new());
    for n in 0..KEYS {
        store.put(TENANT, hash(n), &item(n, 1)).unwrap();
    }
    let expired = Item {
        expires_ms: 1,
        ..item(KEYS, 1)
    };
    store.put(TENANT, hash(KEYS), &expired).unwrap();
    for n in (0..KEYS).step_by(3) {
        store.drop_unread(TENANT, hash(n));
    }
    let before = present(&store, 0..KEYS);
    assert!(before.len() as u64 > KEYS * 6 / 10, "{}", before.len());
    assert_eq!(walk(&store, 0, None), before);
    assert_eq!(walk(&store, 1, None), BTreeSet::new(), "another database");
    // Items that come after the mark, more than the open segment has room for, and newer contents of older ones.
    let mark = store.mark(TENANT);
    for n in KEYS + 1..KEYS + 4000 {
        store.put(TENANT, hash(n), &item(n, 2)).unwrap();
    }
    store.put(TENANT, hash(1), &item(1, 2)).unwrap();
    let since = walk(&store, 0, Some(mark));
    let mut new = present(&store, KEYS + 1..KEYS + 4000);
    new.insert("key:1".to_owned());
    assert!(
        since.is_superset(&new),
        "{:?}",
        new.difference(&since).collect::<Vec<_>>()
    );
    // Records that were in the open segment when the mark was made come with them: a segment at most.
    assert!(since.len() < new.len() + 2500, "{} and {}", since.len(), new.len());
    store.flush(TENANT, None).unwrap();
    assert_eq!(walk(&store, 0, None), BTreeSet::new());
}

#[test]
fn a_walk_after_a_restart_shows_the_same_and_passes_damage_by() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let store = open(&path, Staleness::None);
    for n in 0..KEYS {
        store.put(TENANT, hash(n), &item(n, 1)).unwrap();
    }
    let before = walk(&store, 0, None);
    store.close().unwrap();
    assert_eq!(walk(&store, 0, None), BTreeSet::new(), "closed");
    drop(store);
    let store = open(&path, Staleness::None);
    assert_eq!(walk(&store, 0, None), before);
    assert_eq!(walk(&store, 0, Some(store.mark(TENANT))), BTreeSet::new());
    let Next::Read(read) = store.segment_from(TENANT, 0, None) else {
        panic!("a segment that was sealed");
    };
    store.settle_writes().unwrap();
    let junk = Buffer::zeroed(read.bytes());
    store.device().write(read.offset, junk.as_ref()).unwrap();
    let after = walk(&store, 0, None);
    assert!(after.len() < before.len() && after.is_subset(&before));
    assert_eq!(present(&store, 0..KEYS), after, "quarantined");
}
