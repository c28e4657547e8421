//! The form of the ledger's file.
//!
//! ```text
//! rows      sequence, kind, tenant_id, tenant, from_ms, to_ms, node, price_version, is_modelled, an integer for each resource,
//!           commands (`redis/get=5 redis/set=2`), note, hash (32 bytes)
//! carried   what was dropped: kind, tenant_id, tenant, month, price_version, is_modelled, commands, a sum for each resource (decimal text)
//! prices    version, text (the prices file as it was)
//! ```

use std::path::Path;

use rusqlite::ErrorCode;
use tidemark_meter::Resource;

use crate::error::ControlError;

/// The ledger's name in the data folder.
pub const LEDGER_FILE_NAME: &str = "ledger.sqlite";

/// The columns before the resources, and behind them.
pub(super) const FIRST_COLUMNS: &str =
    "sequence, kind, tenant_id, tenant, from_ms, to_ms, node, price_version, is_modelled";
pub(super) const LAST_COLUMNS: &str = "commands, note, hash";

/// The names of the resources, separated by commas, each with this behind it.
pub(super) fn resource_columns(suffix: &str) -> String {
    let column = |resource: Resource| format!("{}{suffix}", resource.name());
    Resource::ALL.map(column).join(", ")
}

/// SQLite's errors by whose fault they are.
pub(super) fn explain(doing: &'static str, path: &Path, error: &rusqlite::Error) -> ControlError {
    let (path, detail) = (path.to_path_buf(), error.to_string());
    match error.sqlite_error_code() {
        None | Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            ControlError::Damaged { path, detail }
        }
        _ => ControlError::File { doing, path, detail },
    }
}
