//! A file or a block device, read and written without the system's page cache where it allows that.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

use super::ring::Ring;
use super::{Device, Queue};
use crate::format::{BLOCK_BYTES, NoSuperblock, SEGMENT_BYTES, Superblock};

/// A file or block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    size_bytes: u64,
    is_direct: bool,
}

/// Why a file cannot be a device.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{path}: another process uses it as flash")]
    InUse {
        /// The file.
        path: String,
    },
    /// It is neither a file nor a block device.
    #[error("{path}: flash is a file or a block device")]
    Kind {
        /// The file.
        path: String,
    },
    /// It has something else in it. Nothing of it was changed.
    #[error("{path}: the file is not empty, and what is in it is not Tidemark's: it is left as it is")]
    Foreign {
        /// The file.
        path: String,
    },
    /// The device is smaller than asked for.
    #[error("{path}: {has_bytes} bytes, and {wanted_bytes} were asked for")]
    TooSmall {
        /// The file.
        path: String,
        /// The size that it has.
        has_bytes: u64,
        /// The requested size.
        wanted_bytes: u64,
    },
}

impl FileDevice {
    /// Opens or creates a file of this size, or a block device, for this process alone. A new file's room is allocated.
    ///
    /// # Errors
    /// It is no file, in use, too small, or the system refuses.
    pub fn open(path: &Path, size_bytes: u64) -> Result<Self, FileError> {
        let name = || path.display().to_string();
        let failed = |source: io::Error| FileError::Io { path: name(), source };
        let size_bytes = size_bytes - size_bytes % SEGMENT_BYTES as u64;
        let options = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.custom_flags(flags.bits() as i32).open(path)
        };
        let (file, is_direct) = match options(OFlags::DIRECT | OFlags::CLOEXEC) {
            Ok(file) => (file, true),
            // Some file systems have no direct I/O.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                (options(OFlags::CLOEXEC).map_err(failed)?, false)
            }
            Err(error) => return Err(failed(error)),
        };
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                FileError::InUse { path: name() }
            } else {
                failed(error.into())
            }
        })?;
        let facts = file.metadata().map_err(failed)?;
        if facts.file_type().is_block_device() {
            let has_bytes =
                rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| failed(error.into()))?;
            if has_bytes < size_bytes {
                return Err(FileError::TooSmall {
                    path: name(),
                    has_bytes,
                    wanted_bytes: size_bytes,
                });
            }
        } else if !facts.is_file() {
            return Err(FileError::Kind { path: name() });
        } else if facts.len() < size_bytes {
            if !may_be_ours(path).map_err(failed)? {
                return Err(FileError::Foreign { path: name() });
            }
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size_bytes) {
                Ok(()) => {}
                Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes).map_err(failed)?,
                Err(error) => return Err(failed(error.into())),
            }
        }
        Ok(Self {
            file,
            size_bytes,
            is_direct,
        })
    }

    /// Whether reads and writes pass the page cache by.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }
}

/// Whether a file begins as one of ours does, or with nothing: else it is not made longer.
fn may_be_ours(path: &Path) -> io::Result<bool> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BLOCK_BYTES as u64).read_to_end(&mut bytes)?;
    bytes.resize(BLOCK_BYTES, 0);
    Ok(!matches!(Superblock::decode(&bytes), Err(NoSuperblock::Foreign)))
}

impl Device for FileDevice {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn ring(&self, depth: u32, event: Option<BorrowedFd<'_>>) -> Option<Box<dyn Queue>> {
        let ring = Ring::new(self.file.try_clone().ok()?, depth, event).ok()?;
        Some(Box::new(ring))
    }
}
