//! The snapshot of the index: used after a clean end, and never when it is not that of the device's last end.

use std::path::PathBuf;

use tidemark_flash::{CloseError, Opening};

use super::*;

const KEYS: u64 = 12_000;
const STALENESS: Staleness = Staleness::Bounded(50);

/// The fault that a file suffers.
type Damage = dyn Fn(&mut Vec<u8>);

/// A device and the file for its index.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn device(&self) -> PathBuf {
        self.folder.path().join("flash")
    }

    fn index(&self) -> PathBuf {
        self.folder.path().join("flash.index")
    }

    fn open(&self) -> Store {
        Store::open(device(&self.device()), &settings(STALENESS), Some(&self.index())).unwrap()
    }

    /// A device that was left clean with some items deleted, and its answers.
    fn filled() -> (Self, Vec<Option<Item>>) {
        let place = Self::new();
        let store = place.open();
        assert_eq!(store.opening(), Opening::Footers);
        for n in 0..KEYS {
            store.put(TENANT, hash(n), &item(n, 1)).unwrap();
        }
        for n in (0..KEYS).step_by(10) {
            store.drop_unread(TENANT, hash(n));
        }
        let answers = answers(&store);
        assert!(answers.iter().flatten().count() as u64 > KEYS * 8 / 10);
        store.close().unwrap();
        (place, answers)
    }
}

fn answers(store: &Store) -> Vec<Option<Item>> {
    (0..KEYS).map(|n| get(store, n)).collect()
}

#[test]
fn a_clean_end_s_snapshot_is_used_and_answers_as_footers_do() {
    let (place, before) = Place::filled();
    let copy = std::fs::read(place.device()).unwrap();
    let store = place.open();
    assert_eq!(store.opening(), Opening::Snapshot);
    let of_snapshot = store.stats(TENANT);
    assert!(answers(&store) == before, "answers differ from those before the end");
    store.close().unwrap();
    drop(store);
    // The same device without its snapshot.
    std::fs::write(place.device(), copy).unwrap();
    let store = place.open();
    assert_eq!(store.opening(), Opening::Footers, "a snapshot of another end");
    let of_footers = store.stats(TENANT);
    assert!(answers(&store) == before, "footers answer something else");
    assert_eq!(
        (of_snapshot.records, of_snapshot.flash_bytes),
        (of_footers.records, of_footers.flash_bytes)
    );
    assert_eq!(store.items_in(TENANT, 0), of_footers.records);
}

#[test]
fn the_store_goes_on_from_a_snapshot() {
    let (place, before) = Place::filled();
    for round in 2..5 {
        let store = place.open();
        assert_eq!(store.opening(), Opening::Snapshot);
        // Enough to reclaim what the snapshot knew: 40 segments hold some 45,000 of them.
        for n in KEYS..KEYS + 30_000 {
            let _ = store.put(TENANT, hash(n), &item(n, round));
        }
        for n in KEYS..KEYS + 30_000 {
            if let Some(found) = get(&store, n) {
                assert_eq!(found, item(n, round));
            }
        }
        for (n, before) in (0..).zip(&before) {
            let found = get(&store, n);
            assert!(found.is_none() || found == *before, "key {n}");
        }
        store.close().unwrap();
    }
}

#[test]
fn a_snapshot_of_an_earlier_end_is_never_used() {
    let (place, _) = Place::filled();
    let old = std::fs::read(place.index()).unwrap();
    let store = place.open();
    for n in 0..1000 {
        let barrier = store.drop_unread(TENANT, hash(n));
        store.wait(barrier).unwrap();
    }
    // No clean end: as after a kill, but for what the system would have lost.
    drop(store);
    std::fs::write(place.index(), &old).unwrap();
    let store = place.open();
    assert_eq!(store.opening(), Opening::Footers);
    assert_eq!((0..1000).filter(|n| get(&store, *n).is_some()).count(), 0);
    // A start that changed nothing, and a kill.
    drop(store);
    std::fs::write(place.index(), &old).unwrap();
    assert_eq!(place.open().opening(), Opening::Footers);
    // Another device's.
    let (other, answers_of_other) = Place::filled();
    std::fs::copy(place.index(), other.index()).unwrap();
    let store = other.open();
    assert_eq!(store.opening(), Opening::Footers);
    assert!(answers(&store) == answers_of_other);
}

#[test]
fn a_damaged_snapshot_falls_back_to_footers() {
    let (place, before) = Place::filled();
    let (index, copy) = (
        std::fs::read(place.index()).unwrap(),
        std::fs::read(place.device()).unwrap(),
    );
    let damage: [&Damage; 8] = [
        &|bytes| bytes[0] ^= 1,
        &|bytes| bytes[8] ^= 1,
        &|bytes| bytes[50] ^= 0x40,
        &|bytes| bytes[80] ^= 4,
        &|bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
        },
        &|bytes| bytes.truncate(bytes.len() - 1),
        &|bytes| bytes.push(0),
        &|bytes| bytes.clear(),
    ];
    for (case, damage) in damage.into_iter().enumerate() {
        std::fs::write(place.device(), &copy).unwrap();
        let mut bytes = index.clone();
        damage(&mut bytes);
        std::fs::write(place.index(), bytes).unwrap();
        let store = place.open();
        assert_eq!(store.opening(), Opening::Footers, "case {case}");
        assert!(answers(&store) == before, "case {case}");
    }
    // Undamaged, it counts again: the cases above failed for what was done to them.
    std::fs::write(place.device(), &copy).unwrap();
    std::fs::write(place.index(), index).unwrap();
    assert_eq!(place.open().opening(), Opening::Snapshot);
}

#[test]
fn what_cannot_be_written_as_a_snapshot_is_said_and_loses_nothing() {
    let (place, before) = Place::filled();
    let store = place.open();
    std::fs::remove_file(place.index()).unwrap();
    std::fs::create_dir(place.index()).unwrap();
    std::fs::write(place.index().join("file"), "").unwrap();
    let error = store.close().unwrap_err();
    assert!(matches!(error, CloseError::Index(_)), "{error}");
    assert_eq!(get(&store, 1), None, "closed");
    drop(store);
    let store = place.open();
    assert_eq!(store.opening(), Opening::Footers);
    assert!(answers(&store) == before);
}
