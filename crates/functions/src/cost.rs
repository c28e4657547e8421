//! The cost of a pool of functions in an hour (the paper's Equations 4 to 6). Money is in dollars.

use std::time::Duration;

use crate::Code;

/// The cloud's charges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// The price of one invocation.
    pub invocation: f64,
    /// The price of a second with a GB of memory.
    pub gb_second: f64,
    /// A duration counts in whole units of this, in ms.
    pub unit_ms: f64,
    /// The price of the node of memory that it is compared with, for an hour.
    pub node_hour: f64,
}

/// The time that is paid for an invocation that took so long, in ms: whole units, and one at least.
pub fn billed_ms(took: Duration, unit_ms: u64) -> u64 {
    let unit_ms = unit_ms.max(1);
    let units = took.as_nanos().div_ceil(u128::from(unit_ms) * 1_000_000).max(1);
    u64::try_from(units).unwrap_or(u64::MAX).saturating_mul(unit_ms)
}

/// How a pool is used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Use {
    /// Functions in it.
    pub functions: u32,
    /// Memory of each, in GB.
    pub memory_gb: f64,
    /// How objects are coded: a request invokes a function for each chunk.
    pub code: Code,
    /// How long a function serves a chunk, in ms.
    pub serve_ms: f64,
    /// How long a warm-up takes, in ms.
    pub warm_ms: f64,
    /// Warm-ups of a function in an hour.
    pub warm_ups: f64,
    /// How long a backup takes, in ms.
    pub backup_ms: f64,
    /// Backups of a function in an hour; 0: none.
    pub backups: f64,
}

/// An hour's cost by its purpose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hour {
    /// Serving requests (Equation 4).
    pub serving: f64,
    /// Keeping functions warm (Equation 5).
    pub warm_up: f64,
    /// Backing them up (Equation 6).
    pub backup: f64,
}

impl Hour {
    /// All of it.
    pub fn total(self) -> f64 {
        self.serving + self.warm_up + self.backup
    }
}

impl Prices {
    /// The paper's: AWS in 2020, durations in units of 100 ms, and a `cache.r5.24xlarge`. The paper prints $0.02 for a million
    /// invocations; AWS charged $0.20, and the paper's cross-over comes out with that.
    pub const PAPER: Self = Self {
        invocation: 0.20e-6,
        gb_second: 0.000_016_666_7,
        unit_ms: 100.0,
        node_hour: 10.368,
    };

    /// The same since December 2020: durations in units of 1 ms.
    pub const TODAY: Self = Self {
        unit_ms: 1.0,
        ..Self::PAPER
    };

    /// One invocation of a function of so much memory that takes so long.
    pub fn invocation_of(&self, memory_gb: f64, duration_ms: f64) -> f64 {
        let billed_ms = (duration_ms / self.unit_ms).ceil() * self.unit_ms;
        self.invocation + billed_ms / 1000.0 * memory_gb * self.gb_second
    }
}

impl Use {
    /// The paper's (5.2): 400 functions of 1.5 GB, 10+2, warmed each minute, backed up every five. The paper does not say
    /// how long a backup takes; with this, its cross-over of 312 K requests an hour comes out.
    pub fn paper() -> Self {
        Self {
            functions: 400,
            memory_gb: 1.5,
            code: Code { data: 10, parity: 2 },
            serve_ms: 100.0,
            warm_ms: 5.0,
            warm_ups: 60.0,
            backup_ms: 1600.0,
            backups: 12.0,
        }
    }

    /// The cost of an hour with so many requests for objects.
    pub fn hour(&self, prices: &Prices, requests: f64) -> Hour {
        let invocation = |duration_ms| prices.invocation_of(self.memory_gb, duration_ms);
        let functions = f64::from(self.functions);
        Hour {
            serving: requests * f64::from(self.code.chunks()) * invocation(self.serve_ms),
            warm_up: functions * self.warm_ups * invocation(self.warm_ms),
            backup: functions * self.backups * invocation(self.backup_ms),
        }
    }

    /// The requests in an hour from which on the node of memory is cheaper; 0 where it always is.
    pub fn cross_over(&self, prices: &Prices) -> f64 {
        let request = self.hour(prices, 1.0).serving;
        ((prices.node_hour - self.hour(prices, 0.0).total()) / request).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_is_cheaper_from_312_thousand_requests_an_hour_on() {
        let cross_over = Use::paper().cross_over(&Prices::PAPER);
        assert_eq!(format!("{:.0}", cross_over / 1000.0), "312");
        assert_eq!(format!("{:.0}", (cross_over / 3600.0).floor()), "86");
        let at = Use::paper().hour(&Prices::PAPER, cross_over).total();
        assert!((at - Prices::PAPER.node_hour).abs() < 1e-9, "{at}");
        let dear = Use {
            functions: 100_000,
            ..Use::paper()
        };
        assert!(dear.cross_over(&Prices::PAPER).abs() < f64::EPSILON);
    }

    #[test]
    fn durations_count_in_whole_units() {
        for (unit_ms, duration_ms, billed_ms) in [
            (100.0, 1.0, 100.0),
            (100.0, 100.0, 100.0),
            (100.0, 100.1, 200.0),
            (1.0, 5.0, 5.0),
            (1.0, 5.2, 6.0),
        ] {
            let prices = Prices {
                unit_ms,
                ..Prices::PAPER
            };
            let cost = prices.invocation_of(2.0, duration_ms) - prices.invocation;
            let expected = billed_ms / 1000.0 * 2.0 * prices.gb_second;
            assert!(
                (cost - expected).abs() < 1e-15,
                "{duration_ms} ms in units of {unit_ms}"
            );
        }
    }

    #[test]
    fn a_unit_that_was_begun_is_paid_whole() {
        for (took_us, unit_ms, billed) in [
            (0, 100, 100),
            (1, 100, 100),
            (100_000, 100, 100),
            (100_001, 100, 200),
            (196_000, 100, 200),
            (400, 1, 1),
            (1_001, 1, 2),
            (7_000, 0, 7),
        ] {
            assert_eq!(
                billed_ms(Duration::from_micros(took_us), unit_ms),
                billed,
                "{took_us} us"
            );
        }
    }

    #[test]
    fn parts_are_what_they_are_for() {
        let hour = Use::paper().hour(&Prices::PAPER, 0.0);
        assert_eq!(format!("{:.4}", hour.warm_up), "0.0648");
        assert!(hour.serving.abs() < f64::EPSILON);
        // Warm-up and backup are nearly all that few requests cost, which is why 1 ms units change so much.
        let today = Use::paper().hour(&Prices::TODAY, 0.0);
        assert!(today.warm_up < hour.warm_up / 5.0 && today.backup <= hour.backup);
        let without = Use {
            backups: 0.0,
            ..Use::paper()
        };
        assert!(without.hour(&Prices::PAPER, 10.0).backup.abs() < f64::EPSILON);
        let many = Use::paper().hour(&Prices::PAPER, 1000.0);
        assert!((many.serving - 1000.0 * 12.0 * Prices::PAPER.invocation_of(1.5, 100.0)).abs() < 1e-12);
    }
}
