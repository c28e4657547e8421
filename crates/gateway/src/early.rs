//! Connections to an origin that answers before it has read a request, and closes.
//!
//! Servers refuse an upload (403, 503) without taking its body. Sending then fails, although the answer has arrived and can
//! be read. The HTTP client gives up at the first error of either, so that the answer would be lost now and then. Here
//! sending does not fail: the rest of the request goes nowhere, and reading finds the answer or the end of the
//! connection, which is an error without one.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use tower_service::Service;

/// Opens TCP connections of this kind.
#[derive(Clone, Debug)]
pub(crate) struct EarlyAnswers(pub(crate) HttpConnector);

type Stream = <HttpConnector as Service<Uri>>::Response;
type Failure = <HttpConnector as Service<Uri>>::Error;

impl Service<Uri> for EarlyAnswers {
    type Response = EarlyAnswered<Stream>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Failure>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, place: Uri) -> Self::Future {
        let connecting = self.0.call(place);
        Box::pin(async move { connecting.await.map(EarlyAnswered::new) })
    }
}

/// A stream whose answer can be read after sending has failed.
pub(crate) struct EarlyAnswered<S> {
    stream: S,
    /// Sending has failed: the other side takes nothing more.
    is_deaf: bool,
}

impl<S> EarlyAnswered<S> {
    fn new(stream: S) -> Self {
        Self { stream, is_deaf: false }
    }

    /// The outcome of sending up to `bytes`.
    fn sent(&mut self, result: io::Result<usize>, bytes: usize) -> io::Result<usize> {
        match result {
            Err(error) if is_closed(&error) => {
                self.is_deaf = true;
                Ok(bytes)
            }
            other => other,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted
    )
}

impl<S: Connection> Connection for EarlyAnswered<S> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl<S: Read + Unpin> Read for EarlyAnswered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: Write + Unpin> Write for EarlyAnswered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(self.sent(result, bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        if self.is_deaf {
            return Poll::Ready(Ok(bytes));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, pieces));
        Poll::Ready(self.sent(result, bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        Poll::Ready(self.sent(result.map(|()| 0), 0).map(|_| ()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
