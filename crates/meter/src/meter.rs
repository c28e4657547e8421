//! From readings to entries.
//!
//! The meter is told of each snapshot and each plan, and makes entries when a period is over. Its cost is that of the
//! tenants in the snapshot or the plan. A tenant that only holds memory costs nothing until the hour is over. Use
//! without an entry yet is kept as the difference of two sums, so that nothing is lost or counted twice between
//! periods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidemark_types::{CommandCount, PlaneCpu, Refused, Snapshot, TenantCounters, TenantId, TenantSnapshot, UnixMs};

use crate::model::{Model, Present, Tally, Work};
use crate::row::{Entry, Kind, Subject, label_of};
use crate::top::{Top, Tops};
use crate::usage::{Resource, Usage};

/// Memory that is held while nothing else happens has an entry this often.
const HELD_PERIOD: Duration = Duration::from_secs(3600);
/// The clock was set if it moved by so much more or less than time passed. Clocks that are corrected slowly move by less
/// between two looks.
const JUMP_MIN: Duration = Duration::from_secs(1);

/// How a meter is set up.
#[derive(Clone, Debug)]
pub struct MeterConfig {
    /// An entry is for this long at most, but for memory that is only held.
    pub period: Duration,
    /// The instance's name.
    pub node: String,
    /// The prices in force; empty where there are none.
    pub price_version: String,
    /// The model of CPU time; `None`: there is none.
    pub model: Option<Arc<Model>>,
    /// An estimate is of this long at least, but for the last one of an entry.
    pub model_interval: Duration,
    /// The delimiter that ends a prefix of keys.
    pub key_delimiter: u8,
}

/// A moment by two clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// By the system's clock, which can be set: entries are labelled with it.
    pub wall: UnixMs,
    /// Time that has passed, in milliseconds since any moment: memory is measured by it. It does not go back.
    pub steady_ms: u64,
}

/// CPU time of the process, in nanoseconds since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCpu {
    /// The CPU time of all threads together, as the system tells it.
    pub total_ns: u64,
    /// The CPU time of the threads that are known and serve no clients: control, admin, the pool's.
    pub others_ns: u64,
}

/// CPU time that is no tenant's, in nanoseconds since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Nobody {
    unattributed_ns: u64,
    unexplained_ns: u64,
}

/// A tenant's grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Flash, in bytes; `None`: as before.
    pub flash_bytes: Option<u64>,
}

/// One tenant since its last entry.
#[derive(Clone, Debug)]
struct Open {
    name: String,
    /// The counts until its last entry, and until now.
    before: Usage,
    now: Usage,
    commands_before: Vec<CommandCount>,
    commands_now: Vec<CommandCount>,
    /// Modelled CPU time, once there was a command.
    tally: Option<Box<Tally>>,
    /// The same where the data plane estimates it, at shorter intervals than there are snapshots.
    estimated_ns: Option<u64>,
    grant_bytes: u64,
    held: Held,
    flash_grant_bytes: u64,
    /// Memory beside its grant that its flash takes.
    flash_memory_bytes: u64,
    flash_held: Held,
    /// When its last entry ended.
    from: UnixMs,
    is_removed: bool,
}

/// Memory times time.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// In byte-milliseconds, until `until_ms`; the part that is not in an entry yet.
    byte_ms: u128,
    until_ms: u64,
    /// The sum, in byte-seconds.
    total: u128,
}

impl Held {
    fn since(at: Moment) -> Self {
        Self {
            until_ms: at.steady_ms,
            ..Self::default()
        }
    }

    fn pass(&mut self, bytes: u64, now_ms: u64) {
        let passed = now_ms.saturating_sub(self.until_ms);
        self.byte_ms += u128::from(bytes) * u128::from(passed);
        self.until_ms = self.until_ms.max(now_ms);
    }

