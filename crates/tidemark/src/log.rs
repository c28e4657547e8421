//! Logs on standard error: for people on a terminal, JSON lines otherwise. They name tenants, never keys or values.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

const VARIABLE: &str = "TIDEMARK_LOG";

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Begins logging, as `TIDEMARK_LOG` says. It holds a level for everything, `target=level` for a part of the program,
/// or several of these with commas between them. The default is `info`.
pub(crate) fn start() -> anyhow::Result<()> {
    let wanted = std::env::var_os(VARIABLE).unwrap_or_default();
    let wanted = wanted.to_string_lossy();
    let mut filter = filter(if wanted.is_empty() { "info" } else { &wanted })?;
    // It takes every request that a client got wrong for an error of its own, and repeats the client's input.
    if let (false, Ok(quiet)) = (wanted.contains("s3s="), "s3s=off".parse()) {
        filter = filter.add_directive(quiet);
    }
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    if io::stderr().is_terminal() {
        // The library is built without colours, and asked for them it panics or complains.
        log.with_ansi(false).with_target(false).init();
    } else {
        log.json().flatten_event(true).init();
    }
    Ok(())
}

/// The library itself takes an unknown word for a target and then logs nothing else: so every word is checked.
fn filter(text: &str) -> Result<EnvFilter, Failure> {
    let is_target =
        |target: &str| !target.is_empty() && target.bytes().all(|b| b.is_ascii_alphanumeric() || b"_:".contains(&b));
    let is_directive = |directive: &str| {
        let (target, level) = directive.split_once('=').unwrap_or(("all", directive));
        is_target(target) && LEVELS.contains(&level)
    };
    let wrong = || Failure::usage(format!("{VARIABLE}={text}: allowed are {}", LEVELS.join(", ")));
    if !text.split(',').all(is_directive) {
        return Err(wrong());
    }
    EnvFilter::try_new(text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_levels_and_targets_with_levels_are_followed() {
        for (text, is_good) in [
            ("error", true),
            ("trace", true),
            ("tidemark_control=debug", true),
            ("warn,tidemark_control::thread=trace,hyper=error", true),
            ("loud", false),
            ("off", false),
            ("info,loud", false),
            ("info,", false),
            ("tidemark_control=loud", false),
            ("tidemark_control=", false),
            ("=info", false),
            ("tide mark=info", false),
            ("a=b=info", false),
        ] {
            let said = filter(text).err().map(|error| error.to_string());
            let expected = format!("TIDEMARK_LOG={text}: allowed are error, warn, info, debug, trace");
            assert_eq!(said, (!is_good).then_some(expected), "{text}");
        }
    }
}
