//! `tidemark serve`: options, then the running server from its start to its end.

mod args;
mod cpu_model;
mod flash;
mod functions;
mod functions_report;
mod least;
pub(super) mod machine;
pub(super) mod panics;
mod prices;
mod printed;
mod s3;
mod spending;

use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use tidemark_admin::{Admin, AdminConfig, AdminError, BoundAdmin, Reports, Scraper, TOKEN_FILE_NAME};
use tidemark_agent::bodies::MemoryOf;
use tidemark_control::{
    Control, ControlConfig, ControlHandle, DEFAULT_HIT_COST, Joined, Ledger, Listeners, Mailbox, Metering, NodeError,
    NodeLease, StateFile, TenantAddress,
};
use tidemark_gateway::Gateway;
use tidemark_plane::Flash;
use tidemark_push::start_otlp;
use tidemark_server::{Protocol, Server, StartError, TenantListener};
use tidemark_types::{Clock, SystemClock, TenantName};

use crate::failure::Failure;
use crate::options::{Availability, Listening, Machine, ServeOptions, Sources, Written, check_variables};
use crate::output::{note, print};
use crate::{log, port_holder};

pub(super) use args::Args;
pub(super) use s3::Agency;

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark serve                                      memcached on 11211, Redis on 6379, 1 GiB
  tidemark serve --memory 8GiB --data /var/lib/tidemark
  tidemark serve --node-memory /run/tidemark          share the bytes in /run/tidemark/memory with other instances
  tidemark serve --flash /var/lib/tidemark/flash --flash-size 20GiB
  tidemark serve --config tidemark.toml --check-config
  tidemark serve --s3 127.0.0.1:9000 --origin 's3://photos?endpoint=https://s3.example.com'
  tidemark serve --redis 0.0.0.0:6379                 clients elsewhere must log in";

/// How long commands under way may take after SIGTERM. Container engines kill after ten seconds by default.
const DRAIN_LIMIT: Duration = Duration::from_secs(8);
/// The part of it for requests under way at the S3 address.
const GATEWAY_DRAIN_LIMIT: Duration = Duration::from_secs(3);

pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let usage = |error: crate::options::OptionError| Failure::usage(error.to_string());
    let sources =
        Sources::new(args.flags.clone(), args.config.clone(), |name| std::env::var_os(name)).map_err(usage)?;
    check_variables(std::env::vars_os().map(|(name, _)| name)).map_err(usage)?;
    let machine = machine::this();
    let written = sources.load().map_err(usage)?;
    let options = ServeOptions::check(&written, &machine).map_err(usage)?;
    prices::check(options.prices.as_deref(), written.place("prices").as_deref())?;
    cpu_model::read(&options.cpu_model, written.place("cpu_model").as_deref())?;
    spending::webhook(options.webhook.as_ref())?;
    functions::check(&options, &written)?;
    if args.print_config {
        return Ok(print(&printed::configuration(&options, &written, json))?);
    }
    if args.check_config {
        note("the configuration is good");
        return Ok(());
    }
    log::start()?;
    panics::end_the_process();
    // First, while a signal still ends the process: the others' memory may be some seconds in coming.
    let joined = options.node_memory.as_ref().map(|folder| {
        let most_bytes = options.memory_bytes.unwrap_or(machine.memory_bytes);
        Joined::join(folder, most_bytes, options.lease_period)
    });
    let joined = joined.transpose().map_err(|error| explain_node(&error, &written))?;
    let running = Running::start(&options, &written, &machine, joined, None)?;
    running.say_ready(&options)?;
    running.wait(options, &sources, &machine, || ())
}

/// Everything that runs.
pub(super) struct Running {
    server: Server,
    control: Control,
    admin: Admin,
    flash: Option<Arc<Flash>>,
    gateway: Option<Gateway>,
    ledger: Ledger,
    lease: Option<NodeLease>,
    listeners: Listeners,
    signals: Signals,
    /// From now on a signal ends the process at once.
    is_ending: Arc<AtomicBool>,
    /// The address at which other agents reach this one, if it is an agent.
    peer: Option<SocketAddr>,
}

