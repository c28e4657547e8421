use tidemark_functions::availability::Reclaim;
use tidemark_functions::codec::CodeTable;
use tidemark_functions::cost::Prices;
use tidemark_functions::proxy::Reading;

use super::*;

fn setup(functions: u16, code: &str) -> Setup {
    Setup {
        functions,
        memory_bytes: 1 << 30,
        room_bytes: 900 << 20,
        least_functions: functions.into(),
        codes: CodeTable::new(vec![(0, code.parse().unwrap())]).unwrap(),
        reading: Reading::FirstD,
        unit_ms: 100,
        warm_every_s: None,
        backup_every_s: None,
        refill_at_once: false,
        reclaim: None,
        cloud: CloudTimes::default(),
        seed: 7,
    }
}

/// Requests for objects of a megabyte at these ms.
fn asked(requests: &[(u64, u64)]) -> Vec<Asked> {
    let ask = |&(at_ms, key)| Asked {
        at_us: at_ms * 1000,
        key,
        bytes: 1_000_000,
    };
    requests.iter().map(ask).collect()
}

/// A pool as the paper's, smaller, with as much reclaimed as its size lets one see.
fn small(backup_every_s: Option<u64>) -> Setup {
    Setup {
        warm_every_s: Some(60),
        backup_every_s,
        reclaim: Some(Reclaim::Poisson { mean: 0.5 }),
        ..setup(40, "10+2")
    }
}

#[test]
fn what_is_billed_is_exact() {
    // The first request for an object is a miss: one PUT, in one cycle of 100 ms.
    for (requests, misses, invocations, ms) in [
        (&[(0, 1)][..], 1, 1, 100),
        // Three objects in one cycle: the second adds a cycle, the third none.
        (
            &[(0, 1), (20_000, 2), (40_000, 3), (60_000, 1), (60_010, 2), (60_020, 3)],
            3,
            4,
            300 + 200,
        ),
        // One object three times in a cycle says nothing about others.
        (&[(0, 1), (60_000, 1), (60_010, 1), (60_020, 1)], 1, 2, 100 + 100),
        // Two in one cycle, and one after the lease: a PING comes first, and holds it for a cycle more.
        (
            &[(0, 1), (20_000, 2), (60_000, 1), (60_010, 2), (60_150, 1)],
            2,
            3,
            200 + 300,
        ),
        // A minute apart they are invocations of their own.
        (&[(0, 1), (60_000, 1), (120_000, 1)], 1, 3, 300),
    ] {
        let all = run(&setup(1, "1+0"), &asked(requests)).all();
        assert_eq!(all.billed[0], Billed { invocations, ms }, "{requests:?}");
        assert_eq!(all.billed[1..], [Billed::default(); 2], "{requests:?}");
        let count = requests.len() as u64;
        assert_eq!((all.requests, all.hits, all.resets), (count, count - misses, 0));
    }
}

#[test]
fn a_straggler_is_waited_for_only_without_parity() {
    // A megabyte over ten functions takes each a millisecond, and a straggler a second.
    let took_ms = |code: &str, reading, one_in, times| {
        let mut setup = setup(12, code);
        setup.reading = reading;
        setup.cloud.stragglers = Some(Stragglers { one_in, times });
        let requests: Vec<(u64, u64)> = (0..=200).map(|number| (number * 10_000, 1)).collect();
        let found = run(&setup, &asked(&requests));
        assert_eq!((found.all().hits, found.all().resets), (200, 0));
        let at = |share: usize| found.took_us[share * 199 / 100] / 1000;
        (at(50), at(97))
    };
    let (half, most) = took_ms("10+0", Reading::FirstD, 100, 1000);
    assert!(
        half < 30 && most > 900,
        "{half}, {most}: one read in ten has a straggler"
    );
    for reading in [Reading::FirstD, Reading::DataFirst] {
        let (half, most) = took_ms("10+1", reading, 100, 1000);
        assert!(half < 30 && most < 100, "{half}, {most}: two in one read are rare");
    }
    let (half, _) = took_ms("10+0", Reading::FirstD, 1, 50);
    assert!((60..150).contains(&half), "{half}: all are");
}

#[test]
fn a_warm_up_is_one_unit() {
    for (unit_ms, each_ms) in [(100, 100), (1, 2)] {
        let warm = Setup {
            warm_every_s: Some(60),
            unit_ms,
            ..setup(3, "1+0")
        };
        let all = run(&warm, &asked(&[(0, 1), (3_600_000, 2)])).all();
        let warmed = all.billed[Purpose::Warm as usize];
        assert!((3 * 58..=3 * 61).contains(&warmed.invocations), "{warmed:?}");
        assert_eq!(warmed.ms, warmed.invocations * each_ms, "units of {unit_ms}");
    }
}

