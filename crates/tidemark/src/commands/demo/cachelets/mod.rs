//! `tidemark demo cachelets`.

mod parts;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hyper::body::Bytes;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidemark_agent::relay::Relay;
use tidemark_gateway::Credentials;
use tidemark_types::parse_duration;

use super::client::S3Client;
use super::origin::{Origin, Slowness};
use super::server::{Folder, Server};
use crate::output::{note, print};
use parts::{Etcd, Instance, free_address, write_function};

/// The application, and the bucket.
const APP: &str = "demo";
/// The nodes.
const NODES: usize = 3;
/// From one node to another one. Concord's nodes (HPCA'25) were half as far apart.
const HOP: Duration = Duration::from_millis(2);
/// A call to the origin, as Concord measured it.
const STORE: Duration = Duration::from_millis(30);
/// Texts that every node reads.
const SHARED: usize = 8;
/// Texts that go from node to node.
const HANDED: usize = 4;
/// Texts that are read once; then they begin again.
const ONCE: usize = 20_000;
/// After so long there is a line.
const LINE: Duration = Duration::from_secs(2);
/// After so long it is looked again whether something has come about.
const LOOK: Duration = Duration::from_millis(100);
/// Nodes that have not come together by then do not.
const TOGETHER_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(super) struct CacheletsArgs {
    /// How long it goes on; Ctrl-C ends it as well
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = duration)]
    duration: Duration,
    /// After so long the functions do something else
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = duration)]
    phase: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    let allowed = Duration::from_secs(1)..=Duration::from_secs(86_400);
    if allowed.contains(&time) {
        Ok(time)
    } else {
        Err("1s to 24h are allowed".into())
    }
}

/// The work of the functions.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// All read the same texts.
    Shared,
    /// One reads a text and replaces it, the next one takes over.
    Handed,
    /// Nobody reads a text twice.
    Once,
}

impl Load {
    const ALL: [Self; 3] = [Self::Shared, Self::Once, Self::Handed];

    fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Handed => "handed on",
            Self::Once => "read once",
        }
    }

    fn event(self, number: usize) -> Value {
        match self {
            Self::Shared => json!({"input_bucket": APP, "object_key": format!("shared-{}", number % SHARED)}),
            Self::Handed => {
                let key = format!("handed-{}", number % HANDED);
                json!({"input_bucket": APP, "object_key": key, "output_key": key})
            }
            Self::Once => json!({"input_bucket": APP, "object_key": format!("once-{}", number % ONCE)}),
        }
    }
}

/// The functions' counts, and what they are told.
#[derive(Debug, Default)]
struct Functions {
    load: AtomicUsize,
    numbers: AtomicUsize,
    is_over: AtomicBool,
    calls: AtomicU64,
    failed: AtomicU64,
    took_us: AtomicU64,
}

