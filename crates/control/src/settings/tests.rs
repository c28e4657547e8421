//! Which settings are possible.

use std::time::Duration;

use tidemark_meter::price::{Money, Prices};
use tidemark_meter::spending::AtLimit;
use tidemark_plan::Utility;
use tidemark_plan::tiers::Minimise;
use tidemark_types::{GIB, HitRatio, MIB, PolicyChoice, Staleness, TenantLimits, UNIT_BYTES, Weight};

use super::*;
use crate::error::RefusalKind;
use crate::grant::grantable_bytes;

/// A tenant's settings are possible, or refused for this field.
fn check(settings: &TenantSettings, wrong_field: Option<&str>) {
    let field = check_tenant(settings).err().and_then(|refusal| refusal.field);
    assert_eq!(field.as_deref(), wrong_field, "{settings:?}");
}

/// The row of a setting.
fn row(path: &str) -> &'static Setting {
    SETTINGS.iter().find(|setting| setting.place.path == path).unwrap()
}

#[test]
fn tenants_settings_are_checked() {
    for (floor_bytes, cap_bytes, wrong_field) in [
        (None, None, None),
        (Some(0), Some(MIN_CAP_BYTES), None),
        (Some(MIB), Some(MIB), None),
        (Some(u64::MAX), None, None),
        (None, Some(MIN_CAP_BYTES - 1), Some("goals.cap_bytes")),
        (None, Some(0), Some("goals.cap_bytes")),
        (None, Some(MAX_CAP_BYTES), None),
        (None, Some(MAX_CAP_BYTES + 1), Some("goals.cap_bytes")),
        (Some(MIB + 1), Some(MIB), Some("goals.floor_bytes")),
    ] {
        let settings = TenantSettings {
            floor_bytes,
            cap_bytes,
            ..TenantSettings::default()
        };
        check(&settings, wrong_field);
    }
}

#[test]
fn settings_of_flash_are_checked() {
    for (floor_bytes, cap_bytes, write_bytes_per_second, wrong_field) in [
        (None, None, None, None),
        (Some(0), Some(MIN_FLASH_CAP_BYTES), Some(MIN_FLASH_WRITE_BYTES), None),
        (Some(u64::MAX), None, None, None),
        (None, Some(MIN_FLASH_CAP_BYTES - 1), None, Some("flash.cap_bytes")),
        (None, Some(MAX_CAP_BYTES + 1), None, Some("flash.cap_bytes")),
        (Some(9 * MIB), Some(8 * MIB), None, Some("flash.floor_bytes")),
        (
            None,
            None,
            Some(MIN_FLASH_WRITE_BYTES - 1),
            Some("flash.write_bytes_per_second"),
        ),
        (
            None,
            None,
            Some(MAX_BYTES_PER_SECOND + 1),
            Some("flash.write_bytes_per_second"),
        ),
    ] {
        let settings = TenantSettings {
            flash: FlashSettings {
                floor_bytes,
                cap_bytes,
                write_bytes_per_second,
                staleness: None,
            },
            ..TenantSettings::default()
        };
        check(&settings, wrong_field);
    }
    assert!(check_flash_floors([MIB, MIB].into_iter(), 2 * MIB).is_ok());
    let refused = check_flash_floors([MIB, 2 * MIB].into_iter(), 2 * MIB)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("come to 3MiB, but this server has 2MiB"), "{refused}");
}

#[test]
fn costs_and_priorities_are_checked() {
    let us = |us| Some(Duration::from_micros(us));
    for (latency, miss_cost, priority, wrong_field) in [
        (None, None, Some(MAX_PRIORITY), None),
        (None, None, Some(MAX_PRIORITY + 1), Some("goals.priority")),
        (us(1), us(60_000_000), Some(0), None),
        (us(0), None, None, Some("goals.latency_us")),
        (us(60_000_001), None, None, Some("goals.latency_us")),
        (None, us(0), None, Some("goals.miss_cost_us")),
        (None, us(60_000_001), None, Some("goals.miss_cost_us")),
        (us(500), us(501), None, None),
        (us(500), us(500), None, Some("goals.latency_us")),
    ] {
        let settings = TenantSettings {
            latency,
            miss_cost,
            priority,
            ..TenantSettings::default()
        };
        check(&settings, wrong_field);
    }
}

