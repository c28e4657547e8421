//! Real processes that share a node's memory: their memory, as the system sees it, while they come, go, stand still and
//! are killed.

mod load;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use load::Load;

use super::disk::Disk;
use super::*;

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 2 * MIB;
const VALUE_BYTES: usize = 4096;

/// A folder with the memory of a node.
struct Node(TempDir);

impl Node {
    fn new(mib: u64) -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        node.set_memory(&(mib * MIB).to_string());
        node
    }

    /// All at once, so that nobody reads half of it.
    fn set_memory(&self, text: &str) {
        let new = self.0.path().join("memory.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.0.path().join("memory")).unwrap();
    }

    /// The options of an instance.
    fn options(&self) -> [String; 6] {
        let folder = self.0.path().to_str().unwrap();
        ["--node-memory", folder, "--lease-period", "1s", "--memory", "1GiB"].map(str::to_owned)
    }

    fn start(&self) -> Instance {
        Instance::start(&mut tidemark(), &self.options())
    }
}

/// One server; it ends with the test. Its log is a file, because nobody reads it meanwhile.
struct Instance {
    child: Running,
    memcached: SocketAddr,
    folder: TempDir,
}

impl Instance {
    fn start(command: &mut Command, options: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        open_to(folder.path(), 0o777);
        let mut child = command
            .args([
                "serve",
                "--memcached",
                "127.0.0.1:0",
                "--redis",
                "off",
                "--admin",
                "off",
            ])
            .args(["--workers", "1", "--data", folder.path().join("data").to_str().unwrap()])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut ready)
            .unwrap();
        let log = || fs::read_to_string(folder.path().join("log")).unwrap();
        let memcached = ready.split(' ').find_map(|word| word.strip_prefix("memcached="));
        let memcached = memcached
            .unwrap_or_else(|| panic!("not ready: {}", log()))
            .parse()
            .unwrap();
        Self {
            child: Running(child),
            memcached,
            folder,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = tidemark()
            .args(arguments)
            .args(["--json", "--data", self.folder.path().join("data").to_str().unwrap()])
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {} {}",
            stderr(&output),
            self.log()
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn server(&self) -> Value {
        self.json(&["server", "show"])
    }

    fn node(&self) -> Value {
        self.server()["node"].clone()
    }

    fn lease_mib(&self) -> u64 {
        // Until the thread has looked for the first time, the pool has its first size.
        let server = self.server();
        server
            .pointer("/node/lease_bytes")
            .unwrap_or(&server["pool_bytes"])
            .as_u64()
            .unwrap()
            / MIB
    }

    fn problem(&self) -> String {
        self.node()["problem"].as_str().unwrap_or_default().to_owned()
    }

    /// The view that this one has of another's lease.
    fn sees(&self, other: &Instance) -> Value {
        let node = self.node();
        let leases = node["leases"].as_array().unwrap();
        let is_its = |lease: &&Value| lease["process"] == other.child.id();
        leases.iter().find(is_its).cloned().unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }
}

/// The physical memory of a process's pool: that of the mappings left out of core dumps.
fn pool_resident_bytes(process: u32) -> Option<u64> {
    let smaps = fs::read_to_string(format!("/proc/{process}/smaps")).ok()?;
    let (mut sum, mut resident) = (0, 0);
    for line in smaps.lines() {
        if let Some(rest) = line.strip_prefix("Rss:") {
            resident = rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024;
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_whitespace().any(|flag| flag == "dd")
        {
            sum += resident;
        }
    }
    Some(sum)
}

/// Looks all the time at what all pools together hold.
struct Sampler {
    processes: Arc<Mutex<Vec<u32>>>,
    samples: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    fn start(node_bytes: u64) -> Self {
        let processes: Arc<Mutex<Vec<u32>>> = Arc::default();
        let samples: Arc<AtomicU64> = Arc::default();
        let is_over: Arc<AtomicBool> = Arc::default();
        let (watched, counted, ends) = (Arc::clone(&processes), Arc::clone(&samples), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut most = 0;
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let processes = watched.lock().unwrap().clone();
                let look = || {
                    let held = processes
                        .iter()
                        .map(|process| pool_resident_bytes(*process).unwrap_or(0));
                    held.collect::<Vec<_>>()
                };
                // They are read one after the other while memory moves. If each only grew or only shrank in so short a
                // time, the lesser of its two readings is a lower bound. It holds for one moment between them, the same
                // for all.
                let held: Vec<u64> = look().into_iter().zip(look()).map(|(a, b)| a.min(b)).collect();
                if begun.elapsed() < Duration::from_millis(50) {
                    let sum: u64 = held.iter().sum();
                    let allowed = node_bytes + SEGMENT * processes.len() as u64;
                    assert!(sum <= allowed, "{} of {} MiB: {held:?}", sum / MIB, node_bytes / MIB);
                    counted.fetch_add(1, Ordering::Relaxed);
                    most = sum.max(most);
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            most
        });
        Self {
            processes,
            samples,
            is_over,
            thread,
        }
    }

    fn watch(&self, instances: &[&Instance]) {
        *self.processes.lock().unwrap() = instances.iter().map(|instance| instance.child.id()).collect();
    }

    /// Waits until the sum was seen to hold so many times in all. How long that takes is for the machine to say.
    fn wait_for(&self, samples: u64) {
        wait_until("enough samples", || {
            self.samples.load(Ordering::Relaxed) >= samples || self.thread.is_finished()
        });
    }

    /// The most that was held.
    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Keys whose values come to so much.
fn keys(mib: u64) -> u64 {
    mib * MIB / VALUE_BYTES as u64
}

#[test]
fn memory_of_two_instances_moves_to_where_it_is_worth_most_and_the_sum_holds() {
    const NODE_MIB: u64 = 160;
    let node = Node::new(NODE_MIB);
    let sampler = Sampler::start(NODE_MIB * MIB);
    let first = node.start();
    assert_eq!(first.lease_mib(), NODE_MIB, "alone it has everything");
    sampler.watch(&[&first]);
    let first_load = Load::start(&first, keys(300), 0);
    wait_until("the first one is full", || {
        first.server()["usage_bytes"].as_u64().unwrap() > 140 * MIB
    });

    sampler.wait_for(40);

    let second = node.start();
    sampler.watch(&[&first, &second]);
    let second_load = Load::start(&second, keys(300), 50);
    // The load changes over.
    wait_until("the second one works", || second.node()["instances"] == 2);
    first_load.set_pause(50);
    second_load.set_pause(0);
    let took = wait_until("most is the second one's", || second.lease_mib() > NODE_MIB * 2 / 3);
    assert!(took < Duration::from_secs(30), "{took:?}");
    wait_until("and used by it", || {
        second.server()["usage_bytes"].as_u64().unwrap() > NODE_MIB * MIB * 6 / 10
    });

    // It stands still: nobody takes its memory.
    second.signal(Signal::STOP);
    first_load.set_pause(0);
    wait_until("it is seen to stand still", || {
        first.sees(&second)["state"] == "stalled"
    });
    let held = first.sees(&second)["lease_bytes"].as_u64().unwrap() / MIB;
    assert!(held > NODE_MIB / 2 && first.lease_mib() + held <= NODE_MIB, "{held}");
    second.signal(Signal::CONT);
    wait_until("it goes on", || first.sees(&second)["state"] == "active");

    sampler.wait_for(160);
    second.signal(Signal::STOP);
    second.signal(Signal::KILL);
    drop(second);
    drop(second_load);
    wait_until("all is the first one's", || first.lease_mib() == NODE_MIB);
    sampler.watch(&[&first]);
    wait_until("and used by it", || {
        first.server()["usage_bytes"].as_u64().unwrap() > 140 * MIB
    });
    sampler.wait_for(200);
    let most = sampler.end();
    assert!(most > 140 * MIB, "{}", most / MIB);
    let leases = fs::read_dir(node.0.path()).unwrap().count();
    assert_eq!(leases, 2, "the dead one's file is removed");
    drop(first);
    drop(first_load);
}

/// Both want nine hits in ten, and there is memory for one of them.
#[test]
fn goals_hold_across_two_instances_and_the_higher_priority_comes_first() {
    const NODE_MIB: u64 = 128;
    let node = Node::new(NODE_MIB);
    let aims = |instance: &Instance, priority: &str| {
        instance.json(&["tenant", "set", "default", "--hit-ratio", "0.9", "--priority", priority]);
    };
    let default = |instance: &Instance| instance.json(&["tenant", "show", "default"]);
    let is_met = |instance: &Instance| {
        let tenant = default(instance);
        tenant["goal_state"] == "met" && tenant["hit_ratio"].as_f64() > Some(0.88)
    };
    let lacks = |instance: &Instance| {
        let tenant = default(instance);
        tenant["goal_state"] != "met" && tenant["shortfall_ratio"].as_f64() > Some(0.05)
    };
    let busy = node.start();
    let busy_load = Load::start(&busy, keys(95), 0);
    wait_until("the busy one is full", || {
        busy.server()["usage_bytes"].as_u64().unwrap() > 95 * MIB
    });
    // Asked far less often: by the worth of memory the other one would keep it.
    let calm = node.start();
    let calm_load = Load::start(&calm, keys(60), 5);
    aims(&busy, "3");
    aims(&calm, "7");
    wait_until(
        "the higher one's goal is met, and the lower one says what it lacks",
        || is_met(&calm) && lacks(&busy),
    );
    aims(&busy, "8");
    wait_until("the other one is the higher now", || is_met(&busy) && lacks(&calm));
    assert!(busy.lease_mib() + calm.lease_mib() <= NODE_MIB);
    drop((busy, calm));
    drop((busy_load, calm_load));
}

#[test]
fn floors_hold_across_three_instances_that_are_killed_and_paused() {
    const NODE_MIB: u64 = 128;
    let node = Node::new(NODE_MIB);
    let sampler = Sampler::start(NODE_MIB * MIB);
    let first = node.start();
    let first_load = Load::start(&first, keys(300), 0);
    wait_until("the first one is full", || {
        first.server()["usage_bytes"].as_u64().unwrap() > 110 * MIB
    });
    let (second, third) = (node.start(), node.start());
    sampler.watch(&[&first, &second, &third]);
    second.json(&["tenant", "set", "default", "--floor", "48MiB"]);
    let second_load = Load::start(&second, keys(80), 5);
    let third_load = Load::start(&third, keys(300), 20);
    let took = wait_until("the floor", || second.lease_mib() >= 48);
    assert!(took < Duration::from_secs(20), "{took:?}");
    // Floors of all instances together have to fit.
    let refused = tidemark()
        .args(["tenant", "set", "default", "--floor", "80MiB"])
        .args(["--data", third.folder.path().join("data").to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(DENIED), "{}", stderr(&refused));

    // Nothing that can be read, and then less of everything.
    let before = [&first, &second, &third].map(Instance::lease_mib);
    node.set_memory("much");
    let all = [&first, &second, &third];
    for instance in all {
        wait_until("it is said", || {
            instance.problem().contains("memory holds no number of bytes")
        });
    }
    let during = all.map(Instance::lease_mib);
    assert!(during.iter().sum::<u64>() <= NODE_MIB, "{before:?} {during:?}");
    let uptime = || first.server()["uptime_seconds"].as_u64().unwrap();
    let now = uptime();
    wait_until("some more looks", || uptime() >= now + 3);
    assert_eq!(all.map(Instance::lease_mib), during, "each keeps its own last lease");
    node.set_memory(&(NODE_MIB * MIB).to_string());
    wait_until("it is over", || {
        all.iter().all(|instance| instance.problem().is_empty())
    });
    for part in ["the lease stays as it is", "the lease follows the node again"] {
        assert_eq!(first.log().matches(part).count(), 1, "once: {}", first.log());
    }

    for signal in [Signal::STOP, Signal::CONT] {
        third.signal(signal);
        first.signal(signal);
        let state = if signal == Signal::STOP { "stalled" } else { "active" };
        wait_until(state, || {
            [&first, &third]
                .iter()
                .all(|other| second.sees(other)["state"] == state)
        });
        assert!(second.lease_mib() >= 48, "{state}");
    }
    sampler.wait_for(80);
    third.signal(Signal::KILL);
    drop(third);
    drop(third_load);
    wait_until("two are left", || second.node()["instances"] == 2);
    sampler.watch(&[&first, &second]);
    assert!(second.lease_mib() >= 48);
    node.set_memory(&(64 * MIB).to_string());
    wait_until("a smaller node", || first.lease_mib() + second.lease_mib() <= 64);
    assert!(second.lease_mib() >= 48, "the floor is kept before what is worth more");
    sampler.wait_for(100);
    sampler.end();
    drop((first, second));
    drop((first_load, second_load));
}

#[test]
fn a_folder_that_can_not_be_used_is_refused_at_the_start() {
    let check = |folder: &Path, parts: &[&str]| {
        let data = tempfile::tempdir().unwrap();
        let folder = folder.to_str().unwrap();
        let mut arguments = vec![
            "serve",
            "--node-memory",
            folder,
            "--data",
            data.path().to_str().unwrap(),
        ];
        arguments.extend(["--memcached", "127.0.0.1:0", "--redis", "off", "--admin", "off"]);
        let place = format!("--node-memory {folder}: ");
        check_fails(&arguments, FAILED, &[&[place.as_str()], parts].concat());
    };
    let node = Node::new(12);
    check(&node.0.path().join("nowhere"), &["can not read", "No such file"]);
    let first = node.start();
    assert_eq!(first.lease_mib(), 12);
    check(node.0.path(), &["too little for one more instance", "at least 8 MiB"]);
    node.set_memory("12MiB");
    check(node.0.path(), &["holds no number of bytes", "decimal digits"]);
}

#[test]
fn in_a_folder_that_may_not_be_written_any_more_leases_go_on_and_nobody_joins() {
    let node = Node::new(64);
    // The superuser may write anywhere: then the servers are somebody else's.
    let is_superuser = rustix::process::geteuid().is_root();
    let programs = tempfile::tempdir().unwrap();
    let program = programs.path().join("tidemark");
    if is_superuser {
        // The copy is another process's. A process that a test beside this forks meanwhile would inherit the file open
        // for writing. A program that somebody may write to cannot be started.
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_tidemark"))
            .arg(&program)
            .status();
        assert!(copied.unwrap().success());
        open_to(programs.path(), 0o755);
    }
    let command = || {
        if !is_superuser {
            return tidemark();
        }
        let mut command = Command::new(&program);
        command.uid(65_534).gid(65_534).env_clear();
        command
    };
    open_to(node.0.path(), 0o777);
    let first = Instance::start(&mut command(), &node.options());
    assert_eq!(first.lease_mib(), 64);
    node.set_memory(&(96 * MIB).to_string());
    open_to(node.0.path(), 0o555);
    wait_until("the lease grows", || first.lease_mib() == 96);
    assert_eq!(first.problem(), "");
    check_refused(&mut command(), &node.options(), "Permission denied");

    open_to(node.0.path(), 0o000);
    wait_until("it is said", || first.problem().contains("can not read"));
    assert_eq!(first.lease_mib(), 96);
    open_to(node.0.path(), 0o755);
    wait_until("it is over", || first.problem().is_empty());
}

/// Writes the node's memory.
fn set_memory(disk: &Disk, mib: u64) {
    fs::write(format!("{}/memory", disk.path()), (mib * MIB).to_string()).unwrap();
}

/// The options of an instance whose leases lie on that disk.
fn leases_on(disk: &Disk) -> [String; 6] {
    let folder = disk.folder().to_str().unwrap();
    ["--node-memory", folder, "--lease-period", "1s", "--memory", "1GiB"].map(str::to_owned)
}

#[test]
fn on_a_full_disk_leases_go_on_and_nobody_joins() {
    const NODE_MIB: u64 = 96;
    let Some(disk) = Disk::new(64) else {
        eprintln!("no disk can be made here: nothing was tested");
        return;
    };
    set_memory(&disk, NODE_MIB);
    let start = || Instance::start(&mut disk.command(), &leases_on(&disk));
    let (first, second) = (start(), start());
    wait_until("both are there", || first.node()["instances"] == 2);
    disk.fill();
    // The statements change all the time now.
    let load = Load::start(&first, keys(300), 0);
    wait_until("most is the first one's", || first.lease_mib() > NODE_MIB * 2 / 3);
    wait_until("and used by it", || {
        first.server()["usage_bytes"].as_u64().unwrap() > NODE_MIB * MIB * 6 / 10
    });
    assert!(first.lease_mib() + second.lease_mib() <= NODE_MIB);
    assert_eq!([first.problem(), second.problem()], ["", ""]);

    check_refused(&mut disk.command(), &leases_on(&disk), "No space left on device");
    wait_until("it left nothing behind", || {
        let names = fs::read_dir(disk.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().ends_with(".lease")).count() == 2
    });
    assert_eq!([first.problem(), second.problem()], ["", ""]);
    drop((first, second));
    drop(load);
}

/// One more instance does not start, because it cannot state a lease.
fn check_refused(command: &mut Command, options: &[String], reason: &str) {
    let data = tempfile::tempdir().unwrap();
    open_to(data.path(), 0o777);
    let refused = command
        .args([
            "serve",
            "--memcached",
            "127.0.0.1:0",
            "--redis",
            "off",
            "--admin",
            "off",
        ])
        .args(["--data", data.path().to_str().unwrap()])
        .args(options)
        .output()
        .unwrap();
    let message = stderr(&refused);
    assert_eq!(refused.status.code(), Some(FAILED), "{message}");
    assert!(
        message.contains("can not write") && message.contains(reason),
        "{message}"
    );
}

fn open_to(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}
