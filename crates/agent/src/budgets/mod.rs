//! Budgets: the copies of an application live in the memory that its instances may use and do not.
//!
//! A thread of its own looks at the instances' control groups every [`PERIOD`]: memory that an instance needs is given
//! back at the next look. Memory that it no longer uses is taken only after a while. Invariant: an instance whose use
//! is not known gives nothing.
//!
//! If the bytes of copies are in the tenant's memory, the sum is that tenant's limit as well. The data plane follows it by
//! itself: no plan and no round is waited for.

mod cgroup;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::bodies::Engine;
use crate::clock::now_us;
use crate::domains::{Domains, label_of};
use crate::instances::{Instances, Known};

pub use cgroup::{Group, Memory};

/// The interval of looks. Memory that must be given back is given back within two looks.
pub const PERIOD: Duration = Duration::from_millis(4);
/// Looks until the tenants' grants are looked at again, which change with the control plane's rounds.
const GRANT_LOOKS: u32 = 25;
/// For so long the highest use of an instance counts.
const PEAK_US: u64 = 1_000_000;
/// The parts of [`PEAK_US`] that peaks are kept of.
const PEAK_PARTS: usize = 8;
/// The share of its memory that is left to an instance beyond what it used, for what it takes between two looks.
const MARGIN_DIVISOR: u64 = 16;
/// Budgets are whole numbers of this: they do not follow every page.
const STEP_BYTES: u64 = 256 << 10;

/// The highest use of the last while, in parts of it.
#[derive(Debug, Default)]
struct Peak {
    parts: VecDeque<(u64, u64)>,
}

impl Peak {
    fn note(&mut self, now_us: u64, used_bytes: u64) -> u64 {
        let part = now_us / (PEAK_US / PEAK_PARTS as u64);
        match self.parts.back_mut() {
            Some((last, peak)) if *last == part => *peak = (*peak).max(used_bytes),
            _ => self.parts.push_back((part, used_bytes)),
        }
        while self
            .parts
            .front()
            .is_some_and(|(first, _)| first + (PEAK_PARTS as u64) < part)
        {
            self.parts.pop_front();
        }
        self.parts.iter().map(|(_, peak)| *peak).max().unwrap_or_default()
    }
}

/// An instance whose memory is looked at.
#[derive(Debug)]
struct Watched {
    known: Known,
    group: Option<Group>,
    peak: Peak,
}

