//! The flash tier's use of a device: `cargo bench -p tidemark-flash [-- FILE]`.
//!
//! Reads of 4 KiB at depth 16 and writes of 256 KiB at depth 4 through both queues show the device's limits. Items of 1
//! KiB through the store are compared with them. The file is made anew, 1 GiB.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemark_flash::device::{Device, Done, FileDevice, Queue, Request, Threads, queue};
use tidemark_flash::{Buffer, Item, Settings, Staleness, Store, TenantNumber, TenantUuid};

const SIZE_BYTES: u64 = 1 << 30;
const SPAN: Duration = Duration::from_secs(3);
const ITEMS: u64 = 600_000;
const TENANT: TenantNumber = TenantNumber(0);

fn hash(n: u64) -> u64 {
    let mixed = u128::from(n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    (mixed >> 64) as u64 ^ mixed as u64
}

/// CPU time of this process, user and system.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Keeps so many requests under way for a while; how many ended a second.
fn drive(queue: &mut dyn Queue, depth: usize, mut next: impl FnMut(u64) -> Request) -> f64 {
    let begin = Instant::now();
    let (mut done, mut ended, mut number): (Vec<Done>, u64, u64) = (Vec::new(), 0, 0);
    while begin.elapsed() < SPAN {
        while queue.under_way() < depth {
            queue.submit(number, next(number));
            number += 1;
        }
        queue.wait(&mut done);
        ended += done.drain(..).filter(|done| done.result.is_ok()).count() as u64;
    }
    let per_second = ended as f64 / begin.elapsed().as_secs_f64();
    while queue.under_way() > 0 {
        queue.wait(&mut done);
    }
    per_second
}

fn raw(device: &Arc<dyn Device>) {
    let mut queues: Vec<Box<dyn Queue>> = Vec::new();
    queues.extend(queue(device, 64).ok());
    if let Ok(threads) = Threads::new(device) {
        queues.push(Box::new(threads));
    }
    let chunk = Arc::new(Buffer::copied(&vec![7; 1 << 20]));
    for queue in &mut queues {
        let writes = drive(&mut **queue, 4, |n| Request::Write {
            offset: (n * (256 << 10)) % SIZE_BYTES,
            bytes: Arc::clone(&chunk),
            part: 0..256 << 10,
        });
        println!(
            "{:<9} writes of 256 KiB, depth 4    {:>9.0} MB/s",
            queue.name(),
            writes * 0.262_144
        );
        let before = cpu();
        let reads = drive(&mut **queue, 16, |n| Request::Read {
            offset: hash(n) % (SIZE_BYTES / 4096) * 4096,
            buffer: Buffer::zeroed(4096),
        });
        let each = (cpu() - before).as_secs_f64() * 1e6 / (reads * SPAN.as_secs_f64());
        println!(
            "{:<9} reads of 4 KiB, depth 16     {reads:>9.0} a second, {each:.1} us of CPU each",
            queue.name()
        );
    }
}

fn store(device: &Arc<dyn Device>) {
    let settings = [Settings {
        uuid: TenantUuid([1; 16]),
        staleness: Staleness::Bounded(100),
        grant_segments: 900,
        write_bytes_per_second: 0,
    }];
    let Ok(store) = Store::open(Arc::clone(device), &settings, None) else {
        println!("the file can not be opened as a volume");
        return;
    };
    let item = |n: u64| Item {
        db: 0,
        key: format!("key:{n:012}").into_bytes(),
        value: vec![n as u8; 1024],
        client_flags: 0,
        expires_ms: 0,
        token: n,
    };
    let (begin, before) = (Instant::now(), cpu());
    let mut refused = 0_u64;
    for n in 0..ITEMS {
        while store.put(TENANT, hash(n), &item(n)).is_err() {
            refused += 1;
            std::thread::yield_now();
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let each = (cpu() - before).as_secs_f64() * 1e6 / ITEMS as f64;
    println!(
        "store     puts of 16+1,024 bytes       {:>9.0} MB/s, {each:.1} us of CPU each, {refused} refused meanwhile",
        ITEMS as f64 * 1088.0 / 1e6 / seconds
    );
    let (begin, before) = (Instant::now(), cpu());
    let hits: u64 = std::thread::scope(|scope| {
        let look = |thread: u64| {
            let store = &store;
            move || {
                let (mut hits, mut n) = (0, thread << 32);
                while begin.elapsed() < SPAN {
                    n += 1;
                    let key = hash(n) % ITEMS;
                    let text = format!("key:{key:012}");
                    hits += u64::from(store.get(TENANT, hash(key), 0, text.as_bytes()).is_some());
                }
                hits
            }
        };
        let threads: Vec<_> = (0..16).map(|thread| scope.spawn(look(thread))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    let each = (cpu() - before).as_secs_f64() * 1e6 / hits.max(1) as f64;
    println!(
        "store     hits of 16 threads           {:>9.0} a second, {each:.1} us of CPU each",
        hits as f64 / begin.elapsed().as_secs_f64()
    );
    let stats = store.stats(TENANT);
    println!(
        "store     index and buffer             {:>9.2} bytes an item",
        stats.memory_bytes as f64 / stats.records.max(1) as f64
    );
}

fn main() {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let path = given.map_or_else(|| std::env::temp_dir().join("tidemark-flash-bench"), PathBuf::from);
    let open = |path: &Path| -> Arc<dyn Device> {
        match FileDevice::open(path, SIZE_BYTES) {
            Ok(device) => Arc::new(device),
            Err(error) => {
                println!("{error}");
                std::process::exit(1);
            }
        }
    };
    let _ = std::fs::remove_file(&path);
    raw(&open(&path));
    let _ = std::fs::remove_file(&path);
    store(&open(&path));
    let _ = std::fs::remove_file(&path);
}