impl Running {
    pub(super) fn start(
        options: &ServeOptions,
        written: &Written,
        machine: &Machine,
        joined: Option<Joined>,
        agency: Option<&Agency>,
    ) -> anyhow::Result<Self> {
        let alerts = spending::alerts(options.webhook.as_ref())?;
        let is_ending = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&is_ending))?;
        }
        // A limit on the length of files is one more full disk, which serving outlives. The write fails; nothing asks for the flag.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // First the folder: its lock keeps a second server from replacing the first one's socket.
        let state = StateFile::open(&options.data, clock.now())?;
        let (place, counted) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let reports = Reports {
            functions: functions::report(&place),
            gateway: functions::gateway_report(&counted),
        };
        let admin = BoundAdmin::bind(&AdminConfig {
            address: options.admin,
            folder: options.data.clone(),
            open_metrics: options.open_metrics,
            reports: reports.clone(),
        });
        let admin = admin.map_err(|error| explain_admin(error, written))?;
        // At once: should the start fail below, the next one finds the token made.
        if let Some(token) = admin.new_token() {
            let file = options.data.join(TOKEN_FILE_NAME);
            let file = file.display();
            // If this is no terminal, it is a log, which is kept and which others read.
            if io::stderr().is_terminal() {
                note(&format!("admin token (shown this once; it is also in {file}): {token}"));
            } else {
                tracing::info!(%file, "there is an admin token now");
            }
        }
        let mailbox = Mailbox::default();
        let memory_bytes = options.memory_bytes.unwrap_or(machine.memory_bytes);
        let first_lease = joined.as_ref().map(Joined::first_lease);
        let model = cpu_model::read(&options.cpu_model, written.place("cpu_model").as_deref())?;
        let config = tidemark_server::Config {
            memcached: options.memcached.general,
            redis: options.redis.general,
            of_tenants: of_tenants(options),
            allowed: options.allow.clone(),
            workers: options.workers,
            pin: options.pin,
            pool_bytes: first_lease.map_or(memory_bytes, |lease| lease.bytes),
            limits: tidemark_server::Limits::default(),
            flash: flash::open(options, &state)?,
            estimating: cpu_model::estimating(model.as_ref(), options.cpu_model_interval),
            measure: tidemark_server::CpuMeasure::default(),
        };
        let flash = config.flash.clone();
        let server = Server::start(&config, mailbox.waker()).map_err(|error| explain_server(error, written))?;
        let listeners = Listeners {
            memcached: server.memcached_addr(),
            redis: server.redis_addr(),
            of_tenants: server.of_tenants().iter().map(tenant_address).collect(),
            admin: admin.address(),
        };
        let ledger = Ledger::start(&options.data, options.ledger_retention, clock.now())?;
        let metering = Metering {
            tariff: prices::adopt(options.prices.as_deref(), &options.data)?,
            period: options.ledger_period,
            network_limit: options.network_limit,
            key_delimiter: options.key_delimiter,
            ledger: Some(ledger.sender()),
            model,
            model_interval: options.cpu_model_interval,
            alerts,
            ..Metering::new(machine::name())
        };
        let config = ControlConfig {
            metering: Some(metering),
            idling: options.idling,
            hit_cost: DEFAULT_HIT_COST,
            step_back: tidemark_server::step_back,
            listeners: listeners.clone(),
            lease: first_lease,
            flash_bytes: flash.as_ref().map_or(0, |flash| flash.size_bytes()),
            ..ControlConfig::new(memory_bytes, machine.memory_bytes, options.workers)
        };
        let control = Control::start(mailbox, state, server.data_plane(), clock, config)?;
        spending::count_before(control.handle(), &options.data, ledger.found())?;
        let lease = joined.map(|joined| joined.start(control.handle())).transpose()?;
        let beside = agency.map(|agency| &agency.beside);
        if let Some(otlp) = spending::collector(options) {
            let (scraper, handle) = (Scraper::new(&reports, beside), control.handle());
            start_otlp(&otlp, move || scraper.ask(&handle))?;
        }
        let admin = admin.serve(&control.handle(), beside)?;
        let gateway = options
            .s3
            .as_ref()
            .map(|s3| s3::start(s3, &options.data, server.neighbour(), agency, &place));
        let gateway = gateway.transpose().map_err(|error| explain_gateway(error, written))?;
        if let Some(gateway) = &gateway {
            let _ = counted.set(gateway.counted());
        }
        Ok(Self {
            server,
            control,
            admin,
            flash,
            gateway,
            ledger,
            lease,
            listeners,
            signals,
            is_ending,
            peer: agency.map(|agency| agency.peer),
        })
    }

    /// The one line on standard output, and the notes for an operator.
    pub(super) fn say_ready(&self, options: &ServeOptions) -> anyhow::Result<()> {
        let Listeners {
            memcached,
            redis,
            admin,
            ..
        } = self.listeners;
        let text =
            |address: Option<SocketAddr>| address.map_or_else(|| "off".to_owned(), |address| address.to_string());
        let s3 = self.gateway.as_ref().map(Gateway::address);
        let is_elsewhere = [memcached, redis]
            .into_iter()
            .flatten()
            .any(|address| !address.ip().is_loopback());
        let tenants = self.control.handle().tenants().wait()?;
        if is_elsewhere && tenants.iter().all(|tenant| tenant.secrets.is_empty()) {
            tracing::warn!(
                "clients from other machines must log in, but no tenant has a secret yet: see `tidemark tenant create`"
            );
        }
        if self.peer.is_none() && !tenants.iter().any(|tenant| tenant.open) {
            tracing::warn!(
                "there is no open tenant: clients on this machine must log in, too; `tidemark tenant create default` makes one"
            );
        }
        let data = options.data.display();
        print(&format!(
            "ready memcached={} redis={} admin={} s3={}{} data={data}",
            self.addresses(Protocol::Memcached, memcached),
            self.addresses(Protocol::Redis, redis),
            text(admin),
            text(s3),
            self.peer.map_or_else(String::new, |peer| format!(" peer={peer}"))
        ))?;
        let server = self.control.handle().server().wait()?;
        tracing::info!(memory_bytes = server.pool_bytes, workers = options.workers, "serving");
        Ok(())
    }

    /// Every address of a protocol as `--memcached` and `--redis` have them.
    fn addresses(&self, protocol: Protocol, general: Option<SocketAddr>) -> Listening {
        let of_tenants = self.server.of_tenants().iter().filter(|of| of.protocol == protocol);
        Listening {
            general,
            of_tenants: of_tenants.map(|of| (of.address, of.tenant.clone())).collect(),
        }
    }

    /// Serves until a signal says to end.
    /// Then `leave` is called before anything ends.
    pub(super) fn wait(
        mut self,
        mut options: ServeOptions,
        sources: &Sources,
        machine: &Machine,
        leave: impl FnOnce(),
    ) -> anyhow::Result<()> {
        let handle = self.control.handle();
        for signal in self.signals.forever() {
            if signal != SIGHUP {
                break;
            }
            match reload(&handle, self.lease.as_ref(), &options, sources, machine) {
                Ok(reloaded) => options = reloaded,
                Err(error) => tracing::error!("reload refused, nothing is changed: {error:#}"),
            }
        }
        self.is_ending.store(true, Ordering::SeqCst);
        leave();
        self.drain()
    }

    /// The control plane.
    pub(super) fn handle(&self) -> ControlHandle {
        self.control.handle()
    }

    /// The memory of a tenant by its name.
    pub(super) fn memory(&self) -> MemoryOf {
        let tenants = self.server.neighbour();
        Arc::new(move |name: &str| s3::memory(&tenants, name))
    }

    /// Ends in order: not ready any more, no new connections, commands in flight finished, then the rest.
    fn drain(self) -> anyhow::Result<()> {
        tracing::info!("draining");
        self.control.handle().set_draining();
        if let Some(gateway) = self.gateway {
            gateway.drain(GATEWAY_DRAIN_LIMIT);
        }
        self.server.drain(DRAIN_LIMIT);
        let stopped = self.control.stop();
        if let Some(flash) = &self.flash {
            flash::close(flash);
        }
        // Behind the last entries.
        self.ledger.stop();
        self.admin.stop();
        // Last: memory that others take of it now is with the system already.
        if let Some(lease) = self.lease {
            lease.stop();
        }
        stopped?;
        tracing::info!("stopped");
        Ok(())
    }
}

