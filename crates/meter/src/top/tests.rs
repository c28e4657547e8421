use proptest::prelude::*;

use super::*;

const SHOP: TenantId = TenantId(1);
const GENERATION_MS: u64 = GENERATION.as_millis() as u64;

fn command(name: &'static str, request_bytes: u32, reply_bytes: u32) -> SampledCommand {
    SampledCommand {
        request_bytes,
        reply_bytes,
        work_ns: 100 + request_bytes + reply_bytes,
        ..SampledCommand::new("redis", name)
    }
}

fn visit(commands: &[(SampledCommand, &[&str])]) -> VisitSamples {
    let mut visit = VisitSamples::default();
    for (command, keys) in commands {
        visit.push(*command, keys.iter().map(|key| key.as_bytes()));
    }
    let mut samples = VisitSamples::default();
    samples.append(&mut visit);
    samples
}

fn used(operations: u64, in_bytes: u64, out_bytes: u64, cpu_ns: u64) -> Usage {
    Usage::default()
        .with(Resource::Operations, operations)
        .with(Resource::NetworkInBytes, in_bytes)
        .with(Resource::NetworkOutBytes, out_bytes)
        .with(Resource::CpuNs, cpu_ns)
}

fn names(keys: &[TopKey]) -> Vec<String> {
    keys.iter().map(|one| one.key.escape_ascii().to_string()).collect()
}

#[test]
fn samples_say_how_what_was_used_is_shared() {
    let mut tops = Tops::new(b':');
    let samples = visit(&[
        (command("get", 10, 90), &["user:1"]),
        (command("get", 10, 90), &["user:1"]),
        (command("set", 1000, 5), &["page:1"]),
        (command("mget", 20, 40), &["user:1", "plain"]),
        (command("ping", 4, 7), &[]),
    ]);
    tops.observe(
        SHOP,
        &samples,
        &used(50, 0, 0, 0),
        &used(5_050, 104_400, 23_200, 1_776_000),
        1_000,
    );
    let top = tops.top(SHOP, 3_000).unwrap();
    assert_eq!((top.over_ms, top.visits, top.commands_sampled), (2_000, 1, 5));
    assert_eq!(top.used.milli_operations, 5_000_000);
    assert_eq!(names(&top.keys_by_operations), ["user:1", "page:1", "plain"]);
    assert_eq!(names(&top.keys_by_bytes), ["page:1", "user:1", "plain"]);
    let user = &top.keys_by_operations[0];
    assert_eq!((user.used.milli_operations, user.error), (2_500_000, 0));
    // 30 of 1,044 sampled bytes in, 200 of 232 out.
    assert_eq!((user.used.in_bytes, user.used.out_bytes), (3_000, 20_000));
    assert_eq!(names(&top.prefixes), ["page:", "user:", ""]);
    let commands: Vec<(&str, u64)> = top
        .commands
        .iter()
        .map(|one| (one.command, one.used.milli_operations))
        .collect();
    let expected = [
        ("set", 1_000_000),
        ("get", 2_000_000),
        ("mget", 1_000_000),
        ("ping", 1_000_000),
    ];
    assert_eq!(commands, expected);
    let sum: u64 = top.commands.iter().map(|one| one.used.bytes()).sum();
    assert_eq!(sum, top.used.bytes(), "commands add up to what was used");
}

