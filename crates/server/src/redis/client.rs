//! CLIENT: connections, of the tenant's own only.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::atomic::Ordering;

use tidemark_protocol::resp::command::{CommandId, Flags};
use tidemark_protocol::resp::session::{self as options, ClientAttribute, ClientKill, ClientList, ClientType};
use tidemark_protocol::resp::{ErrorReply, Version, error};
use tidemark_types::UnixMs;

use super::answer::{Done, Failure, no_room, reply};
use super::describe::row_of;
use super::dispatch::{Call, Family, Handler};
use crate::clients::Client;
use crate::limits::CLIENT_NAME_BYTES;
use crate::session::{Exec, Session};

/// A line about a connection, with what it says of itself.
pub(super) const DESCRIBED_CLIENT_BYTES: usize = 512 + 3 * CLIENT_NAME_BYTES;

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
    let mut text = String::new();
    if let Some(tenant) = &session.tenant {
        let clients = exec.shared.clients.of_tenant(tenant.id);
        if !exec.may_answer(clients.len() * DESCRIBED_CLIENT_BYTES) {
            return Err(no_room(exec));
        }
        for client in clients {
            let is_wanted = match &wanted {
                ClientList::All | ClientList::Type(ClientType::Normal) => true,
                ClientList::Type(_) => false,
                ClientList::Ids(ids) => ids.contains(&client.id),
            };
            if is_wanted {
                describe(&client, session, exec.now, &mut text);
            }
        }
    }
    reply(session, exec).verbatim(text.as_bytes());
    Ok(())
}

/// One line about a connection in Redis's form. Sizes of buffers are known to its worker only and shown as zero; so is the file
/// descriptor, which would tell how many connections there are of others.
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
    let mut killed = 0;
    for client in exec.shared.clients.of_tenant(tenant.id) {
        if !is_meant(&wanted, &client, session.client.id, exec.now) {
            continue;
        }
        killed += 1;
        if client.id == session.client.id {
            // The reply comes first.
            session.is_ending = true;
        } else {
            client.kill();
            exec.shared.mailboxes[client.worker].ask_for_sweep();
        }
        if wanted.by_address_only {
            break;
        }
    }
    match wanted.by_address_only {
        false => reply(session, exec).integer(killed),
        true if killed > 0 => reply(session, exec).ok(),
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

/// CLIENT TRACKING. A client may keep what it reads until it is told that it has changed. Nothing is remembered here: it is
/// told so right behind each read ([`invalidate`]), as by a Redis whose table of tracked keys has no room.
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
        // Whoever is told nothing of others' writes is told nothing of its own.
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

/// Tells a client that tracks what it reads not to keep what a command has just read. Behind a transaction, nothing at all.
pub(super) fn invalidate(call: Call<'_>, session: &Session, exec: &mut Exec<'_>) {
    if session.version != Version::Resp3 {
        return;
    }
    let keys = || call.row.keys.places(call.args.len()).map(|place| call.args.arg(place));
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
