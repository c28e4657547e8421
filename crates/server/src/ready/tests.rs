use super::*;
use proptest::prelude::*;

fn owner(number: usize) -> Owner {
    Owner::tenant(TenantId(number as u32))
}

/// Adds a connection whose visits the clocks alone decide about.
fn push(ready: &mut Ready, tenant: usize, weight: u64, place: usize, work_ns: u32, is_endless: bool) {
    let waiting = Waiting {
        place,
        work_ns,
        is_endless,
        is_small: false,
    };
    ready.push(owner(tenant), weight, waiting, usize::MAX);
}

/// Adds a connection whose last visit was small.
fn push_small(ready: &mut Ready, tenant: usize, weight: u64, place: usize) {
    let waiting = Waiting {
        place,
        work_ns: VISIT_NS,
        is_endless: false,
        is_small: true,
    };
    ready.push(owner(tenant), weight, waiting, usize::MAX);
}

/// Adds connections of a tenant, of which so much work is expected, at places that tell whose they are.
fn add(ready: &mut Ready, tenant: usize, weight: u64, connections: usize, work_ns: u32) {
    for connection in 0..connections {
        push(ready, tenant, weight, tenant * 1000 + connection, work_ns, false);
    }
}

fn next(ready: &mut Ready) -> Picked {
    ready.next(|_, _| true).unwrap()
}

#[test]
fn connections_of_one_tenant_come_in_their_order() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 5, 1000);
    let places: Vec<usize> = (0..5).map(|_| next(&mut ready).place).collect();
    assert_eq!(places, [1000, 1001, 1002, 1003, 1004]);
    assert!(ready.is_empty() && ready.next(|_, _| true).is_none());
}

#[test]
fn who_comes_late_is_next_however_many_wait() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 64, 100_000);
    for _ in 0..3 {
        next(&mut ready);
    }
    add(&mut ready, 2, 1, 1, 5000);
    let picked: Vec<usize> = (0..2).map(|_| next(&mut ready).place / 1000).collect();
    assert!(picked.contains(&2), "{picked:?}");
    // Again and again: little work is served before much.
    for _ in 0..10 {
        add(&mut ready, 2, 1, 1, 5000);
        let picked: Vec<usize> = (0..2).map(|_| next(&mut ready).place / 1000).collect();
        assert!(picked.contains(&2), "{picked:?}");
    }
}

#[test]
fn what_does_not_fit_stays_where_it_is() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 2, 1);
    assert_eq!(ready.next(|place, work_ns| (place, work_ns) != (1000, 1)), None);
    assert_eq!((ready.len(), next(&mut ready).place), (2, 1000));
}

#[test]
fn at_most_a_credit_of_turns_is_saved_up() {
    const WORK_NS: u32 = 10_000;
    let saved = (CREDIT_NS / WORK_NS) as usize;
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 2 * saved, WORK_NS);
    for _ in 0..saved + 100 {
        next(&mut ready);
    }
    // The other one was silent meanwhile, and may be tidied away.
    ready.tidy();
    add(&mut ready, 2, 1, 2 * saved, WORK_NS);
    let first = (0..).take_while(|_| next(&mut ready).place / 1000 == 2).count();
    assert!(first.abs_diff(saved) <= 1, "{first}");
    let mut counts = [0_u32; 3];
    for _ in 0..200 {
        counts[next(&mut ready).place / 1000] += 1;
    }
    assert!(counts[1].abs_diff(counts[2]) <= 2, "{counts:?}");
}

#[test]
fn who_asks_for_nearly_its_share_catches_up() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 200, 10_000);
    // Nothing, and then twice as much: half of the time over all.
    for _ in 0..3 {
        for _ in 0..40 {
            next(&mut ready);
        }
        add(&mut ready, 2, 1, 40, 10_000);
        let picked: Vec<usize> = (0..40).map(|_| next(&mut ready).place / 1000).collect();
        assert!(picked.iter().filter(|tenant| **tenant == 2).count() >= 39, "{picked:?}");
    }
}

/// A worker that serves two tenants. Tenant 1 always has so many connections waiting. Tenant 2 asks for a part of the
/// worker's time. Times are nanoseconds.
struct Beside {
    ready: Ready,
    now: u64,
    flood: usize,
    done: [u64; 3],
}

impl Beside {
    const FLOOD_NS: u32 = 100_000;
    const SMALL_NS: u32 = 10_000;
    /// Clients of tenant 2 that have not been answered do not ask again.
    const MOST: usize = 500;

