//! An earlier version's file becomes this one's.

use rusqlite::Connection;

use super::checksum;
use super::open::SCHEMA_VERSION;

/// The first schema that was ever written.
pub(super) const OLDEST_SCHEMA_VERSION: i64 = 1;

/// The statements that bring each schema to the next one, the oldest first.
const STEPS: [&str; 6] = [
    // A goal, and the remembered grant of an idle tenant. The policies' names are as they were.
    "ALTER TABLE tenants ADD COLUMN hit_ratio_millionths INTEGER;
     ALTER TABLE tenants ADD COLUMN remembered_grant_bytes INTEGER;",
    // Goals that compete, limits in time, and the share beside others.
    "ALTER TABLE tenants ADD COLUMN latency_us INTEGER;
     ALTER TABLE tenants ADD COLUMN miss_cost_us INTEGER;
     ALTER TABLE tenants ADD COLUMN priority INTEGER;
     ALTER TABLE tenants ADD COLUMN utility TEXT;
     ALTER TABLE tenants ADD COLUMN weight INTEGER;
     ALTER TABLE tenants ADD COLUMN ops_per_second INTEGER;
     ALTER TABLE tenants ADD COLUMN bytes_per_second INTEGER;
     ALTER TABLE tenants ADD COLUMN connections INTEGER;",
    // A checksum of it all.
    checksum::TABLE,
    // The amount that a tenant may spend in a month, as a decimal number, and the action then.
    "ALTER TABLE tenants ADD COLUMN spending TEXT;
     ALTER TABLE tenants ADD COLUMN at_limit TEXT;",
    // Names of secrets, each rotated by itself.
    "ALTER TABLE secrets ADD COLUMN name TEXT NOT NULL DEFAULT 'default';",
    // The limits of a tenant on flash.
    "ALTER TABLE tenants ADD COLUMN flash_floor_bytes INTEGER;
     ALTER TABLE tenants ADD COLUMN flash_cap_bytes INTEGER;
     ALTER TABLE tenants ADD COLUMN flash_write_bytes_per_second INTEGER;
     ALTER TABLE tenants ADD COLUMN staleness TEXT;",
];

const _: () = assert!(checksum::CHECKED_FROM <= SCHEMA_VERSION);
const _: () = assert!(
    OLDEST_SCHEMA_VERSION + STEPS.len() as i64 == SCHEMA_VERSION,
    "a step to every schema"
);

/// Brings a file of an earlier schema to the newest: all of it or, after an error or a crash, nothing.
pub(super) fn to_newest(connection: &mut Connection, found: i64) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    for (from, step) in (OLDEST_SCHEMA_VERSION..).zip(STEPS) {
        if from >= found {
            transaction.execute_batch(step)?;
        }
    }
    checksum::begin(&transaction)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()
}
