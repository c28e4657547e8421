//! One write at the store, until it is known how it ended.
//!
//! Every write states the version that it replaces. After a timeout nobody knows whether it was applied. The version
//! and the writer's identity are then read back, and the same conditional write is repeated until one of the attempts
//! has won. Invariant: a write is applied at most once, and `Written::Applied` is said only of one that was.

use crate::message::{StoreReply, StoreRequest};
use crate::types::{Value, Version, WriteId};

/// A write at the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreWrite {
    value: Option<Value>,
    write: WriteId,
    replaces: Version,
    /// Whether an attempt had no answer.
    is_unsure: bool,
    /// Whether the next request reads back.
    reads_back: bool,
    /// When to ask again.
    retry_at_us: Option<u64>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is in the store, or was, with this version.
    Applied(Version),
    /// It was not applied: the object has this version. `StoreWrite::replace` goes on.
    Moved(Version),
    /// It may have been applied and replaced: the object has this version.
    Unknown(Version),
    /// It was not applied and no attempt is on its way.
    NotDone,
    /// No attempt may be made any more, and one may be on its way.
    GivenUp,
    /// The store refuses it for good, with this HTTP status, and no attempt is on its way.
    Denied(u16),
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call the store.
    Call(StoreRequest),
    /// Wait until the retry time.
    Wait,
    /// It ended.
    Ended(Written),
}

/// The circumstances of a write's step.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The time.
    pub now_us: u64,
    /// How long to wait before asking again.
    pub retry_us: u64,
    /// Whether the lease permits further attempts.
    pub may_write: bool,
}

impl StoreWrite {
    /// A write that replaces a version.
    #[must_use]
    pub fn new(value: Option<Value>, write: WriteId, replaces: Version) -> Self {
        Self {
            value,
            write,
            replaces,
            is_unsure: false,
            reads_back: false,
            retry_at_us: None,
        }
    }

    /// The write's identity.
    #[must_use]
    pub fn write(&self) -> WriteId {
        self.write
    }

    /// When to ask again.
    #[must_use]
    pub fn retry_at_us(&self) -> Option<u64> {
        self.retry_at_us
    }

    /// Asks again at this time.
    pub fn retry_at(&mut self, at_us: u64) {
        self.retry_at_us = Some(at_us);
    }

    /// Tries again on top of another version.
    pub fn replace(&mut self, version: Version) {
        self.replaces = version;
        self.is_unsure = false;
        self.reads_back = false;
    }

    /// The next request to the store.
    pub fn request(&mut self, about: Circumstances) -> Next {
        self.retry_at_us = None;
        if self.reads_back {
            return Next::Call(StoreRequest::Head);
        }
        if !about.may_write {
            return Next::Ended(if self.is_unsure {
                Written::GivenUp
            } else {
                Written::NotDone
            });
        }
        Next::Call(StoreRequest::Put {
            value: self.value.clone(),
            replaces: self.replaces.clone(),
            write: self.write,
        })
    }

    /// The step that follows from the store's answer.
    pub fn reply(&mut self, reply: StoreReply, about: Circumstances) -> Next {
        match reply {
            StoreReply::Written(version) => Next::Ended(Written::Applied(version)),
            StoreReply::Mismatch => self.read_back(about),
            StoreReply::Lost => {
                self.is_unsure |= !self.reads_back;
                self.reads_back = true;
                self.wait(about)
            }
            StoreReply::Denied(_) if self.reads_back => self.wait(about),
            StoreReply::Denied(_) if self.is_unsure => Next::Ended(Written::GivenUp),
            StoreReply::Denied(status) => Next::Ended(Written::Denied(status)),
            StoreReply::Meta { version, write } => self.meta(version, write, about),
            StoreReply::Throttled | StoreReply::Object { .. } | StoreReply::NotModified => self.wait(about),
        }
    }

    fn read_back(&mut self, about: Circumstances) -> Next {
        self.reads_back = true;
        self.request(about)
    }

    fn meta(&mut self, version: Version, write: Option<WriteId>, about: Circumstances) -> Next {
        self.reads_back = false;
        if write == Some(self.write) {
            return Next::Ended(Written::Applied(version));
        }
        if version == self.replaces {
            return self.request(about);
        }
        Next::Ended(if self.is_unsure {
            Written::Unknown(version)
        } else {
            Written::Moved(version)
        })
    }

    fn wait(&mut self, about: Circumstances) -> Next {
        self.retry_at_us = Some(about.now_us + about.retry_us);
        Next::Wait
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::types::{CacheletId, RequestId};

    const ME: WriteId = WriteId {
        writer: CacheletId(1),
        request: RequestId(1),
    };
    const ABOUT: Circumstances = Circumstances {
        now_us: 0,
        retry_us: 1,
        may_write: true,
    };

    fn tag(name: &str) -> Version {
        Version::Tag(Arc::from(name))
    }

    /// How a write that replaces version `a` ends after these answers.
    fn check(replies: &[StoreReply], expected: Option<&Written>) {
        let mut write = StoreWrite::new(None, ME, tag("a"));
        let mut next = write.request(ABOUT);
        for reply in replies {
            if next == Next::Wait {
                next = write.request(ABOUT);
            }
            assert!(matches!(next, Next::Call(_)), "{next:?} before {reply:?}");
            next = write.reply(reply.clone(), ABOUT);
        }
        let ended = match next {
            Next::Ended(written) => Some(written),
            Next::Call(_) | Next::Wait => None,
        };
        assert_eq!(ended.as_ref(), expected, "{replies:?}");
    }

    #[test]
    fn a_write_ends_as_the_store_says() {
        let meta = |version: &str, write| StoreReply::Meta {
            version: tag(version),
            write,
        };
        let written = || StoreReply::Written(tag("b"));
        let applied = || Written::Applied(tag("b"));
        check(&[written()], Some(&applied()));
        check(&[StoreReply::Throttled, written()], Some(&applied()));
        check(
            &[StoreReply::Mismatch, meta("c", None)],
            Some(&Written::Moved(tag("c"))),
        );
        check(&[StoreReply::Lost, meta("b", Some(ME))], Some(&applied()));
        check(
            &[StoreReply::Lost, StoreReply::Lost, meta("b", Some(ME))],
            Some(&applied()),
        );
        check(&[StoreReply::Lost, meta("a", None), written()], Some(&applied()));
        check(
            &[
                StoreReply::Lost,
                meta("a", None),
                StoreReply::Mismatch,
                meta("b", Some(ME)),
            ],
            Some(&applied()),
        );
        check(&[StoreReply::Lost, meta("c", None)], Some(&Written::Unknown(tag("c"))));
        check(&[StoreReply::Lost], None);
        check(&[StoreReply::Denied(403)], Some(&Written::Denied(403)));
        check(
            &[StoreReply::Lost, meta("a", None), StoreReply::Denied(403)],
            Some(&Written::GivenUp),
        );
    }

    #[test]
    fn without_a_lease_nothing_is_sent() {
        let fenced = Circumstances {
            may_write: false,
            ..ABOUT
        };
        let mut write = StoreWrite::new(None, ME, tag("a"));
        assert_eq!(write.request(fenced), Next::Ended(Written::NotDone));
        write.request(ABOUT);
        write.reply(StoreReply::Lost, ABOUT);
        assert_eq!(write.request(fenced), Next::Call(StoreRequest::Head));
        let same = StoreReply::Meta {
            version: tag("a"),
            write: None,
        };
        assert_eq!(write.reply(same, fenced), Next::Ended(Written::GivenUp));
    }
}
