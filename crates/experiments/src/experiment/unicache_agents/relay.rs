//! The way between nodes, and to the origin: what is sent arrives a while later, in order. Time on the way is no time of sending: the
//! next bytes set out while the ones before are under way.
//!
//! Two threads a direction: one receives and notes when the bytes are due, the other one hands them over then. A thread wakes within
//! a tenth of a millisecond; an event loop's timers have one of a whole millisecond, which is as long as the way itself.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes that are taken at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are on their way in one direction. Beyond, nothing is taken until one has arrived.
const PIECES_MAX: usize = 1_024;
/// These threads hold a buffer on the heap, and little else.
const STACK_BYTES: usize = 128 << 10;

/// A way to an address. Its connections end with those at its ends.
#[derive(Debug)]
pub(super) struct Relay {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Relay {
    /// One on a free port, whose way takes so long in either direction. Whoever is at the target may come later.
    pub(super) fn start(target: SocketAddr, delay: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let accepting = thread(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                // A target that is not there is heard of as one that closes.
                if let Ok(near) = stream
                    && let Ok(far) = TcpStream::connect(target)
                {
                    let _ = join(near, far, delay);
                }
            }
        })?;
        Ok(Self {
            address,
            is_over,
            accepting: Some(accepting),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How long a byte takes there and back, so many times, when nothing else is under way.
    pub(super) fn round_trips(delay: Duration, count: usize) -> io::Result<Vec<Duration>> {
        let end = TcpListener::bind("127.0.0.1:0")?;
        let relay = Self::start(end.local_addr()?, delay)?;
        let mut near = TcpStream::connect(relay.address())?;
        near.set_nodelay(true)?;
        let (mut far, _) = end.accept()?;
        far.set_nodelay(true)?;
        let mut byte = [0];
        let mut once = || {
            let began = Instant::now();
            near.write_all(&[1])?;
            far.read_exact(&mut byte)?;
            far.write_all(&byte)?;
            near.read_exact(&mut byte)?;
            Ok(began.elapsed())
        };
        (0..count).map(|_| once()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // It looks whether it is over when somebody connects.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(accepting) = self.accepting.take().filter(|_| woken) {
            drop(accepting.join());
        }
    }
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("relay".into())
        .stack_size(STACK_BYTES)
        .spawn(work)
}

/// Both directions between two connections.
fn join(near: TcpStream, far: TcpStream, delay: Duration) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    pass(near.try_clone()?, far.try_clone()?, delay)?;
    pass(far, near, delay)
}

/// One direction. The end arrives after all that was sent before it.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: Duration) -> io::Result<()> {
    let (sent, under_way) = sync_channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    thread(move || {
        for (due, bytes) in under_way {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // One that has ended by itself can not be ended.
        let _ = to.shutdown(Shutdown::Write);
    })?;
    thread(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if sent.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                // Nobody hears it any more.
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(40);

    #[test]
    fn bytes_arrive_a_while_later_whole_and_in_order() {
        let end = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(end.local_addr().unwrap(), DELAY).unwrap();
        let mut near = TcpStream::connect(relay.address()).unwrap();
        let (mut far, _) = end.accept().unwrap();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7) as u8).collect();
        let began = Instant::now();
        let expected = sent.clone();
        let writing = std::thread::spawn(move || {
            near.write_all(&sent).unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            near.read_to_end(&mut back).unwrap();
            (back, began.elapsed())
        });
        let mut read = Vec::new();
        far.read_to_end(&mut read).unwrap();
        assert!(read == expected && began.elapsed() >= DELAY, "{:?}", began.elapsed());
        far.write_all(b"back").unwrap();
        drop(far);
        let (back, took) = writing.join().unwrap();
        assert!(back == b"back" && took >= 2 * DELAY, "{took:?}");
    }

    /// If a piece waited for the one before it to arrive, these would take twenty times as long.
    #[test]
    fn what_is_under_way_holds_nothing_up() {
        let end = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(end.local_addr().unwrap(), DELAY).unwrap();
        let mut near = TcpStream::connect(relay.address()).unwrap();
        near.set_nodelay(true).unwrap();
        let (mut far, _) = end.accept().unwrap();
        let began = Instant::now();
        let writing = std::thread::spawn(move || {
            for number in 0..20 {
                near.write_all(&[number]).unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
            near
        });
        let mut read = [0; 20];
        far.read_exact(&mut read).unwrap();
        let took = began.elapsed();
        assert!(read.is_sorted() && took >= DELAY && took < 10 * DELAY, "{took:?}");
        drop(writing.join().unwrap());
        let round_trips = Relay::round_trips(DELAY, 3).unwrap();
        let is_twice = |took: &Duration| (2 * DELAY..4 * DELAY).contains(took);
        assert!(
            round_trips.len() == 3 && round_trips.iter().all(is_twice),
            "{round_trips:?}"
        );
    }
}
