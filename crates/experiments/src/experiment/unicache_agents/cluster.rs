//! Agents of one application, each a process, with etcd and an origin; relays between them make the distances.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::super::objects::{AccessKey, Origin, S3};
use super::super::process::Process;
use super::super::server::{Stage, data_folder};
use super::apps::{App, BUCKET};
use super::relay::Relay;
use crate::Error;

/// Nodes, in two clusters.
pub(super) const NODES: usize = 4;
const CLUSTERS: usize = 2;
/// Instances on a node, of all functions together: as many, rounded down to the same number of each.
pub(super) const INSTANCES: usize = 8;
/// The way from one node to another one.
pub(super) const HOP: Duration = Duration::from_millis(1);
/// The way to the origin.
pub(super) const FAR: Duration = Duration::from_millis(15);
/// An instance's memory, and how much of it is used. A sixteenth is left to it, and copies live in the rest, 10 MiB.
const LIMIT_BYTES: u64 = 32 << 20;
const USED_BYTES: u64 = 20 << 20;
/// Whatever is waited for takes some seconds.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long it is waited until something is looked at again.
const LOOK: Duration = Duration::from_millis(100);

/// The dimensions of a configuration, as operators pin them.
pub(super) const DIMENSIONS: [&str; 7] = [
    "scope",
    "write",
    "replacement",
    "coherence",
    "replication",
    "domain",
    "admission",
];

/// An instance of a function.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) node: usize,
    /// The function's place in the application's list.
    pub(super) function: usize,
    /// The address that its requests come from.
    pub(super) address: IpAddr,
}

/// The instances of an application on all nodes.
pub(super) fn place(app: &App) -> Vec<Placed> {
    let each = (INSTANCES / app.functions.len()).max(1);
    let mut all = Vec::new();
    for node in 0..NODES {
        for (function, number) in
            (0..app.functions.len()).flat_map(|function| (0..each).map(move |number| (function, number)))
        {
            let last = (1 + function * each + number) as u8;
            all.push(Placed {
                node,
                function,
                address: Ipv4Addr::new(127, 1, 1 + node as u8, last).into(),
            });
        }
    }
    all
}

#[derive(Debug)]
struct Node {
    process: Process,
    s3: SocketAddr,
    _relay: Relay,
}

/// See the module. All of it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    stage: &'a Stage,
    app: &'static App,
    nodes: Vec<Node>,
    key: AccessKey,
    _etcd: Process,
    _far: Relay,
    _origin: Origin,
    _files: TempDir,
}

fn free_address() -> Result<SocketAddr, Error> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(Error::System)
}

fn etcd(stage: &Stage) -> Result<(Process, SocketAddr), Error> {
    let (address, peer) = (free_address()?, free_address()?);
    let (clients, peers) = (format!("http://{address}"), format!("http://{peer}"));
    let cores = (&stage.children, &stage.cores);
    let mut process = Process::start("etcd".as_ref(), cores, |command, folder| {
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")]);
    })?;
    wait("etcd", || {
        if process.has_ended() {
            return Err(process.failure("it ended before it was ready; on Debian: apt-get install etcd-server"));
        }
        Ok(TcpStream::connect(address).is_ok())
    })?;
    Ok((process, address))
}