    /// Whole byte-seconds that are in no entry yet. The rest of a byte-second is in a later one.
    fn take(&mut self) -> u64 {
        let whole = (self.byte_ms / 1000).min(i64::MAX as u128) as u64;
        self.byte_ms -= u128::from(whole) * 1000;
        self.total += u128::from(whole);
        whole
    }
}

/// Follows what every tenant uses.
#[derive(Debug)]
pub struct Meter {
    config: MeterConfig,
    tenants: BTreeMap<TenantId, Open>,
    /// Those that something but time happened to since their last entry.
    changed: BTreeSet<TenantId>,
    last: Option<Moment>,
    /// When the last snapshot was, by time that has passed.
    observed_ms: Option<u64>,
    /// When the last period ended.
    closed_at: UnixMs,
    nobody: Nobody,
    nobody_before: Nobody,
    /// Entries that were made before their period was over.
    early: Vec<Entry>,
    tops: Tops,
    network_bytes: u64,
}

impl Meter {
    /// Nothing is known of any tenant yet.
    pub fn new(config: MeterConfig) -> Self {
        Self {
            tops: Tops::new(config.key_delimiter),
            config,
            tenants: BTreeMap::new(),
            changed: BTreeSet::new(),
            last: None,
            observed_ms: None,
            closed_at: UnixMs(0),
            nobody: Nobody::default(),
            nobody_before: Nobody::default(),
            early: Vec::new(),
            network_bytes: 0,
        }
    }

    /// Takes over the data plane's report. `name_of` gives the name of a tenant that was not in a plan yet.
    pub fn observe(&mut self, snapshot: &Snapshot, at: Moment, name_of: impl Fn(TenantId) -> Option<String>) {
        self.note_time(at);
        let before_ms = self.observed_ms.replace(at.steady_ms).unwrap_or(at.steady_ms);
        let (model, interval) = (self.config.model.clone(), self.config.model_interval);
        for report in &snapshot.tenants {
            let Some(open) = self.open(report.id, at, || name_of(report.id)) else {
                continue;
            };
            let flash = report.counters.flash.unwrap_or_default();
            open.pass(at);
            open.grant_bytes = report.grant_bytes;
            (open.flash_grant_bytes, open.flash_memory_bytes) = (flash.grant_bytes, flash.memory_bytes);
            if let Some(model) = &model {
                open.model(model, interval, report, (before_ms, at.steady_ms));
            }
            let now = usage_of(&report.counters).with(Resource::CpuModelNs, open.model_ns());
            let before = open.now;
            let grown = now.since(&before);
            if now != open.before || report.commands != open.commands_before {
                (open.now, open.commands_now) = (now, report.commands.clone());
                self.changed.insert(report.id);
            }
            self.network_bytes += grown.get(Resource::NetworkInBytes) + grown.get(Resource::NetworkOutBytes);
            self.tops
                .observe(report.id, &report.visits, &before, &now, at.steady_ms);
        }
        for id in &snapshot.removed {
            if let Some(open) = self.tenants.get_mut(id) {
                open.pass(at);
                (open.grant_bytes, open.flash_grant_bytes, open.flash_memory_bytes) = (0, 0, 0);
                open.is_removed = true;
                self.changed.insert(*id);
            }
            self.tops.forget(*id);
        }
    }

    /// A tenant may hold so much from now on.
    pub fn note_grants(&mut self, id: TenantId, name: &str, grants: Grants, at: Moment) {
        let has_some = grants.memory_bytes > 0 || grants.flash_bytes.is_some_and(|bytes| bytes > 0);
        if !has_some && !self.tenants.contains_key(&id) {
            return;
        }
        if let Some(open) = self.open(id, at, || Some(name.to_owned())) {
            open.pass(at);
            open.grant_bytes = grants.memory_bytes;
            open.flash_grant_bytes = grants.flash_bytes.unwrap_or(open.flash_grant_bytes);
        }
    }

