//! A client of several gateways that works out itself which one has an object, and asks that one: there is no hop between.
//!
//! It speaks S3, signed with an access key. It does not decode stripes itself, as the InfiniCache paper's does: the pool of
//! functions is its gateway's. A gateway that does not answer is passed over for the next one of the ring, which asks the
//! origin.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, HeaderValue, RANGE};
use hyper::{HeaderMap, Method, Response};

use crate::config::Origin;
use crate::origin::{OriginClient, OriginError, OriginRequest, Progress, next_piece};
use crate::ring::Ring;
use crate::sign::{Credentials, payload_hash};

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
        })
    }

    /// Reads an object, or these bytes of it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(&self, bucket: &str, key: &str, range: Option<Range<u64>>) -> Result<Bytes, ClientError> {
        let mut headers = HeaderMap::new();
        if let Some(range) = range {
            if range.is_empty() {
                return Ok(Bytes::new());
            }
            let text = format!("bytes={}-{}", range.start, range.end - 1);
            headers.insert(RANGE, HeaderValue::try_from(text).map_err(|_| ClientError::Impossible)?);
        }
        self.send(Method::GET, bucket, key, headers, Bytes::new()).await
    }

    /// Writes an object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put(&self, bucket: &str, key: &str, body: Bytes) -> Result<(), ClientError> {
        self.send(Method::PUT, bucket, key, HeaderMap::new(), body)
            .await
            .map(drop)
    }

    /// Deletes an object, if it is there.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, bucket: &str, key: &str) -> Result<(), ClientError> {
        let sent = self.send(Method::DELETE, bucket, key, HeaderMap::new(), Bytes::new());
        sent.await.map(drop)
    }

    /// Asks the gateways in the object's order until one answers.
    async fn send(
        &self,
        method: Method,
        bucket: &str,
        key: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Bytes, ClientError> {
        let place = format!("{bucket}/{key}");
        let payload = payload_hash(&body);
        for gateway in self.ring.order(&place) {
            let mut request = OriginRequest {
                method: method.clone(),
                path: format!("/{place}"),
                query: Vec::new(),
                headers: headers.clone(),
                payload: payload.clone(),
            };
            let gateway = Origin {
                bucket: bucket.into(),
                scheme: "http".into(),
                authority: gateway.into(),
                region: "us-east-1".into(),
                freshness: None,
            };
            let answered = if method == Method::PUT {
                request.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
                let body = Full::new(body.clone()).map_err(|never| match never {}).boxed_unsync();
                self.client.write(&gateway, request, body, &Progress::default()).await
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
async fn whole(answer: Response<Incoming>) -> Option<Result<Bytes, ClientError>> {
    let status = answer.status();
    let (mut body, mut read) = (answer.into_body(), BytesMut::new());
    while let Some(piece) = next_piece(&mut body).await.ok()? {
        if read.len() + piece.len() > READ_BYTES_MAX {
            return Some(Err(ClientError::TooLong));
        }
        read.extend_from_slice(&piece);
    }
    let body = read.freeze();
    if status.is_success() {
        return Some(Ok(body));
    }
    Some(Err(ClientError::Refused {
        status: status.as_u16(),
        message: String::from_utf8_lossy(&body).into_owned(),
    }))
}
