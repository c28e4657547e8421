//! The errands that the pool's one thread leaves to the other: returning memory, splitting huge pages and making them.
//!
//! The thread that does the errands waits for the system, and shares its core with workers. It takes no lock, not even
//! one that only the two threads share: a waiter would wait as long. An errand lies in a place, a word that holds its
//! kind and its phase.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

/// The limit of errands under way. The least of them takes some 10 us, so that the two threads change places once in a
/// third of a millisecond.
const PLACES: usize = 32;

/// The phase of the errand in a place, in the lowest bits of its word. The holder of the state's lock turns `EMPTY`
/// into `LEFT`, and `DONE` into `EMPTY`. The thread that turns `LEFT` into `TAKEN` does the errand, and turns `TAKEN`
/// into `DONE`.
const PHASE: u64 = 0b11;
const EMPTY: u64 = 0;
const LEFT: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;

/// The bits above it are the errand, its success, a run's order, and the number of a unit or a block.
const KIND_SHIFT: u32 = 2;
const SUCCEEDED: u64 = 1 << 4;
const ORDER_SHIFT: u32 = 8;
const NUMBER_SHIFT: u32 = 32;

/// Something to be done with the system, which takes it a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Returns the memory of a run: its first unit and its order.
    Return(u32, u8),
    /// Splits the huge page of the block with this number.
    Split(u32),
    /// Makes a huge page of the block with this number.
    Collapse(u32),
}

impl Errand {
    fn word(self) -> u64 {
        let (kind, number, order) = match self {
            Self::Return(start, order) => (0, start, order),
            Self::Split(block) => (1, block, 0),
            Self::Collapse(block) => (2, block, 0),
        };
        kind << KIND_SHIFT | u64::from(order) << ORDER_SHIFT | u64::from(number) << NUMBER_SHIFT
    }

    fn of(word: u64) -> Self {
        let number = (word >> NUMBER_SHIFT) as u32;
        match word >> KIND_SHIFT & 0b11 {
            0 => Self::Return(number, (word >> ORDER_SHIFT) as u8),
            1 => Self::Split(number),
            _ => Self::Collapse(number),
        }
    }
}

/// An errand that the caller does and then says so.
#[derive(Debug)]
#[must_use]
pub(super) struct Taken {
    pub(super) errand: Errand,
    place: usize,
}

/// The outcome of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) errand: Errand,
    pub(super) succeeded: bool,
    /// CPU time.
    pub(super) took: Duration,
}

/// See the module. Any thread may take errands.
#[derive(Debug, Default)]
pub(super) struct Errands {
    places: [Place; PLACES],
    is_over: AtomicBool,
}

#[derive(Debug, Default)]
struct Place {
    word: AtomicU64,
    /// CPU time that it took, in nanoseconds; written before the errand is done.
    took: AtomicU64,
}

/// An empty place.
#[must_use]
pub(super) struct Room<'a>(&'a Place);

impl Room<'_> {
    /// Leaves an errand here.
    pub(super) fn leave(self, errand: Errand) {
        self.0.word.store(errand.word() | LEFT, Ordering::Release);
    }
}

