//! Several gateways in front of the same buckets: each object has a home among them, which alone caches it and knows its version.
//!
//! The list of gateways is a file, the same on all. A request for another's object is passed on, signed by a key that
//! the gateways share (derived from `s3.key`). Invariants: what came from a gateway is never passed on again, so that lists that
//! differ for a while make no loops; and whoever writes past a home tells it to forget the object before it asks it
//! anything else, so that a read finds the write.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Response, StatusCode};
use parking_lot::Mutex;

use crate::access::{AccessError, ServerKey};
use crate::config::Origin;
use crate::origin::{OriginClient, OriginRequest, Progress};
use crate::ring::Ring;
use crate::sign::{Credentials, decode, encode, payload_hash};
use crate::versions::Versions;

/// The first byte of the access key of a request that a gateway passes on; no tenant's name has it.
pub(crate) const PEER_MARK: char = '@';
/// Only a home's answer about an object has this header. Another one, such as a refused signature, counts as none.
pub(crate) const HOME_HEADER: &str = "x-tidemark-home";
/// The parameter of the message by which a gateway has another one forget objects; its value is a tenant, or empty.
pub(crate) const FORGET: &str = "tidemark-forget";
/// How often the list of gateways is looked at.
const LIST_LOOK: Duration = Duration::from_secs(1);
/// A gateway that did not answer is asked again after so long.
const PEER_REST: Duration = Duration::from_secs(2);
/// A gateway that does not answer a message by then is not there.
const PEER_PATIENCE: Duration = Duration::from_secs(2);
/// A gateway is told of so many objects by name that were written past it; of more, it is told to forget all. A message of them is
/// within what is read of a document.
const OWED_MAX: usize = 512;
/// The same of an object with a longer name than S3 allows, with its bucket's.
const OWED_NAME_BYTES_MAX: usize = 1100;
/// The length of a list of gateways: hundreds of names.
const LIST_BYTES_MAX: usize = 64 << 10;

/// The configuration of a gateway among others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersConfig {
    /// The file with the addresses of all gateways, `HOST:PORT` in a line each; `#` begins a remark. It is read anew when it changes.
    pub file: PathBuf,
    /// This gateway's own address there, if it is another than that on which it listens.
    pub own: Option<String>,
}

/// Whether a text is `HOST:PORT`.
pub fn is_address(text: &str) -> bool {
    let authority: Option<Authority> = text.parse().ok();
    authority.is_some_and(|authority| authority.port_u16().is_some() && !text.contains('@'))
}

/// The gateways of a list.
fn read_list(text: &str) -> Result<Ring, String> {
    if text.len() > LIST_BYTES_MAX {
        return Err(format!("longer than {LIST_BYTES_MAX} bytes"));
    }
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let mut gateways = Vec::new();
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        if !is_address(line) {
            return Err(format!("line {}: write HOST:PORT", number + 1));
        }
        gateways.push(line.to_owned());
    }
    Ring::new(gateways).map_err(|error| error.to_string())
}

/// The marks that tell two contents of the list's file apart.
type Stamp = (i64, i64, u64, u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Peers {
    file: PathBuf,
    own: String,
    key: ServerKey,
    client: OriginClient,
    versions: Arc<Versions>,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    ring: Arc<Ring>,
    peers: HashMap<String, Arc<Peer>>,
    stamp: Option<Stamp>,
    looked: Option<Instant>,
}

/// Another gateway.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its address, as an origin's.
    pub(crate) origin: Origin,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rests_until: Option<Instant>,
    owed: Owed,
    /// Moved with every debt, to see whether one came while others were paid.
    owed_count: u64,
    /// Whether a task is paying.
    is_settling: bool,
}

/// The objects that a gateway has to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owed {
    Places(Vec<String>),
    All,
}

impl Owed {
    fn add(&mut self, place: &str) {
        if let Self::Places(places) = self {
            if places.iter().any(|known| known == place) {
                return;
            }
            if places.len() == OWED_MAX || place.len() > OWED_NAME_BYTES_MAX {
                *self = Self::All;
            } else {
                places.push(place.to_owned());
            }
        }
    }

    fn is_nothing(&self) -> bool {
        matches!(self, Self::Places(places) if places.is_empty())
    }

    /// As a message: a place in each line, encoded, or a star, which no encoded text has.
    fn text(&self) -> String {
        match self {
            Self::All => "*".into(),
            Self::Places(places) => places.iter().map(|place| encode(place, false) + "\n").collect(),
        }
    }
}

