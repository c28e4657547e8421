//! Tests of the pool.

use super::state::DOZE;
use super::*;
use tidemark_types::{MIB, UNIT_BYTES};

/// Waits until the pool's threads have done something or a minute has passed. Between two looks it sleeps: one of them runs
/// only where nobody else does.
fn settled(pool: &Pool, condition: impl Fn(PoolStats) -> bool) -> PoolStats {
    let begin = Instant::now();
    while !condition(pool.stats()) && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
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
fn who_takes_anew_returns_what_waits_for_a_thread() {
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
    // It does not wait for the other thread's errands either.
    let mut state = core.state.lock();
    state.has_thread = false;
    for run in small {
        state.blocks.note_put(run.start, run.order);
        core.used_units.fetch_sub(run.units(), Ordering::Relaxed);
        core.resident_free_units.fetch_add(run.units(), Ordering::Relaxed);
        core.errands.room().unwrap().leave(Errand::Return(run.start, run.order));
    }
    drop(state);
    let large = core.take(4).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.usage_bytes, stats.resident_free_bytes), (MIB, 0));
    core.put(large);
}

#[test]
fn the_other_thread_does_what_is_left_to_it_and_says_so() {
    let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
    let core = Arc::clone(pool.core());
    core.state.lock().has_thread = true;
    core.tender.set(std::thread::current()).unwrap();
    let works = Arc::clone(&core);
    let other = std::thread::spawn(move || works.do_errands());
    let runs: Vec<Run> = (0..3).map(|_| core.take(1).unwrap()).collect();
    runs.into_iter().for_each(|run| core.put(run));
    let begin = Instant::now();
    while pool.stats().resident_free_bytes > 0 {
        let mut state = core.state.lock();
        core.collect_errands(&mut state, Instant::now());
        let next = state.oldest_dirty();
        if let Some((start, order)) = next {
            core.errands.room().unwrap().leave(Errand::Return(start, order));
        }
        drop(state);
        other.thread().unpark();
        if next.is_none() && pool.stats().resident_free_bytes > 0 {
            std::thread::park_timeout(Duration::from_secs(60));
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "it is never done, or never says so"
        );
    }
    core.errands.end();
    other.thread().unpark();
    other.join().unwrap();
    core.state.lock().has_thread = false;
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
    let now = Instant::now();
    state.dozes_until = Some(now + DOZE);
    assert_eq!(state.oldest_idle(now), None, "while it dozes");
    let idle: Vec<u32> = std::iter::from_fn(|| state.oldest_idle(now + DOZE))
        .map(|(start, _)| start)
        .collect();
    assert_eq!(idle, [runs[0].start, runs[1].start, runs[2].start]);
    assert_eq!(state.dirty[0], [runs[3].start], "needed again, and so perhaps soon");
    state.has_thread = false;
}

#[test]
fn what_the_other_thread_never_comes_to_is_returned_late() {
    let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
    let core = Arc::clone(pool.core());
    core.state.lock().has_thread = true;
    // As if it had been stopped in the middle of returning a block.
    core.errands
        .room()
        .unwrap()
        .leave(Errand::Return(BLOCK_UNITS, BLOCK_ORDER));
    let stopped = core.errands.take(|_| true);
    let works = Arc::clone(&core);
    let never = std::thread::current();
    let thread = std::thread::spawn(move || works.tend(&never));
    for round in 0..2 {
        let runs: Vec<Run> = (0..4).map(|_| core.take(1).unwrap()).collect();
        runs.iter().for_each(|run| core.put(*run));
        assert_eq!(pool.stats().resident_free_bytes, MIB / 2, "round {round}");
        let stats = settled(&pool, |stats| stats.resident_free_bytes == 0);
        assert_eq!(stats.resident_free_bytes, 0, "round {round}");
    }
    core.state.lock().stopping = true;
    core.wake();
    thread.join().unwrap();
    core.state.lock().has_thread = false;
    assert!(stopped.is_some());
}

#[test]
fn a_block_that_is_another_one_by_now_does_not_become_a_huge_page() {
    let pool = Pool::without_thread(8 * MIB, Some(8 * MIB)).unwrap();
    let core = pool.core();
    let runs: Vec<Run> = (0..2 * BLOCK_UNITS - 1).map(|_| core.take(0).unwrap()).collect();
    let mut state = core.state.lock();
    let now = Instant::now();
    let leave = |state: &mut State, block: u32| {
        state.collapsing = Some((now, block));
        core.errands.room().unwrap().leave(Errand::Collapse(block));
        core.forget_old_collapse(state);
    };
    leave(&mut state, 0);
    assert_eq!(state.collapsing, None, "the first block lacks a unit");
    leave(&mut state, 1);
    // The outcome of the first one says nothing of the second.
    core.collect_errands(&mut state, now);
    assert_eq!((state.collapsing, core.errands.is_left()), (Some((now, 1)), true));
    drop(state);
    runs.into_iter().for_each(|run| core.put(run));
}

