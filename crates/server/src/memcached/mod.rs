//! Executing memcached's commands. Database 0 of the tenant; `doc/protocol.txt` of memcached 1.6.45.
//!
//! Invariant: a write that is refused for its size or for want of memory leaves no item behind that its client believes
//! replaced. The key's old item is removed, as memcached does.

mod login;
mod meta;
mod stats;
mod text;

pub(crate) use text::send_value;

use std::sync::Arc;

use tidemark_plane::{Purpose, Throttled};
use tidemark_protocol::memcached::{
    self as mc, Command, Direction, Failure, FlushAll, KeyBuffer, Limits, Meta, MetaKey, MetaMode, Parsed, Part, Verb,
    Verbosity, compose, expires, text as reply,
};
use tidemark_store::{Key, KeyHash};
use tidemark_types::{Permissions, UnixMs};

use crate::access::Access;
use crate::condition::Condition;
use crate::counts::Count;
use crate::limits::{DESCRIPTION_BYTES, LOGIN_BYTES};
use crate::session::{Exec, OpenGet, Session};
use crate::tenant::{Tenant, refused_as};

/// memcached's database among the tenant's sixteen.
pub(crate) const DB: u8 = 0;
/// The answer to `version` and `stats`: the memcached version whose protocol this is, for clients that compare, and our
/// own.
pub(crate) const VERSION: &str = concat!("1.6.45-tidemark-", env!("CARGO_PKG_VERSION"));

/// A command's place in [`crate::counts::VERBS`].
#[inline]
pub(crate) fn verb(command: &Command<'_>) -> usize {
    match command {
        Command::Get(_) => 0,
        Command::Store(store) => match store.verb {
            Verb::Set => 1,
            Verb::Add => 2,
            Verb::Replace => 3,
            Verb::Append => 4,
            Verb::Prepend => 5,
            Verb::Cas(_) => 6,
        },
        Command::Arithmetic(arithmetic) => match arithmetic.direction {
            Direction::Increment => 7,
            Direction::Decrement => 8,
        },
        Command::Touch(_) => 9,
        Command::Delete(_) => 10,
        Command::FlushAll(_) => 11,
        Command::MetaGet(_) => 12,
        Command::MetaSet(_) => 13,
        Command::MetaDelete(_) => 14,
        Command::MetaArithmetic(_) => 15,
        Command::Version
        | Command::Verbosity(_)
        | Command::Stats(_)
        | Command::Quit
        | Command::MetaDebug(_)
        | Command::MetaNoop => 16,
    }
}

/// The limits of a command of this connection.
fn limits(session: &Session) -> Limits {
    if session.needs_login() {
        return Limits {
            value_bytes: LOGIN_BYTES,
            long_key_lines: false,
        };
    }
    Limits::default()
}

/// Parses what comes next of a connection.
#[inline]
pub(crate) fn parse<'a>(input: &'a [u8], session: &Session) -> Parsed<'a> {
    match &session.open_get {
        Some(open) => mc::parse_keys(input, &open.get),
        None => mc::parse(input, &limits(session)),
    }
}

/// The key of a command that goes through a window; `None` for one that must be executed by itself.
pub(crate) fn step_key<'a>(command: &Command<'a>, session: &mut Session) -> Option<&'a [u8]> {
    let is_first = !std::mem::replace(&mut session.has_begun, true);
    if session.needs_login() || !session.permissions.allows(command.permissions()) {
        return None;
    }
    match command {
        Command::Get(get) if get.part == Part::Whole && get.keys.len() == 1 => Some(get.keys.first()),
        Command::Store(store) if is_first && login::is_login(store) => {
            // Executed by itself, as a login.
            session.has_begun = false;
            None
        }
        Command::Store(store) => Some(store.key),
        Command::Arithmetic(arithmetic) => Some(arithmetic.key),
        Command::Touch(touch) => Some(touch.key),
        Command::Delete(delete) => Some(delete.key),
        Command::MetaGet(meta) | Command::MetaDelete(meta) => plain_key(meta),
        Command::MetaSet(set) => plain_key(&set.meta),
        Command::MetaArithmetic(arithmetic) => plain_key(&arithmetic.meta),
        _ => None,
    }
}

