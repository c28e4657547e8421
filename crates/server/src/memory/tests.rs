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
        // Beside another one, half, and lent memory.
        (standing(1000, 0, 0, 1, 2), 500, 750),
        (standing(1000, 700, 700, 1, 2), 500, 50),
        (standing(1000, 750, 750, 1, 2), 500, 0),
        // The other one has all that is lent: within the share there is the rest.
        (standing(1000, 750, 0, 1, 2), 500, 250),
        (standing(1000, 900, 150, 1, 2), 500, 100),
        // By weight.
        (standing(1000, 0, 0, 3, 4), 750, 750),
        (standing(1000, 800, 0, 1, 4), 250, 200),
        // Bytes charged beyond the sum are waited for.
        (standing(1000, 1100, 0, 1, 2), 500, 0),
        // A weight that is not counted yet.
        (standing(1000, 0, 0, 1, 0), 1000, 1000),
        (standing(0, 0, 0, 1, 1), 0, 0),
    ] {
        assert_eq!((standing.share(), standing.room()), (share, room), "{standing:?}");
    }
}

/// A sum of so many bytes, and those that were told of memory since the last call, by clients' numbers.
fn memory_of(most: u64) -> (Arc<Memory>, impl Fn() -> Vec<u64>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = {
        let told = Arc::clone(&told);
        move |caller: Caller| told.lock().push(caller.client)
    };
    (Memory::new(most, Box::new(tell)), move || {
        std::mem::take(&mut *told.lock())
    })
}

fn caller(client: u64) -> Caller {
    Caller {
        worker: 0,
        place: 0,
        client,
    }
}

fn room_of(account: &Arc<Account>) -> Room {
    let mut room = Room::default();
    room.follow(Some(account));
    room
}

#[test]
fn a_stranger_has_its_own_part_only() {
    let memory = memory_of(1000).0;
    let mut room = Room::default();
    assert_eq!(room.left(), 0);
    room.begin_wait(1, false, caller(1));
    assert!(!room.take(1) && !room.is_waiting() && !room.recall(UnixMs(1)));
    room.settle(OWN);
    // Logged in, it is charged for its memory.
    let account = memory.account(1);
    room.follow(Some(&account));
    room.settle(OWN + 10);
    assert_eq!((room.taken(), memory.held_bytes()), (10, 10));
    drop(room);
    assert_eq!((memory.held_bytes(), memory.weights.load(Ordering::Relaxed)), (0, 0));
}

#[test]
fn who_waits_is_given_memory_when_there_is_room_and_not_before() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (holder, mut waiting) = (room_of(&a), room_of(&b));
    assert!(holder.take(700));
    holder.settle(OWN + 650);
    assert!(holder.take(100) && waiting.take(200) && !waiting.take(200));
    waiting.begin_wait(200, false, caller(7));
    // Within its share: lent memory is asked for, once.
    assert!(waiting.recall(UnixMs(1000)) && !waiting.recall(UnixMs(1001)));
    assert!(waiting.is_waiting() && b.lacks_room() && !a.lacks_room());
    assert!(memory.is_recalling(UnixMs(1500)) && !memory.is_recalling(UnixMs(9000)));
    assert!(a.is_above_share() && !b.is_above_share());
    assert!(told().is_empty() && !waiting.is_given());
    holder.settle(OWN + 400);
    assert_eq!(told(), [7]);
    assert!(waiting.is_given() && memory.held_bytes() == 800, "it is taken for it");
    waiting.end_wait();
    assert_eq!(
        (waiting.taken(), waiting.left()),
        (400, 300),
        "100 of its share are left"
    );
    assert!(waiting.take(200) && waiting.taken() == 400, "it was its own already");
    waiting.begin_wait(5000, false, caller(7));
    waiting.end_wait();
    drop(holder);
    assert!(told().is_empty(), "nobody waits any more");
    drop(waiting);
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn what_was_given_and_is_not_used_is_given_back() {
    let (memory, told) = memory_of(1000);
    let account = memory.account(1);
    let (holder, mut first, mut second) = (room_of(&account), room_of(&account), room_of(&account));
    assert!(holder.take(900));
    first.begin_wait(200, false, caller(1));
    second.begin_wait(300, false, caller(2));
    holder.settle(OWN + 600);
    assert_eq!(told(), [1]);
    // Its visit needed less.
    first.end_wait();
    first.settle(OWN + 50);
    assert_eq!((told(), memory.held_bytes()), (vec![2], 950));
    // Closed before it was told.
    drop(second);
    assert_eq!(memory.held_bytes(), 650);
    first.begin_wait(100, false, caller(1));
    assert_eq!(told(), [1]);
    first.end_wait();
    first.return_given();
    assert_eq!(memory.held_bytes(), 650);
    // Waits for something else before it was told.
    first.begin_wait(100, false, caller(1));
    first.begin_wait(200, true, caller(1));
    assert_eq!((told(), memory.held_bytes()), (vec![1, 1], 850));
    drop((first, holder));
    assert_eq!(memory.held_bytes(), 0);
}

