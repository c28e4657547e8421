//! `GET /api/v1/usage`: rows of the ledger.

use std::path::Path;

use axum::extract::Query as QueryString;
use axum::extract::rejection::QueryRejection;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidemark_control::{ControlError, LedgerReader, Query, Refusal, RefusalKind};
use tidemark_meter::export;
use tidemark_types::{UnixMs, utc};

use crate::answer::ApiError;

/// Rows of one answer: a month of a tenant's minutes, some 30 MB.
const ROWS_MAX: usize = 50_000;

/// The query, as it was written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameters {
    tenant: Option<String>,
    from: Option<String>,
    to: Option<String>,
    behind: Option<u64>,
}

pub(crate) type UsageParameters = Result<QueryString<Parameters>, QueryRejection>;

/// Rows, and where the next ones begin if there are more.
#[derive(Debug, Serialize)]
pub(crate) struct UsagePage {
    rows: Vec<Value>,
    /// For `behind` in the next call; `None`: these were all.
    next: Option<u64>,
}

pub(crate) fn query(parameters: UsageParameters) -> Result<Query, ApiError> {
    let QueryString(parameters) = parameters.map_err(|rejection| {
        let message = format!("{}: allowed are tenant, from, to and behind", rejection.body_text());
        Refusal::new(RefusalKind::Invalid, message)
    })?;
    let moment = |field: &'static str, text: &Option<String>| -> Result<Option<UnixMs>, Refusal> {
        let Some(text) = text else { return Ok(None) };
        let wrong = || {
            let message = format!("`{field}` must be a moment in UTC, such as 2026-08-01T12:00:00Z or 2026-08-01");
            Refusal::new(RefusalKind::Invalid, message).field(field)
        };
        utc::parse(text).map(Some).ok_or_else(wrong)
    };
    let all = Query::default();
    Ok(Query {
        from: moment("from", &parameters.from)?.unwrap_or(all.from),
        to: moment("to", &parameters.to)?.unwrap_or(all.to),
        tenant: parameters.tenant,
        behind: parameters.behind.unwrap_or(0),
        rows_max: ROWS_MAX,
    })
}

pub(crate) fn page(folder: &Path, query: &Query) -> Result<UsagePage, ApiError> {
    let rows = LedgerReader::open(folder).and_then(|ledger| ledger.rows(query));
    let rows = match rows {
        Ok(rows) => rows,
        Err(ControlError::File { doing: "open", .. }) => {
            let message = "this server keeps no ledger";
            return Err(ApiError::new(StatusCode::NOT_FOUND, "not_found", message));
        }
        Err(error) => return Err(error.into()),
    };
    Ok(UsagePage {
        next: rows
            .last()
            .filter(|_| rows.len() == query.rows_max)
            .map(|row| row.sequence),
        rows: rows.iter().map(export::json).collect(),
    })
}
