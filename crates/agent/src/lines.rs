//! The lines of an answer that goes on for as long as its server has something to say.

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

/// Why there is no next line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLine {
    /// The answer is over, within a line or after one.
    Ended,
    /// The connection broke.
    Broken,
    /// A line is longer than it may be.
    TooLong,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    buffer: BytesMut,
    /// Bytes of the buffer in which there is no end of a line.
    searched_bytes: usize,
    line_bytes_max: usize,
}

impl Lines {
    /// The lines of this body, of so many bytes at most.
    pub(crate) fn of(body: Incoming, line_bytes_max: usize) -> Self {
        Self {
            body,
            buffer: BytesMut::new(),
            searched_bytes: 0,
            line_bytes_max,
        }
    }

    /// The next line that is not blank, without its end. A call that is given up loses nothing.
    ///
    /// # Errors
    /// There is none: see [`NoLine`].
    pub(crate) async fn next(&mut self) -> Result<BytesMut, NoLine> {
        loop {
            let end = self.buffer[self.searched_bytes..]
                .iter()
                .position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.buffer.split_to(self.searched_bytes + end + 1);
                self.searched_bytes = 0;
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(line);
            }
            self.searched_bytes = self.buffer.len();
            if self.buffer.len() > self.line_bytes_max {
                return Err(NoLine::TooLong);
            }
            let frame = self.body.frame().await.ok_or(NoLine::Ended)?;
            if let Ok(piece) = frame.map_err(|_| NoLine::Broken)?.into_data() {
                self.buffer.extend_from_slice(&piece);
            }
        }
    }
}
