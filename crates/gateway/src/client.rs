//! A client of several gateways that works out itself which one has an object, and asks that one: there is no hop between.
//!
//! It speaks S3, signed with an access key. A gateway that does not answer is passed over for the next one of the ring, which
//! asks the origin. It can code by itself, as the InfiniCache paper's does ([`Client::coding`]): it gets the chunks of objects
//! that are in functions and puts them together, and sends parity with what it writes. Whatever is not to be had in
//! chunks comes in bytes.

mod stripes;

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue, RANGE};
use hyper::{HeaderMap, Method, Response};
use sha2::{Digest as _, Sha256};

use crate::config::Origin;
use crate::origin::{OriginClient, OriginError, OriginRequest, OutBody, Progress, next_piece};
use crate::ring::Ring;
use crate::sign::{Credentials, hex};
use stripes::Coding;

pub use stripes::ClientCounts;

/// The longest object, or range of one, that is read at once.
const READ_BYTES_MAX: usize = 1 << 30;

/// Why a request had no result.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No gateway answers, or none can serve it now: it may be tried again.
    #[error("no gateway answers")]
    Unavailable,
    /// S3's own error, such as 404; trying it again does not help.
    #[error("{status}: {message}")]
    Refused {
        /// The status.
        status: u16,
        /// The document of the error.
        message: String,
    },
    /// It is longer than is read at once: read ranges of it.
    #[error("longer than {READ_BYTES_MAX} bytes: read ranges of it")]
    TooLong,
    /// The key cannot be sent.
    #[error("the key is not one that can be sent")]
    Impossible,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Client {
    ring: Ring,
    client: OriginClient,
    coding: Option<Arc<Coding>>,
}

/// A request for an object's home, or for those that come after it.
#[derive(Default)]
struct Ask {
    method: Method,
    bucket: String,
    key: String,
    /// Of the address itself, not of the object.
    question: Option<(String, String)>,
    headers: HeaderMap,
    /// Its body, in pieces.
    pieces: Vec<Bytes>,
}

/// A good answer, whole.
struct Answer {
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    fn new(method: Method, bucket: &str, key: &str) -> Self {
        Self {
            method,
            bucket: bucket.into(),
            key: key.into(),
            ..Self::default()
        }
    }

    /// Asks for these bytes, of which there is one at least.
    fn of_bytes(mut self, bytes: &Range<u64>) -> Result<Self, ClientError> {
        let text = format!("bytes={}-{}", bytes.start, bytes.end - 1);
        let range = HeaderValue::try_from(text).map_err(|_| ClientError::Impossible)?;
        self.headers.insert(RANGE, range);
        Ok(self)
    }

    /// The hash of its body, in hexadecimal.
    fn payload(&self) -> String {
        let mut sha = Sha256::new();
        self.pieces.iter().for_each(|piece| sha.update(piece));
        hex(&sha.finalize())
    }

    /// The request before it is signed.
    fn request(&self, payload: &str) -> OriginRequest {
        let mut headers = self.headers.clone();
        if self.method == Method::PUT {
            let bytes: usize = self.pieces.iter().map(Bytes::len).sum();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        let path = match self.question {
            Some(_) => "/".into(),
            None => format!("/{}/{}", self.bucket, self.key),
        };
        OriginRequest {
            method: self.method.clone(),
            path,
            query: self.question.iter().cloned().collect(),
            headers,
            payload: payload.into(),
        }
    }

    fn body(&self) -> OutBody {
        if let [piece] = &self.pieces[..] {
            return Full::new(piece.clone()).map_err(|never| match never {}).boxed_unsync();
        }
        let pieces = self.pieces.clone().into_iter().map(|piece| Ok(Frame::data(piece)));
        StreamBody::new(stream::iter(pieces)).boxed_unsync()
    }
}

impl Client {
    /// A client of the gateways of a ring; the access key must be in force at each of them.
    ///
    /// # Errors
    /// The certificates that this system trusts cannot be read.
    pub fn new(ring: Ring, credentials: Credentials) -> std::io::Result<Self> {
        Ok(Self {
            ring,
            client: OriginClient::new(Some(credentials))?,
            coding: None,
        })
    }

    /// The same client, which codes by itself: gateways compute nothing for it. Its writes are longer by their parity.
    #[must_use]
    pub fn coding(self) -> Self {
        Self {
            coding: Some(Arc::default()),
            ..self
        }
    }

    /// The stripes that came since [`Self::coding`], and those that were sent; zeros if it does not code.
    pub fn counts(&self) -> ClientCounts {
        self.coding.as_ref().map(|coding| coding.counts()).unwrap_or_default()
    }

    /// Reads an object, or these bytes of it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(&self, bucket: &str, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ClientError> {
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(Bytes::new());
        }
        if let Some(coding) = &self.coding {
            return self.get_stripes(coding, bucket, key, range).await;
        }
        self.get_bytes(bucket, key, range).await
    }

    /// The same in one answer.
    async fn get_bytes(&self, bucket: &str, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ClientError> {
        let mut ask = Ask::new(Method::GET, bucket, key);
        if let Some(range) = range {
            ask = ask.of_bytes(&range)?;
        }
        Ok(self.send(&ask).await?.body)
    }

    /// Writes an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put(&self, bucket: &str, key: &str, body: Bytes) -> Result<(), ClientError> {
        let mut ask = Ask::new(Method::PUT, bucket, key);
        if let Some(coding) = &self.coding {
            self.add_parity(coding, &mut ask, &body).await?;
        }
        if ask.pieces.is_empty() {
            ask.pieces = vec![body];
        }
        self.send(&ask).await.map(drop)
    }

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<(), ClientError> {
        let ask = Ask::new(Method::DELETE, bucket, key);
        self.send(&ask).await.map(drop)
    }

    /// Asks the gateways in the object's order until one answers.
    async fn send(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let (place, payload) = (format!("{}/{}", ask.bucket, ask.key), ask.payload());
        for gateway in self.ring.order(&place) {
            let gateway = Origin {
                bucket: ask.bucket.clone(),
                scheme: "http".into(),
                authority: gateway.into(),
                region: "us-east-1".into(),
                freshness: None,
            };
            let request = ask.request(&payload);
            let answered = if ask.method == Method::PUT {
                let progress = Progress::default();
                self.client.write(&gateway, request, ask.body(), &progress).await
            } else {
                self.client.read(&gateway, request).await
            };
            match answered {
                Ok(answer) if answer.status().is_server_error() => {}
                // One that breaks off is read again from the next.
                Ok(answer) => {
                    if let Some(read) = whole(answer).await {
                        return read;
                    }
                }
                Err(OriginError::Impossible) => return Err(ClientError::Impossible),
                Err(OriginError::Slow | OriginError::Unreachable) => {}
            }
        }
        Err(ClientError::Unavailable)
    }
}

/// An answer, whole; `None` if it breaks off.
async fn whole(answer: Response<Incoming>) -> Option<Result<Answer, ClientError>> {
    let (parts, mut body) = answer.into_parts();
    let mut read = BytesMut::new();
    while let Some(piece) = next_piece(&mut body).await.ok()? {
        if read.len() + piece.len() > READ_BYTES_MAX {
            return Some(Err(ClientError::TooLong));
        }
        read.extend_from_slice(&piece);
    }
    let body = read.freeze();
    if parts.status.is_success() {
        let headers = parts.headers;
        return Some(Ok(Answer { headers, body }));
    }
    Some(Err(ClientError::Refused {
        status: parts.status.as_u16(),
        message: String::from_utf8_lossy(&body).into_owned(),
    }))
}
