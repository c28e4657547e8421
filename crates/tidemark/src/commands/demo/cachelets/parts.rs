//! The parts that the demonstration starts beside the agents: etcd, and an instance of the function per node.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;
use tidemark_gateway::Credentials;

use crate::failure::Failure;

/// etcd is ready long before that.
const ETCD_PATIENCE: Duration = Duration::from_secs(30);
/// How long it is waited until etcd is looked at again.
const LOOK: Duration = Duration::from_millis(20);

const FUNCTION: &str = include_str!("function.py");
const RUNTIME: &str = include_str!("runtime.py");
const PLAIN_CLIENT: &str = include_str!("boto3.py");
/// Older ones do not read `AWS_ENDPOINT_URL_S3`, and would ask Amazon.
const HAS_BOTO3: &str = "import boto3; assert tuple(map(int, boto3.__version__.split('.')[:2])) >= (1, 28)";

/// A process that ends with the demonstration. The terminal's Ctrl-C does not reach it.
struct Part(Child);

impl Drop for Part {
    fn drop(&mut self) {
        // One that has ended is not there to be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(command: &mut Command, is_needed: &str) -> anyhow::Result<Part> {
    match command.process_group(0).spawn() {
        Ok(child) => Ok(Part(child)),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::failed(is_needed.to_owned()).into()),
        Err(error) => Err(error).context(is_needed.to_owned()),
    }
}

/// An address whose port was free a moment ago.
pub(super) fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// A running etcd.
pub(super) struct Etcd {
    pub(super) address: SocketAddr,
    _process: Part,
}

impl Etcd {
    /// Starts one with its data in a folder; returns when it can be connected to.
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        let (address, peer) = (free_address()?, free_address()?);
        let (clients, peers) = (format!("http://{address}"), format!("http://{peer}"));
        let log = File::create(folder.join("etcd.log"))?;
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(folder.join("etcd"))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("default={peers}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut process = spawn(&mut command, "etcd is needed; on Debian: apt-get install etcd-server")?;
        let until = Instant::now() + ETCD_PATIENCE;
        while TcpStream::connect(address).is_err() {
            if process.0.try_wait()?.is_some() || Instant::now() > until {
                bail!(
                    "etcd does not start: {}",
                    std::fs::read_to_string(folder.join("etcd.log"))?
                );
            }
            std::thread::sleep(LOOK);
        }
        Ok(Self {
            address,
            _process: process,
        })
    }
}

/// Writes the function's files, and a plain client where boto3 is not there; which client it uses.
pub(super) fn write_function(folder: &Path) -> anyhow::Result<&'static str> {
    std::fs::write(folder.join("function.py"), FUNCTION)?;
    std::fs::write(folder.join("runtime.py"), RUNTIME)?;
    let mut command = Command::new("python3");
    command
        .args(["-c", HAS_BOTO3])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let mut python = spawn(&mut command, NEEDS_PYTHON)?;
    if python.0.wait()?.success() {
        return Ok("boto3");
    }
    std::fs::write(folder.join("boto3.py"), PLAIN_CLIENT)?;
    Ok("a plain client: boto3 1.28 or later is not installed")
}

const NEEDS_PYTHON: &str = "python3 is needed; on Debian: apt-get install python3";

/// An instance of the function.
pub(super) struct Instance {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _process: Part,
}

impl Instance {
    /// Starts one that uses an S3 address with a key.
    pub(super) fn start(folder: &Path, s3: SocketAddr, key: &Credentials) -> anyhow::Result<Self> {
        let mut command = Command::new("python3");
        command
            .arg(folder.join("runtime.py"))
            .env("AWS_ENDPOINT_URL_S3", format!("http://{s3}"))
            .env("AWS_ACCESS_KEY_ID", &key.access_key)
            .env("AWS_SECRET_ACCESS_KEY", &key.secret_key)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env_remove("AWS_PROFILE")
            .env_remove("AWS_SESSION_TOKEN")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = spawn(&mut command, NEEDS_PYTHON)?;
        let pipes = process.0.stdin.take().zip(process.0.stdout.take());
        let (input, output) = pipes.context("the function has no pipes")?;
        Ok(Self {
            input,
            output: BufReader::new(output),
            _process: process,
        })
    }

    /// Waits until the function is loaded, which takes seconds with boto3 on a busy machine.
    pub(super) fn wait(&mut self) -> anyhow::Result<()> {
        self.answer()
    }

    /// Calls the function; the text of what it raised is the error.
    pub(super) fn call(&mut self, event: &Value) -> anyhow::Result<()> {
        writeln!(self.input, "{event}")?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        let answer: Value = serde_json::from_str(&line).context("the function's process has ended")?;
        match answer["error"].as_str() {
            Some(error) => bail!("{error}"),
            None => Ok(()),
        }
    }
}