#[test]
fn a_floor_must_not_cost_more_than_may_be_spent() {
    let prices = Prices {
        version: "v1".into(),
        from: tidemark_types::UnixMs(0),
        until: None,
        units: [Money::parse("1").unwrap(); tidemark_meter::price::METERS.len()],
    };
    let of = |spending: &str, floor_bytes| TenantSettings {
        spending: Money::parse(spending),
        floor_bytes,
        ..TenantSettings::default()
    };
    for (settings, prices, expected) in [
        (TenantSettings::default(), None, None),
        (of("5", None), None, Some(RefusalKind::NotAvailable)),
        (of("5", None), Some(&prices), None),
        (of("0", None), Some(&prices), None),
        (of("744", Some(GIB)), Some(&prices), None),
        (of("743.99", Some(GIB)), Some(&prices), Some(RefusalKind::OverLimit)),
    ] {
        let refused = check_spending(&settings, prices).err();
        assert_eq!(refused.map(|refusal| refusal.kind), expected, "{settings:?}");
    }
    let lonely = TenantSettings {
        at_limit: Some(AtLimit::Throttle),
        ..TenantSettings::default()
    };
    check(&lonely, Some("limits.at_spending_limit"));
    for (latency, spending, wrong_field) in [
        (None, None, Some("goals.minimise")),
        (Some(MIN_COST), None, Some("goals.minimise")),
        (None, Money::parse("5"), Some("goals.minimise")),
        (Some(MIN_COST), Money::parse("5"), None),
    ] {
        let settings = TenantSettings {
            latency,
            spending,
            minimise: Some(Minimise::Cost),
            ..TenantSettings::default()
        };
        check(&settings, wrong_field);
    }
}

#[test]
fn limits_are_checked() {
    type Set = fn(&mut TenantLimits, u64);
    let ops: Set = |limits, limit| limits.ops_per_second = Some(limit);
    let bytes: Set = |limits, limit| limits.bytes_per_second = Some(limit);
    let connections: Set = |limits, limit| limits.connections = Some(limit);
    for (field, set, least, most) in [
        ("limits.ops_per_second", ops, 1, MAX_OPS_PER_SECOND),
        (
            "limits.bytes_per_second",
            bytes,
            MIN_BYTES_PER_SECOND,
            MAX_BYTES_PER_SECOND,
        ),
        ("limits.connections", connections, 1, MAX_CONNECTIONS),
    ] {
        for (limit, is_possible) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
            let mut settings = TenantSettings::default();
            set(&mut settings.limits, limit);
            check(&settings, (!is_possible).then_some(field));
        }
    }
}

#[test]
fn floors_must_fit_into_what_can_be_granted() {
    let available = grantable_bytes(GIB);
    for (floors, fits) in [
        (vec![], true),
        (vec![available], true),
        (vec![available + 1], false),
        (vec![available / 2, available / 2], true),
        (vec![available / 2, available / 2 + UNIT_BYTES], false),
        (vec![u64::MAX, u64::MAX], false),
    ] {
        let result = check_floors(floors.iter().copied(), GIB, "goals.floor_bytes");
        assert_eq!(result.is_ok(), fits, "{floors:?}");
    }
    let refused = check_floors([GIB / 2, GIB].into_iter(), GIB, "goals.floor_bytes").unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("come to 1536MiB, but only 1008MiB"), "{said}");
}

#[test]
fn server_settings_are_checked() {
    for (pool, fits) in [
        (MIN_POOL_BYTES - 1, false),
        (MIN_POOL_BYTES, true),
        (GIB, true),
        (GIB + 1, false),
    ] {
        assert_eq!(check_pool(pool, GIB).is_ok(), fits, "{pool}");
    }
    for (ms, fits) in [(99, false), (100, true), (60_000, true), (60_001, false)] {
        assert_eq!(check_round_period(Duration::from_millis(ms)).is_ok(), fits, "{ms}");
    }
}

