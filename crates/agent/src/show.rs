//! The views for an operator: of the node, of an application, and as metrics.

use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tidemark_gateway::copies::Standing;

use crate::agent::Agent;
use crate::counters::{Counts, MESSAGE_KINDS};
use crate::domains::Domain;
use crate::host::Host;
use crate::tuning::{Allowance, Tuned};

/// Applications that metrics name; the others are counted together as `_other`.
const LABELS_MAX: usize = 1_000;

/// The node.
#[must_use]
pub fn node(agent: &Agent, now_us: u64) -> Value {
    let traffic = agent.traffic();
    let answered_us = now_us.saturating_sub(agent.seen.answered_at_us.load(Ordering::Relaxed));
    json!({
        "node": agent.node(),
        "address": agent.address(),
        "etcd_answered_seconds": answered_us as f64 / 1e6,
        "etcd_revision": agent.seen.mirror.read().header().revision,
        "messages_out_total": traffic.messages_out.load(Ordering::Relaxed),
        "messages_in_total": traffic.messages_in.load(Ordering::Relaxed),
        "messages_lost_total": traffic.lost.load(Ordering::Relaxed),
        "message_bytes_out_total": traffic.bytes_out.load(Ordering::Relaxed),
        "chooser": agent.tuning.kind.map(|kind| kind.to_string()),
        "choosing": choosing(&agent.tuning.allowance),
    })
}

/// The processor time that choosing took of this agent's, for all applications together.
fn choosing(allowance: &Allowance) -> Value {
    json!({
        "cpu_seconds_total": allowance.spent_ns() as f64 / 1e9,
        "agent_cpu_seconds_total": Allowance::all_ns() as f64 / 1e9,
        "cpu_ratio": allowance.ratio(),
        "cpu_ratio_allowed": allowance.share(),
    })
}

fn counts_of(domain: &Domain) -> Counts {
    let hosts = domain.hosts();
    hosts
        .iter()
        .fold(Counts::default(), |sum, host| sum.plus(&host.counters.counts()))
}

/// An application; `None` if nobody knows it.
#[must_use]
pub fn app(agent: &Agent, name: &str) -> Option<Value> {
    let record = agent.apps().remove(name)?;
    let mirror = agent.seen.mirror.read();
    let state = mirror.domain(name);
    let document = state.and_then(|state| state.document.as_ref()).map(|at| &at.value);
    let members = document.map(|document| {
        let members = document.view.members.iter().map(|member| {
            let known = state.and_then(|state| state.members.get(&member.id));
            let known = known.map(|at| (at.value.node.clone(), at.value.label.clone()));
            let (node, label) = known.unwrap_or_default();
            json!({"id": member.id.0, "cluster": member.cluster, "node": node, "label": label})
        });
        members.collect::<Vec<_>>()
    });
    let domain = agent.domains.get(name);
    let cachelets: Vec<_> = domain
        .iter()
        .flat_map(|domain| domain.hosts())
        .map(|host| cachelet(&host))
        .collect();
    let counts = domain.as_ref().map(|domain| counts_of(domain));
    let view = document.map(|document| &document.view);
    let tuned = state.and_then(|state| state.tuned.as_ref()).map(|at| &at.value);
    Some(json!({
        "name": name,
        "promise": record.promise,
        "wanted": record.config,
        "pinned": record.pinned,
        "reason": record.reason,
        "chooser": agent.tuning.kind.map(|kind| kind.to_string()),
        "tuned": tuned,
        "choosing": choosing(&agent.tuning.allowance),
        "epoch": view.map(|view| view.epoch.0),
        "config": view.map(|view| view.config),
        "trial": view.and_then(|view| view.trial),
        "members": members,
        "suspicions": view.map(|view| view.suspicions.len()),
        "change": document.and_then(|document| document.change.as_ref()).map(|change| json!({
            "epoch": change.view.epoch.0,
            "phase": change.phase,
            "drained": change.drained.len(),
            "lost": change.lost.len(),
        })),
        "cachelets": cachelets,
        "counts": counts.as_ref().map(shown_counts),
        "memory": agent.engine().and_then(|engine| engine.memory(name)).map(|of| memory(of.standing())),
    }))
}

/// The application's memory on this node: its copies, and the blocks of its long objects.
fn memory(standing: Standing) -> Value {
    json!({
        "grant_bytes": standing.grant_bytes,
        "usage_bytes": standing.usage_bytes,
        "items": standing.items,
        "gets_total": standing.gets,
        "hits_total": standing.hits,
        "evicted_total": standing.evicted,
        "hit_ratio": (standing.gets > 0).then(|| standing.hits as f64 / standing.gets as f64),
    })
}

