//! Scripts between MULTI and EXEC.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidemark_types::{CommandCount, Outcome};

use crate::harness::{Client, Harness, array, wait_until};
use crate::scripts::is_refused_beside_writers;

/// Queues commands, each a list of words, and executes them.
fn transaction(client: &mut Client, commands: &[&[&str]]) -> String {
    assert_eq!(client.ask("MULTI"), "+OK\r\n");
    for command in commands {
        let reply = String::from_utf8(client.call(command)).unwrap();
        assert_eq!(reply, "+QUEUED\r\n", "{command:?}");
    }
    client.ask("EXEC")
}

const GET: &str = "return redis.call('get', KEYS[1])";
const INCR: &str = "return redis.call('incr', KEYS[1])";
const WRITE_AND_FAIL: &str = "redis.call('set', KEYS[1], 'lost') return redis.call('incr', KEYS[1])";

#[test]
fn scripts_are_queued_and_see_what_was_done_before_them() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    for (commands, reply) in [
        (&[&["EVAL", "return 7", "0"][..]][..], "*1\r\n:7\r\n"),
        (
            &[
                &["SET", "k", "1"],
                &["EVAL", INCR, "1", "k"],
                &["INCR", "k"],
                &["EVAL_RO", GET, "1", "k"],
                &["GET", "k"],
            ],
            "*5\r\n+OK\r\n:2\r\n:3\r\n$1\r\n3\r\n$1\r\n3\r\n",
        ),
        (
            &[
                &["SCRIPT", "LOAD", "return 1"],
                &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
                &["EVALSHA", "0000000000000000000000000000000000000000", "0"],
                &["PING"],
            ],
            "*4\r\n$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n:1\r\n\
             -NOSCRIPT No matching script. Please use EVAL.\r\n+PONG\r\n",
        ),
        // A script knows its own keys only, also if the transaction has others.
        (
            &[
                &["SET", "k", "5"],
                &["EVAL", "return redis.call('get', 'k')", "1", "other"],
            ],
            "*2\r\n+OK\r\n-ERR Script attempted to access a key that is not in KEYS: 'k'",
        ),
        (
            &[
                &["EVAL_RO", "return redis.call('set', KEYS[1], 1)", "1", "k"],
                &["GET", "k"],
            ],
            "*2\r\n-ERR Write commands are not allowed from read-only scripts.",
        ),
        (
            &[&["EVAL", "return 1", "9", "k"], &["SET", "k", "6"]],
            "*2\r\n-ERR Number of keys can't be greater than number of args\r\n+OK\r\n",
        ),
        (
            &[&["EVAL", "this is no Lua", "0"], &["GET", "k"]],
            "*2\r\n-ERR Error compiling script",
        ),
    ] {
        let found = transaction(client, commands);
        assert!(found.starts_with(reply), "{commands:?}: {found}");
    }
    assert_eq!(client.ask("GET k"), "$1\r\n6\r\n");
    // In RESP3, too.
    client.ask("HELLO 3");
    let found = transaction(client, &[&["GET", "none"], &["EVAL", GET, "1", "none"]]);
    assert_eq!(found, "*2\r\n_\r\n_\r\n");
}

#[test]
fn a_script_that_fails_leaves_what_others_did() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    client.ask("SET old 1");
    let found = transaction(
        client,
        &[
            &["SET", "k", "before"],
            &["EVAL", WRITE_AND_FAIL, "1", "k"],
            &["EVAL", WRITE_AND_FAIL, "1", "old"],
            &["EVAL", WRITE_AND_FAIL, "1", "new"],
            &["EXISTS", "new"],
            &["APPEND", "k", "!"],
            &["INCR", "old"],
        ],
    );
    let replies: Vec<&str> = found.split("\r\n").collect();
    let failed = |reply: &str| reply.starts_with("-ERR value is not an integer or out of range");
    assert_eq!((replies[0], replies[1]), ("*7", "+OK"), "{found}");
    assert!(replies[2..5].iter().all(|reply| failed(reply)), "{found}");
    assert_eq!(replies[5..8], [":0", ":7", ":2"], "{found}");
    assert_eq!(
        client.ask("MGET k old new"),
        "*3\r\n$7\r\nbefore!\r\n$1\r\n2\r\n$-1\r\n"
    );
}