#[test]
fn idling_is_checked() {
    let of = |first_grant_bytes, idle_after| Idling {
        first_grant_bytes,
        idle_after,
    };
    for (idling, wrong_field) in [
        (Idling::default(), None),
        (of(MIN_FIRST_GRANT_BYTES, MIN_IDLE_AFTER), None),
        (of(u64::MAX, MAX_IDLE_AFTER), None),
        (of(MIN_FIRST_GRANT_BYTES - 1, MIN_IDLE_AFTER), Some("first_grant")),
        (of(MIB, Duration::from_millis(999)), Some("idle_after")),
        (of(MIB, MAX_IDLE_AFTER + Duration::from_secs(1)), Some("idle_after")),
    ] {
        let field = check_idling(&idling).err().and_then(|refusal| refusal.field);
        assert_eq!(field.as_deref(), wrong_field, "{idling:?}");
    }
}

/// All that can be set, with values that are possible together.
pub(crate) fn full() -> TenantSettings {
    TenantSettings {
        hit_ratio: Some(HitRatio::MOST),
        latency: Some(MIN_COST),
        miss_cost: Some(MAX_COST),
        minimise: Some(Minimise::Latency),
        priority: Some(MAX_PRIORITY),
        utility: Some(Utility::MaxMin),
        floor_bytes: Some(0),
        cap_bytes: Some(MAX_CAP_BYTES),
        policy: Some("approx-lru:0.25".parse().unwrap()),
        weight: Some(Weight::MOST),
        limits: TenantLimits {
            ops_per_second: Some(7),
            bytes_per_second: Some(1 << 20),
            connections: Some(3),
        },
        spending: Money::parse("12.000000000001"),
        at_limit: Some(AtLimit::EvictOnly),
        flash: FlashSettings {
            floor_bytes: Some(0),
            cap_bytes: Some(MAX_CAP_BYTES),
            write_bytes_per_second: Some(1 << 20),
            staleness: Some(Staleness::Bounded(7)),
        },
    }
}

#[test]
fn each_row_of_the_table_reaches_one_field() {
    let full = full();
    let stored = |settings: &TenantSettings| -> Vec<Option<PlainValue>> {
        SETTINGS.iter().map(|setting| setting.stored(settings)).collect()
    };
    assert!(stored(&full).iter().all(Option::is_some), "{:?}", stored(&full));
    assert_eq!(SettingsPatch::from(full).of(TenantSettings::default()), full);
    for (row, setting) in SETTINGS.iter().enumerate() {
        let path = setting.place.path;
        // Cleared, it alone is gone.
        let mut patch = SettingsPatch::default();
        setting.clear(&mut patch);
        let mut expected = stored(&full);
        let kept = expected[row].take().unwrap();
        let cleared = patch.of(full);
        assert_eq!(stored(&cleared), expected, "{path}");
        // As an answer has it, and as the state file keeps it, it is the same again.
        let mut patch = SettingsPatch::default();
        setting.read(&mut patch, &setting.told(&full).unwrap()).unwrap();
        assert_eq!(patch.of(cleared), full, "{path}");
        let mut restored = cleared;
        setting.restore(&mut restored, &kept).unwrap();
        assert_eq!(restored, full, "{path}");
    }
}

#[test]
fn answers_have_the_text_in_force_where_it_matters() {
    let unset = TenantSettings::default();
    let limited = TenantSettings {
        spending: Money::parse("5"),
        ..unset
    };
    let within_both = TenantSettings {
        latency: Some(MIN_COST),
        ..limited
    };
    for (path, settings, told) in [
        ("policy", unset, Some("adaptive")),
        ("flash.staleness", unset, Some("bounded:100ms")),
        ("limits.at_spending_limit", unset, None),
        ("limits.at_spending_limit", limited, Some("alert")),
        ("goals.minimise", limited, None),
        ("goals.minimise", within_both, Some("cost")),
        ("goals.utility", unset, None),
    ] {
        let told = told.map(|text| PlainValue::Text(text.to_owned()));
        assert_eq!(row(path).told(&settings), told, "{path}");
    }
}

