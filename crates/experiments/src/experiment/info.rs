//! The `INFO` of a tenant, over a connection that stays open.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::elastic::Moment;
use tidemark_tools::Error;
use tidemark_tools::client::{Protocol, quote};

/// Answers are a few kilobytes and come at once; a server that works at its limit may take longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// More than all sections together take.
const MAX_BYTES: usize = 1 << 20;

/// A connection that is a tenant's.
#[derive(Debug)]
pub(super) struct Info {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

/// Begins a tenant's figures anew, which memcached's protocol has a command for.
pub(super) fn begin_anew(memcached: SocketAddr, tenant: &str, secret: &str) -> Result<(), Error> {
    const ANSWER: &[u8] = b"STORED\r\nRESET\r\n";
    let address = memcached;
    let login = format!("{tenant} {secret}");
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("set auth 0 0 {}\r\n{login}\r\nstats reset\r\n", login.len()).as_bytes())?;
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    match ask() {
        Ok(answer) if answer.as_slice() == ANSWER => Ok(()),
        Ok(answer) => Err(Error::Protocol {
            address,
            protocol: Protocol::Memcached.name(),
            reply: quote(&answer),
        }),
        Err(source) => Err(Error::Connection { address, source }),
    }
}

/// The lines of an answer.
#[derive(Debug)]
pub(super) struct Fields {
    address: SocketAddr,
    text: String,
}

impl Info {
    /// Connects to where the server speaks RESP, and logs in.
    pub(super) fn open(address: SocketAddr, tenant: &str, secret: &str) -> Result<Self, Error> {
        let failed = |source| Error::Connection { address, source };
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut info = Self {
            address,
            stream: BufReader::new(stream),
        };
        let answer = info.ask(&format!("AUTH {tenant} {secret}"))?;
        if answer != "+OK" {
            return Err(Error::Login {
                address,
                tenant: tenant.to_owned(),
                reply: quote(answer.as_bytes()),
            });
        }
        Ok(info)
    }

    /// Asks for sections, by their names with spaces between them.
    pub(super) fn read(&mut self, sections: &str) -> Result<Fields, Error> {
        let head = self.ask(&format!("INFO {sections}"))?;
        let length = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
        let length = length.filter(|length| *length <= MAX_BYTES);
        let address = self.address;
        let length = length.ok_or_else(|| unexpected(address, &head))?;
        // The text is followed by an end of line.
        let mut bytes = vec![0; length + 2];
        self.stream
            .read_exact(&mut bytes)
            .map_err(|source| Error::Connection { address, source })?;
        Ok(Fields {
            address,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    /// How the tenant stands, `seconds` after something began.
    pub(super) fn moment(&mut self, seconds: f64) -> Result<Moment, Error> {
        let fields = self.read("memory stats")?;
        let hits = fields.number("keyspace_hits")?;
        Ok(Moment {
            seconds,
            gets: hits + fields.number("keyspace_misses")?,
            hits,
            grant_bytes: fields.number("tidemark_grant_bytes")?,
            usage_bytes: fields.number("used_memory")?,
        })
    }

    /// Sends a line and returns the first one of the answer, without its end.
    fn ask(&mut self, line: &str) -> Result<String, Error> {
        let address = self.address;
        let failed = |source| Error::Connection { address, source };
        self.stream
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())
            .map_err(failed)?;
        let mut answer = String::new();
        if self.stream.read_line(&mut answer).map_err(failed)? == 0 {
            return Err(Error::Closed { address });
        }
        Ok(answer.trim_end().to_owned())
    }
}

impl Fields {
    /// A field that is a whole number.
    pub(super) fn number(&self, name: &str) -> Result<u64, Error> {
        let mut lines = self.text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.parse().ok());
        value.ok_or_else(|| unexpected(self.address, &format!("INFO without {name}")))
    }

    /// A part of a field that has several, as `p99` of `name:p50=1,p99=2`.
    pub(super) fn part(&self, name: &str, part: &str) -> Result<f64, Error> {
        let mut lines = self.text.lines();
        let parts = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let mut parts = parts.unwrap_or_default().split(',');
        let value = parts.find_map(|each| each.strip_prefix(part)?.strip_prefix('=')?.parse().ok());
        value.ok_or_else(|| unexpected(self.address, &format!("INFO without {part} of {name}")))
    }
}

fn unexpected(address: SocketAddr, reply: &str) -> Error {
    Error::Protocol {
        address,
        protocol: Protocol::Redis.name(),
        reply: quote(reply.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_by_their_whole_names() {
        let fields = Fields {
            address: ([127, 0, 0, 1], 6379).into(),
            text: "# Latencystats\r\nsome_usec:p50=12,p99=40,p99.9=95,requests=7\r\n".into(),
        };
        for (name, part, value) in [
            ("some_usec", "p50", Some(12.0)),
            ("some_usec", "p99", Some(40.0)),
            ("some_usec", "p99.9", Some(95.0)),
            ("some_usec", "p9", None),
            ("some", "p50", None),
        ] {
            assert_eq!(fields.part(name, part).ok(), value, "{name} {part}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_names() {
        let fields = Fields {
            address: ([127, 0, 0, 1], 6379).into(),
            text: "# Memory\r\nused_memory_peak:7\r\nused_memory:5\r\nused_memory_human:5B\r\n".into(),
        };
        for (name, value) in [
            ("used_memory", Some(5)),
            ("used_memory_peak", Some(7)),
            ("used", None),
            ("used_memory_human", None),
        ] {
            assert_eq!(fields.number(name).ok(), value, "{name}");
        }
    }
}
