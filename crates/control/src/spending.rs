//! The spending of each tenant, as far as the ledger and the meter know it, the restraint that follows from its limit,
//! and the alerts.
//!
//! Nothing is judged before the spending of this month before the process began is known.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use tidemark_meter::Entry;
use tidemark_meter::price::{Prices, Tariff};
use tidemark_meter::spending::{Account, Alert, Restraint, SpendingLimit, Standing, restraint, second_of_memory};
use tidemark_types::{TenantId, UnixMs};

/// The earlier spending of tenants, from the ledger.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    /// All prices that its rows name.
    pub prices: Vec<Prices>,
    /// The use of each tenant in this month and the one before.
    pub accounts: BTreeMap<TenantId, Account>,
}

/// The outcomes of alerts.
#[derive(Debug, Default)]
pub struct AlertCounts {
    /// A receiver took them.
    pub sent: AtomicU64,
    /// No receiver took them, however often it was tried.
    pub failed: AtomicU64,
    /// There was no room for them.
    pub dropped: AtomicU64,
}

/// The receiver of alerts.
#[derive(Clone, Debug)]
pub struct AlertSink {
    /// The sender's queue.
    pub sender: SyncSender<Alert>,
    /// The counts of their outcomes.
    pub counts: Arc<AlertCounts>,
}

impl AlertSink {
    /// Hands one over; never waits.
    pub(crate) fn tell(&self, alert: Alert) {
        match self.sender.try_send(alert) {
            Ok(()) => {}
            Err(TrySendError::Full(alert) | TrySendError::Disconnected(alert)) => {
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                tracing::error!(tenant = alert.tenant, "no room for an alert: it is not sent");
            }
        }
    }
}

/// A limit to be judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited {
    pub(crate) limit: SpendingLimit,
    /// The memory that the tenant may hold now.
    pub(crate) grant_bytes: u64,
}

/// All tenants' accounts.
#[derive(Debug, Default)]
pub(crate) struct Spending {
    accounts: BTreeMap<TenantId, Account>,
    /// It has every price that was ever in force, so that use under others stays priced.
    tariff: Option<Tariff>,
    kept: Vec<Prices>,
    is_known: bool,
}

impl Spending {
    /// The state with these prices, without knowing what was spent before.
    pub(crate) fn new(tariff: Option<&Arc<Tariff>>) -> Self {
        let mut spending = Self::default();
        spending.set_tariff(tariff);
        spending
    }

    /// Other prices; those before price the use under them.
    pub(crate) fn set_tariff(&mut self, tariff: Option<&Arc<Tariff>>) {
        if let Some(before) = self.tariff.take() {
            self.keep(before.prices);
        }
        self.tariff = tariff.map(|tariff| Tariff::clone(tariff));
        self.add_kept();
    }

    fn keep(&mut self, prices: Vec<Prices>) {
        for one in prices {
            if !self.kept.iter().any(|kept| kept.version == one.version) {
                self.kept.push(one);
            }
        }
    }

    fn add_kept(&mut self) {
        if let Some(tariff) = &mut self.tariff {
            let missing = self
                .kept
                .iter()
                .filter(|kept| tariff.of_version(&kept.version).is_none());
            let missing: Vec<Prices> = missing.cloned().collect();
            tariff.prices.extend(missing);
        }
    }

    /// The spending before the process began, of tenants that there are. Alerts that their limits had caused then are
    /// not repeated.
    pub(crate) fn adopt(&mut self, spent: Spent, limits: &BTreeMap<TenantId, SpendingLimit>, now: UnixMs) {
        self.keep(spent.prices);
        self.add_kept();
        for (id, before) in spent.accounts {
            let account = self.accounts.entry(id).or_default();
            if let (Some(limit), Some(tariff)) = (limits.get(&id), &self.tariff) {
                account.settle(limit, &before.standing(now, None, tariff));
            }
            account.add_all(&before);
        }
        self.is_known = true;
    }

    /// An entry of a tenant's.
    pub(crate) fn add(&mut self, entry: &Entry) {
        if let Some(tenant) = &entry.tenant {
            self.accounts.entry(tenant.id).or_default().add(entry);
        }
    }

    /// A tenant that is no more.
    pub(crate) fn forget(&mut self, id: TenantId) {
        self.accounts.remove(&id);
    }

    /// How a tenant stands, and the currency; `None` without prices, or before it is known.
    pub(crate) fn standing(&self, id: TenantId, open: Option<&Entry>, now: UnixMs) -> Option<(Standing, &str)> {
        let tariff = self.tariff.as_ref().filter(|_| self.is_known)?;
        let nothing = Account::default();
        let account = self.accounts.get(&id).unwrap_or(&nothing);
        Some((account.standing(now, open, tariff), &tariff.currency))
    }

