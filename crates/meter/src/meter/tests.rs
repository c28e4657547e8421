use proptest::prelude::*;
use tidemark_types::{FlashUse, Outcome, Samples, SamplingThreshold, TenantSnapshot, VisitSamples};

use super::*;
use crate::usage::Totals;

const MIB: u64 = 1 << 20;
const SHOP: TenantId = TenantId(1);

fn at(wall_ms: u64) -> Moment {
    Moment {
        wall: UnixMs(wall_ms),
        steady_ms: wall_ms,
    }
}

fn meter(period_s: u64) -> Meter {
    Meter::new(MeterConfig {
        period: Duration::from_secs(period_s),
        node: "here".into(),
        price_version: "v1".into(),
        model: None,
        model_interval: Duration::from_secs(1),
        key_delimiter: b':',
    })
}

/// One that reckons 1000 ns a command, and so much in it.
fn modelling(period_s: u64) -> Meter {
    let mut meter = meter(period_s);
    let model = crate::model::parse(MODEL).unwrap();
    meter.config.model = Some(Arc::new(model));
    meter
}

const MODEL: &str = "format = 1\nreference = \"r\"\nmachine = \"m\"\nfactor = 1.0\noutput_ns = [1000.0, 1000.0]\n\
    [accuracy]\nloads = 1\nheld_out = 0\nr_squared = 1.0\nmean_error = 0.0\n\
    [[inputs]]\nname = \"rate\"\nleast = 0.0\nmost = 1.0\nmean = 0.0\ndeviation = 1.0\n\
    [[layers]]\nneurons = [[0.0, 6.907755]]\n";

fn snapshot(grant_bytes: u64, gets: u64) -> Snapshot {
    Snapshot {
        tenants: vec![TenantSnapshot {
            id: SHOP,
            grant_bytes,
            usage_bytes: 0,
            items: 0,
            connections: 1,
            counters: TenantCounters {
                gets,
                operations: gets,
                cpu_ns: gets * 10,
                ..TenantCounters::default()
            },
            samples: Samples {
                threshold: SamplingThreshold::OFF,
                records: Vec::new(),
            },
            shards: Vec::new(),
            commands: vec![CommandCount {
                protocol: "redis",
                command: "get",
                outcome: Outcome::Ok,
                count: gets,
            }],
            visits: VisitSamples::default(),
        }],
        ..Snapshot::default()
    }
}

fn name(_: TenantId) -> Option<String> {
    Some("shop".into())
}

fn sum(entries: &[Entry], resource: Resource) -> u128 {
    let mut totals = Totals::default();
    entries.iter().for_each(|entry| totals.add(&entry.usage));
    totals.get(resource)
}

/// Start of an hour.
const HOUR: u64 = 3_600_000 * 1000;

#[test]
fn a_period_s_use_is_one_entry_and_memory_alone_is_one_an_hour() {
    let mut meter = meter(60);
    meter.observe(&snapshot(MIB, 0), at(HOUR), name);
    meter.observe(&snapshot(MIB, 5), at(HOUR + 30_000), name);
    assert_eq!(meter.entries(at(HOUR + 59_999)), [], "the minute is not over");
    let entries = meter.entries(at(HOUR + 60_000));
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!((entry.from, entry.to), (UnixMs(HOUR), UnixMs(HOUR + 60_000)));
    assert_eq!(entry.commands, [("redis/get".to_owned(), 5)]);
    assert_eq!(entry.usage.get(Resource::MemoryByteSeconds), 60 * MIB);
    assert_eq!((entry.node.as_str(), entry.price_version.as_str()), ("here", "v1"));
    // Nothing but time passes.
    for minute in 2..60 {
        assert_eq!(meter.entries(at(HOUR + minute * 60_000)), [], "{minute}");
    }
    let entries = meter.entries(at(HOUR + 3_600_000));
    assert_eq!(sum(&entries, Resource::MemoryByteSeconds), 59 * 60 * u128::from(MIB));
    assert_eq!(sum(&entries, Resource::Operations), 0);
}

