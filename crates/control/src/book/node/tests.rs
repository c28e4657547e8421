//! The statement of an instance about its tenants.

use tidemark_curve::{Curve, Point};
use tidemark_types::{
    PoolSnapshot, Samples, SamplingThreshold, Snapshot, TenantCounters, TenantSnapshot, UNIT_BYTES, VisitSamples,
};

use super::*;
use crate::config::FirstLease;
use crate::grant::grantable_bytes;
use crate::settings::TenantSettings;
use crate::state::TenantRecord;

const POOL: u64 = 256 * MIB;
const REACH: u64 = 1024 * MIB;

/// One tenant as the data plane reports it, in each second.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    usage_bytes: u64,
    /// It evicted while it wrote.
    is_short: bool,
    gets: u64,
    hits: u64,
}

struct Scene {
    book: Book,
    now: UnixMs,
    totals: Vec<TenantCounters>,
}

impl Scene {
    fn new(settings: &[TenantSettings]) -> Self {
        let record = |(number, settings): (u32, &TenantSettings)| TenantRecord {
            id: TenantId(number),
            name: format!("t{number}").parse().unwrap(),
            version: 1,
            settings: *settings,
            secrets: Vec::new(),
            created_at: UnixMs(0),
            remembered_grant_bytes: None,
        };
        let lease = FirstLease {
            bytes: POOL,
            reach_bytes: REACH,
        };
        Self {
            book: Book::leased(lease, 2, (0..).zip(settings).map(record).collect()),
            now: UnixMs(1_000_000),
            totals: vec![TenantCounters::default(); settings.len()],
        }
    }

    /// So many seconds of the same load for all.
    fn seconds(&mut self, count: u32, loads: &[Load]) {
        for _ in 0..count {
            self.now = self.now.plus(Duration::from_secs(1));
            for (total, load) in self.totals.iter_mut().zip(loads) {
                total.gets += load.gets;
                total.hits += load.hits;
                total.sets += u64::from(load.is_short);
                total.evicted += u64::from(load.is_short);
            }
            let report = |(number, load): (u32, &Load)| TenantSnapshot {
                id: TenantId(number),
                grant_bytes: load.usage_bytes,
                usage_bytes: load.usage_bytes,
                items: load.usage_bytes >> 10,
                connections: 1,
                counters: self.totals[number as usize],
                samples: Samples {
                    threshold: SamplingThreshold::OFF,
                    records: Vec::new(),
                },
                shards: Vec::new(),
                commands: Vec::new(),
                visits: VisitSamples::default(),
            };
            let snapshot = Snapshot {
                at: self.now,
                pool: PoolSnapshot {
                    pool_bytes: POOL,
                    usage_bytes: loads.iter().map(|load| load.usage_bytes).sum(),
                    ..PoolSnapshot::default()
                },
                tenants: (0..).zip(loads).map(report).collect(),
                removed: Vec::new(),
                cpu: None,
            };
            self.book.observe(&snapshot, self.now, &mut || ());
            self.book.plan(self.now, &mut || ());
        }
    }

    fn demand(&mut self) -> Demand {
        self.book.demand(self.now, REACH)
    }
}

fn floor(mib: u64) -> TenantSettings {
    TenantSettings {
        floor_bytes: Some(mib * MIB),
        ..TenantSettings::default()
    }
}

#[test]
fn nobody_needs_nothing() {
    let demand = Scene::new(&[floor(50)]).demand();
    let expected = Demand {
        most_bytes: REACH,
        ..Demand::default()
    };
    assert_eq!(demand, expected);
}

#[test]
fn floors_are_asked_for_as_far_as_they_are_needed() {
    let quiet = Load {
        usage_bytes: 16 * MIB,
        gets: 100,
        hits: 100,
        ..Load::default()
    };
    let full = Load {
        is_short: true,
        ..quiet
    };
    for (floor_mib, load, needed_mib) in [(50, full, 50), (50, quiet, 17), (10, full, 10), (0, full, 0)] {
        let mut scene = Scene::new(&[floor(floor_mib)]);
        // Longer than a wish lasts after the first growth.
        scene.seconds(5, &[load]);
        let demand = scene.demand();
        let needed = needed_mib * MIB;
        assert_eq!(demand.floor_bytes, pool_for(needed), "{floor_mib} {load:?}");
        assert!(grantable_bytes(demand.floor_bytes) >= needed, "{floor_mib} {load:?}");
        assert!(
            grantable_bytes(demand.floor_bytes) <= needed + MIB,
            "{floor_mib} {load:?}"
        );
    }
}