#[test]
fn watched_keys_end_a_transaction_with_a_script() {
    let harness = Harness::start();
    let (client, other) = (&mut harness.connect(), &mut harness.connect());
    for (writes, reply) in [("SET w 2", "*-1\r\n"), ("SET x 2", "*1\r\n:1\r\n")] {
        client.ask("DEL k");
        client.ask("WATCH w");
        other.ask(writes);
        assert_eq!(transaction(client, &[&["EVAL", INCR, "1", "k"]]), reply, "{writes}");
        assert_eq!(
            client.ask("EXISTS k"),
            if reply == "*-1\r\n" { ":0\r\n" } else { ":1\r\n" }
        );
    }
    // It watches nothing any more.
    other.ask("SET w 3");
    assert_eq!(transaction(client, &[&["EVAL", GET, "1", "w"]]), "*1\r\n$1\r\n3\r\n");
}

#[test]
fn what_needs_more_than_keys_is_not_queued_with_a_script() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    let refused = "-ERR a transaction with a script can have only commands that a script may call";
    let script = ["EVAL", "return 1", "0"];
    for other in [&["SELECT", "1"][..], &["FLUSHALL"], &["DBSIZE"], &["INFO"]] {
        for order in [[&script[..], other], [other, &script[..]]] {
            client.ask("MULTI");
            assert_eq!(client.call(order[0]), b"+QUEUED\r\n");
            let second = String::from_utf8(client.call(order[1])).unwrap();
            assert!(second.starts_with(refused), "{order:?}: {second}");
            assert!(client.ask("EXEC").starts_with("-EXECABORT"), "{order:?}");
        }
    }
    assert_eq!(client.ask("PING"), "+PONG\r\n");
}

#[test]
fn a_loop_in_a_transaction_ends_and_nothing_of_it_was_done() {
    let harness = Harness::start();
    let (client, killer) = (&mut harness.connect(), &mut harness.connect());
    client.ask("MULTI");
    client.call(&["SET", "k", "1"]);
    client.call(&["EVAL", "while true do end", "0"]);
    client.send(b"*1\r\n$4\r\nEXEC\r\n");
    // Others go on meanwhile.
    assert_eq!(killer.ask("SET other 1"), "+OK\r\n");
    wait_until("the loop is ended", || {
        killer.ask("SCRIPT KILL");
        client.has_reply()
    });
    let reply = String::from_utf8(client.reply()).unwrap();
    assert!(
        reply.starts_with("-ERR Error running script: Script killed by user"),
        "{reply}"
    );
    assert_eq!(client.ask("EXISTS k"), ":0\r\n");
    // Without a hand it comes to the end of its steps.
    let reply = transaction(client, &[&["SET", "k", "1"], &["EVAL", "while true do end", "0"]]);
    assert!(reply.starts_with("-ERR the script is above the limit of "), "{reply}");
    assert_eq!(client.ask("EXISTS k"), ":0\r\n");
}

#[test]
fn nobody_sees_the_half_of_it() {
    const ROUNDS: usize = 200;
    let harness = Harness::start();
    let is_done = &AtomicBool::new(false);
    thread::scope(|scope| {
        let mut reader = harness.connect();
        let looking = scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                // MGET alone reads one key after the other.
                let both = transaction(&mut reader, &[&["MGET", "a", "b"]]);
                let values: Vec<&str> = both.split("\r\n").collect();
                // An array in one, of two bulk strings or of two nulls.
                let (a, b) = match values.len() {
                    7 => (values[3], values[5]),
                    _ => (values[2], values[3]),
                };
                assert_eq!(a, b, "{both}");
            }
        });
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let mut client = harness.connect();
                scope.spawn(move || {
                    let mut done = 0;
                    for _ in 0..ROUNDS {
                        let reply = transaction(&mut client, &[&["INCR", "a"], &["EVAL", INCR, "1", "b"]]);
                        // Others may be in the way each time.
                        assert!(
                            reply.starts_with("*2\r\n:") || reply.starts_with("-TRYAGAIN"),
                            "{reply}"
                        );
                        done += u64::from(reply.starts_with('*'));
                    }
                    done
                })
            })
            .collect();
        let joined: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_done.store(true, Ordering::Relaxed);
        let done: u64 = joined.into_iter().map(Result::unwrap).sum();
        looking.join().unwrap();
        let client = &mut harness.connect();
        assert_eq!(client.ask("GET a"), client.ask("GET b"));
        assert_eq!(
            client.ask("GET a"),
            format!("${}\r\n{done}\r\n", done.to_string().len())
        );
        assert!(done > ROUNDS as u64, "{done}");
    });
}

#[test]
fn who_wants_no_replies_gets_none_of_a_transaction_with_a_script() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    for command in ["CLIENT REPLY OFF", "MULTI", "EVAL return(1) 0", "EXEC"] {
        client.send(&array(&command.split(' ').collect::<Vec<_>>()));
    }
    assert_eq!(client.ask("CLIENT REPLY ON"), "+OK\r\n");
    assert_eq!(client.ask("GET k"), "$-1\r\n");
}