impl Errands {
    /// A place for one more, if there is one. Only under the lock of the pool's state, as is collecting.
    pub(super) fn room(&self) -> Option<Room<'_>> {
        let mut places = self.places.iter();
        places
            .find(|place| place.word.load(Ordering::Relaxed) == EMPTY)
            .map(Room)
    }

    /// Takes one of the errands that are wanted and nobody took yet.
    pub(super) fn take(&self, is_wanted: impl Fn(Errand) -> bool) -> Option<Taken> {
        self.places.iter().enumerate().find_map(|(place, it)| {
            let word = it.word.load(Ordering::Acquire);
            if word & PHASE != LEFT || !is_wanted(Errand::of(word)) {
                return None;
            }
            let taken = word & !PHASE | TAKEN;
            let exchange = it
                .word
                .compare_exchange(word, taken, Ordering::AcqRel, Ordering::Relaxed);
            exchange.ok().map(|_| Taken {
                errand: Errand::of(word),
                place,
            })
        })
    }

    /// An errand is done, which took so much CPU time.
    pub(super) fn finish(&self, taken: &Taken, succeeded: bool, took: Duration) {
        let place = &self.places[taken.place];
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        place.took.store(nanos, Ordering::Relaxed);
        let flag = if succeeded { SUCCEEDED } else { 0 };
        place.word.store(taken.errand.word() | flag | DONE, Ordering::Release);
    }

    /// The outcome of an errand that is done, whose place is free then. Only to be called under the lock of the pool's
    /// state.
    pub(super) fn collect(&self) -> Option<Outcome> {
        // One thread takes the last errand, and the other finishes one before it. At least one of them sees what the
        // other did.
        fence(Ordering::SeqCst);
        self.places.iter().find_map(|place| {
            let word = place.word.load(Ordering::Acquire);
            (word & PHASE == DONE).then(|| {
                let took = Duration::from_nanos(place.took.load(Ordering::Relaxed));
                place.word.store(EMPTY, Ordering::Relaxed);
                Outcome {
                    errand: Errand::of(word),
                    succeeded: word & SUCCEEDED != 0,
                    took,
                }
            })
        })
    }

    /// Whether one waits for somebody to take it.
    pub(super) fn is_left(&self) -> bool {
        fence(Ordering::SeqCst);
        self.places
            .iter()
            .any(|place| place.word.load(Ordering::Acquire) & PHASE == LEFT)
    }

    /// Nobody need wait for another one.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_is_left_is_what_is_taken_and_collected() {
        let errands = Errands::default();
        let all = [
            Errand::Return(u32::MAX, 4),
            Errand::Split(7),
            Errand::Collapse(u32::MAX >> 5),
            Errand::Return(0, 0),
        ];
        all.iter().for_each(|errand| errands.room().unwrap().leave(*errand));
        assert!(errands.is_left());
        let split = errands.take(|errand| matches!(errand, Errand::Split(_))).unwrap();
        assert_eq!(split.errand, all[1]);
        assert!(errands.take(|errand| errand == all[1]).is_none(), "once");
        let rest: Vec<Taken> = std::iter::from_fn(|| errands.take(|_| true)).collect();
        assert_eq!(
            rest.iter().map(|taken| taken.errand).collect::<Vec<_>>(),
            [all[0], all[2], all[3]]
        );
        assert_eq!((errands.collect(), errands.is_left()), (None, false));
        for (taken, succeeded) in [(&split, false), (&rest[0], true)] {
            errands.finish(taken, succeeded, Duration::from_micros(9));
        }
        let outcomes: Vec<Outcome> = std::iter::from_fn(|| errands.collect()).collect();
        let took = Duration::from_micros(9);
        let expected = [(all[0], true), (all[1], false)].map(|(errand, succeeded)| Outcome {
            errand,
            succeeded,
            took,
        });
        assert_eq!((outcomes, errands.collect()), (expected.to_vec(), None));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let errands = Errands::default();
        let return_unit = |number| errands.room().unwrap().leave(Errand::Return(number, 0));
        (1..PLACES as u32).for_each(return_unit);
        errands.room().unwrap().leave(Errand::Split(1));
        assert!(errands.room().is_none());
        let split = errands.take(|errand| matches!(errand, Errand::Split(_))).unwrap();
        assert!(errands.room().is_none(), "it is under way");
        errands.finish(&split, true, Duration::ZERO);
        assert!(errands.room().is_none(), "it was not collected");
        assert_eq!(errands.collect().unwrap().errand, split.errand);
        assert!(errands.room().is_some());
    }

    #[test]
    fn each_is_done_once_whoever_takes_it() {
        const ALL: u32 = 20_000;
        let errands = Arc::new(Errands::default());
        let work = |errands: &Errands| {
            errands.take(|_| true).map(|taken| {
                errands.finish(&taken, true, Duration::ZERO);
                taken.errand
            })
        };
        let others = Arc::clone(&errands);
        let other = std::thread::spawn(move || {
            let mut done = Vec::new();
            while !others.is_over() {
                match work(&others) {
                    Some(errand) => done.push(errand),
                    None => std::thread::yield_now(),
                }
            }
            done
        });
        let (mut own, mut collected, mut next) = (Vec::new(), BTreeSet::new(), 0);
        while collected.len() < ALL as usize {
            while next < ALL
                && let Some(room) = errands.room()
            {
                room.leave(Errand::Return(next, 0));
                next += 1;
            }
            own.extend(work(&errands));
            while let Some(outcome) = errands.collect() {
                let Errand::Return(number, 0) = outcome.errand else {
                    panic!("{outcome:?}");
                };
                assert!(collected.insert(number), "{number} was done twice");
            }
        }
        errands.end();
        let theirs = other.join().unwrap();
        assert_eq!(own.len() + theirs.len(), ALL as usize);
    }
}
