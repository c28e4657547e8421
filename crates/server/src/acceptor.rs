//! Accepting connections, and refusing them politely when there are too many.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use socket2::{SockRef, TcpKeepalive};

use crate::entrance::{Entrance, Protocol};
use crate::limits::KEEPALIVE;
use crate::shared::Shared;

/// Connections accepted before existing ones are served again.
const ACCEPTED_PER_TURN: usize = 256;
/// After a failure of the system (no memory) accepting is tried again so soon.
const RETRY: Duration = Duration::from_millis(100);

/// The listeners, served by the first worker for all.
#[derive(Debug)]
pub(crate) struct Acceptor {
    listeners: Vec<(TcpListener, Entrance)>,
    /// Connections may be waiting.
    is_ready: bool,
    retry_at: Option<Instant>,
    /// A descriptor that is given up to accept, and refuse, a connection when there is no other.
    spare: Option<File>,
    next_worker: usize,
    /// The last connection was refused for want of room.
    is_full: bool,
}

impl Acceptor {
    pub(crate) fn new(listeners: Vec<(TcpListener, Entrance)>) -> io::Result<Self> {
        Ok(Self {
            listeners,
            is_ready: true,
            retry_at: None,
            spare: Some(spare()?),
            next_worker: 0,
            is_full: false,
        })
    }

    /// The system says that connections are waiting.
    pub(crate) fn note_ready(&mut self) {
        self.is_ready = true;
    }

    /// When to try again without being told.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.retry_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether connections may be waiting.
    pub(crate) fn may_accept(&self) -> bool {
        self.is_ready || self.retry_at.is_some()
    }

    /// Accepts waiting connections and hands them to the workers in rotation.
    pub(crate) fn accept(&mut self, shared: &Shared) {
        let retry = self.retry_at.is_some_and(|at| at <= Instant::now());
        if !(self.is_ready || retry) || !shared.has_plan.load(Ordering::Acquire) {
            return;
        }
        self.retry_at = None;
        self.is_ready = false;
        for listener in 0..self.listeners.len() {
            for accepted in 0.. {
                if accepted == ACCEPTED_PER_TURN {
                    self.is_ready = true;
                    self.retry_at = Some(Instant::now());
                    break;
                }
                match self.listeners[listener].0.accept() {
                    Ok((socket, peer)) => self.admit(socket, peer.ip(), listener, shared),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if is_per_connection(&error) => {}
                    Err(error) => {
                        self.survive(listener, &error, shared);
                        break;
                    }
                }
            }
        }
    }

    fn admit(&mut self, socket: TcpStream, peer: IpAddr, listener: usize, shared: &Shared) {
        let entrance = self.listeners[listener].1.clone();
        if entrance.tenant.is_some() && !shared.allowed.has(peer) {
            refuse(&socket, entrance.protocol, Reason::Network, shared);
            return;
        }
        let open = shared.tenants.sockets().connections.fetch_add(1, Ordering::Relaxed);
        if open >= shared.connections_max {
            shared.tenants.sockets().connections.fetch_sub(1, Ordering::Relaxed);
            self.note_full(shared);
            refuse(&socket, entrance.protocol, Reason::Full, shared);
            return;
        }
        self.is_full = false;
        shared.accepted_connections.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = prepare(&socket) {
            tracing::debug!(%error, "setting options of a new connection");
        }
        self.next_worker = (self.next_worker + 1) % shared.mailboxes.len();
        shared.mailboxes[self.next_worker].send(socket, entrance);
    }

    /// Counts how often it came to be full, not how many connections were refused then.
    fn note_full(&mut self, shared: &Shared) {
        if !std::mem::replace(&mut self.is_full, true) {
            shared.times_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Accepting failed for want of a resource. Without a descriptor the connection is accepted with the spare one and
    /// refused. Its client learns it at once, and the system does not report it again and again.
    fn survive(&mut self, listener: usize, error: &io::Error, shared: &Shared) {
        let no_descriptor = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
        if error.raw_os_error().is_some_and(|code| no_descriptor.contains(&code)) {
            self.spare = None;
            self.note_full(shared);
            for _ in 0..ACCEPTED_PER_TURN {
                let Ok((socket, _)) = self.listeners[listener].0.accept() else {
                    break;
                };
                refuse(&socket, self.listeners[listener].1.protocol, Reason::Full, shared);
            }
            self.spare = spare().ok();
        } else {
            tracing::warn!(%error, "accepting a connection");
        }
        self.retry_at = Some(Instant::now() + RETRY);
    }
}

fn spare() -> io::Result<File> {
    File::open("/dev/null")
}

/// Whether an error concerns the connection that was being accepted, not the listener (accept(2), "Error handling").
fn is_per_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable,
        PermissionDenied,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | PermissionDenied
    )
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug)]
enum Reason {
    Full,
    /// Its network may not connect to this listener.
    Network,
}

/// Tells a client, in its protocol, why it is not served.
fn refuse(mut socket: &TcpStream, protocol: Protocol, reason: Reason, shared: &Shared) {
    shared.refused_connections.fetch_add(1, Ordering::Relaxed);
    let reply: &[u8] = match (protocol, reason) {
        (Protocol::Memcached, Reason::Full) => b"SERVER_ERROR too many open connections\r\n",
        (Protocol::Redis, Reason::Full) => b"-ERR max number of clients reached\r\n",
        (Protocol::Memcached, Reason::Network) => b"CLIENT_ERROR connections from your network are not allowed\r\n",
        (Protocol::Redis, Reason::Network) => b"-DENIED connections from your network are not allowed\r\n",
    };
    // A new socket's buffer is empty, so this does not wait; if it fails, closing tells the client as well.
    let _ = socket.write(reply);
}

fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 10)
        .with_retries(3);
    SockRef::from(socket).set_tcp_keepalive(&keepalive)
}
