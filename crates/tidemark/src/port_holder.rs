//! The process that listens on a port, as far as the system tells: `/proc` of Linux; elsewhere nobody is known.

use std::fmt;
use std::fs;
use std::path::Path;

/// A process that listens on a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PortHolder {
    pid: u32,
    name: String,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// The process that listens on a TCP port. `None` if it cannot be told, for example because it is another user's. If
/// several share the socket, it is the one that the socket comes from.
pub(crate) fn find(port: u16) -> Option<PortHolder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<u64> = tables.iter().flat_map(|table| listening_inodes(table, port)).collect();
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let pids = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holders: Vec<u32> = pids.filter(|pid| holds_one(*pid, &links)).collect();
    eldest(&holders, parent).map(|pid| PortHolder {
        pid,
        name: fs::read_to_string(format!("/proc/{pid}/comm"))
            .unwrap_or_default()
            .trim()
            .to_owned(),
    })
}

/// The one whose parent is none of them: a child has its parent's sockets until it runs a program of its own, if it does.
/// One without a parent has ended meanwhile.
fn eldest(holders: &[u32], parent: impl Fn(u32) -> Option<u32>) -> Option<u32> {
    let is_eldest = |pid: &&u32| parent(**pid).is_some_and(|parent| !holders.contains(&parent));
    holders.iter().find(is_eldest).or(holders.first()).copied()
}

fn parent(pid: u32) -> Option<u32> {
    parent_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The parent in `/proc/PID/stat` (proc_pid_stat(5)): the second column after the name, which is in parentheses and may hold
/// anything.
fn parent_in(stat: &str) -> Option<u32> {
    let (_, columns) = stat.rsplit_once(')')?;
    columns.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Inodes of the sockets that listen on `port`, out of `/proc/net/tcp` (proc_pid_net(5)). The second column is the
/// local address and port in hexadecimal, the fourth the state, the tenth the inode.
fn listening_inodes(table: &str, port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = columns.get(1)?.rsplit_once(':')?;
        let is_it = u16::from_str_radix(local_port, 16) == Ok(port) && columns.get(3) == Some(&LISTEN);
        columns.get(9).filter(|_| is_it)?.parse().ok()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holds_one(pid: u32, links: &[String]) -> bool {
    let descriptors = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    let mut targets = descriptors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| {
        target
            .to_str()
            .is_some_and(|target| links.iter().any(|link| link == target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listeners_on_the_port_count() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1 0 100 0 0 10 0
   1: 0100007F:18EB 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 222 1 0 20 4 30 10 -1
   2: 00000000:2BCB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 333 1 0 100 0 0 10 0
   3: broken
";
        assert_eq!(listening_inodes(table, 6379), [111]);
        assert_eq!(listening_inodes(table, 11211), [333]);
        assert_eq!(listening_inodes(table, 1), [0; 0]);
    }

    #[test]
    fn of_a_family_the_eldest_counts() {
        let parent = |pid| (pid != 5).then_some(pid / 2);
        for (holders, expected) in [
            (vec![], None),
            (vec![9], Some(9)),
            (vec![41, 20, 10], Some(10)),
            (vec![8, 9], Some(8)),
            // 5 has ended.
            (vec![5, 9], Some(9)),
            (vec![5], Some(5)),
        ] {
            assert_eq!(eldest(&holders, parent), expected, "{holders:?}");
        }
        assert_eq!(parent_in("17 (a) b (c)) S 4 17 0"), Some(4));
        assert_eq!(parent_in("17"), None);
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        assert_eq!(parent_in(&stat), Some(std::os::unix::process::parent_id()));
    }

    #[test]
    fn a_listener_of_this_process_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else {
                // A machine without IPv6.
                continue;
            };
            let holder = find(listener.local_addr().unwrap().port()).unwrap();
            assert_eq!(holder.pid, std::process::id());
            assert!(!holder.name.is_empty());
        }
    }
}
