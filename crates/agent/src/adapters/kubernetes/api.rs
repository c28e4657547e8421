//! Requests to the API server: a list of the node's pods, and a watch of them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::{Request, StatusCode, Uri, header};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Deserialize;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::pods::{Metadata, Pod};
use crate::lines::{Lines, NoLine};

/// The API server answers a list, or begins to answer a watch, by then.
const CALL_PATIENCE: Duration = Duration::from_secs(15);
/// Pods that one answer lists; further ones are in a next one.
const PAGE_PODS: u32 = 250;
/// A part of a list. Kubernetes keeps no object of more than 1.5 MiB, and pods are some ten KiB.
const LIST_BYTES_MAX: usize = 64 << 20;
/// An event of a watch, with one pod.
const EVENT_BYTES_MAX: usize = 8 << 20;
/// The API server is to end a watch after this time: another watch may go to another server.
const WATCH_SECONDS: u32 = 290;
/// Beyond the end of a watch, how late it may be.
const WATCH_PATIENCE: Duration = Duration::from_secs(30);
/// A connection without a word is asked for a sign of life.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// The text of an error that is shown.
const ERROR_BYTES_MAX: usize = 4 << 10;

/// Why the pods of a node cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum KubernetesError {
    /// The address is none.
    #[error("{0}: write https://HOST:PORT or http://HOST:PORT")]
    Address(String),
    /// A file with the token or the certificates.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The version that was seen last is too old: all pods must be listed again.
    #[error("the API server does not know this version any more")]
    Expired,
    /// It does not answer.
    #[error("the API server does not answer: {0}")]
    Unreachable(String),
    /// It answers with an error.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The answer is not one to the request.
    #[error("the API server's answer can not be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// An event has more bytes than are read.
    #[error("an event of the API server is too long")]
    TooLong,
}

/// The pods of a node, where they are to be had, and by what right.
#[derive(Clone, Debug)]
pub struct KubernetesConfig {
    /// The API server: `https://HOST:PORT`, or `http://` for one on a trusted way, such as `kubectl proxy`.
    pub url: String,
    /// The file with the bearer token. It is read for each request: tokens are renewed.
    pub token_file: Option<PathBuf>,
    /// The file with the certificates that sign the server's, in PEM; the system's without one.
    pub ca_file: Option<PathBuf>,
    /// The node's name in Kubernetes.
    pub node: String,
    /// The folder of the host's control groups.
    pub cgroup_root: PathBuf,
}

/// All pods of the node, and the version of the list.
pub(super) struct Listed {
    pub(super) pods: Vec<Pod>,
    pub(super) version: String,
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Pod>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    r#continue: String,
}

/// The connection to an API server.
#[derive(Debug)]
pub(super) struct Api {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    base: String,
    token_file: Option<PathBuf>,
    selector: String,
}

impl Api {
    /// Without a connection yet.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read.
    pub(super) fn new(config: &KubernetesConfig) -> Result<Self, KubernetesError> {
        let wrong = || KubernetesError::Address(config.url.clone());
        let base = config.url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
        // Behind a proxy, the API server may have a path.
        if !is_known || uri.authority().is_none() || uri.query().is_some() {
            return Err(wrong());
        }
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_keepalive(Some(KEEPALIVE));
        connector.set_connect_timeout(Some(CALL_PATIENCE));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(config, uri.scheme_str() == Some("https"))?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEPALIVE)
            .build(connector);
        let api = Self {
            client,
            base,
            token_file: config.token_file.clone(),
            selector: encoded(&format!("spec.nodeName={}", config.node)),
        };
        api.token()?;
        Ok(api)
    }

    /// All pods of the node.
    ///
    /// # Errors
    /// See [`KubernetesError`].
    pub(super) async fn list(&self) -> Result<Listed, KubernetesError> {
        let mut pods = Vec::new();
        let mut place = String::new();
        loop {
            let from = match place.as_str() {
                "" => String::new(),
                place => format!("&continue={}", encoded(place)),
            };
            let query = format!("fieldSelector={}&limit={PAGE_PODS}{from}", self.selector);
            let listed = async {
                let collected = Limited::new(self.get(&query).await?, LIST_BYTES_MAX).collect().await;
                let bytes = collected.map_err(|error| KubernetesError::Unreachable(error.to_string()))?;
                Ok::<Page, KubernetesError>(serde_json::from_slice(&bytes.to_bytes())?)
            };
            let page = tokio::time::timeout(CALL_PATIENCE, listed).await;
            let page = page.map_err(|_| KubernetesError::Unreachable("no answer in time".into()))??;
            pods.extend(page.items);
            if page.metadata.r#continue.is_empty() {
                let version = page.metadata.resource_version;
                return Ok(Listed { pods, version });
            }
            place = page.metadata.r#continue;
        }
    }

    /// Hears of changes of the node's pods after a version.
    ///
    /// # Errors
    /// See [`KubernetesError`].
    pub(super) async fn watch(&self, version: &str) -> Result<PodWatch, KubernetesError> {
        let query = format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&fieldSelector={}&resourceVersion={}",
            self.selector,
            encoded(version)
        );
        let body = tokio::time::timeout(CALL_PATIENCE, self.get(&query)).await;
        let body = body.map_err(|_| KubernetesError::Unreachable("no answer in time".into()))??;
        Ok(PodWatch {
            lines: Lines::of(body, EVENT_BYTES_MAX),
        })
    }

    fn token(&self) -> Result<Option<String>, KubernetesError> {
        let Some(file) = &self.token_file else {
            return Ok(None);
        };
        let read = fs::read_to_string(file);
        let token = read.map_err(|source| KubernetesError::File {
            file: file.clone(),
            source,
        })?;
        Ok(Some(token.trim().to_owned()))
    }

    async fn get(&self, query: &str) -> Result<Incoming, KubernetesError> {
        let mut request = Request::get(format!("{}/api/v1/pods?{query}", self.base));
        request = request.header(header::ACCEPT, "application/json");
        if let Some(token) = self.token()? {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::new());
        // The token is the only part of a request that was not looked at before.
        let request = request.map_err(|error| KubernetesError::Refused(format!("the token: {error}")))?;
        let answered = self.client.request(request).await;
        let answer = answered.map_err(|error| KubernetesError::Unreachable(error.to_string()))?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            StatusCode::GONE => Err(KubernetesError::Expired),
            status => {
                let body = Limited::new(answer.into_body(), ERROR_BYTES_MAX).collect().await;
                let body = body.map(|body| body.to_bytes()).unwrap_or_default();
                let text = String::from_utf8_lossy(&body).into_owned();
                Err(KubernetesError::Refused(format!("{status}: {text}")))
            }
        }
    }
}

