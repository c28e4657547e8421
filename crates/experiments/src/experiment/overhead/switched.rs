//! A server whose elasticity can be switched off and on: the ordinary server and control plane, with a switch between them.
//!
//! Off, nothing is sampled and no round is made. The time in which it was off does not exist for the control plane. Its
//! clock stands still, and counts of that time are taken from all later counters. Earlier samples are handed over
//! afterwards. It goes on as if it had never been off.
//!
//! If the server itself is slowed down, as under valgrind, the control plane's time can be slowed with it, and workers read their
//! CPU clocks as much later. A round and a second then have as many requests as they have in use.
//!
//! How it is metered does not change while it runs ([`Metered`]).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use signal_hook::iterator::Signals;
use tempfile::TempDir;
use tidemark_control::{
    Change, Control, ControlConfig, DEFAULT_CPU_MODEL_INTERVAL, DEFAULT_LEDGER_PERIOD, DEFAULT_LEDGER_RETENTION,
    DEFAULT_ROUND_PERIOD, Ledger, Mailbox, MemoryState, Metering, ServerPatch, SettingsPatch,
};
use tidemark_meter::model::parse;
use tidemark_server::{Config, CpuMeasure, Estimating, Limits, Server};
use tidemark_types::{
    Clock, DataPlane, HitRatio, LoadShape, Plan, SamplingThreshold, Served, Snapshot, SystemClock, TenantCounters,
    TenantId, TenantPlan, TenantState, UnixMs,
};

use crate::Error;

/// Switches elasticity on.
pub(super) const ON: Signal = Signal::USR1;
/// Switches it off.
pub(super) const OFF: Signal = Signal::USR2;

/// The shape of the server.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// How many tenants it has, each with the goal.
    pub tenants: usize,
    /// The hit ratio that each aims at, above 0 and below 1.
    pub goal: f64,
    /// The pool, in bytes.
    pub pool_bytes: u64,
    /// How many seconds are one to the control plane, at least 1; its rounds are as many times further apart, and estimates.
    pub slowed: u32,
    /// How it is metered.
    pub metered: Metered,
}

/// How the server is metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metered {
    /// Not at all: not even CPU time is measured.
    No,
    /// CPU time is measured, and nothing is made of it.
    #[default]
    Shares,
    /// Each request is stamped, and nothing is made of it.
    Requests,
    /// Rows are made and written, without a model.
    Rows,
    /// The same with the model that comes with the program, at this interval.
    Modelled(Duration),
}

const NAMES: [(&str, Metered); 4] = [
    ("no", Metered::No),
    ("shares", Metered::Shares),
    ("requests", Metered::Requests),
    ("rows", Metered::Rows),
];
const MICROSECONDS: &str = "us";

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (NAMES.iter().find(|(_, one)| one == self), self) {
            (_, Self::Modelled(interval)) => write!(f, "{}{MICROSECONDS}", interval.as_micros()),
            (found, _) => f.write_str(found.map_or("", |(name, _)| name)),
        }
    }
}

impl FromStr for Metered {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, one)| *one);
        let interval = text.strip_suffix(MICROSECONDS).and_then(|number| number.parse().ok());
        let modelled = interval.map(|us| Self::Modelled(Duration::from_micros(us)));
        named
            .or(modelled)
            .ok_or_else(|| "must be no, shares, requests, rows, or an interval such as 1000us".into())
    }
}

impl Metered {
    fn measure(self, slowed: u32) -> CpuMeasure {
        match (self, CpuMeasure::default()) {
            (Self::No, _) => CpuMeasure::Off,
            (Self::Requests, _) => CpuMeasure::Requests,
            (_, CpuMeasure::Shares { after }) => CpuMeasure::Shares { after: after * slowed },
            (_, other) => other,
        }
    }

    /// The ledger's folder, the ledger, and the meter's settings, if rows are made.
    fn start(self, slowed: u32) -> Result<Option<(TempDir, Ledger, Metering)>, Error> {
        let interval = match self {
            Self::No | Self::Shares | Self::Requests => return Ok(None),
            Self::Rows => None,
            Self::Modelled(interval) => Some(interval * slowed),
        };
        let model = interval.map(|_| parse(MODEL)).transpose();
        let model = model.map_err(|error| Error::Usage(error.to_string()))?;
        let folder = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
        let ledger = Ledger::start(folder.path(), DEFAULT_LEDGER_RETENTION, SystemClock.now())?;
        let metering = Metering {
            period: DEFAULT_LEDGER_PERIOD * slowed,
            ledger: Some(ledger.sender()),
            model: model.map(Arc::new),
            model_interval: interval.unwrap_or(DEFAULT_CPU_MODEL_INTERVAL),
            ..Metering::new("switched")
        };
        Ok(Some((folder, ledger, metering)))
    }
}

/// The model that comes with the program.
const MODEL: &str = include_str!("../../../../tidemark/src/commands/serve/cpu_model.toml");

