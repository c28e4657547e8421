//! The prices' answers against the linear program as a solver of linear programs has it, on random tenants.

use good_lp::{Expression, ProblemVariables, Solution as _, SolverModel as _, constraint, microlp, variable};
use proptest::collection::vec;
use proptest::prelude::*;
use tidemark_curve::{Curve, Point};

use super::*;

fn curve(points: &[(u64, f64)]) -> Curve {
    Curve::through(points.iter().map(|(bytes, miss_ratio)| Point {
        bytes: *bytes,
        miss_ratio: *miss_ratio,
        standard_error: 0.0,
    }))
}

/// Sizes in these tests are small numbers, so that the solver of linear programs is exact.
fn tenants() -> impl Strategy<Value = Tenant> {
    let points = vec((1_u64..200, 0.0_f64..0.95), 1..8);
    let times = (0.0_f64..50.0, 20.0_f64..200.0, 200.0_f64..2000.0);
    let rest = (0.0_f64..0.1, prop_oneof![Just(0.0), -0.3_f64..0.5], 0.5_f64..5.0);
    let range = || {
        prop_oneof![
            Just(Range::ANY),
            (0.0_f64..20.0, 20.0_f64..120.0).prop_map(|(least, most)| Range { least, most })
        ]
    };
    let shape = prop_oneof![
        3 => (range(), range()).prop_map(|(memory, flash)| Shape::Free { memory, flash }),
        1 => (0.5_f64..6.0).prop_map(|flash_ratio| Shape::Tied { flash_ratio }),
    ];
    // A tenant of two curves has one for memory alone.
    let of_memory = prop_oneof![
        2 => Just(None),
        1 => vec((1_u64..200, 0.0_f64..0.95), 1..8).prop_map(Some),
    ];
    (points, of_memory, times, rest, shape).prop_map(|(points, of_memory, times, rest, shape)| {
        let latencies = Latencies {
            memory_us: times.0,
            flash_us: times.1,
            origin_us: times.2,
        };
        let both = curve(&points);
        let mut tenant = match of_memory {
            Some(points) => Tenant::of_two(curve(&points), both, latencies),
            None => Tenant::new(both, latencies),
        };
        (tenant.index_ratio, tenant.overlap_ratio, tenant.weight) = rest;
        tenant.shape = shape;
        tenant
    })
}

fn prices() -> impl Strategy<Value = Prices> {
    (0.5_f64..5.0, 0.01_f64..3.0).prop_map(|(memory, flash)| Prices { memory, flash })
}

fn pools(tenants: usize) -> impl Strategy<Value = Pools> {
    let limit = || prop_oneof![1 => Just(f64::INFINITY), 3 => 25.0_f64..120.0];
    (limit(), limit(), any::<bool>()).prop_map(move |(memory, flash, holds_index)| Pools {
        memory_bytes: memory * tenants as f64,
        flash_bytes: flash * tenants as f64,
        holds_index,
    })
}

