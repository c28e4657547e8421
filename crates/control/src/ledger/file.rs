//! The ledger's file: adding rows, dropping old ones.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, params, params_from_iter, types::Value};
use tidemark_meter::{Chain, Entry, Hash, Kind, Row};
use tidemark_types::{UnixMs, utc};

use super::read::{self, Carried};
use super::schema::{FIRST_COLUMNS, LAST_COLUMNS, LEDGER_FILE_NAME, explain, resource_columns};
use crate::error::ControlError;

/// "Tidl": tells ledgers from other databases (SQLite file format, 1.3.17).
const APPLICATION_ID: i64 = 0x5469_646c;
const SCHEMA_VERSION: i64 = 1;
/// A reader holds the file for milliseconds.
const BUSY_PATIENCE: Duration = Duration::from_secs(2);
/// Old rows are dropped at most this often: each time adds a row.
const TRIM_EVERY: Duration = Duration::from_secs(86_400);

/// An open ledger.
#[derive(Debug)]
pub(super) struct LedgerFile {
    connection: Connection,
    path: PathBuf,
    chain: Chain,
    trimmed_at: Option<UnixMs>,
}

impl LedgerFile {
    pub(super) fn open(folder: &Path) -> Result<Self, ControlError> {
        let path = folder.join(LEDGER_FILE_NAME);
        make_private(&path).map_err(|error| ControlError::file("open", &path, &error))?;
        let open = || -> Result<Connection, rusqlite::Error> {
            let mut connection = Connection::open_with_flags(
                &path,
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            connection.busy_timeout(BUSY_PATIENCE)?;
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "trusted_schema", false)?;
            let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
            if version == 0 {
                fill(&mut connection)?;
            }
            Ok(connection)
        };
        let connection = open().map_err(|error| explain("open", &path, &error))?;
        check_identity(&connection, &path)?;
        let chain = read::last_of_chain(&connection).map_err(|error| explain("read", &path, &error))?;
        Ok(Self {
            connection,
            path,
            chain,
            trimmed_at: None,
        })
    }

    /// The entry that says that the last run did not end in order, if so.
    pub(super) fn gap_until(&self, now: UnixMs) -> Result<Option<Entry>, ControlError> {
        let last = read::last_row(&self.connection).map_err(|error| explain("read", &self.path, &error))?;
        let Some(last) = last.filter(|row| !matches!(row.entry.kind, Kind::End)) else {
            return Ok(None);
        };
        let (from, to) = (last.entry.to.min(now), last.entry.to.max(now));
        let note = "the server did not end in order: what was used since the last row is not known";
        Ok(Some(Entry::event(Kind::Gap, from, to, note)))
    }

    /// The number of the last row.
    pub(super) fn last_sequence(&self) -> u64 {
        self.chain.sequence
    }

    /// The file may have so many pages at most, as on a full disk.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, most: Option<u32>) {
        let most = most.unwrap_or(u32::MAX - 1);
        let set = self
            .connection
            .pragma_update_and_check(None, "max_page_count", most, |row| row.get::<_, i64>(0));
        assert!(set.is_ok(), "{set:?}");
    }

    /// Adds rows, all or none.
    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<(), ControlError> {
        let mut chain = self.chain;
        let mut attempt = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            for entry in entries {
                insert(&transaction, &chain.push(entry.clone()))?;
            }
            transaction.commit()
        };
        attempt(&mut self.connection).map_err(|error| explain("write", &self.path, &error))?;
        self.chain = chain;
        Ok(())
    }

    /// Drops rows that ended longer ago than `retention`, and the oldest beyond `rows_max`; once a day at most.
    pub(super) fn trim(&mut self, now: UnixMs, retention: Duration, rows_max: u64) -> Result<(), ControlError> {
        if self.trimmed_at.is_some_and(|at| now.since(at) < TRIM_EVERY) {
            return Ok(());
        }
        let mut chain = self.chain;
        let before = UnixMs(now.0.saturating_sub(retention.as_millis() as u64));
        let by_count = self.chain.sequence.saturating_sub(rows_max);
        let mut attempt = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            if let Some(last) = last_to_drop(&transaction, before, by_count)? {
                let entry = drop_until(&transaction, &last, now)?;
                insert(&transaction, &chain.push(entry))?;
            }
            transaction.commit()
        };
        attempt(&mut self.connection).map_err(|error| explain("write", &self.path, &error))?;
        self.chain = chain;
        self.trimmed_at = Some(now);
        Ok(())
    }
}

/// Makes an empty file where there is none: not with the system's default mode, since who used how much is its owner's business.
///
/// An existing file is not opened, here or anywhere but by SQLite: closing it would end all locks that this process has
/// on it (fcntl(2)). Another process would then take the log away under the connection that writes.
fn make_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn fill(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    let numbers = resource_columns(" INTEGER NOT NULL");
    let sums = resource_columns(" TEXT NOT NULL");
    transaction.execute_batch(&format!(
        "CREATE TABLE rows (
            sequence INTEGER PRIMARY KEY,
            kind TEXT NOT NULL,
            tenant_id INTEGER,
            tenant TEXT,
            from_ms INTEGER NOT NULL,
            to_ms INTEGER NOT NULL,
            node TEXT NOT NULL,
            price_version TEXT NOT NULL,
            is_modelled INTEGER NOT NULL,
            {numbers},
            commands TEXT NOT NULL,
            note TEXT NOT NULL,
            hash BLOB NOT NULL
        ) STRICT;
        CREATE INDEX rows_by_time ON rows (from_ms);
        CREATE TABLE carried (
            kind TEXT NOT NULL,
            tenant_id INTEGER,
            tenant TEXT,
            month TEXT NOT NULL,
            price_version TEXT NOT NULL,
            is_modelled INTEGER NOT NULL,
            commands TEXT NOT NULL,
            {sums}
        ) STRICT;
        CREATE TABLE prices (version TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    ))?;
    transaction.commit()
}