fn cachelet(host: &Host) -> Value {
    let (used_bytes, budget_bytes) = host.bytes();
    let view = host.view();
    json!({
        "id": host.id().0,
        "label": host.label,
        "epoch": view.epoch.0,
        "is_member": view.has(host.id()),
        "is_leased": host.is_leased(),
        "used_bytes": used_bytes,
        "budget_bytes": budget_bytes,
    })
}

fn mean_us(us: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| us as f64 / count as f64)
}

fn shown_counts(counts: &Counts) -> Value {
    let kinds = |counts: &[u64]| {
        let pairs = MESSAGE_KINDS.iter().zip(counts).filter(|(_, count)| **count > 0);
        pairs
            .map(|(kind, count)| ((*kind).to_owned(), json!(count)))
            .collect::<serde_json::Map<_, _>>()
    };
    let reads = [
        counts.copy_reads,
        counts.validated_reads,
        counts.home_reads,
        counts.store_reads,
    ];
    let hits = counts.copy_reads + counts.validated_reads + counts.home_reads;
    json!({
        "reads": {"copy": reads[0], "validated": reads[1], "home": reads[2], "store": reads[3]},
        "read_mean_us": {
            "copy": mean_us(counts.read_us[0], reads[0]),
            "validated": mean_us(counts.read_us[1], reads[1]),
            "home": mean_us(counts.read_us[2], reads[2]),
            "store": mean_us(counts.read_us[3], reads[3]),
        },
        "hit_ratio": (counts.reads() > 0).then(|| hits as f64 / counts.reads() as f64),
        "writes": counts.writes,
        "write_mean_us": mean_us(counts.write_us, counts.writes),
        "failed": counts.failed,
        "evicted": counts.evicted,
        "messages_sent": kinds(&counts.sent),
        "messages_received": kinds(&counts.received),
        "store": {"gets": counts.store_gets, "heads": counts.store_heads, "puts": counts.store_puts},
    })
}

/// Metrics in Prometheus's text format.
#[must_use]
pub fn metrics(agent: &Agent) -> String {
    let mut text = String::new();
    let mut apps: Vec<_> = agent
        .domains
        .all()
        .iter()
        .map(|domain| (domain.app.to_string(), counts_of(domain), bytes_of(domain)))
        .collect();
    if apps.len() > LABELS_MAX {
        let rest = apps.split_off(LABELS_MAX);
        let sum = rest.iter().fold(
            (Counts::default(), (0, 0)),
            |(sum, (used, budget)), (_, counts, (more_used, more_budget))| {
                (sum.plus(counts), (used + more_used, budget + more_budget))
            },
        );
        apps.push(("_other".into(), sum.0, sum.1));
    }
    family(
        &mut text,
        "reads_total",
        "counter",
        "Reads that were answered, by where the answer came from.",
    );
    for (app, counts, _) in &apps {
        let reads = [
            counts.copy_reads,
            counts.validated_reads,
            counts.home_reads,
            counts.store_reads,
        ];
        for (place, count) in ["copy", "validated", "home", "store"].iter().zip(reads) {
            sample(&mut text, "reads_total", &[("app", app), ("place", place)], count);
        }
    }
    family(
        &mut text,
        "messages_total",
        "counter",
        "Messages sent between cachelets, by kind.",
    );
    for (app, counts, _) in &apps {
        for (kind, count) in MESSAGE_KINDS.iter().zip(&counts.sent) {
            sample(&mut text, "messages_total", &[("app", app), ("kind", kind)], *count);
        }
    }
    family(
        &mut text,
        "store_calls_total",
        "counter",
        "Calls to the origin, by kind.",
    );
    for (app, counts, _) in &apps {
        for (kind, count) in [
            ("get", counts.store_gets),
            ("head", counts.store_heads),
            ("put", counts.store_puts),
        ] {
            sample(&mut text, "store_calls_total", &[("app", app), ("kind", kind)], count);
        }
    }
    for (name, help, of) in PLAIN {
        family(
            &mut text,
            name,
            if name.ends_with("_total") { "counter" } else { "gauge" },
            help,
        );
        for (app, counts, bytes) in &apps {
            sample(&mut text, name, &[("app", app)], of(counts, *bytes));
        }
    }
    chosen(&mut text, agent, &apps);
    text
}

