//! Why a measurement could not be made.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::load::WorkloadError;
use crate::trace::TraceError;

/// A failed `bench`, `replay` or `curve`. [`Error::fault`] says whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The parameters contradict each other or are outside their limits.
    #[error("{0}")]
    Usage(String),
    /// The workload cannot be made.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The address is none, or its name is not known.
    #[error("`{given}` is not an address: write HOST:PORT, such as 127.0.0.1:11211 ({source})")]
    Address {
        /// The argument that the caller gave.
        given: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// Nothing accepts connections there. Trying again helps once a server listens.
    #[error("can not connect to {address}: {source}")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The server does not accept the tenant or its secret.
    #[error("{address} refused the login of tenant `{tenant}`: {reply}")]
    Login {
        /// The server's address.
        address: SocketAddr,
        /// The tenant.
        tenant: String,
        /// The server's answer to the login.
        reply: String,
    },
    /// The server stored memcached's login as an ordinary value: it has no such tenant, or another secret.
    #[error("{address} did not take the login of tenant `{tenant}`: no such tenant, or the wrong secret")]
    LoginNotTaken {
        /// The server's address.
        address: SocketAddr,
        /// The tenant.
        tenant: String,
    },
    /// The server closed a connection that was in use.
    #[error("{address} closed the connection")]
    Closed {
        /// The server's address.
        address: SocketAddr,
    },
    /// A connection failed. Trying again may help.
    #[error("connection to {address}: {source}")]
    Connection {
        /// The server's address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The input is not the protocol that was asked for, so that later replies cannot be told apart.
    #[error("{address} does not answer in the {protocol} protocol: got `{reply}`")]
    Protocol {
        /// The server's address.
        address: SocketAddr,
        /// The protocol's name.
        protocol: &'static str,
        /// The beginning of the input.
        reply: String,
    },
    /// A request was answered with a reply that it cannot have.
    #[error("{address} answered {what} with `{reply}`")]
    OutOfStep {
        /// The server's address.
        address: SocketAddr,
        /// The question.
        what: &'static str,
        /// The server's answer.
        reply: String,
    },
    /// The server answered with an error, and nothing can be measured so.
    #[error("{address} refused {what}: {reply}")]
    Refused {
        /// The server's address.
        address: SocketAddr,
        /// The refused request.
        what: &'static str,
        /// The server's words.
        reply: String,
    },
    /// A key had a value that was never stored under it.
    #[error(
        "{address}: key `{key}` has a value that this replay did not store: begin with an empty tenant, or the server is wrong"
    )]
    WrongValue {
        /// The server's address.
        address: SocketAddr,
        /// The key.
        key: u64,
    },
    /// The server did not answer in time.
    #[error("{address} did not answer within {seconds} s")]
    Silent {
        /// The server's address.
        address: SocketAddr,
        /// How long was waited.
        seconds: u64,
    },
    /// The system does not give the means to wait for sockets.
    #[error("can not wait for connections: {0}")]
    Poll(io::Error),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The party at fault for an [`Error`]; exit codes follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request makes no sense: another one is needed.
    Usage,
    /// The server does not allow it.
    Denied,
    /// A file that was named is not there.
    NotFound,
    /// The server, the network or a file failed.
    Failed,
}

impl Error {
    /// Tells which party is at fault.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Usage(_)
            | Self::Workload(_)
            | Self::Address { .. }
            | Self::Trace(TraceError::UnknownFormat { .. } | TraceError::UnknownName { .. }) => Fault::Usage,
            Self::Trace(TraceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => Fault::NotFound,
            Self::Login { .. } | Self::LoginNotTaken { .. } | Self::Refused { .. } => Fault::Denied,
            _ => Fault::Failed,
        }
    }
}
