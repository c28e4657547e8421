//! Keeps this agent's cachelets members of their domains: the lease, the copy of etcd, and the documents to write.
//!
//! One task does all of it but for the lease, which must not wait for anything else. Invariant: a document is written only by
//! compare-and-set on the revision that the decision was made about.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tidemark_cachelet::membership::Document;
use tidemark_cachelet::message::Event as CoreEvent;
use tidemark_cachelet::types::{CacheletId, Epoch};
use tidemark_cachelet::view::View;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::clock::now_us;
use crate::decider::{Decider, Doubt, LEASE_SECONDS, Situation};
use crate::domains::{Domain, Domains};
use crate::etcd::{Etcd, EtcdError, Event, Pair, WATCH_PATIENCE, Watch, Write};
use crate::host::{Host, Note, Shell};
use crate::instances::Instances;
use crate::layout::{AppRecord, MemberRecord, PREFIX, document_key, member_key};
use crate::mirror::Mirror;

/// How often the lease is asked for: three requests may be lost.
const KEEP_ALIVE: Duration = Duration::from_millis(700);
/// How often time is looked at, for those that are gone and for suspicions.
const LOOK: Duration = Duration::from_millis(100);
/// Incarnations that are over and remembered: a write of a key of theirs may still be on its way.
const RETIRED_MAX: usize = 1_024;
/// After etcd did not answer.
const REST: Duration = Duration::from_millis(200);

/// The identity of this agent.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The address at which it takes messages, as others reach it.
    pub address: std::net::SocketAddr,
    /// The cluster of nodes that it is in.
    pub cluster: u32,
}

/// The state that others may look at.
#[derive(Debug, Default)]
pub struct Seen {
    /// The copy of etcd's keys.
    pub mirror: RwLock<Mirror>,
    /// When etcd last answered, by the agent's clock.
    pub answered_at_us: AtomicU64,
}