/// The outcome of choosing, and the load that it saw, for the applications that this agent chooses for.
fn chosen(text: &mut String, agent: &Agent, apps: &[(String, Counts, (u64, u64))]) {
    for (name, help, ns) in [
        (
            "choosing_cpu_seconds_total",
            "Processor time that choosing took.",
            agent.tuning.allowance.spent_ns(),
        ),
        (
            "agent_cpu_seconds_total",
            "Processor time of the agent, with choosing.",
            Allowance::all_ns(),
        ),
    ] {
        family(text, name, "counter", help);
        sample(text, name, &[], ns as f64 / 1e9);
    }
    let mirror = agent.seen.mirror.read();
    let known: Vec<(&str, &Tuned)> = apps
        .iter()
        .filter_map(|(app, _, _)| Some((app.as_str(), &mirror.domain(app)?.tuned.as_ref()?.value)))
        .filter(|(_, tuned)| tuned.node == agent.node())
        .collect();
    for (name, kind, help, of) in CHOSEN {
        family(text, name, kind, help);
        for (app, tuned) in &known {
            sample(text, name, &[("app", app)], of(tuned));
        }
    }
}

type OfTuned = fn(&Tuned) -> f64;

/// The outcome of choosing; the metrics of UniCache's table 1.
const CHOSEN: [(&str, &str, &str, OfTuned); 15] = [
    (
        "switches_total",
        "counter",
        "Switches of the configuration, trials among them.",
        |tuned| tuned.switches_total as f64,
    ),
    (
        "gained_seconds",
        "gauge",
        "What operations are estimated to have taken less than with the fixed configuration.",
        |tuned| tuned.gained_seconds,
    ),
    (
        "load_size_bytes",
        "gauge",
        "Mean size of the values that were used.",
        |tuned| tuned.load.size_bytes,
    ),
    (
        "load_sharers",
        "gauge",
        "Mean number of nodes that use a key.",
        |tuned| tuned.load.sharers,
    ),
    ("load_write_ratio", "gauge", "Writes per operation.", |tuned| {
        tuned.load.write_ratio
    }),
    (
        "load_changed_ratio",
        "gauge",
        "Reads per operation that found what another node had written.",
        |tuned| tuned.load.changed_ratio,
    ),
    ("load_elements", "gauge", "Copies of a node, on the average.", |tuned| {
        tuned.load.elements
    }),
    (
        "load_operations_per_second",
        "gauge",
        "Operations of sampled keys in a second.",
        |tuned| tuned.load.per_second,
    ),
    (
        "load_write_run",
        "gauge",
        "Writes for each read that found what another node had written.",
        |tuned| tuned.load.write_run(),
    ),
    ("load_clusters", "gauge", "Clusters of the domain.", |tuned| {
        tuned.load.clusters
    }),
    (
        "load_instances_ratio",
        "gauge",
        "Reads per operation that another instance of the node had made current.",
        |tuned| tuned.load.instances_ratio,
    ),
    (
        "load_functions_ratio",
        "gauge",
        "Reads per operation that another function of the node had made current.",
        |tuned| tuned.load.functions_ratio,
    ),
    (
        "load_size_spread",
        "gauge",
        "The standard deviation of keys' sizes by their mean.",
        |tuned| tuned.load.size_spread,
    ),
    (
        "load_popularity_spread",
        "gauge",
        "The standard deviation of keys' operations by their mean.",
        |tuned| tuned.load.popularity_spread,
    ),
    (
        "load_small_reuse_ratio",
        "gauge",
        "Reads per operation on values up to the mean size that found what was read before.",
        |tuned| tuned.load.small_reuse_ratio,
    ),
];

type Of = fn(&Counts, (u64, u64)) -> u64;

/// Metrics with nothing but the application as label.
const PLAIN: [(&str, &str, Of); 5] = [
    ("writes_total", "Writes that hold.", |counts, _| counts.writes),
    (
        "failed_total",
        "Operations without an answer that helps.",
        |counts, _| counts.failed,
    ),
    (
        "evicted_total",
        "Copies that were to be served and whose bytes memory had evicted.",
        |counts, _| counts.evicted,
    ),
    ("used_bytes", "The bytes of copies.", |_, (used, _)| used),
    ("budget_bytes", "The limit of copies.", |_, (_, budget)| budget),
];

fn bytes_of(domain: &Domain) -> (u64, u64) {
    let bytes = domain.hosts().into_iter().map(|host| host.bytes());
    bytes.fold((0, 0), |(used, budget), (more_used, more_budget)| {
        (used + more_used, budget + more_budget)
    })
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // OpenMetrics: a counter's family has its name without the suffix.
    let name = name.strip_suffix("_total").unwrap_or(name);
    let _ = writeln!(
        text,
        "# HELP tidemark_cachelet_{name} {help}\n# TYPE tidemark_cachelet_{name} {kind}"
    );
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: impl fmt::Display) {
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| format!("{name}=\"{value}\""))
        .collect();
    let labels = match labels.as_slice() {
        [] => String::new(),
        labels => format!("{{{}}}", labels.join(",")),
    };
    let _ = writeln!(text, "tidemark_cachelet_{name}{labels} {value}");
}