fn tls(config: &KubernetesConfig, is_used: bool) -> Result<ClientConfig, KubernetesError> {
    let builder = ClientConfig::builder();
    let Some(file) = &config.ca_file else {
        if !is_used {
            // Nobody is trusted, and nobody has to be: a system may have no certificates at all.
            let nobody = builder.with_root_certificates(RootCertStore::empty());
            return Ok(nobody.with_no_client_auth());
        }
        let system = builder.with_native_roots();
        let system = system.map_err(|source| KubernetesError::File {
            file: "the system's certificates".into(),
            source,
        })?;
        return Ok(system.with_no_client_auth());
    };
    let wrong = |error: &dyn std::fmt::Display| KubernetesError::File {
        file: file.clone(),
        source: io::Error::other(error.to_string()),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() {
        return Err(wrong(&"it has no certificate"));
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// A change of the node's pods.
pub(super) enum Change {
    /// A pod is there, or has changed.
    Is(Pod),
    /// A pod is gone.
    Gone(Pod),
    /// Nothing, up to this version.
    Nothing(Metadata),
}

impl Change {
    /// The version that was seen with it.
    pub(super) fn version(&self) -> &str {
        match self {
            Self::Is(pod) | Self::Gone(pod) => &pod.metadata.resource_version,
            Self::Nothing(metadata) => &metadata.resource_version,
        }
    }
}

#[derive(Deserialize)]
struct Written {
    r#type: String,
    object: serde_json::Value,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: Metadata,
}

/// A running watch.
pub(super) struct PodWatch {
    lines: Lines,
}

impl PodWatch {
    /// The next change; nothing if the server ended the watch in time.
    ///
    /// # Errors
    /// See [`KubernetesError`].
    pub(super) async fn next(&mut self) -> Result<Option<Change>, KubernetesError> {
        let late = Duration::from_secs(WATCH_SECONDS.into()) + WATCH_PATIENCE;
        let line = match tokio::time::timeout(late, self.lines.next()).await {
            Ok(Ok(line)) => line,
            Ok(Err(NoLine::Ended)) => return Ok(None),
            Ok(Err(NoLine::Broken)) => return Err(KubernetesError::Unreachable("the watch broke off".into())),
            Ok(Err(NoLine::TooLong)) => return Err(KubernetesError::TooLong),
            Err(_) => return Err(KubernetesError::Unreachable("the watch is silent".into())),
        };
        let written: Written = serde_json::from_slice(&line)?;
        let pod = serde_json::from_value::<Pod>;
        match written.r#type.as_str() {
            "ADDED" | "MODIFIED" => Ok(Some(Change::Is(pod(written.object)?))),
            "DELETED" => Ok(Some(Change::Gone(pod(written.object)?))),
            // The rest of its object is no pod.
            "BOOKMARK" => {
                let object: Bookmark = serde_json::from_value(written.object)?;
                Ok(Some(Change::Nothing(object.metadata)))
            }
            "ERROR" if written.object["code"] == StatusCode::GONE.as_u16() => Err(KubernetesError::Expired),
            _ => Err(KubernetesError::Refused(written.object.to_string())),
        }
    }
}