/// The value that a command of a window stores as it is, and the condition.
pub(crate) fn stored_value<'a>(command: &Command<'a>) -> Option<(&'a [u8], Condition)> {
    match command {
        Command::Store(store) => {
            let condition = match store.verb {
                Verb::Set => Condition::None,
                Verb::Add => Condition::Absent,
                Verb::Replace | Verb::Cas(_) => Condition::Present,
                Verb::Append | Verb::Prepend => return None,
            };
            Some((store.value, condition))
        }
        Command::MetaSet(set) => {
            let condition = match set.mode {
                MetaMode::Add => Condition::Absent,
                MetaMode::Append | MetaMode::Prepend => return None,
                MetaMode::Set if set.meta.flags.compare_cas().is_none() => Condition::None,
                MetaMode::Set | MetaMode::Replace => Condition::Present,
            };
            Some((set.value, condition))
        }
        _ => None,
    }
}

/// The key of such a command.
pub(crate) fn stored_key<'a>(command: &Command<'a>) -> &'a [u8] {
    match command {
        Command::Store(store) => store.key,
        Command::MetaSet(set) => set.meta.key.sent,
        _ => &[],
    }
}

/// Whether a command of a window writes whatever there is of its key, and answers nothing of that.
pub(crate) fn is_blind(command: &Command<'_>) -> bool {
    matches!(stored_value(command), Some((_, Condition::None)))
}

/// The key of a command of a window.
pub(crate) fn only_key<'a>(command: &Command<'a>) -> &'a [u8] {
    match command {
        Command::Get(get) => get.keys.first(),
        Command::Store(store) => store.key,
        Command::Arithmetic(arithmetic) => arithmetic.key,
        Command::Touch(touch) => touch.key,
        Command::Delete(delete) => delete.key,
        Command::MetaGet(meta) | Command::MetaDelete(meta) => meta.key.sent,
        Command::MetaSet(set) => set.meta.key.sent,
        Command::MetaArithmetic(arithmetic) => arithmetic.meta.key.sent,
        // These go through no window.
        _ => &[],
    }
}

/// Whether a command is a get.
pub(crate) fn purpose(command: &Command<'_>) -> Purpose {
    match command {
        Command::Get(_) | Command::MetaGet(_) => Purpose::Get,
        _ => Purpose::Other,
    }
}

/// Asks for the keys on flash of a command that is executed by itself. Whether that has to be waited for.
fn seeks(command: &Command<'_>, tenant: &Tenant, session: &Session, exec: &mut Exec<'_>) -> bool {
    let mut buffer = KeyBuffer::new();
    match command {
        Command::Get(get) if matches!(get.part, Part::Bad { .. }) || is_dropped(command, session) => false,
        Command::Get(get) => exec.seeks(tenant, (DB, Purpose::Get), get.keys.into_iter()),
        command => meta_key(command).is_some_and(|key| {
            let key = std::iter::once(key.bytes(&mut buffer));
            exec.seeks(tenant, (DB, purpose(command)), key)
        }),
    }
}

/// The key of a meta command.
fn meta_key<'c, 'a>(command: &'c Command<'a>) -> Option<&'c MetaKey<'a>> {
    match command {
        Command::MetaGet(meta) | Command::MetaDelete(meta) => Some(&meta.key),
        Command::MetaSet(set) => Some(&set.meta.key),
        Command::MetaArithmetic(arithmetic) => Some(&arithmetic.meta.key),
        Command::MetaDebug(key) => Some(key),
        _ => None,
    }
}

