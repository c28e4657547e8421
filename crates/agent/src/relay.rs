//! A way to an agent that takes its time: it passes on what it gets a while later. For demonstrations and tests on one machine.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Bytes that are taken at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are on their way in one direction. Beyond, nothing is taken until one has arrived.
const PIECES_MAX: usize = 1_024;

/// The way to one agent. It is there before the agent, which is told its address. It ends with the runtime.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    target: watch::Sender<Option<SocketAddr>>,
}

impl Relay {
    /// One on a free port of this machine, whose way takes so long in either direction.
    ///
    /// # Errors
    /// There is no such port.
    pub async fn start(delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (target, known) = watch::channel(None);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // An agent that is not there is heard of as one that closes.
                tokio::spawn(relay(stream, known.clone(), delay));
            }
        });
        Ok(Self { address, target })
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The end of the way. Connections wait until it is known.
    pub fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }
}

async fn relay(from: TcpStream, mut known: watch::Receiver<Option<SocketAddr>>, delay: Duration) -> io::Result<()> {
    let target = known.wait_for(Option::is_some).await.ok().and_then(|target| *target);
    let target = target.ok_or(io::ErrorKind::NotConnected)?;
    let to = TcpStream::connect(target).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (from_read, from_write) = from.into_split();
    let (to_read, to_write) = to.into_split();
    let (there, back) = tokio::join!(pass(from_read, to_write, delay), pass(to_read, from_write, delay));
    there.and(back)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut has_ended = false;
    // The end arrives after all that was sent before it.
    while !has_ended || !under_way.is_empty() {
        let due = under_way.front().map(|(due, _)| *due);
        tokio::select! {
            read = from.read(&mut buffer), if !has_ended && under_way.len() < PIECES_MAX => match read? {
                0 => has_ended = true,
                count => under_way.push_back((Instant::now() + delay, buffer[..count].to_vec())),
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some((_, bytes)) = under_way.pop_front() {
                    to.write_all(&bytes).await?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_sent_comes_a_while_later_and_whole() {
        const DELAY: Duration = Duration::from_millis(30);
        let relay = Relay::start(DELAY).await.unwrap();
        let mut client = TcpStream::connect(relay.address()).await.unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        let from = Instant::now();
        let end = TcpListener::bind("127.0.0.1:0").await.unwrap();
        relay.lead_to(end.local_addr().unwrap());
        let (mut server, _) = end.accept().await.unwrap();
        let mut read = vec![0; sent.len()];
        let (written, received) = tokio::join!(client.write_all(&sent), server.read_exact(&mut read));
        assert!(written.is_ok() && received.is_ok() && read == sent);
        assert!(from.elapsed() >= DELAY, "{:?}", from.elapsed());
        server.write_all(b"back").await.unwrap();
        drop(server);
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        assert!(back == b"back" && from.elapsed() >= 2 * DELAY);
    }
}
