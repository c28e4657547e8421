//! The errors of the library.

use std::io;

use tidemark_control::ControlError;
use tidemark_flash::OpenError;
use tidemark_flash::device::FileError;
use tidemark_store::Refused;
use tidemark_types::Fault;

use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The key is too long.
    #[error("a key of {0} bytes is too long: at most {KEY_BYTES_MAX} are possible")]
    KeyTooLong(usize),
    /// The value is too long.
    #[error("a value of {0} bytes is too long: at most {VALUE_BYTES_MAX} are possible")]
    ValueTooLong(usize),
    /// There is no room for it in the tenant's memory, or the tenant was removed.
    #[error("the tenant's memory has no room for it")]
    NoRoom,
    /// The tenant's admission policy did not let the item in. Nothing was changed.
    #[error("the tenant's admission policy did not let the item in")]
    NotAdmitted,
    /// The program's code failed in a call that is made once. It is not in force.
    #[error("{0}")]
    Faulty(Fault),
    /// The tenant was removed.
    #[error("tenant `{0}` was removed")]
    Removed(String),
    /// The control plane refused a setting, a name or a size, and says what is allowed.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// The system refused the memory.
    #[error("reserving memory for the pool: {0}")]
    Memory(#[source] io::Error),
    /// The file for flash cannot be used.
    #[error("flash: {0}")]
    FlashFile(#[from] FileError),
    /// The contents of the file for flash cannot be used.
    #[error(transparent)]
    Flash(#[from] OpenError),
    /// The system refused a thread or randomness.
    #[error("starting the cache: {0}")]
    System(#[source] io::Error),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Memory => Self::NoRoom,
        }
    }
}
