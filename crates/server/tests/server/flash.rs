//! Flash that does not answer: how many commands of a tenant wait for it, and what the others are told.

use std::io;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tidemark_flash::device::{Device, SimDevice};
use tidemark_plane::Flash;
use tidemark_server::Limits;
use tidemark_types::MIB;

use crate::harness::{Client, Harness, Setup, found, open_tenant, quick_to_refuse, set, wait_until};

/// Twice what memory has room for.
const KEYS: usize = 16_000;
const VALUE_BYTES: usize = 1000;
/// Commands that may wait.
const MOST: u64 = 2;

/// A device that can be told not to answer reads.
struct Gate {
    device: SimDevice,
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    waiting: usize,
}

impl Gate {
    fn set_shut(&self, is_shut: bool) {
        self.state.lock().is_shut = is_shut;
        self.opened.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl Device for Gate {
    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.opened.wait_while(&mut state, |state| state.is_shut);
        state.waiting -= 1;
        drop(state);
        self.device.read(offset, bytes)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
}

/// Opens the gate also when the test fails: else the server would wait for it.
struct OpenAtEnd(Arc<Gate>);

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.0.set_shut(false);
    }
}

fn server(gate: &Arc<Gate>) -> Harness {
    // The same hash each time: a write drops what has its tag unread, and none of the keys that are asked for is to be.
    tidemark_flash::format(&gate.device, [5; 24]).unwrap();
    let device: Arc<dyn Device> = Arc::<Gate>::clone(gate);
    let mut tenant = open_tenant();
    tenant.grant_bytes = 8 * MIB;
    Harness::start(Setup {
        workers: 1,
        pool_bytes: 32 * MIB,
        limits: Limits {
            suspended_commands: MOST,
            ..quick_to_refuse()
        },
        tenants: vec![tenant],
        flash: Some(Flash::open(device, [7; 16], &[], None).unwrap()),
    })
}

fn value(n: usize) -> Vec<u8> {
    format!("{n:>VALUE_BYTES$}").into_bytes()
}

fn key(n: usize) -> String {
    format!("key-{n}")
}

/// An open gate before a simulated device.
fn gate(seed: u64) -> Arc<Gate> {
    Arc::new(Gate {
        device: SimDevice::new(96 * MIB, seed),
        state: Mutex::default(),
        opened: Condvar::new(),
    })
}

#[test]
fn as_many_commands_of_a_tenant_wait_for_flash_as_may_and_others_are_refused() {
    let gate = gate(3);
    let harness = server(&gate);
    // Dropped before the server, which waits for its reads.
    let _end = OpenAtEnd(Arc::clone(&gate));
    let mut client = harness.connect();
    for n in 0..KEYS {
        client.ask(&set(&key(n), &value(n)), b"STORED\r\n");
    }
    let newest = KEYS - 1;
    gate.set_shut(true);
    let get = |n: usize| format!("get {}\r\n", key(n)).into_bytes();
    let mut waiting: Vec<Client> = (0..MOST).map(|_| harness.connect()).collect();
    for (n, client) in waiting.iter_mut().enumerate() {
        client.send(&get(n));
    }
    wait_until("reads wait", || gate.waiting() as u64 == MOST);
    // In memory: nobody has to wait.
    client.ask(&get(newest), &found(&key(newest), &value(newest)));
    client.send(&get(10));
    let refused = client.line();
    assert!(refused.starts_with(b"SERVER_ERROR "), "{}", refused.escape_ascii());
    // A line of several keys is one command.
    client.send(format!("get {} {}\r\n", key(newest), key(11)).as_bytes());
    assert!(client.line().starts_with(b"SERVER_ERROR "));
    client.ask(&get(newest), &found(&key(newest), &value(newest)));
    let mut redis = Client::connect(harness.redis);
    for command in ["GET key-12", "MGET key-13 key-14", "EXISTS key-15", "SCAN 0", "KEYS *"] {
        redis.send(format!("{command}\r\n").as_bytes());
        let refused = redis.line();
        assert!(
            refused.starts_with(b"-TRYAGAIN "),
            "{command}: {}",
            refused.escape_ascii()
        );
    }
    redis.ask(b"MULTI\r\nGET key-16\r\n", b"+OK\r\n+QUEUED\r\n");
    redis.send(b"EXEC\r\n");
    assert!(redis.line().starts_with(b"-TRYAGAIN "));
    // The transaction is over, and what needs no flash goes on.
    redis.ask(b"SET key-17 new\r\nGET key-17\r\n", b"+OK\r\n$3\r\nnew\r\n");
    assert_eq!(harness.tenant(1).unwrap().counters.refused.flash, 8);
    gate.set_shut(false);
    for (n, client) in waiting.iter_mut().enumerate() {
        client.expect(&found(&key(n), &value(n)));
    }
    // Room again, and nothing of those was lost.
    for n in 10..17 {
        client.ask(&get(n), &found(&key(n), &value(n)));
    }
}

#[test]
fn a_connection_that_ends_while_it_waits_for_flash_leaves_its_place_to_others() {
    let gate = gate(4);
    let harness = server(&gate);
    // Dropped before the server, which waits for its reads.
    let _end = OpenAtEnd(Arc::clone(&gate));
    let mut client = harness.connect();
    for n in 0..KEYS {
        client.ask(&set(&key(n), &value(n)), b"STORED\r\n");
    }
    gate.set_shut(true);
    for round in 0..4 {
        let mut ended: Vec<Client> = (0..MOST).map(|_| harness.connect()).collect();
        for (n, ended) in ended.iter_mut().enumerate() {
            ended.send(format!("get {}\r\n", key(round * 10 + n)).as_bytes());
        }
        wait_until("they wait", || gate.waiting() as u64 == MOST * (round as u64 + 1));
        for ended in &ended {
            // A reset: nothing is left to be read, and nobody waits for replies.
            socket2::SockRef::from(&ended.stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .unwrap();
        }
        drop(ended);
        wait_until("they are gone", || client.stat("curr_connections") == 1);
    }
}