/// See the module.
pub struct Coordinator {
    /// etcd.
    pub etcd: Etcd,
    /// This agent.
    pub node: Node,
    /// The parts that cachelets use.
    pub shell: Arc<Shell>,
    /// The applications.
    pub domains: Arc<Domains>,
    /// The instances on this node.
    pub instances: Arc<Instances>,
    /// The state for others.
    pub seen: Arc<Seen>,
    /// Moves when the applications that etcd knows have changed.
    pub apps_changed: watch::Sender<u64>,
    notes: mpsc::UnboundedReceiver<Note>,
    lease: Arc<AtomicU64>,
    deciders: BTreeMap<String, Decider>,
    /// When etcd may have forgotten something.
    doubt: Option<Doubt>,
    told: BTreeMap<CacheletId, u64>,
    registered: BTreeMap<CacheletId, u64>,
    /// The notes of cachelets that documents do not have yet.
    open: Vec<Note>,
    highest: BTreeMap<String, Epoch>,
    /// Incarnations that are over.
    retired: VecDeque<(String, CacheletId)>,
    apps_revision: u64,
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The parts of a coordinator.
#[derive(Debug)]
pub struct Parts {
    /// etcd.
    pub etcd: Etcd,
    /// This agent.
    pub node: Node,
    /// The parts that cachelets use.
    pub shell: Arc<Shell>,
    /// The applications.
    pub domains: Arc<Domains>,
    /// The instances on this node.
    pub instances: Arc<Instances>,
    /// The state for others.
    pub seen: Arc<Seen>,
    /// The notes of cachelets.
    pub notes: mpsc::UnboundedReceiver<Note>,
    /// Moves when the applications that etcd knows have changed.
    pub apps_changed: watch::Sender<u64>,
}

impl Coordinator {
    /// A coordinator with nothing done yet.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self {
            etcd: parts.etcd,
            node: parts.node,
            shell: parts.shell,
            domains: parts.domains,
            instances: parts.instances,
            seen: parts.seen,
            apps_changed: parts.apps_changed,
            notes: parts.notes,
            lease: Arc::default(),
            deciders: BTreeMap::new(),
            doubt: None,
            told: BTreeMap::new(),
            registered: BTreeMap::new(),
            open: Vec::new(),
            highest: BTreeMap::new(),
            retired: VecDeque::new(),
            apps_revision: 0,
        }
    }

    /// Runs until the agent's runtime ends.
    pub async fn run(mut self) {
        let keeper = Keeper {
            etcd: self.etcd.clone(),
            lease: Arc::clone(&self.lease),
            shell: Arc::clone(&self.shell),
            domains: Arc::clone(&self.domains),
            seen: Arc::clone(&self.seen),
        };
        tokio::spawn(keeper.run());
        loop {
            match self.follow().await {
                Ok(()) => {}
                Err(error) => tracing::debug!("{error}"),
            }
            self.take_notes();
            tokio::time::sleep(REST).await;
        }
    }

    /// Reads everything, and follows what changes until etcd does not answer any more.
    async fn follow(&mut self) -> Result<(), EtcdError> {
        let (header, pairs) = self.etcd.range(PREFIX).await?;
        self.answered();
        let is_restored = self.seen.mirror.write().replace(header, pairs);
        if is_restored || self.doubt.is_none() {
            self.doubt = Some(Doubt {
                at_us: now_us(),
                revision: header.revision,
            });
        }
        if is_restored {
            self.restored();
        }
        let mut watch = self.etcd.watch(PREFIX, header.revision + 1).await?;
        let mut quiet_since = tokio::time::Instant::now();
        loop {
            self.evaluate().await?;
            let heard = {
                let notes = &mut self.notes;
                tokio::select! {
                    heard = next(&mut watch) => Some(heard?),
                    note = notes.recv() => {
                        self.open.extend(note);
                        None
                    }
                    () = tokio::time::sleep(LOOK) => None,
                }
            };
            self.take_notes();
            match heard {
                Some((header, events)) => {
                    quiet_since = tokio::time::Instant::now();
                    self.answered();
                    let mut mirror = self.seen.mirror.write();
                    events.into_iter().for_each(|event| mirror.apply(event));
                    mirror.advance(header);
                }
                None if quiet_since.elapsed() > WATCH_PATIENCE => return Ok(()),
                None => {}
            }
        }
    }

    fn answered(&self) {
        self.seen.answered_at_us.store(now_us(), Ordering::Relaxed);
    }

    /// Leases of before mean nothing: every cachelet begins anew.
    fn restored(&mut self) {
        tracing::warn!("etcd came back from a backup: all cachelets of this agent join anew");
        // Their observations are of the time before.
        self.deciders.clear();
        self.end_lease();
    }

    fn end_lease(&mut self) {
        self.lease.store(0, Ordering::SeqCst);
        self.registered.clear();
        for host in self.domains.hosts() {
            host.step(CoreEvent::LeaseLost);
        }
    }

    fn take_notes(&mut self) {
        // A lease that ends lets cachelets say more: an incarnation that is over must not join again.
        loop {
            while let Ok(note) = self.notes.try_recv() {
                self.open.push(note);
            }
            let before = self.open.len();
            for note in std::mem::take(&mut self.open) {
                match note {
                    Note::LeaseLost { lease } => {
                        if self.lease.load(Ordering::SeqCst) == lease {
                            self.end_lease();
                        }
                    }
                    Note::Expelled { app, id } => self.expelled(&app, id),
                    Note::Look => {}
                    note => self.open.push(note),
                }
            }
            if self.open.len() == before {
                return;
            }
        }
    }

    /// An incarnation is over: another one joins, or the cachelet has left.
    fn expelled(&mut self, app: &str, id: CacheletId) {
        self.registered.remove(&id);
        self.told.remove(&id);
        self.retired.push_back((app.to_owned(), id));
        if self.retired.len() > RETIRED_MAX {
            self.retired.pop_front();
        }
        let Some(domain) = self.domains.get(app) else { return };
        let Some(host) = domain.hosts().into_iter().find(|host| host.id() == id) else {
            return;
        };
        if domain.is_leaving(&host) {
            self.shell.hosts.write().remove(&id);
            return domain.forget(&host);
        }
        self.note_epoch(app, host.view().epoch);
        host.reincarnate(self.last_view(app, &domain.record()));
    }

    fn note_epoch(&mut self, app: &str, epoch: Epoch) {
        let highest = self.highest.entry(app.to_owned()).or_default();
        *highest = (*highest).max(epoch);
    }

    fn last_view(&self, app: &str, record: &AppRecord) -> View {
        let mirror = self.seen.mirror.read();
        let document = mirror.domain(app).and_then(|state| state.document.as_ref());
        document.map_or_else(
            || View::empty(record.config, record.promise),
            |document| document.value.view.clone(),
        )
    }

    /// Does the present work.
    async fn evaluate(&mut self) -> Result<(), EtcdError> {
        self.take_notes();
        self.adopt_apps();
        self.bury().await?;
        if self.lease.load(Ordering::SeqCst) == 0 {
            let lease = self.etcd.grant(LEASE_SECONDS).await?;
            self.answered();
            self.lease.store(lease, Ordering::SeqCst);
        }
        for domain in self.domains.all() {
            let instances = self.instances.of(&domain.app);
            let view = self.last_view(&domain.app, &domain.record());
            domain.arrange(&self.shell, &instances, &view);
            self.register(&domain).await?;
            self.tell(&domain);
            self.say(&domain).await?;
            self.decide(&domain).await?;
        }
        Ok(())
    }

    /// Removes keys of incarnations that are over: nobody would ever drain for them.
    async fn bury(&mut self) -> Result<(), EtcdError> {
        let is_there = |(app, id): &&(String, CacheletId)| {
            let mirror = self.seen.mirror.read();
            mirror.domain(app).is_some_and(|state| state.members.contains_key(id))
        };
        let left: Vec<_> = self.retired.iter().filter(is_there).cloned().collect();
        for (app, id) in left {
            let key = member_key(&app, id);
            let revision = self.etcd.delete(&key).await?.revision;
            self.seen.mirror.write().apply(Event::Delete { key, revision });
        }
        Ok(())
    }

    /// Puts etcd's records of applications in force here.
    fn adopt_apps(&mut self) {
        let (revision, records) = {
            let mirror = self.seen.mirror.read();
            let revision = mirror.apps().values().map(|at| at.revision).max().unwrap_or_default();
            let count = mirror.apps().len() as u64;
            let records: Vec<_> = mirror
                .apps()
                .iter()
                .map(|(app, at)| (app.clone(), at.value.clone()))
                .collect();
            (revision.wrapping_mul(31).wrapping_add(count), records)
        };
        if self.apps_revision == revision {
            return;
        }
        self.apps_revision = revision;
        for (app, record) in records {
            if let Some(domain) = self.domains.get(&app) {
                domain.set_record(record);
            }
        }
        self.apps_changed.send_modify(|count| *count += 1);
    }

    /// Puts the keys of cachelets under the lease. One whose key is gone is over.
    async fn register(&mut self, domain: &Arc<Domain>) -> Result<(), EtcdError> {
        let lease = self.lease.load(Ordering::SeqCst);
        for host in domain.hosts() {
            let id = host.id();
            let is_leaving = domain.is_leaving(&host);
            let (known, is_departed) = {
                let mirror = self.seen.mirror.read();
                let state = mirror.domain(&domain.app);
                let known = state
                    .and_then(|state| state.members.get(&id))
                    .map(|at| at.value.is_leaving);
                (known, state.is_some_and(|state| state.departed.contains(&id)))
            };
            if is_departed {
                host.step(CoreEvent::LeaseLost);
                continue;
            }
            let is_registered = self.registered.get(&id) == Some(&lease);
            if is_registered && (known.is_none() || known == Some(is_leaving)) {
                continue;
            }
            let record = self.member_record(domain, &host, is_leaving);
            let (key, value) = (member_key(&domain.app, id), json(&record));
            let header = self.etcd.put(&key, &value, lease).await?;
            self.registered.insert(id, lease);
            let mut mirror = self.seen.mirror.write();
            mirror.apply(Event::Put(Pair {
                key,
                value,
                revision: header.revision,
            }));
            drop(mirror);
            tracing::info!(app = %domain.app, cachelet = id.0, is_leaving, "joins its domain");
        }
        Ok(())
    }

    fn member_record(&self, domain: &Domain, host: &Host, is_leaving: bool) -> MemberRecord {
        let highest = self.highest.get(&*domain.app).copied().unwrap_or_default();
        MemberRecord {
            node: self.node.name.clone(),
            address: self.node.address,
            cluster: self.node.cluster,
            label: host.label.clone(),
            seen: highest.max(host.view().epoch).0,
            is_leaving,
        }
    }

    /// Gives the document to the cachelets that have not got it, and says where the others are.
    fn tell(&mut self, domain: &Arc<Domain>) {
        let (document, revision) = {
            let mirror = self.seen.mirror.read();
            let Some(state) = mirror.domain(&domain.app) else {
                return;
            };
            let mut addresses = self.shell.addresses.write();
            addresses.extend(state.members.iter().map(|(id, at)| (*id, at.value.address)));
            addresses.retain(|id, _| !state.departed.contains(id));
            let Some(document) = &state.document else { return };
            (document.value.clone(), document.revision)
        };
        self.note_epoch(&domain.app, document.view.epoch);
        for host in domain.hosts() {
            let id = host.id();
            if self.told.get(&id) != Some(&revision) {
                self.told.insert(id, revision);
                host.learn(&document);
            }
        }
    }

    /// Writes into the document what cachelets have said.
    async fn say(&mut self, domain: &Arc<Domain>) -> Result<(), EtcdError> {
        self.take_notes();
        let (of_this, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.open).into_iter().partition(
            |note| matches!(note, Note::Drained { app, .. } | Note::Recovered { app, .. } if *app == domain.app),
        );
        self.open = others;
        if of_this.is_empty() {
            return Ok(());
        }
        let Some((mut document, revision)) = self.document(&domain.app) else {
            return Ok(());
        };
        let mut changed = false;
        for note in &of_this {
            let next = match note {
                Note::Drained { id, epoch, .. } => document.drained(*id, *epoch),
                Note::Recovered { id, epoch, .. } => document.recovered(*id, *epoch),
                _ => None,
            };
            if let Some(next) = next {
                document = next;
                changed = true;
            }
        }
        if changed && !self.write(&domain.app, &document, revision).await? {
            // Somebody else wrote: it is said of the next document, where it is still about that.
            self.open.extend(of_this);
        }
        Ok(())
    }

    fn document(&self, app: &str) -> Option<(Document, u64)> {
        let mirror = self.seen.mirror.read();
        let document = mirror.domain(app)?.document.as_ref()?;
        Some((document.value.clone(), document.revision))
    }

    /// Lets the document go on.
    async fn decide(&mut self, domain: &Arc<Domain>) -> Result<(), EtcdError> {
        let own: BTreeSet<_> = domain.hosts().iter().map(|host| host.id()).collect();
        let seen = self.highest.get(&*domain.app).copied().unwrap_or_default();
        let app = domain.record();
        let decided = {
            let mirror = self.seen.mirror.read();
            let Some(state) = mirror.domain(&domain.app) else {
                return Ok(());
            };
            let revision = state.document.as_ref().map_or(0, |document| document.revision);
            let doubt = self.doubt;
            let decider = self.deciders.entry(domain.app.to_string());
            let decider = decider.or_insert_with(|| Decider::of(doubt));
            let situation = Situation {
                state,
                app: &app,
                own: &own,
                seen,
                revision: mirror.header().revision.max(revision),
                now_us: now_us(),
            };
            decider.next(&situation).map(|next| (next, revision))
        };
        if let Some((next, revision)) = decided {
            self.write(&domain.app, &next, revision).await?;
        }
        Ok(())
    }

    /// Whether the document was written. One that somebody else wrote is heard of.
    async fn write(&mut self, app: &str, document: &Document, revision: u64) -> Result<bool, EtcdError> {
        let (key, value) = (document_key(app), json(document));
        let put = Write::Put {
            key: key.clone(),
            value: value.clone(),
            lease: 0,
        };
        let (is_written, header) = self.etcd.write_if(&key, revision, &[put]).await?;
        self.answered();
        if is_written {
            let epoch = document.view.epoch.0;
            tracing::debug!(
                app,
                epoch,
                is_changing = document.change.is_some(),
                "the domain goes on"
            );
            let revision = header.revision;
            self.seen
                .mirror
                .write()
                .apply(Event::Put(Pair { key, value, revision }));
            if let Some(domain) = self.domains.get(app) {
                self.tell(&domain);
            }
            self.take_notes();
        }
        Ok(is_written)
    }
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