#[test]
fn what_could_be_filled_is_wanted_and_no_more() {
    let full = |mib: u64| Load {
        usage_bytes: mib * MIB,
        is_short: true,
        ..Load::default()
    };
    let cap = TenantSettings {
        cap_bytes: Some(20 * MIB),
        ..TenantSettings::default()
    };
    for (settings, load, wanted_mib) in [
        (TenantSettings::default(), full(64), 128),
        (TenantSettings::default(), full(1), 9),
        (cap, full(16), 20),
        (floor(200), full(16), 200),
        (
            TenantSettings::default(),
            Load {
                is_short: false,
                ..full(64)
            },
            68,
        ),
    ] {
        let mut scene = Scene::new(&[settings]);
        scene.seconds(5, &[load]);
        let demand = scene.demand();
        assert_eq!(demand.wanted_bytes, pool_for(wanted_mib * MIB), "{settings:?} {load:?}");
    }
}

#[test]
fn without_a_curve_memory_is_worth_the_hits_that_it_brought() {
    let load = |mib: u64, hits: u64| Load {
        usage_bytes: mib * MIB,
        is_short: true,
        gets: 2 * hits,
        hits,
    };
    let mut scene = Scene::new(&[TenantSettings::default(), TenantSettings::default()]);
    let loads = [load(16, 1600), load(32, 6400)];
    scene.seconds(12, &loads);
    let close = |demand: &Demand| -> Vec<(u64, u64)> {
        let piece = |piece: &Worth| (piece.bytes / MIB, piece.value_per_mib.round() as u64);
        demand.worth.iter().map(piece).collect()
    };
    assert_eq!(close(&scene.demand()), [(32, 200), (16, 100), (32, 100), (16, 50)]);
    // A pause is not the end, a long silence is.
    let silent = loads.map(|load| Load {
        usage_bytes: load.usage_bytes,
        ..Load::default()
    });
    scene.seconds(12, &silent);
    let after_a_pause = scene.demand().worth[0].value_per_mib;
    assert!((100.0..200.0).contains(&after_a_pause), "{after_a_pause}");
    for _ in 0..100 {
        scene.seconds(3, &silent);
        scene.demand();
    }
    assert!(scene.demand().worth.iter().all(|piece| piece.value_per_mib < 0.01));
}

#[test]
fn a_curve_says_what_more_memory_brings() {
    let point = |mib: u64, miss_ratio| Point {
        bytes: mib * MIB,
        miss_ratio,
        standard_error: 0.0,
    };
    // Half of it is a cliff, which is bridged; over the last e-fold nothing was gained any more.
    let curve = Curve::through([point(10, 0.6), point(50, 0.6), point(60, 0.1), point(200, 0.1)]);
    let pieces = pieces(&Returns::of(&curve, 2.0 / UNIT_BYTES as f64).unwrap());
    let brings = Brings {
        worked_out_at: None,
        gets_per_second: 1000.0,
        pieces,
    };
    for (from_mib, to_mib, expected) in [
        (0, 500, vec![(20, 20.0), (100, 5.0)]),
        (5, 500, vec![(15, 20.0), (100, 5.0)]),
        (30, 40, vec![(10, 5.0)]),
        (200, 500, vec![]),
        (10, 10, vec![]),
    ] {
        let worth = brings.between(from_mib * MIB, to_mib * MIB);
        let found: Vec<(u64, f64)> = worth
            .iter()
            .map(|piece| (piece.bytes / MIB, (piece.value_per_mib * 1e6).round() / 1e6))
            .collect();
        assert_eq!(found, expected, "{from_mib} {to_mib}");
    }
}