/// The least value that the linear program has: cost with penalties, cost, or mean latency. `None` where nothing is allowed.
fn program(tenants: &[Tenant], prices: Prices, pools: Pools, target: Target<'_>) -> Option<f64> {
    let mut variables = ProblemVariables::new();
    let weights: f64 = tenants.iter().map(|tenant| tenant.weight).sum();
    let mut rows = Vec::new();
    let (mut cost, mut latency, mut penalties) = (Expression::from(0.0), Expression::from(0.0), Expression::from(0.0));
    let (mut memory_sum, mut flash_sum) = (Expression::from(0.0), Expression::from(0.0));
    for (index, tenant) in tenants.iter().enumerate() {
        let sized = |range: Range| {
            let size = variable().min(range.least);
            if range.most.is_finite() {
                size.max(range.most)
            } else {
                size
            }
        };
        let (memory, flash) = match tenant.shape {
            Shape::Free { memory, flash } => (variables.add(sized(memory)), variables.add(sized(flash))),
            Shape::Tied { flash_ratio } => {
                let (memory, flash) = (variables.add(variable().min(0.0)), variables.add(variable().min(0.0)));
                rows.push(constraint!(flash == flash_ratio * memory));
                (memory, flash)
            }
        };
        let (first, second) = (variables.add(variable().min(0.0)), variables.add(variable().min(0.0)));
        let reach = memory + (1.0 - tenant.overlap_ratio) * flash;
        for (missed, bytes, curve) in [
            (first, Expression::from(memory), &tenant.memory.curve),
            (second, reach, &tenant.both.curve),
        ] {
            let hull = curve.hull();
            let points = hull.points();
            rows.push(constraint!(missed >= points[points.len() - 1].miss_ratio));
            for pair in points.windows(2) {
                let gain = (pair[0].miss_ratio - pair[1].miss_ratio) / (pair[1].bytes - pair[0].bytes) as f64;
                let at_zero = pair[0].miss_ratio + gain * pair[0].bytes as f64;
                rows.push(constraint!(missed + gain * bytes.clone() >= at_zero));
            }
        }
        let times = tenant.latencies;
        let own = times.memory_us + times.flash_us * first + times.origin_us * second;
        if let Target::Each(goals) = target
            && let Some(goal) = goals[index]
        {
            let short = variables.add(variable().min(0.0));
            rows.push(constraint!(own.clone() <= goal.latency_us + short));
            penalties += goal.penalty * short;
        }
        latency += (tenant.weight / weights) * own;
        cost += prices.memory * memory + prices.flash_with_index(tenant.index_ratio) * flash;
        let index_ratio = if pools.holds_index { tenant.index_ratio } else { 0.0 };
        memory_sum += memory + index_ratio * flash;
        flash_sum += flash;
    }
    for (sum, limit) in [(memory_sum, pools.memory_bytes), (flash_sum, pools.flash_bytes)] {
        if limit.is_finite() {
            rows.push(constraint!(sum <= limit));
        }
    }
    let objective = match target {
        Target::Each(_) => cost + penalties,
        Target::Mean(most) => {
            rows.push(constraint!(latency <= most));
            cost
        }
        Target::Spending(most) => {
            rows.push(constraint!(cost <= most));
            latency
        }
    };
    let mut model = variables.minimise(objective.clone()).using(microlp);
    for row in rows {
        model = model.with(row);
    }
    model.solve().ok().map(|solution| solution.eval(objective))
}

/// The same value of given sizes, and how far they pass a limit.
fn value(tenants: &[Tenant], prices: Prices, pools: Pools, target: Target<'_>, sizes: &[Sizes]) -> (f64, f64) {
    let each = || tenants.iter().zip(sizes);
    let sum = |of: &dyn Fn(&Tenant, Sizes) -> f64| each().map(|(tenant, sizes)| of(tenant, *sizes)).sum::<f64>();
    let weights: f64 = tenants.iter().map(|tenant| tenant.weight).sum();
    let cost = sum(&|tenant, sizes| tenant.cost(sizes, prices));
    let latency = sum(&|tenant, sizes| tenant.weight / weights * tenant.hull_latency_us(sizes));
    let held = |tenant: &Tenant, sizes: Sizes| {
        if pools.holds_index {
            tenant.memory_bytes(sizes)
        } else {
            sizes.memory_bytes
        }
    };
    let mut beyond = (sum(&held) - pools.memory_bytes)
        .max(sum(&|_, sizes| sizes.flash_bytes) - pools.flash_bytes)
        .max(0.0);
    for (tenant, sizes) in each() {
        if let Shape::Free { memory, flash } = tenant.shape {
            for (size, range) in [(sizes.memory_bytes, memory), (sizes.flash_bytes, flash)] {
                beyond = beyond.max(range.least - size).max(size - range.most);
            }
        }
    }
    let value = match target {
        Target::Each(goals) => {
            let short = |(tenant, sizes): (&Tenant, &Sizes), goal: &Goal| {
                goal.penalty * (tenant.hull_latency_us(*sizes) - goal.latency_us).max(0.0)
            };
            let missed = each()
                .zip(goals)
                .filter_map(|(of, goal)| goal.as_ref().map(|goal| short(of, goal)));
            cost + missed.sum::<f64>()
        }
        Target::Mean(most) => {
            beyond = beyond.max(latency - most);
            cost
        }
        Target::Spending(most) => {
            beyond = beyond.max(cost - most);
            latency
        }
    };
    (value, beyond)
}

