//! The paths, their handlers, and the callers that they admit.

use std::path::Path as FsPath;
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tidemark_control::{ControlHandle, CurveView, MoveView, PreviewView, Rotation, ServerView, TenantView, TopView};

use crate::Beside;
use crate::answer::ApiError;
use crate::body;
use crate::metrics::CONTENT_TYPE;
use crate::origin;
use crate::places::{Access, Place};
use crate::report::{Report, Reports};
use crate::scraper::Scraper;
use crate::token::Token;
use crate::tokens::{self, TokenRecord, Tokens};
use crate::usage::{self, UsagePage, UsageParameters};

/// Paths that belong to capabilities of later versions. They are known, so that a client gets the right answer.
const LATER: [&str; 1] = ["/api/v1/events"];
const METRICS: &str = "/metrics";
/// The paths without a token: they tell nothing that a connection attempt would not.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// The callers that a listener admits.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// The token that opens everything.
    pub(crate) token: Token,
    /// Those that open less.
    pub(crate) tokens: Arc<Tokens>,
    /// Whether it listens on loopback only, where the server has no other name.
    pub(crate) is_loopback: bool,
    /// Whether scrapers need no token.
    pub(crate) open_metrics: bool,
}

type Result<T> = std::result::Result<T, ApiError>;
type Name = std::result::Result<Path<String>, PathRejection>;

/// Every path of the API. With a guard, calls must carry its token; without one, every caller that can connect may
/// command.
pub(crate) fn router(
    control: ControlHandle,
    folder: &FsPath,
    guard: Option<Guard>,
    tokens: &Arc<Tokens>,
    reports: &Reports,
    beside: Option<&Beside>,
) -> Router {
    let folder: Arc<FsPath> = folder.into();
    let shown = reports.functions.clone();
    let [listed, made, ended] = std::array::from_fn(|_| Arc::clone(tokens));
    let scraper = Arc::new(Scraper::new(reports, beside));
    let mut router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route(METRICS, get(move |control| metrics(control, scraper)))
        .route("/api/v1/server", get(server).patch(set_server))
        .route("/api/v1/tenants", get(tenants).post(create_tenant))
        .route(
            "/api/v1/tenants/{name}",
            get(tenant).patch(set_tenant).delete(remove_tenant),
        )
        .route("/api/v1/tenants/{name}/rotate", post(rotate))
        .route("/api/v1/tenants/{name}/preview", post(preview))
        .route("/api/v1/tenants/{name}/moves", get(moves))
        .route("/api/v1/tenants/{name}/curve", get(curve))
        .route("/api/v1/tenants/{name}/top", get(top))
        .route("/api/v1/functions", get(move || async move { report(&shown) }))
        .route(
            tokens::PATH,
            get(move || async move { list_tokens(&listed) }).post(move |body| create_token(made, body)),
        )
        .route(
            "/api/v1/tokens/{name}",
            delete(move |name| async move { remove_token(&ended, name) }),
        )
        .route("/api/v1/usage", get(move |query| usage(query, folder)));
    if let Some(beside) = beside {
        router = router.nest_service(beside.path, beside.router.clone());
    }
    for path in LATER {
        router = router.route(path, any(later));
    }
    router = router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(no_such_path);
    if let Some(guard) = guard {
        router = router.layer(from_fn_with_state(guard, check_token));
    }
    router.with_state(control)
}

async fn check_token(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let header = request.headers().get(header::AUTHORIZATION);
    let is_admin = header.is_some_and(|value| guard.token.is_in(value.as_bytes()));
    let role = header
        .filter(|_| !is_admin)
        .and_then(|value| guard.tokens.role(value.as_bytes()));
    let are_names_known = (is_admin || role.is_some()) && !guard.is_loopback;
    let judged = origin::check(request.version(), request.uri(), request.headers(), are_names_known);
    if let Err(foreign) = judged {
        return ApiError::new(StatusCode::FORBIDDEN, "foreign", foreign.message()).into_response();
    }
    let path = request.uri().path();
    let is_open = OPEN.contains(&path) || (guard.open_metrics && path == METRICS);
    match role {
        _ if is_admin || is_open => next.run(request).await,
        Some(role) if role.opens(request.method(), path, METRICS) => next.run(request).await,
        Some(role) => {
            let message = format!("the token's role is {role}, which does not open this");
            ApiError::new(StatusCode::FORBIDDEN, "forbidden", message).into_response()
        }
        None => {
            let message = "this needs the token from admin.token in the data folder, as `Authorization: Bearer TOKEN`";
            ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message).into_response()
        }
    }
}

/// Notes when a connection is busy; one that is for health checks only answers nothing else.
pub(crate) async fn keep_place(State(place): State<Arc<Place>>, request: Request, next: Next) -> Response {
    if place.access == Access::Health && !OPEN.contains(&request.uri().path()) {
        let message = "all connections of the admin API are busy: try again in a second";
        let refusal = ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message);
        return ([(header::CONNECTION, "close")], refusal).into_response();
    }
    place.set_idle(None);
    let response = next.run(request).await;
    place.set_idle(Some(Instant::now()));
    response
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(control): State<ControlHandle>) -> Response {
    let readiness = control.readiness();
    let status = if readiness.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(control): State<ControlHandle>, scraper: Arc<Scraper>) -> Result<Response> {
    let (server, tenants) = control.overview().await?;
    let text = scraper.text(&server, tenants).map_err(|_| {
        let message = "a number is beyond what the format of metrics can say";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    })?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

fn report(part: &Report) -> Result<Json<Value>> {
    let missing = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "not_found",
            "this server keeps nothing in functions",
        )
    };
    part.ask().map(Json).ok_or_else(missing)
}

