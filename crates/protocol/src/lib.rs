//! The wire protocols that clients speak: memcached (text and meta) and RESP2/RESP3. Bytes to commands, replies to
//! bytes.
//!
//! There is no I/O and no state here. A parser gets the contiguous bytes from a command's beginning and has three
//! answers. The command is complete (with the number of bytes that it took), or incomplete (with the least number of
//! bytes that it can be). Otherwise it is wrong (with the reply, and how the stream goes on). The connection's state
//! machine around that belongs to the server.
//!
//! Invariants, held by `tests/protocol/fuzz.rs` and `split.rs`: no input panics, and an answer never changes when more
//! bytes follow. A command is never taken from a part of another. Nothing is allocated for a well-formed command, whose
//! parts are slices of the input. Replies are appended to a caller's buffer.

#![forbid(unsafe_code)]

pub mod http;
pub mod memcached;
pub mod number;
pub mod resp;
mod scan;

/// Whether the next bytes of something that ends with a line end (`\r\n`) are possible. `left` bytes of it are still to
/// come, and `bytes` may be longer than that.
pub fn may_end_line(bytes: &[u8], left: usize) -> bool {
    let is_at = |before_end: usize, byte: u8| {
        let place = left.checked_sub(before_end);
        place
            .and_then(|place| bytes.get(place))
            .is_none_or(|found| *found == byte)
    };
    is_at(2, b'\r') && is_at(1, b'\n')
}
