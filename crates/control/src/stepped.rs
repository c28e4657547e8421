//! The control plane without a thread: its caller says when a round is and when commands are carried out.
//!
//! For programs that have threads of their own, and for virtual time; [`Control`](crate::Control) is this and a thread.
//! Invariant: nothing happens between two calls, so that the calls and the data plane alone decide what follows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemark_types::{Clock, DataPlane};

use crate::answer::Answer;
use crate::config::ControlConfig;
use crate::controller::Controller;
use crate::error::ControlError;
use crate::handle::ControlHandle;
use crate::mailbox::{Mailbox, Message};
use crate::pace::Rests;
use crate::shared::Shared;
use crate::state::State;
use crate::steady::SteadyClock;

/// See the module.
pub struct Stepped {
    controller: Controller,
    pub(crate) mailbox: Mailbox,
    handle: ControlHandle,
}

impl Stepped {
    /// Reads the state, publishes the first plan and has the first round: when this returns, every tenant can log in.
    /// The data plane wakes through `mailbox`.
    ///
    /// # Errors
    /// The state cannot be read or written, or the configured pool is impossible.
    pub fn new(
        mailbox: Mailbox,
        state: impl State + 'static,
        data_plane: Arc<dyn DataPlane>,
        clock: Arc<dyn Clock>,
        config: ControlConfig,
    ) -> Result<Self, ControlError> {
        let clock = Arc::new(SteadyClock::new(clock));
        let shared = Arc::new(Shared::new(clock.now()));
        let handle = ControlHandle {
            sender: mailbox.sender.clone(),
            shared: Arc::clone(&shared),
            clock: Arc::clone(&clock) as _,
        };
        let mut controller = Controller::new(Box::new(state), data_plane, clock, config, shared)?;
        controller.round();
        Ok(Self {
            controller,
            mailbox,
            handle,
        })
    }

    /// The handle for those that command it; [`Self::serve`] carries their commands out.
    pub fn handle(&self) -> ControlHandle {
        self.handle.clone()
    }

    /// Time between rounds, as it is set now.
    pub fn round_period(&self) -> Duration {
        self.controller.round_period()
    }

    /// Whether the data plane has something that should not wait for the end of the period.
    pub fn is_woken(&self) -> bool {
        self.mailbox.woken.load(Ordering::Acquire)
    }

    /// How long someone has waited for a removed tenant's memory, if anybody does: the last who began.
    pub(crate) fn removing_for(&self) -> Option<Duration> {
        self.controller.removing_for()
    }

    /// Has rounds rest between their pieces from now on, for others that want the core.
    pub(crate) fn take_rests(&mut self) {
        self.controller.rests = Rests::taken();
    }

    /// One round: observe, decide, publish.
    pub fn round(&mut self) {
        // This is before the snapshot: later events wake again.
        self.mailbox.woken.store(false, Ordering::Release);
        self.controller.round();
    }

    /// Carries out the commands that wait.
    pub fn serve(&mut self) {
        while let Ok(message) = self.mailbox.receiver.try_recv() {
            self.obey(message);
        }
    }

    /// Sends a command and carries it out: the answer is there when this returns. The answer to a removal is an
    /// exception. It comes with the round in which the memory is back or the limit has passed, and must not be waited
    /// for before.
    pub fn ask<T>(&mut self, command: impl FnOnce(&ControlHandle) -> Answer<T>) -> Answer<T> {
        // Waiting messages, wakes above all, must not be in the command's way.
        self.serve();
        let answer = command(&self.handle);
        self.serve();
        answer
    }

    /// After a panic there is no round any more, and those that wait for one are told.
    pub(crate) fn abandon(&mut self) {
        self.controller.abandon();
    }

    /// Refuses every command until the last message, those that wait already too. The state stays open meanwhile, so that
    /// no second server takes over its folder beside the data plane.
    pub(crate) fn refuse_all(&mut self) {
        // A command that is dropped answers that the control plane has ended.
        while !matches!(self.mailbox.receiver.recv(), Ok(Message::Stop) | Err(_)) {}
    }

    /// After the last message: remembers the grants for the next start.
    pub(crate) fn end(&mut self) {
        self.controller.end();
    }

    /// Carries out a message. Whether it was the last one.
    pub(crate) fn obey(&mut self, message: Message) -> bool {
        match message {
            Message::Command(command) => command(&mut self.controller),
            Message::Stop => return true,
            // The flag has said so already.
            Message::Wake => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;
