//! Failed logins are limited per address and tenant, and per address, so that guessing is slow and costs the server little.
//!
//! Names count whether or not there is such a tenant: what is refused tells nobody who exists. Nothing is counted for a
//! tenant alone, since that would let strangers lock it out.

use std::collections::HashMap;
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

/// Failures in the current minute.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins {
    by_address: Counts<IpAddr>,
    by_name: Counts<(IpAddr, [u8; 32])>,
}

impl FailedLogins {
    /// How long such logins are refused; `None` if they are not.
    pub(crate) fn refused_for(&self, who: &Who, now: UnixMs) -> Option<Duration> {
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
    fn over(&self, key: &K, most: u32, now: UnixMs) -> Option<Duration> {
        let failures = self.entries.get(key)?;
        let over = failures.since.plus(FAILED_LOGIN_WINDOW);
        (failures.count >= most && over > now).then(|| over.since(now))
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
            assert_eq!(logins.refused_for(&guesser, NOW), None);
            logins.note(&guesser, NOW);
        }
        assert_eq!(
            logins.refused_for(&guesser, NOW.plus(Duration::from_secs(20))),
            Some(Duration::from_secs(40))
        );
        for other in [who(1, "blog"), who(2, "shop")] {
            assert_eq!(logins.refused_for(&other, NOW), None, "{other:?}");
        }
        assert_eq!(logins.refused_for(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)), None);
        logins.note(&guesser, NOW.plus(FAILED_LOGIN_WINDOW));
        assert_eq!(
            logins.refused_for(&guesser, NOW.plus(FAILED_LOGIN_WINDOW)),
            None,
            "a new minute begins"
        );
    }

    #[test]
    fn an_address_that_tries_many_names_is_refused_with_any() {
        let mut logins = FailedLogins::default();
        for n in 0..FAILED_LOGINS_OF_ADDRESS {
            assert_eq!(logins.refused_for(&who(1, "shop"), NOW), None);
            logins.note(&who(1, &n.to_string()), NOW);
        }
        assert_eq!(logins.refused_for(&who(1, "shop"), NOW), Some(FAILED_LOGIN_WINDOW));
        assert_eq!(logins.refused_for(&who(2, "shop"), NOW), None);
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