#[test]
fn what_a_thread_was_not_done_with_is_returned_at_the_end() {
    let pool = Pool::without_thread(MIB, Some(8 * MIB)).unwrap();
    let core = Arc::clone(pool.core());
    core.state.lock().has_thread = true;
    let runs: Vec<Run> = (0..3).map(|_| core.take(1).unwrap()).collect();
    for run in &runs {
        core.put(*run);
        let (start, order) = core.state.lock().oldest_dirty().unwrap();
        core.errands.room().unwrap().leave(Errand::Return(start, order));
    }
    let done = core.errands.take(|_| true).unwrap();
    core.errands.finish(&done, true, Duration::ZERO);
    assert_eq!(pool.stats().resident_free_bytes, 3 * 2 * UNIT_BYTES);
    drop(pool);
    assert_eq!(core.stats().resident_free_bytes, 0);
    let mut state = core.state.lock();
    assert_eq!(state.buddy.take_low(2), Some(4), "they have joined again");
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
fn memory_that_can_not_be_returned_is_used_again_and_not_taken_for_zero() {
    let pool = Pool::without_thread(MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    let run = core.take(0).unwrap();
    let address = core.arena.at(run.offset(), run.bytes());
    // SAFETY: the run is ours; the system keeps its pages where they are, and does not take them back (madvise(2)).
    if unsafe { libc::mlock(address.cast(), run.bytes()) } != 0 {
        eprintln!("memory can not be locked here: nothing was tested");
        return;
    }
    core.put(run);
    assert_eq!(pool.resize(0), 0, "it ends");
    assert_eq!(pool.stats().resident_free_bytes, run.bytes() as u64);
    pool.resize(MIB);
    assert_eq!(core.take(0).unwrap(), Run { clean: false, ..run });
    // SAFETY: as above.
    unsafe { libc::munlock(address.cast(), run.bytes()) };
    core.put(run);
    assert_eq!(pool.stats().resident_free_bytes, 0);
    assert!(core.take(0).unwrap().clean);
}

#[test]
fn what_the_other_thread_could_not_return_is_not_taken_for_zero() {
    let pool = Pool::without_thread(MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    for is_returned in [false, true] {
        let run = core.take(0).unwrap();
        // As if it had been put back with threads, and left to the other one.
        core.used_units.fetch_sub(1, Ordering::Relaxed);
        core.resident_free_units.fetch_add(1, Ordering::Relaxed);
        core.state.lock().blocks.note_put(run.start, run.order);
        core.errands.room().unwrap().leave(Errand::Return(run.start, run.order));
        let taken = core.errands.take(|_| true).unwrap();
        core.errands.finish(&taken, is_returned, Duration::ZERO);
        core.collect_errands(&mut core.state.lock(), Instant::now());
        let free = if is_returned { 0 } else { run.bytes() as u64 };
        assert_eq!(pool.stats().resident_free_bytes, free);
        assert_eq!(
            core.take(0).unwrap(),
            Run {
                clean: is_returned,
                ..run
            }
        );
        core.put(run);
    }
}

/// How much of the mappings that a block lies in is backed by huge pages.
fn huge_bytes(core: &PoolCore, block: u32) -> u64 {
    let begin = core.arena.at(block_offset(block), BLOCK_BYTES) as u64;
    let end = begin + BLOCK_BYTES as u64;
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut overlaps, mut bytes) = (false, 0);
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let range = range.and_then(|(from, to)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            Some((number(from)?, number(to)?))
        });
        if let Some((from, to)) = range {
            overlaps = from < end && to > begin;
        } else if let Some(rest) = line.strip_prefix("AnonHugePages:")
            && overlaps
        {
            let kilobytes = rest.trim().strip_suffix(" kB").unwrap();
            bytes += kilobytes.parse::<u64>().unwrap() * 1024;
        }
    }
    bytes
}

/// How many huge pages the system has split so far, where it counts them.
fn split_pages() -> Option<u64> {
    let all = std::fs::read_to_string("/proc/vmstat").unwrap();
    let count = all.lines().find_map(|line| line.strip_prefix("thp_split_page "))?;
    count.parse().ok()
}

