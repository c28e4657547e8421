//! Which handler a command has.

use tidemark_protocol::resp::command::{CommandId, Row};
use tidemark_protocol::resp::{Args, ErrorReply, error};

use super::answer::Done;
use super::transactions;
use super::{
    client, config, connection, counters, describe, expiry, info, keys, ranges, scan, scripts, server, strings,
};
use crate::access::Access;
use crate::counts::COMMANDS_MAX;
use crate::session::{Exec, Session};

/// One call of a command: its arguments, and its row in the table, whose arity they meet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) args: Args<'a>,
    pub(super) row: &'static Row,
}

/// Works with keys; takes shards' locks through the access only, so that it can be part of a transaction.
pub(super) type OnKeys = for<'a> fn(Call<'a>, &Session, &mut Access<'_>, &mut Exec<'_>) -> Done<'a>;
/// Works with the connection. Within a transaction it runs while shards are locked, so it locks none.
pub(super) type OnSession = for<'a> fn(Call<'a>, &mut Session, &mut Exec<'_>) -> Done<'a>;

/// The executor of a command.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    Keys(OnKeys),
    Session(OnSession),
}

/// Handlers of a family of commands.
pub(super) type Family = &'static [(CommandId, Handler)];

const FAMILIES: [Family; 14] = [
    strings::HANDLERS,
    ranges::HANDLERS,
    counters::HANDLERS,
    keys::HANDLERS,
    expiry::HANDLERS,
    scan::HANDLERS,
    transactions::HANDLERS,
    scripts::HANDLERS,
    connection::HANDLERS,
    client::HANDLERS,
    describe::HANDLERS,
    config::HANDLERS,
    server::HANDLERS,
    info::HANDLERS,
];

/// The handlers by the command's number.
static TABLE: [Option<Handler>; COMMANDS_MAX] = build_table();

const fn build_table() -> [Option<Handler>; COMMANDS_MAX] {
    let mut table = [None; COMMANDS_MAX];
    let mut family = 0;
    while family < FAMILIES.len() {
        let mut entry = 0;
        while entry < FAMILIES[family].len() {
            let (id, handler) = FAMILIES[family][entry];
            table[id as usize] = Some(handler);
            entry += 1;
        }
        family += 1;
    }
    table
}

/// The handler of a command. Only a container that must be called with a subcommand has none.
fn handler_of(row: &'static Row) -> Result<Handler, ErrorReply<'static>> {
    TABLE[row.id as usize].ok_or(ErrorReply::WrongArity(row))
}

/// Whether a command may need shards that its keys do not tell of.
pub(super) fn needs_every_shard(row: &'static Row) -> bool {
    row.keys.first == 0 && matches!(handler_of(row), Ok(Handler::Keys(_)))
}

/// Executes a command that was found to be allowed.
pub(super) fn perform<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    match handler_of(call.row)? {
        Handler::Session(handler) => handler(call, session, exec),
        Handler::Keys(handler) => {
            let session = &*session;
            let tenant = session.tenant.as_ref().ok_or(error::NO_AUTH)?;
            tenant.store.flush_if_due(exec.now);
            handler(call, session, &mut Access::each(&tenant.store), exec)
        }
    }
}

/// The same as a part of a transaction, whose shards are locked.
pub(super) fn perform_within<'a>(
    call: Call<'a>,
    session: &mut Session,
    access: &mut Access<'_>,
    exec: &mut Exec<'_>,
) -> Done<'a> {
    match handler_of(call.row)? {
        Handler::Session(handler) => handler(call, session, exec),
        Handler::Keys(handler) => handler(call, session, access, exec),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemark_protocol::resp::command::COMMANDS;

    #[test]
    fn every_command_has_one_handler() {
        let containers = ["client", "config", "module", "acl", "script"];
        let mut handlers: Vec<usize> = FAMILIES
            .iter()
            .flat_map(|family| family.iter())
            .map(|(id, _)| *id as usize)
            .collect();
        for row in COMMANDS
            .iter()
            .flat_map(|row| std::iter::once(row).chain(row.subcommands))
        {
            assert_eq!(handler_of(row).is_ok(), !containers.contains(&row.name), "{}", row.name);
        }
        let all = handlers.len();
        handlers.sort_unstable();
        handlers.dedup();
        assert_eq!(handlers.len(), all, "a command is in two families");
    }

    #[test]
    fn commands_whose_keys_are_not_named_need_every_shard() {
        for (name, all) in [("dbsize", true), ("scan", true), ("flushall", true), ("info", true)]
            .into_iter()
            .chain([("get", false), ("mset", false), ("ping", false), ("select", false)])
        {
            let row = tidemark_protocol::resp::command::lookup(name.as_bytes()).unwrap();
            assert_eq!(needs_every_shard(row), all, "{name}");
        }
    }
}
