//! Logs on standard error: for people on a terminal, JSON lines otherwise. They name tenants, never keys or values.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

const VARIABLE: &str = "TIDEMARK_LOG";

/// Begins logging, at the level of `TIDEMARK_LOG` (`error`, `warn`, `info`, `debug`, `trace`), else `info`.
pub(crate) fn start() -> anyhow::Result<()> {
    let level = std::env::var(VARIABLE)
        .ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| "info".into());
    let filter = EnvFilter::try_new(&level);
    let filter = filter.map_err(|error| Failure::usage(format!("{VARIABLE}={level}: {error}")))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    if io::stderr().is_terminal() {
        let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        log.with_ansi(has_colour).with_target(false).init();
    } else {
        log.json().flatten_event(true).init();
    }
    Ok(())
}
