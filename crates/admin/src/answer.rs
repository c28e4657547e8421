//! The answers of the API to requests that it cannot fulfil: `{"error":{"code","message","field","allowed"}}`.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tidemark_control::{ControlError, Refusal, RefusalKind};

/// An error as the API says it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    field: Option<String>,
    allowed: Vec<String>,
}

#[derive(Serialize)]
struct Envelope {
    error: Content,
}

#[derive(Serialize)]
struct Content {
    code: &'static str,
    message: String,
    field: Option<String>,
    allowed: Option<Vec<String>>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            field: None,
            allowed: Vec::new(),
        }
    }

    /// The same about a field of the request.
    pub(crate) fn field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }

    pub(crate) fn no_such_path(path: &str) -> Self {
        let path: String = path.chars().take(200).collect();
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("there is nothing at {path}"),
        )
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::Invalid | RefusalKind::UnknownField | RefusalKind::NotAvailable => StatusCode::BAD_REQUEST,
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::NameTaken | RefusalKind::OverLimit => StatusCode::CONFLICT,
        };
        Self {
            status,
            code: refusal.kind.code(),
            message: refusal.message,
            field: refusal.field,
            allowed: refusal.allowed,
        }
    }
}

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        let (status, code) = match error {
            ControlError::Refused(refusal) => return refusal.into(),
            ControlError::MemoryNotBack { .. } => (StatusCode::SERVICE_UNAVAILABLE, "memory_not_back"),
            ControlError::Stopped | ControlError::Busy => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            ControlError::System { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "system_failed"),
            ControlError::Damaged { .. }
            | ControlError::Backup { .. }
            | ControlError::Foreign { .. }
            | ControlError::Newer { .. }
            | ControlError::InUse { .. }
            | ControlError::File { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "state_failed"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(
                code = self.code,
                message = self.message,
                "a call of the admin API failed"
            );
        }
        let content = Content {
            code: self.code,
            message: self.message,
            field: self.field,
            allowed: (!self.allowed.is_empty()).then_some(self.allowed),
        };
        let mut response = (self.status, Json(Envelope { error: content })).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
