//! A transaction that has scripts in it, as one step for everybody else.
//!
//! All of its commands are executed on copies of the keys that they name, as a script's are ([`super::run`]), and what they wrote
//! is done at the end. A command or a script that fails has done nothing, and those behind it go on, as in Redis. All scripts
//! together have the steps and the time of one; if they come to an end, nothing was done. Steps are counted every
//! [`STEPS_PER_LOOK`], so each script takes as many at least: else any number of short ones could be run under locks. To compile one
//! that this thread has not compiled before takes a step for each byte.

use std::sync::Arc;

use tidemark_protocol::resp::command::{CommandId, Row, counted_keys, resolve};
use tidemark_protocol::resp::{ArgList, Args, Limits, Reply, error, parse};
use tidemark_scripts::{Broken, Engine, STEPS_PER_LOOK, Script, Stopped, compile_steps, name_of};

use super::Job;
use super::data::{Committed, Data, Scratch};
use super::run::{Bounds, Outcome, TRIES, TRY_AGAIN};
use super::thread::error_reply;
use crate::shared::Shared;
use crate::transaction::Transaction;

/// The parts of its thread that a run needs.
pub(super) struct Stage<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) scratch: &'a mut Scratch,
    pub(super) bounds: Bounds,
    pub(super) shared: &'a Shared,
}

/// How an attempt ended before its last command.
enum Ended {
    /// Somebody asked for it, or nothing of it counts: the reply.
    With(Vec<u8>),
    /// There are no steps or no time left: the reply if it gets no more.
    TooLong(Vec<u8>),
}

/// Runs a transaction.
///
/// # Errors
/// The engine is of no use any more.
pub(super) fn run(job: &Job, transaction: &Transaction, stage: &mut Stage<'_>) -> Result<Outcome, Broken> {
    let keys = keys_of(transaction);
    for attempt in 0..=TRIES {
        let is_last = attempt == TRIES;
        let mut data = Data::new(job, &keys, false, stage.scratch, stage.shared);
        if is_last {
            data.lock(Some(transaction));
            stage.bounds = stage.bounds.locked();
        }
        let mut steps = stage.bounds.steps_max;
        let mut reply = Vec::new();
        Reply::new(&mut reply, job.version).array(transaction.queued().len());
        let ended = execute(job, transaction, &mut data, &mut steps, stage, &mut reply)?;
        match ended {
            Some(Ended::With(reply)) => return Ok(Outcome::Reply(reply)),
            Some(Ended::TooLong(_)) if is_last => break,
            Some(Ended::TooLong(reply)) => return Ok(Outcome::TooLong(reply)),
            None => {}
        }
        match data.commit(Some(transaction)) {
            Committed::Done => {
                // A refused write was not done at all.
                let refused = data.fault().map(error_reply);
                return Ok(Outcome::Reply(refused.unwrap_or(reply)));
            }
            Committed::Unwatched => {
                let mut null = Vec::new();
                Reply::new(&mut null, job.version).null_array();
                return Ok(Outcome::Reply(null));
            }
            Committed::Changed => {}
        }
    }
    Ok(Outcome::Reply(error_reply(TRY_AGAIN)))
}

/// The keys that its commands name.
fn keys_of(transaction: &Transaction) -> Vec<Box<[u8]>> {
    let mut list = ArgList::new();
    let mut keys = Vec::new();
    for command in transaction.queued() {
        if let Some((row, args)) = parsed(command, &mut list) {
            keys.extend(row.key_places(args).map(|place| args.arg(place).into()));
        }
    }
    keys
}

/// A queued command, which was found whole when it was queued, and its row.
fn parsed<'a>(command: &'a [u8], list: &'a mut ArgList) -> Option<(&'static Row, Args<'a>)> {
    parse(command, &Limits::with_value_bytes(command.len()), list);
    let args = list.args(command);
    Some((resolve(args).ok()?, args))
}