fn of_tenants(options: &ServeOptions) -> Vec<TenantListener> {
    let of = |protocol: Protocol, listening: &Listening| {
        let listener = move |(address, tenant): &(SocketAddr, TenantName)| TenantListener {
            protocol,
            address: *address,
            tenant: tenant.clone(),
        };
        listening.of_tenants.iter().map(listener).collect::<Vec<_>>()
    };
    [
        of(Protocol::Memcached, &options.memcached),
        of(Protocol::Redis, &options.redis),
    ]
    .concat()
}

fn tenant_address(listener: &TenantListener) -> TenantAddress {
    TenantAddress {
        protocol: listener.protocol.name(),
        address: listener.address,
        tenant: listener.tenant.to_string(),
    }
}

/// Reads the configuration again. Settings that can change while the server runs do; the rest is named. Returns the
/// configuration in force.
fn reload(
    handle: &ControlHandle,
    lease: Option<&NodeLease>,
    before: &ServeOptions,
    sources: &Sources,
    machine: &Machine,
) -> anyhow::Result<ServeOptions> {
    let wanted = ServeOptions::check(&sources.load()?, machine)?;
    let mut in_force = before.clone();
    if wanted.prices == before.prices && wanted.prices.is_some() {
        // The same file may say something else.
        let tariff = prices::adopt(wanted.prices.as_deref(), &before.data)?;
        handle.configure_prices(tariff).wait()?;
    }
    for option in wanted.changes(before) {
        let (from, to) = (before.text(option.key), wanted.text(option.key));
        if option.availability == Availability::Live {
            match option.key {
                "memory" => {
                    let memory_bytes = wanted.memory_bytes.unwrap_or(machine.memory_bytes);
                    handle.configure_pool(memory_bytes).wait()?;
                    in_force.memory_bytes = wanted.memory_bytes;
                }
                "prices" => {
                    let tariff = prices::adopt(wanted.prices.as_deref(), &before.data)?;
                    handle.configure_prices(tariff).wait()?;
                    in_force.prices.clone_from(&wanted.prices);
                }
                "lease_period" => {
                    if let Some(lease) = lease {
                        lease.set_period(wanted.lease_period);
                    }
                    in_force.lease_period = wanted.lease_period;
                }
                _ => {
                    handle.configure_idling(wanted.idling).wait()?;
                    in_force.idling = wanted.idling;
                }
            }
            tracing::info!(option = option.key, from, to, "reloaded");
        } else {
            tracing::warn!(
                option = option.key,
                from,
                to,
                "changed in the configuration: it needs a restart"
            );
        }
    }
    tracing::info!("configuration read again");
    Ok(in_force)
}