/// The key of a command that is executed by itself and has one at most.
pub(crate) fn single_key<'b>(command: &Command<'b>, buffer: &'b mut KeyBuffer) -> Option<&'b [u8]> {
    match command {
        Command::Store(store) => Some(store.key),
        command => meta_key(command).map(|key| key.bytes(buffer)),
    }
}

/// A meta command's key, if it was sent as it is.
fn plain_key<'a>(meta: &Meta<'a>) -> Option<&'a [u8]> {
    (!meta.key.encoded).then_some(meta.key.sent)
}

/// Executes a command of a window.
pub(crate) fn execute_step(command: &Command<'_>, hash: KeyHash, access: &mut Access<'_>, exec: &mut Exec<'_>) {
    access.flush_if_due(exec.now);
    let before = exec.counts.before();
    let key = |bytes| Key { db: DB, bytes, hash };
    match command {
        Command::Get(get) => {
            text::get_one(get, &key(get.keys.first()), access, exec);
        }
        Command::Store(store) => text::store(store, &key(store.key), access, exec),
        Command::Arithmetic(arithmetic) => text::arithmetic(arithmetic, &key(arithmetic.key), access, exec),
        Command::Touch(touch) => text::touch(touch, &key(touch.key), access, exec),
        Command::Delete(delete) => text::delete(delete, &key(delete.key), access, exec),
        Command::MetaGet(meta) => meta::get(meta, &key(meta.key.sent), access, exec),
        Command::MetaSet(set) => meta::set(set, &key(set.meta.key.sent), access, exec),
        Command::MetaDelete(meta) => meta::delete(meta, &key(meta.key.sent), access, exec),
        Command::MetaArithmetic(arithmetic) => {
            meta::arithmetic(arithmetic, &key(arithmetic.meta.key.sent), access, exec);
        }
        // `step_key` gave no key for these.
        _ => {}
    }
    // One that waits for memory is executed again.
    if exec.visit.wait_bytes == 0 {
        exec.counts.verb(verb(command), before);
    }
}

/// Executes a command by itself. Whether it is finished: else it is to be executed again when the replies are sent.
pub(crate) fn execute(command: &Command<'_>, session: &mut Session, exec: &mut Exec<'_>) -> bool {
    let is_first = !std::mem::replace(&mut session.has_begun, true);
    if !matches!(command, Command::Store(store) if login::is_login(store))
        && let Some(tenant) = session.turned_away_by.take()
    {
        login::refuse_connection(&tenant, session, exec);
        return true;
    }
    if let Command::Store(store) = command
        && (session.needs_login() || (is_first && login::is_login(store)))
    {
        return login::log_in(store, session, exec);
    }
    if let Command::Quit = command {
        session.is_ending = true;
        return true;
    }
    let Some(tenant) = session.tenant.clone() else {
        exec.out.bytes.extend_from_slice(reply::UNAUTHENTICATED);
        session.is_ending = true;
        return true;
    };
    if !session.permissions.allows(command.permissions()) {
        exec.counts.add(Count::Denied, 1);
        if !is_dropped(command, session) {
            append_unless(command.has_noreply(), reply::NOT_PERMITTED, exec);
        }
        drop_line(command, session);
        return true;
    }
    let access = &mut Access::each(&tenant.store);
    access.flush_if_due(exec.now);
    if tenant.tier.is_some() {
        access.pause();
        if seeks(command, &tenant, session, exec) {
            if exec.is_kept_from_flash(&tenant) {
                refuse(command, &Throttled::for_flash(), exec);
                drop_line(command, session);
                return true;
            }
            return false;
        }
    }
    // The rest of one whose beginning was answered, or whose line goes on, is not another one.
    let before = exec.counts.goes_on(std::mem::take(&mut session.so_far));
    let is_finished = perform(command, &tenant, access, session, exec);
    let is_followed = matches!(command, Command::Get(get) if get.part.is_followed());
    if is_finished && !is_followed {
        exec.counts.verb(verb(command), before);
    } else {
        session.so_far = exec.counts.so_far(before);
    }
    is_finished
}

