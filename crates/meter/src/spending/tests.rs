use proptest::prelude::*;

use super::*;
use crate::price::CpuFigure;
use crate::row::Kind;
use crate::usage::Usage;

const HOUR_MS: u64 = 3_600_000;

fn at(text: &str) -> UnixMs {
    utc::parse(text).unwrap()
}

/// A unit of each meter costs one, but for CPU time of which an hour does.
fn tariff() -> Tariff {
    let prices = |version: &str| Prices {
        version: version.into(),
        from: UnixMs(0),
        until: None,
        units: [Money::parse("1").unwrap(); METERS.len()],
    };
    Tariff {
        currency: "USD".into(),
        cpu: CpuFigure::Measured,
        free: Free::ALL.to_vec(),
        prices: vec![prices("v1"), prices("v2")],
        instances: Vec::new(),
    }
}

fn entry(from: UnixMs, resource: Resource, amount: u64) -> Entry {
    Entry {
        usage: Usage::default().with(resource, amount),
        price_version: "v1".into(),
        ..Entry::event(Kind::Use, from, UnixMs(from.0 + HOUR_MS), "")
    }
}

fn money(text: &str) -> Money {
    Money::parse(text).unwrap()
}

fn limit(amount: &str, at_limit: AtLimit) -> SpendingLimit {
    SpendingLimit {
        amount: money(amount),
        at_limit,
    }
}

#[test]
fn actions_have_their_names() {
    for action in AtLimit::ALL {
        assert_eq!(action.name().parse(), Ok(action));
    }
    let error = "rob<b>\u{1b}".parse::<AtLimit>().unwrap_err().to_string();
    assert!(
        error.contains("`rob<b>\\u{1b}`") && error.contains("evict-only"),
        "{error}"
    );
}

#[test]
fn parts_of_a_limit_are_reached_at_their_amounts() {
    let limit = limit("10", AtLimit::Alert);
    for (spent, expected) in [
        ("0", 0),
        ("4.999999999999", 0),
        ("5", 50),
        ("7.999999999999", 50),
        ("8", 80),
        ("9.999999999999", 80),
        ("10", 100),
        ("11", 100),
    ] {
        assert_eq!(limit.reached_percent(money(spent)), expected, "{spent}");
    }
    let nothing = SpendingLimit {
        amount: Money(0),
        ..limit
    };
    assert_eq!(nothing.reached_percent(Money(0)), 100, "who may spend nothing has");
}

#[test]
fn an_account_holds_what_the_bill_says() {
    let tariff = tariff();
    let mut account = Account::default();
    let mut one = entry(at("2026-08-31T23:30:00Z"), Resource::Operations, 3_000_000);
    one.commands = vec![("redis/get".into(), 2_000_000), ("redis/ping".into(), 1_000_000)];
    account.add(&one);
    account.add(&entry(at("2026-09-01"), Resource::NetworkOutBytes, 1 << 29));
    account.add(&Entry {
        price_version: "v2".into(),
        ..entry(at("2026-09-02"), Resource::NetworkOutBytes, 1 << 29)
    });
    let august = account.standing(at("2026-08-31T23:59:00Z"), None, &tariff);
    assert_eq!(
        (august.spent, august.left),
        (money("2"), Duration::from_secs(60)),
        "what is free is not held against it"
    );
    let open = entry(at("2026-09-02T12:00:00Z"), Resource::MemoryByteSeconds, 3600 << 30);
    let september = account.standing(at("2026-09-16"), Some(&open), &tariff);
    assert_eq!((september.spent, september.held), (money("2"), money("1")));
    // Use that began last month is in that month's bill.
    let open = entry(at("2026-08-31T23:59:59Z"), Resource::MemoryByteSeconds, 3600 << 30);
    assert_eq!(
        account.standing(at("2026-09-16"), Some(&open), &tariff).spent,
        money("1")
    );
    assert_eq!(
        account.standing(at("2026-10-01"), None, &tariff).spent,
        Money(0),
        "a new month begins at nothing"
    );
    // Rows without known prices cost nothing.
    account.add(&Entry {
        price_version: "v9".into(),
        ..entry(at("2026-09-03"), Resource::NetworkOutBytes, 1 << 40)
    });
    assert_eq!(account.standing(at("2026-09-16"), None, &tariff).spent, money("1"));
}

#[test]
fn only_the_last_months_are_kept() {
    let mut account = Account::default();
    for month in 1..=9 {
        account.add(&entry(at(&format!("2026-0{month}-01")), Resource::Operations, 1));
    }
    let kept: Vec<_> = account.months.keys().map(String::as_str).collect();
    assert_eq!(kept, ["2026-08", "2026-09"]);
    // A clock that is set back for years takes nothing from a month that is not over for long.
    account.add(&entry(at("2020-01-01"), Resource::Operations, 1));
    assert!(account.months.contains_key("2026-09"), "{account:?}");
}

