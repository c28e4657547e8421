//! Functions are taken back as the InfiniCache paper saw it (section 4.1): how many go in an interval follows a distribution, and now and
//! then all go at once. Readers and writers go on meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemark_functions::availability::Reclaim;

use super::*;

const FUNCTIONS: usize = 12;
const OBJECTS: u8 = 6;
const INTERVALS: usize = 20;
/// In this one all are taken back.
const SPIKE: usize = 10;
/// Reads in an interval.
const READS: u64 = 12;

/// Draws from a distribution.
struct Reclaimer {
    summed: Vec<f64>,
    state: u64,
}

impl Reclaimer {
    fn new(reclaim: Reclaim, seed: u64) -> Self {
        let mut sum = 0.0;
        let probabilities = reclaim.probabilities(FUNCTIONS as u32).into_iter();
        let summed = probabilities.map(|probability| {
            sum += probability;
            sum
        });
        Self {
            summed: summed.collect(),
            state: seed,
        }
    }

    fn unit(&mut self) -> f64 {
        self.state = self
            .state
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The functions that go in the next interval.
    fn next(&mut self, interval: usize) -> Vec<usize> {
        let drawn = self.unit();
        let count = match interval {
            SPIKE => FUNCTIONS,
            _ => self.summed.partition_point(|sum| *sum <= drawn).min(FUNCTIONS),
        };
        let mut open: Vec<usize> = (0..FUNCTIONS).collect();
        let take = |_| open.swap_remove((self.unit() * open.len() as f64) as usize);
        (0..count).map(take).collect()
    }
}

/// Reads objects, and writes those that are not there, until it is to stop.
async fn work(functions: Functions, first: u64, reads: Arc<AtomicU64>, stops: Arc<AtomicBool>) {
    for round in first.. {
        if stops.load(Ordering::Relaxed) {
            return;
        }
        let object = (round % u64::from(OBJECTS)) as u8;
        let bytes = pattern(MIB, object);
        match read(&functions, [object; 16], 0, 0..MIB).await {
            Some(found) => assert!(found == bytes, "object {object}"),
            None => drop(functions.put([object; 16], MIB as u64, 0, bytes).await),
        }
        reads.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_right_however_functions_are_taken_back() {
    for (reclaim, seed) in [("poisson:1.5", 3), ("zipf:1.5", 4)] {
        let bench = bench(FUNCTIONS, |config| {
            config.warm_every = Some(Duration::from_secs(1));
            config.refill_at_once = true;
        });
        let functions = &bench.functions;
        let (reads, stops): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let workers: Vec<_> = (0..3)
            .map(|first| tokio::spawn(work(functions.clone(), first, Arc::clone(&reads), Arc::clone(&stops))))
            .collect();
        let (mut reclaimer, mut taken) = (Reclaimer::new(reclaim.parse().unwrap(), seed), 0);
        for interval in 0..INTERVALS {
            let before = reads.load(Ordering::Relaxed);
            until("reads go on", || reads.load(Ordering::Relaxed) >= before + READS).await;
            for function in reclaimer.next(interval) {
                taken += bench.emulator.reclaim(&bench.names[function]);
            }
        }
        stops.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        let totals = functions.totals();
        assert!(
            taken >= FUNCTIONS && totals.hits > READS,
            "{reclaim}: {taken}, {totals:?}"
        );
        assert!(
            totals.lost_chunks > 0 && totals.repaired_chunks > 0,
            "{reclaim}: {totals:?}"
        );
        assert_eq!(totals.corrupt_chunks, 0, "{reclaim}");
        // When nothing goes any more, all is there again.
        for object in 0..OBJECTS {
            let bytes = pattern(MIB, object);
            if read(functions, [object; 16], 0, 0..MIB).await.is_none() {
                assert!(
                    functions.put([object; 16], MIB as u64, 0, bytes.clone()).await,
                    "{reclaim}: {object}"
                );
            }
            assert!(
                read(functions, [object; 16], 0, 0..MIB).await.unwrap() == bytes,
                "{reclaim}: {object}"
            );
        }
    }
}
