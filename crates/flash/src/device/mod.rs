//! Devices: a file or block device of the system, and a simulated one with faults.

mod file;
mod queue;
mod ring;
mod sim;

use std::io;
use std::os::fd::BorrowedFd;

pub use file::{FileDevice, FileError};
pub use queue::{Done, Queue, Request, Threads, evented, queue};
pub use sim::{Faults, SimDevice};

/// Something that keeps bytes. Offsets and lengths are multiples of the block size.
pub trait Device: Send + Sync {
    /// How many bytes it has.
    fn size_bytes(&self) -> u64;

    /// Reads these bytes.
    ///
    /// # Errors
    /// The device does not give them; the buffer holds anything then.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes these bytes. They are durable after a flush.
    ///
    /// # Errors
    /// The device does not take them; any of them may be written.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// It may not be durable.
    fn flush(&self) -> io::Result<()>;

    /// A queue of its own, where the system allows one. With an event it is for an event loop: the event is told when requests
    /// have ended, and requests are begun by [`Queue::begin`].
    fn ring(&self, _depth: u32, _event: Option<BorrowedFd<'_>>) -> Option<Box<dyn Queue>> {
        None
    }
}