/// Executes a command that is allowed. Whether it is finished.
fn perform(
    command: &Command<'_>,
    tenant: &Arc<Tenant>,
    access: &mut Access<'_>,
    session: &mut Session,
    exec: &mut Exec<'_>,
) -> bool {
    match command {
        Command::Get(get) => {
            if is_dropped(command, session) {
                drop_line(command, session);
            } else if let Part::Bad { .. } = get.part {
                exec.counts.add(Count::Errors, 1);
                exec.out.bytes.extend_from_slice(reply::BAD_FORMAT);
                drop_line(command, session);
            } else {
                let answered = text::get_many(get, session.keys_answered, access, exec);
                session.keys_answered = answered.unwrap_or(0);
                if answered.is_none() {
                    session.open_get = open_get(get, false);
                }
                return answered.is_none();
            }
        }
        Command::FlushAll(flush) => return flush_all(flush, session, exec),
        Command::Version => compose::version(&mut exec.out.bytes, VERSION),
        // There are no levels to choose from: the operator chooses the log's content.
        Command::Verbosity(Verbosity { noreply, .. }) => append_unless(*noreply, reply::OK, exec),
        Command::Stats(wanted) => {
            if !exec.may_answer(DESCRIPTION_BYTES) {
                return false;
            }
            stats::answer(wanted, tenant, exec);
        }
        Command::MetaDebug(key) => meta::debug(*key, access, exec),
        Command::MetaNoop => exec.out.bytes.extend_from_slice(reply::META_NOOP),
        Command::MetaGet(meta) => {
            with_key(meta, access, |key, access| meta::get(meta, key, access, exec));
            return exec.visit.wait_bytes == 0;
        }
        Command::MetaSet(set) => {
            with_key(&set.meta, access, |key, access| meta::set(set, key, access, exec));
        }
        Command::MetaDelete(meta) => {
            with_key(meta, access, |key, access| meta::delete(meta, key, access, exec));
        }
        Command::MetaArithmetic(arithmetic) => {
            with_key(&arithmetic.meta, access, |key, access| {
                meta::arithmetic(arithmetic, key, access, exec);
            });
        }
        // These go through windows.
        Command::Store(_) | Command::Arithmetic(_) | Command::Touch(_) | Command::Delete(_) | Command::Quit => {}
    }
    true
}

/// The state of a line of keys when one of its parts is over.
fn open_get(get: &mc::Get<'_>, is_dropped: bool) -> Option<OpenGet> {
    let open = mc::OpenGet {
        with_cas: get.with_cas,
        touch: get.touch,
    };
    get.part.is_followed().then_some(OpenGet { get: open, is_dropped })
}

/// Whether a command is a further part of a line of keys that was refused, and answered, before.
fn is_dropped(command: &Command<'_>, session: &Session) -> bool {
    matches!(command, Command::Get(_)) && session.open_get.is_some_and(|open| open.is_dropped)
}

/// Drops what follows of a refused command's line, if that is one of keys that goes on.
pub(crate) fn drop_line(command: &Command<'_>, session: &mut Session) {
    if let Command::Get(get) = command {
        session.open_get = open_get(get, true);
    }
}

/// Calls `f` with a meta command's key, decoded.
fn with_key(meta: &Meta<'_>, access: &mut Access<'_>, f: impl FnOnce(&Key<'_>, &mut Access<'_>)) {
    let mut buffer = KeyBuffer::new();
    let key = access.store().key(DB, meta.key.bytes(&mut buffer));
    f(&key, access);
}

/// Whether it is finished.
fn flush_all(flush: &FlushAll, session: &Session, exec: &mut Exec<'_>) -> bool {
    let is_done = exec.visit.progress.take().is_some();
    if let Some(tenant) = session.tenant.as_ref().filter(|_| !is_done) {
        exec.counts.add(Count::Flushes, 1);
        match expires(flush.delay, exec.now) {
            mc::Expires::At(at) if at > exec.now => tenant.store.flush_at(at),
            _ => {
                // A flush that was to come later is replaced, too.
                tenant.store.flush_at(UnixMs(u64::MAX));
                tenant.store.flush(Some(DB), exec.now);
                if exec.awaits_flush(tenant) {
                    return false;
                }
            }
        }
    }
    append_unless(flush.noreply, reply::OK, exec);
    true
}

