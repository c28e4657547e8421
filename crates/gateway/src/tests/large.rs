//! Large objects in a place beside memory, which loses what it holds.

use std::collections::BTreeMap;
use std::ops::Range;

use tidemark_functions::Code;
use tidemark_functions::chunk::chunk_hash;
use tidemark_functions::codec::{Chunks, Parity, Rs, encode};

use super::*;
use crate::LargePlace;
use crate::access::Placing;
use crate::large::{Reading, ReadingChunks, STRIPE_BYTES};

pub(super) const LEAST: usize = 6 * MIB;
pub(super) const STRIPE: usize = STRIPE_BYTES as usize;

/// A place in this process.
#[derive(Default)]
pub(super) struct Place {
    stripes: Mutex<BTreeMap<([u8; 16], u32), Bytes>>,
    names: Mutex<BTreeMap<[u8; 16], [u8; 16]>>,
    /// The tenants that asked, in order.
    payers: Mutex<Vec<TenantId>>,
    /// The chunks of each stripe that are gone.
    pub(super) lost: Mutex<Vec<usize>>,
    /// Whether a chunk that is there is another one than was stored.
    pub(super) is_damaged: AtomicBool,
    /// Done when chunks are read for the first time.
    pub(super) meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether objects cost more here and in memory than at the origin.
    is_dear: AtomicBool,
    /// The parity that came with each stripe that was written.
    pub(super) parities: Mutex<BTreeMap<u32, Option<Parity>>>,
}

/// How all of its objects are coded.
pub(super) fn code() -> Code {
    "4+2".parse().unwrap()
}

impl LargePlace for Place {
    fn cheapest(&self, _: &dyn TenantMemory, size_bytes: u64) -> Placing {
        if self.is_dear.load(Ordering::Relaxed) {
            Placing::Origin
        } else if size_bytes >= LEAST as u64 {
            Placing::Functions
        } else {
            Placing::Memory
        }
    }

    fn read(&self, payer: &dyn TenantMemory, content: [u8; 16], stripe: u32, range: Range<usize>) -> Reading {
        let found = self
            .stripes
            .lock()
            .get(&(content, stripe))
            .map(|bytes| bytes.slice(range));
        self.payers.lock().push(payer.id());
        // In two pieces, as chunks are.
        let pieces = found.map(|mut bytes| {
            let tail = bytes.split_off(bytes.len() / 2);
            vec![bytes, tail]
        });
        Box::pin(async move { pieces })
    }

    fn read_chunks(&self, _: &dyn TenantMemory, content: [u8; 16], stripe: u32, range: Range<usize>) -> ReadingChunks {
        let found = self.stripes.lock().get(&(content, stripe)).cloned();
        if let Some(meanwhile) = self.meanwhile.lock().take() {
            meanwhile();
        }
        let lost = self.lost.lock().clone();
        let chunks = found.filter(|_| lost.len() <= 2).map(|bytes| {
            let all = encode(&Rs::default(), code(), &bytes).unwrap();
            let hashes: Vec<u64> = all.iter().map(|chunk| chunk_hash(chunk)).collect();
            let mut have: Vec<Option<Bytes>> = all.into_iter().map(Some).collect();
            lost.iter().for_each(|index| have[*index] = None);
            if self.is_damaged.load(Ordering::Relaxed) {
                let chunk = have.iter_mut().flatten().next().unwrap();
                let mut other = chunk.to_vec();
                other[9] ^= 4;
                *chunk = other.into();
            }
            let chunks = Chunks {
                code: code(),
                stripe_bytes: bytes.len(),
                hashes: hashes.into(),
                have,
            };
            chunks.trimmed(&range)
        });
        Box::pin(async move { chunks })
    }

    fn has(&self, _: &dyn TenantMemory, content: &[u8; 16], stripe: u32) -> bool {
        self.stripes.lock().contains_key(&(*content, stripe))
    }

    fn code(&self, _: &dyn TenantMemory, _: u64) -> Option<Code> {
        Some(code())
    }

    fn write(
        &self,
        payer: &dyn TenantMemory,
        content: [u8; 16],
        _: u64,
        stripe: u32,
        bytes: Bytes,
        parity: Option<Parity>,
    ) -> bool {
        self.payers.lock().push(payer.id());
        self.parities.lock().insert(stripe, parity);
        self.stripes.lock().insert((content, stripe), bytes);
        true
    }

    fn name(&self, name: [u8; 16], content: [u8; 16]) {
        self.names.lock().insert(name, content);
    }

    fn named(&self, name: &[u8; 16]) -> Option<[u8; 16]> {
        self.names.lock().get(name).copied()
    }

