//! Bodies in chunks (`aws-chunked`), before their signatures are checked.
//!
//! A chunk with a signature is held until all of it is there, because nothing of it is used before it is known to be right. So it may
//! have [`SIGNED_CHUNK_BYTES_MAX`] at most, and it waits until there is room for it beside all others. A chunk without a signature says
//! nothing that could be checked, and may be as long as the object: it is cut into chunks as its bytes come, of which none waits.
//! All else is passed on as it is, for the check to judge.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Frame};
use s3s::Body;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use crate::origin::BoxError;

/// Bytes of a chunk with a signature: clients make them of 64 KiB to 8 MiB.
const SIGNED_CHUNK_BYTES_MAX: u64 = 16 << 20;
/// Bytes of chunks with signatures that are held at once, besides short ones.
const HELD_BYTES_MAX: usize = 128 << 20;
/// Shorter chunks are held without asking: of a thousand connections no more than 64 MiB.
const SHORT_CHUNK_BYTES: u64 = 64 << 10;
/// Room is counted in units of this.
const ROOM_UNIT_BYTES: usize = 1 << 10;
/// The line before a chunk; the check takes no longer one.
const HEAD_BYTES_MAX: usize = 1 << 10;

/// The reason for which a body ends that has too long a chunk. The check puts it into its own error.
pub(crate) const TOO_LARGE: &str = "a chunk with a signature has more than 16 MiB";

/// Room for chunks that are held.
pub(crate) type Room = Arc<Semaphore>;

/// All of it.
pub(crate) fn room() -> Room {
    Arc::new(Semaphore::new(HELD_BYTES_MAX / ROOM_UNIT_BYTES))
}

/// A request's body, in chunks that can be held if it comes in chunks.
pub(crate) fn bounded(headers: &HeaderMap, body: Body, room: &Room) -> Body {
    let payload = headers.get("x-amz-content-sha256").map(|value| value.as_bytes());
    if !payload.is_some_and(|payload| payload.starts_with(b"STREAMING-")) {
        return body;
    }
    Body::http_body_unsync(Bounded::new(body, Arc::clone(room)))
}

/// The place in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The line before a chunk.
    Head,
    /// So many bytes of a chunk are still to come. It is cut, or passed on as it is.
    Data { left: u64, is_cut: bool },
    /// So many bytes of the end of its last line.
    End { left: usize, is_cut: bool },
    /// Behind the last chunk, or something that is no chunk.
    Rest,
}

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// See the module.
struct Bounded {
    body: Body,
    room: Room,
    at: At,
    /// The line before the next chunk, as far as it is here.
    head: Vec<u8>,
    rest: Bytes,
    ready: VecDeque<Bytes>,
    /// For the chunk whose head is to be passed on.
    waiting: Option<Waiting>,
    /// The room of the chunk that is being passed on.
    held: Option<OwnedSemaphorePermit>,
}

impl Bounded {
    fn new(body: Body, room: Room) -> Self {
        Self {
            body,
            room,
            at: At::Head,
            head: Vec::new(),
            rest: Bytes::new(),
            ready: VecDeque::new(),
            waiting: None,
            held: None,
        }
    }

