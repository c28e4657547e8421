//! Rows to values and back. Values are checked as if a stranger had written them: a value that no version writes is
//! damage.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction, params, params_from_iter};
use tidemark_types::{Permissions, SecretHash, TenantId, TenantName, UnixMs};

use super::{MAX_SECRET_NAMES, MAX_SECRETS, PoolSetting, ServerSettings, StateFile, StoredSecret, TenantRecord, open};
use crate::error::{ControlError, Refusal};
use crate::secret::SecretName;
use crate::settings::{PlainValue, SETTINGS, TenantSettings, check_round_period, check_tenant};

/// The settings begin at this column of a tenant's row, behind all else that it has.
const FIRST_SETTING: usize = 5;
const POOL_BYTES: &str = "pool_bytes";
const POOL_CONFIGURED_BYTES: &str = "pool_configured_bytes";
const ROUND_PERIOD_US: &str = "round_period_us";

/// A row that holds what no version writes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRow(String);

/// Why rows could not be read.
enum ReadError {
    Sqlite(rusqlite::Error),
    Row(BadRow),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<BadRow> for ReadError {
    fn from(error: BadRow) -> Self {
        Self::Row(error)
    }
}

fn explain(path: &Path, error: ReadError) -> ControlError {
    match error {
        ReadError::Sqlite(error) => open::explain("read", path, &error),
        ReadError::Row(BadRow(detail)) => ControlError::Damaged {
            path: path.into(),
            detail,
        },
    }
}

pub(super) fn tenants(file: &StateFile) -> Result<Vec<TenantRecord>, ControlError> {
    let read = || -> Result<Vec<TenantRecord>, ReadError> {
        let mut secrets = secrets_by_tenant(file)?;
        let mut statement = file.connection.prepare(&format!(
            "SELECT id, name, version, created_at_ms, remembered_grant_bytes, {} FROM tenants ORDER BY id",
            columns().join(", ")
        ))?;
        let mut rows = statement.query([])?;
        let mut tenants = Vec::new();
        while let Some(row) = rows.next()? {
            let mut tenant = tenant(row)?;
            tenant.secrets = secrets.remove(&tenant.id).unwrap_or_default();
            tenants.push(tenant);
        }
        Ok(tenants)
    };
    read().map_err(|error| explain(&file.path, error))
}

pub(super) fn server(connection: &Connection, path: &Path) -> Result<ServerSettings, ControlError> {
    let read = || -> Result<ServerSettings, ReadError> {
        let mut statement = connection.prepare("SELECT name, value FROM server")?;
        let mut rows = statement.query([])?;
        let mut values: BTreeMap<String, u64> = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            let value = count(row, 1, &name)?;
            values.insert(name, value);
        }
        let pool = match (values.remove(POOL_BYTES), values.remove(POOL_CONFIGURED_BYTES)) {
            (None, None) => None,
            // Whether the size is possible depends on the machine: that is judged at each start.
            (Some(bytes), Some(configured_bytes)) => Some(PoolSetting {
                bytes,
                configured_bytes,
            }),
            _ => {
                return Err(BadRow(format!(
                    "only one of `{POOL_BYTES}` and `{POOL_CONFIGURED_BYTES}` is there"
                ))
                .into());
            }
        };
        let round_period = values.remove(ROUND_PERIOD_US).map(Duration::from_micros);
        if let Some(period) = round_period {
            check_round_period(period).map_err(|refusal| BadRow(refusal.message))?;
        }
        let settings = ServerSettings { pool, round_period };
        match values.pop_first() {
            None => Ok(settings),
            Some((name, _)) => Err(BadRow(format!("the server setting `{name}` is not known")).into()),
        }
    };
    read().map_err(|error| explain(path, error))
}

/// The columns of the settings, in the order of their table.
fn columns() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.column.name).collect()
}

/// The settings as the columns keep them, in the same order.
fn stored(settings: TenantSettings) -> impl Iterator<Item = Value> {
    SETTINGS.iter().map(move |setting| match setting.stored(&settings) {
        Some(PlainValue::Number(number)) => Value::Integer(number.cast_signed()),
        Some(PlainValue::Text(text)) => Value::Text(text),
        None | Some(PlainValue::Real(_) | PlainValue::Other) => Value::Null,
    })
}

