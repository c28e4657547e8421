//! The checksum of all that the state file holds, so that a bit that changed on a disk is found at the next start.
//!
//! It is the sum of the SHA-256 of each row. A change thus costs as much as the rows that it changes, however many
//! tenants there are. (This is AdHash of Bellare and Micciancio, 1997, with four sums modulo 2^64.) It is no protection
//! from a program that may write the file. Invariant: every transaction that changes rows changes the checksum with
//! them.

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Params, Statement, Transaction, params};
use sha2::{Digest, Sha256};
use tidemark_types::TenantId;

/// The schema from which on files have one.
pub(super) const CHECKED_FROM: i64 = 4;
/// The table that keeps it.
pub(super) const TABLE: &str = "CREATE TABLE checksum (value BLOB NOT NULL) STRICT;";

/// Tables of few rows, of which every change reads all.
const SMALL_TABLES: [&str; 2] = ["server", "sqlite_sequence"];
/// The other tables, and the column that names a row's tenant.
const TENANTS_TABLES: [(&str, &str); 2] = [("tenants", "id"), ("secrets", "tenant_id")];

const BYTES: usize = 32;

/// The sum of some rows' hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum([u64; BYTES / 8]);

impl Sum {
    fn plus(self, other: Self) -> Self {
        let mut sum = self;
        for (lane, other) in sum.0.iter_mut().zip(other.0) {
            *lane = lane.wrapping_add(other);
        }
        sum
    }

    fn minus(self, other: Self) -> Self {
        let mut sum = self;
        for (lane, other) in sum.0.iter_mut().zip(other.0) {
            *lane = lane.wrapping_sub(other);
        }
        sum
    }

    fn of_bytes(bytes: &[u8; BYTES]) -> Self {
        let mut sum = Self::default();
        for (lane, bytes) in sum.0.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut whole = [0; 8];
            whole.copy_from_slice(bytes);
            *lane = u64::from_le_bytes(whole);
        }
        sum
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_iter().flat_map(u64::to_le_bytes).collect()
    }
}

/// The sum of the rows that a change of these tenants may touch.
pub(super) fn of_change(connection: &Connection, tenants: &[TenantId]) -> Result<Sum, rusqlite::Error> {
    let mut sum = of_small_tables(connection)?;
    for (table, owner) in TENANTS_TABLES {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} WHERE {owner} = ?1"))?;
        for id in tenants {
            sum = sum.plus(of_rows(table, &mut statement, params![id.0])?);
        }
    }
    Ok(sum)
}

/// Adds what became of the rows whose sum was `before` to the checksum.
pub(super) fn note_change(transaction: &Transaction<'_>, before: Sum, after: Sum) -> Result<(), rusqlite::Error> {
    let all = stored(transaction)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let changed = transaction.execute(
        "UPDATE checksum SET value = ?1",
        [all.minus(before).plus(after).bytes()],
    )?;
    if changed == 1 {
        Ok(())
    } else {
        Err(rusqlite::Error::StatementChangedRows(changed))
    }
}

/// Writes it for a file that was just filled or brought to another schema.
pub(super) fn begin(transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
    transaction.execute("DELETE FROM checksum", [])?;
    let sum = of_all(transaction)?;
    transaction.execute("INSERT INTO checksum (value) VALUES (?1)", [sum.bytes()])?;
    Ok(())
}

/// The fault of a file of so old a schema, if it has one.
pub(super) fn fault(connection: &Connection, schema: i64) -> Result<Option<String>, rusqlite::Error> {
    let has_table = connection
        .prepare("SELECT 1 FROM sqlite_schema WHERE name = 'checksum'")?
        .exists([])?;
    if schema < CHECKED_FROM {
        return Ok(has_table.then(|| format!("a file of schema {schema} has no checksum, and this one does")));
    }
    let stored = if has_table { stored(connection)? } else { None };
    Ok(match stored {
        None => Some("its checksum is missing".into()),
        Some(sum) if sum != of_all(connection)? => {
            Some("its content is not what was written: the checksum differs".into())
        }
        Some(_) => None,
    })
}

/// The stored checksum: `None` unless there is exactly one of the right length.
fn stored(connection: &Connection) -> Result<Option<Sum>, rusqlite::Error> {
    let (rows, value) = connection.query_row("SELECT count(*), max(value) FROM checksum", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Option<Vec<u8>>>(1)?))
    })?;
    let bytes: Option<[u8; BYTES]> = value.filter(|_| rows == 1).and_then(|value| value.try_into().ok());
    Ok(bytes.as_ref().map(Sum::of_bytes))
}

fn of_all(connection: &Connection) -> Result<Sum, rusqlite::Error> {
    let mut sum = of_small_tables(connection)?;
    for (table, _) in TENANTS_TABLES {
        sum = sum.plus(of_table(connection, table)?);
    }
    // How columns are read, and their allowed values.
    let mut schema = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    Ok(sum.plus(of_rows("sqlite_schema", &mut schema, [])?))
}

fn of_small_tables(connection: &Connection) -> Result<Sum, rusqlite::Error> {
    SMALL_TABLES
        .iter()
        .try_fold(Sum::default(), |sum, table| Ok(sum.plus(of_table(connection, table)?)))
}

fn of_table(connection: &Connection, table: &str) -> Result<Sum, rusqlite::Error> {
    let mut statement = connection.prepare(&format!("SELECT * FROM {table}"))?;
    of_rows(table, &mut statement, [])
}

fn of_rows(table: &str, statement: &mut Statement<'_>, params: impl Params) -> Result<Sum, rusqlite::Error> {
    let columns = statement.column_count();
    let mut rows = statement.query(params)?;
    let mut sum = Sum::default();
    while let Some(row) = rows.next()? {
        let mut hash = Sha256::new();
        update(&mut hash, b't', table.as_bytes());
        for column in 0..columns {
            match row.get_ref(column)? {
                ValueRef::Null => update(&mut hash, b'n', &[]),
                ValueRef::Integer(number) => update(&mut hash, b'i', &number.to_le_bytes()),
                ValueRef::Real(number) => update(&mut hash, b'r', &number.to_le_bytes()),
                ValueRef::Text(text) => update(&mut hash, b's', text),
                ValueRef::Blob(bytes) => update(&mut hash, b'b', bytes),
            }
        }
        sum = sum.plus(Sum::of_bytes(&hash.finalize().into()));
    }
    Ok(sum)
}

/// A value with its kind and its length, so that no two rows are hashed alike.
fn update(hash: &mut Sha256, kind: u8, bytes: &[u8]) {
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}