#[test]
fn a_write_that_fails_beside_a_script_changes_nothing() {
    let harness = Harness::start();
    let (client, other) = (&mut harness.connect(), &mut harness.connect());
    let not_a_number = "-ERR value is not an integer or out of range\r\n";
    for (commands, reply, of_other) in [
        (
            &[&["INCR", "k"][..], &["EVAL", "return 1", "0"]][..],
            format!("*2\r\n{not_a_number}:1\r\n"),
            "*1\r\n+PONG\r\n",
        ),
        // Earlier writes stay so.
        (
            &[&["APPEND", "k", "d"], &["INCR", "k"], &["EVAL", "return 1", "0"]],
            format!("*3\r\n:4\r\n{not_a_number}:1\r\n"),
            "*-1\r\n",
        ),
    ] {
        client.ask("SET k abc");
        other.ask("WATCH k");
        assert_eq!(transaction(client, commands), reply);
        assert_eq!(transaction(other, &[&["PING"]]), of_other, "{commands:?}");
    }
    assert_eq!(client.ask("GET k"), "$4\r\nabcd\r\n");
}

#[test]
fn a_script_that_is_too_long_is_not_queued() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    let text = |bytes: usize| format!("return 1{}", " ".repeat(bytes - 8));
    let (longest, longer) = (&*text(256 << 10), &*text((256 << 10) + 1));
    for (command, rest) in [
        (&["EVAL"][..], &["0"][..]),
        (&["EVAL_RO"], &["0"]),
        (&["SCRIPT", "LOAD"], &[]),
    ] {
        let with = |text| [command, &[text], rest].concat();
        assert!(
            transaction(client, &[&with(longest)]).starts_with("*1\r\n"),
            "{command:?}"
        );
        client.ask("MULTI");
        let reply = String::from_utf8(client.call(&with(longer))).unwrap();
        assert_eq!(
            reply, "-ERR a script is above the limit of 262144 bytes\r\n",
            "{command:?}"
        );
        assert!(client.ask("EXEC").starts_with("-EXECABORT"), "{command:?}");
    }
}

#[test]
fn many_short_scripts_are_not_run_while_their_keys_are_locked() {
    let harness = Harness::start();
    let scripts = [&["EVAL", GET, "1", "k"][..]; 256];
    let call = |client: &mut Client| transaction(client, &scripts);
    assert!(is_refused_beside_writers(&harness, "1", call));
    // If nobody is in the way there may be as many as a transaction has.
    let client = &mut harness.connect();
    let found = transaction(client, &[&["EVAL", "return 7", "0"][..]; 1024]);
    assert_eq!(found, format!("*1024\r\n{}", ":7\r\n".repeat(1024)));
}

#[test]
fn long_texts_are_not_compiled_while_keys_are_locked() {
    // It is compiled anew each time, since nothing comes of it.
    let wrong = format!("{} this is no Lua", "do end ".repeat(10_000));
    let commands = [&["EVAL", GET, "1", "k"][..], &["EVAL", &wrong, "0"]];
    let harness = Harness::start();
    let mut call = |client: &mut Client| transaction(client, &commands);
    assert!(is_refused_beside_writers(&harness, "1", &mut call));
    let found = call(&mut harness.connect());
    assert!(
        found.starts_with("*2\r\n$1\r\n1\r\n-ERR Error compiling script"),
        "{found}"
    );
}

#[test]
fn what_fails_in_and_beside_scripts_is_counted_as_an_error() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    client.ask("SET k abc");
    let calls = "redis.pcall('incr', KEYS[1]) redis.pcall('get', 'undeclared') redis.pcall('strlen', KEYS[1]) return 1";
    assert_eq!(client.call(&["EVAL", calls, "1", "k"]), b":1\r\n");
    let unknown = ["EVALSHA", "0000000000000000000000000000000000000000", "0"];
    transaction(client, &[&["INCR", "k"], &unknown, &["STRLEN", "k"]]);
    let executed = harness.executed();
    for (command, done, failed) in [("incr", 0, 2), ("get", 0, 1), ("evalsha", 0, 1), ("strlen", 2, 0)] {
        let counts = [Outcome::Ok, Outcome::Error].map(|outcome| {
            let is_it = |count: &&CommandCount| (count.command, count.outcome) == (command, outcome);
            executed.iter().find(is_it).map_or(0, |count| count.count)
        });
        assert_eq!(counts, [done, failed], "{command}");
    }
}
