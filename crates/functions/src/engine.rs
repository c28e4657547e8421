//! The cloud's side of functions: invoke one, make one, end one. The one seam to a cloud.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde_json::{Value, json};

/// A future without borrowed parts.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The path of the API's functions.
const FUNCTIONS: &str = "/2015-03-31/functions";
/// An answer's longest body: AWS's limit of a reply is 6 MB; ours are short.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// A function returns within the longest time that AWS lets it run.
const INVOKE_PATIENCE: Duration = Duration::from_secs(901);
/// All other calls.
const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// A connection that is not made by then is not made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Invocations are held open while functions run: one connection each.
const IDLE_CONNECTIONS_MAX: usize = 512;
/// Before most servers close them.
const IDLE_PATIENCE: Duration = Duration::from_secs(20);

/// A call of the cloud's that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// No answer, or not in time. Trying again may help.
    #[error("the functions' API can not be reached: {0}")]
    Unreachable(String),
    /// There is no such function.
    #[error("there is no function {0}")]
    NotFound(String),
    /// Too many at once. Trying again later helps.
    #[error("the functions' API throttles")]
    Throttled,
    /// The function broke, or was ended.
    #[error("the function failed: {0}")]
    Function(String),
    /// Anything else.
    #[error("the functions' API refuses: {0}")]
    Refused(String),
}

/// Runs functions. One real implementation, [`LambdaApi`], which also reaches emulators.
pub trait FunctionEngine: Send + Sync + 'static {
    /// Invokes a function and waits for its reply.
    fn invoke(&self, name: &str, event: Vec<u8>) -> BoxFuture<Result<Bytes, EngineError>>;
}

/// A request that is to be signed; headers are added to it.
#[derive(Debug)]
pub struct ToSign<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its path, decoded.
    pub path: &'a str,
    /// The headers, with `host`.
    pub headers: &'a mut HeaderMap,
    /// Its body.
    pub body: &'a [u8],
    /// The region, for the scope.
    pub region: &'a str,
}

/// Signs requests of the service `lambda` (Signature Version 4).
pub type Sign = Arc<dyn Fn(&mut ToSign<'_>) + Send + Sync>;

/// AWS Lambda's API, there or in an emulator.
#[derive(Clone)]
pub struct LambdaApi {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: String,
    authority: HeaderValue,
    region: String,
    sign: Sign,
}

impl std::fmt::Debug for LambdaApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LambdaApi")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The parts that a function is made from.
#[derive(Clone, Debug)]
pub struct NewFunction<'a> {
    /// Its name.
    pub name: &'a str,
    /// The role that it has.
    pub role: &'a str,
    /// Its memory.
    pub memory_mib: u64,
    /// How long an invocation may run.
    pub timeout_s: u32,
    /// A zip with `bootstrap`, in base64.
    pub zip_base64: &'a str,
    /// `x86_64` or `arm64`.
    pub architecture: &'a str,
}