impl Watched {
    /// The memory that it does not need, in bytes.
    fn unused_bytes(&mut self, now_us: u64) -> u64 {
        let Some(Ok(memory)) = self.group.as_ref().map(Group::read) else {
            return 0;
        };
        let limits = [memory.limit_bytes, self.known.memory_limit_bytes];
        let Some(limit_bytes) = limits.into_iter().flatten().min() else {
            return 0;
        };
        let needed_bytes = self.peak.note(now_us, memory.used_bytes) + limit_bytes / MARGIN_DIVISOR;
        limit_bytes.saturating_sub(needed_bytes)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Budgets {
    root: PathBuf,
    instances: Arc<Instances>,
    domains: Arc<Domains>,
    engine: Option<Engine>,
    looks: u32,
    changes: Option<u64>,
    watched: BTreeMap<String, Watched>,
    given: BTreeMap<String, BTreeMap<String, u64>>,
    together: watch::Sender<Option<u64>>,
}

impl Budgets {
    /// The budgets of the instances on this node, whose control groups are below `root`. `together` is told what all instances
    /// do not use, in bytes, or `None` while there is an application whose instances are not known.
    #[must_use]
    pub fn new(
        root: PathBuf,
        instances: Arc<Instances>,
        domains: Arc<Domains>,
        engine: Option<Engine>,
        together: watch::Sender<Option<u64>>,
    ) -> Self {
        Self {
            root,
            together,
            instances,
            domains,
            engine,
            looks: 0,
            changes: None,
            watched: BTreeMap::new(),
            given: BTreeMap::new(),
        }
    }

    /// Looks every [`PERIOD`] until the agent ends.
    pub fn run(mut self, has_ended: &AtomicBool) {
        while !has_ended.load(Ordering::Relaxed) {
            self.look(now_us());
            std::thread::sleep(PERIOD);
        }
    }

    /// Looks at all instances, and gives and takes.
    pub fn look(&mut self, now_us: u64) {
        let changes = self.instances.changes();
        if self.changes != Some(changes) {
            self.changes = Some(changes);
            self.follow();
        }
        let mut sums: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for watched in self.watched.values_mut() {
            let Some(instance) = watched.known.as_instance() else {
                continue;
            };
            let Some(domain) = self.domains.get(&instance.application) else {
                continue;
            };
            let label = label_of(&domain.config(), &domain.app, Some(&instance));
            let of_app = sums.entry(instance.application).or_default();
            *of_app.entry(label).or_default() += watched.unused_bytes(now_us);
        }
        let gone: Vec<String> = self
            .given
            .keys()
            .filter(|app| !sums.contains_key(*app))
            .cloned()
            .collect();
        for app in gone {
            // Without instances that are known, it has what such an application has.
            self.given.remove(&app);
            if let Some(domain) = self.domains.get(&app) {
                domain.set_budgets(BTreeMap::new());
            }
            self.limit(&app, None);
        }
        for (app, mut sums) in sums {
            sums.values_mut().for_each(|bytes| *bytes -= *bytes % STEP_BYTES);
            if self.given.get(&app) == Some(&sums) {
                continue;
            }
            if let Some(domain) = self.domains.get(&app) {
                let limit_bytes = sums.values().sum();
                domain.set_budgets(sums.clone());
                self.limit(&app, Some(limit_bytes));
                self.given.insert(app, sums);
            }
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(GRANT_LOOKS) {
            self.follow_grants();
            self.tell_together();
        }
    }

    fn tell_together(&self) {
        let domains = self.domains.all();
        let sums = domains.iter().map(|domain| self.given.get(&*domain.app));
        let known = sums.map(|sums| Some(sums?.values().sum::<u64>()));
        let together: Option<u64> = known.sum();
        let together = together.filter(|_| !domains.is_empty());
        self.together
            .send_if_modified(|told| std::mem::replace(told, together) != together);
    }

    fn limit(&self, app: &str, bytes: Option<u64>) {
        let memory = self.engine.as_ref().and_then(|engine| engine.memory(app));
        if let Some(memory) = memory {
            memory.set_limit(bytes);
        }
    }

    /// Tells domains what is granted to their tenants. A tenant that was made since has its limit then.
    fn follow_grants(&self) {
        let Some(engine) = &self.engine else { return };
        for domain in self.domains.all() {
            let Some(memory) = engine.memory(&domain.app) else {
                continue;
            };
            let limit = self.given.get(&*domain.app).map(|sums| sums.values().sum());
            memory.set_limit(limit);
            // Nothing is granted before the first write.
            domain.set_granted(Some(memory.grant_bytes()).filter(|bytes| *bytes > 0));
        }
    }

    fn follow(&mut self) {
        let known = self.instances.all();
        self.watched
            .retain(|name, _| known.iter().any(|known| known.instance == *name));
        for known in known {
            let watched = self.watched.entry(known.instance.clone());
            let watched = watched.or_insert_with(|| Watched {
                known: known.clone(),
                group: None,
                peak: Peak::default(),
            });
            if watched.group.is_none() || watched.known.cgroup != known.cgroup {
                let folder = known.cgroup.as_deref();
                watched.group = folder.and_then(|folder| Group::open(&self.root, folder).ok());
            }
            watched.known = known;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_counts_for_a_while() {
        let mut peak = Peak::default();
        assert_eq!(peak.note(0, 10), 10);
        assert_eq!(peak.note(1_000, 90), 90);
        assert_eq!(peak.note(PEAK_US / 2, 20), 90);
        assert_eq!(peak.note(2 * PEAK_US, 20), 20);
        assert!(peak.parts.len() <= PEAK_PARTS + 1);
    }
}