/// The number of operations of a command: each of its keys is one. A login counts none, and neither does the rest of a
/// `get` whose beginning was answered. `mn` counts none, since clients wait for it behind commands that have no answer.
pub(crate) fn operations(command: &Command<'_>, session: &Session) -> u64 {
    match command {
        Command::Quit | Command::MetaNoop => 0,
        // Not begun yet: a login.
        Command::Store(_) if !session.has_begun => 0,
        Command::Get(_) if session.keys_answered > 0 || is_dropped(command, session) => 0,
        Command::Get(get) => get.keys.len() as u64,
        _ => 1,
    }
}

/// Whether a command may make an item, or a longer one. Deleting and touching do not.
pub(crate) fn adds_data(command: &Command<'_>) -> bool {
    matches!(
        command,
        Command::Store(_) | Command::Arithmetic(_) | Command::MetaSet(_) | Command::MetaArithmetic(_)
    )
}

/// Answers a command that is above a limit of its tenant's.
#[cold]
pub(crate) fn refuse(command: &Command<'_>, refused: &Throttled, exec: &mut Exec<'_>) {
    exec.counts.add(refused_as(refused), 1);
    append_unless(
        command.has_noreply(),
        format!("SERVER_ERROR {refused}\r\n").as_bytes(),
        exec,
    );
}

/// Answers the beginning of `input`, which is no command. Before login nothing is received only to be dropped.
pub(crate) fn fail(failure: &Failure, input: &[u8], session: &mut Session, exec: &mut Exec<'_>) {
    let is_first = !std::mem::replace(&mut session.has_begun, true);
    if is_first && login::is_meant(input) {
        let peer = session.client.peer;
        exec.shared.tenants.note_failed_login(None, peer, exec.now);
        session.is_ending = true;
    }
    exec.counts.add(Count::Errors, 1);
    session.is_ending |= failure.close || session.needs_login();
    match session.turned_away_by.take() {
        Some(tenant) => login::refuse_connection(&tenant, session, exec),
        None => exec.out.bytes.extend_from_slice(failure.reply),
    }
}

/// Answers a storage command whose value is above the limit. The item of its key is out of date, and removed.
pub(crate) fn fail_too_large(
    failure: &Failure,
    key: MetaKey<'_>,
    input: &[u8],
    session: &mut Session,
    exec: &mut Exec<'_>,
) {
    let is_data = session.has_begun || !login::is_meant(input);
    if is_data
        && session.permissions.allows(Permissions::WRITE)
        && let Some(tenant) = &session.tenant
    {
        exec.counts.add(Count::TooLarge, 1);
        let access = &mut Access::each(&tenant.store);
        access.flush_if_due(exec.now);
        let mut buffer = KeyBuffer::new();
        let key = access.store().key(DB, key.bytes(&mut buffer));
        access.shard_of(key.hash).delete(&key, exec.now);
    }
    fail(failure, input, session, exec);
}

fn append_unless(noreply: bool, text: &[u8], exec: &mut Exec<'_>) {
    if !noreply {
        exec.out.bytes.extend_from_slice(text);
    }
}

/// The meaning of an expiration time for an item that is written now: `Err` if it would be expired at once.
fn expiry(exptime: i64, now: UnixMs) -> Result<Option<UnixMs>, ()> {
    match expires(exptime, now) {
        mc::Expires::Never => Ok(None),
        mc::Expires::At(at) if at > now => Ok(Some(at.min(tidemark_store::EXPIRY_MAX))),
        mc::Expires::At(_) | mc::Expires::Already => Err(()),
    }
}
