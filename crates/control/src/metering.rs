//! Gives the meter its readings: of each round's snapshot and plan, and of the system's figures for the process. It
//! hands the meter's entries to the ledger.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tidemark_meter::model::Model;
use tidemark_meter::price::{Prices, Tariff};
use tidemark_meter::spending::{Alert, Restraint, SpendingLimit, Standing};
use tidemark_meter::top::DEFAULT_DELIMITER;
use tidemark_meter::{Entry, Grants, Kind, Meter, MeterConfig, Moment, ProcessCpu};
use tidemark_types::{BitRate, Plan, Snapshot, TenantId, UnixMs};

use crate::process;
use crate::rate_interval::RateInterval;
use crate::spending::{AlertSink, Limited, Spending, Spent};
use crate::tiers::TierPrices;
use crate::view::{AlertsView, CpuModelView, Priced, TopView};

/// An entry of the ledger is for this long, unless something else is configured.
pub const DEFAULT_LEDGER_PERIOD: Duration = Duration::from_secs(60);
/// A shorter period would fill the ledger with rows of little use.
pub const MIN_LEDGER_PERIOD: Duration = Duration::from_secs(1);
/// Memory that is only held has a row an hour, so a longer period has no meaning.
pub const MAX_LEDGER_PERIOD: Duration = Duration::from_secs(3600);
/// An estimate of the model is of this long, unless something else is configured: a round.
pub const DEFAULT_CPU_MODEL_INTERVAL: Duration = Duration::from_secs(1);
/// A shorter one would estimate single commands. Below a round, workers estimate.
pub const MIN_CPU_MODEL_INTERVAL: Duration = Duration::from_micros(1);
/// A longer one would mix loads that have little to do with each other.
pub const MAX_CPU_MODEL_INTERVAL: Duration = Duration::from_secs(60);
/// The system's figures for threads are read at most this often: it takes some microseconds a thread.
const PROCESS_EVERY_MS: u64 = 900;
/// Spending limits are judged at most this often: money is spent in minutes, not in the milliseconds between woken rounds.
const JUDGED_EVERY_MS: u64 = 900;

/// How use is metered.
#[derive(Clone, Debug)]
pub struct Metering {
    /// The time that a row of the ledger covers: [`MIN_LEDGER_PERIOD`] to [`MAX_LEDGER_PERIOD`].
    pub period: Duration,
    /// The instance's name in the ledger.
    pub node: String,
    /// The prices, which say by their time which of them are in force.
    pub tariff: Option<Arc<Tariff>>,
    /// The receiver of entries; `None`: they are not kept.
    pub ledger: Option<SyncSender<LedgerMessage>>,
    /// The model of CPU time; `None`: there is none.
    pub model: Option<Arc<Model>>,
    /// An estimate of it is of this long at least: [`MIN_CPU_MODEL_INTERVAL`] to [`MAX_CPU_MODEL_INTERVAL`]. One below
    /// [`DEFAULT_CPU_MODEL_INTERVAL`] is for the data plane, whose estimates are in its snapshots.
    pub model_interval: Duration,
    /// The receiver of alerts about spending limits; `None`: they are only logged.
    pub alerts: Option<AlertSink>,
    /// The capacity of the network, to say how much of it is used; `None`: it is not known.
    pub network_limit: Option<BitRate>,
    /// The delimiter that ends a prefix of keys, in the heaviest parts of a load.
    pub key_delimiter: u8,
    /// Time that passes whatever happens to the system's clock, in milliseconds since any moment.
    pub steady_ms: fn() -> u64,
}

impl Metering {
    /// On an instance of this name, without prices and without a ledger.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            period: DEFAULT_LEDGER_PERIOD,
            node: node.into(),
            tariff: None,
            ledger: None,
            model: None,
            model_interval: DEFAULT_CPU_MODEL_INTERVAL,
            alerts: None,
            network_limit: None,
            key_delimiter: DEFAULT_DELIMITER,
            steady_ms: process::steady_ms,
        }
    }
}

