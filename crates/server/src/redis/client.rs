//! CLIENT: connections, of the tenant's own only.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemark_protocol::resp::command::{CommandId, Flags};
use tidemark_protocol::resp::session::{self as options, ClientAttribute, ClientKill, ClientList, ClientType};
use tidemark_protocol::resp::{ErrorReply, Reply, Version, error};
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, no_room, reply, too_large_reply};
use super::describe::row_of;
use super::dispatch::{Call, Family, Handler};
use super::scan::{later, send_rest};
use crate::clients::Client;
use crate::limits::{CLIENT_NAME_BYTES, TURN_CLIENTS};
use crate::progress::{ClientsSeen, Progress};
use crate::session::{Exec, Session};
use crate::tenant::Tenant;

/// A line about a connection, with its own names.
pub(super) const DESCRIBED_CLIENT_BYTES: usize = 512 + 3 * CLIENT_NAME_BYTES;

/// The bytes around a text in a reply.
const AROUND_TEXT_BYTES: usize = 32;

pub(super) const HANDLERS: Family = &[
    (CommandId::ClientGetId, Handler::Session(id)),
    (CommandId::ClientGetName, Handler::Session(get_name)),
    (CommandId::ClientSetName, Handler::Session(client_set_name)),
    (CommandId::ClientSetInfo, Handler::Session(set_info)),
    (CommandId::ClientInfo, Handler::Session(info)),
    (CommandId::ClientList, Handler::Session(list)),
    (CommandId::ClientKill, Handler::Session(kill)),
    (CommandId::ClientNoEvict, Handler::Session(no_evict)),
    (CommandId::ClientNoTouch, Handler::Session(no_touch)),
    (CommandId::ClientReply, Handler::Session(client_reply)),
    (CommandId::ClientTracking, Handler::Session(tracking)),
];

fn id<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let id = session.client.id;
    reply(session, exec).integer(id as i64);
    Ok(())
}

fn get_name<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let name = session.client.names.lock().name.clone();
    match name.is_empty() {
        true => reply(session, exec).null(),
        false => reply(session, exec).bulk(name.as_bytes()),
    }
    Ok(())
}

fn client_set_name<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    set_name(options::client_name(call.args.arg(2))?, session)?;
    reply(session, exec).ok();
    Ok(())
}

/// Gives the connection a name; an empty one takes it away.
pub(super) fn set_name<'a>(name: &'a [u8], session: &Session) -> Done<'a> {
    session.client.names.lock().name = text_of("a client's name", name)?;
    Ok(())
}

/// A text of printable ASCII, if it is not too long.
fn text_of(what: &'static str, text: &[u8]) -> Result<Box<str>, ErrorReply<'static>> {
    if text.len() > CLIENT_NAME_BYTES {
        return Err(ErrorReply::AboveLimit(what, CLIENT_NAME_BYTES, "bytes"));
    }
    Ok(String::from_utf8_lossy(text).into())
}

fn set_info<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    match options::client_set_info(call.args)? {
        ClientAttribute::LibraryName(name) => {
            session.client.names.lock().library = text_of("a library's name", name)?;
        }
        ClientAttribute::LibraryVersion(version) => {
            session.client.names.lock().library_version = text_of("a library's version", version)?;
        }
    }
    reply(session, exec).ok();
    Ok(())
}

fn info<'a>(_: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let mut text = String::new();
    describe(&session.client, session, exec.now, &mut text);
    reply(session, exec).verbatim(text.as_bytes());
    Ok(())
}

