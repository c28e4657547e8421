use std::sync::atomic::AtomicUsize;

use proptest::prelude::*;

use super::*;

const OWN: u64 = OWN_BYTES as u64;

fn standing(most: u64, held: u64, own: u64, weight: u64, weights: u64) -> Standing {
    Standing {
        most,
        held,
        own,
        weight,
        weights,
    }
}

#[test]
fn a_share_is_kept_and_the_rest_is_lent_but_for_a_quarter() {
    for (standing, share, room) in [
        // Alone, everything.
        (standing(1000, 0, 0, 1, 1), 1000, 1000),
        (standing(1000, 900, 900, 1, 1), 1000, 100),
        // Beside another one, half, and what is lent.
        (standing(1000, 0, 0, 1, 2), 500, 750),
        (standing(1000, 700, 700, 1, 2), 500, 50),
        (standing(1000, 750, 750, 1, 2), 500, 0),
        // The other one has all that is lent: within the share there is the rest.
        (standing(1000, 750, 0, 1, 2), 500, 250),
        (standing(1000, 900, 150, 1, 2), 500, 100),
        // By weight.
        (standing(1000, 0, 0, 3, 4), 750, 750),
        (standing(1000, 800, 0, 1, 4), 250, 200),
        // What was charged beyond the sum is waited for.
        (standing(1000, 1100, 0, 1, 2), 500, 0),
        // A weight that is not counted yet.
        (standing(1000, 0, 0, 1, 0), 1000, 1000),
        (standing(0, 0, 0, 1, 1), 0, 0),
    ] {
        assert_eq!((standing.share(), standing.room()), (share, room), "{standing:?}");
    }
}

fn room_of(account: &Arc<Account>) -> Room {
    let mut room = Room::default();
    room.follow(Some(account));
    room
}

