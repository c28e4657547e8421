//! The CPU time of the process that listens on an address of this machine.
//!
//! Linux only, as Tidemark is. Sockets and their inodes come from `/proc/net/tcp` and `tcp6`, their holders from
//! `/proc/<pid>/fd`. Run time in nanoseconds comes from `/proc/<pid>/task/*/schedstat` (proc(5)). A file that may not
//! be read makes the answer `None`, never a guess.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The processes that hold a listening socket.
#[derive(Debug)]
pub struct Listener {
    processes: Vec<u32>,
}

impl Listener {
    /// The processes behind `address`, this one excepted: its time would be the load's too.
    pub fn find(address: SocketAddr) -> Option<Self> {
        let mut inodes = Vec::new();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            if let Ok(text) = fs::read_to_string(table) {
                inodes.extend(text.lines().filter_map(|line| listening_inode(line, address)));
            }
        }
        if inodes.is_empty() {
            return None;
        }
        let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
        let all = fs::read_dir("/proc").ok()?.flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let processes: Vec<u32> = ids
            .filter(|id| *id != std::process::id() && holds(*id, &links))
            .collect();
        (!processes.is_empty()).then_some(Self { processes })
    }

    /// Whether this process is the only one behind it.
    pub fn is(&self, process: u32) -> bool {
        self.processes == [process]
    }

    /// The CPU time of all living threads since they started, user and system, in nanoseconds.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.processes.iter().map(|id| process_cpu_ns(*id)).sum()
    }
}

/// Whether a process has one of the sockets open.
fn holds(process: u32, links: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|entry| {
        let target = fs::read_link(entry.path());
        target.is_ok_and(|target| links.iter().any(|link| target.as_os_str() == link.as_str()))
    })
}

/// The inode of a line `sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode ...` if that socket
/// would accept connections to `address`.
fn listening_inode(line: &str, address: SocketAddr) -> Option<u64> {
    let fields: Vec<&str> = line.split_ascii_whitespace().take(10).collect();
    let [_, local, _, LISTEN, .., inode] = fields[..] else {
        return None;
    };
    let (ip, port) = local.split_once(':')?;
    let (ip, port) = (parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?);
    let accepts = ip.is_unspecified() || ip.to_canonical() == address.ip().to_canonical();
    (port == address.port() && accepts).then(|| inode.parse().ok())?
}

/// Addresses are written as 32-bit words in the machine's order, each in hexadecimal.
fn parse_ip(text: &str) -> Option<IpAddr> {
    let word = |index: usize| {
        let digits = text.get(index * 8..index * 8 + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).into())
        }
        _ => None,
    }
}

/// The CPU time of a process, user and system, in nanoseconds. The source is the run times of its living threads where
/// the kernel counts them, else the process's clock ticks.
pub fn process_cpu_ns(process: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let exact: Option<u64> = threads
        .map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    exact
        .filter(|ns| *ns > 0)
        .or_else(|| ticks_ns(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?))
}

/// `utime` and `stime`, the 14th and 15th field of `/proc/<pid>/stat`; the second is a name that may hold anything but ends
/// with the last parenthesis.
fn ticks_ns(stat: &str) -> Option<u64> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_matched_by_address_and_state() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 643 1 0 100 0 0 10 0"
            )
        };
        for (local, state, address, found) in [
            ("0100007F:2BCB", "0A", "127.0.0.1:11211", true),
            ("00000000:2BCB", "0A", "127.0.0.1:11211", true),
            ("0100007F:2BCB", "01", "127.0.0.1:11211", false),
            ("0100007F:2BCC", "0A", "127.0.0.1:11211", false),
            ("0200007F:2BCB", "0A", "127.0.0.1:11211", false),
            ("00000000000000000000000000000000:2BCB", "0A", "127.0.0.1:11211", true),
            ("00000000000000000000000001000000:2BCB", "0A", "[::1]:11211", true),
            ("0000000000000000FFFF00000100007F:2BCB", "0A", "127.0.0.1:11211", true),
        ] {
            let inode = listening_inode(&line(local, state), address.parse().unwrap());
            assert_eq!(inode, found.then_some(643), "{local} {state} {address}");
        }
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(listening_inode(header, "127.0.0.1:1".parse().unwrap()), None);
    }

    #[test]
    fn the_names_of_processes_do_not_confuse() {
        let stat = "7 (a) b) R 1 2 3 4 5 6 7 8 9 10 300 42 0 0";
        assert_eq!(
            ticks_ns(stat),
            Some(342 * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
        );
    }

    #[test]
    fn run_time_grows_with_work() {
        let own = std::process::id();
        let before = process_cpu_ns(own).unwrap();
        // Busy until the clock has moved, whatever the machine's speed.
        let mut work = 0_u64;
        while process_cpu_ns(own).unwrap() == before {
            work = std::hint::black_box(work + 1);
        }
        assert!(process_cpu_ns(own).unwrap() > before);
    }

    #[test]
    fn a_socket_of_this_process_is_not_a_server_to_measure() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Listener::find(listener.local_addr().unwrap()).is_none());
    }
}
