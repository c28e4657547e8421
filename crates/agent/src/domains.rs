//! The applications that an agent serves, and its cachelets for each.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tidemark_cachelet::config::Config;
use tidemark_cachelet::config::scope::{Groups as _, Instance};
use tidemark_cachelet::message::Event;
use tidemark_cachelet::view::View;

use crate::host::{Host, Shell};
use crate::layout::AppRecord;
use crate::tuning::Counting;

/// Applications that an agent serves.
pub const APPS_MAX: usize = 1_024;
/// Cachelets of an application on one node.
pub const HOSTS_PER_APP_MAX: usize = 256;

/// An application on this node.
#[derive(Debug)]
pub struct Domain {
    /// Its name.
    pub app: Arc<str>,
    /// Counts its operations on this node, while somebody asks for that.
    pub counting: Counting,
    inner: RwLock<Inner>,
}

#[derive(Debug)]
struct Inner {
    record: AppRecord,
    hosts: BTreeMap<String, Arc<Host>>,
    /// Cachelets that are to leave the domain.
    leaving: Vec<Arc<Host>>,
    /// The limit of each cachelet's copies.
    budgets: BTreeMap<String, u64>,
    default_budget_bytes: u64,
    /// Memory that the application's copies may take together by its tenant's grant; `None` where nothing is granted yet.
    granted_bytes: Option<u64>,
    is_ending: bool,
}

impl Domain {
    /// An application, whose instances are not known yet: they share one cachelet.
    #[must_use]
    pub fn new(app: &str, record: AppRecord, default_budget_bytes: u64) -> Self {
        Self {
            app: app.into(),
            counting: Counting::default(),
            inner: RwLock::new(Inner {
                record,
                hosts: BTreeMap::new(),
                leaving: Vec::new(),
                budgets: BTreeMap::new(),
                default_budget_bytes,
                granted_bytes: None,
                is_ending: false,
            }),
        }
    }

    /// The record of the application.
    pub fn record(&self) -> AppRecord {
        self.inner.read().record.clone()
    }

    /// The application's number.
    pub fn number(&self) -> u32 {
        self.inner.read().record.access.tenant
    }

    /// The configuration that is wanted.
    pub fn config(&self) -> Config {
        self.inner.read().record.config
    }

    /// Something else is wanted of it.
    pub fn set_record(&self, record: AppRecord) {
        self.inner.write().record = record;
    }

    /// Its cachelets, and those that are leaving.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        let inner = self.inner.read();
        inner.hosts.values().chain(&inner.leaving).cloned().collect()
    }

    /// Its cachelets that are to stay.
    pub fn staying(&self) -> Vec<Arc<Host>> {
        self.inner.read().hosts.values().cloned().collect()
    }

    /// Whether a cachelet is to leave the domain.
    pub fn is_leaving(&self, host: &Arc<Host>) -> bool {
        self.inner
            .read()
            .leaving
            .iter()
            .any(|leaving| Arc::ptr_eq(leaving, host))
    }

    /// The cachelet that serves an instance; that of the application where it is not known.
    pub fn host_of(&self, instance: Option<&Instance>) -> Option<Arc<Host>> {
        let inner = self.inner.read();
        let label = label_of(&inner.record.config, &self.app, instance);
        let found = inner.hosts.get(&label).or_else(|| inner.hosts.get(&*self.app));
        found.or_else(|| inner.hosts.values().next()).cloned()
    }

    /// Has one cachelet for each group of instances, and one for those that are not known. Whether anything changed.
    pub fn arrange(&self, shell: &Arc<Shell>, instances: &[Instance], view: &View) -> bool {
        let mut inner = self.inner.write();
        if inner.is_ending {
            return false;
        }
        let config = inner.record.config;
        let mut wanted: Vec<String> = instances
            .iter()
            .map(|instance| label_of(&config, &self.app, Some(instance)))
            .collect();
        if wanted.is_empty() {
            wanted.push(label_of(&config, &self.app, None));
        }
        wanted.sort_unstable();
        wanted.dedup();
        wanted.truncate(HOSTS_PER_APP_MAX);
        let mut changed = false;
        let gone: Vec<_> = inner
            .hosts
            .keys()
            .filter(|label| !wanted.contains(label))
            .cloned()
            .collect();
        for label in gone {
            if let Some(host) = inner.hosts.remove(&label) {
                inner.leaving.push(host);
                changed = true;
            }
        }
        for label in wanted {
            if !inner.hosts.contains_key(&label) {
                let budget_bytes = inner.unused_bytes(&label);
                let host = Host::new(shell, &self.app, &label, view.clone(), budget_bytes);
                inner.hosts.insert(label, host);
                changed = true;
            }
        }
        drop(inner);
        if changed {
            // Each has its part of the grant by those that are here now.
            self.change_budgets(|_| {});
        }
        changed
    }

    /// All cachelets are to leave: the agent ends.
    pub fn leave(&self) {
        let mut inner = self.inner.write();
        inner.is_ending = true;
        let hosts = std::mem::take(&mut inner.hosts);
        inner.leaving.extend(hosts.into_values());
    }

    /// A cachelet that was leaving has left.
    pub fn forget(&self, host: &Arc<Host>) {
        self.inner.write().leaving.retain(|leaving| !Arc::ptr_eq(leaving, host));
    }

    /// Sets the limits of copies, by cachelet. Cachelets with a smaller limit give memory back before this returns.
    pub fn set_budgets(&self, budgets: BTreeMap<String, u64>) {
        self.change_budgets(|inner| inner.budgets = budgets);
    }

    /// Says what is granted to the application's tenant: its cachelets evict in their own order then, and memory need not.
    pub fn set_granted(&self, bytes: Option<u64>) {
        if self.inner.read().granted_bytes != bytes {
            self.change_budgets(|inner| inner.granted_bytes = bytes);
        }
    }

    fn change_budgets(&self, change: impl FnOnce(&mut Inner)) {
        let changed: Vec<_> = {
            let mut inner = self.inner.write();
            change(&mut inner);
            let together_bytes = inner.unused_together_bytes();
            let hosts = inner
                .hosts
                .iter()
                .map(|(label, host)| (Arc::clone(host), inner.budget_bytes(label, together_bytes)));
            hosts.collect()
        };
        for (host, bytes) in changed {
            if host.bytes().1 != bytes {
                host.step(Event::Budget(bytes));
            }
        }
    }
}

