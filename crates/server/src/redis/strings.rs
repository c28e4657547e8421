//! Whole values: GET, SET and their like.

use tidemark_protocol::resp::command::{CommandId, Row};
use tidemark_protocol::resp::options::{self, GetExOption, SetCondition, SetExpiry, Unit};
use tidemark_protocol::resp::{Args, ErrorReply, error};
use tidemark_store::{Attributes, EXPIRY_MAX, Key, ShardGuard, Value};
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, append_value, copy_value, fail, no_room, reply, too_large_reply};
use super::dispatch::{Call, Family, Handler};
use super::scan::later;
use crate::access::Access;
use crate::condition::Condition;
use crate::counts::{Count, Stage};
use crate::limits::{PIN_BYTES, TRANSACTION_BYTES, TRANSACTION_COMMANDS, TURN_KEYS};
use crate::progress::Progress;
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Get, Handler::Keys(get)),
    (CommandId::Set, Handler::Keys(set_with_options)),
    (CommandId::SetNx, Handler::Keys(set_with_options)),
    (CommandId::SetEx, Handler::Keys(set_with_options)),
    (CommandId::PSetEx, Handler::Keys(set_with_options)),
    (CommandId::GetSet, Handler::Keys(get_set)),
    (CommandId::GetDel, Handler::Keys(get_del)),
    (CommandId::GetEx, Handler::Keys(get_ex)),
    (CommandId::MGet, Handler::Keys(mget)),
    (CommandId::MSet, Handler::Keys(mset)),
    (CommandId::MSetNx, Handler::Keys(mset_nx)),
];

/// Looks a key up for its value: counts for the hit ratio, and as a use unless the client asked for none.
#[inline]
fn look_up<'s>(
    key: &Key<'_>,
    shard: &'s mut ShardGuard<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Option<tidemark_store::Found<'s>> {
    if exec.visit.is_counted() {
        return shard.peek(key, exec.now);
    }
    let found = if session.is_reading_quietly() {
        shard.get_unused(key, exec.now)
    } else {
        shard.get(key, exec.now)
    };
    exec.counts
        .hit_or_miss(found.is_some(), Count::GetHits, Count::GetMisses);
    found
}

/// Appends a key's value. Whether there is one; if not, nothing is appended.
///
/// # Errors
/// There is no memory for so long a reply: nothing is appended.
#[inline]
pub(super) fn fetch(
    key: &Key<'_>,
    shard: &mut ShardGuard<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Result<bool, Failure<'static>> {
    let Some(found) = look_up(key, shard, session, exec) else {
        return Ok(false);
    };
    let value = found.value();
    if !exec.may_answer(value.len()) {
        return Err(no_room(exec));
    }
    match value {
        Value::Whole(bytes) if bytes.len() < PIN_BYTES => reply(session, exec).bulk(bytes),
        _ => append_value(key, shard, session, exec),
    }
    Ok(true)
}

/// `SET key value` as part of a window.
#[inline]
pub(super) fn set(key: &Key<'_>, value: &[u8], access: &mut Access<'_>, session: &Session, exec: &mut Exec<'_>) {
    exec.counts.add(Count::Sets, 1);
    match access.put(key, value, Attributes::default(), exec.now) {
        Ok(()) => reply(session, exec).ok(),
        Err(refused) => {
            let mark = exec.out.bytes.len();
            let row = tidemark_protocol::resp::command::lookup(b"set");
            fail(&refused.into(), row, Stage::Execution, mark, session, exec);
        }
    }
}

/// The options of a writing command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How<'a> {
    pub(super) row: &'static Row,
    condition: SetCondition<'a>,
    expiry: SetExpiry,
    /// The old value is the reply.
    get: bool,
}

impl How<'_> {
    /// Whether it writes whatever there is of the key, and answers nothing of that.
    pub(super) fn is_blind(&self) -> bool {
        !self.get && self.condition == SetCondition::Always && self.expiry != SetExpiry::Keep
    }

    /// The condition on the key before it is written.
    pub(super) fn condition(&self) -> Condition {
        match self.condition {
            SetCondition::Always => Condition::None,
            SetCondition::IfAbsent => Condition::Absent,
            SetCondition::IfPresent | SetCondition::IfEqual(_) => Condition::Present,
        }
    }
}

