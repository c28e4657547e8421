//! MULTI, EXEC, DISCARD, WATCH, UNWATCH.
//!
//! A queued command is kept as it was sent and parsed again when it is executed. All locks that the transaction needs are
//! taken first, in ascending order, so for everybody else it happens at once.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_flash::{Listing, SegmentRead};
use tidemark_plane::Purpose;
use tidemark_protocol::number::append_u64;
use tidemark_protocol::resp::command::{CommandId, Row, resolve};
use tidemark_protocol::resp::{ArgList, Args, Limits, Parsed, error, options, parse};
use tidemark_store::{DATABASES, KEY_BYTES_MAX};

use super::answer::{Done, Failure, drop_unwanted, fail, reply, too_large_reply};
use super::client::DESCRIBED_CLIENT_BYTES;
use super::dispatch::{Call, Family, Handler, needs_every_shard, perform_within};
use super::scripts;
use super::strings::AROUND_VALUE_BYTES;
use super::{below, check_size, purpose};
use crate::access::Access;
use crate::counts::{Count, Stage};
use crate::limits::{OWN_REPLY_BYTES, TRANSACTION_KEY_BYTES, TURN_CLIENTS, WATCHED_KEYS};
use crate::process::Process;
use crate::progress::Progress;
use crate::session::{Exec, Session};
use crate::suspend::{self, Segment, Wait};
use crate::tenant::Tenant;
use crate::transaction::{ENTRY_BYTES, Transaction};

pub(super) const HANDLERS: Family = &[
    (CommandId::Multi, Handler::Session(multi)),
    (CommandId::Exec, Handler::Session(execute)),
    (CommandId::Discard, Handler::Session(discard)),
    (CommandId::Watch, Handler::Session(watch)),
    (CommandId::Unwatch, Handler::Session(unwatch)),
];

/// Redis's words for commands that a transaction cannot have.
const NOT_IN_TRANSACTION: &str = "ERR Command not allowed inside a transaction";

/// The answer to a command that needs more than its keys in a transaction with a script, or to that script.
const NOT_WITH_SCRIPT: &str =
    "ERR a transaction with a script can have only commands that a script may call, and other scripts";

/// The answer to a transaction of which not all keys stay in memory together until its shards are locked.
const ON_FLASH: &str = "TRYAGAIN keys of the transaction went to flash again before it could be executed";

/// Whether the connection is between MULTI and EXEC.
pub(super) fn is_open(session: &Session) -> bool {
    session
        .transaction
        .as_ref()
        .is_some_and(|transaction| transaction.is_open)
}

/// The answer to a command that was refused before it was executed or queued. EXEC will refuse all. If it is EXEC
/// itself, the queued commands and watched keys end with it.
pub(super) fn refused<'a>(row: Option<&Row>, failure: Failure<'a>, session: &mut Session) -> Failure<'a> {
    if row.is_some_and(|row| row.id == CommandId::Exec) {
        forget(session);
        return Failure::Own(Cow::Owned(format!(
            "EXECABORT Transaction discarded because of: {}",
            failure.reason()
        )));
    }
    if let Some(transaction) = session.transaction.as_mut().filter(|transaction| transaction.is_open) {
        transaction.is_broken = true;
    }
    failure
}

/// Forgets the queued commands and watched keys.
pub(super) fn forget(session: &mut Session) -> Option<Box<Transaction>> {
    session.client.queued.store(0, Ordering::Relaxed);
    session.client.watches.store(0, Ordering::Relaxed);
    session.transaction.take()
}

/// Queues a command. `raw` is how it was sent.
pub(super) fn queue<'a>(call: Call<'a>, raw: &[u8], session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    // The tenant whose shards are locked cannot become another one in between.
    if matches!(call.row.id, CommandId::Auth | CommandId::Hello) {
        return Err(Failure::Own(Cow::Borrowed(NOT_IN_TRANSACTION)));
    }
    let (Some(transaction), Some(tenant)) = (&mut session.transaction, &session.tenant) else {
        return Ok(());
    };
    if transaction.is_broken {
        // It will never be executed, so it need not be kept.
        return Ok(());
    }
    let is_script = scripts::is_script(call.row.id);
    let needs_session = !is_script && !scripts::may_call(call.row);
    if (is_script || transaction.has_script) && (needs_session || transaction.needs_session) {
        return Err(Failure::Own(Cow::Borrowed(NOT_WITH_SCRIPT)));
    }
    scripts::check_script(call)?;
    let keys = || call.row.key_places(call.args).map(|place| call.args.arg(place));
    let key_bytes = keys().map(<[u8]>::len).sum();
    let command = as_array(call.args, raw);
    transaction.check(command.len(), key_bytes)?;
    // Memory for it is taken before it is kept; taken and held memory is settled when the visit ends.
    let is_small = transaction.memory_bytes() + command.len() <= OWN_REPLY_BYTES;
    if !is_small && !exec.room.take((command.len() + ENTRY_BYTES) as u64) {
        return Err(no_memory("send what is queued, or try again later", exec));
    }
    if transaction.changes_db || needs_every_shard(call.row) {
        transaction.need_all();
    }
    for key in keys() {
        transaction.need(tenant.store.shard_of(tenant.store.key(session.db, key).hash));
    }
    transaction.has_script |= is_script;
    transaction.needs_session |= needs_session;
    transaction.changes_db |= call.row.id == CommandId::Select;
    transaction.asks_for_process |= call.row.id == CommandId::Info;
    transaction.queue(command, key_bytes);
    session
        .client
        .queued
        .store(transaction.queued().len() as u32 + 1, Ordering::Relaxed);
    Ok(())
}

