//! The cost of sharing a pool to the control plane: `cargo bench -p tidemark-plan`.

#![expect(clippy::print_stdout, reason = "the output is the result")]

use std::hint::black_box;
use std::time::Instant;

use tidemark_curve::{Curve, Point};
use tidemark_plan::{Claimant, Load, Returns, Utility, shares};

const ROUNDS: u32 = 100;
/// The pool, in units: 64 GiB of 64 KiB.
const UNITS: u64 = 1 << 20;

/// A tenant's returns: hits grow with the logarithm of its memory, up to its own working set.
fn returns(tenant: u64) -> Option<Returns> {
    let keys = 1000.0 * 1.01_f64.powi((tenant % 1000) as i32);
    let points = (1..200).map(|n| {
        let share = f64::from(n) / 200.0;
        Point {
            bytes: (keys * 1000.0 * share) as u64,
            miss_ratio: 1.0 - 0.95 * (1.0 + 99.0 * share).ln() / 100.0_f64.ln(),
            standard_error: 0.005,
        }
    });
    Returns::of(&Curve::through(points), 1.0 / 65_536.0)
}

fn main() {
    for tenants in [10_u64, 100, 1000] {
        let known: Vec<Option<Returns>> = (0..tenants).map(returns).collect();
        for utility in Utility::ALL {
            // Loads follow Pareto's law.
            let claimants: Vec<Claimant<'_>> = (0..tenants)
                .zip(&known)
                .map(|(tenant, returns)| Claimant {
                    floor: 16,
                    most: UNITS,
                    is_within_reach: true,
                    priority: (tenant % 3) as u8,
                    goal: tenant.is_multiple_of(4).then_some(200),
                    returns: returns.as_ref(),
                    load: Load {
                        gets_per_second: 1e6 / (tenant + 1) as f64,
                        hit_cost_us: 50.0,
                        miss_cost_us: 10_000.0,
                    },
                    weight: 1.0,
                    utility,
                    custom_worth: None,
                    present: UNITS / tenants,
                    credit: 0,
                })
                .collect();
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                black_box(shares(black_box(UNITS / 4), &claimants));
            }
            let each = begin.elapsed() / ROUNDS;
            println!(
                "{tenants:>5} tenants, {utility:<13} {:>8.3} ms",
                each.as_secs_f64() * 1000.0
            );
        }
    }
}