/// Serves on a free port of 127.0.0.1 until the process is ended. `say` is told a line: first `ready`, the address, and each
/// tenant's name and secret; then, after each signal, `on` or `off`.
///
/// # Errors
/// The system's, or the control plane's.
pub fn serve(shape: Shape, mut say: impl FnMut(&str) -> io::Result<()>) -> Result<(), Error> {
    let mut signals = Signals::new([ON.as_raw(), OFF.as_raw()]).map_err(Error::System)?;
    let mailbox = Mailbox::default();
    // The ledger's thread writes, and its folder stays, as long as this does.
    let metered = shape.metered.start(shape.slowed)?;
    let metering = metered.as_ref().map(|(_, _, metering)| metering.clone());
    let config = Config {
        memcached: None,
        redis: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
        of_tenants: Vec::new(),
        allowed: Vec::new(),
        workers: 1,
        pin: false,
        pool_bytes: shape.pool_bytes,
        limits: Limits::default(),
        flash: None,
        estimating: metering.as_ref().and_then(estimating),
        measure: shape.metered.measure(shape.slowed),
    };
    let failed = |reason: String| Error::Program {
        program: "the switched server".into(),
        reason,
    };
    // Without a control plane, or without a worker, there would be nothing to measure.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let server = Server::start(&config, mailbox.waker()).map_err(|error| failed(error.to_string()))?;
    let switch = Arc::new(Switch::new(server.data_plane(), shape.slowed));
    let config = ControlConfig {
        step_back: tidemark_server::step_back,
        metering,
        ..ControlConfig::new(shape.pool_bytes, shape.pool_bytes, 1)
    };
    let control = Control::start(
        mailbox,
        MemoryState::default(),
        Arc::clone(&switch) as _,
        Arc::clone(&switch) as _,
        config,
    )?;
    let patch = ServerPatch {
        round_period: Change::Set(DEFAULT_ROUND_PERIOD * shape.slowed),
        ..ServerPatch::default()
    };
    control.handle().set_server(patch).wait()?;
    let address = server.redis_addr().ok_or_else(|| failed("it does not listen".into()))?;
    let mut ready = format!("ready {address}");
    let goal = HitRatio::new(shape.goal).map_err(|error| Error::Usage(error.to_string()))?;
    for number in 0..shape.tenants {
        let patch = SettingsPatch {
            hit_ratio: Change::Set(goal),
            ..SettingsPatch::default()
        };
        let name = format!("t{number}");
        let secret = control.handle().create_tenant(name.as_str(), patch).wait()?;
        ready.push_str(&format!(" {name} {}", secret.expose()));
    }
    say(&ready).map_err(Error::System)?;
    for signal in signals.forever() {
        let is_on = signal == ON.as_raw();
        switch.set(is_on);
        say(if is_on { "on" } else { "off" }).map_err(Error::System)?;
    }
    Ok(())
}

/// How workers estimate: below a round there are more estimates than snapshots.
fn estimating(metering: &Metering) -> Option<Estimating> {
    let model = metering.model.as_ref()?;
    let estimating = Estimating {
        model: Arc::clone(model),
        interval: metering.model_interval,
    };
    (metering.model_interval < DEFAULT_CPU_MODEL_INTERVAL).then_some(estimating)
}

/// A data plane that the control plane reaches only while the switch is on, and the control plane's clock.
struct Switch {
    behind: Arc<dyn DataPlane>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    is_off: bool,
    /// When the control plane's time began, and how much slower it goes.
    began: UnixMs,
    slowed: u32,
    /// How long it was off, and since when it is.
    off_for: Duration,
    off_since: UnixMs,
    sequence: u64,
    pool_bytes: u64,
    /// The newest plan of each tenant.
    plans: BTreeMap<TenantId, TenantPlan>,
    /// The counters of each tenant when it was last looked at.
    counted: BTreeMap<TenantId, TenantCounters>,
    /// The part of them that it counted while the switch was off.
    hidden: BTreeMap<TenantId, TenantCounters>,
    /// The snapshot from the last round to switching off.
    rest: Option<Snapshot>,
}

