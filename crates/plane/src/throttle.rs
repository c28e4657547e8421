//! A tenant's limits in time, as the workers share them: operations and bytes per second, and connections.
//!
//! A command that is above a limit executes nothing. Its request is weighed before, its reply when it is there; a
//! reply's excess over the limit is paid for before the next command. Bytes may thus exceed rate and burst by the
//! workers' commands in hand, one each.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidemark_types::TenantLimits;

use crate::bucket::{Bucket, Moment};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// A tenant's limits and their use.
#[derive(Debug)]
pub struct Throttle {
    /// Whether there is a rate to be kept: all that tenants without one are asked.
    is_limited: AtomicBool,
    refuses_writes: AtomicBool,
    ops_per_second: AtomicU64,
    bytes_per_second: AtomicU64,
    connections_max: AtomicU64,
    ops: Bucket,
    bytes: Bucket,
}

impl Default for Throttle {
    fn default() -> Self {
        Self {
            is_limited: AtomicBool::new(false),
            refuses_writes: AtomicBool::new(false),
            ops_per_second: AtomicU64::new(UNLIMITED),
            bytes_per_second: AtomicU64::new(UNLIMITED),
            connections_max: AtomicU64::new(UNLIMITED),
            ops: Bucket::default(),
            bytes: Bucket::default(),
        }
    }
}

/// Which limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Operations per second.
    Operations,
    /// Bytes per second, both ways.
    Bytes,
    /// The amount that the tenant may spend in a month.
    Spending,
    /// Commands that wait for flash at a time.
    Flash,
}

/// A command that is above a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttled {
    /// The limit that is reached.
    pub limit: Limited,
    per_second: u64,
    retry_after: Duration,
}

impl Throttled {
    /// A command would have to wait for flash, and as many as may do so already.
    pub fn for_flash() -> Self {
        Self {
            limit: Limited::Flash,
            per_second: 0,
            retry_after: Duration::ZERO,
        }
    }
}

/// A connection above as many as a tenant may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyConnections(
    /// The limit of connections.
    pub u64,
);

impl fmt::Display for Throttled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.limit {
            Limited::Flash => {
                return f.write_str("as many of the tenant's commands as may wait for flash do so: try again");
            }
            Limited::Operations => "operations",
            Limited::Bytes => "bytes",
            Limited::Spending => {
                return f.write_str(
                    "the tenant's spending limit is reached, writes are refused until the month ends or the limit is raised",
                );
            }
        };
        // Rounded up, so that it is not too soon.
        let millis = self.retry_after.as_micros().div_ceil(1000);
        write!(
            f,
            "the tenant's limit of {} {what} per second is reached, retry in {millis} ms",
            self.per_second
        )
    }
}

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the tenant's limit of {} connections is reached, retry when one is closed",
            self.0
        )
    }
}

impl Throttle {
    /// Follows a plan.
    pub fn set(&self, limits: &TenantLimits, refuses_writes: bool) {
        let store = |limit: &AtomicU64, value: Option<u64>| limit.store(value.unwrap_or(UNLIMITED), Ordering::Relaxed);
        store(&self.ops_per_second, limits.ops_per_second);
        store(&self.bytes_per_second, limits.bytes_per_second);
        store(&self.connections_max, limits.connections);
        self.refuses_writes.store(refuses_writes, Ordering::Relaxed);
        let is_limited = refuses_writes || limits.ops_per_second.is_some() || limits.bytes_per_second.is_some();
        self.is_limited.store(is_limited, Ordering::Release);
    }