/// Why a command is not queued, or keys are not watched: there is no memory to keep them.
#[cold]
fn no_memory(advice: &str, exec: &mut Exec<'_>) -> Failure<'static> {
    exec.counts.add(Count::RefusedReplies, 1);
    Failure::Own(Cow::Owned(format!(
        "ERR the memory for connections is used up: {advice}"
    )))
}

/// A command as an array: as it was sent, if it was not an inline one.
fn as_array(args: Args<'_>, raw: &[u8]) -> Box<[u8]> {
    if raw.first() == Some(&b'*') {
        return raw.into();
    }
    array_of(args.from(0)).into()
}

/// An array of bulk strings.
pub(super) fn array_of<'a>(args: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut array = vec![b'*'];
    append_u64(&mut array, args.len() as u64);
    for arg in args {
        array.extend_from_slice(b"\r\n$");
        append_u64(&mut array, arg.len() as u64);
        array.extend_from_slice(b"\r\n");
        array.extend_from_slice(arg);
    }
    array.extend_from_slice(b"\r\n");
    array
}

fn multi<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if is_open(session) {
        return Err(error::NESTED_MULTI.into());
    }
    session.transaction.get_or_insert_default().is_open = true;
    session.client.queued.store(1, Ordering::Relaxed);
    reply(session, exec).ok();
    Ok(())
}

fn discard<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if !is_open(session) {
        return Err(error::DISCARD_WITHOUT_MULTI.into());
    }
    forget(session);
    reply(session, exec).ok();
    Ok(())
}

fn watch<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if is_open(session) {
        return Err(error::WATCH_IN_MULTI.into());
    }
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    // Memory is taken before the keys are kept, as for queued commands.
    let new_bytes: usize = call.args.from(1).map(|key| key.len() + ENTRY_BYTES).sum();
    let is_small = session.held_bytes() + new_bytes <= OWN_REPLY_BYTES;
    let is_bounded = new_bytes <= TRANSACTION_KEY_BYTES + WATCHED_KEYS * ENTRY_BYTES;
    if is_bounded && !is_small && !exec.room.take(new_bytes as u64) {
        return Err(no_memory("watch fewer keys, or try again later", exec));
    }
    tenant.store.flush_if_due(exec.now);
    let transaction = session.transaction.get_or_insert_default();
    let outcome = transaction.watch(&tenant.store, session.db, call.args.from(1), exec.now);
    let watches = transaction.watched_keys();
    session.client.watches.store(watches as u32, Ordering::Relaxed);
    if watches == 0 {
        session.transaction = None;
    }
    outcome?;
    reply(session, exec).ok();
    Ok(())
}

fn unwatch<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if let Some(transaction) = &mut session.transaction {
        transaction.unwatch();
        if !transaction.is_open {
            session.transaction = None;
        }
    }
    session.client.watches.store(0, Ordering::Relaxed);
    reply(session, exec).ok();
    Ok(())
}

/// EXEC. Replies that the client did not want have been dropped as they were appended: it may change its mind in
/// between.
fn execute<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if let Some(progress) = exec.visit.progress.take() {
        // A reply of a transaction with a script, which waits for it. Nothing in it changes which replies the client wants.
        let mark = exec.out.bytes.len();
        let done = scripts::go_on(*progress, exec);
        drop_unwanted(mark, session, exec);
        return done;
    }
    if !is_open(session) {
        return Err(error::EXEC_WITHOUT_MULTI.into());
    }
    let has_script = session
        .transaction
        .as_ref()
        .is_some_and(|transaction| transaction.has_script && !transaction.is_broken);
    if let Some(transaction) = has_script.then(|| forget(session)).flatten() {
        return scripts::submit_transaction(transaction, session, exec);
    }
    // It is there while it is open.
    let Some(transaction) = session.transaction.take() else {
        return Ok(());
    };
    let outcome = execute_all(&transaction, session, exec);
    if matches!(outcome, Err(Failure::Later)) {
        // It waits for memory for its reply, or for flash.
        session.transaction = Some(transaction);
    } else {
        forget(session);
    }
    outcome
}