    fn new(flood: usize) -> Self {
        let mut ready = Ready::default();
        add(&mut ready, 1, 1, flood, Self::FLOOD_NS);
        Self {
            ready,
            now: 0,
            flood,
            done: [0; 3],
        }
    }

    /// Works for so long, while tenant 2 asks for this part of the time. Returns the most of its connections that waited.
    fn work(&mut self, for_ns: u64, part: f64) -> usize {
        let until = self.now + for_ns;
        let mut most = 0;
        while self.now < until {
            let picked = next(&mut self.ready);
            let tenant = picked.place / 1000;
            let work_ns = picked.charge.work_ns;
            if tenant == 1 {
                // Its client has sent more meanwhile.
                push(&mut self.ready, 1, 1, picked.place, work_ns, false);
            }
            self.done[tenant] += u64::from(work_ns);
            self.pass(u64::from(work_ns), part);
            most = most.max(self.ready.len() - self.flood);
        }
        most
    }

    /// Time passes without work.
    fn pass(&mut self, for_ns: u64, part: f64) {
        let every_ns = f64::from(Self::SMALL_NS) / part;
        let due = |now: u64| (now as f64 / every_ns) as usize;
        let before = due(self.now);
        self.now += for_ns;
        let free = Self::MOST - (self.ready.len() - self.flood);
        let connections = free.min(due(self.now) - before);
        add(&mut self.ready, 2, 1, connections, Self::SMALL_NS);
    }

    /// Works, and says which part of the work meanwhile was for tenant 1.
    fn part_of_work(&mut self, for_ns: u64, part: f64) -> f64 {
        let before = self.done;
        self.work(for_ns, part);
        let [one, two] = [1, 2].map(|tenant| (self.done[tenant] - before[tenant]) as f64);
        one / (one + two)
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn who_asks_for_a_little_more_than_its_share_does_not_wait_for_a_flood() {
    let mut beside = Beside::new(64);
    assert!(beside.work(2 * SECOND, 0.6) < 30);
    // The machine stops for a moment, and the backlog is worked off.
    beside.pass(SECOND / 400, 0.6);
    beside.work(SECOND / 5, 0.6);
    assert!(beside.work(SECOND, 0.6) < 30);
}

#[test]
fn who_floods_has_a_part_of_its_share_and_all_of_it_beside_another() {
    let mut beside = Beside::new(64);
    // The waiting work is not much yet.
    let flood = beside.part_of_work(SECOND / 100, 0.9);
    assert!((0.19..0.23).contains(&flood), "{flood}");
    beside.work(SECOND, 0.9);
    let flood = beside.part_of_work(SECOND, 0.9);
    assert!((0.49..0.51).contains(&flood), "{flood}");
}

#[test]
fn who_sends_without_end_over_one_connection_has_its_share() {
    let mut ready = Ready::default();
    push(&mut ready, 1, 1, 1000, 80_000, true);
    add(&mut ready, 2, 1, 64, 5_000);
    let mut done = [0_u64; 3];
    for _ in 0..10_000 {
        let picked = next(&mut ready);
        let tenant = picked.place / 1000;
        done[tenant] += u64::from(picked.charge.work_ns);
        push(&mut ready, tenant, 1, picked.place, picked.charge.work_ns, tenant == 1);
    }
    assert!(done[1].abs_diff(done[2]) < 200_000, "{done:?}");
}

/// By how much a tenant of which little waits is charged for a visit, of which so much was expected and which took so much.
fn charged_ns(expected_ns: u32, took_ns: u32) -> u64 {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 64, 10_000);
    add(&mut ready, 2, 1, 2, expected_ns);
    let picked = std::iter::repeat_with(|| next(&mut ready)).find(|picked| picked.place / 1000 == 2);
    let charge = picked.unwrap().charge;
    let before = ready.lanes[charge.lane].clock - charge.ticks;
    ready.settle(charge, took_ns);
    (ready.lanes[charge.lane].clock - before) >> CLOCK_BITS
}

#[test]
fn what_little_takes_counts_less_and_whole_where_it_is_far_beyond_what_was_expected() {
    let times = LITTLE_TIMES as u32;
    for took_ns in [0, 3_000, 6_000, 12_000, 24_000] {
        assert_eq!(charged_ns(6_000, took_ns), u64::from(took_ns / times), "{took_ns}");
    }
    // Costs as uncertain as the expected ones cancel out in the mean, so that the tenant has its share.
    assert_eq!(
        charged_ns(6_000, 12_000) + charged_ns(12_000, 6_000),
        2 * charged_ns(9_000, 9_000)
    );
    assert_eq!(charged_ns(6_000, 1_024_000), 1_000_000 + u64::from(24_000 / times));
    assert_eq!(charged_ns(0, 1_000_000), 1_000_000);
}

#[test]
fn strangers_make_nobody_s_waiting_little() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 64, 10_000);
    for place in 0..1000 {
        let waiting = Waiting {
            place,
            work_ns: 5_000,
            is_endless: false,
            is_small: false,
        };
        ready.push(Owner::STRANGERS, 1, waiting, usize::MAX);
    }
    let first = std::iter::repeat_with(|| next(&mut ready)).find(|picked| picked.place / 1000 == 1);
    let charge = first.unwrap().charge;
    assert_eq!(charge.ticks >> CLOCK_BITS, u64::from(charge.work_ns));
}

