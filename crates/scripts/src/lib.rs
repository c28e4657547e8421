//! Lua scripts as Redis runs them: a sandbox around Lua 5.1, with the libraries that Redis offers.
//!
//! ```text
//! script, keys, arguments -> Engine -> redis.call -> Host (a command in, a reply of RESP2 out) -> reply
//! ```
//!
//! An [`Engine`] knows no store, tenant or socket: what commands do is its [`Host`]'s business. A run is bounded in steps, in
//! whatever its [`Watchman`] looks at, in memory and in the size of its result, and it ends whatever the script catches.
//! Each run has globals and library tables of its own, so that nothing of a script is left for the next one.

#![forbid(unsafe_code)]

mod bounds;
mod call;
mod engine;
mod fault;
mod globals;
mod libraries;
mod limits;
mod pattern;
mod result;
mod shebang;
mod strings;

pub use bounds::Watchman;
pub use engine::{Engine, Run, Script};
pub use fault::{Broken, Stopped};
pub use limits::{CALL_ARGUMENTS_MAX, MEMORY_BYTES, RESULT_BYTES_MAX, STEPS_PER_LOOK};

use std::fmt::Write as _;

use sha1::{Digest as _, Sha1};

/// The outside that a script reaches.
pub trait Host {
    /// Executes a command and appends its reply, in RESP2, errors included.
    fn call(&mut self, args: &[&[u8]], reply: &mut Vec<u8>);

    /// A script's `redis.log`. The level is one of Redis's, from 0 (debug) to 3 (warning).
    fn log(&mut self, level: u8, message: &[u8]);
}

/// Steps that compiling a text counts as: each byte takes about as long as a step.
pub fn compile_steps(text: &[u8]) -> u64 {
    text.len() as u64
}

/// By which a script is called: the SHA-1 of its text in hexadecimal digits.
pub fn name_of(text: &[u8]) -> String {
    let mut name = String::with_capacity(40);
    for byte in Sha1::digest(text) {
        // Writing to a string does not fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}
