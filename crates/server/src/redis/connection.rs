//! The connection itself: PING, ECHO, QUIT, RESET, HELLO, AUTH, SELECT.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_protocol::resp::command::CommandId;
use tidemark_protocol::resp::session::{self as options, Credentials};
use tidemark_protocol::resp::{ErrorReply, Version, error, options::database};
use tidemark_store::DATABASES;
use tidemark_types::{Permissions, TenantName};

use super::answer::{Done, Failure, reply};
use super::client::set_name;
use super::dispatch::{Call, Family, Handler};
use super::info::COMPATIBLE_VERSION;
use super::transactions;
use crate::counts::Count;
use crate::logins::{self, Login};
use crate::session::{Exec, Session};
use crate::tenant::{Tenant, refuse_connection};

pub(super) const HANDLERS: Family = &[
    (CommandId::Ping, Handler::Session(ping)),
    (CommandId::Echo, Handler::Session(echo)),
    (CommandId::Quit, Handler::Session(quit)),
    (CommandId::Reset, Handler::Session(reset)),
    (CommandId::Hello, Handler::Session(hello)),
    (CommandId::Auth, Handler::Session(auth)),
    (CommandId::Select, Handler::Session(select)),
];

fn ping<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    match call.args.get(1) {
        Some(text) => reply(session, exec).bulk(text),
        None => reply(session, exec).simple("PONG"),
    }
    Ok(())
}

fn echo<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    reply(session, exec).bulk(call.args.arg(1));
    Ok(())
}

fn quit<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    session.is_ending = true;
    reply(session, exec).ok();
    Ok(())
}

/// The connection becomes as it was when it was new, in the tenant in which it began.
fn reset<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    transactions::forget(session);
    let first = session.first_tenant(&exec.shared.tenants);
    enter(first.map(|tenant| (tenant, Permissions::ALL)), session, exec)?;
    set_db(0, session);
    set_version(Version::Resp2, session);
    // As in Redis, CLIENT REPLY OFF ends before this reply, and SKIP behind it.
    session.reply_mode.is_off = false;
    session.client.no_evict.store(false, Ordering::Relaxed);
    session.client.no_touch.store(false, Ordering::Relaxed);
    session.client.is_tracking.store(false, Ordering::Relaxed);
    session.client.names.lock().name = Box::default();
    reply(session, exec).simple("RESET");
    Ok(())
}

fn select<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    // The number is below that of databases, which a byte holds.
    let db = database(call.args.arg(1), DATABASES as u32)? as u8;
    set_db(db, session);
    reply(session, exec).ok();
    Ok(())
}

fn set_db(db: u8, session: &mut Session) {
    session.db = db;
    session.client.db.store(db, Ordering::Relaxed);
}

fn set_version(version: Version, session: &mut Session) {
    session.version = version;
    session.client.resp.store(version.number() as u8, Ordering::Relaxed);
}

fn auth<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    log_in(options::auth(call.args)?, session, exec)?;
    reply(session, exec).ok();
    Ok(())
}

fn hello<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let hello = options::hello(call.args)?;
    if let Some(credentials) = hello.login {
        log_in(credentials, session, exec)?;
    }
    if session.needs_login() {
        return Err(homeless(error::NO_AUTH_HELLO, session));
    }
    if let Some(name) = hello.client_name {
        set_name(name, session)?;
    }
    if let Some(version) = hello.version {
        set_version(version, session);
    }
    let (version, id) = (session.version, session.client.id);
    let mut reply = reply(session, exec);
    reply.map(7);
    for (name, value) in [("server", "redis"), ("version", COMPATIBLE_VERSION)] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(version.number());
    reply.bulk(b"id");
    reply.integer(id as i64);
    for (name, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Logs the connection in. One that fails stays where it was, and is closed if that was too often. The answer to that waits.
fn log_in<'a>(credentials: Credentials<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let tenants = &exec.shared.tenants;
    let name = credentials.name.unwrap_or(TenantName::DEFAULT.as_bytes());
    // The open tenant without a secret is Redis's `default` user with `nopass`.
    let open = session.first_tenant(tenants);
    if let Some(open) = open.filter(|open| open.name.as_str().as_bytes() == name && !open.has_secrets()) {
        if credentials.name.is_none() {
            return Err(error::NO_PASSWORD_SET.into());
        }
        enter(Some((open, Permissions::ALL)), session, exec)?;
        exec.counts.add(Count::AuthCommands, 1);
        return Ok(());
    }
    match logins::look(name, credentials.secret, session, exec) {
        Login::Right(tenant, secret) => {
            enter(Some((tenant, secret.permissions)), session, exec)?;
            session.secret = Some(secret);
            exec.counts.add(Count::AuthCommands, 1);
            Ok(())
        }
        Login::Later => Err(Failure::Later),
        Login::Wrong => {
            // Before login it is nobody's failure.
            if session.tenant.is_some() {
                exec.counts.add(Count::AuthCommands, 1);
                exec.counts.add(Count::AuthErrors, 1);
            }
            session.is_ending |= session.failed_logins.are_too_many();
            Err(error::WRONG_PASS.into())
        }
    }
}

/// The answer to a connection without a tenant. A connection that is one too many of its tenant's is closed.
pub(super) fn homeless<'a>(known: ErrorReply<'a>, session: &mut Session) -> Failure<'a> {
    let Some(tenant) = session.turned_away_by.take() else {
        return known.into();
    };
    session.is_ending = true;
    let why = refuse_connection(&tenant);
    tenant.touch();
    Failure::Own(Cow::Owned(format!("ERR max number of clients reached: {why}")))
}

/// Moves the connection to a tenant, or to none. Its queued commands and watched keys were the old one's; the database
/// stays.
fn enter(
    login: Option<(Arc<Tenant>, Permissions)>,
    session: &mut Session,
    exec: &mut Exec<'_>,
) -> Result<(), Failure<'static>> {
    let old = session.tenant.clone();
    if let (Some(old), Some((new, permissions))) = (&old, &login)
        && old.id == new.id
    {
        (session.permissions, session.secret) = (*permissions, None);
        return Ok(());
    }
    if let Some(old) = &old {
        exec.counts.hand_over(&old.counts);
    }
    transactions::forget(session);
    let new = login.as_ref().map(|(tenant, _)| tenant);
    for tenant in [old.as_ref(), new].into_iter().flatten() {
        tenant.touch();
    }
    match login {
        Some((tenant, permissions)) if !session.enter(&tenant, permissions) => Err(homeless(error::NO_AUTH, session)),
        Some(_) => Ok(()),
        None => {
            session.leave();
            Ok(())
        }
    }
}
