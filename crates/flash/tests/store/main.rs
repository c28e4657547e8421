//! The store on real files: contents, restarts, kills, fallbacks, refusals.

#![expect(clippy::unwrap_used, reason = "a test fails where something is missing")]

mod restart;
mod walk;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tidemark_flash::device::{Device, Done, FileDevice, FileError, Queue, Request, SimDevice, Threads, queue};
use tidemark_flash::{Buffer, Item, OpenError, Settings, Staleness, Store, TenantNumber, TenantUuid};

const SIZE_BYTES: u64 = 48 << 20;
const TENANT: TenantNumber = TenantNumber(0);

fn settings(staleness: Staleness) -> [Settings; 1] {
    [Settings {
        uuid: TenantUuid([5; 16]),
        staleness,
        grant_segments: 40,
        write_bytes_per_second: 0,
    }]
}

fn device(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, SIZE_BYTES).unwrap())
}

fn open(path: &Path, staleness: Staleness) -> Store {
    Store::open(device(path), &settings(staleness), None).unwrap()
}

fn hash(n: u64) -> u64 {
    let mixed = u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    (mixed >> 64) as u64 ^ mixed as u64
}

fn item(n: u64, version: u64) -> Item {
    Item {
        db: 0,
        key: format!("key:{n}").into_bytes(),
        value: format!("{n} {version} ").repeat(40 + n as usize % 60).into_bytes(),
        client_flags: 7,
        expires_ms: 0,
        token: version,
    }
}

fn get(store: &Store, n: u64) -> Option<Item> {
    store
        .get(TENANT, hash(n), 0, format!("key:{n}").as_bytes())
        .map(|found| found.item)
}

#[test]
fn items_come_back_after_a_clean_end_and_deleted_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let store = open(&path, Staleness::Bounded(50));
    for n in 0..20_000 {
        store.put(TENANT, hash(n), &item(n, 1)).unwrap();
    }
    let found: Vec<u64> = (0..20_000).filter(|n| get(&store, *n) == Some(item(*n, 1))).collect();
    // A put drops entries with its tag in its buckets unread: one in some 5,000.
    assert!(found.len() >= 19_980, "{}", found.len());
    for n in 0..100 {
        store.drop_unread(TENANT, hash(n));
    }
    assert_eq!(get(&store, 50), None);
    let left = found
        .iter()
        .filter(|n| **n >= 100 && get(&store, **n).is_some())
        .count();
    let stats = store.stats(TENANT);
    assert!(stats.memory_bytes < 3 << 20 && stats.records >= 19_880, "{stats:?}");
    store.close().unwrap();
    drop(store);
    let store = open(&path, Staleness::Bounded(50));
    assert_eq!(
        (0..20_000).filter(|n| get(&store, *n) == Some(item(*n, 1))).count(),
        left
    );
    store.flush(TENANT, None).unwrap();
    assert_eq!((0..20_000).filter(|n| get(&store, *n).is_some()).count(), 0);
    drop(store);
    let store = open(&path, Staleness::Bounded(50));
    assert_eq!((0..20_000).filter(|n| get(&store, *n).is_some()).count(), 0);
}

/// The child of the next test: writes and deletes until it is killed, and says which deletes are durable. By itself it does
/// nothing.
#[test]
fn writer() {
    let Ok(path) = std::env::var("TIDEMARK_FLASH_TEST") else {
        return;
    };
    let store = open(Path::new(&path), Staleness::Strict);
    let begin: u64 = std::env::var("TIDEMARK_FLASH_ROUND").unwrap().parse::<u64>().unwrap() * 1_000_000;
    for n in begin.. {
        let _ = store.put(TENANT, hash(n), &item(n, 1));
        if n % 50 == 49 {
            let barrier = store.drop_unread(TENANT, hash(n - 20));
            store.wait(barrier).unwrap();
            use std::io::Write as _;
            let mut out = std::io::stdout().lock();
            writeln!(out, "\ngone {}", n - 20).unwrap();
            out.flush().unwrap();
        }
    }
}