fn tenant(row: &Row<'_>) -> Result<TenantRecord, ReadError> {
    let id = tenant_id(row, 0)?;
    let name: String = row.get(1)?;
    let name: TenantName = name.parse().map_err(|error| BadRow(format!("tenant {id}: {error}")))?;
    let bad = |refusal: Refusal| BadRow(format!("tenant {name}: {refusal}"));
    let mut settings = TenantSettings::default();
    for (column, setting) in (FIRST_SETTING..).zip(SETTINGS) {
        if let Some(stored) = plain(row, column, setting.column.name)? {
            setting.restore(&mut settings, &stored).map_err(bad)?;
        }
    }
    check_tenant(&settings).map_err(bad)?;
    Ok(TenantRecord {
        id,
        version: count(row, 2, "version")?,
        settings,
        secrets: Vec::new(),
        created_at: UnixMs(count(row, 3, "created_at_ms")?),
        remembered_grant_bytes: optional_count(row, 4, "remembered_grant_bytes")?,
        name,
    })
}

/// A column of a setting; `None`: nobody set it.
fn plain(row: &Row<'_>, column: usize, name: &str) -> Result<Option<PlainValue>, ReadError> {
    match row.get(column)? {
        Value::Text(text) => Ok(Some(PlainValue::Text(text))),
        _ => Ok(optional_count(row, column, name)?.map(PlainValue::Number)),
    }
}

fn secrets_by_tenant(file: &StateFile) -> Result<BTreeMap<TenantId, Vec<StoredSecret>>, ReadError> {
    let mut statement = file.connection.prepare(
        "SELECT tenant_id, hash, permissions, created_at_ms, slot, name FROM secrets ORDER BY tenant_id, slot",
    )?;
    let mut rows = statement.query([])?;
    let mut secrets: BTreeMap<TenantId, Vec<StoredSecret>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let id = tenant_id(row, 0)?;
        let hash: Vec<u8> = row.get(1)?;
        let hash: [u8; 32] = hash
            .try_into()
            .map_err(|_| BadRow(format!("a secret of tenant {id} is not 32 bytes")))?;
        let permissions = u8::try_from(count(row, 2, "permissions")?)
            .ok()
            .and_then(Permissions::from_bits);
        let permissions =
            permissions.ok_or_else(|| BadRow(format!("a secret of tenant {id} has unknown permissions")))?;
        let of_tenant = secrets.entry(id).or_default();
        if count(row, 4, "slot")? != of_tenant.len() as u64 {
            return Err(BadRow(format!("the secrets of tenant {id} are not numbered from 0")).into());
        }
        let name: String = row.get(5)?;
        let name: SecretName = name
            .parse()
            .map_err(|_| BadRow(format!("a secret of tenant {id} is named `{name}`")))?;
        if of_tenant.iter().filter(|secret| secret.name == name).count() >= MAX_SECRETS {
            return Err(BadRow(format!(
                "tenant {id} has more than {MAX_SECRETS} secrets named `{name}`"
            ))
            .into());
        }
        of_tenant.push(StoredSecret {
            name,
            hash: SecretHash(hash),
            permissions,
            created_at: UnixMs(count(row, 3, "created_at_ms")?),
        });
        if of_tenant.len() > MAX_SECRETS * MAX_SECRET_NAMES {
            return Err(BadRow(format!("tenant {id} has more than {MAX_SECRET_NAMES} secrets by name")).into());
        }
    }
    Ok(secrets)
}

fn tenant_id(row: &Row<'_>, column: usize) -> Result<TenantId, ReadError> {
    let id = count(row, column, "id")?;
    let id = u32::try_from(id).map_err(|_| BadRow(format!("{id} is not a tenant's number")))?;
    Ok(TenantId(id))
}

fn count(row: &Row<'_>, column: usize, name: &str) -> Result<u64, ReadError> {
    optional_count(row, column, name)?.ok_or_else(|| BadRow(format!("`{name}` is missing")).into())
}

