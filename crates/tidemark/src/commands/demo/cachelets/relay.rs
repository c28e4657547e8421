//! The way between nodes, which takes its time: passes on what it gets a while later.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};

/// Bytes that are taken at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are on their way in one direction. Beyond, nothing is taken until one has arrived.
const PIECES_MAX: usize = 1_024;

/// Starts one that leads to an address; where it listens.
pub(super) async fn start(target: SocketAddr, delay: Duration) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A node that is not there is heard of as one that closes.
            tokio::spawn(relay(stream, target, delay));
        }
    });
    Ok(address)
}

async fn relay(from: TcpStream, target: SocketAddr, delay: Duration) -> std::io::Result<()> {
    let to = TcpStream::connect(target).await?;
    from.set_nodelay(true)?;
    to.set_nodelay(true)?;
    let (from_read, from_write) = from.into_split();
    let (to_read, to_write) = to.into_split();
    let (there, back) = tokio::join!(pass(from_read, to_write, delay), pass(to_read, from_write, delay));
    there.and(back)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> std::io::Result<()> {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; PIECE_BYTES];
    loop {
        let due = under_way.front().map(|(due, _)| *due);
        tokio::select! {
            read = from.read(&mut buffer), if under_way.len() < PIECES_MAX => match read? {
                0 => return Ok(()),
                count => under_way.push_back((Instant::now() + delay, buffer[..count].to_vec())),
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                if let Some((_, bytes)) = under_way.pop_front() {
                    to.write_all(&bytes).await?;
                }
            }
        }
    }
}
