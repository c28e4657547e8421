//! Goals for the latency over memory and flash, in virtual time with the real store, the real flash and the real control plane.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod mixed;
mod preview;

use std::sync::Arc;
use std::time::Duration;

use tidemark_control::{Change, FlashPatch, Metering, Minimise, SettingsPatch, Spent};
use tidemark_experiments::node::{FLASH_WAIT_US, Load, Node, Parts, Standing};
use tidemark_meter::price::{CpuFigure, METERS, Money, Prices, Tariff};
use tidemark_meter::spending::AtLimit;
use tidemark_tools::load::{Distribution, Workload};
use tidemark_types::{MIB, UnixMs};

const HIT_US: f64 = 50.0;
const MISS_US: f64 = 1000.0;
/// Beside two standard errors of some hundred thousand gets, a hundredth of what a miss takes is as near as goals are held.
const NEAR: f64 = 1.03;

/// Prices of a GiB of memory and of flash for an hour.
fn prices(memory: &str, flash: &str) -> Metering {
    let mut units = [Money(0); METERS.len()];
    for (meter, price) in METERS.iter().zip(&mut units) {
        match meter.key {
            "memory_gib_hour" => *price = Money::parse(memory).unwrap(),
            "flash_gib_hour" => *price = Money::parse(flash).unwrap(),
            _ => {}
        }
    }
    let tariff = Tariff {
        currency: "USD".into(),
        cpu: CpuFigure::Measured,
        free: Vec::new(),
        prices: vec![Prices {
            version: "v1".into(),
            from: UnixMs(0),
            until: None,
            units,
        }],
        instances: Vec::new(),
    };
    Metering {
        tariff: Some(Arc::new(tariff)),
        ..Metering::new("virtual")
    }
}

fn node(metering: Metering) -> Node {
    Node::of(Parts {
        pool_bytes: 64 * MIB,
        workers: 2,
        seed: 1,
        hit_cost: Duration::from_micros(HIT_US as u64),
        flash_bytes: 128 * MIB,
        metering: Some(metering),
    })
    .unwrap()
}

fn goal(latency_us: u64) -> SettingsPatch {
    SettingsPatch {
        latency: Change::Set(Duration::from_micros(latency_us)),
        miss_cost: Change::Set(Duration::from_micros(MISS_US as u64)),
        ..SettingsPatch::default()
    }
}

/// Some 45 MiB of items.
fn load(rate: f64) -> Load {
    Load {
        workload: Workload::gets(40_000, Distribution::Zipf { alpha: 0.9 }, 16, 1000),
        rate,
    }
}

/// The mean latency of the gets between two moments, by their counts alone.
fn latency_us(from: &Standing, to: &Standing) -> f64 {
    let gets = (to.moment.gets - from.moment.gets) as f64;
    let misses = gets - (to.moment.hits - from.moment.hits) as f64;
    let flash = |standing: &Standing| standing.flash.map_or(0, |flash| flash.hits) as f64;
    HIT_US + (misses * (MISS_US - HIT_US) + (flash(to) - flash(from)) * FLASH_WAIT_US as f64) / gets
}

fn measure(node: &mut Node, name: &str, seconds: u64) -> f64 {
    let before = node.standing(name).unwrap();
    node.run(Duration::from_secs(seconds));
    latency_us(&before, &node.standing(name).unwrap())
}

fn sizes(node: &mut Node, name: &str) -> (u64, u64) {
    let view = node.view(name).unwrap();
    (view.grant_bytes / MIB, view.flash_grant_bytes.unwrap() / MIB)
}

#[test]
fn cheap_flash_takes_the_place_of_memory_and_the_latency_holds() {
    let run = |memory, flash| {
        let mut node = node(prices(memory, flash));
        node.create("shop", goal(300)).unwrap();
        node.load("shop", &load(10_000.0)).unwrap();
        node.run(Duration::from_secs(90));
        let measured = measure(&mut node, "shop", 20);
        let view = node.view("shop").unwrap();
        (sizes(&mut node, "shop"), measured, view)
    };
    let (cheap, cheap_us, view) = run("0.38", "0.01");
    let (dear, dear_us, _) = run("0.01", "0.02");
    assert!(cheap.0 * 3 < dear.0 * 2 && cheap.1 > 8, "{cheap:?} {dear:?}");
    assert_eq!(dear.1, 0, "flash that costs more than memory");
    assert!(
        cheap_us <= 300.0 * NEAR && dear_us <= 300.0 * NEAR,
        "{cheap_us} {dear_us}"
    );
    // And not because there is plenty.
    assert!(cheap_us > 240.0, "{cheap_us} with {cheap:?}");
    assert_eq!(view.goal_state, "met", "{view:?}");
    let shown = view.latency.mean_us.unwrap() as f64;
    assert!((shown - cheap_us).abs() < 30.0, "{shown} is shown of {cheap_us}");
    assert_eq!(view.latency.flash_hit_us, Some(150));
}

