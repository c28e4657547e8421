//! The admin API: HTTP and JSON over what the control plane answers.
//!
//! It listens on a Unix socket in the data folder (mode 0600: who may open it, may command) and, if asked, on a TCP
//! address, where every call but the health checks needs the token from `DIR/admin.token`, and must call the server by a name of its own. One thread runs it all; it also
//! says in the log when the control plane stands still.
//!
//! Invariants: handlers read a request, ask the control plane, and write its answer; they decide nothing. Connections,
//! headers, bodies and waiting times all have a limit, so that what clients send never takes more than a known amount
//! of memory. No answer holds a secret but the one that was just made.

#![forbid(unsafe_code)]

mod answer;
mod body;
mod listen;
mod metrics;
mod origin;
mod places;
mod routes;
mod token;
mod unique;
mod usage;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use listen::{Admin, BoundAdmin, longest_socket_path};

/// How the admin API is set up.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// Where it listens beside its Unix socket; port 0 picks a free one.
    pub address: Option<SocketAddr>,
    /// The data folder: for `admin.sock` and `admin.token`.
    pub folder: PathBuf,
    /// Whether `/metrics`, which names the tenants, needs no token over TCP.
    pub open_metrics: bool,
}

/// Why the admin API can not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The TCP address can not be had.
    #[error("can not listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The Unix socket can not be made.
    #[error("can not listen on {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The token can not be read or written.
    #[error("can not {doing} {}: {source}", path.display())]
    Token {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The token's file holds no token: an empty one would let everybody in.
    #[error("{} holds no token: remove it, and the next start makes a new one", .0.display())]
    BadToken(PathBuf),
    /// The system gave no randomness or no thread.
    #[error("the system refused {what}: {detail}")]
    System {
        /// What was asked of it.
        what: &'static str,
        /// Its reason.
        detail: String,
    },
}
