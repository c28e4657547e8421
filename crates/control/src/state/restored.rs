//! The last step of a restore, which the next start makes if there was a crash before it.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use tidemark_types::{UnixMs, utc};

use crate::error::ControlError;

/// A restore that is complete but for moving its files, in the data folder.
pub(crate) const READY_NAME: &str = "restore.new";
/// The files that SQLite keeps beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The number, in a data folder, that tells its tenants from those of other folders on flash. It is in no backup. A
/// restored state may give a tenant's number to another one, so that items on flash must not be found again.
pub const FLASH_IDENTITY_NAME: &str = "flash.id";

/// Moves the files of a restore to their places, if there is one. The caller holds the folder's lock.
///
/// # Errors
/// [`ControlError::File`]; the next call goes on from there.
pub(crate) fn complete(folder: &Path, now: UnixMs) -> Result<(), ControlError> {
    let ready = folder.join(READY_NAME);
    let failed = |error: &io::Error| ControlError::file("complete the restore in", &ready, error);
    let entries = match fs::read_dir(&ready) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| failed(&error))?,
    };
    let aside = folder.join(format!("replaced-{}", utc::basic(now)));
    for entry in entries {
        let name = entry.map_err(|error| failed(&error))?.file_name();
        let put = || -> io::Result<()> {
            // A log that stayed beside another database would be read as that one's.
            for companion in [""].iter().chain(&COMPANIONS) {
                let mut old = name.clone();
                old.push(companion);
                put_aside(&folder.join(&old), &aside, &aside.join(&old))?;
            }
            fs::rename(ready.join(&name), folder.join(&name))
        };
        put().map_err(|error| failed(&error))?;
    }
    let finish = || -> io::Result<()> {
        put_aside(
            &folder.join(FLASH_IDENTITY_NAME),
            &aside,
            &aside.join(FLASH_IDENTITY_NAME),
        )?;
        File::open(folder)?.sync_all()?;
        fs::remove_dir(&ready)?;
        File::open(folder)?.sync_all()
    };
    finish().map_err(|error| failed(&error))
}

fn put_aside(old: &Path, aside: &Path, to: &Path) -> io::Result<()> {
    if fs::symlink_metadata(old).is_err() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(aside)?;
    fs::rename(old, to)
}