#[test]
fn half_as_much_is_not_little() {
    let mut beside = Beside::new(20);
    add(&mut beside.ready, 2, 1, 100, Beside::SMALL_NS);
    let flood = beside.part_of_work(SECOND, 0.5);
    assert!((0.49..0.51).contains(&flood), "{flood}");
}

#[test]
fn it_is_uneven_while_one_asks_for_little_beside_another_that_does_not() {
    let mut ready = Ready::default();
    for tenant in 0..4 {
        add(&mut ready, tenant, 1, 2000, 10_000);
    }
    for _ in 0..4000 {
        next(&mut ready);
        assert!(!ready.is_uneven(), "of all as much waits");
    }
    add(&mut ready, 4, 1, 1, 10_000);
    let until = (0..).find(|_| {
        next(&mut ready);
        ready.is_uneven()
    });
    assert!(until.is_some_and(|picks| picks < 10), "{until:?}");
    let after = (0..).take_while(|_| {
        next(&mut ready);
        ready.is_uneven()
    });
    assert_eq!(after.count(), UNEVEN_PICKS as usize - 1);
}

#[test]
fn a_visit_that_took_long_is_paid_for_also_after_a_pause() {
    let mut ready = Ready::default();
    add(&mut ready, 1, 1, 300, 10_000);
    add(&mut ready, 2, 1, 1, 10_000);
    // Tenant 2 takes a millisecond, which nobody expected: but for four times the expected cost it counts whole.
    let heavy = loop {
        let picked = next(&mut ready);
        if picked.place / 1000 == 2 {
            break picked;
        }
    };
    ready.settle(heavy.charge, 1_000_000);
    ready.tidy();
    add(&mut ready, 2, 1, 1, 10_000);
    let before = (0..).take_while(|_| next(&mut ready).place / 1000 == 1).count();
    assert!((96..=98).contains(&before), "{before}");
}

#[test]
fn lanes_that_owe_nothing_are_used_again() {
    let mut ready = Ready::default();
    for tenant in 0..1000 {
        add(&mut ready, tenant, 1, 1, 0);
        next(&mut ready);
        ready.tidy();
    }
    assert_eq!(ready.lanes.len(), 1000, "none has its whole credit");
    // Somebody else works for longer than that.
    add(&mut ready, 1000, 1, 2, CREDIT_NS);
    for _ in 0..2 {
        next(&mut ready);
    }
    ready.tidy();
    assert_eq!((ready.by_owner.len(), ready.free.len()), (1, 1000));
    let mut ready = Ready::default();
    let waiting = |place: usize| Waiting {
        place,
        work_ns: 0,
        is_endless: false,
        is_small: false,
    };
    // A hint of a lane that is somebody else's now is not followed.
    ready.push(owner(1), 1, waiting(1000), usize::MAX);
    ready.push(owner(2), 1, waiting(2000), 0);
    assert_eq!(ready.lanes.len(), 2);
    ready.push(Owner::STRANGERS, 1, waiting(3000), 0);
    assert_eq!((ready.lanes.len(), ready.len()), (3, 3));
}

#[test]
fn work_grows_with_what_is_done() {
    assert!(work_ns(0, 0) < work_ns(1, 0) && work_ns(1, 0) < work_ns(1, 100));
    assert_eq!(work_ns(u32::MAX, usize::MAX), u32::MAX);
}

#[test]
fn a_visit_is_small_by_its_commands_and_bytes() {
    assert!(is_small(1, 100) && is_small(16, 0) && is_small(1, 16_000));
    assert!(!is_small(17, 0) && !is_small(1, 20_000));
}