    /// Takes the CPU time of the process until now. `plane` is that of its threads that serve clients.
    pub fn note_process(&mut self, process: ProcessCpu, plane: PlaneCpu) {
        let unattributed_ns = plane.unattributed_ns + process.others_ns;
        let explained_ns = plane.attributed_ns + unattributed_ns;
        // Clocks are read one after the other, so that for a moment more may be explained than was used. Unexplained
        // time may be explained later, by a worker that reports its use late. A row is never taken back, so less
        // follows.
        let unexplained_ns = process.total_ns.saturating_sub(explained_ns);
        self.nobody = Nobody {
            unattributed_ns: unattributed_ns.max(self.nobody.unattributed_ns),
            unexplained_ns: unexplained_ns.max(self.nobody.unexplained_ns),
        };
    }

    /// Other prices are in force from now on: all that was used until now is in entries of the ones before.
    pub fn set_price_version(&mut self, version: &str, at: Moment) {
        if self.config.price_version != version {
            self.note_time(at);
            self.close_all(at);
            version.clone_into(&mut self.config.price_version);
        }
    }

    /// The entries of periods that are over. Nothing as long as the period lasts.
    pub fn entries(&mut self, at: Moment) -> Vec<Entry> {
        self.note_time(at);
        let is_over = |period: Duration| {
            let period_ms = (period.as_millis() as u64).max(1);
            at.wall.0 / period_ms != self.closed_at.0 / period_ms
        };
        if is_over(HELD_PERIOD) {
            self.close_all(at);
        } else if is_over(self.config.period) {
            self.close_changed(at);
            self.tops.tidy(at.steady_ms);
        }
        std::mem::take(&mut self.early)
    }

    /// The entries of all that was used until now: there will be no more.
    pub fn end(&mut self, at: Moment) -> Vec<Entry> {
        self.note_time(at);
        self.close_all(at);
        let mut entries = std::mem::take(&mut self.early);
        entries.push(self.labelled(Entry::event(Kind::End, at.wall, at.wall, "the server ended")));
        entries
    }

    /// Byte-seconds of grant of a tenant since the process began; `None` for one that never had any.
    pub fn byte_seconds(&self, id: TenantId, at: Moment) -> Option<u64> {
        let open = self.tenants.get(&id)?;
        let mut held = open.held;
        held.pass(open.memory_bytes(), at.steady_ms);
        u64::try_from(held.total + held.byte_ms / 1000).ok()
    }

    /// The use of a tenant since its last entry; nothing changes by it.
    pub fn open_entry(&self, id: TenantId, at: Moment) -> Option<Entry> {
        let entry = self
            .tenants
            .get(&id)?
            .clone()
            .close(id, at, self.config.model.as_deref());
        Some(self.labelled(entry))
    }

    /// Modelled CPU time of a tenant since the process began, in nanoseconds; `None` where there is no model.
    pub fn model_ns(&self, id: TenantId) -> Option<u64> {
        let model = self.config.model.as_deref()?;
        let Some(open) = self.tenants.get(&id) else {
            return Some(0);
        };
        let tallied = open.tally.as_deref().map(|tally| {
            let mut tally = *tally;
            tally.estimate(model);
            tally.ns()
        });
        Some(open.estimated_ns.or(tallied).unwrap_or(0))
    }

    /// The heaviest parts of a tenant's load; `None` for one that was not sampled of late.
    pub fn top(&self, id: TenantId, at: Moment) -> Option<Top> {
        self.tops.top(id, at.steady_ms)
    }

    /// Whether there is such a tenant, as far as was told.
    pub fn knows(&self, id: TenantId) -> bool {
        self.tenants.contains_key(&id)
    }

    /// Bytes of all tenants' requests and replies since the process began.
    pub fn network_bytes(&self) -> u64 {
        self.network_bytes
    }

    /// CPU time since the process began that was for nobody in particular, and that nothing explains; in nanoseconds.
    pub fn nobody_ns(&self) -> (u64, u64) {
        (self.nobody.unattributed_ns, self.nobody.unexplained_ns)
    }