#[test]
fn two_tenants_have_their_own_latencies_from_the_same_tiers() {
    let mut node = node(prices("0.38", "0.01"));
    node.create("fast", goal(200)).unwrap();
    node.create("slow", goal(450)).unwrap();
    node.load("fast", &load(8_000.0)).unwrap();
    node.load("slow", &load(8_000.0)).unwrap();
    node.run(Duration::from_secs(120));
    let before = [node.standing("fast").unwrap(), node.standing("slow").unwrap()];
    node.run(Duration::from_secs(20));
    let [fast, slow] = ["fast", "slow"].map(|name| node.standing(name).unwrap());
    let (fast_us, slow_us) = (latency_us(&before[0], &fast), latency_us(&before[1], &slow));
    assert!(
        fast_us <= 200.0 * NEAR && slow_us <= 450.0 * NEAR,
        "{fast_us} {slow_us}"
    );
    let (fast, slow) = (sizes(&mut node, "fast"), sizes(&mut node, "slow"));
    assert!(fast.0 + fast.1 > slow.0 + slow.1, "{fast:?} {slow:?}");
}

#[test]
fn a_spending_limit_buys_the_least_latency_and_moves_say_why() {
    let run = |amount: &str| {
        let mut node = node(prices("0.38", "0.01"));
        let limited = SettingsPatch {
            latency: Change::Keep,
            spending: Change::Set(Money::parse(amount).unwrap()),
            at_limit: Change::Set(AtLimit::EvictOnly),
            ..goal(300)
        };
        node.create("shop", limited).unwrap();
        node.load("shop", &load(10_000.0)).unwrap();
        // Nothing was spent before.
        node.command(|control| control.adopt_spent(Spent::default())).unwrap();
        node.run(Duration::from_secs(90));
        let measured = measure(&mut node, "shop", 20);
        let (memory, flash) = sizes(&mut node, "shop");
        let moves = node.command(|control| control.moves("shop")).unwrap();
        let cost = memory as f64 / 1024.0 * 0.38 + flash as f64 / 1024.0 * 0.01;
        (measured, cost, moves)
    };
    // The virtual month has some 410 hours left.
    let (poor_us, poor, moves) = run("2");
    let (rich_us, rich, _) = run("5");
    assert!(rich_us < poor_us * 0.95, "{poor_us} for {poor}, {rich_us} for {rich}");
    assert!(poor < rich, "{poor} {rich}");
    let of_flash = |reason| {
        let mut moves = moves.iter().filter(|change| change.tier == Some("flash"));
        moves.any(|change| change.reason == reason)
    };
    assert!(of_flash("join") && of_flash("goal"), "{moves:?}");
}

#[test]
fn within_a_latency_and_a_limit_cost_or_latency_is_least() {
    let run = |minimise, amount: &str| {
        let mut node = node(prices("0.38", "0.01"));
        let both = SettingsPatch {
            spending: Change::Set(Money::parse(amount).unwrap()),
            at_limit: Change::Set(AtLimit::EvictOnly),
            minimise,
            ..goal(250)
        };
        node.create("shop", both).unwrap();
        node.load("shop", &load(10_000.0)).unwrap();
        node.command(|control| control.adopt_spent(Spent::default())).unwrap();
        node.run(Duration::from_secs(90));
        let measured = measure(&mut node, "shop", 20);
        let (memory, flash) = sizes(&mut node, "shop");
        let state = node.view("shop").unwrap().goal_state;
        (
            measured,
            memory as f64 / 1024.0 * 0.38 + flash as f64 / 1024.0 * 0.01,
            state,
        )
    };
    // The virtual month has some 410 hours left.
    let (cheap_us, cheap, _) = run(Change::Keep, "9");
    let (fast_us, fast, _) = run(Change::Set(Minimise::Latency), "9");
    let (poor_us, poor, state) = run(Change::Keep, "0.2");
    assert!(cheap_us > 180.0 && cheap_us <= 250.0 * NEAR, "{cheap_us}");
    assert!(fast_us < cheap_us * 0.8 && fast > cheap * 1.2, "{fast_us} for {fast}");
    assert!(fast * 410.0 <= 9.0 * 1.1, "{fast} an hour");
    // So little does not buy the latency: what it buys is told to be too slow.
    assert!(poor_us > 250.0 * NEAR && poor < cheap, "{poor_us} for {poor}");
    assert_eq!(state, "infeasible");
}

#[test]
fn a_latency_that_both_tiers_cannot_give_is_told_with_what_is_missing() {
    let mut node = node(prices("0.38", "0.01"));
    let capped = SettingsPatch {
        cap_bytes: Change::Set(8 * MIB),
        flash: FlashPatch {
            cap_bytes: Change::Set(8 * MIB),
            ..FlashPatch::default()
        },
        ..goal(150)
    };
    node.create("shop", capped).unwrap();
    node.load("shop", &load(10_000.0)).unwrap();
    node.run(Duration::from_secs(100));
    let measured = measure(&mut node, "shop", 10);
    let view = node.view("shop").unwrap();
    assert_eq!(view.goal_state, "infeasible", "{:?}", view.latency);
    let (best, missing) = (view.latency.best_us.unwrap(), view.latency.shortfall_us.unwrap());
    assert!((best as f64 - 150.0 - missing as f64).abs() <= 2.0, "{best} {missing}");
    assert!(best as f64 <= measured * NEAR && missing > 50, "{best} of {measured}");
}
