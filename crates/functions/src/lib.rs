//! Large objects in the memory of cloud functions (Wang et al., "InfiniCache", FAST 2020).
//!
//! A version of an object is cut into stripes, a stripe is coded into chunks, and each chunk lies in the memory of another
//! function. The *proxy* (feature `proxy`) knows where, invokes functions and asks them for chunks; the *program* (feature
//! `program`) runs inside a function and holds them. Both are shells around pure parts: [`chunk`], [`wire`], [`token`],
//! [`clock_order`], [`link`] (Figure 6), [`lifetime`] (Figure 7), [`holding`], [`backup`] (Figure 10) and the pool.
//!
//! Their talk is encrypted, unless it is told not to be.
//!
//! [`availability`] has the paper's Equations 1 to 3, [`cost`] its Equations 4 to 6.
//!
//! Promise: returned bytes are those that were put under that content and stripe, or there are none. Chunks may be lost
//! at any time; the origin has all bytes.

#![forbid(unsafe_code)]

pub mod accounts;
pub mod availability;
pub mod backup;
pub mod chunk;
pub mod clock_order;
pub mod cost;
pub mod event;
pub mod holding;
pub mod late;
pub mod lifetime;
pub mod link;
pub mod place;
pub mod reclaimed;
pub mod schedule;
pub mod token;
pub mod wire;

#[cfg(feature = "codec")]
pub mod codec;
#[cfg(feature = "proxy")]
pub mod emulator;
#[cfg(feature = "proxy")]
pub mod engine;
#[cfg(feature = "proxy")]
pub mod pool;
#[cfg(feature = "program")]
pub mod program;
#[cfg(feature = "proxy")]
pub mod proxy;
#[cfg(any(feature = "program", feature = "proxy"))]
mod receive;
#[cfg(any(feature = "program", feature = "proxy"))]
mod tls;

/// How an object is coded: any `data` of its `data + parity` chunks are enough to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    data: u32,
    parity: u32,
}

/// A code that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write DATA+PARITY, such as 10+2: at least 1 data chunk, at most {CHUNKS_MAX} chunks together")]
pub struct CodeError;

/// The limit of an object's chunks, by the field of 256 elements.
const CHUNKS_MAX: u32 = 256;

impl Code {
    /// A code of so many chunks of data and of parity.
    ///
    /// # Errors
    /// Too few or too many.
    pub fn new(data: u32, parity: u32) -> Result<Self, CodeError> {
        let chunks = data.checked_add(parity).filter(|chunks| *chunks <= CHUNKS_MAX);
        chunks
            .filter(|_| data > 0)
            .map(|_| Self { data, parity })
            .ok_or(CodeError)
    }

    /// Chunks of data.
    pub fn data(self) -> u32 {
        self.data
    }

    /// Chunks of parity.
    pub fn parity(self) -> u32 {
        self.parity
    }

    /// Chunks together.
    pub fn chunks(self) -> u32 {
        self.data + self.parity
    }

    /// The fewest lost chunks that lose an object.
    pub fn losing(self) -> u32 {
        self.parity + 1
    }
}

impl std::str::FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let (data, parity) = text.split_once('+').ok_or(CodeError)?;
        let number = |text: &str| text.parse().map_err(|_| CodeError);
        Self::new(number(data)?, number(parity)?)
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.data, self.parity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read() {
        for text in ["10+2", "1+0", "20+4", "255+1"] {
            assert_eq!(text.parse::<Code>().unwrap().to_string(), text);
        }
        for broken in ["", "10", "0+2", "10+", "-1+2", "200+57", "4294967295+1"] {
            assert_eq!(broken.parse::<Code>(), Err(CodeError), "{broken}");
        }
        let code: Code = "10+2".parse().unwrap();
        assert_eq!((code.chunks(), code.losing()), (12, 3));
    }
}
