//! Stripes in real processes of the function's own program, run by the emulator.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod arriving;
mod faults;
mod reclaimer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidemark_functions::codec::{CodeTable, Parity, Rs, STRIPE_BYTES};
use tidemark_functions::emulator::{self, Emulator};
use tidemark_functions::engine::{BoxFuture, EngineError, FunctionEngine, LambdaApi, Sign};
use tidemark_functions::event::{Invocation, read_token};
use tidemark_functions::link::Run;
use tidemark_functions::proxy::{Config, Functions, PoolConfig, Reading};

const MIB: usize = 1 << 20;

/// Emulator, functions, the pools of a proxy.
struct Bench {
    emulator: Emulator,
    functions: Functions,
    others: Vec<Functions>,
    names: Vec<String>,
}

fn pool(name: &str, names: &[String]) -> PoolConfig {
    PoolConfig {
        name: name.into(),
        names: names.to_vec(),
        room_bytes: 32 * MIB as u64,
        memory_bytes: 64 * MIB as u64,
        least_functions: names.len(),
    }
}

fn config(names: &[String], folder: Option<&Path>) -> Config {
    Config {
        pools: vec![pool("", names)],
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        unit_ms: 1,
        codes: CodeTable::new(vec![(0, "4+2".parse().unwrap())]).unwrap(),
        reading: Reading::DataFirst,
        warm_every: None,
        backup_every: None,
        refill_at_once: false,
        encrypts: true,
        folder: folder.map(Into::into),
    }
}

fn api(emulator: &Emulator) -> LambdaApi {
    let sign: Sign = Arc::new(|_| {});
    LambdaApi::new(&format!("http://{}", emulator.address()), "us-east-1", sign).unwrap()
}

fn proxy(emulator: &Emulator, config: Config) -> Vec<Functions> {
    Functions::start(config, Arc::new(api(emulator))).unwrap()
}

fn emulator() -> Emulator {
    let emulator = Emulator::start(emulator::Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        // The static one is tried by scripts/bootstrap.
        program: std::env::var_os("TIDEMARK_BOOTSTRAP").map_or(env!("CARGO_BIN_EXE_bootstrap").into(), Into::into),
        arguments: Vec::new(),
        unit_ms: 1,
        freezes: true,
    });
    emulator.unwrap()
}

fn bench(functions: usize, change: impl Fn(&mut Config)) -> Bench {
    let emulator = emulator();
    let names: Vec<String> = (0..functions).map(|number| format!("f-{number}")).collect();
    assert!(names.iter().all(|name| emulator.create(name, 64)));
    let mut config = config(&names, None);
    change(&mut config);
    let mut others = proxy(&emulator, config);
    Bench {
        emulator,
        functions: others.remove(0),
        others,
        names,
    }
}

fn pattern(bytes: usize, seed: u8) -> Bytes {
    (0..bytes)
        .map(|at| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5] ^ seed)
        .collect()
}

async fn read(functions: &Functions, content: [u8; 16], stripe: u32, range: std::ops::Range<usize>) -> Option<Vec<u8>> {
    Some(functions.get(content, stripe, range).await?.concat())
}

