//! A queue over io_uring: no thread waits for the device.
//!
//! Invariant: a buffer that the kernel was given stays in `requests`, unmoved, until the kernel has said that the
//! request ended. Dropping the ring waits for all of them.

#![expect(
    unsafe_code,
    reason = "the kernel reads and writes buffers while requests are under way"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::queue::{Done, Queue, Request};

/// A ring to a file.
pub(super) struct Ring {
    ring: IoUring,
    file: File,
    /// Requests under way, by the number that the kernel has of them.
    requests: Vec<Option<(u64, Request)>>,
    under_way: usize,
    /// Requests that ended while room was waited for.
    ended: Vec<Done>,
    /// Numbers that no request has.
    free: Vec<usize>,
    /// Requests wait for [`Queue::begin`].
    is_batched: bool,
}

impl Ring {
    /// A ring of so many requests, where the system allows it; with an event, one for an event loop.
    pub(super) fn new(file: File, depth: u32, event: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let ring = IoUring::new(depth)?;
        let depth = ring.params().sq_entries() as usize;
        if let Some(event) = event {
            ring.submitter().register_eventfd(event.as_raw_fd())?;
        }
        Ok(Self {
            ring,
            file,
            requests: (0..depth).map(|_| None).collect(),
            under_way: 0,
            ended: Vec::new(),
            free: (0..depth).rev().collect(),
            is_batched: event.is_some(),
        })
    }

    fn entry(&mut self, number: usize) -> Option<squeue::Entry> {
        let file = types::Fd(self.file.as_raw_fd());
        let (_, request) = self.requests.get_mut(number)?.as_mut()?;
        let entry = match request {
            Request::Read { offset, buffer } => {
                let bytes = buffer.as_mut();
                opcode::Read::new(file, bytes.as_mut_ptr(), bytes.len() as u32)
                    .offset(*offset)
                    .build()
            }
            Request::Write { offset, bytes, part } => {
                let bytes = &(**bytes).as_ref()[part.clone()];
                opcode::Write::new(file, bytes.as_ptr(), bytes.len() as u32)
                    .offset(*offset)
                    .build()
            }
            Request::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        };
        Some(entry.user_data(number as u64))
    }

    fn take_ended(&mut self, done: &mut Vec<Done>) {
        for ended in self.ring.completion() {
            let Some((token, request)) = self.requests.get_mut(ended.user_data() as usize).and_then(Option::take)
            else {
                continue;
            };
            self.under_way -= 1;
            self.free.push(ended.user_data() as usize);
            let (wanted, buffer) = match request {
                Request::Read { buffer, .. } => (buffer.as_ref().len(), Some(buffer)),
                Request::Write { part, .. } => (part.len(), None),
                Request::Flush => (0, None),
            };
            let result = match ended.result() {
                error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                // Less than a whole block's worth is an end of the file that should not be there.
                bytes if (bytes as usize) < wanted => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(()),
            };
            done.push(Done { token, result, buffer });
        }
    }
}

impl Queue for Ring {
    fn submit(&mut self, token: u64, request: Request) {
        while self.under_way == self.requests.len() {
            // There are more than the ring has room for: the caller waits. An interrupted wait is repeated.
            let mut done = Vec::new();
            let _ = self.ring.submit_and_wait(1);
            self.take_ended(&mut done);
            self.ended.append(&mut done);
        }
        let Some(number) = self.free.pop() else {
            return;
        };
        self.requests[number] = Some((token, request));
        self.under_way += 1;
        let Some(entry) = self.entry(number) else {
            return;
        };
        // SAFETY: the file is open as long as the ring. The buffer lies on the heap, owned by `requests[number]`.
        // Nobody else touches it until the completion with this number is taken, and `drop` waits for that. A buffer
        // that is written from is shared and immutable; one that is read into is owned by the request alone.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // The queue has as many entries as requests.
        debug_assert!(pushed.is_ok());
        if !self.is_batched {
            self.begin();
        }
    }

    fn begin(&mut self) {
        // Requests that an interrupted call left are submitted with the next one.
        let _ = self.ring.submit();
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ended);
        self.take_ended(done);
    }

    fn wait(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ended);
        if done.is_empty() && self.under_way > 0 && self.ring.completion().is_empty() {
            // An interrupted wait is one without result; the caller comes back.
            let _ = self.ring.submit_and_wait(1);
        }
        self.take_ended(done);
    }

    fn under_way(&self) -> usize {
        self.under_way + self.ended.len()
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.under_way > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.take_ended(&mut done),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    // The kernel may still use the buffers: they are never freed.
                    for request in self.requests.iter_mut().filter_map(Option::take) {
                        std::mem::forget(request);
                    }
                    return;
                }
            }
        }
    }
}