impl Functions {
    fn work(&self, mut instance: Instance) {
        while !self.is_over.load(Ordering::Relaxed) {
            let load = Load::ALL[self.load.load(Ordering::Relaxed)];
            let event = load.event(self.numbers.fetch_add(1, Ordering::Relaxed));
            let began = Instant::now();
            if let Err(error) = instance.call(&event) {
                if self.failed.fetch_add(1, Ordering::Relaxed) == 0 {
                    note(&format!("a call failed: {error:#}"));
                }
                continue;
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
            let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.took_us.fetch_add(took_us, Ordering::Relaxed);
        }
    }
}

pub(super) fn run(args: &CacheletsArgs, json: bool) -> anyhow::Result<()> {
    let (tell, ended) = channel();
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals can not be handled")?;
    let handle = signals.handle();
    let waiting = std::thread::Builder::new().name("demo-signals".into());
    let waiting = waiting.spawn(move || {
        for signal in signals.forever() {
            // Nobody listens any more when it is over.
            let _ = tell.send(signal);
        }
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = show(args, json, &runtime, &ended);
    runtime.shutdown_background();
    handle.close();
    drop(waiting.join());
    result
}

fn show(
    args: &CacheletsArgs,
    json: bool,
    runtime: &tokio::runtime::Runtime,
    ended: &Receiver<i32>,
) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    let client = write_function(folder.path())?;
    let (origin, origin_address) = runtime.block_on(Origin::serve(Slowness {
        delay: STORE,
        bytes_per_second: 50 << 20,
    }))?;
    fill(&origin);
    let etcd = Etcd::start(folder.path())?;
    let origin_option = format!("s3://{APP}?endpoint=http://{origin_address}");
    let mut nodes = Vec::new();
    for number in 0..NODES {
        nodes.push(node(folder.path(), number, &origin_option, &etcd, runtime)?);
    }
    together(&nodes, ended)?;
    let key = nodes[0].key(APP)?;
    note(&format!(
        "{NODES} nodes {} ms apart, origin {origin_address} with 30 ms, etcd {}; the function uses {client}",
        HOP.as_millis(),
        etcd.address
    ));
    runtime.block_on(know(&nodes, &key))?;
    let functions = Functions::default();
    let instances: anyhow::Result<Vec<Instance>> = nodes
        .iter()
        .map(|node| Instance::start(folder.path(), node.address("s3")?, &key))
        .collect();
    let mut instances = instances?;
    for instance in &mut instances {
        instance.wait()?;
    }
    let lines = std::thread::scope(|scope| {
        for instance in instances {
            scope.spawn(|| functions.work(instance));
        }
        let lines = follow(args, json, &nodes, &functions, ended);
        functions.is_over.store(true, Ordering::Relaxed);
        lines
    })?;
    if json {
        print(&json!({"lines": lines}).to_string())?;
    }
    Ok(())
}

/// The texts that functions read.
fn fill(origin: &Origin) {
    let text = Bytes::from("the sea rises and the tide marks the sand ".repeat(100));
    for (name, count) in [("shared", SHARED), ("handed", HANDED), ("once", ONCE)] {
        for number in 0..count {
            origin.put(&format!("/{APP}/{name}-{number}"), text.clone());
        }
    }
}

fn node(
    folder: &Path,
    number: usize,
    origin: &str,
    etcd: &Etcd,
    runtime: &tokio::runtime::Runtime,
) -> anyhow::Result<Server> {
    let peer = free_address()?;
    let relay = runtime.block_on(Relay::start(HOP))?;
    relay.lead_to(peer);
    let advertised = relay.address();
    let data = folder.join(format!("node{number}"));
    std::fs::create_dir(&data)?;
    let (peer, advertised) = (peer.to_string(), advertised.to_string());
    let (name, etcd) = (format!("node{number}"), etcd.address.to_string());
    let options = [
        ["--origin", origin],
        ["--etcd", &etcd],
        ["--peer", &peer],
        ["--advertise", &advertised],
        ["--node", &name],
        ["--domain", APP],
        ["--chooser", "hedge"],
        ["--s3", "127.0.0.1:0"],
        ["--admin", "127.0.0.1:0"],
        ["--memory", "64MiB"],
        ["--workers", "1"],
    ];
    let options: Vec<&OsStr> = options.iter().flatten().map(OsStr::new).collect();
    Server::agent(&data, &options)
}

/// Waits until all nodes are members of one domain.
fn together(nodes: &[Server], ended: &Receiver<i32>) -> anyhow::Result<()> {
    let until = Instant::now() + TOGETHER_PATIENCE;
    loop {
        let shown = nodes[0].app(APP)?;
        let members = shown["members"].as_array().map_or(0, Vec::len);
        if members == nodes.len() && shown["change"].is_null() {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("the nodes do not come together: {shown}");
        }
        if ended.recv_timeout(LOOK).is_ok() {
            bail!("ended before it began");
        }
    }
}

/// The S3 addresses read the list of keys once a second: waits until all know this one.
async fn know(nodes: &[Server], key: &Credentials) -> anyhow::Result<()> {
    let until = tokio::time::Instant::now() + TOGETHER_PATIENCE;
    for node in nodes {
        let client = S3Client {
            address: node.address("s3")?,
            credentials: key.clone(),
        };
        while let Err(error) = client.get(&format!("/{APP}/shared-0")).await {
            if tokio::time::Instant::now() > until {
                return Err(error);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    Ok(())
}

/// The counts of all nodes and functions at one time.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: u64,
    failed: u64,
    took_us: u64,
    /// From the own copy, validated, from the home, from the origin.
    reads: [u64; 4],
    writes: u64,
    messages: u64,
    store_calls: u64,
    /// Those of them that read a value: a home asks for readers, too.
    store_gets: u64,
}

const PLACES: [&str; 4] = ["copy", "validated", "home", "store"];

impl Counts {
    fn of(functions: &Functions, shown: &[Value]) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let sum = |value: &Value| {
            value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(_, value)| number(value))
                .sum::<u64>()
        };
        let mut counts = Self {
            calls: functions.calls.load(Ordering::Relaxed),
            failed: functions.failed.load(Ordering::Relaxed),
            took_us: functions.took_us.load(Ordering::Relaxed),
            ..Self::default()
        };
        for app in shown.iter().map(|app| &app["counts"]) {
            for (reads, place) in counts.reads.iter_mut().zip(PLACES) {
                *reads += number(&app["reads"][place]);
            }
            counts.writes += number(&app["writes"]);
            counts.messages += sum(&app["messages_sent"]);
            counts.store_calls += sum(&app["store"]);
            counts.store_gets += number(&app["store"]["gets"]);
        }
        counts
    }

    fn since(&self, before: &Self) -> Self {
        let mut reads = self.reads;
        for (reads, before) in reads.iter_mut().zip(before.reads) {
            *reads = reads.saturating_sub(before);
        }
        Self {
            calls: self.calls - before.calls,
            failed: self.failed - before.failed,
            took_us: self.took_us - before.took_us,
            reads,
            writes: self.writes.saturating_sub(before.writes),
            messages: self.messages.saturating_sub(before.messages),
            store_calls: self.store_calls.saturating_sub(before.store_calls),
            store_gets: self.store_gets.saturating_sub(before.store_gets),
        }
    }
}

/// Tells functions what to do and shows a line after each while, until it is over.
fn follow(
    args: &CacheletsArgs,
    is_json: bool,
    nodes: &[Server],
    functions: &Functions,
    ended: &Receiver<i32>,
) -> anyhow::Result<Vec<Value>> {
    let began = Instant::now();
    let (mut before, mut lines) = (Counts::default(), Vec::new());
    loop {
        let left = args.duration.saturating_sub(began.elapsed());
        match ended.recv_timeout(LINE.min(left)) {
            Ok(_) | Err(RecvTimeoutError::Disconnected) => return Ok(lines),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let shown: anyhow::Result<Vec<Value>> = nodes.iter().map(|node| node.app(APP)).collect();
        let shown = shown?;
        let load = Load::ALL[functions.load.load(Ordering::Relaxed)];
        let counts = Counts::of(functions, &shown);
        let line = line(began.elapsed(), load, &counts.since(&before), &shown[0]);
        before = counts;
        if !is_json {
            print(&text(&line, lines.is_empty()))?;
        }
        lines.push(line);
        if began.elapsed() >= args.duration {
            return Ok(lines);
        }
        let phase = began.elapsed().as_secs_f64() / args.phase.as_secs_f64();
        functions
            .load
            .store(phase as usize % Load::ALL.len(), Ordering::Relaxed);
    }
}

fn line(at: Duration, load: Load, counts: &Counts, shown: &Value) -> Value {
    let reads: u64 = counts.reads.iter().sum();
    let by_place: serde_json::Map<_, _> = PLACES
        .iter()
        .zip(counts.reads)
        .map(|(place, count)| ((*place).to_owned(), json!(count)))
        .collect();
    json!({
        "seconds": at.as_secs_f64(),
        "load": load.name(),
        "calls": counts.calls,
        "failed": counts.failed,
        "mean_ms": counts.took_us as f64 / 1e3 / counts.calls.max(1) as f64,
        "reads": by_place,
        "hit_ratio": (reads > 0).then(|| reads.saturating_sub(counts.store_gets) as f64 / reads as f64),
        "writes": counts.writes,
        "messages": counts.messages,
        "store_calls": counts.store_calls,
        "config": shown["config"],
        "reason": shown["reason"],
    })
}

fn text(line: &Value, is_first: bool) -> String {
    let number = |name: &str| line[name].as_f64().unwrap_or_default();
    let config =
        ["coherence", "domain", "replacement", "admission"].map(|name| line["config"][name].as_str().unwrap_or("-"));
    let row = format!(
        "{:>5.0} s  {:9}  {:>6.0}  {:>7.1}  {:>6.1}  {:>8.0}  {:>6.0}   {}",
        number("seconds"),
        line["load"].as_str().unwrap_or_default(),
        number("calls"),
        number("mean_ms"),
        100.0 * number("hit_ratio"),
        number("messages"),
        number("store_calls"),
        config.join(" ")
    );
    if is_first {
        format!("   TIME  LOAD        CALLS  MS EACH  HITS %  MESSAGES  ORIGIN   CONFIGURATION\n{row}")
    } else {
        row
    }
}