#[test]
fn a_stranger_has_its_own_part_only() {
    let memory = Memory::new(1000, Box::new(|| {}));
    let mut room = Room::default();
    assert_eq!(room.left(), 0);
    assert!(!room.take(1) && !room.begin_wait(1, UnixMs(1)));
    room.settle(OWN);
    // Logged in, it is charged for what it holds.
    let account = memory.account(1);
    room.follow(Some(&account));
    room.settle(OWN + 10);
    assert_eq!((room.taken(), memory.held_bytes()), (10, 10));
    drop(room);
    assert_eq!((memory.held_bytes(), memory.weights.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn who_waits_is_told_when_there_is_room_and_not_before() {
    let alarms = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&alarms);
    let memory = Memory::new(
        1000,
        Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        }),
    );
    let (a, b) = (memory.account(1), memory.account(1));
    let (holder, waiting) = (room_of(&a), room_of(&b));
    assert!(holder.take(700));
    holder.settle(OWN + 650);
    assert_eq!(alarms.load(Ordering::Relaxed), 0, "nobody waited");
    assert!(holder.take(100) && waiting.take(200) && !waiting.take(200));
    // Within its share: what is lent is asked for, once.
    assert!(waiting.begin_wait(200, UnixMs(1000)) && !waiting.begin_wait(200, UnixMs(1001)));
    assert!(waiting.is_waiting() && b.lacks_room() && !a.lacks_room());
    assert!(memory.is_recalling(UnixMs(1500)) && !memory.is_recalling(UnixMs(9000)));
    assert!(a.is_above_share() && !b.is_above_share());
    assert!(!waiting.can_go_on(0));
    holder.settle(OWN + 400);
    assert_eq!(alarms.load(Ordering::Relaxed), 1);
    assert!(waiting.can_go_on(0) && waiting.can_go_on(100) && !waiting.can_go_on(300));
    waiting.end_wait();
    drop(holder);
    assert_eq!(alarms.load(Ordering::Relaxed), 1, "nobody waits any more");
    drop(waiting);
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn who_leaves_makes_the_others_shares_larger() {
    let memory = Memory::new(1000, Box::new(|| {}));
    let (a, b) = (memory.account(1), memory.account(3));
    let (of_a, of_b) = (room_of(&a), room_of(&b));
    assert_eq!((a.share(), b.share()), (250, 750));
    b.set_weight(1);
    assert_eq!((a.share(), b.share()), (500, 500));
    let another = room_of(&b);
    drop(of_b);
    assert_eq!(a.share(), 500);
    drop(another);
    assert_eq!(a.share(), 1000);
    drop(of_a);
    b.set_weight(7);
    assert_eq!(memory.weights.load(Ordering::Relaxed), 0);
}

/// What a connection does next.
#[derive(Clone, Debug)]
enum Act {
    Take(usize, u64),
    Hold(usize, u64),
    Move(usize, usize),
    Weigh(usize, u64),
}

fn act() -> impl Strategy<Value = Act> {
    let who = || 0..6_usize;
    prop_oneof![
        (who(), 0..400_u64).prop_map(|(who, bytes)| Act::Take(who, bytes)),
        (who(), 0..OWN + 400).prop_map(|(who, bytes)| Act::Hold(who, bytes)),
        (who(), 0..4_usize).prop_map(|(who, to)| Act::Move(who, to)),
        (0..3_usize, 1..9_u64).prop_map(|(who, weight)| Act::Weigh(who, weight)),
    ]
}

proptest! {
    #[test]
    fn the_sum_is_kept_and_every_share_can_be_had_of_what_is_not_lent(acts in prop::collection::vec(act(), 1..200)) {
        const MOST: u64 = 1000;
        let memory = Memory::new(MOST, Box::new(|| {}));
        let accounts = [1, 2, 5].map(|weight| memory.account(weight));
        let mut rooms: Vec<Room> = (0..6).map(|_| Room::default()).collect();
        for act in acts {
            match act {
                Act::Take(who, bytes) => {
                    let (before, left) = (memory.held_bytes(), rooms[who].left());
                    let taken = rooms[who].take(bytes);
                    prop_assert_eq!(taken, bytes <= left && rooms[who].account().is_some());
                    prop_assert!(!taken || memory.held_bytes() <= MOST.max(before));
                }
                Act::Hold(who, bytes) => {
                    // What is held was taken before.
                    let bytes = bytes.min(OWN + rooms[who].taken());
                    rooms[who].settle(bytes);
                }
                Act::Move(who, to) => {
                    // As after a login: what is held stays within the own part.
                    rooms[who].settle(OWN);
                    rooms[who].follow(accounts.get(to));
                }
                Act::Weigh(who, weight) => accounts[who].set_weight(weight),
            }
            let all: u64 = rooms.iter().map(Room::taken).sum();
            prop_assert_eq!(memory.held_bytes(), all);
            prop_assert!(all <= MOST);
            for account in &accounts {
                let own = account.held.load(Ordering::Relaxed);
                let free = MOST - all;
                let within = account.share().saturating_sub(own).min(free);
                prop_assert!(account.room() >= within);
                // Who is above its share leaves a quarter.
                prop_assert!(own < account.share() || account.room() == 0 || all + account.room() <= MOST - MOST / 4);
            }
        }
        drop(rooms);
        prop_assert_eq!(memory.held_bytes(), 0);
        prop_assert_eq!(memory.weights.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn threads_that_take_at_once_never_come_to_more_than_there_is() {
    const MOST: u64 = 10_000;
    let memory = Memory::new(MOST, Box::new(|| {}));
    let accounts = [memory.account(1), memory.account(1)];
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let (memory, account) = (&memory, &accounts[number as usize % 2]);
            scope.spawn(move || {
                let room = room_of(account);
                for turn in 0..20_000_u64 {
                    if room.take(number * 700 + turn % 900) {
                        assert!(memory.held_bytes() <= MOST);
                    }
                    if turn % 3 == 0 {
                        room.settle(0);
                    }
                }
            });
        }
    });
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn a_larger_share_is_told_to_who_waits() {
    let told = Arc::new(AtomicUsize::new(0));
    let alarm = {
        let told = Arc::clone(&told);
        move || {
            told.fetch_add(1, Ordering::SeqCst);
        }
    };
    let memory = Memory::new(1000, Box::new(alarm));
    let (a, b) = (memory.account(1), memory.account(1));
    let (first, second) = (room_of(&a), room_of(&b));
    assert!(first.take(700) && second.take(100));
    second.settle(OWN + 100);
    second.begin_wait(250, UnixMs(1));
    assert!(b.lacks_room(), "there are 200");
    first.settle(OWN + 650);
    assert!(!b.lacks_room(), "who waits has room");
    let before = told.load(Ordering::SeqCst);
    b.set_weight(3);
    assert_eq!(told.load(Ordering::SeqCst), before + 1);
    second.end_wait();
    b.set_weight(4);
    assert_eq!(told.load(Ordering::SeqCst), before + 1, "nobody waits");
}