#[test]
fn generations_pass_and_the_last_two_count() {
    let mut tops = Tops::new(b':');
    let of = |key| visit(&[(command("get", 10, 10), &[key])]);
    let total = |operations| used(operations, operations, operations, operations);
    tops.observe(SHOP, &of("a"), &total(0), &total(100), 0);
    tops.observe(SHOP, &of("b"), &total(100), &total(400), GENERATION_MS);
    let seen = |tops: &Tops, now_ms| {
        let top = tops.top(SHOP, now_ms).unwrap();
        let of = |one: &TopKey| (one.key[0] as char, one.used.milli_operations / 1000);
        top.keys_by_operations.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(seen(&tops, GENERATION_MS), [('b', 300), ('a', 100)]);
    tops.observe(SHOP, &of("c"), &total(400), &total(500), 2 * GENERATION_MS);
    assert_eq!(seen(&tops, 2 * GENERATION_MS), [('b', 300), ('c', 100)]);
    // Nothing was asked for over a long time: nothing of before counts.
    tops.observe(SHOP, &of("d"), &total(500), &total(501), 5 * GENERATION_MS);
    assert_eq!(seen(&tops, 5 * GENERATION_MS), [('d', 1)]);
}

#[test]
fn who_is_not_sampled_holds_nothing() {
    let mut tops = Tops::new(b':');
    let none = VisitSamples::default();
    tops.observe(SHOP, &none, &used(0, 0, 0, 0), &used(9, 9, 9, 9), 0);
    assert!(tops.is_empty() && tops.top(SHOP, 0).is_none());
    let one = visit(&[(command("get", 1, 1), &["k"])]);
    for number in 0..TENANTS_MAX as u32 + 1 {
        tops.observe(
            TenantId(number),
            &one,
            &Usage::default(),
            &used(1, 1, 1, 1),
            u64::from(number),
        );
    }
    assert_eq!(tops.len(), TENANTS_MAX);
    assert!(tops.top(TenantId(0), 0).is_none(), "the oldest made room");
    tops.forget(TenantId(1));
    assert!(tops.top(TenantId(1), 0).is_none());
    tops.tidy(2 * GENERATION_MS + 2);
    assert_eq!(tops.len(), TENANTS_MAX - 2, "those from before went");
    tops.tidy(3 * GENERATION_MS);
    assert!(tops.is_empty());
}

#[test]
fn a_prefix_ends_with_the_first_delimiter() {
    for (key, delimiter, expected) in [
        ("user:1:name", b':', "user:"),
        ("user/1", b'/', "user/"),
        ("user/1", b':', ""),
        (":", b':', ":"),
        ("", b':', ""),
    ] {
        assert_eq!(prefix(key.as_bytes(), delimiter), expected.as_bytes(), "{key}");
    }
}

#[test]
fn a_cost_is_what_the_prices_say() {
    let mut prices = Prices {
        version: "1".into(),
        from: tidemark_types::UnixMs(0),
        until: None,
        units: [Money(0); METERS.len()],
    };
    for (meter, unit) in METERS.iter().zip(&mut prices.units) {
        *unit = match meter.key {
            "vcpu_hour" => Money(3_600_000_000_000),
            "network_out_gib" => Money(1 << 30),
            "operations_million" => Money(5_000_000),
            _ => Money(1_000_000_000_000_000),
        };
    }
    let amounts = Amounts {
        milli_operations: 7_000,
        in_bytes: 0,
        out_bytes: 11,
        cpu_ns: 13,
    };
    assert_eq!(amounts.cost(&prices, false), Money(7 * 5 + 11 + 13));
    assert_eq!(amounts.cost(&prices, true), Money(11 + 13));
}

proptest! {
    #[test]
    fn what_is_stated_of_a_key_is_off_by_its_error_at_most(
        keys in proptest::collection::vec(0_u32..400, 1..3000),
    ) {
        let mut tops = Tops::new(b':');
        let mut truth: BTreeMap<u32, u64> = BTreeMap::new();
        let mut total = 0;
        for (place, batch) in keys.chunks(100).enumerate() {
            let before = total;
            let mut samples = VisitSamples::default();
            for key in batch {
                let mut one = VisitSamples::default();
                one.push(command("get", 1, 1), [&key.to_be_bytes()[..]].into_iter());
                samples.append(&mut one);
                *truth.entry(*key).or_default() += 1000;
                total += 1;
            }
            let (before, now) = (used(before, before, before, before), used(total, total, total, total));
            // Half in each generation.
            let at_ms = if place * 200 < keys.len() { 0 } else { GENERATION_MS };
            tops.observe(SHOP, &samples, &before, &now, at_ms);
        }
        let top = tops.top(SHOP, GENERATION_MS).unwrap();
        for one in &top.keys_by_operations {
            let weight = truth[&u32::from_be_bytes(one.key[..].try_into().unwrap())];
            let stated = one.used.milli_operations;
            prop_assert!(stated <= weight && weight <= stated + one.error, "{one:?} {weight}");
        }
    }
}
