//! `tidemark agent`: the server's composition, with cachelets behind its S3 address.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidemark_admin::Beside;
use tidemark_agent::adapters::{self, Kubernetes, KubernetesConfig, Trace};
use tidemark_agent::bodies::Engine;
use tidemark_agent::{Agent, AgentConfig};
use tidemark_control::{ControlHandle, SettingsPatch};
use tidemark_gateway::access::{AccessTable, ServerKey};
use tidemark_gateway::config::credentials_of;
use tokio::sync::watch;

use super::RunArgs;
use super::show::PATH;
use crate::commands::serve::{Agency, Running, machine, panics};
use crate::failure::Failure;
use crate::log;
use crate::options::{ServeOptions, Sources};

/// The folder in which a pod finds the token and the certificates for its API server.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The pool follows what instances do not use at this interval: grants are decided as often.
const POOL_REST: Duration = Duration::from_secs(1);
/// How long cachelets may take to leave their domains after a signal.
const LEAVE_LIMIT: Duration = Duration::from_secs(3);

pub(super) fn run(args: &RunArgs, data: Option<&Path>) -> anyhow::Result<()> {
    let usage = |error: crate::options::OptionError| Failure::usage(error.to_string());
    let sources = Sources::new(flags(args, data), args.config.clone(), |name| std::env::var_os(name)).map_err(usage)?;
    let machine = machine::this();
    let written = sources.load().map_err(usage)?;
    let options = ServeOptions::check(&written, &machine).map_err(usage)?;
    let s3 = options.s3.as_ref().context("the S3 address is off")?;
    log::start()?;
    panics::end_the_process();
    let config = AgentConfig {
        node: args.node.clone().unwrap_or_else(machine::name),
        etcd: args.etcd.clone().unwrap_or_default(),
        peer: args.peer,
        advertise: args.advertise,
        secret_file: args.peer_secret_file.clone(),
        cluster: args.cluster,
        apps: args.domain.clone(),
        origins: s3.origins.clone(),
        credentials: credentials_of(|name| std::env::var(name).ok()),
        workers: s3.workers,
        budget_bytes: args.budget.0,
        chooser: args.chooser.0,
        choosing_percent: tidemark_agent::tuning::PERCENT,
        cgroup_root: args.cgroup_root.clone(),
        engine: Some(Engine::default()),
    };
    let instances = InstanceSources::of(args, &config)?;
    let mut private = std::fs::DirBuilder::new();
    let made = private.recursive(true).mode(0o700).create(&options.data);
    made.with_context(|| options.data.display().to_string())?;
    let agent = Arc::new(Agent::start(&config).map_err(|error| Failure::failed(error.to_string()))?);
    let key = ServerKey::adopt(&options.data, agent.s3_key()).map_err(|error| Failure::failed(error.to_string()))?;
    write_access(&agent, &options.data)?;
    let running = Running::start(&options, &written, &machine, None, Some(&agency(&agent, key)))?;
    if let Some(engine) = &config.engine {
        engine.starts(running.memory());
    }
    follow(&agent, running.handle(), &options.data)?;
    agent
        .handle()
        .spawn(follow_unused(agent.unused_bytes(), running.handle()));
    instances.start(&agent);
    running.say_ready(&options)?;
    let ended = running.wait(options, &sources, &machine, || agent.leave(LEAVE_LIMIT));
    agent.end();
    drop(agent);
    ended
}

/// The sources of events about instances, beside the local API.
struct InstanceSources {
    kubernetes: Option<Kubernetes>,
    trace: Option<Trace>,
}

impl InstanceSources {
    fn of(args: &RunArgs, config: &AgentConfig) -> Result<Self, Failure> {
        let own = |file: &str| Some(Path::new(SERVICE_ACCOUNT).join(file)).filter(|file| file.is_file());
        let kubernetes = args.kubernetes.as_ref().map(|url| {
            let followed = Kubernetes::new(&KubernetesConfig {
                url: url.clone(),
                token_file: args.kubernetes_token.clone().or_else(|| own("token")),
                ca_file: args.kubernetes_ca.clone().or_else(|| own("ca.crt")),
                node: config.node.clone(),
                cgroup_root: config.cgroup_root.clone(),
            });
            followed.map_err(|error| Failure::usage(format!("--kubernetes: {error}")))
        });
        let trace = args.trace.as_ref().map(|file| {
            let read = Trace::read(file, &config.node, args.trace_speed);
            read.map_err(|error| Failure::usage(format!("--trace {}: {error}", file.display())))
        });
        Ok(Self {
            kubernetes: kubernetes.transpose()?,
            trace: trace.transpose()?,
        })
    }

