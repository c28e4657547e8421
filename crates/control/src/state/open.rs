//! Opening the state file: which folder, whose file, is it whole.
//!
//! A new file is made under another name and renamed when it is complete. `state.sqlite` is therefore either absent or
//! was once whole. An empty or partial one is always damage, and damage is never answered with a fresh start.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD};
use tidemark_types::{TenantName, UnixMs};

use super::migrate::{OLDEST_SCHEMA_VERSION, SCHEMA_VERSION};
use super::{StateFile, checksum, migrate, restored, rows};
use crate::error::ControlError;
use crate::settings::{SETTINGS, TenantSettings};

pub(crate) const FILE_NAME: &str = "state.sqlite";
const NEW_FILE_NAME: &str = "state.sqlite.new";
const NEW_FILE_JOURNAL: &str = "state.sqlite.new-journal";
/// Files that SQLite keeps beside a database; without it they are the rest of something lost.
const COMPANIONS: [&str; 2] = ["state.sqlite-wal", "state.sqlite-journal"];
const LOCK_NAME: &str = "lock";
/// Readers, as a backup, hold up nobody. A program that writes to it for longer must be stopped.
const BUSY_PATIENCE: Duration = Duration::from_millis(100);
/// "Tide": tells this program's databases from others (SQLite file format, 1.3.17).
const APPLICATION_ID: i64 = 0x5469_6465;
/// How every SQLite file begins (SQLite file format, 1.3.1).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The tables beside that of the tenants. Secrets are kept as SHA-256; `slot` is the order in which they were made.
const OTHER_TABLES: &str = "
    CREATE TABLE secrets (
        tenant_id INTEGER NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
        slot INTEGER NOT NULL,
        hash BLOB NOT NULL,
        permissions INTEGER NOT NULL,
        created_at_ms INTEGER NOT NULL,
        name TEXT NOT NULL DEFAULT 'default',
        PRIMARY KEY (tenant_id, slot)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE server (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The table of the tenants, with a column for each setting.
fn tenants_table() -> String {
    let settings = SETTINGS.iter().map(migrate::column).collect::<Vec<_>>().join(", ");
    format!(
        "CREATE TABLE tenants (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL,
            created_at_ms INTEGER NOT NULL,
            remembered_grant_bytes INTEGER,
            {settings}
        ) STRICT;"
    )
}

pub(super) fn open(folder: &Path, now: UnixMs) -> Result<StateFile, ControlError> {
    // Secrets' hashes and the admin token live here: nobody else looks in.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| ControlError::file("create the data folder", folder, &error))?;
    warn_of_onlookers(folder)?;
    let lock = lock(folder)?;
    restored::complete(folder, now)?;
    let path = folder.join(FILE_NAME);
    match fs::symlink_metadata(&path) {
        Ok(metadata) => {
            check_magic(&path)?;
            make_private(&path, &metadata)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(folder, &path, now)?,
        Err(error) => return Err(ControlError::file("open", &path, &error)),
    }
    let mut connection = connect(&path).map_err(|error| explain("open", &path, &error))?;
    let found = check_identity(&connection, &path)?;
    check_integrity(&connection, &path, found)?;
    if found < SCHEMA_VERSION {
        migrate::to_newest(&mut connection, found).map_err(|error| explain("write", &path, &error))?;
        tracing::info!(
            from = found,
            to = SCHEMA_VERSION,
            "the state file has this version's schema now"
        );
    }
    Ok(StateFile {
        connection,
        path,
        _lock: lock,
    })
}

/// A folder that was there before keeps its mode: the files in it are their owner's only, their names are not.
fn warn_of_onlookers(folder: &Path) -> Result<(), ControlError> {
    let metadata = fs::metadata(folder).map_err(|error| ControlError::file("look at", folder, &error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let mode = format!("{mode:o}");
        tracing::warn!(folder = %folder.display(), mode, "others may look into the data folder: `chmod 700` closes it");
    }
    Ok(())
}

/// Secrets' hashes are nobody else's: a file that was copied with other permissions gets its own back.
fn make_private(path: &Path, metadata: &fs::Metadata) -> Result<(), ControlError> {
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o700))
        .map_err(|error| ControlError::file("close to others", path, &error))?;
    let (was, is) = (format!("{mode:o}"), format!("{:o}", mode & 0o700));
    tracing::warn!(path = %path.display(), was, is, "others could read or write the state file: they can not any more");
    Ok(())
}

/// One user of a folder at a time. The lock is the system's, so it ends with the process even when that is killed.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file alone would leave it locked for as long as a child that was just forked has a copy of it. If this
        // fails, that is how long it takes.
        let _ = self.0.unlock();
    }
}