#[test]
fn each_chunk_is_one_invocation_whatever_is_first() {
    let all = run(&setup(12, "10+2"), &asked(&[(0, 1), (60_000, 1)])).all();
    assert_eq!(
        all.billed[0],
        Billed {
            invocations: 24,
            ms: 2_400
        }
    );
    let data_first = Setup {
        reading: Reading::DataFirst,
        ..setup(12, "10+2")
    };
    let all = run(&data_first, &asked(&[(0, 1), (60_000, 1)])).all();
    assert_eq!(
        all.billed[0],
        Billed {
            invocations: 22,
            ms: 2_200
        }
    );
}

#[test]
fn a_seed_gives_the_same_to_the_byte() {
    let load = made(3, 150, 3);
    let text = |seed| {
        format!(
            "{:?}",
            run(
                &Setup {
                    seed,
                    ..small(Some(300))
                },
                &load
            )
        )
    };
    let first = text(1);
    assert!(first == text(1), "two runs from one seed differ");
    assert!(first != text(2), "the seed does nothing");
}

#[test]
fn nothing_is_lost_where_nothing_is_reclaimed() {
    let load = made(5, 300, 4);
    let found = run(
        &Setup {
            reclaim: None,
            ..small(Some(300))
        },
        &load,
    );
    let (all, objects) = (
        found.all(),
        load.iter()
            .map(|asked| asked.key)
            .collect::<std::collections::HashSet<_>>(),
    );
    assert_eq!(found.evicted, 0, "it has room for all");
    assert_eq!((all.requests, all.resets, all.recoveries), (300, 0, 0));
    assert_eq!(all.hits, 300 - objects.len() as u64);
    assert_eq!(found.took_us.len() as u64, all.hits);
}

#[test]
fn backups_keep_what_is_lost_without_them() {
    let load = made(11, 700, 8);
    let [with, without] = [Some(300), None].map(|every_s| run(&small(every_s), &load));
    let (kept, lost) = (with.all(), without.all());
    assert!(lost.reclaimed > 150 && lost.resets > 30, "{lost:?}");
    assert!(kept.resets * 5 < lost.resets, "{kept:?} against {lost:?}");
    assert!(kept.hits > lost.hits && lost.recoveries > 0);
    assert!(with.backups[0] > 500 && without.backups == [0; 2], "{:?}", with.backups);
    let dollars = |hour: Hour| hour.dollars(&Prices::PAPER, 1 << 30);
    assert!(dollars(lost)[2].abs() < f64::EPSILON && dollars(kept)[2] > 0.0);
}

#[test]
fn a_pool_that_is_full_evicts_and_loses_nothing_by_it() {
    let load = made(13, 400, 4);
    let full = Setup {
        room_bytes: 100 << 20,
        reclaim: None,
        ..small(None)
    };
    let found = run(&full, &load);
    assert!(found.evicted > 50, "{} evicted", found.evicted);
    assert_eq!(found.all().resets, 0, "{:?}", found.all());
}

#[test]
fn small_objects_are_as_in_the_paper() {
    let large = made(1, 37_469, 50);
    let all = |load: &[Asked]| -> std::collections::HashMap<u64, u64> {
        load.iter().map(|asked| (asked.key, asked.bytes)).collect()
    };
    let small = made_small(1, &large, 145_231);
    assert!(small == made_small(1, &large, 145_231) && small != made_small(2, &large, 145_231));
    assert!(small.windows(2).all(|two| two[0].at_us <= two[1].at_us));
    let (large, sizes) = (all(&large), all(&small));
    assert!(sizes.values().all(|bytes| (1..=10_000_000).contains(bytes)));
    // More than 20 % of all objects are above 10 MB, and all small ones together have the 133 GB that the working sets differ by.
    let share = large.len() as f64 / (large.len() + sizes.len()) as f64;
    assert!((0.20..0.25).contains(&share), "{share}");
    let gb = sizes.values().sum::<u64>() as f64 / 1e9;
    assert!((120.0..145.0).contains(&gb), "{gb}");
    let tiny = sizes.values().filter(|bytes| **bytes < 1_000).count();
    assert!(tiny > 500, "sizes of all magnitudes: {tiny}");
}

#[test]
fn the_paper_s_trace_is_read_whole() {
    let folder =
        std::env::var_os("TIDEMARK_TRACES").map_or_else(|| "../../../shared/traces".into(), std::path::PathBuf::from);
    let path = folder.join("ibm-registry-dal09-10mb-50h.tar.gz");
    let load = if path.exists() {
        of_trace(&path, 5_000_000_000).unwrap()
    } else {
        made(1, 37_473, 50)
    };
    assert_eq!(load.len(), 37_473);
    assert!(load.windows(2).all(|two| two[0].at_us <= two[1].at_us));
    let sizes: std::collections::HashMap<u64, u64> = load.iter().map(|asked| (asked.key, asked.bytes)).collect();
    assert!(
        load.iter().all(|asked| sizes[&asked.key] == asked.bytes),
        "an object has one size"
    );
    assert!((10_000..15_000).contains(&sizes.len()), "{} objects", sizes.len());
}
