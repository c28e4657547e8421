//! This agent's copy of etcd's keys. Pure.
//!
//! Invariant: of each key the latest revision that was heard of is known; an older one that comes later is passed over.

use std::collections::{BTreeMap, BTreeSet};

use tidemark_cachelet::membership::Document;
use tidemark_cachelet::types::CacheletId;

use crate::etcd::{Event, Header, Pair};
use crate::layout::{AppRecord, MemberRecord, Place, place};
use crate::tuning::Tuned;

/// A value with the revision at which it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// The revision.
    pub revision: u64,
}

/// A domain, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainState {
    /// Its document.
    pub document: Option<At<Document>>,
    /// Its cachelets.
    pub members: BTreeMap<CacheletId, At<MemberRecord>>,
    /// Those whose keys were there and are gone. An incarnation does not come back.
    pub departed: BTreeSet<CacheletId>,
    /// The outcome of choosing its configuration.
    pub tuned: Option<At<Tuned>>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    header: Header,
    apps: BTreeMap<String, At<AppRecord>>,
    domains: BTreeMap<String, DomainState>,
}

/// Departed cachelets that are remembered of a domain.
const DEPARTED_MAX: usize = 4_096;

impl Mirror {
    /// Reads everything anew. Whether etcd is another one than before, or an older one: a restored backup.
    pub fn replace(&mut self, header: Header, pairs: Vec<Pair>) -> bool {
        let before = self.header;
        let is_restored =
            before.cluster != 0 && (before.cluster != header.cluster || header.revision < before.revision);
        let old = std::mem::take(&mut self.domains);
        self.apps.clear();
        self.header = header;
        for pair in pairs {
            self.put(pair);
        }
        for (app, state) in old {
            let now = self.domains.entry(app).or_default();
            let gone = state.members.keys().filter(|id| !now.members.contains_key(id)).copied();
            let departed: Vec<_> = gone.chain(state.departed).collect();
            now.departed.extend(departed);
        }
        is_restored
    }

    /// Takes a change.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Put(pair) => self.put(pair),
            Event::Delete { key, revision } => self.delete(&key, revision),
        }
    }

    /// Notes that etcd has come to a revision.
    pub fn advance(&mut self, header: Header) {
        if header.cluster == self.header.cluster {
            self.header.revision = self.header.revision.max(header.revision);
        }
    }

    fn put(&mut self, pair: Pair) {
        let Pair { key, value, revision } = pair;
        let is_read = match place(&key) {
            None => true,
            Some(Place::App(app)) => {
                let is_old = self.apps.get(&app).is_some_and(|known| known.revision >= revision);
                is_old || read(&value, revision).map(|at| self.apps.insert(app, at)).is_some()
            }
            Some(Place::Document(app)) => {
                let known = &mut self.domains.entry(app).or_default().document;
                let is_old = known.as_ref().is_some_and(|known| known.revision >= revision);
                is_old || read(&value, revision).map(|at| *known = Some(at)).is_some()
            }
            Some(Place::Tuned(app)) => {
                let known = &mut self.domains.entry(app).or_default().tuned;
                let is_old = known.as_ref().is_some_and(|known| known.revision >= revision);
                is_old || read(&value, revision).map(|at| *known = Some(at)).is_some()
            }
            Some(Place::Member(app, id)) => {
                let members = &mut self.domains.entry(app).or_default().members;
                let is_old = members.get(&id).is_some_and(|known| known.revision >= revision);
                is_old || read(&value, revision).map(|at| members.insert(id, at)).is_some()
            }
        };
        if !is_read {
            tracing::error!(key, "what etcd keeps here can not be read");
        }
    }

    fn delete(&mut self, key: &str, revision: u64) {
        match place(key) {
            None => {}
            Some(Place::App(app)) => {
                self.apps.remove(&app);
            }
            Some(Place::Tuned(app)) => {
                let known = self.domains.get_mut(&app).map(|state| &mut state.tuned);
                if let Some(known) = known.filter(|known| known.as_ref().is_some_and(|at| at.revision < revision)) {
                    *known = None;
                }
            }
            Some(Place::Document(app)) => {
                let known = self.domains.get_mut(&app).map(|state| &mut state.document);
                if let Some(known) = known.filter(|known| known.as_ref().is_some_and(|at| at.revision < revision)) {
                    *known = None;
                }
            }
            Some(Place::Member(app, id)) => {
                let state = self.domains.entry(app).or_default();
                if state.members.get(&id).is_none_or(|known| known.revision < revision) {
                    state.members.remove(&id);
                    state.departed.insert(id);
                    while state.departed.len() > DEPARTED_MAX {
                        state.departed.pop_first();
                    }
                }
            }
        }
    }

    /// The applications.
    #[must_use]
    pub fn apps(&self) -> &BTreeMap<String, At<AppRecord>> {
        &self.apps
    }

    /// A domain.
    #[must_use]
    pub fn domain(&self, app: &str) -> Option<&DomainState> {
        self.domains.get(app)
    }

    /// Cluster and revision that this is of.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header
    }
}

fn read<T: serde::de::DeserializeOwned>(value: &str, revision: u64) -> Option<At<T>> {
    let value = serde_json::from_str(value).ok()?;
    Some(At { value, revision })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::member_key;

    fn member(id: u64, node: &str, revision: u64) -> Event {
        let record = MemberRecord {
            node: node.into(),
            address: "127.0.0.1:1".parse().unwrap(),
            cluster: 0,
            label: "shop".into(),
            seen: 0,
            is_leaving: false,
        };
        Event::Put(Pair {
            key: member_key("shop", CacheletId(id)),
            value: serde_json::to_string(&record).unwrap(),
            revision,
        })
    }

    fn nodes(mirror: &Mirror) -> String {
        let members = &mirror.domain("shop").unwrap().members;
        members.values().map(|at| at.value.node.clone()).collect()
    }

    fn header(cluster: u64, revision: u64) -> Header {
        Header { cluster, revision }
    }

    #[test]
    fn the_latest_revision_stays() {
        let mut mirror = Mirror::default();
        for event in [member(1, "a", 5), member(1, "b", 4), member(2, "c", 6)] {
            mirror.apply(event);
        }
        assert_eq!(nodes(&mirror), "ac");
        let gone = |revision| Event::Delete {
            key: member_key("shop", CacheletId(1)),
            revision,
        };
        mirror.apply(gone(3));
        assert_eq!(nodes(&mirror), "ac", "it was written after that");
        mirror.apply(gone(7));
        assert_eq!(nodes(&mirror), "c");
        assert!(mirror.domain("shop").unwrap().departed.contains(&CacheletId(1)));
    }

    #[test]
    fn a_restored_backup_is_noticed() {
        let mut mirror = Mirror::default();
        assert!(!mirror.replace(header(1, 10), Vec::new()));
        mirror.apply(member(1, "a", 11));
        assert!(!mirror.replace(header(1, 12), Vec::new()));
        assert!(
            mirror.domain("shop").unwrap().departed.contains(&CacheletId(1)),
            "it went unnoticed"
        );
        mirror.advance(header(1, 20));
        assert!(mirror.replace(header(1, 15), Vec::new()), "older");
        assert!(mirror.replace(header(2, 30), Vec::new()), "another cluster");
    }

    #[test]
    fn what_can_not_be_read_changes_nothing() {
        let mut mirror = Mirror::default();
        mirror.apply(member(1, "a", 1));
        mirror.apply(Event::Put(Pair {
            key: member_key("shop", CacheletId(1)),
            value: "{".into(),
            revision: 2,
        }));
        assert_eq!(nodes(&mirror), "a");
    }
}
