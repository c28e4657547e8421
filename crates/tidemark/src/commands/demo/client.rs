//! A client of the S3 address: signed GETs and PUTs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use tidemark_gateway::{Call, Credentials, sign_call};
use tidemark_types::{Clock as _, SystemClock};
use tokio::net::TcpStream;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct S3Client {
    pub(super) address: SocketAddr,
    pub(super) credentials: Credentials,
}

/// The result of a GET.
#[derive(Debug)]
pub(super) struct Got {
    /// The place of its first bytes: `functions`, `fill`, `origin`, `memory`.
    pub(super) place: String,
    pub(super) bytes: Bytes,
    pub(super) took: Duration,
}

impl S3Client {
    /// Writes an object.
    pub(super) async fn put(&self, path: &str, bytes: Bytes) -> anyhow::Result<()> {
        self.call(Method::PUT, path, bytes).await.map(drop)
    }

    /// Reads an object.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Got> {
        let began = Instant::now();
        let (headers, bytes) = self.call(Method::GET, path, Bytes::new()).await?;
        let place = headers.get("x-tidemark-cache").and_then(|value| value.to_str().ok());
        Ok(Got {
            place: place.unwrap_or_default().to_owned(),
            bytes,
            took: began.elapsed(),
        })
    }

    async fn call(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<(HeaderMap, Bytes)> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::try_from(self.address.to_string())?);
        if method == Method::PUT {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let call = Call {
            service: "s3",
            region: "us-east-1",
            method: method.as_str(),
            path,
            body: &body,
        };
        sign_call(&self.credentials, call, &mut headers, SystemClock.now());
        let mut request = Request::builder().method(method).uri(path).body(Full::new(body))?;
        *request.headers_mut() = headers;
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let answer = sender
            .send_request(request)
            .await
            .context("the S3 address does not answer")?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.context("the answer ended early")?.to_bytes();
        if !parts.status.is_success() {
            bail!(
                "the S3 address answered {}: {}",
                parts.status,
                String::from_utf8_lossy(&body)
            );
        }
        Ok((parts.headers, body))
    }
}