/// Executes all commands; their replies are appended.
fn execute(
    job: &Job,
    transaction: &Transaction,
    data: &mut Data<'_>,
    steps: &mut u64,
    stage: &mut Stage<'_>,
    reply: &mut Vec<u8>,
) -> Result<Option<Ended>, Broken> {
    let mut list = ArgList::new();
    for command in transaction.queued() {
        if let Some(stopped) = (stage.bounds.watchman)() {
            return Ok(Some(ended(stopped, stopped_reply(stopped, stage))));
        }
        let Some((row, args)) = parsed(command, &mut list) else {
            reply.extend_from_slice(&error_reply(&error::SYNTAX.to_string()));
            continue;
        };
        match script_of(job, row, args) {
            Some(Ok(_)) if *steps == 0 => {
                return Ok(Some(Ended::TooLong(stopped_reply(Stopped::Steps, stage))));
            }
            Some(Ok(text)) => {
                let mark = reply.len();
                let ended = execute_script(job, &Called { row, args, text }, data, steps, stage, reply)?;
                if ended.is_some() {
                    return Ok(ended);
                }
                data.count(row.id, reply.get(mark) == Some(&b'-'));
            }
            Some(Err(text)) => {
                data.count(row.id, true);
                reply.extend_from_slice(&error_reply(&text));
            }
            None => data.perform_queued(row, args, reply),
        }
        if let Some(fault) = data.fault() {
            return Ok(Some(Ended::With(error_reply(fault))));
        }
        if reply.len() > stage.shared.reply_bytes_max {
            let text = format!("ERR the reply is longer than {} bytes", stage.shared.reply_bytes_max);
            return Ok(Some(Ended::With(error_reply(&text))));
        }
    }
    Ok(None)
}

/// The end of an attempt that is stopped, with this reply.
fn ended(stopped: Stopped, reply: Vec<u8>) -> Ended {
    match stopped {
        Stopped::Killed => Ended::With(reply),
        Stopped::Steps | Stopped::Time => Ended::TooLong(reply),
    }
}

/// The reply of an attempt that is stopped between two commands.
fn stopped_reply(stopped: Stopped, stage: &Stage<'_>) -> Vec<u8> {
    error_reply(&stopped.text(stage.bounds.steps_max))
}

/// A script that a transaction calls, or makes known.
struct Called<'a> {
    row: &'static Row,
    args: Args<'a>,
    text: Arc<[u8]>,
}

/// The text of a command's script; `None` of a command that has none.
fn script_of(job: &Job, row: &'static Row, args: Args<'_>) -> Option<Result<Arc<[u8]>, String>> {
    match row.id {
        CommandId::Eval | CommandId::EvalRo => Some(Ok(args.arg(1).into())),
        CommandId::ScriptLoad => Some(Ok(args.arg(2).into())),
        CommandId::EvalSha | CommandId::EvalShaRo => {
            let mut known = job.tenant.scripts.lock();
            let text = known.as_mut().and_then(|known| known.find(args.arg(1)));
            Some(text.ok_or_else(|| error::NO_SCRIPT.to_string()))
        }
        _ => None,
    }
}

fn execute_script(
    job: &Job,
    called: &Called<'_>,
    data: &mut Data<'_>,
    steps: &mut u64,
    stage: &mut Stage<'_>,
    reply: &mut Vec<u8>,
) -> Result<Option<Ended>, Broken> {
    let Called { row, args, text } = called;
    let name = name_of(text);
    if !stage.engine.has_compiled(&name) {
        match steps.checked_sub(compile_steps(text)) {
            Some(left) => *steps = left,
            None => return Ok(Some(Ended::TooLong(stopped_reply(Stopped::Steps, stage)))),
        }
    }
    if let Err(error) = stage.engine.check(&name, text) {
        reply.extend_from_slice(&error_reply(&error));
        return Ok(None);
    }
    job.tenant.scripts.lock().get_or_insert_default().insert(&name, text);
    if row.id == CommandId::ScriptLoad {
        Reply::new(reply, job.version).bulk(name.as_bytes());
        return Ok(None);
    }
    let keys_at = match counted_keys(*args) {
        Ok(keys_at) => keys_at,
        Err(error) => {
            reply.extend_from_slice(&error_reply(&error.to_string()));
            return Ok(None);
        }
    };
    let keys: Vec<Box<[u8]>> = keys_at.clone().map(|place| args.arg(place).into()).collect();
    let arguments: Vec<Box<[u8]>> = args.from(keys_at.end).map(Into::into).collect();
    let script = Script {
        name: &name,
        text,
        keys: &keys,
        args: &arguments,
    };
    let is_read_only = matches!(row.id, CommandId::EvalRo | CommandId::EvalShaRo);
    let is_read_only = is_read_only || stage.engine.is_read_only(&name, text);
    let before = data.begin_script(&keys, is_read_only);
    let watchman = stage.bounds.watchman.clone();
    let run = stage.engine.run(&script, job.version, data, *steps, watchman)?;
    *steps = steps.saturating_sub(run.steps.max(u64::from(STEPS_PER_LOOK)));
    data.end_script(&before, run.has_failed);
    match run.stopped {
        Some(stopped) => Ok(Some(ended(stopped, run.reply))),
        None => {
            reply.extend_from_slice(&run.reply);
            Ok(None)
        }
    }
}
