//! A call of the admin API over the Unix socket in the data folder.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value};
use tokio::net::UnixStream;

use crate::failure::{Failure, FailureKind};
use crate::options::default_data_folder;

const SOCKET_NAME: &str = "admin.sock";
/// Longer than the longest answer takes: a removal waits up to ten seconds for the tenant's memory.
const PATIENCE: Duration = Duration::from_secs(30);
/// A list of the most tenants that a server has is smaller.
const MAX_ANSWER_BYTES: usize = 128 << 20;

/// The server that a command talks to.
#[derive(Debug)]
pub(crate) struct Client {
    folder: PathBuf,
}

/// The arguments that find the server's data folder.
#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// The data folder of the server [env: TIDEMARK_DATA] [default: `tidemark` in the user's data folder]
    #[arg(long, value_name = "DIR", global = true)]
    data: Option<PathBuf>,
}

/// The variable that says it where no flag does. An empty one is how some tools write "not set".
const DATA_VARIABLE: &str = "TIDEMARK_DATA";

impl ClientArgs {
    /// A client of the server that was named, here or before the command (`before`), else of the user's.
    pub(crate) fn client(&self, before: Option<&Path>) -> anyhow::Result<Client> {
        let variable = || std::env::var_os(DATA_VARIABLE).filter(|folder| !folder.is_empty());
        let named = self.data.as_deref().or(before).map(Path::to_path_buf);
        let folder = named
            .or_else(|| variable().map(PathBuf::from))
            .or_else(|| default_data_folder(|name| std::env::var_os(name)));
        let folder =
            folder.ok_or_else(|| Failure::usage("there is no home folder: say where the server is with --data DIR"))?;
        Ok(Client { folder })
    }
}

/// The body of a call, and the places where its fields were written, so that a refusal can name the flag.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) json: Map<String, Value>,
    /// Fields as the API names them (`goals.cap_bytes`), each with its flag and value (`--cap 1KiB`).
    pub(crate) places: Vec<(&'static str, String)>,
}

impl Body {
    /// A body of fields that no flag stands for.
    pub(crate) fn of<const N: usize>(fields: [(&str, Value); N]) -> Self {
        Self {
            json: fields
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
            places: Vec::new(),
        }
    }
}

impl Client {
    /// A client of the server in this data folder.
    pub(crate) fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// The server's data folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, path, None)
    }

    /// One call; the answer's body, null if it is empty.
    pub(crate) fn call(&self, method: Method, path: &str, body: Option<Body>) -> anyhow::Result<Value> {
        let Body { json, places } = body.unwrap_or_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (status, text) = runtime
            .block_on(async { tokio::time::timeout(PATIENCE, self.exchange(method, path, json)).await })
            .map_err(|_| Failure::failed(format!("the server did not answer within {} s", PATIENCE.as_secs())))??;
        let answer = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&text).context("the server's answer is not JSON")?
        };
        if status < 400 {
            Ok(answer)
        } else {
            Err(refusal(status, &answer, &places).into())
        }
    }

    async fn exchange(&self, method: Method, path: &str, json: Map<String, Value>) -> anyhow::Result<(u16, Bytes)> {
        let socket = self.folder.join(SOCKET_NAME);
        let stream = UnixStream::connect(&socket)
            .await
            .map_err(|error| self.not_running(&socket, &error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the runtime.
        tokio::spawn(connection);
        // No field: no body, which a removal has none of.
        let body = if json.is_empty() {
            String::new()
        } else {
            Value::Object(json).to_string()
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "tidemark")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let text = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let text = text.map_err(|error| Failure::failed(format!("the server's answer broke off: {error}")))?;
        Ok((status, text.to_bytes()))
    }

    fn not_running(&self, socket: &Path, error: &io::Error) -> Failure {
        let (folder, socket) = (self.folder.display(), socket.display());
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::failed(format!(
                "no server runs on {folder}: start it with `tidemark serve --data {folder}`, or name another with --data"
            )),
            io::ErrorKind::PermissionDenied => Failure::new(
                FailureKind::Denied,
                format!("{socket} belongs to another user: only the user that runs the server may command it"),
            ),
            _ => Failure::failed(format!("can not reach the server at {socket}: {error}")),
        }
    }
}

/// The API's error as a failure: its code decides the exit code; the flag behind its field is named.
fn refusal(status: u16, answer: &Value, places: &[(&'static str, String)]) -> Failure {
    let text = |field: &str| answer.pointer(&format!("/error/{field}")).and_then(Value::as_str);
    let kind = match (text("code"), status) {
        (Some("over_limit"), _) | (_, 401 | 403 | 413 | 429) => FailureKind::Denied,
        (Some("not_available"), _) | (_, 400) => FailureKind::Usage,
        (_, 404) => FailureKind::NotFound,
        _ => FailureKind::Failed,
    };
    let message = text("message").map_or_else(|| format!("the server answered with status {status}"), str::to_owned);
    let place = places.iter().find(|(field, _)| text("field") == Some(field));
    Failure::new(
        kind,
        place.map_or(String::new(), |(_, place)| format!("{place}: ")) + &message,
    )
}
