//! Messages to and from other agents, over one TCP connection per direction.
//!
//! A message may be lost: the protocol asks again. So nothing here waits for an agent that does not read, and the queue
//! for one has a maximum.

mod frame;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemark_cachelet::message::Message;
use tidemark_cachelet::types::CacheletId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};

pub use frame::{Packet, Secret};

use frame::{GREETING, HEAD_BYTES, NONCE_BYTES, Nonce, PROOF_BYTES, Seal, Sent};

use crate::tuning::Told;

/// Connections of other agents: a cluster of a hundred nodes with room for those that are being replaced.
pub const PEER_CONNECTIONS_MAX: usize = 256;
/// Messages that wait for one agent. Beyond, they are lost.
pub const QUEUED_FRAMES_MAX: usize = 4_096;
/// Bytes of them: a few of the largest values.
pub const QUEUED_BYTES_MAX: u64 = 64 << 20;
/// Agents that one agent calls.
pub const PEERS_MAX: usize = 1_024;
/// Connecting, and each step of the proof.
const GREETING_PATIENCE: Duration = Duration::from_secs(2);
/// A frame that is not taken by then: the other agent is paused or gone.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
/// After a failed call the agent is not called for so long.
const CALL_REST: Duration = Duration::from_millis(100);
/// After a failed accept (no file descriptor left) the loop rests, or it would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// Takes what came.
pub type Receive = Arc<dyn Fn(Packet) + Send + Sync>;

/// The counts of sent and received messages.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Messages sent.
    pub messages_out: AtomicU64,
    /// Their bytes.
    pub bytes_out: AtomicU64,
    /// Messages received.
    pub messages_in: AtomicU64,
    /// Messages that were not sent: the agent does not take them.
    pub lost: AtomicU64,
}

#[derive(Debug)]
struct Link {
    frames: mpsc::Sender<Bytes>,
    queued_bytes: Arc<AtomicU64>,
}

/// The other agents.
#[derive(Debug)]
pub struct Peers {
    secret: Secret,
    runtime: Handle,
    links: Mutex<HashMap<SocketAddr, Link>>,
    traffic: Arc<Traffic>,
}

impl Peers {
    /// None yet.
    #[must_use]
    pub fn new(secret: Secret, runtime: Handle) -> Self {
        Self {
            secret,
            runtime,
            links: Mutex::default(),
            traffic: Arc::default(),
        }
    }

    /// The counts of sent and received messages.
    #[must_use]
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Sends a message to the agent at an address, if it takes it.
    pub fn send(&self, address: SocketAddr, to: CacheletId, from: CacheletId, message: &Message) {
        self.send_packet(address, &Sent::Message { to, from, message });
    }

    /// Tells an agent something, if it takes it.
    pub fn tell(&self, address: SocketAddr, told: &Told) {
        self.send_packet(address, &Sent::Told(told));
    }

    fn send_packet(&self, address: SocketAddr, packet: &Sent<'_>) {
        let Some(body) = frame::encode(packet) else {
            self.traffic.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let bytes = body.len() as u64;
        if self.queue(address, body) {
            self.traffic.messages_out.fetch_add(1, Ordering::Relaxed);
            self.traffic.bytes_out.fetch_add(bytes, Ordering::Relaxed);
        } else {
            self.traffic.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn queue(&self, address: SocketAddr, body: Bytes) -> bool {
        let mut links = self.links.lock();
        if links.len() >= PEERS_MAX && !links.contains_key(&address) {
            links.retain(|_, link| !link.frames.is_closed() && link.queued_bytes.load(Ordering::Relaxed) > 0);
            if links.len() >= PEERS_MAX {
                return false;
            }
        }
        let link = links.entry(address).or_insert_with(|| self.link(address));
        let bytes = body.len() as u64;
        if link.queued_bytes.load(Ordering::Relaxed) + bytes > QUEUED_BYTES_MAX {
            return false;
        }
        link.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_queued = link.frames.try_send(body).is_ok();
        if !is_queued {
            link.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        is_queued
    }

    fn link(&self, address: SocketAddr) -> Link {
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES_MAX);
        let queued_bytes = Arc::new(AtomicU64::new(0));
        let calling = Calling {
            address,
            secret: self.secret.clone(),
            queued_bytes: Arc::clone(&queued_bytes),
            traffic: Arc::clone(&self.traffic),
        };
        self.runtime.spawn(calling.run(queue));
        Link { frames, queued_bytes }
    }

    /// Receives from each agent that connects and knows the secret.
    pub fn listen(&self, listener: TcpListener, receive: Receive) {
        let (secret, traffic) = (self.secret.clone(), Arc::clone(&self.traffic));
        let places = Arc::new(Semaphore::new(PEER_CONNECTIONS_MAX));
        self.runtime.spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(ACCEPT_REST).await;
                    continue;
                };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    continue;
                };
                let (secret, receive, traffic) = (secret.clone(), Arc::clone(&receive), Arc::clone(&traffic));
                tokio::spawn(async move {
                    if let Err(error) = accepted(stream, &secret, &receive, &traffic).await {
                        tracing::debug!("a connection of another agent ended: {error}");
                    }
                    drop(place);
                });
            }
        });
    }
}

