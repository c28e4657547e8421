//! A network between agents that takes its time: a relay per agent that passes on what it gets a while later.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep_until};

/// The way to one agent. It is there before the agent, which is told its address.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    target: tokio::sync::watch::Sender<Option<SocketAddr>>,
    _runtime: Runtime,
}

impl Relay {
    pub(crate) fn start(delay: Duration) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (target, known) = tokio::sync::watch::channel(None);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(relay(stream, known.clone(), delay));
            }
        });
        Self {
            address,
            target,
            _runtime: runtime,
        }
    }

    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(Some(target));
    }
}

async fn relay(from: TcpStream, mut known: tokio::sync::watch::Receiver<Option<SocketAddr>>, delay: Duration) {
    let target = *known.wait_for(Option::is_some).await.unwrap();
    let Ok(to) = TcpStream::connect(target.unwrap()).await else {
        return;
    };
    from.set_nodelay(true).unwrap();
    to.set_nodelay(true).unwrap();
    let (from_read, from_write) = from.into_split();
    let (to_read, to_write) = to.into_split();
    tokio::join!(pass(from_read, to_write, delay), pass(to_read, from_write, delay));
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let mut under_way: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let due = under_way.front().map(|(due, _)| *due);
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(count @ 1..) => under_way.push_back((Instant::now() + delay, buffer[..count].to_vec())),
                _ => return,
            },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                let (_, bytes) = under_way.pop_front().unwrap();
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    }
}