/// The messages to the ledger's thread.
#[derive(Debug)]
pub enum LedgerMessage {
    /// Entries to be written, in this order.
    Entries(Vec<Entry>),
    /// No more comes.
    End,
}

/// The meter with its readings.
pub(crate) struct Metered {
    meter: Meter,
    config: Metering,
    spending: Spending,
    /// Modelled CPU time of the last seconds, of tenants that have had commands.
    modelled: BTreeMap<TenantId, RateInterval>,
    /// When the last snapshot was.
    observed_at: UnixMs,
    judged_at_ms: Option<u64>,
    threads: Threads,
    /// Bytes of all tenants' requests and replies, by the time that cannot be set.
    network: RateInterval,
    read_at_ms: Option<u64>,
    /// Entries that the ledger's queue had no room for: their time, and how many.
    lost: Option<(UnixMs, UnixMs, usize)>,
}

impl Metered {
    pub(crate) fn new(config: Metering) -> Self {
        Self {
            meter: Meter::new(MeterConfig {
                period: config.period,
                node: config.node.clone(),
                price_version: String::new(),
                model: config.model.clone(),
                model_interval: config.model_interval,
                key_delimiter: config.key_delimiter,
            }),
            spending: Spending::new(config.tariff.as_ref()),
            config,
            modelled: BTreeMap::new(),
            observed_at: UnixMs::default(),
            judged_at_ms: None,
            threads: Threads::default(),
            network: RateInterval::default(),
            read_at_ms: None,
            lost: None,
        }
    }

    /// The prices of memory and flash that are in force, if there are both.
    pub(crate) fn tier_prices(&self, wall: UnixMs) -> Option<TierPrices> {
        TierPrices::of(self.config.tariff.as_ref()?.at(wall)?)
    }

