//! Gives the meter its readings: of each round's snapshot and plan, and of what the system says of the process; and hands what
//! it makes of them to the ledger.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use tidemark_meter::price::Tariff;
use tidemark_meter::{Entry, Kind, Meter, MeterConfig, Moment, ProcessCpu};
use tidemark_types::{Plan, Snapshot, TenantId, UnixMs};

use crate::process;

/// An entry of the ledger is for this long, unless something else is configured.
pub const DEFAULT_LEDGER_PERIOD: Duration = Duration::from_secs(60);
/// A shorter period would fill the ledger with rows of little use.
pub const MIN_LEDGER_PERIOD: Duration = Duration::from_secs(1);
/// Memory that is only held has a row an hour, so a longer period has no meaning.
pub const MAX_LEDGER_PERIOD: Duration = Duration::from_secs(3600);
/// What the system says of threads is read at most this often: it takes some microseconds a thread.
const PROCESS_EVERY_MS: u64 = 900;

/// How use is metered.
#[derive(Clone, Debug)]
pub struct Metering {
    /// What a row of the ledger is for: [`MIN_LEDGER_PERIOD`] to [`MAX_LEDGER_PERIOD`].
    pub period: Duration,
    /// The instance's name in the ledger.
    pub node: String,
    /// The prices, which say by their time which of them are in force.
    pub tariff: Option<Arc<Tariff>>,
    /// Where entries go; `None`: they are not kept.
    pub ledger: Option<SyncSender<LedgerMessage>>,
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
            steady_ms: process::steady_ms,
        }
    }
}

/// What the ledger's thread is told.
#[derive(Debug)]
pub enum LedgerMessage {
    /// To be written, in this order.
    Entries(Vec<Entry>),
    /// No more comes.
    End,
}

/// The meter with its readings.
pub(crate) struct Metered {
    meter: Meter,
    config: Metering,
    threads: Threads,
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
            }),
            config,
            threads: Threads::default(),
            read_at_ms: None,
            lost: None,
        }
    }

    /// A round's snapshot.
    pub(crate) fn observe(&mut self, snapshot: &Snapshot, wall: UnixMs, name_of: impl Fn(TenantId) -> Option<String>) {
        let at = self.moment(wall);
        self.follow_prices(at);
        self.meter.observe(snapshot, at, name_of);
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

    /// A plan that is in force from now on.
    pub(crate) fn follow(&mut self, plan: &Plan, wall: UnixMs) {
        let at = self.moment(wall);
        for tenant in &plan.tenants {
            self.meter
                .note_grant(tenant.id, tenant.name.as_str(), tenant.grant_bytes, at);
        }
    }

    /// Other prices, some of which may be in force now.
    pub(crate) fn set_tariff(&mut self, tariff: Option<Arc<Tariff>>, wall: UnixMs) {
        self.config.tariff = tariff;
        let at = self.moment(wall);
        self.follow_prices(at);
    }

    /// What is used from now on is by the prices that are in force now.
    fn follow_prices(&mut self, at: Moment) {
        let in_force = self.config.tariff.as_ref().and_then(|tariff| tariff.at(at.wall));
        let version = in_force.map_or("", |prices| prices.version.as_str());
        self.meter.set_price_version(version, at);
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

    /// Hands entries over; never waits. What there is no room for is a gap.
    fn keep(&mut self, mut entries: Vec<Entry>) {
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
    use std::sync::mpsc::sync_channel;

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
}
