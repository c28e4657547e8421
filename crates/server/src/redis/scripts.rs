//! EVAL and its like, SCRIPT: scripts that run on threads of their own ([`crate::scripts`]) while their connections wait.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemark_protocol::resp::command::{CommandId, Flags, Row, counted_keys};
use tidemark_protocol::resp::{ErrorReply, error};

use super::answer::{Done, Failure, no_room, reply};
use super::dispatch::{Call, Family, Handler};
use crate::limits::{OWN_REPLY_BYTES, SCRIPT_BYTES_KNOWN, SCRIPTS_WAITING};
use crate::progress::Progress;
use crate::scripts::{Caller, Handle, Job, Kind};
use crate::session::{Exec, Session};
use crate::suspend::Wait;
use crate::tenant::Tenant;
use crate::transaction::{ENTRY_BYTES, Transaction};

pub(super) const HANDLERS: Family = &[
    (CommandId::Eval, Handler::Session(eval)),
    (CommandId::EvalSha, Handler::Session(eval)),
    (CommandId::EvalRo, Handler::Session(eval)),
    (CommandId::EvalShaRo, Handler::Session(eval)),
    (CommandId::ScriptLoad, Handler::Session(load)),
    (CommandId::ScriptExists, Handler::Session(exists)),
    (CommandId::ScriptFlush, Handler::Session(flush)),
    (CommandId::ScriptKill, Handler::Session(kill)),
];

/// Whether a command runs a script, or makes one known.
pub(super) fn is_script(id: CommandId) -> bool {
    use CommandId::{Eval, EvalRo, EvalSha, EvalShaRo, ScriptLoad};
    matches!(id, Eval | EvalSha | EvalRo | EvalShaRo | ScriptLoad)
}

/// Whether a script may call a command: one of which its keys are known, or that needs none.
pub(crate) fn may_call(row: &Row) -> bool {
    let is_keyless = matches!(row.id, CommandId::Ping | CommandId::Echo | CommandId::Time);
    !row.flags.has(Flags::NOSCRIPT) && (row.keys.first > 0 || is_keyless)
}

/// Has a transaction with scripts run, and its connection wait for it.
pub(super) fn submit_transaction<'a>(
    transaction: Box<Transaction>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    let bytes = transaction.memory_bytes();
    let kind = Kind::Transaction(Mutex::new(transaction));
    let job = Job::new(caller(tenant, session), false, Arc::default(), kind);
    start(Handle { job, bytes }, exec)
}

/// EVAL, EVALSHA, EVAL_RO and EVALSHA_RO.
fn eval<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if let Some(progress) = exec.visit.progress.take() {
        return go_on(*progress, exec);
    }
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    let keys_at = counted_keys(call.args)?;
    let is_by_name = matches!(call.row.id, CommandId::EvalSha | CommandId::EvalShaRo);
    let text = if is_by_name {
        let mut known = tenant.scripts.lock();
        let known = known.as_mut().and_then(|known| known.find(call.args.arg(1)));
        known.ok_or(error::NO_SCRIPT)?
    } else {
        Arc::from(script_text(call.args.arg(1))?)
    };
    let kind = Kind::Run {
        keys: keys_at.clone().map(|place| call.args.arg(place).into()).collect(),
        args: call.args.from(keys_at.end).map(Into::into).collect(),
    };
    let text_bytes = if is_by_name { 0 } else { text.len() };
    let of_arguments = call.args.from(3).map(|arg| arg.len() + ENTRY_BYTES).sum::<usize>();
    submit(text, kind, text_bytes + of_arguments, call, session, exec)
}

/// SCRIPT LOAD: the text is compiled, which may take long, on the same threads.
fn load<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    if let Some(progress) = exec.visit.progress.take() {
        return go_on(*progress, exec);
    }
    let text = Arc::from(script_text(call.args.arg(2))?);
    submit(text, Kind::Load, call.args.arg(2).len(), call, session, exec)
}

