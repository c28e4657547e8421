//! Taking a backup.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use sha2::{Digest as _, Sha256};
use tidemark_types::UnixMs;

use super::manifest::{self, MANIFEST_NAME};
use super::{Backup, BackupFile, DATABASES};
use crate::error::ControlError;
use crate::state::{STATE_FILE_NAME, explain};

/// A writer holds a database for milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// Writes a backup of the data folder `folder` to `destination`, which nobody but the owner may read. It has the
/// databases and those of the files `others` that are there. The server may run meanwhile.
///
/// # Errors
/// [`ControlError::File`] if there is no data folder, if `destination` exists already, or if a file cannot be read or
/// written. There is no `destination` then.
pub fn take(folder: &Path, destination: &Path, others: &[&str], now: UnixMs) -> Result<Backup, ControlError> {
    if !folder.join(STATE_FILE_NAME).exists() {
        let missing = io::Error::new(
            io::ErrorKind::NotFound,
            "it is no data folder: there is no state.sqlite in it",
        );
        return Err(ControlError::file("back up", folder, &missing));
    }
    if fs::symlink_metadata(destination).is_ok() {
        let taken = io::Error::new(io::ErrorKind::AlreadyExists, "it exists already: choose another name");
        return Err(ControlError::file("write", destination, &taken));
    }
    let work = Work::new(destination)?;
    let files = copy(folder, &work.0, others)?;
    let backup = Backup { taken_at: now, files };
    let archive = work.0.join("archive");
    let publish = || -> io::Result<()> {
        pack(&work.0, &archive, &backup)?;
        // Unlike a rename, this replaces nothing.
        fs::hard_link(&archive, destination)?;
        File::open(parent(destination))?.sync_all()
    };
    publish().map_err(|error| ControlError::file("write", destination, &error))?;
    Ok(backup)
}

/// A folder beside the destination, so that the finished archive can be linked to its name; it goes with this value.
struct Work(PathBuf);

impl Work {
    fn new(destination: &Path) -> Result<Self, ControlError> {
        let name = destination.file_name().unwrap_or_default().to_string_lossy();
        let path = parent(destination).join(format!("{name}.partial-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| ControlError::file("create", &path, &error))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // A rest of it is in nobody's way: its name has a process in it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn copy(folder: &Path, work: &Path, others: &[&str]) -> Result<Vec<BackupFile>, ControlError> {
    let mut files = Vec::new();
    for name in DATABASES.iter().chain(others) {
        let from = folder.join(name);
        if !from.exists() {
            continue;
        }
        let to = work.join(name);
        if DATABASES.contains(name) {
            copy_database(&from, &to)?;
        } else {
            fs::copy(&from, &to).map_err(|error| ControlError::file("read", &from, &error))?;
        }
        files.push(describe(name, &to).map_err(|error| ControlError::file("read", &to, &error))?);
    }
    Ok(files)
}

/// One moment of a database, also while it is written to (SQLite, `VACUUM INTO`).
fn copy_database(from: &Path, to: &Path) -> Result<(), ControlError> {
    let copy = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(from, flags)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute("VACUUM INTO ?1", [to.to_string_lossy()])
    };
    copy().map(drop).map_err(|error| explain("back up", from, &error))
}

/// A file's length and hash.
pub(super) fn describe(name: &str, path: &Path) -> io::Result<BackupFile> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
        bytes += read as u64;
    }
    Ok(BackupFile {
        name: name.into(),
        bytes,
        hash: hasher.finalize().into(),
    })
}

fn pack(work: &Path, archive: &Path, backup: &Backup) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(archive)?;
    let mut builder = tar::Builder::new(io::BufWriter::new(file));
    let text = manifest::write(backup);
    builder.append_data(
        &mut header(text.len() as u64, backup.taken_at),
        MANIFEST_NAME,
        text.as_bytes(),
    )?;
    for member in &backup.files {
        let content = File::open(work.join(&member.name))?;
        builder.append_data(&mut header(member.bytes, backup.taken_at), &member.name, content)?;
    }
    let file = builder
        .into_inner()?
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    file.sync_all()
}

fn header(bytes: u64, at: UnixMs) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(at.0 / 1000);
    header
}
