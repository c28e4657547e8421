//! memcached's login: a `set` of any key whose body is `name secret`, as the first command (protocol.txt,
//! "Authentication").

use tidemark_protocol::memcached::{Store, Verb, text as reply};
use tidemark_types::TenantName;

use super::append_unless;
use crate::counts::Count;
use crate::session::{Exec, Session};
use crate::tenant::{self, Tenant};
use crate::tenants::LoginError;

/// Length of a secret: 32 random bytes in base64url.
const SECRET_BYTES: usize = 43;

/// Whether a connection's first command is a login, where none is needed: its body is of the form of a tenant's name and a
/// secret. Whether there is such a tenant is not asked: a mistyped name must not end up with its secret as a value in the
/// open tenant, and the answer must not tell which tenants exist.
pub(super) fn is_login(store: &Store<'_>) -> bool {
    store.verb == Verb::Set && split(store.value).is_some_and(|(name, secret)| is_name(name) && is_secret(secret))
}

fn is_name(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| text.parse::<TenantName>().is_ok())
}

fn is_secret(text: &[u8]) -> bool {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.len() == SECRET_BYTES && text.iter().all(is_allowed)
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
        Ok((tenant, permissions)) => {
            if let Some(old) = &session.tenant {
                exec.counts.hand_over(&old.counts);
            }
            if session.enter(&tenant, permissions) {
                tenant.touch();
                append_unless(store.noreply, reply::STORED, exec);
            } else {
                refuse_connection(&tenant, session, exec);
            }
        }
        Err(error) => {
            exec.counts.add(Count::AuthErrors, 1);
            session.is_ending = true;
            match error {
                LoginError::Wrong => exec.out.bytes.extend_from_slice(reply::LOGIN_FAILED),
                LoginError::TooMany(refused) => {
                    let text = format!("CLIENT_ERROR authentication failure: {refused}\r\n");
                    exec.out.bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
    }
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
    fn a_first_set_is_a_login_by_its_form_alone() {
        const SECRET: &str = "0123456789-abcdefghijklmnopqrstuvwxyz_ABCDF";
        let long_name = "a".repeat(TenantName::MAX_BYTES + 1);
        for (value, verb, is_one) in [
            (format!("shop {SECRET}"), Verb::Set, true),
            (format!("no-such.tenant_1 {SECRET}"), Verb::Set, true),
            (format!("shop {SECRET}"), Verb::Add, false),
            (format!("-shop {SECRET}"), Verb::Set, false),
            (format!("sh\u{f6}p {SECRET}"), Verb::Set, false),
            (format!("{long_name} {SECRET}"), Verb::Set, false),
            (format!("shop  {SECRET}"), Verb::Set, false),
            (format!("shop {SECRET}A"), Verb::Set, false),
            (format!("shop {}", &SECRET[1..]), Verb::Set, false),
            (format!("shop {}=", &SECRET[1..]), Verb::Set, false),
            ("shop".into(), Verb::Set, false),
        ] {
            let store = Store {
                verb,
                key: b"k",
                value: value.as_bytes(),
                flags: 0,
                exptime: 0,
                noreply: false,
            };
            assert_eq!(is_login(&store), is_one, "{verb:?} {value}");
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
