//! The switched server as a process of its own.

use std::net::SocketAddr;
use std::path::Path;

use super::POOL_BYTES;
use super::instructions;
use super::switched::Metered;
use crate::Error;
use crate::experiment::Context;
use crate::experiment::process::Process;
use crate::experiment::server::login;
use tidemark_tools::client::Login;

/// A server that runs, with elasticity on.
pub(in crate::experiment) struct Started {
    pub(in crate::experiment) process: Process,
    /// The address at which it speaks RESP.
    pub(in crate::experiment) address: SocketAddr,
    /// One for each tenant.
    pub(in crate::experiment) logins: Vec<Option<Login>>,
}

impl Started {
    /// Starts one with so many tenants, each of which aims at the hit ratio `goal`. `counted_slowed` says that its instructions are
    /// counted, and how many times slower the control plane's time goes meanwhile.
    pub(in crate::experiment) fn start(
        context: &Context,
        (tenants, goal): (usize, f64),
        metered: Metered,
        counted_slowed: Option<u32>,
    ) -> Result<Self, Error> {
        let stage = &context.stage;
        let program = stage.programs.experiments.as_path();
        let program = if counted_slowed.is_some() {
            Path::new(instructions::PROGRAM)
        } else {
            program
        };
        let mut process = Process::start(program, (&stage.children, &stage.cores), |command, folder| {
            if counted_slowed.is_some() {
                command
                    .args(instructions::arguments(folder))
                    .arg(&stage.programs.experiments);
            }
            command.args(["switched", "--tenants", &tenants.to_string()]);
            command.args(["--goal", &goal.to_string(), "--pool-bytes", &POOL_BYTES.to_string()]);
            command.args(["--slowed", &counted_slowed.unwrap_or(1).to_string()]);
            command.args(["--metered", &metered.to_string()]);
        })?;
        let ready = process.line()?;
        let (address, logins) = parse_ready(&ready).ok_or_else(|| process.failure("it is not ready"))?;
        let address = address.parse().map_err(|_| process.failure("it is nowhere"))?;
        let logins = logins
            .iter()
            .map(|(name, secret)| login(name, secret))
            .collect::<Result<Vec<Option<Login>>, Error>>()?;
        Ok(Self {
            process,
            address,
            logins,
        })
    }
}

/// The address, and the tenants with their secrets, of the line that the server says when it is ready.
fn parse_ready(line: &str) -> Option<(&str, Vec<(&str, &str)>)> {
    let mut words = line.strip_prefix("ready ")?.split(' ');
    let address = words.next()?;
    let mut tenants = Vec::new();
    while let Some(name) = words.next() {
        tenants.push((name, words.next()?));
    }
    Some((address, tenants))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_read() {
        assert_eq!(
            parse_ready("ready 127.0.0.1:7 t0 a t1 b"),
            Some(("127.0.0.1:7", vec![("t0", "a"), ("t1", "b")]))
        );
        assert_eq!(parse_ready("ready 127.0.0.1:7 t0"), None);
    }
}
