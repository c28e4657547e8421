//! Replies that never change, each with its line end.

/// An unknown command.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// A number or a key that is none, or a missing word.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// A body that is not followed by a line end.
pub const BAD_DATA_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// A line without an end within the limit; the connection is closed.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// A value above the limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// No memory could be had for a value.
pub const OUT_OF_MEMORY: &[u8] = b"SERVER_ERROR out of memory storing object\r\n";
/// An expiration time that is no number.
pub const BAD_EXPTIME: &[u8] = b"CLIENT_ERROR invalid exptime argument\r\n";
/// `incr` or `decr` by something that is no number.
pub const BAD_DELTA: &[u8] = b"CLIENT_ERROR invalid numeric delta argument\r\n";
/// `incr`, `decr` or `ma` of a value that is no number.
pub const NON_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
/// A command before login.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// A login whose body is not `name secret`.
pub const BAD_LOGIN: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
/// A login with a wrong name or secret.
pub const LOGIN_FAILED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";
/// A command that the connection's secret does not permit.
pub const NOT_PERMITTED: &[u8] = b"CLIENT_ERROR this secret does not permit the command\r\n";
/// `shutdown`, in memcached's words.
pub const SHUTDOWN: &[u8] = b"SERVER_ERROR: shutdown not enabled\r\n";

/// A meta flag that was given twice.
pub const DUPLICATE_FLAG: &[u8] = b"CLIENT_ERROR duplicate flag\r\n";
/// A meta flag that does not exist.
pub const INVALID_FLAG: &[u8] = b"CLIENT_ERROR invalid flag\r\n";
/// Either of the two, and any flag's bad number, in `ma`.
pub const BAD_ARITHMETIC_FLAG: &[u8] = b"CLIENT_ERROR invalid or duplicate flag\r\n";
/// A meta flag whose number is none.
pub const BAD_TOKEN: &[u8] = b"CLIENT_ERROR bad token in command line format\r\n";
/// A key that is not base64 although the flag says so.
pub const BAD_BASE64: &[u8] = b"CLIENT_ERROR error decoding key\r\n";
/// An opaque token above [`super::OPAQUE_BYTES_MAX`].
pub const OPAQUE_TOO_LONG: &[u8] = b"CLIENT_ERROR opaque token too long\r\n";
/// A mode that is not one letter.
pub const BAD_MODE_LENGTH: &[u8] = b"CLIENT_ERROR incorrect length for M token\r\n";
/// A mode that `ms` does not have.
pub const BAD_SET_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ms M token\r\n";
/// A mode that `ma` does not have.
pub const BAD_ARITHMETIC_MODE: &[u8] = b"CLIENT_ERROR invalid mode for ma M token\r\n";

/// Stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// Not stored: the condition of `add`, `replace`, `append` or `prepend` was not met.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// `cas` with another token than the item's.
pub const EXISTS: &[u8] = b"EXISTS\r\n";
/// No such item.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// Deleted.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// Touched.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// Done.
pub const OK: &[u8] = b"OK\r\n";
/// The end of `get` and of `stats`.
pub const END: &[u8] = b"END\r\n";
/// `stats reset` is done.
pub const RESET: &[u8] = b"RESET\r\n";
/// The answer to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";
/// A miss of `mg` or `me` of which nothing is to be sent back.
pub const META_MISS: &[u8] = b"EN\r\n";

/// The text for a client of the binary protocol; it is in that protocol, so that the client can show it.
const BINARY_TEXT: &[u8; 68] = b"the binary protocol is not supported: use the text or meta protocol\n";

/// The answer to the first byte of a binary command: a response header with status 0x0083, "not supported" (memcached's
/// `protocol_binary.h`), and the text. The connection is closed.
pub const BINARY: &[u8] = &binary_response();

const fn binary_response() -> [u8; 24 + BINARY_TEXT.len()] {
    let mut packet = [0; 24 + BINARY_TEXT.len()];
    packet[0] = 0x81;
    packet[7] = 0x83;
    // The total body length is a big-endian word; the text is shorter than 256 bytes.
    packet[11] = BINARY_TEXT.len() as u8;
    let mut at = 0;
    while at < BINARY_TEXT.len() {
        packet[24 + at] = BINARY_TEXT[at];
        at += 1;
    }
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_answer_is_a_well_formed_response() {
        assert_eq!(BINARY[0], 0x81);
        assert_eq!(BINARY[6..8], [0, 0x83]);
        let length = u32::from_be_bytes([BINARY[8], BINARY[9], BINARY[10], BINARY[11]]) as usize;
        assert_eq!(&BINARY[24..], BINARY_TEXT);
        assert_eq!(length, BINARY_TEXT.len());
    }
}
