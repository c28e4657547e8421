//! The event of an invocation and its reply, as JSON. Pure.

use serde::{Deserialize, Serialize};

use crate::token::{TOKEN_BYTES, Token};

/// Set by the emulator for its processes: they end with it, also while they are stopped.
pub const EMULATED: &str = "TIDEMARK_EMULATED";

/// Why a function is invoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Connect, and answer requests.
    Serve,
    /// Announce the chunks, and return.
    Warm,
    /// Connect to the relay, and become what another instance is.
    Backup,
}

/// The event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invocation {
    /// Why.
    pub work: Work,
    /// The function's name.
    pub name: String,
    /// Which invocation of it; higher ones are later.
    pub epoch: u64,
    /// The address to connect to: host and port.
    pub proxy: String,
    /// The proxy's public key, in hexadecimal; `None`: nothing is encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The token, in hexadecimal.
    pub token: String,
    /// When the token ends, in ms since 1970.
    pub ends_ms: u64,
    /// Durations are billed in units of this.
    pub unit_ms: u32,
    /// Bytes of chunks to hold at most.
    pub memory_bytes: u64,
}

/// The reply of an invocation: the instance's chunks as it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Returned {
    /// The epoch of the invocation.
    pub epoch: u64,
    /// Drawn at the instance's cold start.
    pub instance: u64,
    /// Counts changes of its chunks.
    pub term: u64,
    /// The hash of its chunks.
    pub hash: u64,
    /// How many chunks.
    pub chunks: u32,
    /// How many bytes.
    pub bytes: u64,
}

/// A token as an event has it.
pub fn token_text(token: &Token) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads [`token_text`].
pub fn read_token(text: &str) -> Option<Token> {
    let mut token = [0; TOKEN_BYTES];
    if text.len() != 2 * TOKEN_BYTES || !text.is_ascii() {
        return None;
    }
    for (at, byte) in token.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_being_written() {
        let mut token = [0xa5; TOKEN_BYTES];
        token[0] = 3;
        assert_eq!(read_token(&token_text(&token)), Some(token));
        for broken in ["", "a5", &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(read_token(broken), None, "{broken}");
        }
    }
}