/// Whether prices and the linear program come to the same.
fn check(tenants: &[Tenant], prices: Prices, pools: Pools, target: Target<'_>) -> Result<(), TestCaseError> {
    let Some(least) = program(tenants, prices, pools, target) else {
        return Ok(());
    };
    let plan = solve(tenants, prices, pools, target);
    let (value, beyond) = value(tenants, prices, pools, target, &plan.sizes);
    prop_assert!(beyond <= 1e-6, "{beyond} beyond a limit: {plan:?}");
    prop_assert!(
        (value - least).abs() <= 1e-6 * least.abs().max(1.0),
        "{value} and not {least}: {plan:?}"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn goals_cost_what_the_linear_program_says(
        (tenants, goals, pools) in (1_usize..6).prop_flat_map(|count| (
            vec(tenants(), count),
            vec(prop_oneof![1 => Just(None), 4 => (10.0_f64..1500.0, 0.0_f64..50.0).prop_map(Some)], count),
            pools(count),
        )),
        prices in prices(),
    ) {
        let goals: Vec<Option<Goal>> = goals.iter().map(|goal| goal.map(|(latency_us, penalty)| Goal { latency_us, penalty })).collect();
        check(&tenants, prices, pools, Target::Each(&goals))?;
    }

    #[test]
    fn money_buys_what_the_linear_program_says(
        (tenants, pools) in (1_usize..5).prop_flat_map(|count| (vec(tenants(), count), pools(count))),
        prices in prices(),
        spending in 0.0_f64..500.0,
    ) {
        check(&tenants, prices, pools, Target::Spending(spending))?;
    }

    #[test]
    fn a_mean_latency_costs_what_the_linear_program_says(
        (tenants, pools) in (1_usize..5).prop_flat_map(|count| (vec(tenants(), count), pools(count))),
        prices in prices(),
        latency_us in 10.0_f64..1500.0,
    ) {
        check(&tenants, prices, pools, Target::Mean(latency_us))?;
    }

    /// On convex curves the curve is its hull, and the exact search has to find what prices find.
    #[test]
    fn exact_sizes_are_those_of_prices_where_curves_are_convex(
        tenant in tenants(),
        prices in prices(),
        latency_us in 10.0_f64..1500.0,
        spending in 0.0_f64..300.0,
    ) {
        let hull = |of: &Falling| Falling::of(of.curve.hull());
        let mut tenant = Tenant { memory: hull(&tenant.memory), both: hull(&tenant.both), ..tenant };
        if matches!(tenant.shape, Shape::Free { .. }) {
            tenant.shape = Shape::Free { memory: Range::ANY, flash: Range::ANY };
        }
        let one = std::slice::from_ref(&tenant);
        let goals = [Some(tenant.firm(latency_us, prices))];
        let by_prices = solve(one, prices, Pools::ANY, Target::Each(&goals)).sizes[0];
        match least_cost(&tenant, prices, latency_us) {
            Ok(sizes) => {
                let (exact, priced) = (tenant.cost(sizes, prices), tenant.cost(by_prices, prices));
                prop_assert!((exact - priced).abs() <= 1e-6 * exact.max(1.0), "{sizes:?} costs {exact}, {by_prices:?} {priced}");
            }
            Err(error) => {
                prop_assert!(error.best_latency_us > latency_us);
                prop_assert!((tenant.latency_us(by_prices) - error.best_latency_us).abs() < 1e-6, "{error} {by_prices:?}");
            }
        }
        let exact = tenant.latency_us(least_latency(&tenant, prices, spending));
        let priced = tenant.latency_us(solve(one, prices, Pools::ANY, Target::Spending(spending)).sizes[0]);
        prop_assert!((exact - priced).abs() <= 1e-6 * exact.max(1.0), "{exact} and {priced}");
    }

    /// On any curve exact sizes meet the target, and nothing of a grid of sizes is better.
    #[test]
    fn no_pair_of_a_grid_beats_exact_sizes(
        tenant in tenants(),
        prices in prices(),
        latency_us in 10.0_f64..1500.0,
        spending in 0.0_f64..300.0,
    ) {
        let tenant = Tenant { shape: Shape::Free { memory: Range::ANY, flash: Range::ANY }, ..tenant };
        let cheapest = least_cost(&tenant, prices, latency_us);
        let fastest = least_latency(&tenant, prices, spending);
        prop_assert!(tenant.cost(fastest, prices) <= spending + 1e-6);
        if let Ok(sizes) = cheapest {
            prop_assert!(tenant.latency_us(sizes) <= latency_us + 1e-3);
        }
        for memory in (0..=200).step_by(10) {
            for flash in (0..=400).step_by(10) {
                let sizes = Sizes { memory_bytes: f64::from(memory), flash_bytes: f64::from(flash) };
                let (cost, latency) = (tenant.cost(sizes, prices), tenant.latency_us(sizes));
                if latency <= latency_us {
                    let best = cheapest.map(|sizes| tenant.cost(sizes, prices));
                    prop_assert!(best.is_ok_and(|best| best <= cost + 1e-6), "{sizes:?} costs {cost}, {cheapest:?}");
                }
                if cost <= spending {
                    prop_assert!(tenant.latency_us(fastest) <= latency + 1e-6, "{sizes:?} takes {latency}, {fastest:?}");
                }
            }
        }
    }
}

#[test]
fn a_latency_that_no_size_has_is_short_by_what_is_missing() {
    let latencies = Latencies {
        memory_us: 50.0,
        flash_us: 100.0,
        origin_us: 1000.0,
    };
    let tenant = Tenant::new(curve(&[(100, 0.5), (400, 0.1)]), latencies);
    let prices = Prices {
        memory: 38.0,
        flash: 1.0,
    };
    let error = least_cost(&tenant, prices, 100.0).unwrap_err();
    assert!(
        (error.best_latency_us - 160.0).abs() < 1e-9 && (error.short_us - 60.0).abs() < 1e-9,
        "{error}"
    );
    // All on flash: 50 + 100 + 1000 * 0.1.
    let sizes = least_cost(&tenant, prices, 250.0).unwrap();
    assert!(
        sizes.memory_bytes.abs() < 1e-3 && (sizes.flash_bytes - 400.0).abs() < 1e-3,
        "{sizes:?}"
    );
    // Flash that costs more than memory is left out.
    let dear = Prices {
        memory: 1.0,
        flash: 2.0,
    };
    let sizes = least_cost(&tenant, dear, 250.0).unwrap();
    assert!(
        sizes.flash_bytes.abs() < 1e-3 && sizes.memory_bytes > 300.0,
        "{sizes:?}"
    );
}

/// CPU time of this thread so far, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A tenant whose hits grow with the logarithm of its memory, in sixteen facets.
fn logarithmic(number: u32) -> Tenant {
    let bytes = (64 << 20) as f64 * 1.03_f64.powi(number as i32);
    let points: Vec<(u64, f64)> = (1..=16)
        .map(|n| {
            let share = f64::from(n) / 16.0;
            (
                (bytes * share) as u64,
                1.0 - 0.95 * (1.0 + 99.0 * share).ln() / 100.0_f64.ln(),
            )
        })
        .collect();
    let latencies = Latencies {
        memory_us: 50.0,
        flash_us: 100.0,
        origin_us: 1000.0 + f64::from(number * 37 % 128),
    };
    let mut tenant = Tenant::new(curve(&points), latencies);
    tenant.index_ratio = 0.01;
    tenant.overlap_ratio = 0.1;
    tenant.weight = 1.0 + f64::from(number * 53 % 128);
    tenant
}

#[test]
fn a_hundred_and_twenty_eight_tenants_take_at_most_fifty_ms_of_cpu_time() {
    let tenants: Vec<Tenant> = (0..128).map(logarithmic).collect();
    let prices = Prices {
        memory: 38e-9,
        flash: 1e-9,
    };
    let goal = |tenant: &Tenant| {
        let best = tenant.best_latency_us();
        Some(tenant.firm(best + 0.2 * (tenant.latency_us(Sizes::default()) - best), prices))
    };
    let goals: Vec<Option<Goal>> = tenants.iter().map(goal).collect();
    let free = solve(&tenants, prices, Pools::ANY, Target::Each(&goals));
    let all = |of: fn(&Sizes) -> f64| free.sizes.iter().map(of).sum::<f64>();
    // Both pools are too small for what would cost least.
    let pools = Pools {
        memory_bytes: 0.8 * all(|sizes| sizes.memory_bytes),
        flash_bytes: 0.9 * all(|sizes| sizes.flash_bytes),
        holds_index: false,
    };
    let spending = 0.5
        * tenants
            .iter()
            .zip(&free.sizes)
            .map(|(tenant, sizes)| tenant.cost(*sizes, prices))
            .sum::<f64>();
    for (name, pools, target) in [
        ("goals in two pools", pools, Target::Each(&goals)),
        ("money", Pools::ANY, Target::Spending(spending)),
    ] {
        // The least of some runs: the machine may be busy with other things, which caches feel.
        let took_ns = (0..5).map(|_| {
            let begin = cpu_ns();
            let plan = solve(&tenants, prices, pools, target);
            assert_eq!(plan.sizes.len(), 128);
            cpu_ns() - begin
        });
        let took_ns = took_ns.min().unwrap();
        assert!(took_ns <= 50_000_000, "{name}: {took_ns} ns");
    }
}
