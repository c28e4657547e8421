//! etcd over its HTTP and JSON gateway (`/v3/...`, etcd 3.4 and later): ranges, transactions, leases and watches.
//!
//! The gateway writes 64-bit numbers as texts, keys and values in base64, and leaves zero or empty fields out. Every
//! call has an end in time; a watch ends when nothing came for longer than [`WATCH_PATIENCE`].

mod wire;

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Value, json};

pub use wire::{Event, Pair};

use crate::lines::{Lines, NoLine};
use wire::{encoded, number, pairs};

/// A call that has no answer by then has failed.
const CALL_PATIENCE: Duration = Duration::from_secs(1);
/// A watch on which nothing came for so long is begun anew: the connection may be gone without a word.
pub const WATCH_PATIENCE: Duration = Duration::from_secs(10);
/// An answer: all documents of the applications that one agent serves.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The address is none.
    #[error("{0}: write http://HOST:PORT, several with commas between them")]
    Address(String),
    /// No endpoint answered.
    #[error("etcd does not answer: {0}")]
    Unreachable(String),
    /// It answered with an error.
    #[error("etcd refuses: {0}")]
    Refused(String),
    /// The answer is not one to the request.
    #[error("etcd's answer can not be read")]
    Unreadable,
}

/// A client. Clones share connections.
#[derive(Clone, Debug)]
pub struct Etcd {
    client: Client<HttpConnector, Full<Bytes>>,
    endpoints: std::sync::Arc<[String]>,
}

/// The header of every answer of etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Which cluster it is; a restored backup is another one.
    pub cluster: u64,
    /// The store's revision.
    pub revision: u64,
}

/// A part of a transaction.
#[derive(Clone, Debug)]
pub enum Write {
    /// Sets a key, under a lease if there is one.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The lease; zero is none.
        lease: u64,
    },
    /// Removes a key.
    Delete {
        /// The key.
        key: String,
    },
}

