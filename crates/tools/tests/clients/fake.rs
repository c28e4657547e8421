//! A small server that speaks both protocols, keeps a first-in-first-out cache per tenant, and errs as it is told.

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use tidemark_tools::client::Protocol;

/// The server's fault.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Fault {
    #[default]
    None,
    /// The last byte of every value is changed.
    WrongByte,
    /// Every value lacks its last byte.
    ShortValue,
    /// In memcached's protocol, values are said to be another key's.
    WrongKey,
    /// Nothing, but replies come in pieces of seven bytes.
    Pieces,
    /// A get is answered as if it were a set.
    Stored,
    /// Sets of more than so many bytes are refused.
    RefuseAbove(usize),
    /// Everything is refused.
    RefuseAll,
    /// The reply is no protocol.
    Garbage,
    /// The connection is closed instead of answering this request (from 0, of all connections).
    CloseAt(u64),
    /// Nothing is answered from this request on (from 0, of all connections) until the gate is opened.
    StallAt(u64),
}

pub(crate) struct Setup {
    pub(crate) protocol: Protocol,
    pub(crate) fault: Fault,
    /// Keys are not counted, values are, per tenant.
    pub(crate) capacity_bytes: usize,
    /// Tenants and their secrets; without any, nobody logs in.
    pub(crate) tenants: &'static [(&'static str, &'static str)],
}

pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    setup: Setup,
    requests: AtomicU64,
    caches: Mutex<HashMap<String, Cache>>,
    gate_open: Mutex<bool>,
    gate: Condvar,
}

/// The items that one tenant stored, and all its requests in order.
#[derive(Clone, Default)]
pub(crate) struct Cache {
    values: HashMap<Vec<u8>, Vec<u8>>,
    order: VecDeque<Vec<u8>>,
    bytes: usize,
    pub(crate) gets: Vec<Vec<u8>>,
    pub(crate) sets: Vec<Vec<u8>>,
    pub(crate) connections: u64,
}

impl Setup {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            fault: Fault::None,
            capacity_bytes: usize::MAX,
            tenants: &[],
        }
    }

    pub(crate) fn start(self) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            setup: self,
            requests: AtomicU64::new(0),
            caches: Mutex::default(),
            gate_open: Mutex::new(false),
            gate: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), Arc::clone(&accepting));
                // A client that leaves is no failure of the server's.
                std::thread::spawn(move || drop(serve(&stream, &shared)));
            }
        });
        Fake { address, shared }
    }
}

impl Fake {
    /// The cache of a tenant; the open one is `default`.
    pub(crate) fn cache(&self, tenant: &str) -> Cache {
        self.shared
            .caches
            .lock()
            .unwrap()
            .get(tenant)
            .cloned()
            .unwrap_or_default()
    }

    /// Ends [`Fault::StallAt`].
    pub(crate) fn open_gate(&self) {
        *self.shared.gate_open.lock().unwrap() = true;
        self.shared.gate.notify_all();
    }
}

impl Cache {
    /// The keys that have a value.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.values.keys()
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.order.retain(|kept| kept != key);
        let value = self.values.remove(key);
        self.bytes -= value.as_ref().map_or(0, Vec::len);
        value.is_some()
    }

    fn set(&mut self, key: Vec<u8>, value: Vec<u8>, capacity_bytes: usize) {
        self.sets.push(key.clone());
        if let Some(old) = self.values.remove(&key) {
            self.bytes -= old.len();
        } else {
            self.order.push_back(key.clone());
        }
        self.bytes += value.len();
        self.values.insert(key, value);
        while self.bytes > capacity_bytes {
            let oldest = self.order.pop_front().unwrap();
            self.bytes -= self.values.remove(&oldest).unwrap().len();
        }
    }
}