#[test]
fn a_grant_counts_from_when_it_is_given() {
    let mut meter = meter(1);
    meter.note_grants(SHOP, "shop", memory(4 * MIB), at(HOUR + 100));
    meter.note_grants(SHOP, "shop", memory(MIB), at(HOUR + 600));
    meter.note_grants(TenantId(2), "nobody", memory(0), at(HOUR + 700));
    assert_eq!(meter.byte_seconds(SHOP, at(HOUR + 1100)), Some(2 * MIB + MIB / 2));
    let entries = meter.end(at(HOUR + 1600));
    assert_eq!(sum(&entries, Resource::MemoryByteSeconds), 3 * u128::from(MIB));
    assert_eq!(entries.last().map(|entry| entry.kind), Some(Kind::End));
    assert_eq!(meter.byte_seconds(SHOP, at(HOUR + 1600)), Some(3 * MIB), "in all");
    assert_eq!(meter.byte_seconds(TenantId(2), at(HOUR + 1600)), None);
}

fn memory(memory_bytes: u64) -> Grants {
    Grants {
        memory_bytes,
        flash_bytes: None,
    }
}

#[test]
fn flash_counts_as_memory_does_and_its_index_is_memory() {
    let mut meter = meter(1);
    let of = |grant_bytes, memory_bytes, written_bytes| {
        let mut snapshot = snapshot(MIB, 0);
        snapshot.tenants[0].counters.flash = Some(FlashUse {
            grant_bytes,
            memory_bytes,
            written_bytes,
            ..FlashUse::default()
        });
        snapshot
    };
    meter.observe(&of(8 * MIB, 0, 5 * MIB), at(HOUR), name);
    let grants = Grants {
        memory_bytes: MIB,
        flash_bytes: Some(4 * MIB),
    };
    meter.note_grants(SHOP, "shop", grants, at(HOUR + 1000));
    meter.observe(&of(4 * MIB, MIB / 2, 7 * MIB), at(HOUR + 3000), name);
    meter.note_grants(SHOP, "shop", memory(MIB), at(HOUR + 4000));
    let entries = meter.end(at(HOUR + 5000));
    assert_eq!(sum(&entries, Resource::FlashByteSeconds), u128::from((8 + 4 * 4) * MIB));
    assert_eq!(sum(&entries, Resource::FlashWrittenBytes), u128::from(7 * MIB));
    assert_eq!(sum(&entries, Resource::MemoryByteSeconds), u128::from(6 * MIB));
}

#[test]
fn other_prices_end_an_entry() {
    let mut meter = meter(60);
    meter.observe(&snapshot(MIB, 7), at(HOUR), name);
    meter.set_price_version("v2", at(HOUR + 20_000));
    meter.set_price_version("v2", at(HOUR + 21_000));
    meter.observe(&snapshot(MIB, 10), at(HOUR + 30_000), name);
    let entries = meter.entries(at(HOUR + 60_000));
    let told: Vec<_> = entries
        .iter()
        .map(|entry| (entry.price_version.as_str(), entry.from.0 - HOUR, entry.to.0 - HOUR))
        .collect();
    assert_eq!(told, [("v1", 0, 20_000), ("v2", 20_000, 60_000)]);
    let gets: Vec<_> = entries.iter().map(|entry| entry.usage.get(Resource::Gets)).collect();
    assert_eq!(gets, [7, 3]);
}

#[test]
fn a_clock_that_is_set_ends_entries_and_is_one() {
    for (moved_ms, note, from, to) in [
        (-10_000_i64, "the clock was set back by 10.000 s", 20_000, 30_000),
        (90_500, "the clock was set forward by 90.500 s", 30_000, 120_500),
    ] {
        let mut meter = meter(600);
        let start = HOUR + 10_000_000;
        meter.observe(&snapshot(MIB, 1), at(start), name);
        let set = Moment {
            wall: UnixMs((start + 30_000).checked_add_signed(moved_ms).unwrap()),
            steady_ms: start + 30_000,
        };
        meter.observe(&snapshot(MIB, 3), set, name);
        let entries = meter.end(set);
        let kinds: Vec<_> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Use, Kind::Jump, Kind::Use, Kind::End]);
        assert_eq!(entries[0].to.0 - start, 30_000, "by the time that it was");
        let jump = &entries[1];
        assert_eq!((jump.from.0 - start, jump.to.0 - start), (from, to));
        assert_eq!(jump.note, note);
        assert!(entries.iter().all(|entry| entry.from <= entry.to));
        assert_eq!(sum(&entries, Resource::MemoryByteSeconds), 30 * u128::from(MIB));
        assert_eq!(sum(&entries, Resource::Gets), 3);
    }
}