/// Waits until something is so.
fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let until = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > until {
            return Err(Error::Unfit {
                server: "tidemark agent".into(),
                reason: format!("waited for {what} in vain"),
            });
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// The files that tell a node's agent of its instances: a trace of their lives, and control groups with their memory.
fn instances(files: &TempDir, app: &App, node: usize) -> std::io::Result<(PathBuf, PathBuf)> {
    let groups = files.path().join(format!("groups{node}"));
    let mut trace = "at_s,event,instance,app,function,address,cgroup\n".to_owned();
    for placed in place(app).iter().filter(|placed| placed.node == node) {
        let name = placed.address.to_string().replace('.', "-");
        let function = app.functions[placed.function];
        let line = format!("0,created,{name},{},{function},{},{name}\n", app.tenant, placed.address);
        trace.push_str(&line);
        let folder = groups.join(&name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("memory.max"), LIMIT_BYTES.to_string())?;
        std::fs::write(folder.join("memory.current"), USED_BYTES.to_string())?;
    }
    let file = files.path().join(format!("instances{node}.csv"));
    std::fs::write(&file, trace)?;
    Ok((file, groups))
}

impl<'a> Cluster<'a> {
    /// Starts everything; returns when all nodes serve the application.
    pub(super) fn start(stage: &'a Stage, app: &'static App) -> Result<Self, Error> {
        let origin = Origin::start().map_err(Error::System)?;
        for (place, group) in app.groups.iter().enumerate() {
            for number in 0..group.count {
                origin.put(&app.path(place, number), group.size_bytes);
            }
        }
        let far = Relay::start(origin.address(), FAR).map_err(Error::System)?;
        let (etcd, etcd_address) = etcd(stage)?;
        let files = TempDir::with_prefix("tidemark-experiments-").map_err(Error::System)?;
        let nodes: Result<Vec<Node>, Error> = (0..NODES)
            .map(|number| {
                let (trace, groups) = instances(&files, app, number).map_err(Error::System)?;
                let option = format!("s3://{BUCKET}?endpoint=http://{}", far.address());
                Node::start(
                    stage,
                    app,
                    number,
                    [&option, &etcd_address.to_string()],
                    [trace, groups],
                )
            })
            .collect();
        let mut cluster = Self {
            stage,
            app,
            nodes: nodes?,
            key: AccessKey {
                id: String::new(),
                secret: String::new(),
            },
            _etcd: etcd,
            _far: far,
            _origin: origin,
            _files: files,
        };
        cluster.settle("application")?;
        cluster.find_key()?;
        Ok(cluster)
    }

    /// The S3 address of a node.
    pub(super) fn s3(&self, node: usize) -> SocketAddr {
        self.nodes[node].s3
    }

    pub(super) fn key(&self) -> &AccessKey {
        &self.key
    }

    /// Fixes each dimension, or with nothing gives it free; returns when it is in force on all nodes.
    pub(super) fn pin(&self, values: [&str; 7]) -> Result<(), Error> {
        let pairs: Vec<String> = DIMENSIONS
            .iter()
            .zip(values)
            .map(|(dimension, value)| format!("{dimension}={value}"))
            .collect();
        let pairs: Vec<&str> = pairs.iter().map(String::as_str).collect();
        self.command(0, &[&["agent", "pin", self.app.tenant][..], &pairs].concat())?;
        let fixed = || DIMENSIONS.iter().zip(values).filter(|(_, value)| !value.is_empty());
        let Some((_, scope)) = fixed().next() else {
            return Ok(());
        };
        wait("a configuration", || {
            let shown = self.shown(0)?;
            Ok(fixed().all(|(dimension, value)| shown["config"][dimension] == *value))
        })?;
        self.settle(scope)
    }

    /// The application as a node sees it.
    pub(super) fn shown(&self, node: usize) -> Result<Value, Error> {
        self.command(node, &["agent", "show", self.app.tenant])
    }

    /// The values of the dimensions now.
    pub(super) fn config(&self) -> Result<Vec<String>, Error> {
        let shown = self.shown(0)?;
        let text = |dimension: &&str| shown["config"][*dimension].as_str().unwrap_or_default().to_owned();
        Ok(DIMENSIONS.iter().map(text).collect())
    }

    /// Waits until all cachelets of a scope are members, and no change is under way.
    fn settle(&self, scope: &str) -> Result<(), Error> {
        let wanted = match scope {
            "instance" => place(self.app).len(),
            "function" => NODES * self.app.functions.len(),
            _ => NODES,
        };
        wait("the cachelets to be members", || {
            for node in 0..NODES {
                let shown = self.shown(node)?;
                let members = shown["members"].as_array().map_or(0, Vec::len);
                if members != wanted || !shown["change"].is_null() {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Makes an access key, and waits until all S3 addresses know it, which read the list once a second.
    fn find_key(&mut self) -> Result<(), Error> {
        let made = self.command(0, &["tenant", "s3-key", self.app.tenant])?;
        let text = |name: &str| made[name].as_str().unwrap_or_default().to_owned();
        self.key = AccessKey {
            id: text("access_key"),
            secret: text("secret_key"),
        };
        // Nobody keeps a copy of an object that does not exist.
        let path = format!("/{BUCKET}/none");
        for node in &self.nodes {
            wait("the access key", || {
                let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let answer = S3::connect(from, node.s3, &self.key).and_then(|mut s3| s3.get(&path));
                Ok(answer.is_ok_and(|answer| answer.status == 404))
            })?;
        }
        Ok(())
    }

    fn command(&self, node: usize, words: &[&str]) -> Result<Value, Error> {
        let failed = |reason: String| Error::Program {
            program: format!("tidemark {}", words.join(" ")),
            reason,
        };
        let output = Command::new(&self.stage.programs.tidemark)
            .arg("--json")
            .args(words)
            .env("TIDEMARK_DATA", data_folder(self.nodes[node].process.folder()))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(error.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(format!("it printed no JSON: {error}")))
    }
}

impl Node {
    fn start(
        stage: &Stage,
        app: &App,
        number: usize,
        [origin, etcd]: [&str; 2],
        [trace, groups]: [PathBuf; 2],
    ) -> Result<Self, Error> {
        let peer = free_address()?;
        let relay = Relay::start(peer, HOP).map_err(Error::System)?;
        let (peer, advertised) = (peer.to_string(), relay.address().to_string());
        let (name, cluster) = (format!("node{number}"), (number % CLUSTERS).to_string());
        let cores = (&stage.children, &stage.cores);
        let mut process = Process::start(&stage.programs.tidemark, cores, |command, folder| {
            command
                .env("AWS_ACCESS_KEY_ID", "origin")
                .env("AWS_SECRET_ACCESS_KEY", "origin")
                .args(["agent", "--origin", origin, "--etcd", etcd, "--domain", app.tenant])
                .args(["--peer", &peer, "--advertise", &advertised])
                .args(["--node", &name, "--cluster", &cluster, "--chooser", "hedge"])
                .args(["--s3", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--s3-workers", "1"])
                .args(["--memory", "256MiB", "--workers", "1"])
                .arg("--trace")
                .arg(trace)
                .arg("--cgroup-root")
                .arg(groups)
                .arg("--data")
                .arg(data_folder(folder));
        })?;
        let ready = process.line()?;
        let s3 = ready.split(' ').find_map(|word| word.strip_prefix("s3=")?.parse().ok());
        Ok(Self {
            s3: s3.ok_or_else(|| process.failure("it says no S3 address"))?,
            process,
            _relay: relay,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::apps::ALL;
    use super::*;

    #[test]
    fn every_function_has_instances_on_every_node_with_addresses_of_their_own() {
        for app in ALL {
            let placed = place(app);
            let mut addresses: Vec<_> = placed.iter().map(|placed| placed.address).collect();
            addresses.sort_unstable();
            addresses.dedup();
            assert_eq!(addresses.len(), placed.len(), "{}", app.name);
            for (node, function) in
                (0..NODES).flat_map(|node| (0..app.functions.len()).map(move |function| (node, function)))
            {
                let own = placed
                    .iter()
                    .filter(|placed| (placed.node, placed.function) == (node, function));
                assert!(own.count() >= 2, "{}", app.name);
            }
        }
    }
}
