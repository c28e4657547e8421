//! A server of a command's own: this program, in a folder that is removed at the end.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tidemark_gateway::Credentials;

/// A server that does not end by then is ended.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A folder that goes with the command.
pub(in crate::commands) struct Folder(PathBuf);

impl Folder {
    /// A new one among the system's temporary ones.
    pub(in crate::commands) fn new() -> anyhow::Result<Self> {
        let mut name = [0; 8];
        getrandom::fill(&mut name)
            .ok()
            .context("the system has no random numbers")?;
        let path = std::env::temp_dir().join(format!("tidemark-demo-{:016x}", u64::from_be_bytes(name)));
        let mut builder = DirBuilder::new();
        builder
            .mode(0o700)
            .create(&path)
            .with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }

    pub(in crate::commands) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The running server.
pub(in crate::commands) struct Server {
    child: Child,
    data: PathBuf,
    /// The line that says where it listens.
    ready: String,
}

impl Server {
    /// Starts one with these options, of the listeners only those that they name; returns when it is ready.
    pub(in crate::commands) fn start(data: &Path, options: &[&OsStr]) -> anyhow::Result<Self> {
        let mut command = program(data)?;
        command
            .args(["serve", "--admin", "off", "--data"])
            .arg(data)
            .args(options);
        for listener in ["--memcached", "--redis"] {
            if !options.iter().any(|option| *option == listener) {
                command.args([listener, "off"]);
            }
        }
        Self::ready(data, command)
    }

    /// Starts an agent with these options; returns when it is ready. The terminal's Ctrl-C does not reach it.
    pub(in crate::commands) fn agent(data: &Path, options: &[&OsStr]) -> anyhow::Result<Self> {
        let mut command = program(data)?;
        command
            .process_group(0)
            .args(["agent", "--data"])
            .arg(data)
            .args(options);
        Self::ready(data, command)
    }

    fn ready(data: &Path, mut command: Command) -> anyhow::Result<Self> {
        let log = data.join("server.log");
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("the server does not start")?;
        let output = child.stdout.take().context("the server has no output")?;
        let mut ready = String::new();
        BufReader::new(output).read_line(&mut ready)?;
        let data = data.to_owned();
        let server = Self { child, data, ready };
        if !server.ready.starts_with("ready ") {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            bail!("the server did not become ready: {}{said}", server.ready);
        }
        Ok(server)
    }

    /// The address of one of its listeners.
    pub(in crate::commands) fn address(&self, listener: &str) -> anyhow::Result<SocketAddr> {
        let words = self.ready.split_whitespace();
        let mut addresses = words.filter_map(|word| word.strip_prefix(listener)?.strip_prefix('=')?.parse().ok());
        addresses
            .next()
            .with_context(|| format!("the server has no {listener} address: {}", self.ready))
    }

    /// Makes a tenant, and a key with which it uses the S3 address.
    pub(in crate::commands) fn tenant(&self, name: &str) -> anyhow::Result<Credentials> {
        self.call(&["tenant", "create", name])?;
        self.key(name)
    }

    /// A key with which a tenant uses the S3 address.
    pub(in crate::commands) fn key(&self, name: &str) -> anyhow::Result<Credentials> {
        let key = self.call(&["tenant", "s3-key", name])?;
        let text = |field: &str| key.get(field).and_then(Value::as_str).map(str::to_owned);
        let (access_key, secret_key) = text("access_key").zip(text("secret_key")).context("no key was made")?;
        Ok(Credentials {
            access_key,
            secret_key,
            session_token: None,
        })
    }

    /// An agent's view of an application.
    pub(in crate::commands) fn app(&self, name: &str) -> anyhow::Result<Value> {
        self.call(&["agent", "show", name])
    }

    /// The report on its functions.
    pub(in crate::commands) fn functions(&self) -> anyhow::Result<Value> {
        self.call(&["functions", "status"])
    }

    fn call(&self, words: &[&str]) -> anyhow::Result<Value> {
        let mut command = program(&self.data)?;
        let output = command
            .arg("--json")
            .args(words)
            .arg("--data")
            .arg(&self.data)
            .output()?;
        if !output.status.success() {
            bail!(
                "tidemark {}: {}",
                words.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // As an operator ends it.
        let _ = Command::new("kill").arg(&pid).status();
        let until = Instant::now() + END_PATIENCE;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program(data: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    // Nothing of the user's own server is meant.
    command
        .env_remove("TIDEMARK_CONFIG")
        .env("TIDEMARK_DATA", data)
        .stdin(Stdio::null());
    command
        .env("AWS_ACCESS_KEY_ID", "demo")
        .env("AWS_SECRET_ACCESS_KEY", "demo");
    Ok(command)
}
