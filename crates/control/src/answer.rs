//! The results of commands, which can be awaited or waited for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use tokio::sync::oneshot;

use crate::error::ControlError;

/// The receiver of a command's result.
pub(crate) struct Reply<T>(oneshot::Sender<Result<T, ControlError>>);

impl<T> Reply<T> {
    pub(crate) fn send(self, result: Result<T, ControlError>) {
        // Nobody waits any more: the command was carried out all the same.
        let _ = self.0.send(result);
    }
}

/// The result of a command, to come: `.await` it, or block a thread with [`Answer::wait`].
#[must_use = "a command may fail"]
pub struct Answer<T>(Option<oneshot::Receiver<Result<T, ControlError>>>);

/// A thread that waits for an answer.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The two ends of a command's result.
pub(crate) fn answer<T>() -> (Reply<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    (Reply(sender), Answer(Some(receiver)))
}

impl<T> Answer<T> {
    /// The answer to a command that was not taken: too many wait.
    pub(crate) fn busy() -> Self {
        Self(None)
    }

    /// Blocks until the result is there. Not for a thread that runs an async runtime.
    ///
    /// # Errors
    /// The command's own; [`ControlError::Stopped`] and [`ControlError::Busy`] when it was never carried out.
    pub fn wait(self) -> Result<T, ControlError> {
        // Not the channel's own way to wait: that panics on a thread of an event loop, which may well want to wait here.
        let waker = Waker::from(Arc::new(Parked(std::thread::current())));
        let (mut context, mut answer) = (Context::from_waker(&waker), pin!(self));
        loop {
            match answer.as_mut().poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, ControlError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(receiver) = &mut self.0 else {
            return Poll::Ready(Err(ControlError::Busy));
        };
        Pin::new(receiver)
            .poll(context)
            .map(|result| result.unwrap_or(Err(ControlError::Stopped)))
    }
}