fn check_identity(connection: &Connection, path: &Path) -> Result<(), ControlError> {
    let number = |pragma| -> Result<i64, ControlError> {
        connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(|error| explain("open", path, &error))
    };
    if number("application_id")? != APPLICATION_ID {
        return Err(ControlError::Foreign { path: path.into() });
    }
    match number("user_version")? {
        SCHEMA_VERSION => Ok(()),
        found => Err(ControlError::Newer {
            path: path.into(),
            found,
            known: SCHEMA_VERSION,
        }),
    }
}

fn insert(transaction: &Transaction<'_>, row: &Row) -> Result<(), rusqlite::Error> {
    let entry = &row.entry;
    let whole = |number: u64| Value::Integer(number.cast_signed());
    let tenant = entry.tenant.as_ref();
    let commands: Vec<String> = entry
        .commands
        .iter()
        .map(|(command, count)| format!("{command}={count}"))
        .collect();
    let mut values = vec![
        whole(row.sequence),
        Value::Text(entry.kind.name().into()),
        tenant.map_or(Value::Null, |tenant| whole(u64::from(tenant.id.0))),
        tenant.map_or(Value::Null, |tenant| Value::Text(tenant.name.clone())),
        whole(entry.from.0),
        whole(entry.to.0),
        Value::Text(entry.node.clone()),
        Value::Text(entry.price_version.clone()),
        whole(u64::from(entry.is_modelled)),
    ];
    values.extend(entry.usage.amounts().map(|(_, amount)| whole(amount)));
    values.extend([
        Value::Text(commands.join(" ")),
        Value::Text(entry.note.clone()),
        Value::Blob(row.hash.0.to_vec()),
    ]);
    let places = vec!["?"; values.len()].join(", ");
    let text = format!(
        "INSERT INTO rows ({FIRST_COLUMNS}, {}, {LAST_COLUMNS}) VALUES ({places})",
        resource_columns("")
    );
    transaction.prepare_cached(&text)?.execute(params_from_iter(values))?;
    Ok(())
}

/// The last of the rows that are to go, which are all before it.
fn last_to_drop(
    transaction: &Transaction<'_>,
    before: UnixMs,
    by_count: u64,
) -> Result<Option<(u64, Hash)>, rusqlite::Error> {
    // The first row that is young enough ends the dropped ones, so that the rest has no hole.
    let first_kept: i64 = transaction.query_row(
        "SELECT coalesce((SELECT min(sequence) FROM rows WHERE to_ms >= ?1), (SELECT max(sequence) FROM rows), 0)",
        params![before.0.cast_signed()],
        |row| row.get(0),
    )?;
    let last = (first_kept - 1).max(by_count.cast_signed());
    let mut found =
        transaction.prepare("SELECT sequence, hash FROM rows WHERE sequence <= ?1 ORDER BY sequence DESC")?;
    let mut rows = found.query(params![last])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let hash: Vec<u8> = row.get(1)?;
    let sequence: i64 = row.get(0)?;
    Ok(Hash::of_bytes(&hash).map(|hash| (sequence.cast_unsigned(), hash)))
}

/// Adds up the rows to this one and drops them. Returns the entry that says so.
fn drop_until(
    transaction: &Transaction<'_>,
    (sequence, hash): &(u64, Hash),
    now: UnixMs,
) -> Result<Entry, rusqlite::Error> {
    let mut carried = Carried::read(transaction)?;
    read::each_row(transaction, "sequence <= ?1", [sequence.cast_signed()], |row| {
        carried.add(&row.entry);
        true
    })?;
    carried.write(transaction)?;
    transaction.execute("DELETE FROM rows WHERE sequence <= ?1", params![sequence.cast_signed()])?;
    let note = read::Checkpoint {
        dropped: Chain {
            sequence: *sequence,
            hash: *hash,
        },
        carried: carried.hash(),
    };
    tracing::info!(
        until = sequence,
        month = utc::month_of(now),
        "old rows of the ledger are dropped"
    );
    Ok(Entry::event(Kind::Checkpoint, now, now, note.to_string()))
}

/// Keeps a prices file as it was.
pub(super) fn note_prices(folder: &Path, version: &str, text: &str) -> Result<(), ControlError> {
    let LedgerFile { connection, path, .. } = LedgerFile::open(folder)?;
    connection
        .execute(
            "INSERT INTO prices (version, text) VALUES (?1, ?2) ON CONFLICT (version) DO UPDATE SET text = ?2",
            params![version, text],
        )
        .map_err(|error| explain("write", &path, &error))?;
    Ok(())
}