#[test]
fn newcomers_do_not_overtake_who_waits() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (holder, mut waiting, newcomer, neighbour) = (room_of(&a), room_of(&a), room_of(&a), room_of(&b));
    assert!(holder.take(750));
    waiting.begin_wait(100, false, caller(1));
    holder.settle(OWN + 700);
    // There are 50 that may be lent, and nobody of the tenant gets them before the one that waits.
    assert_eq!(newcomer.left(), 0);
    assert!(!newcomer.take(10));
    // Another tenant has its share, and does not borrow.
    assert_eq!(neighbour.left(), 300);
    assert!(neighbour.take(300) && !neighbour.take(1));
    holder.settle(OWN + 300);
    assert_eq!(told(), [1]);
    assert!(newcomer.take(10) && memory.held_bytes() == 710);
}

#[test]
fn the_oldest_command_is_next_and_tenants_within_their_shares_come_before_those_that_borrow() {
    let (memory, told) = memory_of(1000);
    let [a, b, c] = [(); 3].map(|()| memory.account(1));
    let (holder, other) = (room_of(&a), room_of(&b));
    let [mut old, mut young, mut borrower] = [&c, &c, &b].map(room_of);
    assert!(other.take(330) && holder.take(300));
    // The bytes are charged, as the rest after a visit is.
    holder.settle(OWN + 670);
    borrower.begin_wait(50, false, caller(1));
    old.begin_wait(100, false, caller(2));
    young.begin_wait(10, false, caller(3));
    assert!(told().is_empty());
    // There are 150 for those within their shares, in order; 40 are not lent.
    holder.settle(OWN + 520);
    assert_eq!(told(), [2, 3]);
    // One that goes on and has to wait again is the oldest still; with another command it is the youngest.
    holder.settle(OWN + 610);
    for room in [&mut old, &mut young] {
        room.end_wait();
    }
    old.settle(OWN + 100);
    young.begin_wait(20, false, caller(3));
    old.begin_wait(30, false, caller(2));
    holder.settle(OWN + 510);
    assert_eq!(told(), [2, 3]);
    old.end_wait();
    young.end_wait();
    holder.settle(OWN + 610);
    old.begin_wait(20, true, caller(2));
    young.begin_wait(20, false, caller(3));
    holder.settle(OWN + 470);
    assert_eq!(told(), [3, 2]);
    holder.settle(OWN);
    assert_eq!(told(), [1], "who borrows comes last");
}

#[test]
fn who_asks_for_more_than_is_ever_lent_keeps_nobody_waiting() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (mut greedy, mut modest, holder) = (room_of(&a), room_of(&b), room_of(&b));
    assert!(holder.take(700));
    greedy.begin_wait(900, false, caller(1));
    modest.begin_wait(60, false, caller(2));
    assert!(told().is_empty());
    holder.settle(OWN + 650);
    assert_eq!(told(), [2]);
    drop((holder, modest));
    assert_eq!(told(), [1], "alone, it has everything");
}

