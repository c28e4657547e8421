//! Requests for objects whose home is another gateway: passed on to it, or to the origin where it does not answer.
//!
//! Nothing is cached of such an object here, and no version of it is remembered: what is written at its home, or by a third gateway,
//! is seen. A reply that breaks off goes on from the origin, with the same version or not at all.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::StreamBody;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE};
use hyper::{HeaderMap, Method, Response, StatusCode};
use s3s::{Body, S3Response};

use crate::access::Placing;
use crate::config::Origin;
use crate::fill::{self, Job, body_of, get_range};
use crate::front::{Route, Visit, document};
use crate::guard::passed;
use crate::memory::Altered;
use crate::object::Object;
use crate::origin::{BoxError, OriginRequest, end_to_end, next_piece, short_reply};
use crate::peers::{HOME_HEADER, Peer, Peers};
use crate::range::content_range;
use crate::reply::Reply;
use crate::shared::Shared;
use crate::versions::Fault;

/// Another gateway that has an object.
pub(crate) struct Home {
    peers: Arc<Peers>,
    peer: Arc<Peer>,
}

impl Route {
    /// The gateway that a request for `bucket/key` is to be passed on to, if it is another one.
    pub(crate) fn home_of(&self, visit: &Visit, place: &str) -> Option<Home> {
        let peers = self.shared.peers.as_ref()?;
        // A part of an upload changes nothing that is known.
        let is_part = visit.request.method == Method::PUT && visit.parameter("partNumber").is_some();
        let is_for_the_origin = is_part || (visit.is_read() && !visit.is_cached_read());
        if visit.is_from_peer || is_for_the_origin {
            return None;
        }
        Some(Home {
            peer: peers.home(place)?,
            peers: Arc::clone(peers),
        })
    }

    /// The other gateways that have some of these objects, each with those.
    pub(crate) fn homes_of(&self, places: &[String]) -> Vec<(Home, Vec<String>)> {
        let Some(peers) = &self.shared.peers else {
            return Vec::new();
        };
        let mut homes: Vec<(Home, Vec<String>)> = Vec::new();
        for place in places {
            let Some(peer) = peers.home(place) else {
                continue;
            };
            match homes.iter_mut().find(|(home, _)| Arc::ptr_eq(&home.peer, &peer)) {
                Some((_, places)) => places.push(place.clone()),
                None => {
                    let peers = Arc::clone(peers);
                    homes.push((Home { peers, peer }, vec![place.clone()]));
                }
            }
        }
        homes
    }

    /// An answer to a write of these objects, once their homes have forgotten them.
    ///
    /// # Errors
    /// The origin's answer breaks off.
    pub(crate) async fn have_forgotten(
        &self,
        homes: Vec<(Home, Vec<String>)>,
        mut answered: S3Response<Body>,
    ) -> Result<S3Response<Body>, Reply> {
        if homes.is_empty() {
            return Ok(answered);
        }
        // Objects are being deleted until the answer ends.
        let body = document(std::mem::take(&mut answered.output)).await;
        for (home, places) in &homes {
            home.peers.have_forgotten(&home.peer, places).await;
        }
        answered.output = Body::from(body?);
        Ok(answered)
    }

    /// Has an object's home answer, or else the origin.
    pub(crate) async fn relay(
        &self,
        visit: Visit,
        origin: Origin,
        place: String,
        home: Home,
    ) -> Result<S3Response<Body>, Reply> {
        if visit.is_read() {
            return Ok(self.relay_read(visit, origin, place, &home).await);
        }
        self.relay_write(visit, origin, place, &home).await
    }

    async fn relay_read(&self, visit: Visit, origin: Origin, place: String, home: &Home) -> S3Response<Body> {
        let is_head = visit.request.method == Method::HEAD;
        let request = OriginRequest::read(
            visit.request.method.clone(),
            &format!("/{place}"),
            passed(&visit.request.headers),
        );
        if let Some(answer) = home.peers.read(&home.peer, &visit.access_key, request).await {
            let job = Job {
                client: self.shared.client.clone(),
                origin: origin.clone(),
                place: place.into(),
                memory: Arc::clone(&visit.tenant),
            };
            if let Some(relayed) = relayed(answer, job, &self.shared, is_head).await {
                self.shared.stats.relayed_requests.fetch_add(1, Ordering::Relaxed);
                return relayed;
            }
        }
        self.shared.stats.bypassed_requests.fetch_add(1, Ordering::Relaxed);
        self.forward(visit, origin).0.read().await
    }

