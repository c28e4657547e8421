//! The function's own program: holds chunks, and answers the proxy while it is invoked.
//!
//! It asks the cloud for invocations (the Lambda Runtime API), connects to the proxy that the event names, and returns
//! when [`Lifetime`] says so. Its chunks stay in its memory between invocations, as long as the cloud keeps the
//! instance.

mod backup;

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use lambda_runtime::{LambdaEvent, service_fn};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::backup::Sending;
use crate::chunk::chunk_hash;
use crate::event::{EMULATED, Invocation, Returned, Work, read_token};
use crate::holding::Holding;
use crate::lifetime::Lifetime;
use crate::receive::{read_length, read_rest};
use crate::tls::{Receiving, Sending as ToProxy, Stream, secure};
use crate::wire::{Frame, Hello, LISTED_CHUNKS_MAX};

/// A proxy that cannot be reached by then is gone.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// A proxy that takes nothing for so long is gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// A frame that takes longer to arrive comes from a proxy that is gone: it would hold the invocation, which is paid for.
const ARRIVAL_PATIENCE: Duration = Duration::from_secs(30);
/// Frames that were read ahead.
const FRAMES_AHEAD: usize = 4;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// An instance: its chunks, and the time of its start.
struct Instance {
    id: u64,
    holding: Mutex<Holding<Bytes>>,
    lifetime: Mutex<Lifetime>,
    started: Instant,
    /// The chunks that another instance still lacks, while one is brought in step with this one.
    sending: Mutex<Option<Sending>>,
    /// That changed.
    changed: Notify,
}