    /// A round's snapshot.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, wall: UnixMs, name_of: impl Fn(TenantId) -> Option<String>) {
        let at = self.moment(wall);
        self.follow_prices(at);
        self.meter.observe(snapshot, at, name_of);
        self.note_modelled(snapshot);
        self.network.note(UnixMs(at.steady_ms), self.meter.network_bytes());
        let is_old = |read: u64| at.steady_ms.saturating_sub(read) >= PROCESS_EVERY_MS;
        if self.read_at_ms.is_none_or(is_old)
            && let Some(plane) = snapshot.cpu
        {
            self.read_at_ms = Some(at.steady_ms);
            let process = ProcessCpu {
                others_ns: self.threads.others_ns(Path::new("/proc/self/task")),
                total_ns: process::cpu_ns(),
            };
            self.meter.note_process(process, plane);
        }
        let entries = self.meter.entries(at);
        self.keep(entries);
    }

    /// Follows how fast modelled CPU time grows.
    fn note_modelled(&mut self, snapshot: &Snapshot) {
        let before = std::mem::replace(&mut self.observed_at, snapshot.at);
        for report in snapshot.tenants.iter().filter(|report| report.counters.operations > 0) {
            if let Some(ns) = self.meter.model_ns(report.id) {
                let interval = self.modelled.entry(report.id).or_insert_with(|| {
                    // It had none until the last snapshot.
                    let mut interval = RateInterval::default();
                    interval.note(before, 0);
                    interval
                });
                interval.note(snapshot.at, ns);
            }
        }
        for id in &snapshot.removed {
            self.modelled.remove(id);
        }
    }

    /// Modelled CPU time of a tenant: seconds in all, and vCPUs over the last ten seconds; `None` where there is no model.
    pub(crate) fn modelled(&self, id: TenantId, now: UnixMs) -> Option<(f64, f64)> {
        let ns = self.meter.model_ns(id)?;
        let vcpus = self
            .modelled
            .get(&id)
            .map_or(0.0, |interval| interval.per_second(now) / 1e9);
        Some((ns as f64 / 1e9, vcpus))
    }

    /// The model in force.
    pub(crate) fn model(&self) -> Option<CpuModelView> {
        let model = self.config.model.as_deref()?;
        Some(CpuModelView {
            reference: model.reference.clone(),
            machine: model.machine.clone(),
            factor: model.factor,
            r_squared: model.accuracy.r_squared,
            mean_error: model.accuracy.mean_error,
            held_out_loads: model.accuracy.held_out,
            loads: model.accuracy.loads,
        })
    }

    /// A plan that is in force from now on.
    pub(crate) fn follow(&mut self, plan: &Plan, wall: UnixMs) {
        let at = self.moment(wall);
        for tenant in &plan.tenants {
            let grants = Grants {
                memory_bytes: tenant.grant_bytes,
                flash_bytes: tenant.flash.grant_bytes,
            };
            self.meter.note_grants(tenant.id, tenant.name.as_str(), grants, at);
        }
    }

    /// Other prices, some of which may be in force now.
    pub(crate) fn set_tariff(&mut self, tariff: Option<Arc<Tariff>>, wall: UnixMs) {
        self.spending.set_tariff(tariff.as_ref());
        self.config.tariff = tariff;
        self.judged_at_ms = None;
        let at = self.moment(wall);
        self.follow_prices(at);
    }

    /// Use from now on is priced by the prices that are in force now.
    fn follow_prices(&mut self, at: Moment) {
        let in_force = self.config.tariff.as_ref().and_then(|tariff| tariff.at(at.wall));
        let version = in_force.map_or("", |prices| prices.version.as_str());
        self.meter.set_price_version(version, at);
    }

    /// The prices in force at a moment.
    pub(crate) fn prices(&self, wall: UnixMs) -> Option<&Prices> {
        self.config.tariff.as_ref()?.at(wall)
    }

    /// The spending before this process began.
    pub(crate) fn adopt_spent(&mut self, spent: Spent, limits: &BTreeMap<TenantId, SpendingLimit>, wall: UnixMs) {
        self.spending.adopt(spent, limits, wall);
        self.judged_at_ms = None;
    }

    /// Limits or prices are others: they are judged in the next round.
    pub(crate) fn judge_soon(&mut self) {
        self.judged_at_ms = None;
    }

    /// Whether limits are to be judged now.
    pub(crate) fn must_judge(&self) -> bool {
        let now_ms = (self.config.steady_ms)();
        let is_old = |judged: u64| now_ms.saturating_sub(judged) >= JUDGED_EVERY_MS;
        self.judged_at_ms.is_none_or(is_old)
    }

    /// The restraints of tenants from now on; alerts go out to those concerned.
    pub(crate) fn judge(
        &mut self,
        limits: &[(TenantId, SpendingLimit, u64)],
        wall: UnixMs,
        name_of: impl Fn(TenantId) -> Option<String>,
    ) -> Vec<(TenantId, Restraint)> {
        let at = self.moment(wall);
        self.judged_at_ms = Some(at.steady_ms);
        let mut restraints = Vec::with_capacity(limits.len());
        for &(id, limit, grant_bytes) in limits {
            let open = self.meter.open_entry(id, at);
            let limited = Limited { limit, grant_bytes };
            let (restraint, alerts) = self.spending.judge(id, &limited, open.as_ref(), wall);
            restraints.push((id, restraint));
            for alert in alerts {
                let alert = Alert {
                    tenant: name_of(id).unwrap_or_default(),
                    node: self.config.node.clone(),
                    ..alert
                };
                tracing::warn!(percent = alert.percent, "{alert}");
                if let Some(sink) = &self.config.alerts {
                    sink.tell(alert);
                }
            }
        }
        restraints
    }

    /// The money that a tenant's limit leaves for an hour of memory and flash in the rest of the month: the part that they had of
    /// what it spent so far.
    pub(crate) fn hourly(&self, id: TenantId, limit: &SpendingLimit, wall: UnixMs) -> Option<f64> {
        let (standing, _) = self.standing(id, wall)?;
        let (spent, held) = (standing.spent.as_f64(), standing.held.as_f64());
        let part = if spent > 0.0 {
            (held / spent).clamp(0.0, 1.0)
        } else {
            1.0
        };
        let left_hours = standing.left.as_secs_f64().max(1.0) / 3600.0;
        Some((limit.amount.as_f64() - spent).max(0.0) * part / left_hours)
    }

    /// How a tenant stands in this month, and the currency.
    pub(crate) fn standing(&self, id: TenantId, wall: UnixMs) -> Option<(Standing, &str)> {
        let open = self.meter.open_entry(id, self.moment(wall));
        self.spending.standing(id, open.as_ref(), wall)
    }

    /// The heaviest parts of a tenant's load.
    pub(crate) fn top(&self, id: TenantId, wall: UnixMs) -> TopView {
        let top = self.meter.top(id, self.moment(wall)).unwrap_or_default();
        let priced: Priced<'_> = self.config.tariff.as_deref().zip(self.prices(wall));
        TopView::new(&top, priced)
    }

    /// The outcomes of alerts: sent, failed, dropped; `None`: nobody sends them.
    pub(crate) fn alerts(&self) -> Option<AlertsView> {
        let counts = &self.config.alerts.as_ref()?.counts;
        Some(AlertsView {
            sent_total: counts.sent.load(Ordering::Relaxed),
            failed_total: counts.failed.load(Ordering::Relaxed),
            dropped_total: counts.dropped.load(Ordering::Relaxed),
        })
    }

    /// The server ends in order.
    pub(crate) fn end(&mut self, wall: UnixMs) {
        let at = self.moment(wall);
        let entries = self.meter.end(at);
        self.keep(entries);
    }

    /// Byte-seconds of a tenant's grant.
    pub(crate) fn byte_seconds(&self, id: TenantId, wall: UnixMs) -> Option<u64> {
        self.meter.byte_seconds(id, self.moment(wall))
    }

    /// Bytes of all tenants' requests and replies per second, of the last ten seconds.
    pub(crate) fn network_per_second(&self) -> f64 {
        self.network.per_second(UnixMs((self.config.steady_ms)()))
    }

    /// The capacity of the network, in bytes per second, if it was configured.
    pub(crate) fn network_limit(&self) -> Option<u64> {
        self.config.network_limit.map(BitRate::bytes_per_second)
    }

    /// CPU time that is no tenant's, in seconds: unattributed, and unexplained.
    pub(crate) fn nobody_seconds(&self) -> (f64, f64) {
        let (unattributed_ns, unexplained_ns) = self.meter.nobody_ns();
        (unattributed_ns as f64 / 1e9, unexplained_ns as f64 / 1e9)
    }

    fn moment(&self, wall: UnixMs) -> Moment {
        Moment {
            wall,
            steady_ms: (self.config.steady_ms)(),
        }
    }

    /// Hands entries over; never waits. An entry without room is a gap.
    fn keep(&mut self, mut entries: Vec<Entry>) {
        for entry in entries.iter().filter(|entry| entry.kind == Kind::Use) {
            self.spending.add(entry);
            let gone = entry.tenant.as_ref().filter(|tenant| !self.meter.knows(tenant.id));
            if let Some(tenant) = gone {
                self.spending.forget(tenant.id);
            }
        }
        let Some(ledger) = &self.config.ledger else { return };
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return;
        };
        let (from, to) = (first.from, last.to);
        if let Some((from, to, count)) = self.lost {
            let note = format!("{count} entries were lost: the ledger could not keep up");
            entries.insert(0, Entry::event(Kind::Gap, from, to, note));
        }
        match ledger.try_send(LedgerMessage::Entries(entries)) {
            Ok(()) => self.lost = None,
            Err(
                TrySendError::Full(LedgerMessage::Entries(entries))
                | TrySendError::Disconnected(LedgerMessage::Entries(entries)),
            ) => {
                let (lost_from, count) = self.lost.map_or((from, 0), |(from, _, count)| (from, count));
                let news = entries.len() - usize::from(self.lost.is_some());
                if self.lost.is_none() {
                    tracing::error!("the ledger does not keep up: entries are lost");
                }
                self.lost = Some((lost_from, to, count + news));
            }
            Err(_) => {}
        }
    }
}

