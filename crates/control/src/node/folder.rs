//! The folder in which the instances of a node meet: `memory` with the node's bytes as decimal text, and a lease file for
//! each instance.
//!
//! A lease file is made under a name that is never used again. Its instance locks it from before the first statement to
//! the end of the process. A lock that can be taken is therefore that of a dead instance. Its memory is back with the
//! system, and the instance that finds the file removes it. Statements are written in place, through a file that is
//! open already. Neither a folder that can no longer be written nor a full disk keeps an instance from its statement.
//!
//! Invariant: a living instance that was seen once is never overlooked again, whatever happens to its file's name,
//! because the file stays open. A file that cannot be read counts as unknown, never as absent. The wall clock decides
//! nothing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::lease::{LEASE_FILE_BYTES_MAX, Lease};

/// The file with the node's bytes.
const MEMORY_NAME: &str = "memory";
/// A longer one holds no number of bytes.
const MEMORY_FILE_BYTES_MAX: usize = 64;
const PREFIX: &str = "instance-";
const SUFFIX: &str = ".lease";
/// More instances would share less than each needs; and each reads all the others' files in every period.
pub(crate) const INSTANCES_MAX: usize = 64;
/// An instance that looks through the folder holds a new file's lock for microseconds; a fourth time in a row it is no
/// chance.
const MAKE_ATTEMPTS: usize = 4;

/// Why the folder is of no use now. The texts do not change while the cause does not.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system refused something. A retry helps once the cause is gone.
    #[error("can not {doing} {}: {detail}", path.display())]
    System {
        /// The operation: `read`, `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        detail: String,
    },
    /// The node's memory is no number, or too small a one.
    #[error(
        "{} holds no number of bytes that can be shared: write at least {least_bytes} into it, in decimal digits",
        path.display()
    )]
    Memory {
        /// The file.
        path: PathBuf,
        /// The least that is allowed.
        least_bytes: u64,
    },
    /// More instances than can share a folder.
    #[error("{} has leases of more than {INSTANCES_MAX} instances: use another folder", path.display())]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
}

impl FolderError {
    fn system(doing: &'static str, path: &Path, source: &io::Error) -> Self {
        Self::System {
            doing,
            path: path.into(),
            detail: source.to_string(),
        }
    }
}

/// Another instance's lease.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Peer {
    /// The file's name.
    pub(crate) name: String,
    /// `None`: it lives, but its statement cannot be read.
    pub(crate) lease: Option<Lease>,
}

/// The folder as one instance uses it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    own: LeaseFile,
    /// Files of instances that lived when they were last looked at.
    peers: BTreeMap<String, File>,
}

impl Folder {
    /// Makes a lease file for this instance, with the lease that it begins with.
    ///
    /// # Errors
    /// The folder is not there or may not be written.
    pub(crate) fn join(path: &Path, lease: &Lease) -> Result<Self, FolderError> {
        Ok(Self {
            path: path.into(),
            own: LeaseFile::make(path, lease)?,
            peers: BTreeMap::new(),
        })
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of this instance's file: instances are in the order of their names.
    pub(crate) fn name(&self) -> &str {
        &self.own.name
    }

    /// The node's bytes as they are written now, at least `least_bytes`.
    ///
    /// # Errors
    /// The file cannot be read, or holds no such number.
    pub(crate) fn node_bytes(&self, least_bytes: u64) -> Result<u64, FolderError> {
        node_bytes(&self.path, least_bytes)
    }

    /// States this instance's lease.
    ///
    /// # Errors
    /// It cannot be written: then the last statement is there, or something that is no lease.
    pub(crate) fn state(&mut self, lease: &Lease) -> Result<(), FolderError> {
        if self.own.is_lost(&self.path) {
            // Somebody removed the file. Those that saw it count the old one until its lock goes, so there is never none.
            let before = std::mem::replace(&mut self.own, LeaseFile::make(&self.path, lease)?);
            drop(before);
            return Ok(());
        }
        self.own.write(&self.path, lease)
    }

    /// The leases of all other instances that live, in the order of their names. Files of dead ones are removed.
    ///
    /// # Errors
    /// The folder cannot be read, or has too many leases.
    pub(crate) fn survey(&mut self) -> Result<Vec<Peer>, FolderError> {
        let mut peers = Vec::new();
        self.meet(&mut peers)?;
        let path = &self.path;
        self.peers.retain(|name, file| match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                peers.push(Peer {
                    name: name.clone(),
                    lease: read(file),
                });
                true
            }
            Ok(()) => {
                // Only tidiness: a file that cannot be removed is found dead again.
                let _ = fs::remove_file(path.join(name));
                let _ = file.unlock();
                false
            }
            Err(TryLockError::Error(_)) => {
                peers.push(Peer {
                    name: name.clone(),
                    lease: None,
                });
                true
            }
        });
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(peers)
    }

    /// Opens the files of instances that were not seen before; one that cannot be opened is an instance of unknown lease.
    fn meet(&mut self, unknown: &mut Vec<Peer>) -> Result<(), FolderError> {
        let failed = |error: io::Error| FolderError::system("read", &self.path, &error);
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Some(name) = entry
                .file_name()
                .to_str()
                .filter(|name| is_lease(name))
                .map(str::to_owned)
            else {
                continue;
            };
            if name == self.own.name || self.peers.contains_key(&name) {
                continue;
            }
            if self.peers.len() + unknown.len() >= INSTANCES_MAX - 1 {
                return Err(FolderError::TooMany {
                    path: self.path.clone(),
                });
            }
            match open(&entry.path()) {
                Ok(Some(file)) => drop(self.peers.insert(name, file)),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => unknown.push(Peer { name, lease: None }),
            }
        }
        Ok(())
    }
}