/// A backup under way. It ends with the connection of its invocation.
struct Backing {
    id: u32,
    task: JoinHandle<io::Result<()>>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs until the cloud ends the process.
///
/// # Errors
/// The Runtime API cannot be reached.
pub fn run() -> Result<(), Error> {
    if std::env::var_os(EMULATED).is_some() {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    }
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(|error| error.to_string())?;
    let instance = Arc::new(Instance {
        id: u64::from_be_bytes(id),
        holding: Mutex::new(Holding::new(0)),
        lifetime: Mutex::default(),
        started: Instant::now(),
        sending: Mutex::new(None),
        changed: Notify::new(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(lambda_runtime::run(service_fn(
        move |event: LambdaEvent<Invocation>| {
            let instance = Arc::clone(&instance);
            async move { Ok::<Returned, Error>(instance.invoked(&event.payload, event.context.deadline).await) }
        },
    )))
}

impl Instance {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// One invocation, that the cloud ends at `deadline_ms` since 1970.
    async fn invoked(self: &Arc<Self>, invocation: &Invocation, deadline_ms: u64) -> Returned {
        self.holding.lock().set_most_bytes(invocation.memory_bytes);
        if invocation.work == Work::Backup {
            // Chunks that came until it broke off stay.
            let _ = self.receive_backup(invocation).await;
        }
        if invocation.work == Work::Serve {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let left_ms = deadline_ms.saturating_sub(u64::try_from(since.as_millis()).unwrap_or(0));
            let now = self.now_ms();
            self.lifetime.lock().invoked(now, invocation.unit_ms, now + left_ms);
            // A connection that breaks ends the invocation, not the instance.
            let _ = self.serve(invocation).await;
            *self.sending.lock() = None;
        }
        let holding = self.holding.lock();
        Returned {
            epoch: invocation.epoch,
            instance: self.id,
            term: holding.term(),
            hash: holding.hash(),
            chunks: holding.chunks() as u32,
            bytes: holding.held_bytes(),
        }
    }

    /// The term and the hash of what it holds.
    fn held(&self) -> (u64, u64) {
        let holding = self.holding.lock();
        (holding.term(), holding.hash())
    }

    fn hello(&self, invocation: &Invocation) -> Option<Hello> {
        let holding = self.holding.lock();
        Some(Hello {
            epoch: invocation.epoch,
            instance: self.id,
            term: holding.term(),
            hash: holding.hash(),
            chunks: holding.chunks() as u32,
            bytes: holding.held_bytes(),
            ends_ms: invocation.ends_ms,
            token: read_token(&invocation.token)?,
            name: invocation.name.clone(),
        })
    }

    async fn serve(self: &Arc<Self>, invocation: &Invocation) -> io::Result<()> {
        let (from, mut to) = connect(invocation).await?;
        let hello = self.hello(invocation).ok_or(io::ErrorKind::InvalidInput)?;
        write(&mut to, &Frame::Hello(Box::new(hello)), &Bytes::new()).await?;
        let (ahead, mut frames) = mpsc::channel(FRAMES_AHEAD);
        let reading = tokio::spawn(Arc::clone(self).read_requests(from, ahead));
        let served = self.serve_frames(invocation, &mut frames, &mut to).await;
        close(&mut to).await;
        reading.abort();
        served
    }

    async fn serve_frames(
        self: &Arc<Self>,
        invocation: &Invocation,
        frames: &mut mpsc::Receiver<(Frame, Bytes)>,
        to: &mut ToProxy,
    ) -> io::Result<()> {
        let mut backing: Option<Backing> = None;
        loop {
            let wait_ms = self.lifetime.lock().wakes_ms().saturating_sub(self.now_ms());
            tokio::select! {
                biased;
                frame = frames.recv() => match frame {
                    Some((Frame::End, _)) | None => return Ok(()),
                    Some((Frame::Backup { id }, _)) => {
                        self.lifetime.lock().hold();
                        let task = tokio::spawn(Arc::clone(self).send_backup(invocation.clone()));
                        backing = Some(Backing { id, task });
                        self.lifetime.lock().release(self.now_ms());
                    }
                    Some((frame, body)) => {
                        self.answer(frame, body, to).await?;
                        self.lifetime.lock().release(self.now_ms());
                    }
                },
                (id, is_done) = ended(&mut backing), if backing.is_some() => {
                    backing = None;
                    self.lifetime.lock().release(self.now_ms());
                    let lease_ms = self.lifetime.lock().lease_ms(self.now_ms());
                    let frame = if is_done { Frame::Stored { id, lease_ms } } else { Frame::Missing { id, lease_ms } };
                    write(to, &frame, &Bytes::new()).await?;
                }
                () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {
                    if self.lifetime.lock().ends(self.now_ms()) {
                        let (term, hash) = self.held();
                        return write(to, &Frame::Bye { term, hash }, &Bytes::new()).await;
                    }
                }
            }
        }
    }

    /// Reads frames until the connection ends or nobody wants them. A frame holds the invocation from its first bytes on until it is
    /// answered.
    async fn read_requests(self: Arc<Self>, mut from: Receiving, to: mpsc::Sender<(Frame, Bytes)>) {
        while let Ok(length) = read_length(&mut from).await {
            self.lifetime.lock().hold();
            let frame = tokio::time::timeout(ARRIVAL_PATIENCE, read_rest(&mut from, length)).await;
            let Ok(Ok(frame)) = frame else { return };
            if to.send(frame).await.is_err() {
                pending::<()>().await;
            }
        }
    }

    async fn answer(&self, frame: Frame, body: Bytes, to: &mut ToProxy) -> io::Result<()> {
        let began = self.now_ms();
        if let Frame::Ping { id } = frame {
            let lease_ms = {
                let mut lifetime = self.lifetime.lock();
                lifetime.ping(began);
                lifetime.lease_ms(began)
            };
            return write(to, &Frame::Pong { id, lease_ms }, &Bytes::new()).await;
        }
        if let Frame::Get { key, .. } = &frame {
            self.note(|sending| sending.used(*key));
        }
        let object = match &frame {
            Frame::Get { key, .. } | Frame::Put { key, .. } => Some(key.content),
            _ => None,
        };
        let lease_ms = {
            let mut lifetime = self.lifetime.lock();
            lifetime.begin(began, object);
            lifetime.reply_lease_ms(began)
        };
        let answered = match frame {
            Frame::Get { id, key } => {
                let found = self.holding.lock().get(&key);
                match found {
                    Some((bytes, hash)) => write(to, &Frame::Value { id, lease_ms, hash }, &bytes).await,
                    None => write(to, &Frame::Missing { id, lease_ms }, &Bytes::new()).await,
                }
            }
            Frame::Put { id, key, hash } => {
                // A chunk that was damaged on its way is not stored.
                let is_stored = chunk_hash(&body) == hash && self.holding.lock().put(key, body, hash);
                self.note(|sending| sending.changed(key));
                let frame = if is_stored {
                    Frame::Stored { id, lease_ms }
                } else {
                    Frame::Missing { id, lease_ms }
                };
                write(to, &frame, &Bytes::new()).await
            }
            Frame::Delete { id, key } => {
                self.holding.lock().delete(&key);
                self.note(|sending| sending.changed(key));
                write(to, &Frame::Stored { id, lease_ms }, &Bytes::new()).await
            }
            Frame::List { id } => self.list(id, to).await,
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
        let now = self.now_ms();
        let mut lifetime = self.lifetime.lock();
        lifetime.served(now, now.saturating_sub(began));
        lifetime.promised(now, lease_ms);
        answered
    }

    /// Tells the backup, if one is under way, what happens here.
    fn note(&self, tell: impl FnOnce(&mut Sending)) {
        if let Some(sending) = self.sending.lock().as_mut() {
            tell(sending);
            self.changed.notify_one();
        }
    }

    async fn list(&self, id: u32, to: &mut ToProxy) -> io::Result<()> {
        let all = self.holding.lock().list();
        let mut parts = all.chunks(LISTED_CHUNKS_MAX).peekable();
        if parts.peek().is_none() {
            let chunks = Vec::new();
            let frame = Frame::Listed {
                id,
                has_more: false,
                chunks,
            };
            return write(to, &frame, &Bytes::new()).await;
        }
        while let Some(part) = parts.next() {
            let (has_more, chunks) = (parts.peek().is_some(), part.to_vec());
            write(to, &Frame::Listed { id, has_more, chunks }, &Bytes::new()).await?;
        }
        Ok(())
    }
}

/// Connects to the proxy.
async fn connect(invocation: &Invocation) -> io::Result<(Receiving, ToProxy)> {
    let connecting = async {
        let stream = TcpStream::connect(&invocation.proxy).await?;
        stream.set_nodelay(true)?;
        match &invocation.key {
            Some(key) => secure(stream, key).await,
            None => Ok(Box::new(stream) as Stream),
        }
    };
    let stream = tokio::time::timeout(CONNECT_PATIENCE, connecting).await??;
    Ok(tokio::io::split(stream))
}

/// Says that nothing more comes, also while the other half of the connection lives.
async fn close(to: &mut ToProxy) {
    let _ = tokio::time::timeout(CONNECT_PATIENCE, to.shutdown()).await;
}

/// Waits for the end of a backup: its number, and whether it succeeded.
async fn ended(backing: &mut Option<Backing>) -> (u32, bool) {
    match backing {
        Some(backing) => (backing.id, matches!((&mut backing.task).await, Ok(Ok(())))),
        None => pending().await,
    }
}

async fn write(to: &mut ToProxy, frame: &Frame, body: &Bytes) -> io::Result<()> {
    let head = frame.head(body.len());
    let written = async {
        to.write_all(&head).await?;
        to.write_all(body).await?;
        to.flush().await
    };
    tokio::time::timeout(WRITE_PATIENCE, written).await?
}
