//! The instances on this node: the events of their lives. Pure but for one lock.
//!
//! ```text
//! created --> identified --> paused <--> resumed --> removed
//! ```
//!
//! Any event may come first, twice, or late. An event about an instance that is not known makes it known. One about an
//! instance that was removed is passed over.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemark_cachelet::config::scope::Instance;

/// Instances on a node. Schedulers place at most some hundred.
pub const INSTANCES_MAX: usize = 4_096;
/// Names of removed instances that are remembered, so that a late event does not bring one back.
const REMOVED_MAX: usize = 4_096;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Happening {
    /// It was made; of which application it is may not be known yet.
    Created,
    /// It is of this application and function.
    Identified,
    /// It does not run: its platform has frozen it.
    Paused,
    /// It runs again.
    Resumed,
    /// It is gone.
    Removed,
}

/// An event of an instance's life, as the local API takes it and adapters say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifeEvent {
    /// The kind of the event.
    pub event: Happening,
    /// The instance's name, unique on the node.
    pub instance: String,
    /// Its application, where it is known.
    #[serde(default)]
    pub app: Option<String>,
    /// Its function.
    #[serde(default)]
    pub function: Option<String>,
    /// The address that its requests come from.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// The folder of its control group, below the hierarchy's root.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// The memory that it may use, where its control group does not say it.
    #[serde(default)]
    pub memory_limit_bytes: Option<u64>,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Its name.
    pub instance: String,
    /// Its application, where it is known.
    pub app: Option<String>,
    /// Its function.
    pub function: Option<String>,
    /// The address that its requests come from.
    pub address: Option<IpAddr>,
    /// The folder of its control group.
    pub cgroup: Option<String>,
    /// The memory that it may use.
    pub memory_limit_bytes: Option<u64>,
    /// Whether it is frozen.
    pub is_paused: bool,
}

impl Known {
    /// As scopes group it; `None` while its application is not known.
    #[must_use]
    pub fn as_instance(&self) -> Option<Instance> {
        Some(Instance {
            application: self.app.clone()?,
            function: self.function.clone().unwrap_or_default(),
            name: self.instance.clone(),
        })
    }
}

/// Why an event was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LifeError {
    /// There are too many.
    #[error("there are {INSTANCES_MAX} instances already")]
    TooMany,
    /// It is of another application already.
    #[error("the instance belongs to another application")]
    OtherApp,
    /// It has no name, or one that is too long.
    #[error("an instance's name has 1 to 256 bytes")]
    BadName,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Instances {
    table: Mutex<Table>,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    known: BTreeMap<String, Known>,
    /// Their names by their addresses: each request asks for it.
    at: HashMap<IpAddr, BTreeSet<String>>,
    removed: VecDeque<String>,
}

impl Instances {
    /// Takes an event. Whether it changed anything.
    ///
    /// # Errors
    /// See [`LifeError`].
    pub fn take(&self, event: LifeEvent) -> Result<bool, LifeError> {
        let changed = self.table.lock().take(event)?;
        if changed {
            self.changes.fetch_add(1, Ordering::Release);
        }
        Ok(changed)
    }

    /// How often anything changed.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The instances of an application, as scopes group them.
    pub fn of(&self, app: &str) -> Vec<Instance> {
        let table = self.table.lock();
        let known = table.known.values().filter(|known| known.app.as_deref() == Some(app));
        known.filter_map(Known::as_instance).collect()
    }

    /// The instance that an application's request from an address comes from, if there is one only.
    pub fn at(&self, app: &str, address: IpAddr) -> Option<Instance> {
        let table = self.table.lock();
        let known = table.at.get(&address)?.iter().filter_map(|name| table.known.get(name));
        let mut found = known.filter(|known| known.app.as_deref() == Some(app));
        let first = found.next()?;
        found.next().is_none().then(|| first.as_instance())?
    }

    /// All of them.
    pub fn all(&self) -> Vec<Known> {
        self.table.lock().known.values().cloned().collect()
    }
}

impl Table {
    fn take(&mut self, event: LifeEvent) -> Result<bool, LifeError> {
        if event.instance.is_empty() || event.instance.len() > 256 {
            return Err(LifeError::BadName);
        }
        if event.event == Happening::Removed {
            if self.removed.len() >= REMOVED_MAX {
                self.removed.pop_front();
            }
            let was_known = self.known.remove(&event.instance);
            self.move_to(
                &event.instance,
                was_known.as_ref().and_then(|known| known.address),
                None,
            );
            let was_known = was_known.is_some();
            if was_known {
                self.removed.push_back(event.instance);
            }
            return Ok(was_known);
        }
        if event.event == Happening::Created {
            // A name that is used again is another instance.
            self.removed.retain(|name| *name != event.instance);
        } else if self.removed.contains(&event.instance) {
            return Ok(false);
        }
        if self.known.len() >= INSTANCES_MAX && !self.known.contains_key(&event.instance) {
            return Err(LifeError::TooMany);
        }
        let name = event.instance.clone();
        let before = self.known.get(&name).cloned();
        let known = before.clone().unwrap_or_else(|| Known {
            instance: name.clone(),
            app: None,
            function: None,
            address: None,
            cgroup: None,
            memory_limit_bytes: None,
            is_paused: false,
        });
        if known.app.is_some() && event.app.is_some() && known.app != event.app {
            return Err(LifeError::OtherApp);
        }
        let is_paused = match event.event {
            Happening::Paused => true,
            Happening::Resumed => false,
            _ => known.is_paused,
        };
        let after = Known {
            app: event.app.or(known.app),
            function: event.function.or(known.function),
            address: event.address.or(known.address),
            cgroup: event.cgroup.or(known.cgroup),
            memory_limit_bytes: event.memory_limit_bytes.or(known.memory_limit_bytes),
            is_paused,
            instance: known.instance,
        };
        let changed = before.as_ref() != Some(&after);
        self.move_to(&name, before.and_then(|before| before.address), after.address);
        self.known.insert(name, after);
        Ok(changed)
    }

