//! Putting a backup back.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use tidemark_types::UnixMs;

use super::manifest::{self, MANIFEST_BYTES_MAX, MANIFEST_NAME};
use super::take::describe;
use super::{Backup, BackupFile};
use crate::error::ControlError;
use crate::state::{READY_NAME, STATE_FILE_NAME, StateFile, complete, lock};

/// A restore whose files are not all there yet.
const PARTIAL_NAME: &str = "restore.partial";

/// Replaces the files of the data folder `folder` by those of the backup `archive`; a missing folder is made. An
/// existing state is replaced only if `replace` says so, and is kept in `replaced-TIME` in the folder. No server may
/// run on the folder meanwhile.
///
/// # Errors
/// [`ControlError::Backup`] if the archive is not as it was written, [`ControlError::InUse`] while a server runs on the
/// folder. [`ControlError::File`] if there is a state already, or a file cannot be read or written. Nothing is changed
/// then.
pub fn restore(archive: &Path, folder: &Path, replace: bool, now: UnixMs) -> Result<Backup, ControlError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| ControlError::file("create the data folder", folder, &error))?;
    let locked = lock(folder)?;
    complete(folder, now)?;
    let state = folder.join(STATE_FILE_NAME);
    if !replace && fs::symlink_metadata(&state).is_ok() {
        let taken = io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is one already: --replace puts it aside",
        );
        return Err(ControlError::file("restore", &state, &taken));
    }
    let partial = folder.join(PARTIAL_NAME);
    let unpacked = unpack_and_check(archive, &partial, now);
    let published = unpacked.and_then(|backup| {
        let publish = || -> io::Result<()> {
            File::open(&partial)?.sync_all()?;
            fs::rename(&partial, folder.join(READY_NAME))?;
            File::open(folder)?.sync_all()
        };
        publish().map_err(|error| ControlError::file("restore", folder, &error))?;
        Ok(backup)
    });
    if published.is_err() {
        // The next one replaces its remains.
        let _ = fs::remove_dir_all(&partial);
    }
    let backup = published?;
    complete(folder, now)?;
    drop(locked);
    Ok(backup)
}

/// Unpacks into the new folder `partial`, and opens what will be the state as a server would.
fn unpack_and_check(archive: &Path, partial: &Path, now: UnixMs) -> Result<Backup, ControlError> {
    match fs::remove_dir_all(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(ControlError::file("replace", partial, &error));
        }
        _ => {}
    }
    DirBuilder::new()
        .mode(0o700)
        .create(partial)
        .map_err(|error| ControlError::file("create", partial, &error))?;
    let backup = unpack(archive, partial)?;
    let check = partial.join("check");
    let copy = || -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&check)?;
        fs::copy(partial.join(STATE_FILE_NAME), check.join(STATE_FILE_NAME)).map(drop)
    };
    copy().map_err(|error| ControlError::file("check", archive, &error))?;
    drop(StateFile::open(&check, now)?);
    fs::remove_dir_all(&check).map_err(|error| ControlError::file("remove", &check, &error))?;
    Ok(backup)
}

fn unpack(archive: &Path, partial: &Path) -> Result<Backup, ControlError> {
    let damaged = |detail: String| ControlError::Backup {
        path: archive.into(),
        detail,
    };
    let unreadable = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::IsADirectory => {
            ControlError::file("read", archive, error)
        }
        _ => damaged(format!("it is no backup of Tidemark: {error}")),
    };
    let file = File::open(archive).map_err(|error| unreadable(&error))?;
    let mut reader = tar::Archive::new(io::BufReader::new(file));
    let mut members = reader.entries().map_err(|error| unreadable(&error))?;
    let first = members
        .next()
        .ok_or_else(|| damaged("it is no backup of Tidemark: it is empty".into()))?;
    let mut first = first.map_err(|error| unreadable(&error))?;
    if first.path().ok().as_deref() != Some(Path::new(MANIFEST_NAME)) {
        return Err(damaged(
            "it is no backup of Tidemark: its first member is no MANIFEST".into(),
        ));
    }
    let mut text = String::new();
    Read::by_ref(&mut first)
        .take(MANIFEST_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| unreadable(&error))?;
    let backup = manifest::read(&text).map_err(|detail| damaged(format!("its manifest: {detail}")))?;
    if !backup.files.iter().any(|file| file.name == STATE_FILE_NAME) {
        return Err(damaged(format!("there is no {STATE_FILE_NAME} in it")));
    }
    let mut expected = backup.files.iter();
    for member in members {
        let mut member = member.map_err(|error| unreadable(&error))?;
        let file = expected
            .next()
            .ok_or_else(|| damaged("it has more members than its manifest".into()))?;
        if member.path().ok().as_deref() != Some(Path::new(&file.name)) {
            return Err(damaged(format!("`{}` is not where its manifest says", file.name)));
        }
        let to = partial.join(&file.name);
        write_member(&mut member, &to).map_err(|error| ControlError::file("write", &to, &error))?;
        check_member(file, &to).map_err(damaged)?;
    }
    match expected.next() {
        Some(missing) => Err(damaged(format!("`{}` is missing", missing.name))),
        None => Ok(backup),
    }
}

fn write_member(member: &mut impl Read, to: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(member, &mut file)?;
    file.sync_all()
}

fn check_member(expected: &BackupFile, path: &Path) -> Result<(), String> {
    let found = describe(&expected.name, path).map_err(|error| error.to_string())?;
    if found.bytes != expected.bytes {
        let BackupFile { name, bytes, .. } = expected;
        return Err(format!(
            "`{name}` has {} bytes where its manifest says {bytes}",
            found.bytes
        ));
    }
    if found.hash != expected.hash {
        return Err(format!("`{}` is not as it was written", expected.name));
    }
    Ok(())
}
