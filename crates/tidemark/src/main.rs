//! The `tidemark` command: the server, and the operators' commands.
//!
//! Data goes to standard output, messages to standard error. Exit codes: 0; 1 failure; 2 usage; 3 not found; 4 denied
//! or over a limit.

#![forbid(unsafe_code)]

mod client;
mod commands;
mod failure;
mod functions_file;
mod log;
mod options;
mod output;
mod port_holder;

use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