impl Inner {
    /// Memory that a cachelet's instances do not use.
    fn unused_bytes(&self, label: &str) -> u64 {
        self.budgets.get(label).copied().unwrap_or(self.default_budget_bytes)
    }

    /// The same of all cachelets.
    fn unused_together_bytes(&self) -> u128 {
        self.hosts
            .keys()
            .map(|label| u128::from(self.unused_bytes(label)))
            .sum()
    }

    /// A cachelet's limit: what its instances do not use, and its part of the grant by that.
    fn budget_bytes(&self, label: &str, together_bytes: u128) -> u64 {
        let own = self.unused_bytes(label);
        let Some(granted) = self.granted_bytes else { return own };
        let part = u128::from(granted) * u128::from(own) / together_bytes.max(1);
        own.min(u64::try_from(part).unwrap_or(own))
    }
}

/// The label of the cachelet that serves an instance.
#[must_use]
pub fn label_of(config: &Config, app: &str, instance: Option<&Instance>) -> String {
    instance.map_or_else(|| app.to_owned(), |instance| config.scope.label(instance))
}

/// The applications of an agent, by their names.
#[derive(Debug, Default)]
pub struct Domains {
    all: RwLock<BTreeMap<String, Arc<Domain>>>,
}

impl Domains {
    /// An application.
    pub fn get(&self, app: &str) -> Option<Arc<Domain>> {
        self.all.read().get(app).cloned()
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Domain>> {
        self.all.read().values().cloned().collect()
    }

    /// Serves an application from now on. `None`: there are too many.
    pub fn add(&self, app: &str, make: impl FnOnce() -> Domain) -> Option<Arc<Domain>> {
        let mut all = self.all.write();
        if all.len() >= APPS_MAX && !all.contains_key(app) {
            return None;
        }
        Some(Arc::clone(
            all.entry(app.to_owned()).or_insert_with(|| Arc::new(make())),
        ))
    }

    /// All cachelets.
    pub fn hosts(&self) -> Vec<Arc<Host>> {
        self.all().iter().flat_map(|domain| domain.hosts()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidemark_cachelet::config::{Promise, Scope};
    use tidemark_gateway::access::Entry;

    use super::*;
    use crate::host::tests::shell;

    #[test]
    fn a_grant_is_divided_among_the_cachelets_that_are_here() {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let shell = shell(&runtime, None);
        let config = Config {
            scope: Scope::Function,
            ..Config::CONCORD
        };
        let record = AppRecord {
            access: Entry::first(tidemark_types::TenantId(1)),
            promise: Promise::default(),
            config,
            pinned: BTreeSet::new(),
            trial: None,
            reason: String::new(),
        };
        let domain = Domain::new("shop", record, 0);
        let instance = |function: &str| Instance {
            application: "shop".into(),
            function: function.into(),
            name: function.into(),
        };
        let label = |function: &str| label_of(&config, "shop", Some(&instance(function)));
        let budgets = |expected: &[(&str, u64)]| {
            let found: BTreeMap<_, _> = domain
                .staying()
                .iter()
                .map(|host| (host.label.clone(), host.bytes().1))
                .collect();
            let expected: BTreeMap<_, _> = expected.iter().map(|(of, bytes)| (label(of), *bytes)).collect();
            assert_eq!(found, expected);
        };
        // The unused memory of instances is known before their cachelets are there, and does not change any more.
        domain.set_budgets(BTreeMap::from([(label("pay"), 3_000), (label("list"), 1_000)]));
        domain.set_granted(Some(2_000));
        let view = View::empty(config, Promise::default());
        assert!(domain.arrange(&shell, &[instance("pay")], &view));
        budgets(&[("pay", 2_000)]);
        assert!(domain.arrange(&shell, &[instance("pay"), instance("list")], &view));
        budgets(&[("pay", 1_500), ("list", 500)]);
        assert!(domain.arrange(&shell, &[instance("list")], &view));
        budgets(&[("list", 1_000)]);
        domain.set_granted(None);
        budgets(&[("list", 1_000)]);
    }
}
