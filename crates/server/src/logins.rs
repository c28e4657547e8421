//! Failed logins are limited per address and per tenant name, so that guessing is slow and costs the server little.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tidemark_types::UnixMs;

use crate::limits::{FAILED_LOGIN_ENTRIES, FAILED_LOGIN_WINDOW, FAILED_LOGINS};

/// Whose failures are counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Address(IpAddr),
    Tenant(Box<[u8]>),
}

/// Failures in the current minute of each address and name.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins {
    entries: HashMap<Who, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: UnixMs,
    count: u32,
}

impl FailedLogins {
    /// How long logins of any of these are refused; `None` if they are not.
    pub(crate) fn refused_for(&self, who: &[Who], now: UnixMs) -> Option<Duration> {
        let left = |who: &Who| {
            let failures = self.entries.get(who)?;
            let over = failures.since.plus(FAILED_LOGIN_WINDOW);
            (failures.count >= FAILED_LOGINS && over > now).then(|| over.since(now))
        };
        who.iter().filter_map(left).max()
    }

    /// Counts a failure of each.
    pub(crate) fn note(&mut self, who: &[Who], now: UnixMs) {
        for who in who {
            if self.entries.len() >= FAILED_LOGIN_ENTRIES && !self.entries.contains_key(who) {
                self.make_room(now);
            }
            let failures = self.entries.entry(who.clone()).or_insert(Failures { since: now, count: 0 });
            if now.since(failures.since) >= FAILED_LOGIN_WINDOW {
                *failures = Failures { since: now, count: 0 };
            }
            failures.count += 1;
        }
    }

    /// Forgets what is over, and if that is nothing, the oldest.
    fn make_room(&mut self, now: UnixMs) {
        self.entries.retain(|_, failures| now.since(failures.since) < FAILED_LOGIN_WINDOW);
        if self.entries.len() < FAILED_LOGIN_ENTRIES {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, failures)| failures.since).map(|(who, _)| who.clone());
        oldest.map(|who| self.entries.remove(&who));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn address(n: u32) -> Who {
        Who::Address(IpAddr::V4(n.into()))
    }

    #[test]
    fn refuses_after_the_limit_until_the_minute_is_over() {
        let mut logins = FailedLogins::default();
        let (guesser, other) = ([address(1), Who::Tenant(b"shop"[..].into())], [address(2)]);
        for _ in 0..FAILED_LOGINS {
            assert_eq!(logins.refused_for(&guesser, NOW), None);
            logins.note(&guesser, NOW);
        }
        assert_eq!(logins.refused_for(&guesser, NOW.plus(Duration::from_secs(20))), Some(Duration::from_secs(40)));
        assert_eq!(logins.refused_for(&other, NOW), None);
        assert!(logins.refused_for(&[Who::Tenant(b"shop"[..].into())], NOW).is_some(), "also from elsewhere");
        assert_eq!(logins.refused_for(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)), None);
        logins.note(&guesser, NOW.plus(FAILED_LOGIN_WINDOW));
        assert_eq!(logins.refused_for(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)), None, "a new minute begins");
    }

    #[test]
    fn memory_is_bounded() {
        let mut logins = FailedLogins::default();
        for n in 0..2 * FAILED_LOGIN_ENTRIES as u32 {
            logins.note(&[address(n)], NOW.plus(Duration::from_millis(n.into())));
        }
        assert_eq!(logins.entries.len(), FAILED_LOGIN_ENTRIES);
        assert!(logins.entries.contains_key(&address(2 * FAILED_LOGIN_ENTRIES as u32 - 1)));
    }
}