#[test]
fn of_those_that_hold_all_and_wait_for_each_other_one_is_closed_at_a_time() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let mut rooms: Vec<Room> = (0..5).map(|_| room_of(&a)).collect();
    let _other = room_of(&b);
    // The second holds most; the first is the oldest.
    for (room, holds) in rooms.iter().zip([190, 200, 120, 120, 120]) {
        assert!(room.take(holds));
        room.settle(OWN + holds);
    }
    for (client, room) in (0..).zip(&mut rooms) {
        room.begin_wait(250, false, caller(client));
    }
    let mut now = 10_000;
    let mut look = || {
        now += 1000;
        let found = memory.find_stuck(UnixMs(now));
        assert!(memory.find_stuck(UnixMs(now + 1)).is_empty(), "once a second");
        found.iter().map(|caller| caller.client).collect::<Vec<_>>()
    };
    assert!(look().is_empty(), "something may be moving");
    assert_eq!(look(), [1]);
    assert!(rooms[1].is_condemned());
    rooms.remove(1);
    assert!(told().is_empty(), "200 are not enough");
    assert_eq!(look(), [4], "the youngest of those that hold as much");
    rooms.remove(3);
    assert_eq!(told(), [0], "the oldest goes on");
    assert!(!rooms[0].is_condemned() && rooms[0].is_given());
    assert!(look().is_empty(), "it holds what the others wait for");
    drop(rooms.remove(0));
    assert_eq!(told(), [2], "one after the other, though there is room for both");
    rooms[0].end_wait();
    rooms[0].settle(OWN + 370);
    assert!(look().is_empty() && told().is_empty());
    rooms[0].settle(OWN);
    assert_eq!(told(), [3]);
    assert!(look().is_empty() && look().is_empty(), "nobody waits");
}

#[test]
fn who_is_favoured_and_waits_for_its_client_does_not_keep_others_waiting() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (mut rooms, _other) = ([(); 3].map(|()| Some(room_of(&a))), room_of(&b));
    rooms.iter().flatten().for_each(|room| assert!(room.take(250)));
    for (client, room) in (0..).zip(rooms.iter_mut().flatten()) {
        room.begin_wait(10 + client, false, caller(client));
    }
    let look = |second: u64| memory.find_stuck(UnixMs(second * 1000)).len();
    assert_eq!([1, 2].map(look), [0, 1]);
    rooms[2] = None;
    assert_eq!(told(), [0]);
    assert_eq!((look(3), told()), (0, vec![]));
    assert_eq!((look(4), told()), (0, vec![1]));
}

#[test]
fn who_waits_alone_is_closed_only_if_all_is_held_by_those_that_wait() {
    let (memory, _) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (mut first, mut second) = (room_of(&a), room_of(&b));
    assert!(first.take(300) && second.take(350));
    first.begin_wait(300, false, caller(1));
    let looks = |from: u64| {
        let found = (0..3).flat_map(|n| memory.find_stuck(UnixMs(from + 1000 * n)));
        found.map(|caller| caller.client).collect::<Vec<_>>()
    };
    assert!(looks(10_000).is_empty(), "the other one may give something back");
    second.begin_wait(200, false, caller(2));
    assert_eq!(looks(20_000)[..1], [2], "who holds most");
}

#[test]
fn who_leaves_makes_the_others_shares_larger() {
    let memory = memory_of(1000).0;
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

/// The next action of a connection.
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
        let memory = memory_of(MOST).0;
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
                    // The held bytes were taken before.
                    let bytes = bytes.min(OWN + rooms[who].taken());
                    rooms[who].settle(bytes);
                }
                Act::Move(who, to) => {
                    // As after a login: the held bytes stay within the own part.
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
                // An account above its share leaves a quarter.
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
    let memory = memory_of(MOST).0;
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
fn a_larger_share_is_given_to_who_waits() {
    let (memory, told) = memory_of(1000);
    let (a, b) = (memory.account(1), memory.account(1));
    let (first, mut second) = (room_of(&a), room_of(&b));
    assert!(first.take(600));
    first.settle(OWN + 600);
    assert!(second.take(150));
    second.begin_wait(380, false, caller(1));
    assert!(
        second.is_waiting() && told().is_empty(),
        "350 of its share are left, and 250 are free"
    );
    first.settle(OWN + 400);
    assert!(told().is_empty(), "450 are free, of which 200 are lent");
    b.set_weight(3);
    assert_eq!(told(), [1]);
    second.end_wait();
    b.set_weight(4);
    assert!(told().is_empty(), "nobody waits");
}
