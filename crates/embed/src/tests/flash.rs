//! A program whose cache has flash below it.

use super::*;

/// Nine times what memory has room for.
const ITEMS: u32 = 9000;
const VALUE_BYTES: usize = 8 << 10;
/// A write drops what has its tag on flash unread, which one key in some thousands is taken for.
const FOUND_MIN: u32 = ITEMS - ITEMS / 500;

fn key(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

fn value(number: u32, version: u8) -> Vec<u8> {
    let mut value = vec![version; VALUE_BYTES];
    value[..4].copy_from_slice(&key(number));
    value
}

fn builder(folder: &tempfile::TempDir) -> Builder {
    Builder::new(8 * MIB).flash(folder.path().join("flash"), 160 * MIB)
}

fn fill_all(tenant: &Tenant, version: u8) {
    for number in 0..ITEMS {
        tenant.insert(&key(number), &value(number, version)).unwrap();
    }
}

#[test]
fn what_memory_evicts_is_found_on_flash_by_every_way_of_asking() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::build(builder(&folder));
    let tenant = scene.cache.create("a", TenantSettings::default()).unwrap();
    for number in 0..3 {
        tenant.insert(&key(ITEMS + number), b"first").unwrap();
    }
    fill_all(&tenant, 1);
    scene.pass(SECOND * 2);
    // A segment is answered from memory until it is written, which takes its time.
    let mut on_flash = None;
    wait_for("something to be on flash alone", || {
        on_flash = (0..ITEMS).find(|number| tenant.try_get(&key(*number)).err() == Some(OnFlash));
        on_flash.is_some()
    });
    let on_flash = on_flash.unwrap();
    let before = tenant.stats();
    assert!(tenant.contains(&key(on_flash)));
    assert_eq!(
        tenant.try_get(&key(on_flash)).unwrap().unwrap().to_vec(),
        value(on_flash, 1)
    );
    assert_eq!(tenant.get_with(&key(ITEMS + 1), |found| found.len()), Some(5));
    assert!(tenant.remove(&key(ITEMS + 2)) && !tenant.remove(&key(ITEMS + 2)));
    assert_eq!(tenant.try_get(b"never").unwrap().map(|value| value.to_vec()), None);
    let after = tenant.stats();
    assert_eq!(
        (after.gets - before.gets, after.hits - before.hits),
        (3, 2),
        "waiting is no lookup"
    );
    let mut buffer = Vec::new();
    let found = (0..ITEMS).filter(|number| {
        buffer.clear();
        let is_there = tenant.get_into(&key(*number), &mut buffer);
        assert!(!is_there || buffer == value(*number, 1), "key {number}");
        is_there
    });
    let found = found.count() as u32;
    assert!(found >= FOUND_MIN, "{found} of {ITEMS}");
    let keys: Vec<[u8; 4]> = (0..ITEMS).step_by(100).map(key).collect();
    assert!(tenant.get_many(&keys).iter().flatten().count() >= keys.len() - 1);
    let flash = tenant.stats().flash.unwrap();
    assert!(
        flash.items > u64::from(ITEMS / 2) && flash.hits > u64::from(ITEMS / 2),
        "{flash:?}"
    );
    assert_eq!(flash.grant_bytes, tenant.view().unwrap().flash_grant_bytes.unwrap());
}

#[test]
fn threads_read_and_rewrite_at_once_and_see_nothing_old() {
    let folder = tempfile::tempdir().unwrap();
    let cache = builder(&folder).build().unwrap();
    let tenant = cache.create("a", TenantSettings::default()).unwrap();
    fill_all(&tenant, 1);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| fill_all(&tenant, 2));
        for _ in 0..2 {
            threads.spawn(|| {
                for number in 0..ITEMS {
                    if let Some(found) = tenant.get(&key(number)) {
                        let found = found.to_vec();
                        assert!(found == value(number, 1) || found == value(number, 2), "key {number}");
                    }
                }
            });
        }
        writer.join().unwrap();
        for number in 0..ITEMS {
            let found = tenant.get(&key(number)).map(|found| found.to_vec());
            assert!(
                found.is_none() || found == Some(value(number, 2)),
                "key {number} is old"
            );
        }
    });
}

#[test]
fn nothing_of_another_process_is_found_and_what_is_no_flash_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let cache = builder(&folder).build().unwrap();
        let tenant = cache.create("a", TenantSettings::default()).unwrap();
        assert!(tenant.get(&key(0)).is_none());
        fill_all(&tenant, 1);
        assert!(
            matches!(builder(&folder).build(), Err(Error::FlashFile(_))),
            "it is in use"
        );
    }
    let path = folder.path().join("text");
    std::fs::write(&path, vec![b'x'; 16 << 20]).unwrap();
    let refused = Builder::new(8 * MIB).flash(&path, 16 * MIB).build();
    assert!(matches!(refused, Err(Error::Flash(_))), "{refused:?}");
}
