//! A cache in the memory of cloud functions (Wang et al., "InfiniCache", FAST 2020): what it would lose and cost.
//!
//! Pure functions: figures in, figures out. [`availability`] has the paper's Equations 1 to 3, [`cost`] its Equations 4 to 6.

#![forbid(unsafe_code)]

pub mod availability;
pub mod cost;

/// How an object is coded: any `data` of its `data + parity` chunks are enough to read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    data: u32,
    parity: u32,
}

/// A code that can not be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write DATA+PARITY, such as 10+2: at least 1 data chunk, at most {CHUNKS_MAX} chunks together")]
pub struct CodeError;

/// Chunks of an object: what the field of 256 elements allows.
const CHUNKS_MAX: u32 = 256;

impl Code {
    /// So many chunks of data and of parity.
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
