//! Logging a connection in, before it carries a load.
//!
//! Invariant: a connection that comes out of here is the tenant's. The login of memcached is a `set`, and a server that
//! takes no logins stores it like any other. The key is therefore asked for afterwards.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use tidemark_types::TenantName;

use super::connection::{OPEN_TIMEOUT, malformed};
use super::{Decoded, Decoder, Login, Protocol, Reply, quote};
use crate::Error;

/// The key by which Tidemark knows a login where a tenant is open.
const LOGIN_KEY: &str = "auth";

/// Logs in on a blocking stream with time limits, and waits for it.
///
/// # Errors
/// The server refuses the login, does not take it for one, or does not answer.
pub(super) fn log_in(
    stream: &mut TcpStream,
    address: SocketAddr,
    protocol: Protocol,
    login: &Login,
) -> Result<(), Error> {
    let mut peer = Peer {
        stream,
        address,
        protocol,
    };
    match peer.ask(&protocol.login_request(&login.tenant, login.secret()))? {
        Answer::Stored => {}
        Answer::Line(reply) => {
            return Err(Error::Login {
                address,
                tenant: login.tenant.to_string(),
                reply,
            });
        }
        Answer::Miss | Answer::Value => return Err(malformed(address, protocol, b"a value")),
    }
    if protocol == Protocol::Redis {
        return Ok(());
    }
    let mut get = Vec::new();
    protocol.write_get(LOGIN_KEY.as_bytes(), &mut get);
    // A secret that may not read is answered with a refusal: the connection is the tenant's then, too.
    if peer.ask(&get)? != Answer::Value {
        return Ok(());
    }
    // The server's answer changes nothing: the value is the login, and should not stay.
    peer.ask(format!("delete {LOGIN_KEY}\r\n").as_bytes())?;
    Err(Error::LoginNotTaken {
        address,
        tenant: login.tenant.to_string(),
    })
}

impl Protocol {
    /// The request that makes a connection a tenant's. For RESP it is `AUTH name secret`. For memcached it is ASCII
    /// authentication, a `set` with the value `name secret` (`doc/protocol.txt`, "Authentication").
    pub(super) fn login_request(self, tenant: &TenantName, secret: &str) -> Vec<u8> {
        let name = tenant.as_str();
        match self {
            Self::Memcached => format!(
                "set {LOGIN_KEY} 0 0 {}\r\n{name} {secret}\r\n",
                name.len() + 1 + secret.len()
            )
            .into_bytes(),
            Self::Redis => format!(
                "*3\r\n$4\r\nAUTH\r\n${}\r\n{name}\r\n${}\r\n{secret}\r\n",
                name.len(),
                secret.len()
            )
            .into_bytes(),
        }
    }
}

/// The other end, asked one thing after the other.
struct Peer<'a> {
    stream: &'a mut TcpStream,
    address: SocketAddr,
    protocol: Protocol,
}

/// A whole reply.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Stored,
    Miss,
    Value,
    /// Any other line, refusals among them.
    Line(String),
}

impl Peer<'_> {
    fn ask(&mut self, request: &[u8]) -> Result<Answer, Error> {
        let address = self.address;
        let waited = |source: io::Error| match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Error::Silent {
                address,
                seconds: OPEN_TIMEOUT.as_secs(),
            },
            _ => Error::Connection { address, source },
        };
        self.stream.write_all(request).map_err(waited)?;
        let mut input = Vec::new();
        let mut buffer = [0; 512];
        loop {
            match self.stream.read(&mut buffer).map_err(waited)? {
                0 => return Err(Error::Closed { address }),
                length => input.extend_from_slice(&buffer[..length]),
            }
            // A decoder at its beginning each time, so that a value that came in part is read again as a whole.
            match Decoder::new(self.protocol).next(&input) {
                Decoded::NeedMore => {}
                Decoded::Reply(_, Reply::Value(part)) if !part.last => {}
                Decoded::Reply(_, Reply::Value(_)) => return Ok(Answer::Value),
                Decoded::Reply(_, Reply::Miss) => return Ok(Answer::Miss),
                Decoded::Reply(_, Reply::Stored) => return Ok(Answer::Stored),
                Decoded::Reply(_, Reply::Refused(line) | Reply::Unexpected(line)) => {
                    return Ok(Answer::Line(quote(line)));
                }
                Decoded::Malformed => return Err(malformed(address, self.protocol, &input)),
            }
        }
    }
}