/// How SET, SETNX, SETEX or PSETEX write, and which argument is the value.
fn how<'a>(args: Args<'a>, row: &'static Row) -> Result<(usize, How<'a>), Failure<'a>> {
    let plain = How {
        row,
        condition: SetCondition::Always,
        expiry: SetExpiry::Clear,
        get: false,
    };
    let unit = match row.id {
        CommandId::SetNx => {
            return Ok((
                2,
                How {
                    condition: SetCondition::IfAbsent,
                    ..plain
                },
            ));
        }
        CommandId::SetEx => Unit::Seconds,
        CommandId::PSetEx => Unit::Milliseconds,
        _ => {
            let options = options::set(args, row)?;
            return Ok((
                2,
                How {
                    condition: options.condition,
                    expiry: options.expiry,
                    get: options.get,
                    ..plain
                },
            ));
        }
    };
    let deadline = options::set_with_time(args, row, unit)?;
    Ok((
        3,
        How {
            expiry: SetExpiry::Deadline(deadline),
            ..plain
        },
    ))
}

/// The same where nothing is borrowed from the arguments, for a window. `None` for IFEQ and for errors.
pub(super) fn plain_how(args: Args<'_>, row: &'static Row) -> Option<(usize, How<'static>)> {
    let (value_at, how) = how(args, row).ok()?;
    let condition = match how.condition {
        SetCondition::Always => SetCondition::Always,
        SetCondition::IfAbsent => SetCondition::IfAbsent,
        SetCondition::IfPresent => SetCondition::IfPresent,
        SetCondition::IfEqual(_) => return None,
    };
    Some((
        value_at,
        How {
            condition,
            row: how.row,
            expiry: how.expiry,
            get: how.get,
        },
    ))
}

/// Writes a value if the condition is met, and answers.
pub(super) fn store(
    key: &Key<'_>,
    value: &[u8],
    how: &How<'_>,
    access: &mut Access<'_>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Done<'static> {
    let deadline = match how.expiry {
        SetExpiry::Deadline(deadline) => Some(deadline.resolve(exec.now, how.row)?),
        SetExpiry::Clear | SetExpiry::Keep => None,
    };
    let needs_old = !how.is_blind();
    let found = if needs_old {
        access.shard_of(key.hash).access(key, exec.now)
    } else {
        None
    };
    if how.get {
        match &found {
            Some(found) if !exec.may_answer(found.value().len()) => return Err(no_room(exec)),
            Some(found) => copy_value(found.value(), session, exec),
            None => reply(session, exec).null(),
        }
    }
    let is_met = match how.condition {
        SetCondition::Always => true,
        SetCondition::IfAbsent => found.is_none(),
        SetCondition::IfPresent => found.is_some(),
        SetCondition::IfEqual(expected) => found.as_ref().is_some_and(|found| is_equal(&found.value(), expected)),
    };
    let old_expiry = found.and_then(|found| found.attributes().expiry);
    if is_met {
        exec.counts.add(Count::Sets, 1);
        let expiry = if how.expiry == SetExpiry::Keep {
            old_expiry
        } else {
            deadline.map(moment)
        };
        let attributes = Attributes {
            expiry,
            ..Attributes::default()
        };
        if expiry.is_some_and(|expiry| expiry <= exec.now) {
            // Written and expired at once.
            access.shard_of(key.hash).delete(key, exec.now);
        } else if needs_old {
            // Under the lock under which the old item was looked at.
            access.put_locked(key, value, attributes, exec.now)?;
        } else {
            access.put(key, value, attributes, exec.now)?;
        }
    }
    let mut reply = reply(session, exec);
    match how.row.id {
        _ if how.get => {}
        CommandId::SetNx => reply.integer(i64::from(is_met)),
        _ if is_met => reply.ok(),
        _ => reply.null(),
    }
    Ok(())
}

/// A moment in milliseconds since 1970 as the store keeps it.
pub(super) fn moment(unix_ms: i64) -> UnixMs {
    UnixMs(u64::try_from(unix_ms).unwrap_or(0)).min(EXPIRY_MAX)
}

fn is_equal(value: &Value<'_>, expected: &[u8]) -> bool {
    match value {
        Value::Whole(bytes) => *bytes == expected,
        Value::Pieces(_) => value.len() == expected.len() && value.to_vec() == expected,
    }
}

fn get<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    if !fetch(&key, access.shard_of(key.hash), session, exec)? {
        reply(session, exec).null();
    }
    Ok(())
}

/// SET, SETNX, SETEX and PSETEX.
fn set_with_options<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let (value_at, how) = how(call.args, call.row)?;
    let key = access.store().key(session.db, call.args.arg(1));
    store(&key, call.args.arg(value_at), &how, access, session, exec)
}

