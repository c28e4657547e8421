//! The local API: applications, their configurations and keys, and events of instances' lives. Mounted below
//! `/api/v1/agent` of the admin API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tidemark_gateway::access::{Entry, Grant, ServerKey, access_key};
use tidemark_types::TenantId;

use crate::agent::Agent;
use crate::clock::now_us;
use crate::dimensions;
use crate::error::AgentError;
use crate::etcd::EtcdError;
use crate::instances::LifeEvent;
use crate::{promises, show};

struct Api {
    agent: Arc<Agent>,
    key: ServerKey,
}

type Shared = State<Arc<Api>>;

/// The API of an agent. `key` is what secrets of access keys are derived from.
pub fn router(agent: Arc<Agent>, key: ServerKey) -> Router {
    Router::new()
        .route("/", get(node))
        .route("/apps", get(apps).post(create))
        .route("/apps/{app}", get(app).patch(change))
        .route("/apps/{app}/key", get(show_key).post(change_key))
        .route("/instances", get(instances).post(live))
        .fallback(absent)
        .with_state(Arc::new(Api { agent, key }))
}

impl IntoResponse for AgentError {
    fn into_response(self) -> Response {
        let (status, code) = match &self {
            Self::NoApp(_) => (StatusCode::NOT_FOUND, "not_found"),
            Self::TooManyApps => (StatusCode::CONFLICT, "over_limit"),
            Self::Life(_) | Self::Refused(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Self::Etcd(EtcdError::Unreachable(_)) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        let error = json!({"error": {"code": code, "message": self.to_string(), "field": null, "allowed": null}});
        (status, Json(error)).into_response()
    }
}

async fn absent() -> Response {
    let error =
        json!({"error": {"code": "not_found", "message": "there is no such path", "field": null, "allowed": null}});
    (StatusCode::NOT_FOUND, Json(error)).into_response()
}

/// Runs something in the agent's own threads, where its connections live.
async fn in_agent<T: Send + 'static>(
    agent: &Agent,
    work: impl Future<Output = Result<T, AgentError>> + Send + 'static,
) -> Result<T, AgentError> {
    let done = agent.handle().spawn(work).await;
    done.unwrap_or_else(|_| Err(AgentError::Refused("the agent is ending".into())))
}

async fn node(State(api): Shared) -> Json<Value> {
    Json(show::node(&api.agent, now_us()))
}

async fn apps(State(api): Shared) -> Json<Value> {
    let names = api.agent.apps().into_keys();
    let apps: Vec<_> = names.filter_map(|name| show::app(&api.agent, &name)).collect();
    Json(json!({"apps": apps}))
}

async fn app(State(api): Shared, Path(name): Path<String>) -> Result<Json<Value>, AgentError> {
    let shown = show::app(&api.agent, &name);
    shown.map(Json).ok_or(AgentError::NoApp(name))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    /// How fresh reads are: `linearizable`, `bounded:T` or `eventual`.
    consistency: Option<String>,
    /// Which writes survive: `strict` or `none`.
    durability: Option<String>,
}

async fn create(State(api): Shared, Json(asked): Json<Create>) -> Result<Response, AgentError> {
    let agent = Arc::clone(&api.agent);
    let name = asked.name.clone();
    let (consistency, durability) = (asked.consistency.as_deref(), asked.durability.as_deref());
    if consistency.is_none() && durability.is_none() {
        in_agent(&api.agent, async move { agent.serve_app(&name).await }).await?;
    } else {
        let promise = promises::parse(consistency, durability).map_err(AgentError::Refused)?;
        in_agent(&api.agent, async move { agent.create_app(&name, promise).await }).await?;
    }
    Ok((StatusCode::CREATED, Json(json!({"name": asked.name}))).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    /// Values by their dimensions; null gives a dimension free.
    pin: BTreeMap<String, Option<String>>,
}

async fn change(
    State(api): Shared,
    Path(name): Path<String>,
    Json(asked): Json<Change>,
) -> Result<Json<Value>, AgentError> {
    let (agent, app) = (Arc::clone(&api.agent), name.clone());
    let changed = in_agent(&api.agent, async move {
        let pin = |record: &mut crate::layout::AppRecord| {
            for (dimension, value) in &asked.pin {
                match value {
                    Some(value) => dimensions::pin(record, dimension, value),
                    None => dimensions::free(record, dimension),
                }
                .map_err(AgentError::Refused)?;
            }
            dimensions::check(record).map_err(AgentError::Refused)
        };
        agent.change_app(&app, pin).await
    });
    let record = changed.await?;
    Ok(Json(
        json!({"name": name, "config": record.config, "pinned": record.pinned, "reason": record.reason}),
    ))
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ChangeKey {
    #[serde(default)]
    allow: Vec<String>,
    #[serde(default)]
    rotate: bool,
    #[serde(default)]
    finish: bool,
}

#[derive(Serialize)]
struct Key {
    name: String,
    access_key: String,
    secret_key: String,
    allow: Vec<String>,
}

impl Api {
    fn key_of(&self, name: &str, entry: &Entry) -> Json<Key> {
        Json(Key {
            name: name.to_owned(),
            access_key: access_key(name, entry.generation),
            secret_key: self.key.secret(TenantId(entry.tenant), name, entry.generation),
            allow: entry.grants.iter().map(ToString::to_string).collect(),
        })
    }
}

async fn show_key(State(api): Shared, Path(name): Path<String>) -> Result<Json<Key>, AgentError> {
    let record = api.agent.apps().remove(&name);
    let record = record.ok_or_else(|| AgentError::NoApp(name.clone()))?;
    Ok(api.key_of(&name, &record.access))
}

async fn change_key(
    State(api): Shared,
    Path(name): Path<String>,
    Json(asked): Json<ChangeKey>,
) -> Result<Json<Key>, AgentError> {
    let grants: Vec<Grant> = asked
        .allow
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|error: tidemark_gateway::access::AccessError| AgentError::Refused(error.to_string()))
        })
        .collect::<Result<_, _>>()?;
    let (agent, app) = (Arc::clone(&api.agent), name.clone());
    let changed = in_agent(&api.agent, async move {
        let change = |record: &mut crate::layout::AppRecord| {
            if asked.rotate {
                record.access.rotate();
            }
            if asked.finish {
                record.access.finish();
            }
            if !grants.is_empty() {
                let allowed = record.access.allow(grants.clone());
                allowed.map_err(|error| AgentError::Refused(error.to_string()))?;
            }
            Ok(())
        };
        agent.change_app(&app, change).await
    });
    let record = changed.await?;
    Ok(api.key_of(&name, &record.access))
}

async fn instances(State(api): Shared) -> Json<Value> {
    Json(json!({"instances": api.agent.instances.all()}))
}

async fn live(State(api): Shared, Json(event): Json<LifeEvent>) -> Result<Json<Value>, AgentError> {
    let agent = Arc::clone(&api.agent);
    let changed = in_agent(&api.agent, async move { agent.take(event).await }).await?;
    Ok(Json(json!({"changed": changed})))
}
