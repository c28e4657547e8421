//! `tidemark top` as people use it: in a terminal, which here is a pseudo terminal whose screen is read.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::Parser;

use super::*;

/// A terminal with a program in it.
struct Terminal {
    master: File,
    program: Running,
    output: Receiver<Vec<u8>>,
    screen: Parser,
    /// All that was written so far.
    written: Vec<u8>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Terminal {
    /// Runs the command in a terminal that is its own: it is told when the size changes.
    fn run(server: &Server, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        tcsetwinsize(&master, size(24, 100)).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || -> OwnedFd {
            rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap()
        };
        let mut command = Command::new("setsid");
        command.args([
            "--ctty",
            env!("CARGO_BIN_EXE_tidemark"),
            "--data",
            &data(&server.folder),
            "top",
        ]);
        command.args(arguments).envs(variables.iter().copied());
        command.env("TERM", "xterm-256color");
        if variables.is_empty() {
            command.env_remove("NO_COLOR");
        }
        let program = command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (to, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The read fails when the program has ended.
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if to.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            master,
            program: Running(program),
            output,
            screen: Parser::new(24, 100, 0),
            written: Vec::new(),
        }
    }

    /// Follows what is drawn until it is as expected; returns the screen's text.
    fn wait_for(&mut self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.screen.screen().contents();
            if is_there(&text) {
                return text;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(bytes) => {
                    self.screen.process(&bytes);
                    self.written.extend_from_slice(&bytes);
                }
                Err(error) => panic!("{what}: {error}: {text}"),
            }
        }
    }

    /// Whether any letter is coloured.
    fn has_colour(&self) -> bool {
        let screen = self.screen.screen();
        let (rows, columns) = screen.size();
        let mut cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells.any(|(row, column)| {
            let cell = screen.cell(row, column);
            cell.is_some_and(|cell| cell.fgcolor() != vt100::Color::Default)
        })
    }

    fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        tcsetwinsize(&self.master, size(rows, columns)).unwrap();
    }

    /// Waits for the program's end, and that it put the terminal back.
    fn end(mut self) {
        let status = self.program.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.written.extend_from_slice(&bytes);
            // Leaves the other screen.
            if self.written.windows(8).any(|window| window == b"\x1b[?1049l") {
                return;
            }
        }
        panic!("the terminal was not put back");
    }
}

/// A server with tenants, of which `large` has more floor than `small`.
fn server() -> Server {
    let server = Server::start(&[]);
    for (name, floor) in [("large", "16MiB"), ("small", "2MiB")] {
        let created = server.run(&["tenant", "create", name, "--floor", floor]);
        assert_eq!(created.status.code(), Some(0), "{}", stderr(&created));
    }
    server
}

fn line_of(text: &str, name: &str) -> Option<usize> {
    text.lines().position(|line| line.starts_with(name))
}

#[test]
fn a_terminal_follows_tenants_keys_and_sizes() {
    let server = server();
    let mut terminal = Terminal::run(&server, &["--sort", "tenant", "--every", "200ms"], &[]);
    let text = terminal.wait_for("the first screen", |text| text.contains("TENANT v"));
    assert!(line_of(&text, "large") < line_of(&text, "small"), "{text}");
    assert!(text.contains("q quit") && text.contains("LAST MOVE"), "{text}");
    assert!(terminal.has_colour(), "{text}");
    terminal.press(b"r");
    let text = terminal.wait_for("the other way round", |text| text.contains("TENANT ^"));
    assert!(line_of(&text, "large") > line_of(&text, "small"), "{text}");
    terminal.press(b"\x1b[C");
    terminal.wait_for("the next column", |text| text.contains("GRANT ^"));
    // A tenant that comes is there without a key.
    assert_eq!(server.run(&["tenant", "create", "newcomer"]).status.code(), Some(0));
    terminal.wait_for("a new tenant", |text| line_of(text, "newcomer").is_some());
    // On a small screen the help is on its last line.
    terminal.resize(5, 60);
    terminal.wait_for("the small screen", |text| {
        text.lines().count() == 5 && text.lines().last().is_some_and(|line| line.contains("q quit"))
    });
    terminal.press(b"q");
    terminal.end();
}

/// The number under a title of the table, in the line of a tenant.
fn number_under(text: &str, title: &str, name: &str) -> Option<f64> {
    let header = text.lines().find(|line| line.starts_with("TENANT"))?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let begin = header.find(title)?;
    let is_under = |word: &&str| {
        let at = word.as_ptr().addr() - line.as_ptr().addr();
        at < begin + title.len() && begin < at + word.len()
    };
    line.split_whitespace().find(is_under)?.parse().ok()
}

#[test]
fn a_terminal_shows_cores_and_money() {
    let files = tempfile::tempdir().unwrap();
    let server = &spending::start(&files, "1000000", &[]);
    let is_done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                spending::gets(server, 10_000);
            }
        });
        let shown = std::panic::catch_unwind(|| {
            let mut terminal = Terminal::run(server, &["--every", "200ms"], &[]);
            terminal.wait_for("cores and money", |text| {
                let is_some = |title| number_under(text, title, "default").is_some_and(|number| number > 0.0);
                is_some("VCPU") && is_some("SPENT")
            });
            terminal.press(b"q");
            terminal.end();
        });
        is_done.store(true, Ordering::Relaxed);
        shown.unwrap();
    });
}

#[test]
fn a_screen_without_colours_ends_by_a_signal() {
    let server = server();
    let mut terminal = Terminal::run(&server, &[], &[("NO_COLOR", "1")]);
    terminal.wait_for("the first screen", |text| {
        text.contains("GRANT v") && text.contains("q quit")
    });
    assert!(!terminal.has_colour());
    kill_process(Pid::from_child(&terminal.program), Signal::TERM).unwrap();
    terminal.end();
}

#[test]
fn without_a_terminal_it_is_one_table() {
    let server = server();
    let output = server.run(&["top", "--sort", "tenant"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["tidemark", "TENANT", "default", "large", "small"], "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let both = server.json(&["top"]);
    assert_eq!(both["tenants"].as_array().unwrap().len(), 3);
    assert!(both["server"]["pool_bytes"].as_u64().unwrap() > 0);
    let folder = tempfile::tempdir().unwrap();
    check_fails(
        &["--data", folder.path().to_str().unwrap(), "top"],
        FAILED,
        &["no server runs on"],
    );
}
