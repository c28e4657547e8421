//! An earlier version's file becomes this one's.

use rusqlite::Connection;

use super::checksum;
use crate::settings::{SETTINGS, Setting};

/// The first schema that was ever written.
pub(super) const OLDEST_SCHEMA_VERSION: i64 = 1;
/// This version's schema.
pub(super) const SCHEMA_VERSION: i64 = newest();

/// The schemas that brought something beside columns of settings, and the statements for it, the oldest first.
const OTHER_STEPS: [(i64, &str); 3] = [
    // The remembered grant of an idle tenant.
    (2, "ALTER TABLE tenants ADD COLUMN remembered_grant_bytes INTEGER;"),
    // A checksum of it all.
    (checksum::CHECKED_FROM, checksum::TABLE),
    // Names of secrets, each rotated by itself.
    (
        6,
        "ALTER TABLE secrets ADD COLUMN name TEXT NOT NULL DEFAULT 'default';",
    ),
];

/// The newest schema that a setting or another step needs.
const fn newest() -> i64 {
    let mut newest = OLDEST_SCHEMA_VERSION;
    let mut step = 0;
    while step < OTHER_STEPS.len() {
        if OTHER_STEPS[step].0 > newest {
            newest = OTHER_STEPS[step].0;
        }
        step += 1;
    }
    let mut setting = 0;
    while setting < SETTINGS.len() {
        if SETTINGS[setting].column.since > newest {
            newest = SETTINGS[setting].column.since;
        }
        setting += 1;
    }
    newest
}

/// A setting's column as SQL declares it.
pub(super) fn column(setting: &Setting) -> String {
    format!("{} {}", setting.column.name, setting.kind.column_type())
}

/// Brings a file of an earlier schema to the newest: all of it or, after an error or a crash, nothing.
pub(super) fn to_newest(connection: &mut Connection, found: i64) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    for schema in found + 1..=SCHEMA_VERSION {
        for setting in SETTINGS.iter().filter(|setting| setting.column.since == schema) {
            transaction.execute_batch(&format!("ALTER TABLE tenants ADD COLUMN {}", column(setting)))?;
        }
        for (_, step) in OTHER_STEPS.iter().filter(|(since, _)| *since == schema) {
            transaction.execute_batch(step)?;
        }
    }
    checksum::begin(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}