/// The node's bytes as they are written now in this folder, at least `least_bytes`.
///
/// # Errors
/// The file cannot be read, or holds no such number.
pub(crate) fn node_bytes(folder: &Path, least_bytes: u64) -> Result<u64, FolderError> {
    let path = folder.join(MEMORY_NAME);
    let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(&path);
    let content = file.and_then(|file| read_most(&file, MEMORY_FILE_BYTES_MAX));
    let content = content.map_err(|error| FolderError::system("read", &path, &error))?;
    let text = std::str::from_utf8(&content).unwrap_or_default().trim();
    // `parse` takes a sign, too.
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let bytes = text.parse().ok().filter(|bytes| is_decimal && *bytes >= least_bytes);
    bytes.ok_or(FolderError::Memory { path, least_bytes })
}

/// This instance's file.
#[derive(Debug)]
struct LeaseFile {
    name: String,
    file: File,
}

impl LeaseFile {
    fn make(folder: &Path, lease: &Lease) -> Result<Self, FolderError> {
        let mut tries = 0;
        loop {
            let name = unique_name()?;
            let path = folder.join(&name);
            let failed = |error: &io::Error| FolderError::system("write", &path, error);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(&path);
            let own = Self {
                file: file.map_err(|error| failed(&error))?,
                name,
            };
            // An instance that looks through the folder between the two steps takes it for a dead one's.
            match own.file.try_lock() {
                Ok(()) if !own.is_lost(folder) => {
                    own.write(folder, lease)?;
                    return Ok(own);
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(&error)),
            }
            tries += 1;
            if tries == MAKE_ATTEMPTS {
                let taken = io::Error::other("somebody else holds or removes each new file at once");
                return Err(failed(&taken));
            }
        }
    }

    /// Whether the name leads to this file no more.
    fn is_lost(&self, folder: &Path) -> bool {
        let (Ok(own), Ok(named)) = (self.file.metadata(), fs::symlink_metadata(folder.join(&self.name))) else {
            // A folder that is not there for now still has the file when it is back.
            return self.file.metadata().is_ok_and(|own| own.nlink() == 0);
        };
        (own.dev(), own.ino()) != (named.dev(), named.ino())
    }

    fn write(&self, folder: &Path, lease: &Lease) -> Result<(), FolderError> {
        let written = self.file.write_all_at(lease.text().as_bytes(), 0);
        written.map_err(|error| FolderError::system("write", &folder.join(&self.name), &error))
    }
}

impl Drop for LeaseFile {
    fn drop(&mut self) {
        // Closing alone would leave it locked for as long as a child that was just forked has a copy of it.
        let _ = self.file.unlock();
    }
}

fn is_lease(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Never the same twice, so that removing a dead instance's file cannot meet another's.
fn unique_name() -> Result<String, FolderError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| FolderError::System {
        doing: "name",
        path: "a lease file".into(),
        detail: error.to_string(),
    })?;
    let random: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{PREFIX}{}-{random}{SUFFIX}", std::process::id()))
}

/// Opening a pipe that somebody put there would otherwise wait for its other end.
const NON_BLOCKING: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// Opens a file that may be a lease; `None` if it is no file.
fn open(path: &Path) -> io::Result<Option<File>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    OpenOptions::new()
        .read(true)
        .custom_flags(NON_BLOCKING)
        .open(path)
        .map(Some)
}

/// The statement of a file. It may be read while it is written: then it is no lease, and a second look finds one.
fn read(file: &File) -> Option<Lease> {
    let look = || Lease::read(&read_most(file, LEASE_FILE_BYTES_MAX).ok()?);
    look().or_else(look)
}

fn read_most(file: &File, most: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; most];
    let mut length = 0;
    while length < most {
        match file.read_at(&mut content[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(length);
    Ok(content)
}

#[cfg(test)]
mod tests;
