//! The demands of tenants on both tiers, and their bounds.

use tidemark_meter::price::Money;
use tidemark_types::{GIB, MIB};

use super::*;
use crate::settings::{FlashSettings, TenantSettings};
use crate::state::TenantRecord;

const SHOP: TenantId = TenantId(1);
const FREE: Free = Free {
    memory_bytes: GIB,
    flash_bytes: GIB,
};

fn book(settings: TenantSettings) -> Book {
    let record = TenantRecord {
        id: SHOP,
        name: "shop".parse().unwrap(),
        version: 1,
        settings,
        secrets: Vec::new(),
        created_at: UnixMs(0),
        remembered_grant_bytes: None,
    };
    let mut book = Book::new(GIB, 2, vec![record]);
    book.set_flash_bytes(GIB);
    book
}

fn with_floors() -> TenantSettings {
    TenantSettings {
        floor_bytes: Some(40 * MIB),
        flash: FlashSettings {
            floor_bytes: Some(64 * MIB),
            ..FlashSettings::default()
        },
        ..TenantSettings::default()
    }
}

#[test]
fn no_plan_takes_what_is_guaranteed() {
    let settings = with_floors();
    let book = book(settings);
    let bounds = book.tenants[&SHOP].bounds(&settings, FREE);
    assert_eq!((bounds.memory_least, bounds.flash_least), (40 * MIB, 64 * MIB));
    assert_eq!(
        (bounds.memory_most, bounds.flash_most),
        (GIB + 40 * MIB, GIB + 64 * MIB)
    );
}

#[test]
fn sizes_below_a_floor_that_was_raised_are_not_kept() {
    let range = |least, most| Range { least, most };
    for (memory_bytes, flash_bytes, is_out) in [
        (40.0, 64.0, false),
        (100.0, 200.0, false),
        (39.0, 64.0, true),
        (40.0, 63.0, true),
        (101.0, 64.0, true),
        (40.0, 201.0, true),
    ] {
        let sizes = Sizes {
            memory_bytes,
            flash_bytes,
        };
        let found = is_outside(sizes, range(40.0, 100.0), range(64.0, 200.0));
        assert_eq!(found, is_out, "{sizes:?}");
    }
}

#[test]
fn one_that_is_held_at_its_floors_is_planned_with_them() {
    let settings = with_floors();
    let mut book = book(settings);
    let tenant = book.tenants.get_mut(&SHOP).unwrap();
    tenant.restraint.is_at_floor = true;
    let bounds = tenant.bounds(&settings, FREE);
    assert_eq!((bounds.memory_least, bounds.memory_most), (40 * MIB, 40 * MIB));
    assert_eq!((bounds.flash_least, bounds.flash_most), (64 * MIB, 64 * MIB));
}

#[test]
fn money_is_planned_with_only_where_its_end_may_take_memory() {
    let prices = TierPrices {
        is_stated: true,
        ..TierPrices::default()
    };
    for (at_limit, is_planned) in [
        (None, false),
        (Some(AtLimit::Alert), false),
        (Some(AtLimit::RejectWrites), false),
        (Some(AtLimit::Throttle), true),
        (Some(AtLimit::EvictOnly), true),
    ] {
        let mut book = book(TenantSettings {
            spending: Money::parse("5"),
            at_limit,
            ..TenantSettings::default()
        });
        let tenant = book.tenants.get_mut(&SHOP).unwrap();
        tenant.grant_bytes = MIB;
        let aim = |prices| tenant.aim(&tenant.record.settings, Some(1.0), prices);
        assert_eq!(aim(prices).is_some(), is_planned, "{at_limit:?}");
        assert!(aim(TierPrices::default()).is_none(), "{at_limit:?}: without prices");
    }
}

#[test]
fn a_latency_and_money_leave_a_choice_of_what_is_least() {
    let us = Duration::from_micros;
    let wanted = |latency, bought_us: Option<f64>, minimise| {
        let aim = Aim {
            latency,
            money: bought_us.map(|_| 1.0),
            minimise,
        };
        aim.wanted(100.0, bought_us)
            .map(|wanted| (wanted.goal_us, wanted.asked_us, wanted.aim_us))
    };
    for (latency, bought_us, minimise, expected) in [
        (None, None, Minimise::Cost, None),
        (None, Some(500.0), Minimise::Cost, Some((500.0, 500.0, 500.0))),
        (Some(us(400)), None, Minimise::Cost, Some((400.0, 400.0, 392.0))),
        (Some(us(400)), Some(200.0), Minimise::Cost, Some((400.0, 400.0, 392.0))),
        (
            Some(us(400)),
            Some(200.0),
            Minimise::Latency,
            Some((400.0, 200.0, 200.0)),
        ),
        (Some(us(101)), None, Minimise::Cost, Some((101.0, 101.0, 101.0))),
        (Some(us(400)), Some(396.0), Minimise::Cost, Some((400.0, 400.0, 396.0))),
        // The money does not buy it.
        (Some(us(400)), Some(700.0), Minimise::Cost, Some((400.0, 700.0, 700.0))),
        (
            Some(us(400)),
            Some(700.0),
            Minimise::Latency,
            Some((400.0, 700.0, 700.0)),
        ),
    ] {
        assert_eq!(
            wanted(latency, bought_us, minimise),
            expected,
            "{latency:?} {bought_us:?} {minimise:?}"
        );
    }
}