/// The way to one agent.
struct Calling {
    address: SocketAddr,
    secret: Secret,
    queued_bytes: Arc<AtomicU64>,
    traffic: Arc<Traffic>,
}

impl Calling {
    /// Until nobody can send any more. The connection is made anew with the next message after it broke.
    async fn run(self, mut queue: mpsc::Receiver<Bytes>) {
        let mut connection = None;
        while let Some(body) = queue.recv().await {
            let bytes = body.len() as u64;
            if connection.is_none() {
                connection = self.connect().await;
            }
            let is_sent = match &mut connection {
                Some((stream, seal)) => send(stream, seal, &body).await.is_ok(),
                None => false,
            };
            self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
            if !is_sent {
                connection = None;
                self.traffic.lost.fetch_add(1, Ordering::Relaxed);
                self.drop_queue(&mut queue);
                tokio::time::sleep(CALL_REST).await;
            }
        }
    }

    async fn connect(&self) -> Option<(TcpStream, Seal)> {
        let called = tokio::time::timeout(GREETING_PATIENCE, call(self.address, &self.secret)).await;
        match called {
            Ok(Ok(connection)) => Some(connection),
            Ok(Err(error)) => {
                tracing::debug!(agent = %self.address, "can not be called: {error}");
                None
            }
            Err(_) => None,
        }
    }

    /// Waiting messages would be late: they are asked for again.
    fn drop_queue(&self, queue: &mut mpsc::Receiver<Bytes>) {
        while let Ok(body) = queue.try_recv() {
            self.queued_bytes.fetch_sub(body.len() as u64, Ordering::Relaxed);
            self.traffic.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn refused(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

async fn call(address: SocketAddr, secret: &Secret) -> io::Result<(TcpStream, Seal)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut greeting = [0; GREETING.len() + NONCE_BYTES];
    stream.read_exact(&mut greeting).await?;
    let (said, accepted) = greeting.split_at(GREETING.len());
    if said != GREETING {
        return Err(refused("it is no agent of this version"));
    }
    let mut theirs = Nonce::default();
    theirs.copy_from_slice(accepted);
    let mine = nonce()?;
    stream.write_all(&mine).await?;
    stream.write_all(&secret.proof(b"call", &mine, &theirs)).await?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    if !secret.is_right(&proof, b"accept", &mine, &theirs) {
        return Err(refused("it does not know the secret"));
    }
    Ok((stream, secret.seal(&mine, &theirs)))
}

async fn send(stream: &mut TcpStream, seal: &mut Seal, body: &Bytes) -> io::Result<()> {
    let head = seal.head(body);
    let sent = async {
        if body.len() < 16 << 10 {
            // One segment, one system call.
            let frame = [&head[..], body].concat();
            return stream.write_all(&frame).await;
        }
        stream.write_all(&head).await?;
        stream.write_all(body).await
    };
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    tokio::time::timeout(SEND_PATIENCE, sent).await.unwrap_or_else(late)
}

async fn accepted(stream: TcpStream, secret: &Secret, receive: &Receive, traffic: &Traffic) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let greeted = tokio::time::timeout(GREETING_PATIENCE, greet(&mut stream, secret));
    let mut seal = greeted.await.unwrap_or_else(late)?;
    loop {
        let mut head = [0; HEAD_BYTES];
        stream.read_exact(&mut head).await?;
        let length = frame::length(&head).ok_or_else(|| refused("a frame is too long"))?;
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        if !seal.is_next(&head[4..], &body) {
            return Err(refused("a frame is not the next one"));
        }
        let packet = frame::decode(&body).ok_or_else(|| refused("a frame can not be read"))?;
        traffic.messages_in.fetch_add(1, Ordering::Relaxed);
        receive(packet);
    }
}

async fn greet(stream: &mut BufReader<TcpStream>, secret: &Secret) -> io::Result<Seal> {
    let mine = nonce()?;
    stream.write_all(&[&GREETING[..], &mine].concat()).await?;
    let mut theirs = Nonce::default();
    stream.read_exact(&mut theirs).await?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof).await?;
    if !secret.is_right(&proof, b"call", &theirs, &mine) {
        return Err(refused("it does not know the secret"));
    }
    stream.write_all(&secret.proof(b"accept", &theirs, &mine)).await?;
    Ok(secret.seal(&theirs, &mine))
}

#[cfg(test)]
mod tests {
    use tidemark_cachelet::message::Body;
    use tidemark_cachelet::types::{Epoch, RequestId};