    /// An instance has another address, or the first one, or none any more.
    fn move_to(&mut self, name: &str, from: Option<IpAddr>, to: Option<IpAddr>) {
        if from == to {
            return;
        }
        if let Some(from) = from
            && let Some(names) = self.at.get_mut(&from)
        {
            names.remove(name);
            if names.is_empty() {
                self.at.remove(&from);
            }
        }
        if let Some(to) = to {
            self.at.entry(to).or_default().insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: Happening, instance: &str, app: Option<&str>) -> LifeEvent {
        LifeEvent {
            event,
            instance: instance.into(),
            app: app.map(str::to_owned),
            function: app.map(|_| "pay".to_owned()),
            address: app.map(|_| "10.0.0.7".parse().unwrap()),
            cgroup: None,
            memory_limit_bytes: None,
        }
    }

    /// Checks the state of instance `a` after these events.
    fn check(events: &[(Happening, Option<&str>)], expected: Option<(Option<&str>, bool)>) {
        let instances = Instances::default();
        for (what, app) in events {
            instances.take(event(*what, "a", *app)).unwrap();
        }
        let known = instances
            .all()
            .first()
            .map(|known| (known.app.clone(), known.is_paused));
        let expected = expected.map(|(app, is_paused)| (app.map(str::to_owned), is_paused));
        assert_eq!(known, expected, "{events:?}");
    }

    #[test]
    fn lives_are_followed_in_any_order() {
        use Happening::{Created, Identified, Paused, Removed, Resumed};
        check(&[(Created, None)], Some((None, false)));
        check(
            &[(Created, None), (Identified, Some("shop"))],
            Some((Some("shop"), false)),
        );
        check(
            &[(Identified, Some("shop")), (Paused, None)],
            Some((Some("shop"), true)),
        );
        check(&[(Paused, Some("shop")), (Resumed, None)], Some((Some("shop"), false)));
        check(&[(Created, Some("shop")), (Removed, None)], None);
        check(
            &[(Created, Some("shop")), (Removed, None), (Paused, Some("shop"))],
            None,
        );
        check(
            &[(Created, Some("shop")), (Removed, None), (Created, Some("blog"))],
            Some((Some("blog"), false)),
        );
    }

    #[test]
    fn an_instance_stays_with_its_application() {
        let instances = Instances::default();
        instances.take(event(Happening::Created, "a", Some("shop"))).unwrap();
        let other = instances.take(event(Happening::Identified, "a", Some("blog")));
        assert_eq!(other, Err(LifeError::OtherApp));
        assert_eq!(instances.of("shop").len(), 1);
        assert!(instances.of("blog").is_empty());
    }

    #[test]
    fn an_address_names_an_instance_only_if_it_is_its_own() {
        let instances = Instances::default();
        let address = "10.0.0.7".parse().unwrap();
        instances.take(event(Happening::Created, "a", Some("shop"))).unwrap();
        assert_eq!(instances.at("shop", address).unwrap().name, "a");
        assert_eq!(instances.at("blog", address), None);
        instances.take(event(Happening::Created, "b", Some("shop"))).unwrap();
        assert_eq!(instances.at("shop", address), None);
        // One moves away; the other one ends.
        let elsewhere = "10.0.0.8".parse().unwrap();
        let moved = LifeEvent {
            address: Some(elsewhere),
            ..event(Happening::Identified, "b", Some("shop"))
        };
        instances.take(moved).unwrap();
        assert_eq!(instances.at("shop", address).unwrap().name, "a");
        assert_eq!(instances.at("shop", elsewhere).unwrap().name, "b");
        instances.take(event(Happening::Removed, "a", None)).unwrap();
        assert_eq!(instances.at("shop", address), None);
        assert_eq!(instances.table.lock().at.len(), 1, "addresses are forgotten");
    }

    #[test]
    fn their_number_is_bounded() {
        let instances = Instances::default();
        for number in 0..INSTANCES_MAX {
            instances
                .take(event(Happening::Created, &number.to_string(), None))
                .unwrap();
        }
        assert_eq!(
            instances.take(event(Happening::Created, "more", None)),
            Err(LifeError::TooMany)
        );
        assert_eq!(
            instances.take(event(Happening::Created, "", None)),
            Err(LifeError::BadName)
        );
    }
}
