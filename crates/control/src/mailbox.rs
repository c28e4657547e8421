//! The place at which commands and wakes arrive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::controller::Controller;

/// The limit of waiting commands. Each is answered within some milliseconds, with thousands of tenants within tenths of
/// a second, so more means that the thread hangs.
const MAX_WAITING: usize = 1024;

/// Work for the control thread.
pub(crate) type Command = Box<dyn FnOnce(&mut Controller) + Send>;

pub(crate) enum Message {
    Wake,
    Command(Command),
    Stop,
}

/// The place at which commands and wakes arrive. It is made before the data plane, which wakes through it, and before
/// the control plane, which reads it.
pub struct Mailbox {
    pub(crate) sender: SyncSender<Message>,
    pub(crate) receiver: Receiver<Message>,
    pub(crate) woken: Arc<AtomicBool>,
}

impl Default for Mailbox {
    fn default() -> Self {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        Self {
            sender,
            receiver,
            woken: Arc::default(),
        }
    }
}

impl Mailbox {
    /// The waker that the data plane calls when something cannot wait for the next round. It never blocks, and all
    /// calls until that round are one.
    pub fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let (sender, woken) = (self.sender.clone(), Arc::clone(&self.woken));
        Arc::new(move || {
            if !woken.swap(true, Ordering::AcqRel) {
                // A full mailbox wakes the thread as well, and it looks at the flag after each message.
                let _ = sender.try_send(Message::Wake);
            }
        })
    }
}
