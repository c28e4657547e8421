//! Small questions about the server: TIME, ROLE, MODULE LIST, ACL WHOAMI.

use std::time::{SystemTime, UNIX_EPOCH};

use tidemark_protocol::resp::command::CommandId;

use super::answer::{Done, reply};
use super::dispatch::{Call, Family, Handler};
use crate::session::{Exec, Session};

pub(super) const HANDLERS: Family = &[
    (CommandId::Time, Handler::Session(time)),
    (CommandId::Role, Handler::Session(role)),
    (CommandId::ModuleList, Handler::Session(modules)),
    (CommandId::AclWhoAmI, Handler::Session(who_am_i)),
];

/// Seconds since 1970 and microseconds within the second. The turn's time is too coarse for this.
fn time<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut reply = reply(session, exec);
    reply.array(2);
    reply.bulk(since_1970.as_secs().to_string().as_bytes());
    reply.bulk(since_1970.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// A primary at offset zero without replicas.
fn role<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let mut reply = reply(session, exec);
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn modules<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    reply(session, exec).array(0);
    Ok(())
}

fn who_am_i<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    match &session.tenant {
        Some(tenant) => reply(session, exec).bulk(tenant.name.as_str().as_bytes()),
        None => reply(session, exec).null(),
    }
    Ok(())
}
