//! The connections of functions, and the frames that go over them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};

use super::{Inner, MemberHandle, Shared, unix_ms};
use crate::receive::read_frame;
use crate::tls::{Receiving, Sending, Stream};
use crate::token::{Claim, Token, is_good};
use crate::wire::{Frame, Hello, Join, LENGTH_BYTES};

/// Connections that have not said who they are. Strangers can hold no more.
const STRANGERS_MAX: usize = 64;
/// How long a connection may take to say so.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// Longest first frame.
const HELLO_BYTES_MAX: usize = 1024;
/// A function that takes nothing for so long is gone.
const WRITE_PATIENCE: Duration = Duration::from_secs(30);
/// After a failed accept (no file descriptor left) the loop rests, or it would spin.
const ACCEPT_REST: Duration = Duration::from_millis(100);

/// A connection of an instance that said who it is, with a good token.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It answers requests.
    Instance(Hello, Stream),
    /// It is one end of a relay.
    Relay(Join, Stream),
}

/// A frame to be sent, with its body.
pub(crate) type Outgoing = (Frame, Bytes);

/// The event on a connection of an epoch.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A frame and its body.
    Frame(Frame, Bytes),
    /// It ended, or broke.
    Ended,
}

/// Takes connections of the functions of all pools.
pub(crate) async fn accept(listener: TcpListener, pools: Arc<[Arc<Inner>]>) {
    let Some(shared) = pools.first().map(|pool| Arc::clone(&pool.shared)) else {
        return;
    };
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_REST).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&strangers).try_acquire_owned() else {
            continue;
        };
        let (shared, pools) = (Arc::clone(&shared), Arc::clone(&pools));
        tokio::spawn(async move {
            let greeted = tokio::time::timeout(HELLO_PATIENCE, greet(stream, &shared)).await;
            drop(permit);
            let greeted = greeted.ok().flatten();
            match greeted.and_then(|(name, arrival)| Some((member(&pools, &name)?, arrival))) {
                Some((member, arrival)) => {
                    let _ = member.arrivals.send(arrival).await;
                }
                None => tracing::debug!("a connection did not say which function it is"),
            }
        });
    }
}

/// The member of a function's name.
fn member<'a>(pools: &'a [Arc<Inner>], name: &str) -> Option<&'a MemberHandle> {
    pools.iter().find_map(|pool| {
        let index = pool.config.names.iter().position(|known| *known == name)?;
        pool.members.get(index)
    })
}

/// Reads the first frame and checks its token: the function's name, and what it is there for.
async fn greet(stream: TcpStream, shared: &Shared) -> Option<(String, Arrival)> {
    stream.set_nodelay(true).ok()?;
    let mut stream: Stream = match &shared.identity {
        Some(identity) => identity.accept(stream).await.ok()?,
        None => Box::new(stream),
    };
    let length = stream.read_u32().await.ok()? as usize;
    if length > HELLO_BYTES_MAX {
        return None;
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.ok()?;
    match Frame::read(&bytes) {
        Ok((Frame::Hello(hello), _)) if has_token(shared, &hello.name, hello.epoch, hello.ends_ms, &hello.token) => {
            Some((hello.name.clone(), Arrival::Instance(*hello, stream)))
        }
        Ok((Frame::Join(join), _)) if has_token(shared, &join.name, join.epoch, join.ends_ms, &join.token) => {
            Some((join.name.clone(), Arrival::Relay(*join, stream)))
        }
        _ => None,
    }
}

fn has_token(shared: &Shared, name: &str, epoch: u64, ends_ms: u64, token: &Token) -> bool {
    let is_good = is_good(&shared.secret, Claim { name, epoch, ends_ms }, token, unix_ms());
    if !is_good {
        tracing::warn!(%name, "a connection has no good token");
    }
    is_good
}

/// Reads frames until the connection ends.
pub(crate) async fn receive(mut from: Receiving, epoch: u64, to: mpsc::Sender<(u64, Incoming)>) {
    while let Ok((frame, body)) = read_frame(&mut from).await {
        if to.send((epoch, Incoming::Frame(frame, body))).await.is_err() {
            return;
        }
    }
    let _ = to.send((epoch, Incoming::Ended)).await;
}

/// Sends frames until none come, or the connection breaks.
pub(crate) async fn send(mut to: Sending, mut from: mpsc::Receiver<Outgoing>) {
    while let Some((frame, body)) = from.recv().await {
        let head = frame.head(body.len());
        debug_assert!(head.len() >= LENGTH_BYTES);
        let written = async {
            to.write_all(&head).await?;
            to.write_all(&body).await?;
            to.flush().await
        };
        if !matches!(tokio::time::timeout(WRITE_PATIENCE, written).await, Ok(Ok(()))) {
            break;
        }
    }
    // The other half may live on: the function hears now that nothing more comes.
    let _ = tokio::time::timeout(WRITE_PATIENCE, to.shutdown()).await;
}