/// Executes the queued commands. Memory for the whole reply is taken before any of it is executed.
fn execute_all(transaction: &Transaction, session: &mut Session, exec: &mut Exec<'_>) -> Done<'static> {
    if transaction.is_broken {
        return Err(error::EXEC_ABORT.into());
    }
    // A transaction that waited for memory counted nothing.
    exec.visit.pass();
    let tenant = session.tenant.clone().ok_or(error::NO_AUTH)?;
    tenant.store.flush_if_due(exec.now);
    if transaction.asks_for_process {
        // The system is asked now, so that it need not be while shards are locked.
        Process::recent();
    }
    // The transaction is declared before and so ends after this, which its watches' shards must not be locked for.
    let mut access = Access::each(&tenant.store);
    access.hold(transaction.shards().with(transaction.watched_shards()));
    let mark = exec.out.bytes.len();
    if transaction.has_changed(&mut access, exec.now) {
        reply(session, exec).null_array();
        drop_unwanted(mark, session, exec);
        return Ok(());
    }
    if went_to_flash(transaction, session, &tenant, &mut access, exec)? {
        return Err(Failure::Later);
    }
    let bytes = reply_bytes(transaction, session.db, &mut access, exec);
    if bytes > exec.reply_bytes_max() {
        return Err(too_large_reply(exec));
    }
    if !exec.may_answer(bytes) {
        return Err(Failure::Later);
    }
    exec.visit.promise(exec.out.len() + bytes, true);
    reply(session, exec).array(transaction.queued().len());
    drop_unwanted(mark, session, exec);
    let mut list = ArgList::new();
    let mut ahead = transaction.ahead.get().and_then(|segment| segment.take().well());
    for command in transaction.queued() {
        execute_one(command, &mut list, &mut ahead, session, &mut access, exec);
    }
    exec.visit.end_promise();
    Ok(())
}

/// A key of a transaction.
type Named = (u8, Box<[u8]>, Purpose);

/// The keys of a transaction, watched ones included, and the segment of flash that its first SCAN begins in.
fn needs(transaction: &Transaction, mut db: u8, tenant: &Tenant) -> (Vec<Named>, Option<SegmentRead>) {
    let watched = transaction
        .watched()
        .map(|(db, key)| (db, Box::from(key), Purpose::Other));
    let mut keys: Vec<Named> = watched.collect();
    let mut list = ArgList::new();
    let mut segment = None;
    for command in transaction.queued() {
        parse(command, &Limits::with_value_bytes(command.len()), &mut list);
        let args = list.args(command);
        let Ok(row) = resolve(args) else { continue };
        db = selected(row.id, args).unwrap_or(db);
        let purpose = purpose(row.id);
        keys.extend(row.key_places(args).map(|place| (db, args.arg(place).into(), purpose)));
        if row.id == CommandId::Scan && segment.is_none() {
            segment = below::segment_of(args, tenant);
        }
    }
    (keys, segment)
}

/// Asks for what a transaction needs of flash. Whether that has to be waited for.
pub(super) fn seeks(tenant: &Tenant, session: &Session, exec: &mut Exec<'_>) -> bool {
    let Some(transaction) = session
        .transaction
        .as_deref()
        .filter(|one| one.is_open && !one.is_broken)
    else {
        return false;
    };
    let (keys, segment) = needs(transaction, session.db, tenant);
    // First, since items that came into memory may be gone from there while a segment is waited for.
    segment.is_some_and(|segment| awaits_segment(segment, transaction, exec))
        || exec.seek_all(tenant, keys.iter().map(|(db, key, purpose)| (*db, &**key, *purpose)))
}

/// Whether some keys of a transaction went to flash again before its shards were locked. They are waited for a few times.
fn went_to_flash(
    transaction: &Transaction,
    session: &Session,
    tenant: &Tenant,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<bool, Failure<'static>> {
    if tenant.tier.is_none() {
        return Ok(false);
    }
    let (keys, _) = needs(transaction, session.db, tenant);
    let now = exec.now;
    let mut gone = keys.iter().filter_map(|(db, bytes, purpose)| {
        let key = access.store().key(*db, bytes);
        suspend::seek(tenant, access.shard_of(key.hash), &key, *purpose, now)
    });
    let Some(first) = gone.next() else {
        return Ok(false);
    };
    if transaction.has_tried_enough() {
        return Err(Failure::Own(Cow::Borrowed(ON_FLASH)));
    }
    let waits = &mut exec.visit.waits;
    waits.push(first);
    while !waits.is_full()
        && let Some(wait) = gone.next()
    {
        waits.push(wait);
    }
    Ok(true)
}

/// Has a transaction wait for a segment, once.
fn awaits_segment(read: SegmentRead, transaction: &Transaction, exec: &mut Exec<'_>) -> bool {
    let segment = Arc::new(Segment::new(read));
    let is_first = transaction.ahead.set(Arc::clone(&segment)).is_ok();
    is_first && exec.visit.waits.push(Wait::Segment(segment))
}

/// The database that a command selects, if it does.
fn selected(id: CommandId, args: Args<'_>) -> Option<u8> {
    let number = (id == CommandId::Select).then(|| options::database(args.arg(1), DATABASES as u32));
    // Below the number of databases, which is a small one.
    number?.ok().map(|number| number as u8)
}

/// The reply to a queued command that has neither a value nor a description.
const PLAIN_REPLY_BYTES: usize = 256;

/// How long the reply to a transaction is, at most, if its own writes make no value longer. Its shards are locked.
fn reply_bytes(transaction: &Transaction, mut db: u8, access: &mut Access<'_>, exec: &Exec<'_>) -> usize {
    let mut list = ArgList::new();
    let mut bytes = 0;
    for command in transaction.queued() {
        let limits = Limits::with_value_bytes(command.len());
        parse(command, &limits, &mut list);
        let args = list.args(command);
        let Ok(row) = resolve(args) else {
            bytes += PLAIN_REPLY_BYTES;
            continue;
        };
        db = selected(row.id, args).unwrap_or(db);
        bytes += PLAIN_REPLY_BYTES + check_size(Call { args, row }).unwrap_or(0);
        if row.id == CommandId::RandomKey {
            bytes += KEY_BYTES_MAX;
        }
        if row.id == CommandId::ClientList {
            bytes += TURN_CLIENTS * DESCRIBED_CLIENT_BYTES;
        }
        if answers_values(row.id) {
            for place in row.key_places(args) {
                let key = access.store().key(db, args.arg(place));
                let found = access.shard_of(key.hash).peek(&key, exec.now);
                bytes += AROUND_VALUE_BYTES + found.map_or(0, |found| found.value().len());
            }
        }
    }
    bytes
}

/// Whether a command answers the values of its keys, or parts of them.
fn answers_values(id: CommandId) -> bool {
    use CommandId as Id;
    matches!(
        id,
        Id::Get | Id::GetDel | Id::GetEx | Id::GetSet | Id::Set | Id::MGet | Id::GetRange | Id::Substr
    )
}

/// Executes a queued command.
fn execute_one(
    command: &[u8],
    list: &mut ArgList,
    ahead: &mut Option<Listing>,
    session: &mut Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) {
    let mark = exec.out.bytes.len();
    // It was found whole and allowed when it was queued.
    let limits = Limits::with_value_bytes(command.len());
    if !matches!(parse(command, &limits, list), Parsed::Complete { .. }) {
        return fail(&error::SYNTAX.into(), None, Stage::Execution, mark, session, exec);
    }
    let args = list.args(command);
    let row = match resolve(args) {
        Ok(row) => row,
        Err(error) => return fail(&error.into(), None, Stage::Execution, mark, session, exec),
    };
    let call = Call { args, row };
    let before = exec.counts.before();
    if row.id == CommandId::Scan {
        exec.visit.progress = Some(Box::new(Progress::Ahead(ahead.take())));
    }
    let done = check_size(call)
        .map_err(Failure::from)
        .and_then(|_| perform_within(call, session, access, exec));
    exec.visit.progress = None;
    if let Err(failure) = done {
        fail(&failure, Some(row), Stage::Execution, mark, session, exec);
    }
    exec.counts.command(row.id, before);
    drop_unwanted(mark, session, exec);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inline_command_is_queued_as_an_array() {
        for (sent, kept) in [
            (
                &b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"[..],
                &b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"[..],
            ),
            (b"get  a\r\n", b"*2\r\n$3\r\nget\r\n$1\r\na\r\n"),
            (b"set \"a b\" ''\n", b"*3\r\n$3\r\nset\r\n$3\r\na b\r\n$0\r\n\r\n"),
        ] {
            let mut list = ArgList::new();
            let limits = Limits::with_value_bytes(1 << 20);
            assert_eq!(
                parse(sent, &limits, &mut list),
                Parsed::Complete { consumed: sent.len() }
            );
            assert_eq!(
                as_array(list.args(sent), sent).escape_ascii().to_string(),
                kept.escape_ascii().to_string()
            );
        }
    }
}
