//! Failed logins are limited per address and tenant, and per address, so that guessing is slow and costs the server little.
//!
//! Names count whether or not there is such a tenant: what is refused tells nobody who exists. Nothing is counted for a
//! tenant alone, since that would let strangers lock it out.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tidemark_types::UnixMs;

use crate::limits::{FAILED_LOGIN_ENTRIES, FAILED_LOGIN_WINDOW, FAILED_LOGINS, FAILED_LOGINS_OF_ADDRESS};

/// Who fails: an address and, as a digest of fixed size, the name it gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    address: IpAddr,
    name: [u8; 32],
}

impl Who {
    pub(crate) fn new(address: IpAddr, name: &[u8]) -> Self {
        Self {
            address,
            name: Sha256::digest(name).into(),
        }
    }
}

/// Logins are refused unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TooManyFailed {
    /// For so long.
    pub(crate) retry_after: Duration,
    /// So many were allowed.
    pub(crate) most: u32,
}

impl fmt::Display for TooManyFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the limit of {} failed logins in {} s is reached, retry in {} s",
            self.most,
            FAILED_LOGIN_WINDOW.as_secs(),
            self.retry_after.as_secs() + 1
        )
    }
}

/// Failures in the current minute.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins {
    by_address: Counts<IpAddr>,
    by_name: Counts<(IpAddr, [u8; 32])>,
}

impl FailedLogins {
    /// Why, and how long, such logins are refused; `None` if they are not.
    pub(crate) fn refused(&self, who: &Who, now: UnixMs) -> Option<TooManyFailed> {
        let by_address = self.by_address.over(&who.address, FAILED_LOGINS_OF_ADDRESS, now);
        by_address.max(self.by_name.over(&(who.address, who.name), FAILED_LOGINS, now))
    }

    /// Counts a failure.
    pub(crate) fn note(&mut self, who: &Who, now: UnixMs) {
        self.by_address.note(who.address, now);
        self.by_name.note((who.address, who.name), now);
    }
}

#[derive(Debug)]
struct Counts<K> {
    entries: HashMap<K, Failures>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: UnixMs,
    count: u32,
}

impl<K: Copy + Eq + Hash> Counts<K> {
    /// How long it is until fewer than `most` failures count.
    fn over(&self, key: &K, most: u32, now: UnixMs) -> Option<TooManyFailed> {
        let failures = self.entries.get(key)?;
        let over = failures.since.plus(FAILED_LOGIN_WINDOW);
        (failures.count >= most && over > now).then(|| TooManyFailed {
            retry_after: over.since(now),
            most,
        })
    }

    fn note(&mut self, key: K, now: UnixMs) {
        if self.entries.len() >= FAILED_LOGIN_ENTRIES && !self.entries.contains_key(&key) {
            self.make_room(now);
        }
        let failures = self.entries.entry(key).or_insert(Failures { since: now, count: 0 });
        if now.since(failures.since) >= FAILED_LOGIN_WINDOW {
            *failures = Failures { since: now, count: 0 };
        }
        failures.count += 1;
    }

    /// Forgets what is over, and if that is nothing, the oldest.
    fn make_room(&mut self, now: UnixMs) {
        self.entries
            .retain(|_, failures| now.since(failures.since) < FAILED_LOGIN_WINDOW);
        if self.entries.len() < FAILED_LOGIN_ENTRIES {
            return;
        }
        let oldest = self
            .entries
            .iter()
            .min_by_key(|(_, failures)| failures.since)
            .map(|(key, _)| *key);
        oldest.map(|key| self.entries.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMs = UnixMs(1_000_000);

    fn who(address: u32, name: &str) -> Who {
        Who::new(IpAddr::V4(address.into()), name.as_bytes())
    }

    #[test]
    fn refuses_after_the_limit_until_the_minute_is_over() {
        let mut logins = FailedLogins::default();
        let guesser = who(1, "shop");
        for _ in 0..FAILED_LOGINS {
            assert_eq!(logins.refused(&guesser, NOW), None);
            logins.note(&guesser, NOW);
        }
        let refused = logins.refused(&guesser, NOW.plus(Duration::from_secs(20))).unwrap();
        assert_eq!(refused.retry_after, Duration::from_secs(40));
        assert_eq!(
            refused.to_string(),
            "the limit of 20 failed logins in 60 s is reached, retry in 41 s"
        );
        for other in [who(1, "blog"), who(2, "shop")] {
            assert_eq!(logins.refused(&other, NOW), None, "{other:?}");
        }
        assert_eq!(logins.refused(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)), None);
        logins.note(&guesser, NOW.plus(FAILED_LOGIN_WINDOW));
        assert_eq!(
            logins.refused(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)),
            None,
            "a new minute begins"
        );
    }

    #[test]
    fn an_address_that_tries_many_names_is_refused_with_any() {
        let mut logins = FailedLogins::default();
        for n in 0..FAILED_LOGINS_OF_ADDRESS {
            assert_eq!(logins.refused(&who(1, "shop"), NOW), None);
            logins.note(&who(1, &n.to_string()), NOW);
        }
        let refused = logins.refused(&who(1, "shop"), NOW).unwrap();
        assert_eq!(
            (refused.retry_after, refused.most),
            (FAILED_LOGIN_WINDOW, FAILED_LOGINS_OF_ADDRESS)
        );
        assert_eq!(logins.refused(&who(2, "shop"), NOW), None);
    }

    #[test]
    fn memory_is_bounded() {
        let mut logins = FailedLogins::default();
        for n in 0..2 * FAILED_LOGIN_ENTRIES as u32 {
            logins.note(&who(n, "shop"), NOW.plus(Duration::from_millis(n.into())));
        }
        let counted = [logins.by_address.entries.len(), logins.by_name.entries.len()];
        assert_eq!(counted, [FAILED_LOGIN_ENTRIES; 2]);
        assert!(
            logins
                .by_address
                .entries
                .contains_key(&who(2 * FAILED_LOGIN_ENTRIES as u32 - 1, "").address)
        );
    }
}