#[test]
fn killed_writers_leave_nothing_stale() {
    use std::io::{BufRead as _, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut gone: Vec<u64> = Vec::new();
    let mut kept = 0;
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--nocapture"])
            .env("TIDEMARK_FLASH_TEST", &path)
            .env("TIDEMARK_FLASH_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let wanted = gone.len() + 20 + (round as usize * 7) % 30;
        while gone.len() < wanted {
            let line = lines.next().unwrap().unwrap();
            if let Some(n) = line.strip_prefix("gone ") {
                gone.push(n.parse().unwrap());
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that it wrote after the last one that was read count, too.
        gone.extend(
            lines
                .map_while(Result::ok)
                .filter_map(|line| line.strip_prefix("gone ")?.parse::<u64>().ok()),
        );
        let store = open(&path, Staleness::Strict);
        for n in &gone {
            assert_eq!(
                get(&store, *n),
                None,
                "key {n} was deleted, and that was said to be durable"
            );
        }
        for n in round * 1_000_000..round * 1_000_000 + 3000 {
            if let Some(found) = get(&store, n) {
                assert_eq!(found, item(n, 1));
                kept += 1;
            }
        }
        drop(store);
    }
    assert!(kept > 100, "{kept}");
}

#[test]
fn what_is_not_ours_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut other = vec![0; SIZE_BYTES as usize];
    other[..5].copy_from_slice(b"hello");
    std::fs::write(&path, &other).unwrap();
    let refused = Store::open(device(&path), &settings(Staleness::None), None).unwrap_err();
    assert!(matches!(refused, OpenError::Foreign), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), other);

    let path = folder.path().join("ours");
    let store = open(&path, Staleness::None);
    let in_use = FileDevice::open(&path, SIZE_BYTES).unwrap_err();
    assert!(
        matches!(in_use, FileError::InUse { .. }) && in_use.to_string().contains("another process"),
        "{in_use}"
    );
    store.close().unwrap();
    drop(store);
    let small: Arc<dyn Device> = Arc::new(FileDevice::open(&path, SIZE_BYTES / 2).unwrap());
    let refused = Store::open(small, &settings(Staleness::None), None).unwrap_err();
    assert!(matches!(refused, OpenError::TooSmall { .. }), "{refused}");
    let refused = FileDevice::open(folder.path(), SIZE_BYTES).unwrap_err();
    assert!(
        refused.to_string().contains(folder.path().to_str().unwrap()),
        "{refused}"
    );
}

/// Both queues do the same; that of threads remains if io_uring is denied.
#[test]
fn queues_read_what_they_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let file = device(&folder.path().join("flash"));
    let simulated: Arc<dyn Device> = Arc::new(SimDevice::new(SIZE_BYTES, 1));
    let mut queues: Vec<Box<dyn Queue>> = vec![
        queue(&file, 16).unwrap(),
        Box::new(Threads::new(&file).unwrap()),
        queue(&simulated, 16).unwrap(),
    ];
    assert_eq!(queues[2].name(), "threads");
    for queue in &mut queues {
        let mut done: Vec<Done> = Vec::new();
        let mut finish = |queue: &mut Box<dyn Queue>| {
            while queue.under_way() > 0 {
                queue.wait(&mut done);
            }
            let all = std::mem::take(&mut done);
            assert!(all.iter().all(|done| done.result.is_ok()), "{}: {all:?}", queue.name());
            all
        };
        for n in 0..100_u64 {
            let bytes = Arc::new(Buffer::copied(&[n as u8; 8192]));
            queue.submit(
                n,
                Request::Write {
                    offset: n * 4096,
                    bytes,
                    part: 4096..8192,
                },
            );
        }
        assert_eq!(finish(queue).len(), 100);
        queue.submit(0, Request::Flush);
        finish(queue);
        for n in 0..100_u64 {
            queue.submit(
                n,
                Request::Read {
                    offset: n * 4096,
                    buffer: Buffer::zeroed(4096),
                },
            );
        }
        let read = finish(queue);
        assert_eq!(read.len(), 100);
        for done in read {
            assert!(
                done.buffer
                    .unwrap()
                    .as_ref()
                    .iter()
                    .all(|byte| *byte == done.token as u8),
                "{}",
                queue.name()
            );
        }
        queue.submit(
            9,
            Request::Read {
                offset: 1 << 40,
                buffer: Buffer::zeroed(4096),
            },
        );
        let mut beyond = Vec::new();
        while beyond.is_empty() {
            queue.wait(&mut beyond);
        }
        assert!(beyond[0].result.is_err());
    }
}

#[test]
fn a_device_that_goes_away_is_told_and_misses() {
    let simulated = Arc::new(SimDevice::new(SIZE_BYTES, 2));
    let store = Store::open(simulated.clone(), &settings(Staleness::Strict), None).unwrap();
    for n in 0..6000 {
        let _ = store.put(TENANT, hash(n), &item(n, 1));
    }
    simulated.set_gone(true);
    let barrier = store.drop_unread(TENANT, hash(3));
    assert!(store.wait(barrier).is_err());
    for n in 0..6000 {
        let _ = get(&store, n);
    }
    assert!(store.is_given_up());
    assert_eq!(get(&store, 5), None);
    assert!(store.put(TENANT, hash(1), &item(1, 2)).is_err());
}