/// Whether the system has a huge page for a block now.
fn has_huge_page() -> bool {
    let arena = Arena::reserve(2 * BLOCK_BYTES as u64).unwrap();
    arena.populate(block_offset(1), BLOCK_BYTES).unwrap();
    arena.collapse(block_offset(1)).is_ok()
}

#[test]
fn a_huge_page_is_split_whether_something_of_it_was_released_or_not() {
    let pool = Pool::without_thread(8 * MIB, Some(8 * MIB)).unwrap();
    let core = pool.core();
    if !core.arena.can_collapse() || !has_huge_page() {
        eprintln!("there are no huge pages here: nothing was tested");
        return;
    }
    let runs: Vec<Run> = (0..2 * BLOCK_UNITS - 1).map(|_| core.take(0).unwrap()).collect();
    core.arena.populate(block_offset(1), BLOCK_BYTES).unwrap();
    core.arena.collapse(block_offset(1)).unwrap();
    assert_eq!(huge_bytes(core, 1), BLOCK_BYTES as u64);
    core.arena.split(block_offset(1));
    assert_eq!(huge_bytes(core, 1), 0);
    assert_eq!(core.arena.resident_bytes(block_offset(1)), BLOCK_BYTES);
    runs.into_iter().for_each(|run| core.put(run));
}

#[test]
fn a_block_that_is_full_becomes_a_huge_page_and_is_given_back_unit_by_unit() {
    let mut pool = Pool::without_thread(64 * MIB, Some(64 * MIB)).unwrap();
    let core = &Arc::clone(pool.core());
    if !core.arena.can_collapse() || !has_huge_page() {
        eprintln!("there are no huge pages here: nothing was tested");
        return;
    }
    // The first block lacks a unit. Before there are threads no block is opened.
    let mut runs: Vec<Run> = (0..2 * BLOCK_UNITS - 2).map(|_| core.take(0).unwrap()).collect();
    pool.begin_threads().unwrap();
    runs.push(core.take(0).unwrap());
    let (first, full): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(|run| block_of(run.start) == 0);
    assert_eq!((first.len(), full.len()), (31, 32));
    // Nothing was written to: a huge page would take memory for nothing.
    settled(&pool, |_| core.state.lock().blocks.patience(1) >= 1);
    assert!(core.state.lock().blocks.patience(1) >= 1, "it was not looked at");
    assert_eq!(core.arena.resident_bytes(block_offset(1)), 0);
    for run in &full {
        let address = core.arena.at(run.offset(), run.bytes());
        // SAFETY: the run is ours.
        unsafe { std::ptr::write_bytes(address, (run.start % 251) as u8, run.bytes()) };
    }
    let is_huge = |number: usize| core.state.lock().blocks.is_huge(number);
    settled(&pool, |_| is_huge(1));
    assert!(is_huge(1) && !is_huge(0), "the first is not full");
    assert_eq!(huge_bytes(core, 1), BLOCK_BYTES as u64);
    let before = split_pages();
    let (given, kept) = full.split_at(20);
    given.iter().for_each(|run| core.put(*run));
    settled(&pool, |stats| stats.resident_free_bytes == 0);
    settled(&pool, |_| !is_huge(1));
    assert_eq!((is_huge(1), huge_bytes(core, 1)), (false, 0));
    // The system has the memory back, not only the process's tables.
    let is_split = || before.is_none_or(|before| split_pages() > Some(before));
    settled(&pool, |_| is_split());
    assert!(is_split());
    assert_eq!(core.arena.resident_bytes(block_offset(1)), 12 * UNIT_BYTES as usize);
    for run in kept {
        let address = core.arena.at(run.offset(), run.bytes());
        // SAFETY: the run is ours, and nobody writes to it.
        let bytes = unsafe { std::slice::from_raw_parts(address, run.bytes()) };
        assert!(bytes.iter().all(|byte| *byte == (run.start % 251) as u8), "{run:?}");
    }
    // A block that is filled again becomes one again.
    let again: Vec<Run> = (0..20).map(|_| core.take(0).unwrap()).collect();
    assert!(again.iter().all(|run| block_of(run.start) == 1), "{again:?}");
    for run in &again {
        core.arena.populate(run.offset(), run.bytes()).unwrap();
    }
    settled(&pool, |_| is_huge(1));
    assert!(is_huge(1));
}