fn get_set<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let how = How {
        row: call.row,
        condition: SetCondition::Always,
        expiry: SetExpiry::Clear,
        get: true,
    };
    let key = access.store().key(session.db, call.args.arg(1));
    store(&key, call.args.arg(2), &how, access, session, exec)
}

fn get_del<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    if fetch(&key, shard, session, exec)? {
        shard.delete(&key, exec.now);
    } else {
        reply(session, exec).null();
    }
    Ok(())
}

fn get_ex<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let option = options::get_ex(call.args, call.row);
    if let Err(error::SYNTAX) = option {
        return Err(error::SYNTAX.into());
    }
    let key = access.store().key(session.db, call.args.arg(1));
    let shard = access.shard_of(key.hash);
    let Some(found) = look_up(&key, shard, session, exec) else {
        // As in Redis, a wrong time is an error only where there is something to expire.
        reply(session, exec).null();
        return Ok(());
    };
    let attributes = found.attributes();
    let expiry = match option? {
        GetExOption::Leave => attributes.expiry,
        GetExOption::Persist => None,
        GetExOption::Deadline(deadline) => Some(moment(deadline.resolve(exec.now, call.row)?)),
    };
    if !exec.may_answer(found.value().len()) {
        return Err(no_room(exec));
    }
    // Copied: the time may be refused for want of memory, and a value that moves cannot be pinned.
    copy_value(found.value(), session, exec);
    if expiry != attributes.expiry {
        shard.set_expiry(&key, expiry, exec.now)?;
    }
    Ok(())
}

/// MGET. The values are measured first, so that memory for the whole reply is taken, or the command refused, before any
/// of it is made. Then the reply is made in pieces, as it is sent. As a part of a transaction it was measured with
/// that.
fn mget<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let keys = call.args.from(1);
    if access.keeps_locks() {
        reply(session, exec).array(keys.len());
        return answer_keys(keys, 0, usize::MAX, session, access, exec).1;
    }
    let (next, left_bytes) = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Values { next, left_bytes }) => (next, left_bytes),
        progress => {
            // A command that waited for memory as a whole counts no key.
            exec.visit.pass();
            let (next, bytes) = match progress {
                Some(Progress::Sizes { next, bytes }) => (next, bytes),
                _ => (0, 0),
            };
            (0, measure(keys.clone(), next, bytes, session, access, exec)?)
        }
    };
    let begin = exec.out.len();
    if next == 0 {
        reply(session, exec).array(keys.len());
    }
    let most = begin + exec.visit.reply_bytes;
    // Memory that was taken for all of it is not taken again for each value.
    exec.visit.promise(begin + left_bytes, false);
    let (answered, outcome) = answer_keys(keys.clone(), next, most, session, access, exec);
    exec.visit.end_promise();
    let next = next + answered;
    if next == keys.len() {
        return Ok(());
    }
    // The rest behind the first value must not be lost if a value that became longer waits for memory.
    debug_assert!(matches!(outcome, Ok(()) | Err(Failure::Later)), "{outcome:?}");
    let left_bytes = left_bytes.saturating_sub(exec.out.len() - begin);
    exec.visit.progress = Some(Box::new(Progress::Values { next, left_bytes }));
    Err(Failure::Later)
}

/// Bytes of a reply around each value: its length and the line ends.
pub(super) const AROUND_VALUE_BYTES: usize = 16;

/// How long a reply with these keys' values is, for which memory is taken. `next` of them are measured, with that result.
fn measure<'a>(
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    mut next: usize,
    mut bytes: usize,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Result<usize, Failure<'static>> {
    let count = keys.len();
    let now = exec.now;
    access.for_each_key(session.db, keys.skip(next).take(TURN_KEYS), |shard, key| {
        bytes += AROUND_VALUE_BYTES + shard.peek(&key, now).map_or(0, |found| found.value().len());
        next += 1;
        true
    });
    if bytes > exec.reply_bytes_max() {
        return Err(too_large_reply(exec));
    }
    let is_measured = next == count;
    // A short one needs no memory of its own.
    if is_measured && exec.may_answer(bytes) {
        return Ok(bytes);
    }
    // A command that waits for memory is measured again then.
    let (next, bytes) = if is_measured { (0, 0) } else { (next, bytes) };
    exec.visit.progress = Some(Box::new(Progress::Sizes { next, bytes }));
    Err(Failure::Later)
}