    use super::*;

    fn message(request: u64) -> Message {
        let body = Body::Refused {
            request: RequestId(request),
        };
        Message { epoch: Epoch(1), body }
    }

    async fn listening(secret: &[u8]) -> (SocketAddr, Peers, mpsc::UnboundedReceiver<(CacheletId, Message)>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peers = Peers::new(Secret::new(secret).unwrap(), Handle::current());
        let (sender, receiver) = mpsc::unbounded_channel();
        peers.listen(
            listener,
            Arc::new(move |packet| {
                if let Packet::Message { to, message, .. } = packet {
                    drop(sender.send((to, message)));
                }
            }),
        );
        (address, peers, receiver)
    }

    #[tokio::test]
    async fn messages_arrive_in_order_from_who_knows_the_secret() {
        let (address, peers, mut received) = listening(&[1; 32]).await;
        for number in 0..100 {
            peers.send(address, CacheletId(5), CacheletId(6), &message(number));
        }
        for number in 0..100 {
            assert_eq!(received.recv().await.unwrap(), (CacheletId(5), message(number)));
        }
        let stranger = Peers::new(Secret::new(&[2; 32]).unwrap(), Handle::current());
        stranger.send(address, CacheletId(5), CacheletId(6), &message(1));
        while stranger.traffic().lost.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        assert!(received.try_recv().is_err(), "nothing of a stranger's is taken");
    }

    #[tokio::test]
    async fn who_does_not_read_loses_messages_and_holds_nobody_up() {
        // It accepts connections and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = silent.local_addr().unwrap();
        let peers = Peers::new(Secret::new(&[1; 32]).unwrap(), Handle::current());
        for number in 0..QUEUED_FRAMES_MAX as u64 + 10 {
            peers.send(address, CacheletId(5), CacheletId(6), &message(number));
        }
        assert!(peers.traffic().lost.load(Ordering::Relaxed) > 0);
    }

    #[tokio::test]
    async fn a_connection_is_made_again() {
        let (address, _there, mut received) = listening(&[1; 32]).await;
        let peers = Peers::new(Secret::new(&[1; 32]).unwrap(), Handle::current());
        // Nobody is there yet.
        let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gone = nowhere.local_addr().unwrap();
        drop(nowhere);
        peers.send(gone, CacheletId(1), CacheletId(2), &message(1));
        while peers.traffic().lost.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        peers.send(address, CacheletId(1), CacheletId(2), &message(2));
        assert_eq!(received.recv().await.unwrap(), (CacheletId(1), message(2)));
    }
}