impl Etcd {
    /// A client of these endpoints, asked in turn until one answers.
    ///
    /// # Errors
    /// One is no address.
    pub fn new(addresses: &str) -> Result<Self, EtcdError> {
        let endpoint = |text: &str| {
            let text = text.trim().trim_end_matches('/');
            let text = if text.contains("://") {
                text.to_owned()
            } else {
                format!("http://{text}")
            };
            let wrong = || EtcdError::Address(text.clone());
            let uri: Uri = text.parse().map_err(|_| wrong())?;
            let is_good = uri.scheme_str() == Some("http") && uri.authority().is_some() && uri.path() == "/";
            if is_good { Ok(text.clone()) } else { Err(wrong()) }
        };
        let endpoints: Vec<_> = addresses.split(',').map(endpoint).collect::<Result<_, _>>()?;
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CALL_PATIENCE));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(20))
            .build(connector);
        Ok(Self {
            client,
            endpoints: endpoints.into(),
        })
    }

    /// All keys that begin with `prefix`.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn range(&self, prefix: &str) -> Result<(Header, Vec<Pair>), EtcdError> {
        let body = json!({"key": encoded(prefix), "range_end": wire::end_of(prefix)});
        let answer = self.call("kv/range", &body).await?;
        Ok((header(&answer), pairs(&answer["kvs"])?))
    }

    /// Writes if the key `key` was last changed at `revision`; zero is that it is not there. Whether it was, and the revision
    /// of the write.
    ///
    /// # Errors
    /// See [`EtcdError`]. The write may have been done.
    pub async fn write_if(&self, key: &str, revision: u64, writes: &[Write]) -> Result<(bool, Header), EtcdError> {
        let compare = json!([{"key": encoded(key), "target": "MOD", "mod_revision": revision.to_string()}]);
        let success: Vec<Value> = writes.iter().map(wire::operation).collect();
        let answer = self
            .call("kv/txn", &json!({"compare": compare, "success": success}))
            .await?;
        Ok((answer["succeeded"].as_bool().unwrap_or_default(), header(&answer)))
    }

    /// Sets a key under a lease.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn put(&self, key: &str, value: &str, lease: u64) -> Result<Header, EtcdError> {
        let body = json!({"key": encoded(key), "value": encoded(value), "lease": lease.to_string()});
        self.call("kv/put", &body).await.map(|answer| header(&answer))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn delete(&self, key: &str) -> Result<Header, EtcdError> {
        let answer = self.call("kv/deleterange", &json!({"key": encoded(key)})).await?;
        Ok(header(&answer))
    }

    /// A lease of so many seconds.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn grant(&self, seconds: u64) -> Result<u64, EtcdError> {
        let answer = self.call("lease/grant", &json!({"TTL": seconds.to_string()})).await?;
        match (number(&answer["ID"]), number(&answer["TTL"])) {
            // etcd may make it longer, never shorter.
            (id, granted) if id > 0 && granted >= seconds => Ok(id),
            _ => Err(EtcdError::Unreadable),
        }
    }

    /// Keeps a lease alive. Whether there is such a lease.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn keep_alive(&self, lease: u64) -> Result<(bool, Header), EtcdError> {
        let answer = self.call("lease/keepalive", &json!({"ID": lease.to_string()})).await?;
        let result = &answer["result"];
        if !result.is_object() {
            return Err(EtcdError::Unreadable);
        }
        Ok((number(&result["TTL"]) > 0, header(result)))
    }

    /// Ends a lease, and with it the keys under it.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn revoke(&self, lease: u64) -> Result<(), EtcdError> {
        self.call("lease/revoke", &json!({"ID": lease.to_string()}))
            .await
            .map(drop)
    }

    /// Hears of changes of keys that begin with `prefix`, from a revision on.
    ///
    /// # Errors
    /// See [`EtcdError`].
    pub async fn watch(&self, prefix: &str, from: u64) -> Result<Watch, EtcdError> {
        let body = json!({"create_request": {
            "key": encoded(prefix),
            "range_end": wire::end_of(prefix),
            "start_revision": from.to_string(),
            "progress_notify": true,
        }});
        let body = self.send("watch", &body).await?;
        Ok(Watch {
            lines: Lines::of(body, ANSWER_BYTES_MAX),
        })
    }

    async fn call(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let called = async {
            let body = self.send(path, body).await?;
            let collected = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let bytes = collected.map_err(|_| EtcdError::Unreadable)?.to_bytes();
            let answer: Value = serde_json::from_slice(&bytes).map_err(|_| EtcdError::Unreadable)?;
            match answer.get("error") {
                Some(error) => Err(EtcdError::Refused(error.to_string())),
                None => Ok(answer),
            }
        };
        let late = |_| Err(EtcdError::Unreachable("no answer in time".into()));
        tokio::time::timeout(CALL_PATIENCE, called).await.unwrap_or_else(late)
    }

    /// Sends a request to the first endpoint that takes it.
    async fn send(&self, path: &str, body: &Value) -> Result<Incoming, EtcdError> {
        let mut failed = EtcdError::Unreadable;
        let patience = CALL_PATIENCE / u32::try_from(self.endpoints.len()).unwrap_or(1).max(1);
        for endpoint in self.endpoints.iter() {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("{endpoint}/v3/{path}"))
                .body(Full::new(Bytes::from(body.to_string())));
            let request = request.map_err(|_| EtcdError::Address(endpoint.clone()))?;
            match tokio::time::timeout(patience, self.client.request(request)).await {
                Ok(Ok(answer)) if answer.status().is_success() => return Ok(answer.into_body()),
                Ok(Ok(answer)) => {
                    let status = answer.status();
                    let text = Limited::new(answer.into_body(), 4 << 10).collect().await;
                    let text = text.map(|text| text.to_bytes()).unwrap_or_default();
                    let text = String::from_utf8_lossy(&text).into_owned();
                    // Another member would say the same of a request that is wrong.
                    failed = EtcdError::Refused(format!("{status}: {text}"));
                    if status.is_client_error() {
                        return Err(failed);
                    }
                }
                Ok(Err(error)) => failed = EtcdError::Unreachable(format!("{endpoint}: {error}")),
                Err(_) => failed = EtcdError::Unreachable(format!("{endpoint}: no answer in time")),
            }
        }
        Err(failed)
    }
}

fn header(answer: &Value) -> Header {
    Header {
        cluster: number(&answer["header"]["cluster_id"]),
        revision: number(&answer["header"]["revision"]),
    }
}

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    lines: Lines,
}

impl Watch {
    /// The next changes, in their order. Empty where etcd only says that it is there.
    ///
    /// # Errors
    /// The watch is over: missed changes have to be read by [`Etcd::range`].
    pub async fn next(&mut self) -> Result<(Header, Vec<Event>), EtcdError> {
        let line = self.lines.next().await.map_err(|why| match why {
            NoLine::TooLong => EtcdError::Unreadable,
            NoLine::Ended | NoLine::Broken => EtcdError::Unreachable("the watch broke off".into()),
        })?;
        let answer: Value = serde_json::from_slice(&line).map_err(|_| EtcdError::Unreadable)?;
        let result = &answer["result"];
        if !result.is_object() || result["canceled"].as_bool().unwrap_or_default() {
            return Err(EtcdError::Refused(answer.to_string()));
        }
        Ok((header(result), wire::events(&result["events"])?))
    }
}
