//! One POST: resolve, judge the address, connect to that address, send, look at the status. A redirect is not followed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_rustls::ConfigBuilderExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::address::is_inside;
use crate::target::Target;

/// How long one POST may take, from looking up the name to the status.
const PATIENCE: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried: more would only take longer to fail.
const ADDRESSES_MAX: usize = 4;

/// Why nothing was accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PostError {
    /// The name has no address that may be connected to.
    #[error("{host} has only addresses of this host ({address}), which need to be allowed")]
    Inside { host: String, address: SocketAddr },
    /// The name has no address.
    #[error("{host} has no address")]
    NoAddress { host: String },
    /// The system said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The receiver does not speak HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The request cannot be written.
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    /// The receiver did not accept it.
    #[error("status {0}")]
    Status(u16),
    /// The receiver is somewhere else now; the configuration must say so.
    #[error("status {0}: redirects are not followed")]
    Redirect(u16),
    /// The receiver did not answer in time.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Slow,
}

impl PostError {
    /// Whether another try could do better.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            // Too many requests, or too slow (RFC 9110, 15.5.9; RFC 6585, 4): all other 4xx say that the request is wrong.
            Self::Status(status) => matches!(status, 408 | 425 | 429) || *status >= 500,
            Self::Redirect(_) | Self::Request(_) => false,
            _ => true,
        }
    }
}

/// Sends to one target.
#[derive(Clone)]
pub(crate) struct Poster {
    target: Target,
    allows_inside: bool,
    tls: Option<TlsConnector>,
}

impl Poster {
    /// `allows_inside`: also to addresses of this host.
    ///
    /// # Errors
    /// The target needs TLS, and the certificates that this system trusts cannot be read.
    pub(crate) fn new(target: Target, allows_inside: bool) -> io::Result<Self> {
        let tls = if target.is_tls {
            let config = ClientConfig::builder().with_native_roots()?.with_no_client_auth();
            Some(TlsConnector::from(Arc::new(config)))
        } else {
            None
        };
        Ok(Self {
            target,
            allows_inside,
            tls,
        })
    }

    /// The target, without the parts that may be secret.
    pub(crate) fn shown(&self) -> String {
        self.target.shown()
    }

    /// Sends one body. `Ok`: the receiver has accepted it.
    pub(crate) async fn post(
        &self,
        content_type: &str,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<(), PostError> {
        let post = async {
            let stream = self.connect().await?;
            let status = match &self.tls {
                None => self.exchange(stream, content_type, headers, body).await?,
                Some(tls) => {
                    let name = ServerName::try_from(self.target.host.clone());
                    let name = name.map_err(|error| io::Error::other(error.to_string()))?;
                    let stream = tls.connect(name, stream).await?;
                    self.exchange(stream, content_type, headers, body).await?
                }
            };
            judge(status)
        };
        tokio::time::timeout(PATIENCE, post)
            .await
            .unwrap_or(Err(PostError::Slow))
    }

    /// A connection to one of the name's addresses, each judged first.
    async fn connect(&self) -> Result<TcpStream, PostError> {
        let host = || self.target.host.clone();
        let found = tokio::net::lookup_host((self.target.host.as_str(), self.target.port)).await?;
        let mut why = PostError::NoAddress { host: host() };
        for address in found.take(ADDRESSES_MAX) {
            if !self.allows_inside && is_inside(address) {
                why = PostError::Inside { host: host(), address };
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => why = error.into(),
            }
        }
        Err(why)
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        content_type: &str,
        headers: &[(&'static str, String)],
        body: Bytes,
    ) -> Result<u16, PostError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::post(&self.target.path)
            .header(header::HOST, self.target.authority())
            .header(header::USER_AGENT, concat!("tidemark/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, content_type)
            .header(header::CONNECTION, "close");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body))?;
        // Dropped with the connection when the status is there: the receiver's body is not read.
        let driver = tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        driver.abort();
        Ok(answer?.status().as_u16())
    }
}

fn judge(status: u16) -> Result<(), PostError> {
    match status {
        200..=299 => Ok(()),
        300..=399 => Err(PostError::Redirect(status)),
        _ => Err(PostError::Status(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_pass_is_not_tried_again() {
        for (status, may_pass) in [
            (200, None),
            (204, None),
            (301, Some(false)),
            (307, Some(false)),
            (400, Some(false)),
            (404, Some(false)),
            (408, Some(true)),
            (429, Some(true)),
            (500, Some(true)),
            (503, Some(true)),
        ] {
            let judged = judge(status).err().map(|error| error.may_pass());
            assert_eq!(judged, may_pass, "{status}");
        }
        assert!(PostError::Slow.may_pass());
    }
}