impl Switch {
    fn new(behind: Arc<dyn DataPlane>, slowed: u32) -> Self {
        let began = SystemClock.now();
        Self {
            behind,
            state: Mutex::new(State {
                is_off: false,
                began,
                slowed: slowed.max(1),
                off_for: Duration::ZERO,
                off_since: began,
                sequence: 0,
                pool_bytes: 0,
                plans: BTreeMap::new(),
                counted: BTreeMap::new(),
                hidden: BTreeMap::new(),
                rest: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, is_on: bool) {
        let mut state = self.lock();
        if state.is_off != is_on {
            return;
        }
        if is_on {
            let off_for = SystemClock.now().since(state.off_since);
            state.off_for += off_for;
            state.is_off = false;
            self.publish(&mut state);
            // The samples of the time while it was off are none; thresholds hold from here on.
            self.hide(&mut state);
        } else {
            let rest = self.look(&mut state);
            state.rest = Some(rest);
            state.off_since = SystemClock.now();
            state.is_off = true;
            self.publish(&mut state);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Every tenant's plan again, with sampling or without.
    fn publish(&self, state: &mut State) {
        let tenants = state.plans.values().cloned().collect();
        self.apply_now(state, tenants);
    }

    fn apply_now(&self, state: &mut State, mut tenants: Vec<TenantPlan>) {
        if state.is_off {
            for plan in &mut tenants {
                plan.sampling_threshold = SamplingThreshold::OFF;
            }
        }
        state.sequence += 1;
        self.behind.apply(&Plan {
            sequence: state.sequence,
            pool_bytes: state.pool_bytes,
            tenants,
        });
    }

    /// A snapshot without the hidden counts.
    fn look(&self, state: &mut State) -> Snapshot {
        let mut snapshot = self.behind.snapshot();
        for tenant in &mut snapshot.tenants {
            state.counted.insert(tenant.id, tenant.counters);
            if let Some(hidden) = state.hidden.get(&tenant.id) {
                tenant.counters = minus(tenant.counters, *hidden);
            }
        }
        snapshot.at = state.now();
        snapshot
    }

    /// Takes what happened since the last look out of sight.
    fn hide(&self, state: &mut State) {
        for tenant in self.behind.snapshot().tenants {
            let before = state.counted.insert(tenant.id, tenant.counters).unwrap_or_default();
            let hidden = state.hidden.entry(tenant.id).or_default();
            *hidden = plus(*hidden, minus(tenant.counters, before));
        }
    }
}

impl State {
    fn now(&self) -> UnixMs {
        let real = if self.is_off { self.off_since } else { SystemClock.now() };
        let on_for = real.since(self.began).saturating_sub(self.off_for);
        self.began.plus(on_for / self.slowed)
    }
}

impl Clock for Switch {
    fn now(&self) -> UnixMs {
        self.lock().now()
    }
}

impl DataPlane for Switch {
    fn apply(&self, plan: &Plan) {
        let mut state = self.lock();
        state.pool_bytes = plan.pool_bytes;
        for tenant in &plan.tenants {
            if tenant.state == TenantState::Removing {
                state.plans.remove(&tenant.id);
            } else {
                state.plans.insert(tenant.id, tenant.clone());
            }
        }
        self.apply_now(&mut state, plan.tenants.clone());
    }

    fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let waited = self.changed.wait_while(state, |state| state.is_off);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match state.rest.take() {
            Some(rest) => rest,
            None => self.look(&mut state),
        }
    }
}

fn plus(a: TenantCounters, b: TenantCounters) -> TenantCounters {
    each(a, b, |a, b| a + b)
}

fn minus(a: TenantCounters, b: TenantCounters) -> TenantCounters {
    each(a, b, |a, b| a - b)
}

fn each(a: TenantCounters, b: TenantCounters, of: fn(u64, u64) -> u64) -> TenantCounters {
    TenantCounters {
        gets: of(a.gets, b.gets),
        hits: of(a.hits, b.hits),
        sets: of(a.sets, b.sets),
        evicted: of(a.evicted, b.evicted),
        expired: of(a.expired, b.expired),
        refused_memory: of(a.refused_memory, b.refused_memory),
        function_invocations: of(a.function_invocations, b.function_invocations),
        function_mib_ms: of(a.function_mib_ms, b.function_mib_ms),
        network_in_bytes: of(a.network_in_bytes, b.network_in_bytes),
        network_out_bytes: of(a.network_out_bytes, b.network_out_bytes),
        served: Served {
            requests: of(a.served.requests, b.served.requests),
            us: of(a.served.us, b.served.us),
        },
        // There are no limits.
        refused: a.refused,
        operations: of(a.operations, b.operations),
        cpu_ns: of(a.cpu_ns, b.cpu_ns),
        cpu_model_ns: None,
        shape: LoadShape {
            visits: of(a.shape.visits, b.shape.visits),
            arrivals: of(a.shape.arrivals, b.shape.arrivals),
            written_key_bytes: of(a.shape.written_key_bytes, b.shape.written_key_bytes),
            written_value_bytes: of(a.shape.written_value_bytes, b.shape.written_value_bytes),
        },
        // There is none.
        flash: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_it_is_metered_is_read_as_it_is_written() {
        let modelled = Metered::Modelled(Duration::from_millis(1));
        for (text, metered) in NAMES.into_iter().chain([("1000us", modelled)]) {
            assert_eq!(text.parse(), Ok(metered));
            assert_eq!(metered.to_string(), text);
        }
        for wrong in ["", "1ms", "us", "yes"] {
            assert!(wrong.parse::<Metered>().is_err(), "{wrong}");
        }
    }
}
