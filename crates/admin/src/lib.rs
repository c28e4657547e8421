//! The admin API: HTTP and JSON over the control plane's answers.
//!
//! It listens on a Unix socket in the data folder (mode 0600: a user that may open it may command). If asked, it also
//! listens on a TCP address. Every call there but the health checks needs the token from `DIR/admin.token`, or one with a
//! role that opens it, and must call the server by a name of its own. One thread runs it all; it also says in the log when the control plane stands
//! still.
//!
//! Invariants: handlers read a request, ask the control plane, and write its answer; they decide nothing. Connections,
//! headers, bodies and waiting times all have a limit, so that clients never take more than a known amount of memory.
//! No answer holds a secret but the one that was just made.

#![forbid(unsafe_code)]

mod answer;
mod body;
mod listen;
mod metrics;
mod origin;
mod places;
mod report;
mod routes;
mod scraper;
mod token;
mod tokens;
mod unique;
mod usage;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

pub use listen::{Admin, BoundAdmin, longest_socket_path};
pub use report::{Report, Reports};
pub use scraper::Scraper;
pub use token::TOKEN_FILE_NAME;
pub use tokens::{Role, RoleError, TOKENS_FILE_NAME};

/// The answers of another part of the program beside the control plane.
#[derive(Clone)]
pub struct Beside {
    /// Below which path, such as `/api/v1/agent`.
    pub path: &'static str,
    /// Its paths below that. Calls are let in as all others are.
    pub router: axum::Router,
    /// Its metrics, in Prometheus's text format.
    pub metrics: std::sync::Arc<dyn Fn() -> String + Send + Sync>,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// How the admin API is set up.
#[derive(Clone, Debug)]
pub struct AdminConfig {
    /// The address beside its Unix socket; port 0 picks a free one.
    pub address: Option<SocketAddr>,
    /// The data folder: for `admin.sock` and `admin.token`.
    pub folder: PathBuf,
    /// Whether `/metrics`, which names the tenants, needs no token over TCP.
    pub open_metrics: bool,
    /// The reports of parts beside the control plane.
    pub reports: Reports,
}

/// Why the admin API cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The TCP address cannot be had.
    #[error("can not listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The Unix socket cannot be made.
    #[error("can not listen on {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The token cannot be read or written.
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
        /// The request to the system.
        what: &'static str,
        /// Its reason.
        detail: String,
    },
}