    fn forget(&self, content: &[u8; 16]) {
        self.stripes.lock().retain(|(known, _), _| known != content);
    }
}

impl Place {
    /// Waits until it holds so many stripes.
    pub(super) fn until_it_holds(&self, count: usize) {
        let began = std::time::Instant::now();
        while self.stripes.lock().len() != count {
            assert!(began.elapsed() < Duration::from_secs(20), "{count} stripes do not come");
            std::thread::yield_now();
        }
    }

    pub(super) fn lose(&self, stripe: u32) {
        self.stripes.lock().retain(|(_, number), _| *number != stripe);
    }
}

pub(super) fn large_bench(freshness: &str) -> (Bench, Arc<Place>) {
    placed_bench(freshness, Placing::Auto)
}

fn placed_bench(freshness: &str, placing: Placing) -> (Bench, Arc<Place>) {
    let place = Arc::new(Place::default());
    let bench = bench_with(freshness, false, Some(Arc::clone(&place) as _), placing);
    (bench, place)
}

#[test]
fn a_large_object_is_filled_once_and_then_read_from_its_place() {
    let (bench, place) = large_bench("forever");
    let object = bytes(2 * STRIPE + 12_345, 1);
    bench.origin.put("bucket/large", object.clone());
    let first = bench.get("/bucket/large", &[]);
    assert!(first.body.as_ref() == Some(&object) && first.header("x-tidemark-cache") == "fill");
    place.until_it_holds(3);
    assert!(
        bench.memories.iter().all(|memory| memory.blocks.lock().is_empty()),
        "memory has none of it"
    );
    let reads = bench.origin_reads();
    let length = object.len();
    for range in [
        0..length,
        0..1,
        STRIPE - 5..STRIPE + 5,
        STRIPE + MIB..length,
        length - 1..length,
    ] {
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let got = bench.get("/bucket/large", &[("range", &header)]);
        assert_eq!(
            (got.status, got.header("x-tidemark-cache")),
            (StatusCode::PARTIAL_CONTENT, "functions")
        );
        assert!(got.body == Some(object.slice(range)), "{header}");
    }
    assert_eq!(bench.origin_reads(), reads, "the origin is not asked for what is there");
    let tenant = bench.memories[0].id;
    assert!(place.payers.lock().iter().all(|payer| *payer == tenant));
}

#[test]
fn a_small_object_goes_to_memory() {
    let (bench, place) = large_bench("forever");
    for (name, length, is_large) in [("under", LEAST - 1, false), ("at", LEAST, true)] {
        let object = bytes(length, 2);
        bench.origin.put(&format!("bucket/{name}"), object.clone());
        assert!(bench.get(&format!("/bucket/{name}"), &[]).body == Some(object));
        place.until_it_holds(if is_large { LEAST.div_ceil(STRIPE) } else { 0 });
    }
    assert_eq!(
        bench.memories[0].blocks.lock().len(),
        LEAST / MIB,
        "blocks of the small one"
    );
}

#[test]
fn what_the_place_loses_is_filled_again_in_the_midst_of_a_reply() {
    let (bench, place) = large_bench("forever");
    let object = bytes(3 * STRIPE, 3);
    bench.origin.put("bucket/large", object.clone());
    bench.get("/bucket/large", &[]);
    place.until_it_holds(3);
    for lost in [0, 1, 2] {
        place.lose(lost);
        let got = bench.get("/bucket/large", &[]);
        assert!(got.body.as_ref() == Some(&object), "stripe {lost}");
        place.until_it_holds(3);
    }
}

#[test]
fn a_reply_never_mixes_two_versions() {
    let (bench, place) = large_bench("0");
    let (old, new) = (bytes(2 * STRIPE, 4), bytes(2 * STRIPE, 5));
    bench.origin.put("bucket/large", old);
    bench.get("/bucket/large", &[]);
    place.until_it_holds(2);
    bench.origin.put("bucket/large", new.clone());
    // Half of the new one is there.
    let half = bench.get("/bucket/large", &[("range", "bytes=0-0")]);
    assert!(half.body == Some(new.slice(0..1)));
    place.until_it_holds(3);
    assert!(bench.get("/bucket/large", &[]).body == Some(new));
}

#[test]
fn many_who_ask_for_a_large_object_at_once_cost_one_fill() {
    let (bench, place) = large_bench("forever");
    let object = bytes(2 * STRIPE, 6);
    bench.origin.put("bucket/large", object.clone());
    let requests: Vec<_> = (0..20)
        .map(|_| bench.request(&bench.ask(Method::GET, "/bucket/large")))
        .collect();
    let client = bench.client.clone();
    let all = bench.runtime.block_on(async {
        let asks: Vec<_> = requests
            .into_iter()
            .map(|request| tokio::spawn(got(client.clone(), request)))
            .collect();
        futures_util::future::join_all(asks).await
    });
    assert!(all.into_iter().all(|got| got.unwrap().body.as_ref() == Some(&object)));
    place.until_it_holds(2);
    assert_eq!(bench.origin_reads(), 2, "each stripe is fetched once");
}

