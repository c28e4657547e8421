//! memcached's login: a `set` of any key whose body is `name secret`, as the first command (protocol.txt,
//! "Authentication").

use tidemark_protocol::memcached::{Store, Verb, text as reply};

use super::append_unless;
use crate::counts::Count;
use crate::session::{Exec, Session};
use crate::shared::Shared;
use crate::tenants::LoginError;

/// Length of a secret: 32 random bytes in base64url.
const SECRET_BYTES: usize = 43;

/// Whether a connection's first command is a login, where none is needed: its body is a tenant's name and something of the
/// form of a secret. An ordinary value that looks like this would have to name a tenant; a mistyped secret must not end up
/// as a value in the open tenant.
pub(super) fn is_login(store: &Store<'_>, shared: &Shared) -> bool {
    let is_secret = |text: &[u8]| {
        text.len() == SECRET_BYTES && text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    store.verb == Verb::Set
        && split(store.value).is_some_and(|(name, secret)| is_secret(secret) && shared.tenants.has(name))
}

/// Logs a connection in, or says why not and closes it.
pub(super) fn log_in(store: &Store<'_>, session: &mut Session, exec: &mut Exec<'_>) {
    if store.verb != Verb::Set {
        exec.out.bytes.extend_from_slice(reply::UNAUTHENTICATED);
        session.is_ending = true;
        return;
    }
    exec.counts.add(Count::AuthCommands, 1);
    let Some((name, secret)) = split(store.value) else {
        exec.out.bytes.extend_from_slice(reply::BAD_LOGIN);
        session.is_ending = true;
        return;
    };
    match exec.shared.tenants.log_in(name, secret, session.peer(), exec.now) {
        Ok(login) => {
            if let Some(old) = &session.tenant {
                exec.counts.hand_over(&old.counts);
            }
            session.set_tenant(Some(login));
            append_unless(store.noreply, reply::STORED, exec);
        }
        Err(error) => {
            exec.counts.add(Count::AuthErrors, 1);
            session.is_ending = true;
            match error {
                LoginError::Wrong => exec.out.bytes.extend_from_slice(reply::LOGIN_FAILED),
                LoginError::TooMany(left) => {
                    let text = format!(
                        "CLIENT_ERROR authentication failure: too many failed logins, try again in {} s\r\n",
                        left.as_secs() + 1
                    );
                    exec.out.bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
    }
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