/// Tenant 1 has done what it may, and three others come back with all their credit.
fn behind_three_that_catch_up(ready: &mut Ready) {
    add(ready, 1, 1, 200, 50_000);
    for _ in 0..200 {
        next(ready);
    }
    (2..5).for_each(|tenant| add(ready, tenant, 1, 900, 5_000));
}

#[test]
fn a_small_visit_waits_for_half_a_turn_of_picks_whatever_the_clocks_say() {
    let mut ready = Ready::default();
    behind_three_that_catch_up(&mut ready);
    push(&mut ready, 1, 1, 1000, VISIT_NS, false);
    let picks = (1..).find(|_| next(&mut ready).place / 1000 == 1);
    assert!(
        picks.is_some_and(|picks| picks > 10 * DUE_PICKS),
        "by the clocks {picks:?}"
    );
    let mut ready = Ready::default();
    behind_three_that_catch_up(&mut ready);
    for _ in 0..3 {
        push_small(&mut ready, 1, 1, 1000);
        let picks = (1..).find(|_| next(&mut ready).place / 1000 == 1);
        assert_eq!(picks, Some(DUE_PICKS + 1));
    }
    // The clock says when the next ones come.
    (0..5).for_each(|connection| push_small(&mut ready, 1, 1, 1000 + connection));
    let mine = (0..2 * DUE_PICKS).filter(|_| next(&mut ready).place / 1000 == 1);
    assert_eq!(mine.count(), DUE_CONNECTIONS);
}

#[test]
fn what_is_due_comes_in_its_order_and_takes_every_second_pick() {
    const SMALL: usize = 40;
    let mut ready = Ready::default();
    behind_three_that_catch_up(&mut ready);
    let small = |tenant: usize| (10..10 + SMALL).contains(&tenant);
    // They have done what they may, too.
    (10..10 + SMALL).for_each(|tenant| add(&mut ready, tenant, 1, 1, 10_000_000));
    let mut left = SMALL;
    while left > 0 {
        left -= usize::from(small(next(&mut ready).place / 1000));
    }
    (2..5).for_each(|tenant| add(&mut ready, tenant, 1, 900, 5_000));
    (10..10 + SMALL).for_each(|tenant| push_small(&mut ready, tenant, 1, tenant * 1000));
    let picked: Vec<usize> = std::iter::repeat_with(|| next(&mut ready).place / 1000)
        .take(DUE_PICKS as usize + 2 * SMALL)
        .collect();
    let due: Vec<usize> = picked.iter().copied().filter(|tenant| small(*tenant)).collect();
    assert_eq!(due, (10..10 + SMALL).collect::<Vec<_>>());
    assert!(
        picked.windows(2).all(|two| !(small(two[0]) && small(two[1]))),
        "{picked:?}"
    );
}

#[test]
fn visits_that_were_due_are_owed_for_by_a_credit_at_most() {
    let mut ready = Ready::default();
    (0..64).for_each(|connection| push(&mut ready, 1, 100, 1000 + connection, 10_000, false));
    push_small(&mut ready, 2, 1, 2000);
    for _ in 0..100_000 {
        let picked = next(&mut ready);
        match picked.place / 1000 {
            1 => push(&mut ready, 1, 100, picked.place, 10_000, false),
            _ => push_small(&mut ready, 2, 1, 2000),
        }
    }
    let lane = &ready.lanes[ready.by_owner[&owner(2)]];
    assert!(lane.clock > ready.clock, "it has had more than its share");
    assert!(lane.clock <= ready.clock + lane.ticks(CREDIT_NS));
    assert!(
        ready.due.len() <= 2 * DUE_PICKS as usize,
        "{} are kept",
        ready.due.len()
    );
}

/// How much was done for each of some tenants while all wait, and the most of one visit.
struct Work {
    ready: Ready,
    done: Vec<u64>,
    longest: Vec<u64>,
}

impl Work {
    /// Tenants with so many connections, of each of which so much is expected.
    fn new(tenants: &[(u64, usize, u32)], are_endless: bool) -> Self {
        let mut ready = Ready::default();
        for (tenant, (weight, connections, expected)) in tenants.iter().enumerate() {
            for connection in 0..*connections {
                push(
                    &mut ready,
                    tenant,
                    *weight,
                    tenant * 1000 + connection,
                    *expected,
                    are_endless,
                );
            }
        }
        Self {
            ready,
            done: vec![0; tenants.len()],
            longest: vec![0; tenants.len()],
        }
    }