/// CPU time of the process's threads that serve no clients, those that have ended included.
#[derive(Debug, Default)]
struct Threads(HashMap<u32, u64>);

impl Threads {
    /// In nanoseconds. Known are the main thread and all whose names begin with `tidemark-`; workers measure themselves. Linux
    /// tells of each thread (`Documentation/scheduler/sched-stats.rst`); where it does not, there is nothing.
    fn others_ns(&mut self, folder: &Path) -> u64 {
        let process = std::process::id();
        let threads = std::fs::read_dir(folder).into_iter().flatten().flatten();
        for thread in threads {
            let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // A thread that ends meanwhile has no more files.
            let read = |file: &str| std::fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            let name = read("comm");
            if id != process && !is_known(name.trim_end()) {
                self.0.remove(&id);
                continue;
            }
            let ran = read("schedstat");
            if let Some(ns) = ran.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()) {
                let before = self.0.entry(id).or_insert(0);
                *before = u64::max(*before, ns);
            }
        }
        self.0.values().sum()
    }
}

/// Whether a thread is one of this program's that serve no clients.
fn is_known(name: &str) -> bool {
    let is_worker = |rest: &str| {
        rest.strip_prefix('w')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    name.strip_prefix("tidemark-").is_some_and(|rest| !is_worker(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::mpsc::{Receiver, sync_channel};

    use tidemark_meter::Resource;
    use tidemark_meter::bill::{Used, bill};
    use tidemark_meter::price::{CpuFigure, Free, METERS, Money};
    use tidemark_types::{Samples, SamplingThreshold, TenantCounters, TenantSnapshot, VisitSamples};

    #[test]
    fn workers_and_strangers_are_not_among_the_known_threads() {
        for (name, expected) in [
            ("tidemark-control", true),
            ("tidemark-ledger", true),
            ("tidemark-watch", true),
            ("tidemark-w0", false),
            ("tidemark-w255", false),
            ("tidemark", false),
            ("someone-else", false),
        ] {
            assert_eq!(is_known(name), expected, "{name}");
        }
    }

    #[test]
    fn a_thread_of_a_known_name_is_counted_also_after_its_end() {
        let mut threads = Threads::default();
        let folder = Path::new("/proc/self/task");
        let before = threads.others_ns(folder);
        let work = || {
            let mut sum = 0_u64;
            while process::thread_cpu_time() < Duration::from_millis(30) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
        };
        let (done, is_done) = sync_channel::<()>(0);
        let (go, may_go) = sync_channel::<()>(0);
        let thread = std::thread::Builder::new().name("tidemark-test".into()).spawn(move || {
            work();
            done.send(()).unwrap();
            may_go.recv().unwrap();
        });
        is_done.recv().unwrap();
        let during = threads.others_ns(folder);
        assert!(during - before >= 20_000_000, "{before} {during}");
        go.send(()).unwrap();
        thread.unwrap().join().unwrap();
        assert!(threads.others_ns(folder) >= during);
    }

    #[test]
    fn what_the_queue_has_no_room_for_is_a_gap() {
        let (sender, receiver) = sync_channel(1);
        let mut metered = Metered::new(Metering {
            ledger: Some(sender),
            ..Metering::new("here")
        });
        let event = |ms| vec![Entry::event(Kind::Use, UnixMs(ms), UnixMs(ms + 1), "")];
        metered.keep(event(1));
        metered.keep(event(2));
        metered.keep(event(3));
        let taken = || match receiver.try_recv() {
            Ok(LedgerMessage::Entries(entries)) => entries,
            other => panic!("{other:?}"),
        };
        assert_eq!(taken(), event(1));
        metered.keep(event(4));
        let entries = taken();
        let gap = &entries[0];
        assert_eq!((gap.kind, gap.from, gap.to), (Kind::Gap, UnixMs(2), UnixMs(4)));
        assert!(gap.note.starts_with("2 entries"), "{}", gap.note);
        assert_eq!(entries[1..], event(4));
        metered.keep(event(5));
        assert_eq!(taken(), event(5), "the gap is told once");
    }

    thread_local! {
        static PASSED_MS: Cell<u64> = const { Cell::new(0) };
    }

    /// A snapshot in which a tenant has executed so many commands.
    fn snapshot(operations: u64) -> Snapshot {
        Snapshot {
            tenants: vec![TenantSnapshot {
                id: TenantId(1),
                grant_bytes: 0,
                usage_bytes: 0,
                items: 0,
                connections: 1,
                counters: TenantCounters {
                    operations,
                    ..TenantCounters::default()
                },
                samples: Samples {
                    threshold: SamplingThreshold::OFF,
                    records: Vec::new(),
                },
                shards: Vec::new(),
                commands: Vec::new(),
                visits: VisitSamples::default(),
            }],
            ..Snapshot::default()
        }
    }

    fn rows_of(receiver: &Receiver<LedgerMessage>) -> Vec<Entry> {
        let taken = receiver.try_iter().flat_map(|message| match message {
            LedgerMessage::Entries(entries) => entries,
            LedgerMessage::End => Vec::new(),
        });
        taken.filter(|entry| entry.kind == Kind::Use).collect()
    }

    /// The clock is the test's: the second prices come into force half a second behind the twentieth round of a minute.
    #[test]
    fn prices_that_change_in_the_middle_of_a_minute_end_its_row() {
        const MINUTE: u64 = 60_000 * 29_000_000;
        let prices = |version: &str, from: u64, operation: &str| {
            let operations = METERS.iter().position(|meter| meter.key == "operations_million");
            let mut units = [Money::default(); METERS.len()];
            units[operations.unwrap()] = Money::parse(operation).unwrap();
            Prices {
                version: version.into(),
                from: UnixMs(from),
                until: None,
                units,
            }
        };
        let tariff = Arc::new(Tariff {
            currency: "USD".into(),
            cpu: CpuFigure::Measured,
            free: Free::ALL.to_vec(),
            prices: vec![prices("v1", 0, "1000000"), prices("v2", MINUTE + 20_500, "3000000")],
            instances: Vec::new(),
        });
        let (sender, receiver) = sync_channel(100);
        let mut metered = Metered::new(Metering {
            tariff: Some(Arc::clone(&tariff)),
            ledger: Some(sender),
            steady_ms: || PASSED_MS.get(),
            ..Metering::new("here")
        });
        metered.adopt_spent(Spent::default(), &BTreeMap::new(), UnixMs(MINUTE));
        for second in 0..=60 {
            PASSED_MS.set(second * 1000);
            let wall = UnixMs(MINUTE + second * 1000);
            metered.observe(&snapshot(second * 10), wall, |_| Some("shop".into()));
        }
        let rows = rows_of(&receiver);
        let told: Vec<_> = rows
            .iter()
            .map(|row| {
                let operations = row.usage.get(Resource::Operations);
                let time = (row.from.0 - MINUTE, row.to.0 - MINUTE);
                (row.price_version.as_str(), time, operations)
            })
            .collect();
        assert_eq!(told, [("v1", (0, 21_000), 200), ("v2", (21_000, 60_000), 400)]);
        let mut used: BTreeMap<String, Used> = BTreeMap::new();
        for row in &rows {
            let of_version = used.entry(row.price_version.clone()).or_default();
            of_version.add(row, &tariff);
        }
        assert_eq!(bill(&used, &tariff).total, Money::parse("1400").unwrap());
        // Spending is judged by the same prices.
        let (standing, _) = metered.standing(TenantId(1), UnixMs(MINUTE + 60_000)).unwrap();
        assert_eq!(standing.spent, Money::parse("1400").unwrap());
    }
}
