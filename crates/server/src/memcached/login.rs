//! memcached's login: a `set` whose body is `name secret`, as the first command (protocol.txt, "Authentication"). If
//! nobody is let in without one, its key does not matter. In the open tenant its key is `auth`: any other first `set`
//! is data there.

use tidemark_protocol::memcached::{Store, Verb, text as reply};

use super::append_unless;
use crate::counts::Count;
use crate::logins::{self, Login};
use crate::session::{Exec, Session};
use crate::tenant::{self, Tenant};

/// The key of a login in the open tenant.
const KEY: &[u8] = b"auth";

/// Whether a connection's first command is a login in the open tenant.
pub(super) fn is_login(store: &Store<'_>) -> bool {
    store.verb == Verb::Set && store.key == KEY
}

/// Whether input that is no command was to be a login in the open tenant: the following commands must not be done
/// there.
pub(super) fn is_meant(input: &[u8]) -> bool {
    let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let mut words = line
        .split(|byte| matches!(byte, b' ' | b'\r'))
        .filter(|word| !word.is_empty());
    let is_set = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"set"));
    is_set && words.next() == Some(KEY)
}

/// Logs a connection in, or says why not and closes it. Whether it is done: else the command is executed again later.
pub(super) fn log_in(store: &Store<'_>, session: &mut Session, exec: &mut Exec<'_>) -> bool {
    if store.verb != Verb::Set {
        exec.out.bytes.extend_from_slice(reply::UNAUTHENTICATED);
        session.is_ending = true;
        return true;
    }
    let Some((name, secret)) = split(store.value) else {
        let peer = session.client.peer;
        exec.shared.tenants.note_failed_login(None, peer, exec.now);
        refuse(reply::BAD_LOGIN, session, exec);
        return true;
    };
    match logins::look(name, secret, session, exec) {
        Login::Later => {
            // It is the first command still when it is executed again.
            session.has_begun = false;
            return false;
        }
        Login::Wrong => refuse(reply::LOGIN_FAILED, session, exec),
        Login::Right(tenant, secret) => {
            exec.counts.add(Count::AuthCommands, 1);
            if let Some(old) = &session.tenant {
                exec.counts.hand_over(&old.counts);
            }
            if session.enter(&tenant, secret.permissions) {
                session.secret = Some(secret);
                tenant.touch();
                append_unless(store.noreply, reply::STORED, exec);
            } else {
                refuse_connection(&tenant, session, exec);
            }
        }
    }
    true
}

/// Answers a login that failed, and closes the connection.
fn refuse(text: &[u8], session: &mut Session, exec: &mut Exec<'_>) {
    exec.counts.add(Count::AuthCommands, 1);
    exec.counts.add(Count::AuthErrors, 1);
    exec.out.bytes.extend_from_slice(text);
    session.is_ending = true;
}

/// Answers whatever a connection asks for that is one too many of its tenant's, and closes it.
pub(super) fn refuse_connection(tenant: &Tenant, session: &mut Session, exec: &mut Exec<'_>) {
    let text = format!(
        "SERVER_ERROR too many open connections: {}\r\n",
        tenant::refuse_connection(tenant)
    );
    tenant.touch();
    exec.out.bytes.extend_from_slice(text.as_bytes());
    session.is_ending = true;
}

/// `name secret`, as memcached splits it: at the first space.
fn split(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = value.iter().position(|&b| b == b' ')?;
    let (name, secret) = (&value[..space], &value[space + 1..]);
    (!name.is_empty() && !secret.is_empty()).then_some((name, secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_set_in_the_open_tenant_is_a_login_by_its_key() {
        for (key, verb, is_one) in [
            (&b"auth"[..], Verb::Set, true),
            (b"auth", Verb::Add, false),
            (b"AUTH", Verb::Set, false),
            (b"login", Verb::Set, false),
        ] {
            let store = Store {
                verb,
                key,
                value: b"shop secret",
                flags: 0,
                exptime: 0,
                noreply: false,
            };
            assert_eq!(is_login(&store), is_one, "{verb:?} {}", key.escape_ascii());
        }
    }

    #[test]
    fn a_line_that_is_no_command_may_be_meant_as_a_login() {
        for (input, is_one) in [
            (&b"set auth 0 0 x\r\nshop secret\r\n"[..], true),
            (b"set  auth 0 0 9 a b\r\n", true),
            (b"SET auth\n", true),
            (b"set auth\r\n", true),
            (b"set author 0 0 x\r\n", false),
            (b"set k 0 0 x auth\r\n", false),
            (b"set\r\nset auth 0 0 x\r\n", false),
            (b"add auth 0 0 x\r\n", false),
            (b"", false),
        ] {
            assert_eq!(is_meant(input), is_one, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn a_login_is_split_at_the_first_space() {
        for (value, parts) in [
            (&b"shop secret"[..], Some((&b"shop"[..], &b"secret"[..]))),
            (b"shop sec ret", Some((b"shop", b"sec ret"))),
            (b"shop", None),
            (b"shop ", None),
            (b" secret", None),
            (b"", None),
        ] {
            assert_eq!(split(value), parts);
        }
    }
}