#[test]
fn rows_of_the_table_do_not_share_names() {
    let names: [fn(&Setting) -> &'static str; 3] = [
        |setting| setting.place.path,
        |setting| setting.flag,
        |setting| setting.column.name,
    ];
    for name in names {
        let mut all: Vec<&str> = SETTINGS.iter().map(name).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), SETTINGS.len(), "{all:?}");
    }
}

#[test]
fn values_of_another_kind_are_refused_with_what_is_needed() {
    for (path, value, message, allowed) in [
        (
            "goals.floor_bytes",
            PlainValue::Real(0.5),
            "`goals.floor_bytes` must be a whole number",
            "a whole number",
        ),
        (
            "goals.cap_bytes",
            PlainValue::Text("64MiB".into()),
            "`goals.cap_bytes` must be a whole number from 1048576 to 1152921504606846976",
            "1048576 to 1152921504606846976",
        ),
        (
            "goals.priority",
            PlainValue::Number(256),
            "`goals.priority` must be a whole number from 0 to 9",
            "0 to 9",
        ),
        (
            "goals.weight",
            PlainValue::Number(101),
            "`goals.weight` must be a whole number from 1 to 100",
            "1 to 100",
        ),
        (
            "goals.hit_ratio",
            PlainValue::Other,
            "`goals.hit_ratio` must be a number from 0.001 to 0.9999",
            "0.001 to 0.9999",
        ),
        (
            "goals.utility",
            PlainValue::Number(1),
            "`goals.utility` must be a utility's name",
            "proportional",
        ),
        (
            "policy",
            PlainValue::Number(1),
            "`policy` must be a policy's name",
            "adaptive",
        ),
    ] {
        let refusal = row(path).read(&mut SettingsPatch::default(), &value).unwrap_err();
        assert_eq!(
            (refusal.message.as_str(), refusal.allowed[0].as_str()),
            (message, allowed)
        );
        assert_eq!(refusal.field.as_deref(), Some(path));
    }
}

#[test]
fn a_patch_keeps_clears_and_sets() {
    let before = TenantSettings {
        latency: Some(MIN_COST),
        priority: Some(1),
        floor_bytes: Some(1),
        cap_bytes: Some(2),
        weight: Weight::new(3),
        limits: TenantLimits {
            ops_per_second: Some(4),
            bytes_per_second: Some(5),
            connections: Some(6),
        },
        spending: Money::parse("5"),
        at_limit: Some(AtLimit::Throttle),
        flash: FlashSettings {
            floor_bytes: Some(1),
            cap_bytes: Some(2),
            write_bytes_per_second: None,
            staleness: Some(Staleness::None),
        },
        ..TenantSettings::default()
    };
    let patch = SettingsPatch {
        hit_ratio: Change::Set(HitRatio::MOST),
        miss_cost: Change::Set(MAX_COST),
        priority: Change::Clear,
        utility: Change::Set(Utility::Cost),
        cap_bytes: Change::Clear,
        policy: Change::Set(PolicyChoice::Genie),
        weight: Change::Clear,
        bytes_per_second: Change::Clear,
        connections: Change::Set(7),
        spending: Change::Set(Money(9)),
        at_limit: Change::Clear,
        flash: FlashPatch {
            floor_bytes: Change::Clear,
            cap_bytes: Change::Keep,
            write_bytes_per_second: Change::Set(8),
            staleness: Change::Set(Staleness::Strict),
        },
        ..SettingsPatch::default()
    };
    let after = TenantSettings {
        hit_ratio: Some(HitRatio::MOST),
        latency: Some(MIN_COST),
        miss_cost: Some(MAX_COST),
        utility: Some(Utility::Cost),
        floor_bytes: Some(1),
        policy: Some(PolicyChoice::Genie),
        limits: TenantLimits {
            ops_per_second: Some(4),
            bytes_per_second: None,
            connections: Some(7),
        },
        spending: Some(Money(9)),
        flash: FlashSettings {
            floor_bytes: None,
            cap_bytes: Some(2),
            write_bytes_per_second: Some(8),
            staleness: Some(Staleness::Strict),
        },
        ..TenantSettings::default()
    };
    assert_eq!(patch.of(before), after);
}