enum Command {
    Get(Vec<u8>),
    Set(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Auth(String, String),
}

fn serve(stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = BufWriter::new(stream);
    let protocol = shared.setup.protocol;
    let mut tenant = shared.setup.tenants.is_empty().then(|| "default".to_owned());
    let mut counted = false;
    loop {
        if reader.buffer().is_empty() {
            writer.flush()?;
        }
        let command = match protocol {
            Protocol::Memcached => read_memcached(&mut reader, tenant.is_none())?,
            Protocol::Redis => read_resp(&mut reader)?,
        };
        let Some(tenant) = &tenant else {
            tenant = log_in(shared, &command, &mut writer)?;
            continue;
        };
        let number = shared.requests.fetch_add(1, Ordering::SeqCst);
        match shared.setup.fault {
            Fault::CloseAt(at) if number >= at => return writer.flush(),
            Fault::StallAt(at) if number >= at => {
                writer.flush()?;
                let open = shared.gate_open.lock().unwrap();
                drop(shared.gate.wait_while(open, |open| !*open).unwrap());
            }
            _ => {}
        }
        let mut caches = shared.caches.lock().unwrap();
        let cache = caches.entry(tenant.clone()).or_default();
        cache.connections += u64::from(!std::mem::replace(&mut counted, true));
        let reply = execute(cache, command, &shared.setup);
        drop(caches);
        match shared.setup.fault {
            Fault::Pieces => reply
                .chunks(7)
                .try_for_each(|piece| writer.write_all(piece).and_then(|()| writer.flush()))?,
            _ => writer.write_all(&reply)?,
        }
    }
}

fn log_in(shared: &Shared, command: &Command, writer: &mut impl Write) -> std::io::Result<Option<String>> {
    let known = match command {
        Command::Auth(name, secret) => shared
            .setup
            .tenants
            .contains(&(name.as_str(), secret.as_str()))
            .then_some(name),
        _ => None,
    };
    let reply: &[u8] = match (shared.setup.protocol, known.is_some()) {
        (Protocol::Memcached, true) => b"STORED\r\n",
        (Protocol::Memcached, false) => b"CLIENT_ERROR authentication failure\r\n",
        (Protocol::Redis, true) => b"+OK\r\n",
        (Protocol::Redis, false) => b"-WRONGPASS invalid username-password pair or user is disabled.\r\n",
    };
    writer.write_all(reply)?;
    Ok(known.cloned())
}

fn execute(cache: &mut Cache, command: Command, setup: &Setup) -> Vec<u8> {
    let memcached = setup.protocol == Protocol::Memcached;
    let stored: &[u8] = if memcached { b"STORED\r\n" } else { b"+OK\r\n" };
    let refused: &[u8] = if memcached {
        b"SERVER_ERROR refused\r\n"
    } else {
        b"-ERR refused\r\n"
    };
    match (setup.fault, command) {
        (Fault::Garbage, _) => b"?!\r\n".to_vec(),
        (Fault::RefuseAll, _) | (_, Command::Auth(..)) => refused.to_vec(),
        (Fault::RefuseAbove(most), Command::Set(_, value)) if value.len() > most => refused.to_vec(),
        (_, Command::Set(key, value)) => {
            cache.set(key, value, setup.capacity_bytes);
            stored.to_vec()
        }
        (Fault::Stored, Command::Get(_)) => stored.to_vec(),
        (_, Command::Delete(key)) => match cache.remove(&key) {
            true => b"DELETED\r\n".to_vec(),
            false => b"NOT_FOUND\r\n".to_vec(),
        },
        (fault, Command::Get(key)) => {
            cache.gets.push(key.clone());
            let value = cache.values.get(&key).map(|value| damage(value, fault));
            let key = if fault == Fault::WrongKey {
                b"other".to_vec()
            } else {
                key
            };
            match value {
                Some(value) if memcached => [
                    b"VALUE ",
                    &*key,
                    format!(" 0 {}\r\n", value.len()).as_bytes(),
                    &value,
                    b"\r\nEND\r\n",
                ]
                .concat(),
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat(),
                None if memcached => b"END\r\n".to_vec(),
                None => b"$-1\r\n".to_vec(),
            }
        }
    }
}

fn damage(value: &[u8], fault: Fault) -> Vec<u8> {
    let mut value = value.to_vec();
    match fault {
        Fault::WrongByte => *value.last_mut().unwrap() ^= 1,
        Fault::ShortValue => drop(value.pop()),
        _ => {}
    }
    value
}

fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    assert!(line.ends_with("\r\n"), "{line:?}");
    line.truncate(line.len() - 2);
    Ok(line)
}

fn read_body(reader: &mut impl Read, length: &str) -> std::io::Result<Vec<u8>> {
    let mut body = vec![0; length.parse::<usize>().unwrap() + 2];
    reader.read_exact(&mut body)?;
    assert!(body.ends_with(b"\r\n"));
    body.truncate(body.len() - 2);
    Ok(body)
}

fn read_memcached(reader: &mut impl BufRead, logging_in: bool) -> std::io::Result<Command> {
    let line = read_line(reader)?;
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["get", key] => Ok(Command::Get(key.into())),
        ["delete", key] => Ok(Command::Delete(key.into())),
        ["set", key, "0", "0", length] => {
            let value = read_body(reader, length)?;
            if !logging_in {
                return Ok(Command::Set(key.into(), value));
            }
            let text = String::from_utf8(value).unwrap();
            let (name, secret) = text.split_once(' ').unwrap();
            Ok(Command::Auth(name.into(), secret.into()))
        }
        _ => panic!("not a request of this client: {line}"),
    }
}

fn read_resp(reader: &mut impl BufRead) -> std::io::Result<Command> {
    let count: usize = read_line(reader)?.strip_prefix('*').unwrap().parse().unwrap();
    let mut words = Vec::new();
    for _ in 0..count {
        let length = read_line(reader)?;
        words.push(read_body(reader, length.strip_prefix('$').unwrap())?);
    }
    let text = |word: &[u8]| String::from_utf8(word.to_vec()).unwrap();
    match &words[..] {
        [get, key] if get == b"GET" => Ok(Command::Get(key.clone())),
        [set, key, value] if set == b"SET" => Ok(Command::Set(key.clone(), value.clone())),
        [auth, name, secret] if auth == b"AUTH" => Ok(Command::Auth(text(name), text(secret))),
        _ => panic!("not a request of this client: {words:?}"),
    }
}