/// Does what a message of [`Owed`] says. `None`: it is none.
pub(crate) fn forget(versions: &Versions, message: &[u8]) -> Option<()> {
    let message = std::str::from_utf8(message).ok()?;
    if message == "*" {
        versions.forget_all();
        return Some(());
    }
    message.lines().try_for_each(|line| {
        versions.forget(&decode(line)?);
        Some(())
    })
}

impl Peer {
    fn new(address: &str) -> Self {
        Self {
            origin: Origin {
                bucket: String::new(),
                scheme: "http".into(),
                authority: address.into(),
                region: "us-east-1".into(),
                freshness: None,
            },
            state: Mutex::new(State {
                rests_until: None,
                // This gateway may have written past it before it was started anew.
                owed: Owed::All,
                owed_count: 1,
                is_settling: false,
            }),
        }
    }

    fn is_resting(&self) -> bool {
        let until = self.state.lock().rests_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// It did not answer: for a while nobody waits for it.
    pub(crate) fn rest(&self) {
        self.state.lock().rests_until = Some(Instant::now() + PEER_REST);
    }
}

impl Peers {
    /// With the gateways of the file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(
        config: &PeersConfig,
        address: String,
        key: ServerKey,
        client: OriginClient,
        versions: Arc<Versions>,
    ) -> Result<Self, AccessError> {
        let peers = Self {
            file: config.file.clone(),
            own: config.own.clone().unwrap_or(address),
            key,
            client,
            versions,
            list: Mutex::default(),
        };
        let stamp = stamp(&peers.file);
        let ring = read_file(&peers.file)?;
        peers.adopt(&mut peers.list.lock(), ring, stamp);
        Ok(peers)
    }

    fn adopt(&self, list: &mut List, ring: Ring, stamp: Option<Stamp>) {
        list.stamp = stamp;
        if *list.ring == ring {
            return;
        }
        // Objects of another may have been written there.
        self.versions.forget_all();
        let others = ring.gateways().iter().filter(|name| **name != self.own);
        let kept = |name: &String| {
            list.peers
                .get(name)
                .cloned()
                .unwrap_or_else(|| Arc::new(Peer::new(name)))
        };
        list.peers = others.map(|name| (name.clone(), kept(name))).collect();
        list.ring = Arc::new(ring);
    }

    fn look(&self, list: &mut List) {
        if list.looked.is_some_and(|looked| looked.elapsed() < LIST_LOOK) {
            return;
        }
        list.looked = Some(Instant::now());
        let stamp = stamp(&self.file);
        if stamp == list.stamp {
            return;
        }
        match read_file(&self.file) {
            Ok(ring) => self.adopt(list, ring, stamp),
            // The old one stays in force.
            Err(error) => {
                list.stamp = stamp;
                tracing::error!("gateways: {error}");
            }
        }
    }

    /// Another gateway that is the home of `bucket/key`; `None` if it is this one.
    pub(crate) fn home(&self, place: &str) -> Option<Arc<Peer>> {
        let mut list = self.list.lock();
        self.look(&mut list);
        let home = list.ring.home(place)?;
        list.peers.get(home).cloned()
    }

    /// How many gateways the list has.
    pub(crate) fn len(&self) -> usize {
        let mut list = self.list.lock();
        self.look(&mut list);
        list.ring.gateways().len()
    }

    /// A client that signs as this gateway does for an access key's owner; for none if it is empty.
    pub(crate) fn client(&self, access_key: &str) -> OriginClient {
        let access_key = format!("{PEER_MARK}{access_key}");
        self.client.signing(Credentials {
            secret_key: self.key.peer_secret(&access_key),
            access_key,
            session_token: None,
        })
    }

    /// Passes a read on. `None`: the gateway does not answer, or not with an object or S3's own word about it.
    pub(crate) async fn read(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        access_key: &str,
        request: OriginRequest,
    ) -> Option<Response<Incoming>> {
        let is_owed = !peer.state.lock().owed.is_nothing();
        if peer.is_resting() || (is_owed && self.tell(peer, "").await.is_none()) {
            return None;
        }
        match self.client(access_key).read(&peer.origin, request).await {
            Ok(answer) if !answer.headers().contains_key(HOME_HEADER) => {
                let (gateway, status) = (&peer.origin.authority, answer.status().as_u16());
                tracing::warn!(gateway, status, "a gateway does not take what is passed on to it");
                None
            }
            Ok(answer) => Some(answer).filter(|answer| !answer.status().is_server_error()),
            Err(_) => {
                peer.rest();
                None
            }
        }
    }