    fn start(self, agent: &Arc<Agent>) {
        if let Some(kubernetes) = self.kubernetes {
            agent.handle().spawn(kubernetes.run(adapters::feed(agent)));
        }
        if let Some(trace) = self.trace {
            agent.handle().spawn(trace.play(adapters::feed(agent)));
        }
    }
}

/// The flags of `tidemark serve` that say the same.
fn flags(args: &RunArgs, data: Option<&Path>) -> BTreeMap<&'static str, String> {
    let data = args.data.as_deref().or(data).map(|data| data.display().to_string());
    let mut flags = BTreeMap::from([
        ("memcached", "off".to_owned()),
        ("redis", "off".to_owned()),
        ("s3", args.s3.clone()),
        ("origin", args.origin.clone().unwrap_or_default()),
    ]);
    let optional = [
        ("s3_workers", &args.s3_workers),
        ("admin", &args.admin),
        ("memory", &args.memory),
        ("workers", &args.workers),
        ("data", &data),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            flags.insert(key, value.clone());
        }
    }
    flags
}

fn agency(agent: &Arc<Agent>, key: ServerKey) -> Agency {
    let (numbers, metrics) = (Arc::clone(agent), Arc::clone(agent));
    Agency {
        objects: agent.objects(),
        threads: agent.handle().clone(),
        number: Arc::new(move |name| numbers.number_of(name)),
        beside: Beside {
            path: PATH,
            router: tidemark_agent::api::router(Arc::clone(agent), key),
            metrics: Arc::new(move || tidemark_agent::show::metrics(&metrics)),
        },
        peer: agent.address(),
    }
}

/// Access of applications as etcd has it, for the S3 address.
fn write_access(agent: &Agent, folder: &Path) -> anyhow::Result<()> {
    let mut table = AccessTable::default();
    for (app, record) in agent.apps() {
        table.set(&app, record.access);
    }
    if AccessTable::read(folder).ok().as_ref() != Some(&table) {
        table.write(folder)?;
    }
    Ok(())
}

/// Applications are tenants of this node: those that etcd has are made here.
fn follow(agent: &Arc<Agent>, control: ControlHandle, folder: &Path) -> anyhow::Result<()> {
    let made = make_tenants(agent, &control, BTreeSet::new());
    let (agent, folder) = (Arc::clone(agent), folder.to_owned());
    let mut changed = agent.apps_changed();
    let watching = move || {
        let mut made = made;
        while agent.handle().block_on(changed.changed()).is_ok() {
            made = make_tenants(&agent, &control, made);
            if let Err(error) = write_access(&agent, &folder) {
                tracing::error!("access of applications: {error:#}");
            }
        }
    };
    let named = std::thread::Builder::new().name("tidemark-apps".into());
    named.spawn(watching).context("starting a thread")?;
    Ok(())
}

/// Has the pool be what instances do not use, where all of them are known, and at most what the operator gave it. The data plane
/// has given back by then what an instance needs: this is for shares between applications.
async fn follow_unused(mut unused: watch::Receiver<Option<u64>>, control: ControlHandle) {
    while unused.changed().await.is_ok() {
        let known = *unused.borrow_and_update();
        if let Err(error) = control.follow_unused(known).await {
            tracing::warn!("the pool can not follow what instances do not use: {error}");
        }
        tokio::time::sleep(POOL_REST).await;
    }
}

fn make_tenants(agent: &Agent, control: &ControlHandle, mut made: BTreeSet<String>) -> BTreeSet<String> {
    for app in agent
        .apps()
        .into_keys()
        .filter(|app| !made.contains(app))
        .collect::<Vec<_>>()
    {
        if control.tenant(app.as_str()).wait().is_err()
            && let Err(error) = control.create_tenant(app.as_str(), SettingsPatch::default()).wait()
        {
            tracing::error!(app, "its tenant can not be made: {error}");
            continue;
        }
        made.insert(app);
    }
    made
}