    async fn relay_write(
        &self,
        mut visit: Visit,
        origin: Origin,
        place: String,
        home: &Home,
    ) -> Result<S3Response<Body>, Reply> {
        self.copy_source(&visit, &origin)?;
        // Its bytes are not kept here as they go by.
        visit.tenant = Arc::new(Altered::new(visit.tenant).with_place(Placing::Origin));
        let Home { peers, peer } = home;
        // Asked first: a body cannot be sent twice.
        if !peers.greet(peer, &visit.caller.tenant).await {
            self.shared.stats.bypassed_requests.fetch_add(1, Ordering::Relaxed);
            peers.owe(peer, &place);
            let answered = self.write(visit, origin, place.clone()).await;
            peers.owe(peer, &place);
            return answered;
        }
        self.shared.stats.relayed_requests.fetch_add(1, Ordering::Relaxed);
        let client = peers.client(&visit.access_key);
        let mut answered = self.pass_on(visit, peer.origin.clone(), client, place).await?;
        let is_its_own = answered.headers.remove(HOME_HEADER).is_some();
        if !is_its_own && answered.status == Some(StatusCode::SERVICE_UNAVAILABLE) {
            peer.rest();
        }
        Ok(answered)
    }
}

/// A home's answer for the client; `None` if it says too little.
async fn relayed(
    answer: Response<Incoming>,
    job: Job,
    shared: &Arc<Shared>,
    is_head: bool,
) -> Option<S3Response<Body>> {
    let status = answer.status();
    if status.is_client_error() {
        let mut reply = short_reply(answer).await;
        reply.headers.remove(HOME_HEADER);
        job.memory.count(0, reply.body.len() as u64);
        return Some(reply.into_response());
    }
    let (parts, incoming) = answer.into_parts();
    let mut headers = end_to_end(&parts.headers);
    headers.remove(HOME_HEADER);
    if let Some(length) = parts.headers.get(CONTENT_LENGTH) {
        headers.insert(CONTENT_LENGTH, length.clone());
    }
    let body = if is_head || status == StatusCode::NOT_MODIFIED {
        Body::empty()
    } else {
        let bytes = bytes_of(&parts.headers)?;
        let relayed = Relayed {
            object: Object::of_reply(&job.place, &parts.headers)?,
            incoming: Some(incoming),
            rest: None,
            next: bytes.start,
            end: bytes.end,
            job,
            shared: Arc::clone(shared),
        };
        let pieces = stream::unfold(relayed, |mut relayed| async move {
            let piece = relayed.piece().await?;
            Some((piece.map(Frame::data), relayed))
        });
        Body::http_body_unsync(StreamBody::new(pieces))
    };
    let mut response = S3Response::with_headers(body, headers);
    response.status = Some(status);
    Some(response)
}

/// The bytes of the object that an answer has.
fn bytes_of(headers: &HeaderMap) -> Option<Range<u64>> {
    let text = |name| headers.get(name)?.to_str().ok();
    let length: u64 = text(CONTENT_LENGTH)?.parse().ok()?;
    let start = match text(CONTENT_RANGE) {
        Some(range) => content_range(range)?.0.start,
        None => 0,
    };
    Some(start..start.checked_add(length)?)
}

/// Bytes of one version: from its home, and from the origin when that breaks off.
struct Relayed {
    job: Job,
    shared: Arc<Shared>,
    object: Object,
    /// The home's answer, as long as it goes on.
    incoming: Option<Incoming>,
    rest: Option<fill::Body>,
    next: u64,
    end: u64,
}

impl Relayed {
    /// The next piece; `None` at the end.
    async fn piece(&mut self) -> Option<Result<Bytes, BoxError>> {
        if self.next == self.end {
            return None;
        }
        let piece = match self.home_piece().await {
            Some(piece) => piece,
            None => match self.origin_piece().await {
                Ok(piece) if !piece.is_empty() => piece,
                _ => {
                    // The connection breaks, and the client sees that it has not got everything.
                    self.end = self.next;
                    return Some(Err("the rest of the object can not be had".into()));
                }
            },
        };
        self.next += piece.len() as u64;
        self.job.memory.count(0, piece.len() as u64);
        Some(Ok(piece))
    }

    async fn home_piece(&mut self) -> Option<Bytes> {
        let piece = next_piece(self.incoming.as_mut()?).await.ok().flatten();
        let piece = piece.filter(|piece| piece.len() as u64 <= self.end - self.next);
        match &piece {
            Some(piece) => {
                let relayed = &self.shared.stats.relayed_bytes;
                relayed.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
            None => self.incoming = None,
        }
        piece
    }

    async fn origin_piece(&mut self) -> Result<Bytes, Fault> {
        let body = match &mut self.rest {
            Some(body) => body,
            None => {
                let answer = get_range(&self.job, &self.object, self.next..self.end).await?;
                self.rest.insert(body_of(answer, &self.object, self.next).await?)
            }
        };
        let most = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
        let piece = body.piece(most).await.map_err(|error| Fault::from(error.reply()))?;
        self.shared.stats.served(false, piece.len() as u64);
        Ok(piece)
    }
}