    /// Notices that the clock was set: earlier use has entries by the old time.
    fn note_time(&mut self, at: Moment) {
        let Some(last) = self.last.replace(at) else {
            self.closed_at = at.wall;
            return;
        };
        let passed_ms = at.steady_ms.saturating_sub(last.steady_ms);
        let expected = UnixMs(last.wall.0.saturating_add(passed_ms));
        let off_ms = at.wall.0.abs_diff(expected.0);
        if off_ms < JUMP_MIN.as_millis() as u64 {
            return;
        }
        let before = Moment {
            wall: expected,
            steady_ms: at.steady_ms,
        };
        self.close_all(before);
        let way = if at.wall < expected { "back" } else { "forward" };
        let note = format!("the clock was set {way} by {}.{:03} s", off_ms / 1000, off_ms % 1000);
        let (from, to) = (expected.min(at.wall), expected.max(at.wall));
        let jump = self.labelled(Entry::event(Kind::Jump, from, to, note));
        self.early.push(jump);
        self.tenants.values_mut().for_each(|open| open.from = at.wall);
        self.closed_at = at.wall;
    }

    fn open(&mut self, id: TenantId, at: Moment, name: impl FnOnce() -> Option<String>) -> Option<&mut Open> {
        use std::collections::btree_map::Entry as Place;
        match self.tenants.entry(id) {
            Place::Occupied(known) => Some(known.into_mut()),
            Place::Vacant(place) => Some(place.insert(Open {
                name: name()?,
                before: Usage::default(),
                now: Usage::default(),
                commands_before: Vec::new(),
                commands_now: Vec::new(),
                tally: None,
                estimated_ns: None,
                grant_bytes: 0,
                held: Held::since(at),
                flash_grant_bytes: 0,
                flash_memory_bytes: 0,
                flash_held: Held::since(at),
                from: at.wall,
                is_removed: false,
            })),
        }
    }

    fn close_changed(&mut self, at: Moment) {
        for id in std::mem::take(&mut self.changed) {
            self.close(id, at);
        }
        self.close_nobody(at);
    }

    fn close_all(&mut self, at: Moment) {
        let ids: Vec<TenantId> = self.tenants.keys().copied().collect();
        ids.into_iter().for_each(|id| self.close(id, at));
        self.changed.clear();
        self.close_nobody(at);
    }

    fn close(&mut self, id: TenantId, at: Moment) {
        let Some(open) = self.tenants.get_mut(&id) else { return };
        let entry = open.close(id, at, self.config.model.as_deref());
        if open.is_removed {
            self.tenants.remove(&id);
        }
        if !entry.usage.is_zero() || !entry.commands.is_empty() {
            let entry = self.labelled(entry);
            self.early.push(entry);
        }
    }

    fn close_nobody(&mut self, at: Moment) {
        let from = std::mem::replace(&mut self.closed_at, at.wall).min(at.wall);
        let (now, before) = (self.nobody, &mut self.nobody_before);
        let amounts = [
            (Kind::Unattributed, now.unattributed_ns, &mut before.unattributed_ns),
            (Kind::Unexplained, now.unexplained_ns, &mut before.unexplained_ns),
        ];
        let mut entries = Vec::new();
        for (kind, now_ns, before_ns) in amounts {
            let grown_ns = now_ns.saturating_sub(std::mem::replace(before_ns, now_ns));
            if grown_ns > 0 {
                let mut entry = Entry::event(kind, from, at.wall, "");
                entry.usage.set(Resource::CpuNs, grown_ns);
                entries.push(entry);
            }
        }
        for entry in entries {
            let entry = self.labelled(entry);
            self.early.push(entry);
        }
    }

    fn labelled(&self, entry: Entry) -> Entry {
        Entry {
            node: self.config.node.clone(),
            price_version: self.config.price_version.clone(),
            ..entry
        }
    }
}