    /// Whether a gateway is there, knows a tenant, and has forgotten what it has to.
    pub(crate) async fn greet(self: &Arc<Self>, peer: &Arc<Peer>, tenant: &str) -> bool {
        !peer.is_resting() && self.tell(peer, tenant).await == Some(StatusCode::NO_CONTENT)
    }

    /// `bucket/key` is, or has been, written past its home, which has to forget it.
    pub(crate) fn owe(self: &Arc<Self>, peer: &Arc<Peer>, place: &str) {
        let mut state = peer.state.lock();
        state.owed.add(place);
        state.owed_count += 1;
        if std::mem::replace(&mut state.is_settling, true) {
            return;
        }
        drop(state);
        let (this, peer) = (Arc::clone(self), Arc::clone(peer));
        tokio::spawn(async move {
            loop {
                let is_told = this.tell(&peer, "").await.is_some();
                let is_listed = this.is_listed(&peer);
                {
                    let mut state = peer.state.lock();
                    if !is_listed || state.owed.is_nothing() {
                        state.is_settling = false;
                        return;
                    }
                }
                if !is_told {
                    tokio::time::sleep(PEER_REST).await;
                }
            }
        });
    }

    /// The same, where the gateway is waited for. If it does not answer, it is told later.
    pub(crate) async fn have_forgotten(self: &Arc<Self>, peer: &Arc<Peer>, places: &[String]) {
        places.iter().for_each(|place| self.owe(peer, place));
        if !peer.is_resting() {
            self.tell(peer, "").await;
        }
    }

    fn is_listed(&self, peer: &Arc<Peer>) -> bool {
        let list = self.list.lock();
        let listed = list.peers.get(&peer.origin.authority);
        listed.is_some_and(|listed| Arc::ptr_eq(listed, peer))
    }

    /// Tells a gateway what it has to forget. Its answer, of which 404 is that it has no such tenant.
    async fn tell(&self, peer: &Peer, tenant: &str) -> Option<StatusCode> {
        let (body, count) = {
            let state = peer.state.lock();
            (state.owed.text(), state.owed_count)
        };
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        let request = OriginRequest {
            method: Method::POST,
            path: "/".into(),
            query: vec![(FORGET.into(), tenant.into())],
            headers,
            payload: payload_hash(body.as_bytes()),
        };
        let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
        let (client, progress) = (self.client(""), Progress::default());
        let told = client.write(&peer.origin, request, body, &progress);
        let answer = tokio::time::timeout(PEER_PATIENCE, told)
            .await
            .ok()
            .and_then(Result::ok);
        let status = answer
            .filter(|answer| answer.headers().contains_key(HOME_HEADER))
            .map(|answer| answer.status());
        let mut state = peer.state.lock();
        if status.is_none() {
            state.rests_until = Some(Instant::now() + PEER_REST);
        } else {
            state.rests_until = None;
            if state.owed_count == count {
                state.owed = Owed::Places(Vec::new());
            }
        }
        status
    }
}

fn stamp(file: &Path) -> Option<Stamp> {
    let data = std::fs::metadata(file).ok()?;
    Some((data.mtime(), data.mtime_nsec(), data.ino(), data.len()))
}

fn read_file(path: &Path) -> Result<Ring, AccessError> {
    let text = std::fs::read_to_string(path).map_err(|source| AccessError::File {
        path: path.into(),
        source,
    })?;
    read_list(&text).map_err(|problem| AccessError::Content {
        path: path.into(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        let ring = read_list("# all\n b:9000 \n\n10.0.0.1:9000 # first\n[::1]:9000\n").unwrap();
        assert_eq!(ring.gateways(), ["10.0.0.1:9000", "[::1]:9000", "b:9000"]);
        for broken in ["b", "http://b:1", "b:1/c", "u@b:1", "b:1 c:1"] {
            let said = read_list(&format!("a:1\n{broken}\n")).unwrap_err();
            assert_eq!(said, "line 2: write HOST:PORT", "{broken}");
        }
        assert!(read_list(&"#".repeat(LIST_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn debts_are_said_in_a_message_and_have_a_limit() {
        let mut owed = Owed::Places(Vec::new());
        for place in ["b/*", "b/a\nb", "b/*"] {
            owed.add(place);
        }
        assert_eq!(owed.text(), "b/%2A\nb/a%0Ab\n");
        (0..OWED_MAX).for_each(|number| owed.add(&format!("b/{number}")));
        assert_eq!((owed.text().as_str(), owed), ("*", Owed::All));
    }
}