async fn server(State(control): State<ControlHandle>) -> Result<Json<ServerView>> {
    Ok(Json(control.server().await?))
}

async fn set_server(State(control): State<ControlHandle>, body: Body) -> Result<Json<ServerView>> {
    let patch = body::server_patch(body::read_needed_object(body).await?)?;
    Ok(Json(control.set_server(patch).await?))
}

/// Typed, not a tree of JSON values: of ten thousand tenants that would take many times the text's memory.
#[derive(Serialize)]
struct Tenants {
    tenants: Vec<TenantView>,
}

async fn tenants(State(control): State<ControlHandle>) -> Result<Json<Tenants>> {
    let tenants = control.tenants().await?;
    Ok(Json(Tenants { tenants }))
}

async fn create_tenant(State(control): State<ControlHandle>, body: Body) -> Result<Response> {
    let new = body::new_tenant(body::read_needed_object(body).await?)?;
    let name = new.name;
    let is_given = new.secret.is_some();
    let secret = match new.secret {
        Some(secret) => control.create_tenant_with(&name, new.patch, secret).await?,
        None => control.create_tenant(&name, new.patch).await?,
    };
    // Whoever has made it knows it.
    let created = json!({ "name": name, "secret": (!is_given).then(|| secret.expose()) });
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

async fn tenant(State(control): State<ControlHandle>, name: Name) -> Result<Json<TenantView>> {
    Ok(Json(control.tenant(text(name)?).await?))
}

async fn set_tenant(State(control): State<ControlHandle>, name: Name, body: Body) -> Result<Json<TenantView>> {
    let patch = body::settings_patch(body::read_needed_object(body).await?)?;
    Ok(Json(control.set_tenant(text(name)?, patch).await?))
}

async fn remove_tenant(State(control): State<ControlHandle>, name: Name) -> Result<StatusCode> {
    control.remove_tenant(text(name)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn rotate(State(control): State<ControlHandle>, name: Name, body: Body) -> Result<Response> {
    let name = text(name)?;
    let rotation = body::rotation(body::read_object(body).await?.unwrap_or_else(Map::new))?;
    let is_given = matches!(&rotation, Rotation::Add(new) if new.text.is_some());
    let secret = control.rotate(&name, rotation).await?;
    let secret = secret.as_ref().filter(|_| !is_given).map(|secret| secret.expose());
    Ok(Json(json!({ "name": name, "secret": secret })).into_response())
}

async fn preview(State(control): State<ControlHandle>, name: Name, body: Body) -> Result<Json<PreviewView>> {
    let patch = body::settings_patch(body::read_object(body).await?.unwrap_or_else(Map::new))?;
    Ok(Json(control.preview(text(name)?, patch).await?))
}

async fn moves(State(control): State<ControlHandle>, name: Name) -> Result<Json<Vec<MoveView>>> {
    Ok(Json(control.moves(text(name)?).await?))
}

async fn curve(State(control): State<ControlHandle>, name: Name) -> Result<Json<CurveView>> {
    Ok(Json(control.curve(text(name)?).await?))
}

async fn top(State(control): State<ControlHandle>, name: Name) -> Result<Json<TopView>> {
    Ok(Json(control.top(text(name)?).await?))
}

async fn usage(query: UsageParameters, folder: Arc<FsPath>) -> Result<Json<UsagePage>> {
    let query = usage::query(query)?;
    // Reading takes as long as the disk takes.
    let reading = tokio::task::spawn_blocking(move || usage::page(&folder, &query)).await;
    let page = reading.map_err(|error| {
        let message = format!("reading the ledger: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    })?;
    Ok(Json(page?))
}

fn list_tokens(tokens: &Tokens) -> Json<Value> {
    let tokens: Vec<TokenRecord> = tokens.list();
    Json(json!({ "tokens": tokens }))
}

async fn create_token(tokens: Arc<Tokens>, body: Body) -> Result<Response> {
    let new = body::new_token(body::read_needed_object(body).await?)?;
    let token = tokens.create(&new.name, new.role)?;
    let created = json!({ "name": new.name, "role": new.role.name(), "token": token.expose() });
    Ok((StatusCode::CREATED, Json(created)).into_response())
}

fn remove_token(tokens: &Tokens, name: Name) -> Result<StatusCode> {
    tokens.remove(&text(name)?)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn later(uri: Uri) -> ApiError {
    let message = format!("{} is not available in this version", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "not_available", message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let message = format!("{method} is not possible on {}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::no_such_path(uri.path())
}

/// A path that is not UTF-8 names nothing.
fn text(name: Name) -> Result<String> {
    name.map(|Path(name)| name)
        .map_err(|_| ApiError::no_such_path("this path: it is not UTF-8"))
}