/// Answers keys from the given one on, up to a turn's share or so long a reply. Returns how many are answered, and why no
/// more if one failed.
fn answer_keys<'a>(
    keys: impl ExactSizeIterator<Item = &'a [u8]>,
    next: usize,
    most: usize,
    session: &Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> (usize, Done<'static>) {
    let turn_keys = if access.keeps_locks() { usize::MAX } else { TURN_KEYS };
    let (mut answered, mut outcome) = (0, Ok(()));
    access.for_each_key(session.db, keys.skip(next).take(turn_keys), |shard, key| {
        match fetch(&key, shard, session, exec) {
            Ok(true) => {}
            Ok(false) => reply(session, exec).null(),
            Err(failure) => outcome = Err(failure),
        }
        if outcome.is_ok() {
            answered += 1;
            exec.visit.pass();
        }
        outcome.is_ok() && exec.out.len() < most
    });
    (answered, outcome)
}

/// Some of the pairs of a command's arguments.
#[derive(Clone, Copy)]
struct Pairs<'a> {
    args: Args<'a>,
    first: usize,
    end: usize,
}

impl<'a> Pairs<'a> {
    fn all(args: Args<'a>) -> Self {
        let end = (args.len() - 1) / 2;
        Self { args, first: 0, end }
    }

    fn len(self) -> usize {
        self.end - self.first
    }

    fn keys(self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (self.first..self.end).map(move |pair| self.args.arg(1 + 2 * pair))
    }

    fn values(self) -> impl Iterator<Item = &'a [u8]> {
        (self.first..self.end).map(move |pair| self.args.arg(2 + 2 * pair))
    }

    /// As many as may be written in one step, one at least: as much as a transaction may have.
    fn first_step(self) -> Self {
        let mut bytes = 0;
        let fits = |pair: &(&[u8], &[u8])| {
            bytes += pair.0.len() + pair.1.len();
            bytes <= TRANSACTION_BYTES
        };
        let pairs = self.keys().zip(self.values()).take(TRANSACTION_COMMANDS);
        let count = pairs.take_while(fits).count();
        let end = self.end.min(self.first + count.max(1));
        Self { end, ..self }
    }
}

/// Writes pairs, in shards that are locked. If one is refused, those before it are gone too, as if they had been evicted:
/// nobody sees a part of a refused step.
fn put_all<'a>(pairs: Pairs<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let mut values = pairs.values();
    let mut outcome = Ok(());
    let mut count = 0;
    access.for_each_key(session.db, pairs.keys(), |shard, key| {
        let value = values.next().unwrap_or_default();
        outcome = shard.put(&key, value, Attributes::default(), exec.now);
        count += usize::from(outcome.is_ok());
        outcome.is_ok()
    });
    exec.counts.add(Count::Sets, count as u32);
    if outcome.is_err() {
        access.for_each_key(session.db, pairs.keys().take(count), |shard, key| {
            shard.delete(&key, exec.now);
            true
        });
    }
    Ok(outcome?)
}

/// MSET. A list that a transaction could hold is one step, and a longer one several, so that no list of pairs holds
/// others up.
fn mset<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let all = Pairs::all(call.args);
    let first = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Pairs { written }) => written,
        _ => 0,
    };
    let rest = Pairs { first, ..all };
    // Transactions are as short already.
    let step = if access.keeps_locks() { rest } else { rest.first_step() };
    access.hold_keys(session.db, step.keys());
    put_all(step, session, access, exec)?;
    if step.end < all.end {
        return later(Progress::Pairs { written: step.end }, exec);
    }
    reply(session, exec).ok();
    Ok(())
}

fn mset_nx<'a>(call: Call<'a>, session: &Session, access: &mut Access<'_>, exec: &mut Exec<'_>) -> Done<'a> {
    let pairs = Pairs::all(call.args);
    // Whether all are absent is true of one moment only.
    if pairs.len() > TRANSACTION_COMMANDS {
        return Err(ErrorReply::AboveLimit("the list of pairs", TRANSACTION_COMMANDS, "pairs").into());
    }
    if pairs.first_step().end < pairs.end {
        return Err(ErrorReply::AboveLimit("the list of pairs", TRANSACTION_BYTES, "bytes").into());
    }
    access.hold_keys(session.db, pairs.keys());
    let mut all_absent = true;
    access.for_each_key(session.db, pairs.keys(), |shard, key| {
        all_absent = shard.peek(&key, exec.now).is_none();
        all_absent
    });
    if all_absent {
        put_all(pairs, session, access, exec)?;
    }
    reply(session, exec).integer(i64::from(all_absent));
    Ok(())
}
