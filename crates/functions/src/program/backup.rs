//! Both sides of a backup in the function: see [`crate::backup`].

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{FRAMES_AHEAD, Instance, close, connect, write};
use crate::backup::Sending;
use crate::chunk::{Announced, ChunkKey, chunk_hash};
use crate::event::{Invocation, read_token};
use crate::receive::read_frame;
use crate::tls::{Receiving, Sending as ToProxy};
use crate::wire::{Frame, Join};

/// The other instance may have to be started first. One that is silent for so long is gone.
const PEER_PATIENCE: Duration = Duration::from_secs(20);
/// Chunks that a destination may announce: more than fit its memory.
const ANNOUNCED_MAX: usize = 4 << 20;

/// Reads frames until the connection ends or nobody wants them. The backup itself holds the invocation.
async fn read_all(mut from: Receiving, to: mpsc::Sender<(Frame, Bytes)>) {
    while let Ok(frame) = read_frame(&mut from).await {
        if to.send(frame).await.is_err() {
            pending::<()>().await;
        }
    }
}

impl Instance {
    /// The source: what the destination lacks is sent to it.
    pub(super) async fn send_backup(self: Arc<Self>, invocation: Invocation) -> io::Result<()> {
        let (from, mut to) = join(&invocation, true).await?;
        let (ahead, mut frames) = mpsc::channel(FRAMES_AHEAD);
        let reading = tokio::spawn(read_all(from, ahead));
        let sent = self.bring_in_step(&mut frames, &mut to).await;
        *self.sending.lock() = None;
        close(&mut to).await;
        reading.abort();
        sent
    }

    async fn bring_in_step(&self, frames: &mut mpsc::Receiver<(Frame, Bytes)>, to: &mut ToProxy) -> io::Result<()> {
        let there = listed(frames).await?;
        *self.sending.lock() = Some(Sending::new(&self.holding.lock().list(), &there));
        let refused = loop {
            while let Some(key) = self.next_chunk() {
                self.send_chunk(key, to).await?;
            }
            if let Some(refused) = self.finish() {
                break refused;
            }
            tokio::select! {
                frame = next(frames) => match frame? {
                    Frame::Stored { .. } => self.answered(true),
                    Frame::Missing { .. } => self.answered(false),
                    _ => return Err(io::ErrorKind::InvalidData.into()),
                },
                () = self.changed.notified() => {}
            }
        };
        write(to, &Frame::End, &Bytes::new()).await?;
        match next(frames).await? {
            Frame::Bye { .. } if refused == 0 => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn next_chunk(&self) -> Option<ChunkKey> {
        self.sending.lock().as_mut().and_then(Sending::next_chunk)
    }

    fn answered(&self, is_done: bool) {
        if let Some(sending) = self.sending.lock().as_mut() {
            sending.answered(is_done);
        }
    }

    /// The number of refused chunks, if all is sent. Later changes are for the next backup.
    fn finish(&self) -> Option<u64> {
        let mut sending = self.sending.lock();
        let is_done = sending.as_ref().is_none_or(Sending::is_done);
        is_done.then(|| sending.take().map_or(0, |sending| sending.refused()))
    }

    async fn send_chunk(&self, key: ChunkKey, to: &mut ToProxy) -> io::Result<()> {
        let found = self.holding.lock().peek(&key);
        match found {
            Some((bytes, hash)) => write(to, &Frame::Put { id: 0, key, hash }, &bytes).await,
            None => write(to, &Frame::Delete { id: 0, key }, &Bytes::new()).await,
        }
    }

    /// The destination: says what it holds, and does what the source says, until that has nothing left.
    pub(super) async fn receive_backup(&self, invocation: &Invocation) -> io::Result<()> {
        let (mut from, mut to) = join(invocation, false).await?;
        self.list(0, &mut to).await?;
        loop {
            let (frame, body) = tokio::time::timeout(PEER_PATIENCE, read_frame(&mut from)).await??;
            let (id, lease_ms) = (0, 0);
            let answer = match frame {
                Frame::Put { key, hash, .. } => {
                    let is_stored = chunk_hash(&body) == hash && self.holding.lock().put(key, body, hash);
                    if is_stored {
                        Frame::Stored { id, lease_ms }
                    } else {
                        Frame::Missing { id, lease_ms }
                    }
                }
                Frame::Delete { key, .. } => {
                    self.holding.lock().delete(&key);
                    Frame::Stored { id, lease_ms }
                }
                Frame::End => {
                    let (term, hash) = self.held();
                    write(&mut to, &Frame::Bye { term, hash }, &Bytes::new()).await?;
                    close(&mut to).await;
                    return Ok(());
                }
                _ => return Err(io::ErrorKind::InvalidData.into()),
            };
            write(&mut to, &answer, &Bytes::new()).await?;
        }
    }
}

/// Connects to the relay.
async fn join(invocation: &Invocation, is_source: bool) -> io::Result<(Receiving, ToProxy)> {
    let (from, mut to) = connect(invocation).await?;
    let join = Join {
        epoch: invocation.epoch,
        ends_ms: invocation.ends_ms,
        token: read_token(&invocation.token).ok_or(io::ErrorKind::InvalidInput)?,
        is_source,
        name: invocation.name.clone(),
    };
    write(&mut to, &Frame::Join(Box::new(join)), &Bytes::new()).await?;
    Ok((from, to))
}

/// The next message of the other instance.
async fn next(frames: &mut mpsc::Receiver<(Frame, Bytes)>) -> io::Result<Frame> {
    let frame = tokio::time::timeout(PEER_PATIENCE, frames.recv()).await?;
    frame
        .map(|(frame, _)| frame)
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The chunks of the destination.
async fn listed(frames: &mut mpsc::Receiver<(Frame, Bytes)>) -> io::Result<Vec<Announced>> {
    let mut all = Vec::new();
    loop {
        let Frame::Listed { has_more, chunks, .. } = next(frames).await? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        all.extend(chunks);
        if !has_more {
            return Ok(all);
        }
        if all.len() > ANNOUNCED_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
}