    /// Takes some of the bytes that are here.
    fn step(&mut self) -> Result<(), BoxError> {
        match self.at {
            At::Head => {
                let line = self.rest.iter().position(|byte| *byte == b'\n');
                let part = self.rest.split_to(line.map_or(self.rest.len(), |at| at + 1));
                self.head.extend_from_slice(&part);
                if line.is_some() {
                    let head = std::mem::take(&mut self.head);
                    self.chunk(head.into())?;
                } else if self.head.len() > HEAD_BYTES_MAX {
                    let head = std::mem::take(&mut self.head);
                    self.pass(head.into());
                }
            }
            At::Data { left, is_cut } => {
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.rest.len());
                let piece = self.rest.split_to(most);
                let left = left - most as u64;
                if is_cut {
                    self.ready.push_back(format!("{most:x}\r\n").into());
                }
                self.ready.push_back(piece);
                if is_cut {
                    self.ready.push_back(Bytes::from_static(b"\r\n"));
                }
                self.at = match left {
                    0 => At::End { left: 2, is_cut },
                    left => At::Data { left, is_cut },
                };
            }
            At::End { left, is_cut } => {
                let piece = self.rest.split_to(left.min(self.rest.len()));
                let left = left - piece.len();
                let is_right = b"\r\n"[2 - left - piece.len()..].starts_with(&piece);
                self.at = match left {
                    0 => At::Head,
                    left => At::End { left, is_cut },
                };
                if !is_right {
                    self.pass(piece);
                } else if !is_cut {
                    self.ready.push_back(piece);
                }
            }
            At::Rest => self.ready.push_back(std::mem::take(&mut self.rest)),
        }
        Ok(())
    }

    /// The line before a chunk is here: `SIZE;chunk-signature=...`, or `SIZE` alone.
    fn chunk(&mut self, head: Bytes) -> Result<(), BoxError> {
        let size = head.split(|byte| b";\r\n".contains(byte)).next().unwrap_or_default();
        let size = std::str::from_utf8(size).ok();
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else {
            self.pass(head);
            return Ok(());
        };
        let is_signed = head.contains(&b';');
        if is_signed && size > SIGNED_CHUNK_BYTES_MAX {
            return Err(TOO_LARGE.into());
        }
        let is_long = size > SHORT_CHUNK_BYTES;
        self.at = At::Data {
            left: size,
            is_cut: is_long && !is_signed,
        };
        if is_long && is_signed {
            let units = (size as usize).div_ceil(ROOM_UNIT_BYTES) as u32;
            self.waiting = Some(Box::pin(Arc::clone(&self.room).acquire_many_owned(units)));
        }
        if !is_long || is_signed {
            self.ready.push_back(head);
        }
        Ok(())
    }

    /// From here on all is passed on.
    fn pass(&mut self, piece: Bytes) {
        self.at = At::Rest;
        self.ready.push_back(piece);
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        // More is asked for than the chunks that were passed on: they are checked, and held no longer.
        if this.at == At::Head && this.ready.is_empty() && this.waiting.is_none() {
            this.held = None;
        }
        loop {
            if let Some(waiting) = &mut this.waiting {
                this.held = ready!(waiting.as_mut().poll(cx)).ok();
                this.waiting = None;
            }
            if let Some(piece) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            if !this.rest.is_empty() {
                if let Err(error) = this.step() {
                    return Poll::Ready(Some(Err(error)));
                }
                continue;
            }
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => this.rest = bytes,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                // A line that is not whole is for the check to judge.
                None if !this.head.is_empty() => {
                    let head = std::mem::take(&mut this.head);
                    this.pass(head.into());
                }
                end => return Poll::Ready(end),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    fn signed(bytes: usize) -> Vec<u8> {
        let head = format!("{bytes:x};chunk-signature={}\r\n", "a".repeat(64));
        [head.as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
    }

    fn plain(bytes: usize) -> Vec<u8> {
        [format!("{bytes:x}\r\n").as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
    }

    /// The outcome of a body that comes in pieces of so many bytes.
    async fn passed(body: &[u8], piece_bytes: usize) -> Result<Vec<u8>, String> {
        let pieces: Vec<_> = body.chunks(piece_bytes).map(Bytes::copy_from_slice).collect();
        let pieces = pieces.into_iter().map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
        let body = Body::http_body_unsync(StreamBody::new(futures_util::stream::iter(pieces)));
        let collected = Bounded::new(body, room()).collect().await;
        collected
            .map(|all| all.to_bytes().to_vec())
            .map_err(|error| error.to_string())
    }

    /// The data of chunks, and the longest one.
    fn data(mut body: &[u8]) -> (usize, usize) {
        let (mut sum, mut longest) = (0, 0);
        loop {
            let line = body.iter().position(|byte| *byte == b'\r').unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
            if size == 0 {
                return (sum, longest);
            }
            (sum, longest) = (sum + size, longest.max(size));
            assert!(body[line + 2..line + 2 + size].iter().all(|byte| *byte == b'x'));
            assert_eq!(&body[line + 2 + size..line + 4 + size], b"\r\n");
            body = &body[line + 4 + size..];
        }
    }

    #[tokio::test]
    async fn a_long_chunk_without_a_signature_is_cut_and_all_else_stays() {
        const MIB: usize = 1 << 20;
        let end = b"0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        let cut = [&plain(3 * MIB)[..], &plain(7), end].concat();
        for piece_bytes in [100, 65_537, 5 * MIB] {
            let got = passed(&cut, piece_bytes).await.unwrap();
            assert_eq!(
                data(&got),
                (3 * MIB + 7, piece_bytes.clamp(7, 3 * MIB)),
                "{piece_bytes}"
            );
            assert!(got.ends_with(end));
        }
        let zero = format!("0;chunk-signature={}\r\n\r\n", "b".repeat(64));
        let long = [&signed(5 * MIB)[..], &signed(1), &signed(1 << 24), zero.as_bytes()].concat();
        for piece_bytes in [1000, 65_537, long.len()] {
            assert!(passed(&long, piece_bytes).await.unwrap() == long, "{piece_bytes}");
        }
        for body in [
            &[&plain(1000)[..], &plain(2000), end].concat()[..],
            b"zz\r\nwhat is this",
            b"5\r\nhello!\n",
            b"12345",
            &[b'1'; 5000],
        ] {
            for piece_bytes in [1, 7, 65_537] {
                let got = passed(body, piece_bytes).await.unwrap();
                assert!(got == body, "{} bytes by {piece_bytes}", body.len());
            }
        }
        for bytes in ["1000001", "ffffffff", "ffffffffffffffff"] {
            let refused = passed(format!("{bytes};chunk-signature=a\r\nxxx").as_bytes(), 5).await;
            assert_eq!(refused, Err(TOO_LARGE.to_owned()), "{bytes}");
        }
    }

    #[tokio::test]
    async fn chunks_that_are_held_wait_for_each_other() {
        let room = room();
        let body = |bytes| {
            let body = [signed(bytes), b"0;chunk-signature=".to_vec()].concat();
            Bounded::new(Body::from(body), Arc::clone(&room))
        };
        let next = |bounded: &mut Bounded| futures_util::future::FutureExt::now_or_never(bounded.frame()).flatten();
        let mut all: Vec<Bounded> = (0..9).map(|_| body(1 << 24)).collect();
        let begun = all.iter_mut().filter_map(next).count();
        assert_eq!(begun, 8, "128 MiB of chunks of 16 MiB");
        let mut short = body(64 << 10);
        assert!(next(&mut short).is_some(), "it needs no room");
        // Data, the end of the line, and the head of the next: then the first is checked.
        let last = all.len() - 1;
        for _ in 0..2 {
            assert!(next(&mut all[0]).is_some() && next(&mut all[last]).is_none());
        }
        assert!(next(&mut all[0]).is_some() && next(&mut all[last]).is_some());
    }
}
