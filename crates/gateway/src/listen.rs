//! The socket, the threads, and a limit on how long a client may keep a connection without reading.

use std::future::Future as _;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::Sleep;

use crate::chunked::{self, Room};
use crate::coherent::Coherent;
use crate::config::Config;
use crate::front::{Auth, Keys, Route};
use crate::guard::before_signature;
use crate::large::{Large, LargePlace};
use crate::memory::Tenants;
use crate::origin::OriginClient;
use crate::peers::Peers;
use crate::shared::{Shared, Totals};

/// Connections of clients: each takes a few buffers of 64 KiB.
const CONNECTIONS_MAX: usize = 1024;
/// A client that takes nothing of a reply for so long is not waited for.
const READER_PATIENCE: Duration = Duration::from_secs(60);
/// The head of a request: S3 allows 8 KiB of headers and 2 KiB of metadata in them.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a request's head may take, and how long a connection may be silent between two.
const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// After a failed accept (no file descriptor left) the loop rests, or it would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("s3: can not listen on {address}: {source}")]
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// The keys cannot be had.
    #[error(transparent)]
    Access(#[from] crate::access::AccessError),
    /// The place for large objects cannot be had.
    #[error("{0}")]
    Large(String),
    /// Threads, or the certificates that the system trusts.
    #[error("starting the gateway: {0}")]
    System(#[from] io::Error),
}

/// The running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// Threads of its own; none if it runs on those of somebody else.
    runtime: Option<Runtime>,
    handle: Handle,
    address: SocketAddr,
    stop: watch::Sender<bool>,
    connections: Arc<Semaphore>,
    shared: Arc<Shared>,
}

/// The address from which a request's connection came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// A service without operations of its own: every request takes the route.
struct NoOperations;

impl s3s::S3 for NoOperations {}

impl Gateway {
    /// Binds the address and starts the threads. With `coherent`, reads and writes of objects go there.
    ///
    /// # Errors
    /// The address, the keys or threads cannot be had.
    pub fn start(
        config: &Config,
        tenants: Arc<dyn Tenants>,
        coherent: Option<Arc<dyn Coherent>>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, tenants, coherent, None, || Ok(None))
    }

    /// The same with a place for large objects, which is made on the gateway's threads. If those are somebody else's, they must
    /// run until the gateway is drained.
    ///
    /// # Errors
    /// The same, or the place cannot be had.
    pub fn start_with(
        config: &Config,
        tenants: Arc<dyn Tenants>,
        coherent: Option<Arc<dyn Coherent>>,
        threads: Option<Handle>,
        large: impl FnOnce() -> Result<Option<Arc<dyn LargePlace>>, String>,
    ) -> Result<Self, StartError> {
        let address = config.address;
        let bind = |source| StartError::Bind { address, source };
        let listener = TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let keys = Keys::open(&config.folder, tenants, config.peers.is_some())?;
        let client = OriginClient::new(config.credentials.clone())?;
        let (runtime, handle) = threads_of(config, threads)?;
        let large = {
            let _within = handle.enter();
            Large::new(large().map_err(StartError::Large)?)
        };
        let origins = config.origins.clone();
        let mut shared = Shared::new(origins, client, coherent, large, config.read_only);
        if let Some(peers) = &config.peers {
            let peers = Peers::open(
                peers,
                address.to_string(),
                keys.key().clone(),
                shared.client.clone(),
                Arc::clone(&shared.versions),
            )?;
            shared.peers = Some(Arc::new(peers));
        }
        let (shared, keys) = (Arc::new(shared), Arc::new(keys));
        let mut builder = S3ServiceBuilder::new(NoOperations);
        builder.set_auth(Auth(Arc::clone(&keys)));
        builder.set_route(Route {
            keys,
            shared: Arc::clone(&shared),
        });
        let (stop, stopped) = watch::channel(false);
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let service = (builder.build(), chunked::room());
        let accepting = accept(listener, service, Arc::clone(&connections), stopped);
        handle.spawn(accepting);
        Ok(Self {
            runtime,
            handle,
            address,
            stop,
            connections,
            shared,
        })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts since the start.
    pub fn totals(&self) -> Totals {
        self.shared.totals()
    }

    /// Asks for that, also where the gateway itself is not at hand.
    pub fn counted(&self) -> Box<dyn Fn() -> Totals + Send + Sync> {
        let shared = Arc::clone(&self.shared);
        Box::new(move || shared.totals())
    }

    /// Ends it: no new connections, requests under way may take so long.
    pub fn drain(self, limit: Duration) {
        self.stop.send_replace(true);
        self.handle.block_on(async {
            let all = self.connections.acquire_many(CONNECTIONS_MAX as u32);
            let _ = tokio::time::timeout(limit, all).await;
        });
        if let Some(runtime) = self.runtime {
            runtime.shutdown_background();
        }
    }
}

/// The service that answers requests, and the room for chunks that are checked first.
type Service = (S3Service, Room);

/// The threads that a gateway runs on: somebody else's, or its own.
fn threads_of(config: &Config, threads: Option<Handle>) -> io::Result<(Option<Runtime>, Handle)> {
    if let Some(handle) = threads {
        return Ok((None, handle));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.workers.max(1))
        .thread_name("tidemark-s3")
        .enable_all()
        .build()?;
    let handle = runtime.handle().clone();
    Ok((Some(runtime), handle))
}

async fn accept(listener: TcpListener, service: Service, connections: Arc<Semaphore>, stopped: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut ending = stopped.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut ending) => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        // One too many is closed at once: it would else wait without a word.
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let (service, stopped) = (service.clone(), stopped.clone());
        tokio::spawn(async move {
            serve(stream, peer.ip(), service, stopped).await;
            drop(permit);
        });
    }
}

/// Waits for the end; a gateway that was dropped has ended, too.
async fn ended(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|is_ending| *is_ending).await;
}

async fn serve(stream: TcpStream, peer: IpAddr, service: Service, mut stopped: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        answer(service.clone(), request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(Patient::new(stream)), answer);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ended(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// An answer to a request. A client that waited for `100 Continue`, and gets its answer without that, may take it for that of its
/// next request (the SDK for Python does, and waits for ever): the connection ends with such an answer.
async fn answer((service, room): Service, request: Request<Incoming>) -> Result<HttpResponse, HttpError> {
    let (waits, is_empty) = (request.headers().contains_key(EXPECT), request.body().is_end_stream());
    let mut response = match before_signature(request.method(), request.uri(), request.headers()) {
        Ok(()) => {
            let (parts, body) = request.into_parts();
            let body = chunked::bounded(&parts.headers, Body::from(body), &room);
            service.call(Request::from_parts(parts, body)).await?
        }
        Err(reply) => {
            let reply = reply.into_response();
            let mut response = HttpResponse::new(reply.output);
            *response.status_mut() = reply.status.unwrap_or_default();
            *response.headers_mut() = reply.headers;
            response
        }
    };
    // The body of one that was refused may not have been asked for.
    if waits && (is_empty || !response.status().is_success()) {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// A connection that ends when its client takes nothing for too long.
struct Patient {
    stream: TcpStream,
    /// While something waits to be sent.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream) -> Self {
        Self { stream, patience: None }
    }

    fn judge<T>(&mut self, sent: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            self.patience = None;
            return sent;
        }
        let sleep = || Box::pin(tokio::time::sleep(READER_PATIENCE));
        match self.patience.get_or_insert_with(sleep).as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(sent, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.judge(sent, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
