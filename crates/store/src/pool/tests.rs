//! Tests of the pool.

use super::*;
use tidemark_types::{MIB, UNIT_BYTES};

/// Waits until the pool's thread has nothing left to do or a minute has passed.
fn settled(pool: &Pool, condition: impl Fn(PoolStats) -> bool) -> PoolStats {
    let begin = Instant::now();
    while !condition(pool.stats()) && begin.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    pool.stats()
}

#[test]
fn the_budget_is_kept_and_can_change() {
    let pool = Pool::without_thread(MIB, Some(64 * MIB)).unwrap();
    let core = pool.core();
    let first = core.take(3).unwrap();
    let second = core.take(3).unwrap();
    assert_eq!(core.take(0), None, "16 units are 1 MiB");
    assert_eq!(pool.stats().usage_bytes, MIB);
    core.put(first);
    assert_eq!(core.free_units(), 8);
    assert_eq!(pool.resize(MIB / 2), MIB / 2);
    assert_eq!(core.take(0), None);
    core.put(second);
    assert_eq!(pool.resize(1 << 40), 64 * MIB - UNIT_BYTES);
    assert!(core.take_block().is_some());
}

#[test]
fn memory_put_back_is_zero_and_clean_again() {
    let pool = Pool::without_thread(4 * MIB, Some(8 * MIB)).unwrap();
    let core = pool.core();
    let run = core.take(0).unwrap();
    assert!(run.clean);
    let place = core.arena.at(run.offset(), 1);
    // SAFETY: the run is ours.
    unsafe { place.write(9) };
    core.put(run);
    let again = core.take(0).unwrap();
    assert_eq!((again.start, again.clean), (run.start, true));
    // SAFETY: the run is ours.
    assert_eq!(unsafe { place.read() }, 0);
}

#[test]
fn the_thread_returns_memory_and_prepares_blocks() {
    let pool = Pool::start(64 * MIB, Some(128 * MIB)).unwrap();
    let core = pool.core();
    core.expect_block();
    assert_eq!(
        settled(&pool, |s| s.resident_free_bytes == 2 * MIB).resident_free_bytes,
        2 * MIB
    );
    let block = core.take_block().expect("one block is ready");
    assert_eq!(pool.stats().usage_bytes, 2 * MIB);
    let small = core.take(2).unwrap();
    core.put(small);
    core.put(block);
    let stats = settled(&pool, |s| s.resident_free_bytes == 0);
    assert_eq!(
        (stats.usage_bytes, stats.resident_free_bytes),
        (0, 0),
        "also what was kept ready is returned when idle"
    );
}

#[test]
fn what_is_made_ready_is_within_the_budget_also_when_it_is_lowered() {
    let pool = Pool::start(64 * MIB, Some(128 * MIB)).unwrap();
    let core = pool.core();
    (0..8).for_each(|_| core.expect_block());
    assert_eq!(
        settled(&pool, |s| s.resident_free_bytes == 16 * MIB).resident_free_bytes,
        16 * MIB
    );
    let blocks = [core.take_block().unwrap(), core.take_block().unwrap()];
    pool.resize(8 * MIB);
    let stats = pool.stats();
    assert_eq!((stats.usage_bytes, stats.resident_free_bytes), (4 * MIB, 4 * MIB));
    // Two more would fit, and are ready; small runs come first.
    let small: Vec<Run> = (0..4).map(|_| core.take(4).unwrap()).collect();
    assert_eq!(
        (pool.stats().usage_bytes, pool.stats().resident_free_bytes),
        (8 * MIB, 0)
    );
    blocks.into_iter().chain(small).for_each(|run| core.put(run));
}

#[test]
fn who_takes_anew_returns_what_waits_for_the_thread() {
    let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
    let core = pool.core();
    // As with a thread that is busy elsewhere.
    core.state.lock().has_thread = true;
    let large = core.take(4).unwrap();
    core.put(large);
    assert_eq!(pool.stats().resident_free_bytes, MIB);
    let small: Vec<Run> = (0..4).map(|_| core.take(1).unwrap()).collect();
    let stats = pool.stats();
    assert_eq!((stats.usage_bytes, stats.resident_free_bytes), (MIB / 2, 0));
    core.state.lock().has_thread = false;
    small.into_iter().for_each(|run| core.put(run));
}

#[test]
fn what_is_taken_again_soon_stays_backed_and_the_rest_is_returned() {
    let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
    let core = pool.core();
    // As with a thread that looks when this test says so.
    core.state.lock().has_thread = true;
    let runs: Vec<Run> = (0..4).map(|_| core.take(0).unwrap()).collect();
    runs.iter().for_each(|run| core.put(*run));
    core.state.lock().begin_to_doze();
    let again = core.take(0).unwrap();
    assert_eq!((again.start, again.clean), (runs[3].start, false), "the newest");
    core.put(again);
    let mut state = core.state.lock();
    assert_eq!(state.oldest_idle(), None, "while it dozes");
    state.dozes_until = None;
    let idle: Vec<u32> = std::iter::from_fn(|| state.oldest_idle())
        .map(|(start, _)| start)
        .collect();
    assert_eq!(idle, [runs[0].start, runs[1].start, runs[2].start]);
    assert_eq!(state.dirty[0], [runs[3].start], "needed again, and so perhaps soon");
    state.has_thread = false;
}

#[test]
fn a_block_that_was_huge_can_be_split_again() {
    let pool = Pool::without_thread(4 * MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    let block = core.take_block().unwrap();
    core.put(block);
    let mut runs = Vec::new();
    while let Some(run) = core.take(0) {
        runs.push(run);
    }
    assert_eq!(runs.len(), 63, "all units but the first");
    assert!(core.take_block().is_none());
    runs.into_iter().for_each(|run| core.put(run));
    assert!(core.take_block().is_some());
}

#[test]
fn owners_are_remembered_by_unit() {
    let pool = Pool::without_thread(4 * MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    let run = core.take(1).unwrap();
    core.set_owner(run, 42);
    assert_eq!(core.owner(run.offset() + UNIT_BYTES + 5), 42);
}
