//! The emulator's two APIs over HTTP: Lambda's own, and the Runtime API, which each instance has an address of its own for.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::instance::{Instance, Outcome};
use super::{Failure, Inner, TIMEOUT_S};

/// Longest body: a zip of 50 MB in base64, as AWS takes it.
const BODY_BYTES_MAX: usize = 70 << 20;

type Answer = Response<Full<Bytes>>;

pub(super) async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let inner = Arc::clone(&inner);
        let service = service_fn(move |request| answer(Arc::clone(&inner), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// The Runtime API of one instance, until the task is ended.
pub(super) async fn accept_runtime(listener: TcpListener, instance: Arc<Instance>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let instance = Arc::clone(&instance);
        let service = service_fn(move |request| runtime(Arc::clone(&instance), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(inner: Arc<Inner>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let is_event = parts
        .headers
        .get("x-amz-invocation-type")
        .is_some_and(|kind| kind == "Event");
    let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
        return Ok(error(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestTooLargeException",
            "the body is too long",
        ));
    };
    let body = body.to_bytes();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    Ok(match (&parts.method, segments.as_slice()) {
        (&Method::POST, ["2015-03-31", "functions", name, "invocations"]) => invoke(&inner, name, body, is_event).await,
        (method, ["2015-03-31", "functions", rest @ ..]) => manage(&inner, method, rest, &body),
        _ => error(
            StatusCode::NOT_FOUND,
            "UnknownOperationException",
            "the emulator does not know this",
        ),
    })
}

async fn runtime(instance: Arc<Instance>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let path = request.uri().path().to_owned();
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes);
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    Ok(match segments.as_slice() {
        ["2018-06-01", "runtime", rest @ ..] => of_runtime(&instance, rest, body).await,
        _ => error(
            StatusCode::NOT_FOUND,
            "UnknownOperation",
            "the emulator does not know this",
        ),
    })
}

async fn of_runtime(instance: &Instance, rest: &[&str], body: Bytes) -> Answer {
    match rest {
        ["invocation", "next"] => {
            let Some(event) = instance.next().await else {
                return error(StatusCode::GONE, "Ended", "the instance has ended");
            };
            let mut answer = reply(StatusCode::OK, event.body);
            let headers = answer.headers_mut();
            let mut set = |name: &'static str, value: String| {
                if let Ok(value) = HeaderValue::try_from(value) {
                    headers.insert(name, value);
                }
            };
            set("lambda-runtime-aws-request-id", event.request);
            set("lambda-runtime-deadline-ms", event.deadline_ms.to_string());
            set(
                "lambda-runtime-invoked-function-arn",
                "arn:aws:lambda:local:0:function:f".into(),
            );
            set("lambda-runtime-trace-id", "Root=1-0-0".into());
            answer
        }
        ["invocation", request, kind @ ("response" | "error")] => {
            let outcome = if *kind == "response" {
                Outcome::Response(body)
            } else {
                Outcome::Error(body)
            };
            match instance.outcome(request, outcome) {
                true => reply(StatusCode::ACCEPTED, Bytes::from_static(b"{\"status\":\"OK\"}")),
                false => error(StatusCode::BAD_REQUEST, "InvalidRequestID", "it has no such event"),
            }
        }
        ["init", "error"] => {
            instance.kill();
            reply(StatusCode::ACCEPTED, Bytes::from_static(b"{\"status\":\"OK\"}"))
        }
        _ => error(
            StatusCode::NOT_FOUND,
            "UnknownOperation",
            "the emulator does not know this",
        ),
    }
}

async fn invoke(inner: &Arc<Inner>, name: &str, event: Bytes, is_event: bool) -> Answer {
    if is_event {
        let (inner, name) = (Arc::clone(inner), name.to_owned());
        tokio::spawn(async move { inner.invoke(&name, event).await });
        return reply(StatusCode::ACCEPTED, Bytes::new());
    }
    match inner.invoke(name, event).await {
        Ok(body) => reply(StatusCode::OK, body),
        Err(Failure::NotFound) => not_found(name),
        Err(Failure::Throttled) => error(
            StatusCode::TOO_MANY_REQUESTS,
            "TooManyRequestsException",
            "Rate exceeded",
        ),
        Err(Failure::Function(why)) => {
            let body = json!({"errorType": "Runtime.ExitError", "errorMessage": why});
            let mut answer = reply(StatusCode::OK, Bytes::from(body.to_string()));
            answer
                .headers_mut()
                .insert("x-amz-function-error", HeaderValue::from_static("Unhandled"));
            answer
        }
    }
}

fn manage(inner: &Inner, method: &Method, rest: &[&str], body: &Bytes) -> Answer {
    let asked: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let number = |key: &str, default: u64| asked.get(key).and_then(Value::as_u64).unwrap_or(default);
    match (method, rest) {
        (&Method::POST, []) => {
            let Some(name) = asked.get("FunctionName").and_then(Value::as_str) else {
                return error(
                    StatusCode::BAD_REQUEST,
                    "InvalidParameterValueException",
                    "FunctionName is missing",
                );
            };
            if inner.functions.lock().contains_key(name) {
                return error(StatusCode::CONFLICT, "ResourceConflictException", "it is there already");
            }
            if !inner.create(name, number("MemorySize", 128), number("Timeout", TIMEOUT_S)) {
                return error(
                    StatusCode::BAD_REQUEST,
                    "CodeStorageExceededException",
                    "there are too many",
                );
            }
            configuration(inner, name, StatusCode::CREATED)
        }
        (&Method::GET, [name, "configuration"]) => configuration(inner, name, StatusCode::OK),
        (&Method::PUT, [name, "configuration"]) => {
            if let Some(function) = inner.functions.lock().get_mut(*name) {
                function.memory_mib = number("MemorySize", function.memory_mib);
                function.timeout_s = number("Timeout", function.timeout_s);
            }
            // As in the cloud, new instances begin empty.
            inner.reclaim(name);
            configuration(inner, name, StatusCode::OK)
        }
        (&Method::DELETE, [name]) => {
            inner.reclaim(name);
            match inner.functions.lock().remove(*name) {
                Some(_) => reply(StatusCode::NO_CONTENT, Bytes::new()),
                None => not_found(name),
            }
        }
        _ => error(
            StatusCode::NOT_FOUND,
            "UnknownOperationException",
            "the emulator does not know this",
        ),
    }
}

fn configuration(inner: &Inner, name: &str, status: StatusCode) -> Answer {
    let functions = inner.functions.lock();
    let Some(function) = functions.get(name) else {
        return not_found(name);
    };
    let body = json!({
        "FunctionName": name,
        "Runtime": "provided.al2023",
        "MemorySize": function.memory_mib,
        "Timeout": function.timeout_s,
        "State": "Active",
    });
    reply(status, Bytes::from(body.to_string()))
}

fn not_found(name: &str) -> Answer {
    let message = format!("Function not found: {name}");
    error(StatusCode::NOT_FOUND, "ResourceNotFoundException", &message)
}

fn error(status: StatusCode, kind: &str, message: &str) -> Answer {
    let mut answer = reply(
        status,
        Bytes::from(json!({"Type": "User", "Message": message}).to_string()),
    );
    if let Ok(kind) = HeaderValue::try_from(kind) {
        answer.headers_mut().insert("x-amzn-errortype", kind);
    }
    answer
}

fn reply(status: StatusCode, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
