//! The common part of all replies: errors, their counts, and CLIENT REPLY.

use std::borrow::Cow;

use tidemark_protocol::resp::command::Row;
use tidemark_protocol::resp::{ErrorReply, Reply, error};
use tidemark_store::{Key, Refused, ShardGuard, Value};

use crate::counts::{Count, Stage};
use crate::memcached::send_value;
use crate::session::{Exec, Session};

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure<'a> {
    /// An error in the protocol's words.
    Known(ErrorReply<'a>),
    /// An error in words of our own, the code first.
    Own(Cow<'static, str>),
    /// Nothing is wrong: the command goes on in a later turn, when its replies so far are sent and there is memory for more.
    /// See [`crate::progress`].
    Later,
}

impl<'a> From<ErrorReply<'a>> for Failure<'a> {
    fn from(error: ErrorReply<'a>) -> Self {
        Self::Known(error)
    }
}

impl From<Refused> for Failure<'_> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Memory => Self::Known(error::OUT_OF_MEMORY),
        }
    }
}

impl Failure<'_> {
    /// The text without the code that says nothing.
    pub(super) fn reason(&self) -> String {
        let text = match self {
            Self::Known(error) => error.to_string(),
            Self::Own(text) => text.clone().into_owned(),
            Self::Later => String::new(),
        };
        text.strip_prefix("ERR ").map_or(text.clone(), str::to_owned)
    }
}

/// Whether a command was done.
pub(super) type Done<'a> = Result<(), Failure<'a>>;

/// A reply is longer than can be promised. It is counted as refused.
#[cold]
pub(super) fn too_large_reply(exec: &mut Exec<'_>) -> Failure<'static> {
    exec.counts.add(Count::RefusedReplies, 1);
    ErrorReply::AboveLimit("the reply", exec.reply_bytes_max(), "bytes").into()
}

/// Why a command cannot answer so many bytes now that [`Exec::may_answer`] refused: within a transaction it fails, else it
/// waits for memory.
#[cold]
pub(super) fn no_room(exec: &mut Exec<'_>) -> Failure<'static> {
    if exec.visit.must_fail() {
        too_large_reply(exec)
    } else {
        Failure::Later
    }
}

/// Replies in the session's version.
#[inline]
pub(super) fn reply<'o>(session: &Session, exec: &'o mut Exec<'_>) -> Reply<'o> {
    Reply::new(&mut exec.out.bytes, session.version)
}

/// Answers with an error in place of the replies appended since `mark`, and counts it.
#[cold]
pub(super) fn fail(
    failure: &Failure<'_>,
    row: Option<&Row>,
    stage: Stage,
    mark: usize,
    session: &Session,
    exec: &mut Exec<'_>,
) {
    exec.out.truncate(mark);
    let out = &mut exec.out.bytes;
    match failure {
        Failure::Known(error) => Reply::new(out, session.version).error(error),
        Failure::Own(text) => {
            out.push(b'-');
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        // It has no answer yet.
        Failure::Later => return,
    }
    // Before login it is nobody's error.
    let Some(tenant) = &session.tenant else { return };
    exec.counts.add(Count::Errors, 1);
    if *failure == Failure::Known(error::OUT_OF_MEMORY) {
        exec.counts.add(Count::NoMemory, 1);
    }
    let text = &exec.out.bytes[mark + 1..];
    let end = text
        .iter()
        .position(|byte| matches!(byte, b' ' | b'\r'))
        .unwrap_or(text.len());
    // Codes are our own words, so nothing is lost.
    let code = String::from_utf8_lossy(&text[..end]);
    tenant.counts.commands().note_error(&code, row, stage);
}

/// Drops the replies appended since `mark` if the client does not want it.
pub(super) fn drop_unwanted(mark: usize, session: &Session, exec: &mut Exec<'_>) {
    if session.reply_mode.is_silent() {
        exec.out.truncate(mark);
    }
}

/// Appends the value of a key that was just found as a bulk string. It is pinned in its place if it is large and may
/// be, else copied.
pub(super) fn append_value(key: &Key<'_>, shard: &mut ShardGuard<'_>, session: &Session, exec: &mut Exec<'_>) {
    let Some(found) = shard.peek(key, exec.now) else { return };
    reply(session, exec).bulk_header(found.value().len());
    send_value(key, shard, exec);
    exec.out.bytes.extend_from_slice(b"\r\n");
}

/// Appends a value as a bulk string, copied.
pub(super) fn copy_value(value: Value<'_>, session: &Session, exec: &mut Exec<'_>) {
    reply(session, exec).bulk_header(value.len());
    value.append_to(&mut exec.out.bytes);
    exec.out.bytes.extend_from_slice(b"\r\n");
}