/// Takes the folder, or names the process that has it.
pub(crate) fn lock(folder: &Path) -> Result<Lock, ControlError> {
    let path = folder.join(LOCK_NAME);
    let failed = |error: &io::Error| ControlError::file("lock", &path, error);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(|error| failed(&error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(failed(&error)),
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(ControlError::InUse { path, holder });
        }
    }
    // Only the error message of the next one depends on it.
    let note = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    note.map_err(|error| failed(&error))?;
    Ok(Lock(file))
}

fn check_magic(path: &Path) -> Result<(), ControlError> {
    let failed = |error: &io::Error| ControlError::file("open", path, error);
    let mut beginning = Vec::new();
    let file = File::open(path).map_err(|error| failed(&error))?;
    file.take(16)
        .read_to_end(&mut beginning)
        .map_err(|error| failed(&error))?;
    if beginning == MAGIC {
        return Ok(());
    }
    let detail = if beginning.is_empty() {
        "it is empty"
    } else {
        "it does not begin as an SQLite file"
    };
    Err(ControlError::Damaged {
        path: path.into(),
        detail: detail.into(),
    })
}

fn connect(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.busy_timeout(BUSY_PATIENCE)?;
    Ok(connection)
}

/// A file that a server may have open, to be read only. The table of the server's settings is the same in every schema.
pub(super) fn connect_to_read(path: &Path) -> Result<Connection, ControlError> {
    check_magic(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| explain("open", path, &error))?;
    connection
        .busy_timeout(BUSY_PATIENCE)
        .map_err(|error| explain("open", path, &error))?;
    check_identity(&connection, path)?;
    Ok(connection)
}

/// The owner of the file, and the schema that it has: this version's or one that can be brought to it.
fn check_identity(connection: &Connection, path: &Path) -> Result<i64, ControlError> {
    let number = |pragma| -> Result<i64, ControlError> {
        connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(|error| explain("open", path, &error))
    };
    if number("application_id")? != APPLICATION_ID {
        return Err(ControlError::Foreign { path: path.into() });
    }
    match number("user_version")? {
        found @ OLDEST_SCHEMA_VERSION..=SCHEMA_VERSION => Ok(found),
        found if found > SCHEMA_VERSION => Err(ControlError::Newer {
            path: path.into(),
            found,
            known: SCHEMA_VERSION,
        }),
        found => Err(ControlError::Damaged {
            path: path.into(),
            detail: format!("no version wrote schema {found}"),
        }),
    }
}

/// Whether SQLite finds the file whole, and its rows are those that were written.
fn check_integrity(connection: &Connection, path: &Path, schema: i64) -> Result<(), ControlError> {
    let check = || -> Result<String, rusqlite::Error> {
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0))
    };
    let damaged = |detail: &str| ControlError::Damaged {
        path: path.into(),
        detail: detail.into(),
    };
    let finding = check().map_err(|error| explain("open", path, &error))?;
    if finding != "ok" {
        // The first line of several is a heading, `*** in database main ***`.
        let first = finding.lines().find(|line| !line.starts_with("***"));
        return Err(damaged(first.unwrap_or(&finding)));
    }
    let has_orphans = || connection.prepare("PRAGMA foreign_key_check")?.exists([]);
    if has_orphans().map_err(|error| explain("open", path, &error))? {
        return Err(damaged("there is a secret of no tenant"));
    }
    let fault = checksum::fault(connection, schema).map_err(|error| explain("open", path, &error))?;
    fault.map_or(Ok(()), |fault| Err(damaged(&fault)))
}

