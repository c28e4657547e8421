//! Rows to values and back. Values are checked as if a stranger had written them: a value that no version writes is
//! damage.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, Transaction, params};
use tidemark_meter::price::Money;
use tidemark_meter::spending::AtLimit;
use tidemark_plan::Utility;
use tidemark_types::{HitRatio, Permissions, SecretHash, TenantId, TenantLimits, TenantName, UnixMs, Weight};

use super::{MAX_SECRET_NAMES, MAX_SECRETS, PoolSetting, ServerSettings, StateFile, StoredSecret, TenantRecord, open};
use crate::error::ControlError;
use crate::secret::SecretName;
use crate::settings::{FlashSettings, TenantSettings, check_round_period, check_tenant};

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
        let mut statement = file.connection.prepare(
            "SELECT id, name, version, floor_bytes, cap_bytes, policy, created_at_ms, hit_ratio_millionths,
                    remembered_grant_bytes, latency_us, miss_cost_us, priority, utility, weight, ops_per_second,
                    bytes_per_second, connections, spending, at_limit, flash_floor_bytes, flash_cap_bytes,
                    flash_write_bytes_per_second, staleness
             FROM tenants ORDER BY id",
        )?;
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

/// A column's text as a value, where there is any.
fn parsed<T: FromStr<Err: Display>>(row: &Row<'_>, column: usize, name: &TenantName) -> Result<Option<T>, ReadError> {
    let text: Option<String> = row.get(column)?;
    let parsed = text.map(|text| text.parse::<T>()).transpose();
    Ok(parsed.map_err(|error| BadRow(format!("tenant {name}: {error}")))?)
}

fn tenant(row: &Row<'_>) -> Result<TenantRecord, ReadError> {
    let id = tenant_id(row, 0)?;
    let name: String = row.get(1)?;
    let name: TenantName = name.parse().map_err(|error| BadRow(format!("tenant {id}: {error}")))?;
    let settings = TenantSettings {
        hit_ratio: hit_ratio(row, 7)?,
        latency: optional_count(row, 9, "latency_us")?.map(Duration::from_micros),
        miss_cost: optional_count(row, 10, "miss_cost_us")?.map(Duration::from_micros),
        priority: priority(row, 11)?,
        utility: parsed(row, 12, &name)?,
        floor_bytes: optional_count(row, 3, "floor_bytes")?,
        cap_bytes: optional_count(row, 4, "cap_bytes")?,
        policy: parsed(row, 5, &name)?,
        weight: weight(row, 13)?,
        limits: TenantLimits {
            ops_per_second: optional_count(row, 14, "ops_per_second")?,
            bytes_per_second: optional_count(row, 15, "bytes_per_second")?,
            connections: optional_count(row, 16, "connections")?,
        },
        spending: spending(row, 17)?,
        at_limit: parsed(row, 18, &name)?,
        flash: FlashSettings {
            floor_bytes: optional_count(row, 19, "flash_floor_bytes")?,
            cap_bytes: optional_count(row, 20, "flash_cap_bytes")?,
            write_bytes_per_second: optional_count(row, 21, "flash_write_bytes_per_second")?,
            staleness: parsed(row, 22, &name)?,
        },
    };
    check_tenant(&settings).map_err(|refusal| BadRow(format!("tenant {name}: {refusal}")))?;
    Ok(TenantRecord {
        id,
        version: count(row, 2, "version")?,
        settings,
        secrets: Vec::new(),
        created_at: UnixMs(count(row, 6, "created_at_ms")?),
        remembered_grant_bytes: optional_count(row, 8, "remembered_grant_bytes")?,
        name,
    })
}

fn spending(row: &Row<'_>, column: usize) -> Result<Option<Money>, ReadError> {
    let text: Option<String> = row.get(column)?;
    let Some(text) = text else { return Ok(None) };
    let wrong = || BadRow(format!("`{}` is no amount of money", text.escape_debug()));
    Ok(Some(Money::parse(&text).ok_or_else(wrong)?))
}

fn hit_ratio(row: &Row<'_>, column: usize) -> Result<Option<HitRatio>, ReadError> {
    let Some(millionths) = optional_count(row, column, "hit_ratio_millionths")? else {
        return Ok(None);
    };
    let ratio = u32::try_from(millionths).ok().and_then(HitRatio::from_millionths);
    let wrong = || BadRow(format!("a hit ratio of {millionths} millionths is not possible"));
    Ok(Some(ratio.ok_or_else(wrong)?))
}

fn priority(row: &Row<'_>, column: usize) -> Result<Option<u8>, ReadError> {
    let Some(number) = optional_count(row, column, "priority")? else {
        return Ok(None);
    };
    let wrong = |_| BadRow(format!("a priority of {number} is not possible"));
    Ok(Some(u8::try_from(number).map_err(wrong)?))
}