impl LambdaApi {
    /// An engine at `http://HOST[:PORT]` or `https://...`.
    ///
    /// # Errors
    /// The endpoint cannot be read, or the system has no certificates.
    pub fn new(endpoint: &str, region: &str, sign: Sign) -> Result<Self, EngineError> {
        let broken = |why: &str| EngineError::Refused(format!("endpoint {endpoint}: {why}"));
        let endpoint_text = endpoint.trim_end_matches('/');
        let authority = endpoint_text.split_once("://").map(|(_, authority)| authority);
        let authority = authority.filter(|authority| !authority.is_empty() && !authority.contains('/'));
        let authority = authority.ok_or_else(|| broken("write http://HOST[:PORT]"))?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_PATIENCE));
        http.set_nodelay(true);
        let https = hyper_rustls::HttpsConnectorBuilder::new().with_native_roots();
        let https = https.map_err(|error| broken(&error.to_string()))?;
        let connector = https.https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_PATIENCE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .build(connector);
        Ok(Self {
            client,
            authority: HeaderValue::try_from(authority).map_err(|_| broken("it is no header"))?,
            endpoint: endpoint_text.into(),
            region: region.into(),
            sign,
        })
    }

    async fn call(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<(StatusCode, HeaderMap, Bytes), EngineError> {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, self.authority.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (self.sign)(&mut ToSign {
            method: &method,
            path: &path,
            headers: &mut headers,
            body: &body,
            region: &self.region,
        });
        let unreachable = |why: String| EngineError::Unreachable(why);
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.endpoint)
            .parse()
            .map_err(|_| EngineError::Refused("the function's name is no path".into()))?;
        *request.headers_mut() = headers;
        let answered = async {
            let answer = self
                .client
                .request(request)
                .await
                .map_err(|error| unreachable(error.to_string()))?;
            let (parts, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| unreachable(error.to_string()))?.to_bytes();
            Ok((parts.status, parts.headers, body))
        };
        let answer = tokio::time::timeout(patience, answered).await;
        answer.unwrap_or_else(|_| Err(unreachable("it does not answer in time".into())))
    }

    async fn manage(&self, method: Method, path: String, body: Value, name: &str) -> Result<Value, EngineError> {
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let (status, _, answer) = self.call(method, path, body, CALL_PATIENCE).await?;
        judge(status, &answer, name)?;
        Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    /// Makes a function.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn create(&self, new: &NewFunction<'_>) -> Result<(), EngineError> {
        let body = json!({
            "FunctionName": new.name,
            "Runtime": "provided.al2023",
            "Handler": "bootstrap",
            "Role": new.role,
            "MemorySize": new.memory_mib,
            "Timeout": new.timeout_s,
            "Architectures": [new.architecture],
            "Code": {"ZipFile": new.zip_base64},
        });
        self.manage(Method::POST, FUNCTIONS.into(), body, new.name)
            .await
            .map(drop)
    }

    /// Changes a function's memory. AWS then starts new instances: the chunks of the old ones are lost.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn resize(&self, name: &str, memory_mib: u64) -> Result<(), EngineError> {
        let path = format!("{FUNCTIONS}/{name}/configuration");
        self.manage(Method::PUT, path, json!({"MemorySize": memory_mib}), name)
            .await
            .map(drop)
    }

    /// Removes a function.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn remove(&self, name: &str) -> Result<(), EngineError> {
        self.manage(Method::DELETE, format!("{FUNCTIONS}/{name}"), Value::Null, name)
            .await
            .map(drop)
    }

    /// A function's memory in MiB; `None` if there is no such function.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn memory_mib(&self, name: &str) -> Result<Option<u64>, EngineError> {
        let path = format!("{FUNCTIONS}/{name}/configuration");
        match self.manage(Method::GET, path, Value::Null, name).await {
            Ok(configuration) => Ok(configuration.get("MemorySize").and_then(Value::as_u64)),
            Err(EngineError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FunctionEngine for LambdaApi {
    fn invoke(&self, name: &str, event: Vec<u8>) -> BoxFuture<Result<Bytes, EngineError>> {
        let (this, name) = (self.clone(), name.to_owned());
        Box::pin(async move {
            let path = format!("{FUNCTIONS}/{name}/invocations");
            let (status, headers, answer) = this.call(Method::POST, path, event, INVOKE_PATIENCE).await?;
            judge(status, &answer, &name)?;
            if headers.contains_key("x-amz-function-error") {
                return Err(EngineError::Function(text(&answer)));
            }
            Ok(answer)
        })
    }
}

fn judge(status: StatusCode, answer: &Bytes, name: &str) -> Result<(), EngineError> {
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::NOT_FOUND => Err(EngineError::NotFound(name.into())),
        StatusCode::TOO_MANY_REQUESTS => Err(EngineError::Throttled),
        _ => Err(EngineError::Refused(format!("{status} {}", text(answer)))),
    }
}

/// An answer's beginning.
fn text(answer: &Bytes) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned()
}
