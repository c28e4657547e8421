//! Clients that keep an instance's memory in use.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::{Instance, VALUE_BYTES};
use crate::*;

/// A client that asks for random keys and writes missed ones, until it is told to end or the server does.
pub(super) struct Load {
    /// Between two batches, in milliseconds; without any, clients and workers want more cores than there are.
    pause_ms: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(instance: &Instance, keys: u64, pause_ms: u64) -> Self {
        let pause_ms = Arc::new(AtomicU64::new(pause_ms));
        let is_over: Arc<AtomicBool> = Arc::default();
        let (pause, ends) = (Arc::clone(&pause_ms), Arc::clone(&is_over));
        let address = instance.memcached;
        let thread = std::thread::spawn(move || {
            let socket = TcpStream::connect(address).unwrap();
            // A request after unanswered writes would wait for their acknowledgement.
            socket.set_nodelay(true).unwrap();
            let mut client = BufReader::new(socket);
            let mut random = 1_u64;
            while !ends.load(Ordering::Relaxed) {
                if batch(&mut client, keys, &mut random).is_none() {
                    return;
                }
                let pause_ms = pause.load(Ordering::Relaxed);
                if pause_ms > 0 {
                    std::thread::park_timeout(Duration::from_millis(pause_ms));
                }
            }
        });
        Self {
            pause_ms,
            is_over,
            thread: Some(thread),
        }
    }

    pub(super) fn set_pause(&self, pause_ms: u64) {
        self.pause_ms.store(pause_ms, Ordering::Relaxed);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // A client of a server that stands still ends with that server.
        if !std::thread::panicking() {
            self.thread.take().map(JoinHandle::join);
        }
    }
}

/// Asks for 32 keys at once and writes those that are missing. `None` when the server is gone.
fn batch(client: &mut BufReader<TcpStream>, keys: u64, random: &mut u64) -> Option<()> {
    let mut numbers = [0; 32];
    let mut request = Vec::new();
    for number in &mut numbers {
        *random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *number = (*random >> 33) % keys;
        write!(request, "get key-{number}\r\n").ok()?;
    }
    client.get_mut().write_all(&request).ok()?;
    request.clear();
    let (mut line, mut value) = (String::new(), vec![b'v'; VALUE_BYTES + 2]);
    for number in numbers {
        line.clear();
        client.read_line(&mut line).ok()?;
        if line.starts_with("VALUE") {
            client.read_exact(&mut value).ok()?;
            line.clear();
            client.read_line(&mut line).ok()?;
        } else {
            write!(request, "set key-{number} 0 0 {VALUE_BYTES} noreply\r\n").ok()?;
            request.extend(std::iter::repeat_n(b'v', VALUE_BYTES));
            request.extend(b"\r\n");
        }
        if line != "END\r\n" {
            return None;
        }
    }
    client.get_mut().write_all(&request).ok()
}