#[test]
fn small_runs_come_from_huge_pages_that_are_ready_by_then() {
    let pool = Pool::start(64 * MIB, Some(64 * MIB)).unwrap();
    let core = pool.core();
    if !core.arena.can_collapse() || !has_huge_page() {
        eprintln!("there are no huge pages here: nothing was tested");
        return;
    }
    let block = BLOCK_BYTES as u64;
    let resident_free = |bytes| settled(&pool, |stats| stats.resident_free_bytes == bytes).resident_free_bytes;
    // The first block lacks a unit, and nothing was asked for before the second one.
    let mut runs: Vec<Run> = (0..BLOCK_UNITS).map(|_| core.take(0).unwrap()).collect();
    assert_eq!(resident_free(block), block, "the third one is opened");
    assert_eq!(huge_bytes(core, 2), block);
    runs.extend((0..BLOCK_UNITS - 1).map(|_| core.take(0).unwrap()));
    assert!(runs.iter().all(|run| block_of(run.start) < 2), "holes come first");
    assert_eq!(resident_free(block), block);
    let opened: Vec<Run> = (0..3).map(|_| core.take(3).unwrap()).collect();
    assert!(
        opened.iter().all(|run| run.clean && block_of(run.start) == 2),
        "{opened:?}"
    );
    let left = block / 4 + block;
    assert_eq!(resident_free(left), left, "a quarter, and so the next one");

    // It yields to a budget that is lowered.
    let usage_bytes = pool.stats().usage_bytes;
    pool.resize(usage_bytes);
    assert_eq!(pool.stats().resident_free_bytes, 0);
    pool.resize(64 * MIB);
    // The remaining units are a hole, and used up before the next block is opened, which nobody uses then.
    let holes: Vec<Run> = (0..BLOCK_UNITS / 4).map(|_| core.take(0).unwrap()).collect();
    assert!(holes.iter().all(|run| block_of(run.start) == 2), "{holes:?}");
    runs.extend(holes);
    runs.push(core.take(0).unwrap());
    assert_eq!(resident_free(block), block);
    assert_eq!(resident_free(0), 0, "idle");
    settled(&pool, |_| huge_bytes(core, 2) == 0);
    assert_eq!(huge_bytes(core, 2), 0, "a part of it was given back");
    runs.into_iter().chain(opened).for_each(|run| core.put(run));
    assert_eq!(resident_free(0), 0);
    let state = core.state.lock();
    assert_eq!(
        state.blocks.collapsed(),
        0,
        "none is left of those that would have to be split"
    );
}

#[test]
fn the_end_of_a_run_can_be_put_back_before_the_rest() {
    let pool = Pool::without_thread(4 * MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    for take in [PoolCore::take_block, |core: &PoolCore| core.take(3)] {
        let run = take(core).unwrap();
        let kept = core.put_end(run, 1);
        assert_eq!((kept.start, kept.order), (run.start, 1));
        assert_eq!(core.put_end(kept, 1), kept, "all of it");
        assert_eq!(pool.stats().usage_bytes, 2 * UNIT_BYTES);
        core.put(kept);
        assert_eq!(pool.stats().usage_bytes, 0);
        let again = take(core).unwrap();
        assert_eq!(again, run, "its parts have joined again");
        core.put(again);
    }
}

#[test]
fn a_block_of_which_the_end_was_put_back_gives_its_memory_back() {
    let pool = Pool::start(64 * MIB, Some(64 * MIB)).unwrap();
    let core = pool.core();
    if !core.arena.can_collapse() || !has_huge_page() {
        eprintln!("there are no huge pages here: nothing was tested");
        return;
    }
    core.expect_block();
    settled(&pool, |stats| stats.resident_free_bytes == BLOCK_BYTES as u64);
    let block = core.take_block().expect("one is ready");
    let number = block_of(block.start);
    let is_split = |was: Option<u64>| was.is_none_or(|was| split_pages().is_some_and(|now| now > was));
    let (split_before, quarter) = (split_pages(), BLOCK_BYTES / 4);
    let kept = core.put_end(block, BLOCK_ORDER - 2);
    settled(&pool, |stats| stats.resident_free_bytes == 0 && is_split(split_before));
    assert!(
        is_split(split_before),
        "else the system counts the rest as free and does not have it"
    );
    assert_eq!(core.arena.resident_bytes(block_offset(number)), quarter);
    assert_eq!(pool.stats().usage_bytes, quarter as u64);
    core.put(kept);
    assert_eq!(settled(&pool, |stats| stats.resident_free_bytes == 0).usage_bytes, 0);
}

#[test]
fn owners_are_remembered_by_unit() {
    let pool = Pool::without_thread(4 * MIB, Some(4 * MIB)).unwrap();
    let core = pool.core();
    let run = core.take(1).unwrap();
    core.set_owner(run, 42);
    assert_eq!(core.owner(run.offset() + UNIT_BYTES + 5), 42);
}
