//! Sockets and the thread behind them.
//!
//! The thread runs one accept loop per listener. Each listener has its own limit of connections ([`crate::places`]). A
//! flood over TCP thus leaves the Unix socket, which the command line uses, as it is.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::from_fn_with_state;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tidemark_control::ControlHandle;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::places::{Access, Place, Places};
use crate::routes::{Guard, keep_place, router};
use crate::token::Token;
use crate::tokens::Tokens;
use crate::{AdminConfig, AdminError, Beside, Reports, watch};

const SOCKET_NAME: &str = "admin.sock";
const NEW_SOCKET_NAME: &str = "admin.sock.new";
/// Threads that read the ledger: operators and a biller.
const MAX_BLOCKING_THREADS: usize = 4;
/// The limit of a connection's buffer for a request's head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// How long a request's head may take, and how long a connection may be silent between two requests.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// After this a connection ends with its next answer, so that one that does not read its answers cannot stay.
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(600);
/// How long answers under way may take when the server stops or the connection is too old.
const FINISH_PATIENCE: Duration = Duration::from_secs(2);
/// After a failed accept (no file descriptor left) the loop rests, or it would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Ends its waits when the server stops.
type Stopped = tokio::sync::watch::Receiver<()>;

/// Sockets that are bound, so that the address is known, but not yet answered.
#[derive(Debug)]
pub struct BoundAdmin {
    tcp: Option<(TcpListener, SocketAddr)>,
    unix: UnixListener,
    socket: SocketFile,
    token: Token,
    is_new_token: bool,
    tokens: Tokens,
    open_metrics: bool,
    reports: Reports,
    folder: PathBuf,
}

/// The Unix socket's file; removed when the server ends in order.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // One that stays is replaced at the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl BoundAdmin {
    /// Binds the sockets; at the first start also makes the token.
    ///
    /// # Errors
    /// A socket cannot be bound, or the token's file not be read or written.
    pub fn bind(config: &AdminConfig) -> Result<Self, AdminError> {
        let tcp = config.address.map(bind_tcp).transpose()?;
        let path = config.folder.join(SOCKET_NAME);
        let unix = bind_unix(&config.folder, &path).map_err(|source| AdminError::Socket {
            path: path.clone(),
            source,
        })?;
        let socket = SocketFile(path);
        let tokens = Tokens::load(&config.folder)?;
        // Last: a start that fails before has made no token that nobody was shown.
        let (token, is_new_token) = Token::load_or_create(&config.folder)?;
        Ok(Self {
            tcp,
            unix,
            socket,
            token,
            is_new_token,
            tokens,
            open_metrics: config.open_metrics,
            reports: config.reports.clone(),
            folder: config.folder.clone(),
        })
    }

    /// The address beside the Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        self.tcp.as_ref().map(|(_, address)| *address)
    }

    /// The token if this start made it: to be shown this once.
    pub fn new_token(&self) -> Option<&str> {
        self.is_new_token.then(|| self.token.expose())
    }

    /// Starts to answer.
    /// `beside` answers below a path of its own.
    ///
    /// # Errors
    /// The system gives no thread or no event queue.
    pub fn serve(self, control: &ControlHandle, beside: Option<&Beside>) -> Result<Admin, AdminError> {
        let failed = |what| {
            move |error: io::Error| AdminError::System {
                what,
                detail: error.to_string(),
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("tidemark-admin-io")
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .build();
        let runtime = runtime.map_err(failed("an event queue"))?;
        let (stop, stopped) = tokio::sync::watch::channel(());
        let tokens = Arc::new(self.tokens);
        let guard = Guard {
            token: self.token,
            tokens: Arc::clone(&tokens),
            is_loopback: self.tcp.as_ref().is_some_and(|(_, address)| address.ip().is_loopback()),
            open_metrics: self.open_metrics,
        };
        let routers = (
            router(
                control.clone(),
                &self.folder,
                Some(guard),
                &tokens,
                &self.reports,
                beside,
            ),
            router(control.clone(), &self.folder, None, &tokens, &self.reports, beside),
        );
        let (tcp, unix) = {
            let _guard = runtime.enter();
            let tcp = self
                .tcp
                .map(|(listener, _)| tokio::net::TcpListener::from_std(listener))
                .transpose();
            let unix = tokio::net::UnixListener::from_std(self.unix);
            (
                tcp.map_err(failed("a place in the event queue"))?,
                unix.map_err(failed("a place in the event queue"))?,
            )
        };
        let watched = control.clone();
        let run = move || {
            runtime.block_on(async {
                let over_tcp = async {
                    if let Some(listener) = tcp {
                        let accept = async || listener.accept().await.map(|(stream, _)| stream);
                        accept_all(accept, routers.0, stopped.clone()).await;
                    }
                };
                let accept = async || unix.accept().await.map(|(stream, _)| stream);
                let over_unix = accept_all(accept, routers.1, stopped.clone());
                tokio::join!(over_tcp, over_unix, watch::watch(watched, stopped.clone()));
            });
        };
        let thread = std::thread::Builder::new().name("tidemark-admin".into()).spawn(run);
        Ok(Admin {
            stop,
            thread: thread.map_err(failed("a thread"))?,
            _socket: self.socket,
        })
    }
}

/// The longest path of a socket that [`BoundAdmin::bind`] makes in a data folder; the system limits its length.
pub fn longest_socket_path(folder: &Path) -> PathBuf {
    folder.join(NEW_SOCKET_NAME)
}

/// The running admin API.
#[derive(Debug)]
pub struct Admin {
    stop: tokio::sync::watch::Sender<()>,
    thread: JoinHandle<()>,
    _socket: SocketFile,
}

impl Admin {
    /// Accepts no more, lets answers under way finish for two seconds, and removes the socket.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the admin thread had ended by a panic");
        }
    }
}

fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), AdminError> {
    let bind = || -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    bind().map_err(|source| AdminError::Bind { address, source })
}

/// A socket that only its owner may open, in the place of one that nobody answers on. It is made under another name and
/// renamed when its mode is right, so that there is no moment at which others could connect.
fn bind_unix(folder: &Path, path: &Path) -> io::Result<UnixListener> {
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server answers on it")),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
        Err(error) => return Err(error),
    }
    let new_path = folder.join(NEW_SOCKET_NAME);
    match std::fs::remove_file(&new_path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new_path)?;
    std::fs::set_permissions(&new_path, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&new_path, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Accepts until told to stop, then waits a little for the connections that are left.
async fn accept_all<S>(accept: impl AsyncFn() -> io::Result<S>, router: Router, mut stopped: Stopped)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let places = Arc::new(Places::default());
    loop {
        let next = async {
            places.wait().await;
            accept().await
        };
        // The sender is only ever dropped: `changed` returns when it is.
        let accepted = tokio::select! {
            _ = stopped.changed() => break,
            next = next => next,
        };
        match accepted {
            Ok(stream) => {
                let place = Arc::new(places.enter(Instant::now()));
                let router = router.clone().layer(from_fn_with_state(Arc::clone(&place), keep_place));
                tokio::spawn(serve_connection(stream, router, place, stopped.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "the admin API can not accept a connection");
                tokio::time::sleep(ACCEPT_REST).await;
            }
        }
    }
    // Connections that outlast it are cut off with the runtime.
    let _ = tokio::time::timeout(FINISH_PATIENCE, places.empty()).await;
}

fn serve_connection<S>(
    stream: S,
    router: Router,
    place: Arc<Place>,
    mut stopped: Stopped,
) -> impl Future<Output = ()> + Send
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .keep_alive(place.access == Access::All)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    async move {
        let mut connection = pin!(connection);
        // A client that breaks off or sends no HTTP is its own affair: the connection's errors are not ours.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = place.ended() => return,
            _ = stopped.changed() => {}
            () = tokio::time::sleep(MAX_CONNECTION_AGE) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(FINISH_PATIENCE, connection).await;
    }
}