/// Checks the script that a command has with it, before the command is queued.
pub(super) fn check_script(call: Call<'_>) -> Done<'static> {
    let text = match call.row.id {
        CommandId::Eval | CommandId::EvalRo => call.args.arg(1),
        CommandId::ScriptLoad => call.args.arg(2),
        _ => return Ok(()),
    };
    script_text(text).map(drop)
}

fn script_text(text: &[u8]) -> Result<&[u8], Failure<'static>> {
    if text.len() > SCRIPT_BYTES_KNOWN {
        return Err(ErrorReply::AboveLimit("a script", SCRIPT_BYTES_KNOWN, "bytes").into());
    }
    Ok(text)
}

/// Has a script run, and its connection wait for it. Memory for what it is called with is taken first.
fn submit<'a>(
    text: Arc<[u8]>,
    kind: Kind,
    bytes: usize,
    call: Call<'a>,
    session: &Session,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    if bytes > OWN_REPLY_BYTES && !exec.room.take(bytes as u64) {
        let text = "ERR the memory for connections is used up: send a shorter script, or try again later";
        return Err(Failure::Own(Cow::Borrowed(text)));
    }
    let is_read_only = matches!(call.row.id, CommandId::EvalRo | CommandId::EvalShaRo);
    let job = Job::new(caller(tenant, session), is_read_only, text, kind);
    start(Handle { job, bytes }, exec)
}

fn caller(tenant: &Arc<Tenant>, session: &Session) -> Caller {
    Caller {
        tenant: Arc::clone(tenant),
        client: Arc::clone(&session.client),
        db: session.db,
        version: session.version,
        permissions: session.permissions,
    }
}

fn start<'a>(handle: Handle, exec: &mut Exec<'_>) -> Done<'a> {
    if exec.shared.scripts.submit(&handle.job).is_err() {
        let text = format!("BUSY {SCRIPTS_WAITING} scripts of the tenant wait already: try again later");
        return Err(Failure::Own(Cow::Owned(text)));
    }
    wait(handle, exec)
}

/// Waits for a script.
fn wait<'a>(handle: Handle, exec: &mut Exec<'_>) -> Done<'a> {
    exec.visit.waits.push(Wait::Script(Arc::clone(&handle.job)));
    exec.visit.progress = Some(Box::new(Progress::Script(handle)));
    Err(Failure::Later)
}

/// Answers for a script that was waited for, if it has ended.
pub(super) fn go_on<'a>(progress: Progress, exec: &mut Exec<'_>) -> Done<'a> {
    let bytes = match progress {
        Progress::Script(handle) => match handle.job.reply() {
            Some(bytes) => bytes,
            None => return wait(handle, exec),
        },
        Progress::Reply { bytes, .. } => bytes,
        // No other progress is of a script.
        _ => return Ok(()),
    };
    if let Some(text) = bytes.strip_prefix(b"-") {
        let text = String::from_utf8_lossy(text.strip_suffix(b"\r\n").unwrap_or(text)).into_owned();
        return Err(Failure::Own(Cow::Owned(text)));
    }
    if !exec.may_answer(bytes.len()) {
        exec.visit.progress = Some(Box::new(Progress::Reply { bytes, sent: 0 }));
        return Err(no_room(exec));
    }
    exec.out.bytes.extend_from_slice(&bytes);
    Ok(())
}

fn exists<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let tenant = session.tenant.clone().ok_or(error::NO_AUTH)?;
    let names = call.args.from(2);
    let known = tenant.scripts.lock();
    let mut reply = reply(session, exec);
    reply.array(names.len());
    names.for_each(|name| reply.integer(i64::from(known.as_ref().is_some_and(|known| known.has(name)))));
    Ok(())
}

fn flush<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let is_right = match call.args.len() {
        2 => true,
        3 => call.args.is(2, "SYNC") || call.args.is(2, "ASYNC"),
        _ => false,
    };
    if !is_right {
        let text = "ERR SCRIPT FLUSH only support SYNC|ASYNC option";
        return Err(Failure::Own(Cow::Borrowed(text)));
    }
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    *tenant.scripts.lock() = None;
    reply(session, exec).ok();
    Ok(())
}

fn kill<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
    if !exec.shared.scripts.kill(tenant.id) {
        return Err(error::NOT_BUSY.into());
    }
    reply(session, exec).ok();
    Ok(())
}