/// SQLite's integers are signed; nothing that is stored is negative.
fn optional_count(row: &Row<'_>, column: usize, name: &str) -> Result<Option<u64>, ReadError> {
    match row.get(column)? {
        Value::Null => Ok(None),
        Value::Integer(number) if number >= 0 => Ok(Some(number.cast_unsigned())),
        Value::Integer(_) => Err(BadRow(format!("`{name}` is negative")).into()),
        _ => Err(BadRow(format!("`{name}` is not a number")).into()),
    }
}

pub(super) fn insert_tenant(
    transaction: &Transaction<'_>,
    name: &TenantName,
    settings: TenantSettings,
    created_at: UnixMs,
) -> Result<TenantId, rusqlite::Error> {
    let columns = columns();
    let places: Vec<String> = (3..).take(columns.len()).map(|place| format!("?{place}")).collect();
    let insert = format!(
        "INSERT INTO tenants (name, version, created_at_ms, {}) VALUES (?1, 1, ?2, {})",
        columns.join(", "),
        places.join(", ")
    );
    let first = [
        Value::Text(name.to_string()),
        Value::Integer(created_at.0.cast_signed()),
    ];
    transaction.execute(&insert, params_from_iter(first.into_iter().chain(stored(settings))))?;
    let id = transaction.last_insert_rowid();
    u32::try_from(id)
        .map(TenantId)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, id))
}

pub(super) fn update_tenant(transaction: &Transaction<'_>, tenant: &TenantRecord) -> Result<(), rusqlite::Error> {
    let columns = columns();
    let set = (3..)
        .zip(&columns)
        .map(|(place, column)| format!("{column} = ?{place}"));
    let update = format!(
        "UPDATE tenants SET version = ?2, {} WHERE id = ?1",
        set.collect::<Vec<_>>().join(", ")
    );
    let first = [
        Value::Integer(tenant.id.0.into()),
        Value::Integer(tenant.version.cast_signed()),
    ];
    let values = first.into_iter().chain(stored(tenant.settings));
    let changed = transaction.execute(&update, params_from_iter(values))?;
    if changed == 1 {
        Ok(())
    } else {
        Err(rusqlite::Error::StatementChangedRows(changed))
    }
}

pub(super) fn remember(
    transaction: &Transaction<'_>,
    grants: &[(TenantId, Option<u64>)],
) -> Result<(), rusqlite::Error> {
    let mut statement = transaction.prepare("UPDATE tenants SET remembered_grant_bytes = ?2 WHERE id = ?1")?;
    for (id, bytes) in grants {
        statement.execute(params![id.0, bytes.map(u64::cast_signed)])?;
    }
    Ok(())
}

pub(super) fn replace_secrets(
    transaction: &Transaction<'_>,
    id: TenantId,
    secrets: &[StoredSecret],
) -> Result<(), rusqlite::Error> {
    transaction.execute("DELETE FROM secrets WHERE tenant_id = ?1", params![id.0])?;
    for (slot, secret) in secrets.iter().enumerate() {
        transaction.execute(
            "INSERT INTO secrets (tenant_id, slot, hash, permissions, created_at_ms, name)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                id.0,
                slot,
                secret.hash.0.as_slice(),
                secret.permissions.bits(),
                secret.created_at.0.cast_signed(),
                secret.name.as_str(),
            ],
        )?;
    }
    Ok(())
}

pub(super) fn replace_server(transaction: &Transaction<'_>, settings: &ServerSettings) -> Result<(), rusqlite::Error> {
    transaction.execute("DELETE FROM server", [])?;
    let period_us = settings
        .round_period
        .map(|period| u64::try_from(period.as_micros()).unwrap_or(u64::MAX));
    for (name, value) in [
        (POOL_BYTES, settings.pool.map(|pool| pool.bytes)),
        (POOL_CONFIGURED_BYTES, settings.pool.map(|pool| pool.configured_bytes)),
        (ROUND_PERIOD_US, period_us),
    ] {
        if let Some(value) = value {
            transaction.execute(
                "INSERT INTO server (name, value) VALUES (?1, ?2)",
                params![name, value.cast_signed()],
            )?;
        }
    }
    Ok(())
}