#[test]
fn what_is_no_tenant_s_has_entries_of_its_own() {
    let mut meter = meter(1);
    let plane = |attributed_ns, unattributed_ns| PlaneCpu {
        attributed_ns,
        unattributed_ns,
    };
    let process = |total_ns, others_ns| ProcessCpu { total_ns, others_ns };
    meter.entries(at(HOUR));
    meter.note_process(process(1000, 100), plane(700, 50));
    assert_eq!(meter.nobody_ns(), (150, 150));
    let told = |entries: Vec<Entry>| -> Vec<_> {
        let amount = |entry: &Entry| (entry.kind, entry.usage.get(Resource::CpuNs));
        entries.iter().map(amount).collect()
    };
    let (unattributed, unexplained) = (Kind::Unattributed, Kind::Unexplained);
    assert_eq!(
        told(meter.entries(at(HOUR + 1000))),
        [(unattributed, 150), (unexplained, 150)]
    );
    // A worker reports its use late: nothing new is unexplained until that is made up for.
    meter.note_process(process(1100, 100), plane(950, 50));
    assert_eq!(told(meter.entries(at(HOUR + 2000))), []);
    meter.note_process(process(1400, 120), plane(1000, 60));
    assert_eq!(
        told(meter.entries(at(HOUR + 3000))),
        [(unattributed, 30), (unexplained, 70)]
    );
}

#[test]
fn a_removed_tenant_has_a_last_entry() {
    let mut meter = meter(60);
    meter.observe(&snapshot(MIB, 5), at(HOUR), name);
    let mut last = snapshot(0, 9);
    last.removed = vec![SHOP];
    meter.observe(&last, at(HOUR + 1000), name);
    let entries = meter.entries(at(HOUR + 60_000));
    assert_eq!(sum(&entries, Resource::Gets), 9);
    assert_eq!(sum(&entries, Resource::MemoryByteSeconds), u128::from(MIB));
    assert_eq!(meter.end(at(HOUR + 120_000)).len(), 1, "nothing is left of it");
}

proptest! {
    /// However often it is looked, and whatever the period: the sums are the same.
    #[test]
    fn any_split_of_time_gives_the_same_sums(
        steps in proptest::collection::vec((1_u64..90_000, 0_u64..1000, 0_u64..64), 1..60),
        looks in proptest::collection::vec(1_u64..90_000, 0..30),
        period_s in 1_u64..120,
    ) {
        let run = |period_s: u64, looks: &[u64]| {
            let mut meter = meter(period_s);
            let mut entries = Vec::new();
            let (mut now, mut gets) = (HOUR, 0);
            let mut looks = looks.iter();
            meter.observe(&snapshot(0, 0), at(now), name);
            for (passed, more, units) in &steps {
                if let Some(look) = looks.next() {
                    entries.extend(meter.entries(at(now + look % passed)));
                }
                now += passed;
                gets += more;
                meter.observe(&snapshot(units * MIB, gets), at(now), name);
                entries.extend(meter.entries(at(now)));
            }
            entries.extend(meter.end(at(now + 500)));
            Resource::ALL.map(|resource| sum(&entries, resource))
        };
        prop_assert_eq!(run(period_s, &looks), run(100_000, &[]));
    }
}

#[test]
fn an_open_entry_is_what_the_next_one_will_be() {
    let mut meter = meter(60);
    meter.observe(&snapshot(MIB, 5), at(1_000), name);
    meter.observe(&snapshot(MIB, 9), at(30_500), name);
    let open = meter.open_entry(SHOP, at(59_999)).unwrap();
    assert_eq!(
        meter.open_entry(SHOP, at(59_999)).as_ref(),
        Some(&open),
        "it changes nothing"
    );
    assert!(meter.entries(at(59_999)).is_empty() && meter.knows(SHOP));
    assert_eq!(open.usage.get(Resource::Gets), 9);
    let entries = meter.end(at(59_999));
    assert_eq!(entries[0], open);
    assert_eq!(meter.open_entry(TenantId(7), at(59_999)), None);
}