fn list<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let wanted = options::client_list(call.args)?;
    let is_within = exec.visit.must_fail();
    let mut seen = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Reply { bytes, sent }) => return send_rest(bytes, sent, is_within, exec),
        Some(Progress::Clients(seen)) => seen,
        _ => ClientsSeen::default(),
    };
    if let Some(tenant) = &session.tenant {
        let (clients, next) = next_clients(tenant, &seen, exec)?;
        for client in clients {
            let is_wanted = match &wanted {
                ClientList::All | ClientList::Type(ClientType::Normal) => true,
                ClientList::Type(_) => false,
                ClientList::Ids(ids) => ids.contains(&client.id),
            };
            if is_wanted {
                describe(&client, session, exec.now, &mut seen.text);
            }
        }
        if seen.text.len() >= exec.reply_bytes_max() {
            return Err(too_large_reply(exec));
        }
        if let Some(next) = next {
            return later(Progress::Clients(ClientsSeen { from: next, ..seen }), exec);
        }
    }
    if is_within && !exec.may_answer(seen.text.len() + AROUND_TEXT_BYTES) {
        return Err(no_room(exec));
    }
    let mut bytes = Vec::with_capacity(seen.text.len() + AROUND_TEXT_BYTES);
    Reply::new(&mut bytes, session.version).verbatim(seen.text.as_bytes());
    send_rest(bytes, 0, is_within, exec)
}

/// The tenant's next connections of those that are looked at in a visit, and where to go on. A transaction is one step, and
/// fails for more than that.
fn next_clients(
    tenant: &Tenant,
    seen: &ClientsSeen,
    exec: &Exec<'_>,
) -> Result<(Vec<Arc<Client>>, Option<u64>), Failure<'static>> {
    if !exec.visit.must_fail() {
        return Ok(exec.shared.clients.some_of(tenant.id, seen.from, TURN_CLIENTS));
    }
    if tenant.connections.load(Ordering::Relaxed) > TURN_CLIENTS as u64 {
        let text = format!("ERR a transaction looks at no more than {TURN_CLIENTS} connections");
        return Err(Failure::Own(Cow::Owned(text)));
    }
    Ok(exec.shared.clients.some_of(tenant.id, 0, usize::MAX))
}

/// One line about a connection in Redis's form. Sizes of buffers are known to its worker only and shown as zero. So is
/// the file descriptor, which would tell how many connections there are of others.
fn describe(client: &Client, session: &Session, now: UnixMs, out: &mut String) {
    let names = client.names.lock().clone();
    let user = session.tenant.as_ref().map_or("", |tenant| tenant.name.as_str());
    let queued = client.queued.load(Ordering::Relaxed);
    let mut flags = String::new();
    for (is_set, flag) in [
        (queued > 0, 'x'),
        (client.no_evict.load(Ordering::Relaxed), 'e'),
        (client.no_touch.load(Ordering::Relaxed), 'T'),
        (client.is_tracking.load(Ordering::Relaxed), 't'),
    ] {
        if is_set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let command = client.last_command().and_then(row_of).map_or("NULL", |row| row.name);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags={flags} db={} sub=0 psub=0 ssub=0 multi={} watch={} \
         qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={command} \
         user={user} redir=-1 resp={} lib-name={} lib-ver={}",
        client.id,
        client.peer,
        client.local,
        names.name,
        now.since(client.connected_at).as_secs(),
        now.since(client.last_active()).as_secs(),
        client.db.load(Ordering::Relaxed),
        i64::from(queued) - 1,
        client.watches.load(Ordering::Relaxed),
        client.resp.load(Ordering::Relaxed),
        names.library,
        names.library_version,
    );
}

fn kill<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let wanted = options::client_kill(call.args)?;
    let Some(tenant) = &session.tenant else {
        return Err(error::NO_AUTH.into());
    };
    if let Some(user) = wanted.user
        && user != tenant.name.as_str().as_bytes()
    {
        // Others exist for others only.
        return Err(ErrorReply::NoSuchUser(user).into());
    }
    let mut seen = match exec.visit.progress.take().map(|progress| *progress) {
        Some(Progress::Clients(seen)) => seen,
        _ => ClientsSeen::default(),
    };
    let (clients, next) = next_clients(tenant, &seen, exec)?;
    for client in clients {
        if !is_meant(&wanted, &client, session.client.id, exec.now) {
            continue;
        }
        seen.killed += 1;
        if client.id == session.client.id {
            // The reply comes first.
            seen.is_own_killed = true;
        } else {
            client.kill();
            exec.shared.mailboxes[client.worker].ask_for_sweep();
        }
        if wanted.by_address_only {
            break;
        }
    }
    let is_done = wanted.by_address_only && seen.killed > 0;
    if let Some(next) = next.filter(|_| !is_done) {
        return later(Progress::Clients(ClientsSeen { from: next, ..seen }), exec);
    }
    session.is_ending |= seen.is_own_killed;
    match wanted.by_address_only {
        false => reply(session, exec).integer(seen.killed),
        true if is_done => reply(session, exec).ok(),
        true => return Err(error::NO_SUCH_CLIENT.into()),
    }
    Ok(())
}