    /// Whether commands must be admitted.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Acquire)
    }

    /// Connections that may be open at a time.
    pub fn connections_max(&self) -> u64 {
        self.connections_max.load(Ordering::Relaxed)
    }

    /// Admits a command that adds data.
    ///
    /// # Errors
    /// The tenant is at its spending limit: the command is not to be executed.
    pub fn admit_write(&self) -> Result<(), Throttled> {
        if !self.refuses_writes.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(Throttled {
            limit: Limited::Spending,
            per_second: 0,
            retry_after: Duration::ZERO,
        })
    }

    /// Admits a command of so many operations and bytes.
    ///
    /// # Errors
    /// It is above a limit, and is not to be executed.
    pub fn admit(&self, operations: u64, request_bytes: u64, now: Moment) -> Result<(), Throttled> {
        let (ops_per_second, bytes_per_second) = self.rates();
        let refuse = |limit, per_second| {
            move |retry_after| Throttled {
                limit,
                per_second,
                retry_after,
            }
        };
        if bytes_per_second != UNLIMITED {
            self.bytes
                .check(request_bytes, bytes_per_second, now)
                .map_err(refuse(Limited::Bytes, bytes_per_second))?;
        }
        if ops_per_second != UNLIMITED {
            self.ops
                .take(operations, ops_per_second, now)
                .map_err(refuse(Limited::Operations, ops_per_second))?;
        }
        Ok(())
    }

    /// Charges the bytes that a command has moved, both ways.
    pub fn charge(&self, bytes: u64, now: Moment) {
        let (_, bytes_per_second) = self.rates();
        if bytes_per_second != UNLIMITED {
            self.bytes.charge(bytes, bytes_per_second, now);
        }
    }

    fn rates(&self) -> (u64, u64) {
        (
            self.ops_per_second.load(Ordering::Relaxed),
            self.bytes_per_second.load(Ordering::Relaxed),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttle(ops_per_second: Option<u64>, bytes_per_second: Option<u64>) -> Throttle {
        let throttle = Throttle::default();
        throttle.set(
            &TenantLimits {
                ops_per_second,
                bytes_per_second,
                connections: None,
            },
            false,
        );
        throttle
    }

    fn at(millis: u64) -> Moment {
        Moment::after_start(Duration::from_millis(millis))
    }

    #[test]
    fn each_rate_is_kept_by_itself() {
        for (ops, bytes, expected) in [
            (None, None, None),
            (Some(2), None, Some((2, Limited::Operations))),
            (None, Some(1000), Some((4, Limited::Bytes))),
            (Some(3), Some(1000), Some((3, Limited::Operations))),
            (Some(10), Some(1000), Some((4, Limited::Bytes))),
        ] {
            let throttle = throttle(ops, bytes);
            assert_eq!(throttle.is_limited(), expected.is_some());
            let mut refused = None;
            for command in 0..20 {
                match throttle.admit(1, 50, at(0)) {
                    Ok(()) => throttle.charge(250, at(0)),
                    Err(why) => {
                        refused = Some((command, why.limit));
                        break;
                    }
                }
            }
            assert_eq!(refused, expected, "{ops:?} {bytes:?}");
        }
    }

    #[test]
    fn a_reply_beyond_the_limit_is_paid_for_before_the_next_command() {
        let throttle = throttle(None, Some(1000));
        assert_eq!(throttle.admit(1, 10, at(0)), Ok(()));
        throttle.charge(3000, at(0));
        let refused = throttle.admit(1, 10, at(0)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the tenant's limit of 1000 bytes per second is reached, retry in 2010 ms"
        );
        assert!(throttle.admit(1, 10, at(2009)).is_err());
        assert_eq!(throttle.admit(1, 10, at(2010)), Ok(()));
    }

    #[test]
    fn what_bytes_refuse_takes_no_operation() {
        let throttle = throttle(Some(1), Some(1000));
        throttle.charge(1000, at(0));
        assert_eq!(throttle.admit(1, 500, at(0)).unwrap_err().limit, Limited::Bytes);
        assert_eq!(throttle.admit(1, 500, at(500)), Ok(()));
        assert_eq!(throttle.admit(1, 0, at(500)).unwrap_err().limit, Limited::Operations);
    }

    #[test]
    fn limits_that_go_are_gone() {
        let throttle = throttle(Some(1), None);
        assert_eq!(throttle.admit(1, 0, at(0)), Ok(()));
        assert!(throttle.admit(1, 0, at(0)).is_err());
        throttle.set(&TenantLimits::default(), false);
        assert!(!throttle.is_limited());
        assert_eq!(throttle.admit(1, 0, at(0)), Ok(()));
    }

    #[test]
    fn writes_alone_are_refused_where_the_money_is_spent() {
        let throttle = Throttle::default();
        assert_eq!(throttle.admit_write(), Ok(()));
        throttle.set(&TenantLimits::default(), true);
        assert!(throttle.is_limited());
        let refused = throttle.admit_write().unwrap_err();
        assert_eq!(refused.limit, Limited::Spending);
        assert!(refused.to_string().contains("spending limit is reached"), "{refused}");
        assert_eq!(throttle.admit(1, 100, at(0)), Ok(()), "reads go on");
        throttle.set(&TenantLimits::default(), false);
        assert!(throttle.admit_write().is_ok() && !throttle.is_limited());
    }
}