// The errors of the crates below say their cause themselves: as a `Failure` they say it once.

fn explain_admin(error: AdminError, written: &Written) -> Failure {
    match error {
        AdminError::Bind { address, source } => explain_bind("admin", address, &source, written),
        other => Failure::failed(other.to_string()),
    }
}

fn explain_server(error: StartError, written: &Written) -> Failure {
    match error {
        StartError::Bind {
            listener,
            address,
            source,
        } => explain_bind(listener, address, &source, written),
        other => Failure::failed(other.to_string()),
    }
}

fn explain_gateway(error: tidemark_gateway::StartError, written: &Written) -> Failure {
    match error {
        tidemark_gateway::StartError::Bind { address, source } => explain_bind("s3", address, &source, written),
        other => Failure::failed(other.to_string()),
    }
}

fn explain_node(error: &NodeError, written: &Written) -> Failure {
    let place = written.place("node_memory").unwrap_or_default();
    Failure::failed(format!("{place}: {error}"))
}

/// An address that cannot be had: the place where it was written, and the process that has it.
fn explain_bind(key: &str, address: SocketAddr, source: &io::Error, written: &Written) -> Failure {
    let place = written.place(key).unwrap_or_else(|| format!("--{key} {address}"));
    if source.kind() != io::ErrorKind::AddrInUse {
        return Failure::failed(format!("{place}: {source}"));
    }
    let port = address.port();
    let holder = port_holder::find(port).map_or_else(String::new, |holder| format!(" by {holder}"));
    Failure::failed(format!(
        "{place}: port {port} is taken{holder}: end that program, or give another address"
    ))
}