    /// Serves who is next, which takes so long, and has it wait again.
    fn visit(&mut self, tenants: &[(u64, usize, u32)], took: impl Fn(usize) -> u32, is_endless: bool) {
        let picked = next(&mut self.ready);
        let tenant = picked.place / 1000;
        let (weight, _, expected) = tenants[tenant];
        let work = took(tenant);
        self.ready.settle(picked.charge, work);
        self.done[tenant] += u64::from(work);
        self.longest[tenant] = self.longest[tenant].max(u64::from(work.max(expected)));
        push(&mut self.ready, tenant, weight, picked.place, expected, is_endless);
    }

    /// The work done for a tenant by its weight, and its possible error.
    fn share(&self, tenants: &[(u64, usize, u32)], tenant: usize) -> (f64, f64) {
        let weight = tenants[tenant].0 as f64;
        (self.done[tenant] as f64 / weight, self.longest[tenant] as f64 / weight)
    }
}

/// Dividing by weights loses less than a nanosecond each time.
const ROUNDING: f64 = 400.0;

proptest! {
    #[test]
    fn whoever_waits_is_picked_once_and_within_its_lane_in_order(
        steps in prop::collection::vec((0..6_usize, any::<bool>(), 0..5_usize, 0..200_000_u32), 1..600),
    ) {
        let mut ready = Ready::default();
        let (mut begun, mut ended) = ([0_usize; 6], [0_usize; 6]);
        let mut pick = |ready: &mut Ready, begun: &[usize; 6], took| {
            let Some(picked) = ready.next(|_, _| true) else { return false };
            ready.settle(picked.charge, took);
            let tenant = picked.place / 1000;
            assert_eq!(picked.place % 1000, ended[tenant]);
            ended[tenant] += 1;
            assert!(ended[tenant] <= begun[tenant]);
            true
        };
        for (tenant, is_small, picks, took) in steps {
            let waiting = Waiting { place: tenant * 1000 + begun[tenant], work_ns: 10_000, is_endless: false, is_small };
            let owner = if tenant == 0 { Owner::STRANGERS } else { owner(tenant) };
            ready.push(owner, tenant as u64, waiting, usize::MAX);
            begun[tenant] += 1;
            for _ in 0..picks {
                pick(&mut ready, &begun, took);
            }
            ready.tidy();
        }
        while pick(&mut ready, &begun, 0) {}
        prop_assert_eq!((begun, ready.len(), ready.waiting_ns, ready.waiting_lanes), (ended, 0, 0, 0));
    }

    #[test]
    fn while_all_wait_work_is_in_proportion_to_weights(
        tenants in prop::collection::vec((1..=100_u64, 1..4_usize, 0..300_000_u32), 2..6),
        basic in prop::collection::vec(1_000..300_000_u32, 6),
        surprises in prop::collection::vec(0..300_000_u32, 100..400),
    ) {
        // Each always has more: none has little waiting.
        let mut work = Work::new(&tenants, true);
        for more in surprises {
            work.visit(&tenants, |tenant| basic[tenant] + more, true);
        }
        for one in 0..tenants.len() {
            for other in 0..one {
                let (one_has, one_off) = work.share(&tenants, one);
                let (other_has, other_off) = work.share(&tenants, other);
                let apart = (one_has - other_has).abs();
                prop_assert!(apart <= one_off + other_off + ROUNDING, "{one} {other}: {apart} {:?}", work.done);
            }
        }
    }

    #[test]
    fn of_whom_little_waits_has_at_most_three_times_its_weight(
        weights in (1..=10_u64, 1..=10_u64),
        expected in (1_000..20_000_u32, 10_000..300_000_u32),
        surprises in prop::collection::vec(0..300_000_u32, 100..400),
    ) {
        let tenants = [(weights.0, 1, expected.0), (weights.1, 64, expected.1)];
        let mut work = Work::new(&tenants, false);
        for more in surprises {
            work.visit(&tenants, |_| more, false);
        }
        let [(little, little_off), (flood, flood_off)] = [0, 1].map(|tenant| work.share(&tenants, tenant));
        let slack = little_off + 3.0 * flood_off + ROUNDING;
        prop_assert!(little <= 3.0 * flood + slack, "{:?}", work.done);
        prop_assert!(flood <= little + slack, "{:?}", work.done);
    }
}