#[test]
fn modelled_cpu_time_is_beside_the_measured_one() {
    let mut meter = modelling(60);
    assert_eq!(meter.model_ns(SHOP), Some(0));
    for second in 0..=40 {
        meter.observe(&snapshot(MIB, second * 5), at(HOUR + second * 900), name);
    }
    let near = |ns: u64, expected: u64| assert!(ns.abs_diff(expected) <= 1, "{ns} {expected}");
    near(meter.model_ns(SHOP).unwrap(), 200_000);
    let open = meter.open_entry(SHOP, at(HOUR + 37_000)).unwrap();
    near(open.cpu_model_ns().unwrap(), 200_000);
    let entries = meter.entries(at(HOUR + 60_000));
    assert_eq!((entries.len(), entries[0].usage.get(Resource::CpuNs)), (1, 2_000));
    near(entries[0].cpu_model_ns().unwrap(), 200_000);
    // Nothing else is modelled, and nothing twice.
    assert_eq!(meter.entries(at(HOUR + 120_000)), []);
    meter.observe(&snapshot(MIB, 201), at(HOUR + 130_000), name);
    let entries = meter.entries(at(HOUR + 180_000));
    near(entries[0].cpu_model_ns().unwrap(), 1000);
    near(meter.model_ns(SHOP).unwrap(), 201_000);
}

#[test]
fn commands_are_by_outcome() {
    let mut meter = meter(60);
    let count = |command, outcome, count| CommandCount {
        protocol: "redis",
        command,
        outcome,
        count,
    };
    let of = |commands: Vec<CommandCount>| {
        let mut snapshot = snapshot(MIB, 9);
        snapshot.tenants[0].commands = commands;
        snapshot
    };
    meter.observe(&of(vec![count("get", Outcome::Miss, 2)]), at(HOUR), name);
    let later = vec![
        count("get", Outcome::Ok, 4),
        count("get", Outcome::Miss, 3),
        count("set", Outcome::Error, 1),
    ];
    meter.observe(&of(later), at(HOUR + 1000), name);
    let entries = meter.entries(at(HOUR + 60_000));
    let expected = [("redis/get", 4), ("redis/get/miss", 3), ("redis/set/error", 1)];
    assert_eq!(
        entries[0].commands,
        expected.map(|(label, count)| (label.to_owned(), count))
    );
}

#[test]
fn the_data_plane_s_own_estimates_are_taken_as_they_are() {
    let mut meter = modelling(60);
    let of = |gets, ns| {
        let mut snapshot = snapshot(MIB, gets);
        snapshot.tenants[0].counters.cpu_model_ns = Some(ns);
        snapshot
    };
    meter.observe(&of(5, 700), at(HOUR), name);
    meter.observe(&of(9, 1_900), at(HOUR + 1000), name);
    assert_eq!(meter.model_ns(SHOP), Some(1_900));
    assert!(meter.tenants[&SHOP].tally.is_none());
    let entries = meter.entries(at(HOUR + 60_000));
    assert_eq!(entries[0].cpu_model_ns(), Some(1_900));
    meter.observe(&of(10, 2_000), at(HOUR + 61_000), name);
    assert_eq!(meter.entries(at(HOUR + 120_000))[0].cpu_model_ns(), Some(100));
}

#[test]
fn a_tenant_without_commands_has_no_state_of_the_model() {
    let mut meter = modelling(60);
    meter.observe(&snapshot(MIB, 0), at(HOUR), name);
    assert!(meter.tenants[&SHOP].tally.is_none());
    assert_eq!(meter.model_ns(SHOP), Some(0));
    meter.observe(&snapshot(MIB, 1), at(HOUR + 1000), name);
    assert!(meter.tenants[&SHOP].tally.is_some());
}