#[test]
fn a_large_object_that_is_written_is_in_its_place_before_it_is_read() {
    let (bench, place) = large_bench("forever");
    let object = bytes(2 * STRIPE + 77, 7);
    assert_eq!(bench.put("/bucket/written", &object, &[]).status, StatusCode::OK);
    place.until_it_holds(3);
    let reads = bench.origin_reads();
    let got = bench.get("/bucket/written", &[]);
    assert!(got.body.as_ref() == Some(&object) && got.header("x-tidemark-cache") == "functions");
    assert_eq!(bench.origin_reads(), reads, "none of it was fetched");
    // The place loses all of it, and the name with it.
    let names = std::mem::take(&mut *place.names.lock());
    assert_eq!(names.len(), 1);
    place.stripes.lock().clear();
    assert!(bench.get("/bucket/written", &[]).body == Some(object));
    place.until_it_holds(3);
    assert_eq!(*place.names.lock(), names, "what was filled again is found by its name");
}

#[test]
fn what_the_origin_refuses_is_not_kept() {
    let (bench, place) = large_bench("forever");
    let object = bytes(2 * STRIPE, 8);
    bench.origin.set(Faults {
        status: Some(StatusCode::FORBIDDEN),
        ..Faults::default()
    });
    // The origin answers without reading the body, and closes: each time it is the answer that arrives.
    for _ in 0..20 {
        let refused = bench.put("/bucket/refused", &object, &[]).status;
        assert_eq!(refused, StatusCode::FORBIDDEN);
    }
    place.until_it_holds(0);
}

#[test]
fn what_is_cheapest_at_the_origin_is_kept_nowhere() {
    let (bench, place) = large_bench("forever");
    place.is_dear.store(true, Ordering::Relaxed);
    let objects = [("small", bytes(MIB / 2, 11)), ("large", bytes(2 * STRIPE + 5, 12))];
    for (name, object) in &objects {
        let target = format!("/bucket/{name}");
        assert_eq!(bench.put(&target, object, &[]).status, StatusCode::OK);
        for round in 0..3 {
            let before = bench.origin.sent_bytes.load(Ordering::Relaxed);
            assert!(bench.get(&target, &[]).body.as_ref() == Some(object), "{name}, {round}");
            let sent = bench.origin.sent_bytes.load(Ordering::Relaxed) - before;
            assert!(sent >= object.len() as u64, "{name}, {round}: {sent}");
        }
    }
    place.until_it_holds(0);
    assert!(bench.memories[0].blocks.lock().is_empty());
    // Prices or popularity change: it is kept, and what is kept is read.
    place.is_dear.store(false, Ordering::Relaxed);
    let (_, large) = &objects[1];
    assert!(bench.get("/bucket/large", &[]).body.as_ref() == Some(large));
    place.until_it_holds(3);
    assert_eq!(bench.get("/bucket/large", &[]).header("x-tidemark-cache"), "functions");
}

#[test]
fn an_operator_says_where_a_tenants_objects_are_kept() {
    let (small, large) = (bytes(MIB / 2, 9), bytes(2 * STRIPE, 10));
    let blocks_of_large = 2 * STRIPE / MIB;
    for (placing, blocks, stripes, found) in [
        (Placing::Origin, 0, 0, ""),
        (Placing::Functions, 0, 3, "functions"),
        (Placing::Memory, 1 + blocks_of_large, 0, "memory"),
        (Placing::Auto, 1, 2, "functions"),
    ] {
        let (bench, place) = placed_bench("forever", placing);
        bench.origin.put("bucket/small", small.clone());
        bench.origin.put("bucket/large", large.clone());
        assert!(
            bench.get("/bucket/small", &[]).body.as_ref() == Some(&small),
            "{placing}"
        );
        assert!(
            bench.get("/bucket/large", &[]).body.as_ref() == Some(&large),
            "{placing}"
        );
        place.until_it_holds(stripes);
        assert_eq!(bench.memories[0].blocks.lock().len(), blocks, "{placing}");
        let again = bench.get("/bucket/large", &[]);
        assert!(again.body.as_ref() == Some(&large), "{placing}");
        assert_eq!(again.header("x-tidemark-cache"), found, "{placing}");
    }
}
