//! A Tidemark server whose meter is read: the CPU time of its open tenant, measured and modelled.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Context;
use super::server::{Server, tidemark_json};
use crate::Error;
use tidemark_tools::client::Protocol;
use tidemark_tools::process_cpu::process_cpu_ns;

/// Rounds that must have begun after a load for all of it to be counted: the first one may have begun before its end.
const ROUNDS: u64 = 2;
/// How long a round may take to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether one has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A connection without a login is this tenant's.
const TENANT: &str = "default";

/// See the module.
pub(super) struct Metered<'a> {
    context: &'a Context,
    server: Server,
}

/// The use of the tenant until now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Used {
    /// CPU time that it was charged, in seconds.
    pub(super) cpu_seconds: f64,
    /// The same by the model; zero without one.
    pub(super) model_seconds: f64,
}

impl Used {
    /// The growth since an earlier reading.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            model_seconds: self.model_seconds - before.model_seconds,
        }
    }
}

impl<'a> Metered<'a> {
    /// Starts a server with further options.
    pub(super) fn start(context: &'a Context, memory_bytes: u64, options: &[&str]) -> Result<Self, Error> {
        let server = Server::start_tidemark(&context.stage, memory_bytes, options)?;
        Ok(Self { context, server })
    }

    /// The same, with a model of CPU time: the file that `TIDEMARK_CPU_MODEL` names, else the server's own.
    pub(super) fn start_modelling(context: &'a Context, memory_bytes: u64, options: &[&str]) -> Result<Self, Error> {
        let model = std::env::var("TIDEMARK_CPU_MODEL").unwrap_or_else(|_| "built-in".into());
        Self::start(context, memory_bytes, &[&["--cpu-model", &model], options].concat())
    }

    /// The address on which it speaks a protocol.
    pub(super) fn address(&self, protocol: Protocol) -> Result<SocketAddr, Error> {
        self.server.address(protocol)
    }

    /// What `tidemark` prints about the server as JSON.
    pub(super) fn ask(&self, arguments: &[&str]) -> Result<serde_json::Value, Error> {
        tidemark_json(&self.context.stage, &self.server, arguments)
    }

    /// CPU time of the whole process, in nanoseconds.
    pub(super) fn process_cpu_ns(&self) -> Result<u64, Error> {
        let unknown = || self.server.process.failure("its CPU time can not be read");
        process_cpu_ns(self.server.process.id()).ok_or_else(unknown)
    }

    /// Memory of the process that is resident, in bytes.
    pub(super) fn resident_bytes(&self) -> Result<u64, Error> {
        let path = format!("/proc/{}/statm", self.server.process.id());
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        let unknown = || self.server.process.failure("its memory can not be read");
        pages
            .map(|pages| pages * rustix::param::page_size() as u64)
            .ok_or_else(unknown)
    }

    /// The use of the tenant, all that it did until now included.
    pub(super) fn reading(&self) -> Result<Used, Error> {
        let rounds = || Ok::<_, Error>(self.ask(&["server", "show", "--json"])?["rounds_total"].as_u64());
        let (before, until) = (rounds()?, Instant::now() + PATIENCE);
        while rounds()? < before.map(|rounds| rounds + ROUNDS) {
            if Instant::now() > until {
                return Err(self.server.process.failure("it has no rounds"));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let shown = self.ask(&["tenant", "show", TENANT, "--json"])?;
        let seconds = |name: &str| shown[name].as_f64().unwrap_or_default();
        Ok(Used {
            cpu_seconds: seconds("cpu_seconds_total"),
            model_seconds: seconds("cpu_model_seconds_total"),
        })
    }
}