async fn next(watch: &mut Watch) -> Result<(crate::etcd::Header, Vec<Event>), EtcdError> {
    watch.next().await
}

/// Keeps the lease alive, whatever else waits.
struct Keeper {
    etcd: Etcd,
    lease: Arc<AtomicU64>,
    shell: Arc<Shell>,
    domains: Arc<Domains>,
    seen: Arc<Seen>,
}

impl Keeper {
    async fn run(self) {
        loop {
            let lease = self.lease.load(Ordering::SeqCst);
            if lease == 0 {
                tokio::time::sleep(LOOK / 4).await;
                continue;
            }
            // An etcd that was restored from a backup answers with a revision that was passed before.
            let known_revision = self.seen.mirror.read().header().revision;
            // Whoever is asked for now is who the answer is about.
            let asked: Vec<_> = self.domains.hosts().into_iter().map(|host| (host.id(), host)).collect();
            let sent_at_us = now_us();
            match timeout(KEEP_ALIVE, self.etcd.keep_alive(lease)).await {
                Ok(Ok((true, header))) => {
                    self.seen.answered_at_us.store(now_us(), Ordering::Relaxed);
                    if header.revision >= known_revision {
                        self.confirm(lease, sent_at_us, &asked, header);
                    }
                }
                Ok(Ok((false, _))) => {
                    let _ = self.shell.notes.send(Note::LeaseLost { lease });
                    tokio::time::sleep(LOOK).await;
                }
                Ok(Err(error)) => tracing::debug!("the lease is not confirmed: {error}"),
                Err(_) => {}
            }
            let rest_us = KEEP_ALIVE.as_micros() as u64;
            let passed_us = now_us().saturating_sub(sent_at_us);
            let is_young = asked.iter().any(|(_, host)| !host.is_leased());
            let rest = if is_young { LOOK.as_micros() as u64 } else { rest_us };
            tokio::time::sleep(Duration::from_micros(rest.saturating_sub(passed_us))).await;
        }
    }

    /// A cachelet is leased only if its key is under this lease: its incarnation was there when the lease was confirmed.
    fn confirm(&self, lease: u64, sent_at_us: u64, asked: &[(CacheletId, Arc<Host>)], header: crate::etcd::Header) {
        let mirror = self.seen.mirror.read();
        let is_same = self.lease.load(Ordering::SeqCst) == lease && mirror.header().cluster == header.cluster;
        if !is_same {
            return;
        }
        let is_member =
            |app: &str, id: &CacheletId| mirror.domain(app).is_some_and(|state| state.members.contains_key(id));
        let members: Vec<_> = asked.iter().filter(|(id, host)| is_member(&host.app, id)).collect();
        let members: Vec<_> = members.into_iter().map(|(id, host)| (*id, Arc::clone(host))).collect();
        drop(mirror);
        for (id, host) in members {
            host.leased(id, sent_at_us);
        }
    }
}