#[test]
fn each_part_is_told_once_for_a_month_and_a_limit() {
    let standing = |month: &str, spent: &str| Standing {
        month: month.into(),
        spent: money(spent),
        held: Money(0),
        operations: 1,
        left: Duration::from_secs(1),
    };
    let mut account = Account::default();
    for (amount, month, spent, expected) in [
        ("10", "2026-08", "1", &[][..]),
        ("10", "2026-08", "6", &[50]),
        ("10", "2026-08", "6.5", &[]),
        // Parts that are reached at once are told at once.
        ("10", "2026-08", "12", &[80, 100]),
        ("10", "2026-08", "13", &[]),
        // A clock that is set, or a row that is corrected.
        ("10", "2026-08", "4", &[]),
        ("10", "2026-08", "12", &[]),
        // Another limit is another promise.
        ("20", "2026-08", "13", &[50]),
        ("10", "2026-08", "13", &[50, 80, 100]),
        ("10", "2026-09", "5", &[50]),
    ] {
        let news = account.take_news(&limit(amount, AtLimit::Alert), &standing(month, spent));
        assert_eq!(news, expected, "{amount} {month} {spent}");
    }
    // A restart tells nothing twice.
    let mut account = Account::default();
    let limit = limit("10", AtLimit::Alert);
    account.settle(&limit, &standing("2026-08", "8.5"));
    assert_eq!(account.take_news(&limit, &standing("2026-08", "8.6")), [0; 0]);
    assert_eq!(account.take_news(&limit, &standing("2026-08", "10")), [100]);
}

#[test]
fn each_action_is_in_force_when_its_part_is_reached() {
    let none = Restraint::default();
    let standing = |spent: &str| Standing {
        month: "2026-08".into(),
        spent: money(spent),
        held: Money(0),
        operations: 1000,
        left: Duration::from_secs(100),
    };
    for (action, spent, expected) in [
        (AtLimit::Alert, "11", none),
        (AtLimit::Throttle, "7.99", none),
        // 0.008 an operation; 2 are left for 100 s.
        (
            AtLimit::Throttle,
            "8",
            Restraint {
                ops_per_second: Some(2),
                ..none
            },
        ),
        (
            AtLimit::Throttle,
            "11",
            Restraint {
                ops_per_second: Some(1),
                ..none
            },
        ),
        (AtLimit::RejectWrites, "9.99", none),
        (
            AtLimit::RejectWrites,
            "10",
            Restraint {
                refuses_writes: true,
                ..none
            },
        ),
        (AtLimit::EvictOnly, "9.99", none),
        (
            AtLimit::EvictOnly,
            "10",
            Restraint {
                is_at_floor: true,
                ..none
            },
        ),
    ] {
        let found = restraint(&limit("10", action), &standing(spent), 0.0);
        assert_eq!(found, expected, "{action:?} {spent}");
        let name = (expected != none).then(|| action.name());
        assert_eq!(found.name(), name);
    }
}

#[test]
fn operations_are_paced_by_what_is_left() {
    let standing = |spent: &str, held: &str, operations| Standing {
        month: "2026-08".into(),
        spent: money(spent),
        held: money(held),
        operations,
        left: Duration::from_secs(1000),
    };
    let limit = limit("10", AtLimit::Throttle);
    for (standing, held_per_second, expected) in [
        // 8 for a million operations: 2 more buy 250,000, that is 250 a second.
        (standing("8", "0", 1_000_000), 0.0, Some(250)),
        // 1 of that is needed for memory.
        (standing("8", "0", 1_000_000), 0.001, Some(120)),
        // Half of the spending was for memory: operations are cheaper.
        (standing("8", "4", 1_000_000), 0.0, Some(500)),
        // All that is left is needed for memory.
        (standing("8", "4", 1_000_000), 1.0, Some(1)),
        // Operations cost nothing.
        (standing("8", "8", 1_000_000), 0.0, None),
        (standing("8", "0", 0), 0.0, None),
    ] {
        assert_eq!(
            paced(&limit, &standing, held_per_second),
            expected,
            "{standing:?} {held_per_second}"
        );
    }
    for (number, expected) in [(1, 1), (99, 99), (129, 120), (12_999, 12_000)] {
        assert_eq!(rounded_down(number), expected);
    }
}

#[test]
fn a_floor_has_a_price() {
    let tariff = tariff();
    assert_eq!(month_of_memory(1 << 30, &tariff.prices[0]), money("744"));
    assert!((second_of_memory(1 << 30, &tariff.prices[0]) * 3600.0 - 1.0).abs() < 1e-9);
}

proptest! {
    /// However use is split into entries, and whether the last one is open still: the spending is the same.
    #[test]
    fn any_split_spends_the_same(amounts in proptest::collection::vec((0_usize..14, 0_u64..1 << 40), 1..20)) {
        let (tariff, begin, now) = (tariff(), at("2026-08-03"), at("2026-08-04"));
        let entries: Vec<Entry> = amounts
            .iter()
            .map(|(resource, amount)| entry(begin, Resource::ALL[*resource], *amount))
            .collect();
        let (mut whole, mut but_last, mut halves) = (Account::default(), Account::default(), [Account::default(), Account::default()]);
        let last = entries.last().unwrap();
        entries.iter().for_each(|entry| whole.add(entry));
        entries.iter().rev().skip(1).for_each(|entry| but_last.add(entry));
        entries.iter().enumerate().for_each(|(number, entry)| halves[number % 2].add(entry));
        let [mut both, other] = halves;
        both.add_all(&other);
        let expected = whole.standing(now, None, &tariff);
        prop_assert_eq!(&but_last.standing(now, Some(last), &tariff), &expected);
        prop_assert_eq!(&both.standing(now, None, &tariff), &expected);
    }
}