impl Open {
    /// Memory that it is charged: its grant, and what its flash takes beside.
    fn memory_bytes(&self) -> u64 {
        self.grant_bytes.saturating_add(self.flash_memory_bytes)
    }

    /// Until now it had what it has.
    fn pass(&mut self, at: Moment) {
        self.held.pass(self.memory_bytes(), at.steady_ms);
        self.flash_held.pass(self.flash_grant_bytes, at.steady_ms);
    }

    /// A snapshot at the later of two moments (in milliseconds) says what the tenant did since the earlier one.
    fn model(&mut self, model: &Model, interval: Duration, report: &TenantSnapshot, (before_ms, now_ms): (u64, u64)) {
        self.estimated_ns = report.counters.cpu_model_ns;
        if self.estimated_ns.is_some() {
            return;
        }
        let work = Work::of(report);
        if self.tally.is_none() && work.operations == 0 {
            return;
        }
        let tally = self.tally.get_or_insert_default();
        let between_us = (before_ms * 1000, now_ms * 1000);
        tally.observe(model, work, Present::of(report), between_us);
        tally.estimate_after(model, interval);
    }

    fn model_ns(&self) -> u64 {
        let tallied = || self.tally.as_ref().map_or(0, |tally| tally.ns());
        self.estimated_ns.unwrap_or_else(tallied)
    }

    /// The use since the last entry.
    fn close(&mut self, id: TenantId, at: Moment, model: Option<&Model>) -> Entry {
        self.pass(at);
        if let (Some(model), Some(tally)) = (model, &mut self.tally) {
            tally.estimate(model);
        }
        self.now.set(Resource::CpuModelNs, self.model_ns());
        let mut usage = self.now.since(&self.before);
        usage.set(Resource::MemoryByteSeconds, self.held.take());
        usage.set(Resource::FlashByteSeconds, self.flash_held.take());
        let commands = commands_since(&self.commands_now, &self.commands_before);
        self.before = self.now;
        self.commands_before.clone_from(&self.commands_now);
        let from = std::mem::replace(&mut self.from, at.wall);
        Entry {
            tenant: Some(Subject {
                id,
                name: self.name.clone(),
            }),
            usage,
            is_modelled: model.is_some(),
            commands,
            ..Entry::event(Kind::Use, from.min(at.wall), at.wall, "")
        }
    }
}

fn usage_of(counters: &TenantCounters) -> Usage {
    let Refused {
        ops,
        bytes,
        connections,
        logins,
        replies,
        ..
    } = counters.refused;
    Usage::default()
        .with(Resource::CpuNs, counters.cpu_ns)
        .with(Resource::NetworkInBytes, counters.network_in_bytes)
        .with(Resource::NetworkOutBytes, counters.network_out_bytes)
        .with(Resource::Operations, counters.operations)
        .with(Resource::Gets, counters.gets)
        .with(Resource::Hits, counters.hits)
        .with(Resource::Sets, counters.sets)
        .with(Resource::Invocations, counters.function_invocations)
        .with(Resource::FunctionMibMs, counters.function_mib_ms)
        .with(
            Resource::FlashWrittenBytes,
            counters.flash.map_or(0, |flash| flash.written_bytes),
        )
        .with(Resource::Refused, ops + bytes + connections + logins + replies)
}

/// How much more often each command was executed, by outcome.
fn commands_since(now: &[CommandCount], before: &[CommandCount]) -> Vec<(String, u64)> {
    let known = |count: &CommandCount| {
        let kind = |count: &CommandCount| (count.protocol, count.command, count.outcome);
        let same = |other: &&CommandCount| kind(other) == kind(count);
        before.iter().find(same).map_or(0, |other| other.count)
    };
    let mut grown: Vec<(String, u64)> = now
        .iter()
        .map(|count| {
            (
                label_of(count.protocol, count.command, count.outcome),
                count.count.saturating_sub(known(count)),
            )
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    grown.sort_unstable();
    grown
}

#[cfg(test)]
mod tests;