/// Whether a connection is one that CLIENT KILL is to close.
fn is_meant(wanted: &ClientKill<'_>, client: &Client, own_id: u64, now: UnixMs) -> bool {
    let is_at = |wanted: Option<&[u8]>, address: std::net::SocketAddr| {
        wanted.is_none_or(|wanted| address.to_string().as_bytes() == wanted)
    };
    wanted.id.is_none_or(|id| id == client.id)
        && is_at(wanted.address, client.peer)
        && is_at(wanted.local_address, client.local)
        && wanted.kind.is_none_or(|kind| kind == ClientType::Normal)
        && wanted
            .max_age_seconds
            .is_none_or(|age| now.since(client.connected_at).as_secs() >= age)
        && !(wanted.skip_me && client.id == own_id)
}

fn no_evict<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let is_on = options::on_off(call.args)?;
    session.client.no_evict.store(is_on, Ordering::Relaxed);
    reply(session, exec).ok();
    Ok(())
}

fn no_touch<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let is_on = options::on_off(call.args)?;
    session.client.no_touch.store(is_on, Ordering::Relaxed);
    reply(session, exec).ok();
    Ok(())
}

/// CLIENT TRACKING. A client may keep values that it reads until it is told that it has changed. Nothing is remembered
/// here: it is told so right behind each read ([`invalidate`]), as by a Redis whose table of tracked keys has no room.
fn tracking<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let args = call.args;
    let is_on = match (args.is(2, "ON"), args.is(2, "OFF")) {
        (true, _) => true,
        (_, true) => false,
        _ => return Err(error::SYNTAX.into()),
    };
    for index in 3..args.len() {
        let elsewhere = ["REDIRECT", "PREFIX", "BCAST", "OPTIN", "OPTOUT"];
        if let Some(name) = elsewhere.into_iter().find(|name| args.is(index, name)) {
            let text = format!("ERR the option {name} of CLIENT TRACKING is not offered by Tidemark");
            return Err(Failure::Own(Cow::Owned(text)));
        }
        // A client that is told nothing of others' writes is told nothing of its own.
        if !args.is(index, "NOLOOP") {
            return Err(error::SYNTAX.into());
        }
    }
    if is_on && session.version != Version::Resp3 {
        let text = "ERR CLIENT TRACKING needs RESP3, which HELLO 3 begins";
        return Err(Failure::Own(Cow::Borrowed(text)));
    }
    session.client.is_tracking.store(is_on, Ordering::Relaxed);
    reply(session, exec).ok();
    Ok(())
}

/// Tells a client that tracks its reads not to keep the values that a command has just read. Behind a transaction,
/// nothing at all.
pub(super) fn invalidate(call: Call<'_>, session: &Session, exec: &mut Exec<'_>) {
    if session.version != Version::Resp3 {
        return;
    }
    let keys = || call.row.key_places(call.args).map(|place| call.args.arg(place));
    let is_read = call.row.flags.has(Flags::READONLY) && keys().len() > 0;
    if !is_read && call.row.id != CommandId::Exec {
        return;
    }
    let mut reply = reply(session, exec);
    reply.push(2);
    reply.bulk(b"invalidate");
    if is_read {
        reply.array(keys().len());
        keys().for_each(|key| reply.bulk(key));
    } else {
        reply.null();
    }
}

fn client_reply<'a>(call: Call<'a>, session: &mut Session, exec: &mut Exec<'_>) -> Done<'a> {
    let mode = &mut session.reply_mode;
    match options::client_reply(call.args)? {
        options::ReplyMode::On => {
            (mode.is_off, mode.skips_this) = (false, false);
            reply(session, exec).ok();
        }
        options::ReplyMode::Off => mode.is_off = true,
        options::ReplyMode::Skip => mode.skips_next |= !mode.is_off,
    }
    Ok(())
}