fn create(folder: &Path, path: &Path, now: UnixMs) -> Result<(), ControlError> {
    for companion in COMPANIONS {
        if fs::symlink_metadata(folder.join(companion)).is_ok() {
            return Err(ControlError::Damaged {
                path: path.into(),
                detail: format!("it is missing, but {companion} is there"),
            });
        }
    }
    let new_path = folder.join(NEW_FILE_NAME);
    for left in [new_path.clone(), folder.join(NEW_FILE_JOURNAL)] {
        match fs::remove_file(&left) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ControlError::file("replace", &left, &error));
            }
            // Either there was none, or a start was cut off before it had finished: nobody ever saw that file.
            _ => {}
        }
    }
    let write = || {
        let mut connection = Connection::open(&new_path)?;
        fill(&mut connection, now)?;
        connection.close().map_err(|(_, error)| error)
    };
    write().map_err(|error| explain("create", &new_path, &error))?;
    let publish = || -> io::Result<()> {
        fs::set_permissions(&new_path, Permissions::from_mode(0o600))?;
        File::open(&new_path)?.sync_all()?;
        fs::rename(&new_path, path)?;
        File::open(folder)?.sync_all()
    };
    publish().map_err(|error| ControlError::file("create", path, &error))
}

/// Completes an empty one, with the one tenant `default`: open on loopback, without a secret.
fn fill(connection: &mut Connection, now: UnixMs) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.execute_batch(&tenants_table())?;
    transaction.execute_batch(OTHER_TABLES)?;
    transaction.execute_batch(checksum::TABLE)?;
    if let Ok(name) = TenantName::DEFAULT.parse() {
        rows::insert_tenant(&transaction, &name, TenantSettings::default(), now)?;
    }
    checksum::begin(&transaction)?;
    transaction.commit()
}

/// SQLite's errors by whose fault they are.
pub(crate) fn explain(doing: &'static str, path: &Path, error: &rusqlite::Error) -> ControlError {
    let path = path.to_path_buf();
    match error.sqlite_error_code() {
        // Without a code, or with the general one: a table, a column or a row is not as the schema has it.
        None | Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            ControlError::Damaged {
                path,
                detail: error.to_string(),
            }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => ControlError::InUse { path, holder: None },
        _ => ControlError::File {
            doing,
            detail: reason(error, may_be_written(&path)),
            path,
        },
    }
}

/// Whether this process may read and write a file. It is not opened for that. The system drops all locks that a process
/// has on a file when it closes any descriptor of it, SQLite's too (POSIX, `fcntl`).
fn may_be_written(path: &Path) -> io::Result<()> {
    rustix::fs::accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS)?;
    Ok(())
}

/// SQLite has only "disk I/O error" or "unable to open" for a file that may not be written: `access` tells.
fn reason(error: &rusqlite::Error, access: io::Result<()>) -> String {
    match access {
        Err(refused) if refused.kind() == io::ErrorKind::PermissionDenied => {
            format!("{refused}: the server's user must be allowed to read and write it")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_that_may_not_be_written_is_told_from_a_failing_disk() {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None);
        for (opened, part) in [
            (
                Err(io::ErrorKind::PermissionDenied.into()),
                "permission denied: the server's user",
            ),
            (Err(io::ErrorKind::NotFound.into()), "disk I/O error"),
            (Ok(()), "disk I/O error"),
        ] {
            let said = reason(&error, opened);
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    /// Locks of this process on a file, of the kind that SQLite takes.
    fn locks(path: &Path) -> usize {
        let inode = format!(":{} ", fs::metadata(path).unwrap().ino());
        let locks = fs::read_to_string("/proc/locks").unwrap();
        let posix = locks.lines().filter(|line| line.contains("POSIX"));
        posix.filter(|line| line.contains(&inode)).count()
    }

    #[test]
    fn explaining_an_error_leaves_the_files_locks() {
        let folder = tempfile::tempdir().unwrap();
        let file = StateFile::open(folder.path(), UnixMs(1)).unwrap();
        let transaction = file.connection.unchecked_transaction().unwrap();
        transaction.execute("UPDATE server SET value = 1", []).unwrap();
        let before = locks(&file.path);
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None);
        assert!(explain("write", &file.path, &error).to_string().contains("disk I/O"));
        assert!(before > 0);
        assert_eq!(locks(&file.path), before);
    }
}
