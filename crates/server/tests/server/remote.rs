//! A server in a process of its own, whose memory, files and CPU time are its alone. The test is its client, and tells it
//! by lines what plans to apply.

use std::net::SocketAddr;

use crate::harness::{Client, Harness, SECRET, login};
use crate::process::{Child, child, cpu_time, open_files, resident_bytes};

/// The server as the test sees it.
pub(crate) struct Remote {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// Starts a test's server in another process. There, `start` makes the server, and `obey` does what only this test asks for;
/// it is given the wish's words. `None` in that process, once the test is over.
pub(crate) fn remote(
    name: &str,
    start: impl FnOnce() -> Harness,
    mut obey: impl FnMut(&Harness, &[&str]) -> u64,
) -> Option<Remote> {
    let mut child = child(name, |say| {
        let harness = start();
        let mut heard = say(&harness.address.to_string());
        while let Some(wish) = heard {
            let words: Vec<&str> = wish.split(' ').collect();
            let answer = figure(&harness, &words).unwrap_or_else(|| obey(&harness, &words));
            heard = say(&answer.to_string());
        }
    })?;
    let address = child.hear().parse().unwrap();
    Some(Remote { child, address })
}

/// The figures that every test may ask for.
fn figure(harness: &Harness, words: &[&str]) -> Option<u64> {
    let tenant = |number: &str| harness.tenant(number.parse().unwrap());
    Some(match words {
        ["connections"] => harness.look().connections,
        ["buffers"] => harness.buffer_bytes(),
        ["anonymous"] => resident_bytes("Anonymous"),
        ["resident"] => resident_bytes("Rss"),
        ["files"] => open_files() as u64,
        ["cpu"] => cpu_time().as_micros() as u64,
        ["usage"] => harness.look().usage_bytes,
        ["accounted"] => {
            let pool = harness.look();
            pool.usage_bytes + pool.other_bytes
        }
        ["redis-port"] => u64::from(harness.redis.port()),
        ["visits-waited", name] => harness.visits_waited(name)?,
        ["closed", reason, number] => {
            let refused = tenant(number)?.counters.refused;
            match *reason {
                "stalled" => refused.stalled,
                "incomplete" => refused.incomplete,
                "memory" => refused.memory,
                "replies" => refused.replies,
                _ => return None,
            }
        }
        ["removed"] => harness.removed().len() as u64,
        ["usage", number] => tenant(number)?.usage_bytes,
        ["grant", number] => tenant(number)?.grant_bytes,
        _ => return None,
    })
}

impl Remote {
    /// A figure of the process or of a tenant, or the answer to a wish: bytes, microseconds of CPU time, or a count.
    pub(crate) fn ask(&mut self, wish: &str) -> u64 {
        self.child.ask(wish).parse().unwrap()
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A new connection, logged in.
    pub(crate) fn log_in(&self, name: &str) -> Client {
        let mut client = self.connect();
        client.ask(&login(name, SECRET), b"STORED\r\n");
        client
    }
}