/// Waits until it holds; fails after a while.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_put_is_read_whole_and_in_ranges() {
    let bench = bench(8, |_| {});
    let whole = pattern(STRIPE_BYTES as usize, 1);
    let tail = pattern(3 * MIB + 17, 2);
    let bytes = (whole.len() + tail.len()) as u64;
    assert!(bench.functions.put([1; 16], bytes, 0, whole.clone()).await);
    assert!(bench.functions.put([1; 16], bytes, 1, tail.clone()).await);
    for range in [0..whole.len(), 0..1, MIB - 1..MIB + 1, 3 * MIB + 5..whole.len()] {
        let read = read(&bench.functions, [1; 16], 0, range.clone()).await;
        assert!(read.as_deref() == Some(&whole[range.clone()]), "{range:?}");
    }
    assert!(read(&bench.functions, [1; 16], 1, 0..tail.len()).await.unwrap() == tail);
    assert_eq!(read(&bench.functions, [1; 16], 2, 0..1).await, None);
    assert_eq!(read(&bench.functions, [2; 16], 0, 0..1).await, None);
    let totals = bench.functions.totals();
    assert_eq!((totals.hits, totals.misses, totals.corrupt_chunks), (5, 2, 0));
    // Invocations are billed when they end, which they do by themselves.
    until("invocations end", || bench.emulator.bill().invocations >= 6).await;
    let (bill, totals) = (bench.emulator.bill(), bench.functions.totals());
    assert!(
        bill.billed_ms > 0 && bill.cold_starts >= 6 && totals.serving_ms > 0,
        "{bill:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_starts_again_finds_what_functions_hold() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(6, |config| config.folder = Some(folder.path().into()));
    let (one, two) = (pattern(MIB, 4), pattern(MIB, 5));
    assert!(bench.functions.put([1; 16], MIB as u64, 0, one.clone()).await);
    assert!(bench.functions.put([2; 16], MIB as u64, 0, two.clone()).await);
    bench.functions.flush().await;
    // Not told to anybody.
    let (emulator, names) = (bench.emulator.clone(), bench.names.clone());
    drop(bench);
    emulator.reclaim(&names[2]);
    let functions = proxy(&emulator, config(&names, Some(folder.path()))).remove(0);
    assert_eq!(functions.status().objects, 2);
    assert!(read(&functions, [1; 16], 0, 0..MIB).await.unwrap() == one);
    assert!(read(&functions, [2; 16], 0, 0..MIB).await.unwrap() == two);
    assert_eq!(functions.totals().resets, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_finds_what_was_lost_before_anybody_asks() {
    let bench = bench(6, |config| {
        config.warm_every = Some(Duration::from_secs(3));
        config.refill_at_once = true;
    });
    let bytes = pattern(MIB, 6);
    assert!(bench.functions.put([1; 16], MIB as u64, 0, bytes.clone()).await);
    bench.emulator.reclaim(&bench.names[4]);
    let functions = bench.functions.clone();
    until("the lost chunk is put back", || functions.totals().repaired_chunks > 0).await;
    assert_eq!(functions.totals().hits, 0, "nobody has asked");
    assert!(functions.totals().warm_invocations > 0);
    // Now two others may go.
    assert!(bench.names[..2].iter().all(|name| bench.emulator.reclaim(name) == 1));
    assert!(read(&functions, [1; 16], 0, 0..MIB).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_read_and_write_while_functions_are_taken_away() {
    let bench = bench(8, |config| config.reading = Reading::FirstD);
    let mut tasks = Vec::new();
    for reader in 0..4_u8 {
        let functions = bench.functions.clone();
        tasks.push(tokio::spawn(async move {
            for round in 0..12_u8 {
                let object = (reader + round) % 5;
                let bytes = pattern(MIB, object);
                if let Some(found) = read(&functions, [object; 16], 0, 0..MIB).await {
                    assert!(found == bytes, "reader {reader}, round {round}");
                } else {
                    functions.put([object; 16], MIB as u64, 0, bytes).await;
                }
            }
        }));
    }
    for round in 0..10_usize {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.emulator.reclaim(&bench.names[round * 3 % 8]);
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bench.functions.totals().corrupt_chunks, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_chunks_and_codec_needs_no_proxy_to_put_them_together() {
    let bench = bench(6, |config| {
        config.reading = Reading::FirstD;
        // A read that has enough chunks does not find that another is lost: a warm-up does.
        config.warm_every = Some(Duration::from_secs(1));
        config.refill_at_once = true;
    });
    let (codec, whole) = (Rs::default(), STRIPE_BYTES as usize);
    let bytes = pattern(whole, 9);
    let parity = Parity::of(&codec, "4+2".parse().unwrap(), &bytes).unwrap();
    let functions = bench.functions.clone();
    assert_eq!(functions.code(1).unwrap(), parity.code);
    assert!(
        functions
            .put_coded([1; 16], whole as u64, 0, bytes.clone(), Some(parity))
            .await
    );
    let mut computed = 0;
    for (round, name) in bench.names.iter().enumerate() {
        assert_eq!(bench.emulator.reclaim(name), 1);
        let mut chunks = functions.get_chunks([1; 16], 0, 0..whole).await.unwrap();
        assert!(chunks.are_sound());
        assert_eq!(chunks.have.iter().flatten().count(), 4, "no more than are needed");
        computed += usize::from(!chunks.missing(&(0..whole)).is_empty());
        chunks.compute(&codec, &(0..whole)).unwrap();
        assert!(chunks.pieces(&(0..whole)).unwrap().concat() == bytes, "round {round}");
        let repaired = round as u64 + 1;
        until("the lost chunk is put back", || {
            functions.totals().repaired_chunks >= repaired
        })
        .await;
    }
    assert!(computed >= 4, "each chunk of data was lost once: {computed}");
    assert_eq!((functions.totals().decoded, functions.totals().resets), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_parity_of_a_client_never_makes_wrong_bytes() {
    let bench = bench(6, |_| {});
    let (functions, bytes) = (bench.functions.clone(), pattern(MIB, 3));
    let zeros = Parity {
        code: "4+2".parse().unwrap(),
        chunks: vec![Bytes::from(vec![0; MIB / 4]); 2],
    };
    let short = Parity {
        chunks: vec![Bytes::from(vec![0; 64]); 2],
        ..zeros.clone()
    };
    for (content, parity) in [([1; 16], zeros), ([2; 16], short)] {
        let put = functions.put_coded(content, MIB as u64, 0, bytes.clone(), Some(parity));
        assert!(put.await);
    }
    // Chunks of data are taken away one after another, until one cannot be computed.
    let mut taken = bench.names.iter();
    while let Some(found) = read(&functions, [1; 16], 0, 0..MIB).await {
        assert!(found == bytes);
        assert_eq!(bench.emulator.reclaim(taken.next().unwrap()), 1);
    }
    assert_eq!(functions.totals().corrupt_chunks, 1);
    assert!(!functions.has(&[1; 16], 0), "it is not asked for again");
    let other = read(&functions, [2; 16], 0, 0..MIB).await;
    assert!(other.unwrap() == bytes, "parity that cannot be is computed anew");
    assert!(functions.put([1; 16], MIB as u64, 0, bytes.clone()).await);
    assert!(read(&functions, [1; 16], 0, 0..MIB).await.unwrap() == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_have_no_function_in_common_and_a_name_goes_with_the_last_copy() {
    let bench = bench(12, |config| {
        let own = config.pools[0].names.split_off(6);
        config.pools[0].least_functions = 6;
        config.pools.push(pool("shop", &own));
    });
    let (shared, own) = (&bench.functions, &bench.others[0]);
    assert_eq!(shared.address(), own.address());
    let bytes = pattern(MIB, 8);
    for pool in [shared, own] {
        assert!(pool.put([1; 16], MIB as u64, 0, bytes.clone()).await);
    }
    shared.name([9; 16], [1; 16]);
    let holds = |pool: &Functions| pool.status().states.iter().filter(|state| state.2 > 0).count();
    assert_eq!((holds(shared), holds(own)), (6, 6), "each has all chunks");
    let take = |names: &[String]| names.iter().map(|name| bench.emulator.reclaim(name)).sum::<usize>();
    assert_eq!(take(&bench.names[..6]), 6);
    until_it_is_gone(shared).await;
    assert!(read(own, [1; 16], 0, 0..MIB).await.unwrap() == bytes);
    assert_eq!(own.named(&[9; 16]), Some([1; 16]), "the other one has it");
    assert_eq!((own.totals().lost_chunks, own.totals().misses), (0, 0));
    assert_eq!(take(&bench.names[6..]), 6);
    until_it_is_gone(own).await;
    assert_eq!(shared.named(&[9; 16]), None, "the name is taken back");
}

/// Reads an object that functions have lost until it is known that nothing is left of it: each read asks some of them.
async fn until_it_is_gone(pool: &Functions) {
    for _ in 0..1500 {
        if pool.status().objects == 0 {
            return;
        }
        assert_eq!(read(pool, [1; 16], 0, 0..MIB).await, None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it is not gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_that_are_not_needed_are_emptied() {
    let bench = bench(12, |config| {
        config.pools[0].room_bytes = 2 * MIB as u64;
        config.pools[0].least_functions = 6;
        config.warm_every = Some(Duration::from_secs(1));
    });
    let functions = &bench.functions;
    for object in 0..12_u8 {
        assert!(functions.put([object; 16], MIB as u64, 0, pattern(MIB, object)).await);
    }
    assert_eq!(functions.status().functions_in_use, 12);
    (0..8_u8).for_each(|object| functions.forget(&[object; 16]));
    until("functions are given up", || functions.status().functions_in_use == 6).await;
    let status = functions.status();
    assert!(status.totals.moved_chunks > 0);
    assert!(
        status.states[6..]
            .iter()
            .all(|(_, _, chunks, bytes)| (*chunks, *bytes) == (0, 0))
    );
    let taken: usize = bench.names[6..].iter().map(|name| bench.emulator.reclaim(name)).sum();
    assert!(taken > 0);
    for object in 8..12_u8 {
        assert!(read(functions, [object; 16], 0, 0..MIB).await.unwrap() == pattern(MIB, object));
    }
    assert_eq!((functions.totals().lost_chunks, functions.totals().decoded), (0, 0));
}

/// Waits until each function was backed up after now, from beginning to end.
async fn until_backed_up(bench: &Bench) {
    let from = bench.functions.totals().backups;
    let rounds = 3 * bench.names.len() as u64;
    until("backups end", || bench.functions.totals().backups >= from + rounds).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_instance_answers_with_all_when_the_first_is_taken_away() {
    let bench = bench(6, |config| config.backup_every = Some(Duration::from_secs(1)));
    let functions = bench.functions.clone();
    // Some are written and read while backups run.
    for object in 1..9_u8 {
        assert!(functions.put([object; 16], MIB as u64, 0, pattern(MIB, object)).await);
        assert!(read(&functions, [1; 16], 0, 0..MIB).await.unwrap() == pattern(MIB, 1));
    }
    functions.forget(&[8; 16]);
    until_backed_up(&bench).await;
    assert!(bench.names.iter().all(|name| bench.emulator.instances_of(name) == 2));
    assert!(functions.totals().backup_bytes > 7 * MIB as u64, "chunks went over");
    // All at once: without backups all would be lost.
    assert!(bench.names.iter().all(|name| bench.emulator.reclaim_one(name, true)));
    for object in 1..8_u8 {
        let found = read(&functions, [object; 16], 0, 0..MIB).await;
        assert!(found.unwrap() == pattern(MIB, object), "object {object}");
    }
    assert_eq!(read(&functions, [8; 16], 0, 0..1).await, None);
    let totals = functions.totals();
    assert_eq!(
        (totals.resets, totals.lost_chunks, totals.reclaimed),
        (0, 0, 0),
        "{totals:?}"
    );
    assert!(totals.backup_invocations > 0 && totals.backup_ms > 0);
    // And the ones that are left are backed up, too.
    until_backed_up(&bench).await;
    assert!(bench.names.iter().all(|name| bench.emulator.reclaim_one(name, true)));
    assert!(read(&functions, [7; 16], 0, 0..MIB).await.unwrap() == pattern(MIB, 7));
    assert_eq!(functions.totals().resets, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_that_is_cut_off_loses_nothing_more() {
    let bench = bench(6, |config| {
        config.backup_every = Some(Duration::from_secs(1));
        config.pools[0].room_bytes = 48 * MIB as u64;
    });
    let functions = bench.functions.clone();
    let whole = STRIPE_BYTES as usize;
    for object in 0..8_u8 {
        assert!(
            functions
                .put([object; 16], whole as u64, 0, pattern(whole, object))
                .await
        );
    }
    let runs = |at: usize| functions.status().states[at].1.run == Run::Maybe;
    for (round, is_source) in [true, false, true, false].into_iter().enumerate() {
        let mut cut = None;
        until("a backup runs", || {
            let at = (0..bench.names.len()).find(|at| runs(*at) && bench.emulator.instances_of(&bench.names[*at]) == 2);
            cut = cut.or(at);
            at.is_some()
        })
        .await;
        assert!(bench.emulator.reclaim_one(&bench.names[cut.unwrap()], is_source));
        let object = round as u8;
        assert!(read(&functions, [object; 16], 0, 0..whole).await.unwrap() == pattern(whole, object));
        // Lost chunks are put back, and the next loss may come.
        until_backed_up(&bench).await;
    }
    for object in 0..8_u8 {
        assert!(read(&functions, [object; 16], 0, 0..whole).await.unwrap() == pattern(whole, object));
    }
    assert_eq!(functions.totals().resets, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_not_taken_for_functions() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let bench = bench(6, |config| config.encrypts = false);
    let hello = tidemark_functions::wire::Hello {
        epoch: 1,
        instance: 1,
        term: 0,
        hash: 0,
        chunks: 0,
        bytes: 0,
        ends_ms: u64::MAX,
        token: [0; 32],
        name: "f-0".into(),
    };
    let hello = tidemark_functions::wire::Frame::Hello(Box::new(hello)).head(0);
    for first in [&hello[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 64]] {
        let mut stream = tokio::net::TcpStream::connect(bench.functions.address()).await.unwrap();
        stream.write_all(first).await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
        assert!(read.is_ok() && rest.is_empty());
    }
    let bytes = pattern(MIB, 7);
    assert!(bench.functions.put([1; 16], MIB as u64, 0, bytes).await);
}

/// A cloud that runs nothing, and keeps the events.
#[derive(Default)]
struct NoCloud(std::sync::Mutex<Vec<Vec<u8>>>);

impl FunctionEngine for NoCloud {
    fn invoke(&self, _: &str, event: Vec<u8>) -> BoxFuture<Result<Bytes, EngineError>> {
        self.0.lock().unwrap().push(event);
        Box::pin(std::future::pending())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_with_a_good_token_is_taken_through_tls_only() {
    use tidemark_functions::wire::{Frame, Hello};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    for encrypts in [true, false] {
        let cloud = Arc::new(NoCloud::default());
        let mut config = config(&["f-0".to_owned()], None);
        config.encrypts = encrypts;
        config.codes = CodeTable::new(vec![(0, "1+0".parse().unwrap())]).unwrap();
        let functions = Functions::start(config, Arc::clone(&cloud) as _).unwrap().remove(0);
        let writer = functions.clone();
        let writing = tokio::spawn(async move { writer.put([1; 16], 10, 0, pattern(10, 1)).await });
        until("an invocation", || !cloud.0.lock().unwrap().is_empty()).await;
        let event: Invocation = serde_json::from_slice(&cloud.0.lock().unwrap()[0]).unwrap();
        assert_eq!(event.key.is_some(), encrypts);
        let hello = Hello {
            epoch: event.epoch,
            instance: 1,
            term: 0,
            hash: 0,
            chunks: 0,
            bytes: 0,
            ends_ms: event.ends_ms,
            token: read_token(&event.token).unwrap(),
            name: event.name,
        };
        let mut stream = tokio::net::TcpStream::connect(&event.proxy).await.unwrap();
        stream.write_all(&Frame::Hello(Box::new(hello)).head(0)).await.unwrap();
        let mut first = [0; 5];
        let patience = Duration::from_secs(10);
        let read = tokio::time::timeout(patience, stream.read_exact(&mut first))
            .await
            .unwrap();
        if encrypts {
            // An alert of TLS (21), if anything, and the end.
            assert!(read.is_err() || first[0] == 21, "{first:?}");
            let mut rest = Vec::new();
            let ended = tokio::time::timeout(patience, stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok() && rest.len() <= 2, "{rest:?}");
        } else {
            assert!(read.is_ok() && first[4] == 2, "it is given the chunk: {first:?}");
        }
        writing.abort();
    }
}