    /// The restraint of a tenant from now on, and the parts of its limit that its owner is to be told of.
    pub(crate) fn judge(
        &mut self,
        id: TenantId,
        limited: &Limited,
        open: Option<&Entry>,
        now: UnixMs,
    ) -> (Restraint, Vec<Alert>) {
        let Some((standing, currency)) = self.standing(id, open, now) else {
            return (Restraint::default(), Vec::new());
        };
        let currency = currency.to_owned();
        let prices = self.tariff.as_ref().and_then(|tariff| tariff.at(now));
        let held = prices.map_or(0.0, |prices| second_of_memory(limited.grant_bytes, prices));
        let news = self
            .accounts
            .entry(id)
            .or_default()
            .take_news(&limited.limit, &standing);
        let alert = |percent| Alert {
            id,
            tenant: String::new(),
            month: standing.month.clone(),
            percent,
            spent: standing.spent,
            limit: limited.limit,
            currency: currency.clone(),
            at: now,
            node: String::new(),
        };
        let alerts = news.into_iter().map(alert).collect();
        (restraint(&limited.limit, &standing, held), alerts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use tidemark_meter::price::{CpuFigure, METERS, Money};
    use tidemark_meter::spending::AtLimit;
    use tidemark_meter::{Kind, Resource, Subject, Usage};
    use tidemark_types::utc;

    use super::*;

    const SHOP: TenantId = TenantId(3);

    fn tariff(version: &str) -> Arc<Tariff> {
        Arc::new(Tariff {
            currency: "USD".into(),
            cpu: CpuFigure::Measured,
            free: Vec::new(),
            prices: vec![Prices {
                version: version.into(),
                from: UnixMs(0),
                until: None,
                units: [Money::parse("1").unwrap(); METERS.len()],
            }],
            instances: Vec::new(),
        })
    }

    fn gib_out(version: &str) -> Entry {
        let now = now();
        Entry {
            tenant: Some(Subject {
                id: SHOP,
                name: "shop".into(),
            }),
            price_version: version.into(),
            usage: Usage::default().with(Resource::NetworkOutBytes, 1 << 30),
            ..Entry::event(Kind::Use, now, now, "")
        }
    }

    fn now() -> UnixMs {
        utc::parse("2026-08-16").unwrap()
    }

    fn limited(amount: &str) -> Limited {
        Limited {
            limit: SpendingLimit {
                amount: Money::parse(amount).unwrap(),
                at_limit: AtLimit::RejectWrites,
            },
            grant_bytes: 0,
        }
    }

    fn percents(alerts: &[Alert]) -> Vec<u8> {
        alerts.iter().map(|alert| alert.percent).collect()
    }

    #[test]
    fn nothing_is_judged_before_it_is_known_what_was_spent() {
        let mut spending = Spending::new(Some(&tariff("v1")));
        spending.add(&gib_out("v1"));
        let (restraint, alerts) = spending.judge(SHOP, &limited("1"), None, now());
        assert_eq!((restraint, alerts.len()), (Restraint::default(), 0));
        let mut before = Account::default();
        before.add(&gib_out("v0"));
        let spent = Spent {
            prices: tariff("v0").prices.clone(),
            accounts: BTreeMap::from([(SHOP, before)]),
        };
        // One of four was spent before, which was a quarter.
        spending.adopt(spent, &BTreeMap::from([(SHOP, limited("4").limit)]), now());
        let (restraint, alerts) = spending.judge(SHOP, &limited("4"), Some(&gib_out("v1")), now());
        assert_eq!((restraint.refuses_writes, percents(&alerts)), (false, vec![50]));
        spending.add(&gib_out("v1"));
        spending.add(&gib_out("v1"));
        let (restraint, alerts) = spending.judge(SHOP, &limited("4"), None, now());
        assert_eq!((restraint.refuses_writes, percents(&alerts)), (true, vec![80, 100]));
        assert_eq!(alerts[0].spent, Money::parse("4").unwrap());
    }

    #[test]
    fn other_prices_do_not_make_use_before_them_free() {
        let mut spending = Spending::new(Some(&tariff("v1")));
        spending.adopt(Spent::default(), &BTreeMap::new(), now());
        spending.add(&gib_out("v1"));
        spending.set_tariff(Some(&tariff("v2")));
        spending.add(&gib_out("v2"));
        let spent = |spending: &Spending| spending.standing(SHOP, None, now()).map(|(standing, _)| standing.spent);
        assert_eq!(spent(&spending), Money::parse("2"));
        spending.set_tariff(None);
        assert_eq!(spent(&spending), None);
        assert_eq!(spending.judge(SHOP, &limited("1"), None, now()).0, Restraint::default());
        spending.set_tariff(Some(&tariff("v2")));
        assert_eq!(spent(&spending), Money::parse("2"), "prices that went are known still");
        spending.forget(SHOP);
        assert_eq!(spent(&spending), Money::parse("0"));
    }

    #[test]
    fn an_alert_without_room_is_dropped_and_waits_for_nothing() {
        let mut spending = Spending::new(Some(&tariff("v1")));
        spending.adopt(Spent::default(), &BTreeMap::new(), now());
        let (sender, receiver) = sync_channel(1);
        let (_, alerts) = spending.judge(SHOP, &limited("0"), None, now());
        let sink = AlertSink {
            sender,
            counts: Arc::default(),
        };
        alerts.into_iter().for_each(|alert| sink.tell(alert));
        assert_eq!(
            (receiver.try_iter().count(), sink.counts.dropped.load(Ordering::Relaxed)),
            (1, 2)
        );
    }
}