fn weight(row: &Row<'_>, column: usize) -> Result<Option<Weight>, ReadError> {
    let Some(number) = optional_count(row, column, "weight")? else {
        return Ok(None);
    };
    let wrong = || BadRow(format!("a weight of {number} is not possible"));
    Ok(Some(Weight::new(number).ok_or_else(wrong)?))
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

fn stored_weight(weight: Weight) -> i64 {
    weight.get().cast_signed()
}

pub(super) fn insert_tenant(
    transaction: &Transaction<'_>,
    name: &TenantName,
    settings: TenantSettings,
    created_at: UnixMs,
) -> Result<TenantId, rusqlite::Error> {
    transaction.execute(
        "INSERT INTO tenants (name, version, floor_bytes, cap_bytes, policy, created_at_ms, hit_ratio_millionths,
                              latency_us, miss_cost_us, priority, utility, weight, ops_per_second, bytes_per_second,
                              connections, spending, at_limit, flash_floor_bytes, flash_cap_bytes,
                              flash_write_bytes_per_second, staleness)
         VALUES (?1, 1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)",
        params![
            name.as_str(),
            settings.floor_bytes.map(u64::cast_signed),
            settings.cap_bytes.map(u64::cast_signed),
            settings.policy.map(|policy| policy.to_string()),
            created_at.0.cast_signed(),
            settings.hit_ratio.map(HitRatio::millionths),
            settings.latency.map(whole_us),
            settings.miss_cost.map(whole_us),
            settings.priority,
            settings.utility.map(Utility::name),
            settings.weight.map(stored_weight),
            settings.limits.ops_per_second.map(u64::cast_signed),
            settings.limits.bytes_per_second.map(u64::cast_signed),
            settings.limits.connections.map(u64::cast_signed),
            settings.spending.map(|amount| amount.to_string()),
            settings.at_limit.map(AtLimit::name),
            settings.flash.floor_bytes.map(u64::cast_signed),
            settings.flash.cap_bytes.map(u64::cast_signed),
            settings.flash.write_bytes_per_second.map(u64::cast_signed),
            settings.flash.staleness.map(|staleness| staleness.to_string()),
        ],
    )?;
    let id = transaction.last_insert_rowid();
    u32::try_from(id)
        .map(TenantId)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, id))
}

pub(super) fn update_tenant(transaction: &Transaction<'_>, tenant: &TenantRecord) -> Result<(), rusqlite::Error> {
    let changed = transaction.execute(
        "UPDATE tenants SET version = ?2, floor_bytes = ?3, cap_bytes = ?4, policy = ?5, hit_ratio_millionths = ?6,
                            latency_us = ?7, miss_cost_us = ?8, priority = ?9, utility = ?10, weight = ?11,
                            ops_per_second = ?12, bytes_per_second = ?13, connections = ?14,
                            spending = ?15, at_limit = ?16, flash_floor_bytes = ?17, flash_cap_bytes = ?18,
                            flash_write_bytes_per_second = ?19, staleness = ?20
         WHERE id = ?1",
        params![
            tenant.id.0,
            tenant.version.cast_signed(),
            tenant.settings.floor_bytes.map(u64::cast_signed),
            tenant.settings.cap_bytes.map(u64::cast_signed),
            tenant.settings.policy.map(|policy| policy.to_string()),
            tenant.settings.hit_ratio.map(HitRatio::millionths),
            tenant.settings.latency.map(whole_us),
            tenant.settings.miss_cost.map(whole_us),
            tenant.settings.priority,
            tenant.settings.utility.map(Utility::name),
            tenant.settings.weight.map(stored_weight),
            tenant.settings.limits.ops_per_second.map(u64::cast_signed),
            tenant.settings.limits.bytes_per_second.map(u64::cast_signed),
            tenant.settings.limits.connections.map(u64::cast_signed),
            tenant.settings.spending.map(|amount| amount.to_string()),
            tenant.settings.at_limit.map(AtLimit::name),
            tenant.settings.flash.floor_bytes.map(u64::cast_signed),
            tenant.settings.flash.cap_bytes.map(u64::cast_signed),
            tenant.settings.flash.write_bytes_per_second.map(u64::cast_signed),
            tenant.settings.flash.staleness.map(|staleness| staleness.to_string()),
        ],
    )?;
    if changed == 1 {
        Ok(())
    } else {
        Err(rusqlite::Error::StatementChangedRows(changed))
    }
}

/// Settings are checked to be far below values that would not fit.
fn whole_us(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
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