#[test]
fn many_pieces_become_few_of_the_same_worth() {
    let pieces: Vec<Worth> = (1..=1000_u64)
        .map(|number| Worth {
            bytes: number * UNIT_BYTES,
            value_per_mib: (number * 7919 % 1000 / 3) as f64,
        })
        .collect();
    let sum = |pieces: &[Worth]| -> (u64, f64) {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let value = pieces
            .iter()
            .map(|piece| piece.bytes as f64 * piece.value_per_mib)
            .sum();
        (bytes, value)
    };
    let hull = merged(pieces.clone());
    assert!((20..=WORTH_PIECES_MAX).contains(&hull.len()), "{}", hull.len());
    assert!(
        hull.windows(2)
            .all(|pair| pair[0].value_per_mib >= pair[1].value_per_mib)
    );
    let (before, after) = (sum(&pieces), sum(&hull));
    assert_eq!(before.0, after.0);
    assert!((before.1 / after.1 - 1.0).abs() < 1e-9);
    let equal = vec![
        Worth {
            bytes: 3,
            value_per_mib: 0.1
        };
        100
    ];
    let hull = merged(equal);
    assert!(
        hull.windows(2)
            .all(|pair| pair[0].value_per_mib >= pair[1].value_per_mib)
    );
}

#[test]
fn thousands_are_worked_out_in_turn() {
    let mut scene = Scene::new(&[TenantSettings::default(); 200]);
    let load = Load {
        usage_bytes: MIB,
        gets: 10,
        hits: 10,
        ..Load::default()
    };
    let known = |scene: &mut Scene| {
        scene.demand();
        let is_known = |tenant: &&Tenant| tenant.needs.brings.worked_out_at.is_some();
        scene.book.tenants().filter(is_known).count()
    };
    scene.seconds(1, &[load; 200]);
    assert_eq!([(); 4].map(|()| known(&mut scene)), [64, 128, 192, 200]);
    // Nobody is looked at twice while others wait.
    scene.seconds(4, &[load; 200]);
    let at = |scene: &Scene| {
        let at = |tenant: &Tenant| tenant.needs.brings.worked_out_at == Some(scene.now);
        scene.book.tenants().filter(|tenant| at(tenant)).count()
    };
    scene.demand();
    assert_eq!(at(&scene), 64);
    scene.demand();
    assert_eq!(at(&scene), 128);
}

#[test]
fn goals_are_asked_for_as_far_as_they_can_be_filled() {
    let brings = Brings {
        worked_out_at: None,
        gets_per_second: 100.0,
        pieces: vec![Worth {
            bytes: 500 * MIB,
            value_per_mib: 0.002,
        }],
    };
    let standing = |usage: u64, floor: u64, goal: Option<u64>, wants_more| Standing {
        usage_bytes: usage * MIB,
        floor_bytes: floor * MIB,
        cap_bytes: Some(300 * MIB),
        goal_bytes: goal.map(|mib| mib * MIB),
        wants_more,
    };
    // The floor, the goal's need beyond it, the wanted memory in all, and the length of the part with a worth.
    for (standing, expected) in [
        (standing(64, 0, Some(200), true), (0, 128, 128, 0)),
        (standing(64, 0, Some(100), true), (0, 100, 100, 0)),
        (standing(64, 0, Some(64), false), (0, 64, 64, 0)),
        (standing(64, 40, Some(200), true), (40, 88, 128, 0)),
        (standing(64, 150, Some(200), true), (150, 0, 150, 0)),
        (standing(64, 150, Some(100), true), (100, 0, 100, 0)),
        (standing(200, 0, Some(500), true), (0, 300, 300, 0)),
        (standing(64, 40, None, true), (40, 0, 128, 88)),
        (standing(200, 0, None, true), (0, 0, 300, 300)),
        (standing(64, 100, None, true), (100, 0, 128, 28)),
    ] {
        let ask = standing.ask(&brings);
        let worth: u64 = ask.worth.iter().map(|piece| piece.bytes).sum();
        let found = [ask.floor_bytes, ask.goal_bytes, ask.wanted_bytes, worth].map(|bytes| bytes / MIB);
        assert_eq!(found, [expected.0, expected.1, expected.2, expected.3], "{standing:?}");
    }
}
