//! Scripts: those of common libraries as their sources send them, what is refused, and what hostile ones do to others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use tidemark_types::{Permissions, TenantId};

use crate::harness::{Client, Harness, PATIENCE, array, open_tenant, tenant, wait_until};

fn text(reply: &[u8]) -> String {
    String::from_utf8_lossy(reply).into_owned()
}

fn eval(client: &mut Client, script: &str, keys: &[&str], args: &[&str]) -> String {
    text(&client.call(&eval_command("EVAL", script, keys, args)))
}

fn eval_command(command: &str, script: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
    let count = keys.len().to_string();
    let words = [command, script, &count].into_iter();
    words
        .chain(keys.iter().copied())
        .chain(args.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// redis-py 8, `redis/lock.py`.
const PY_RELEASE: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        redis.call('del', KEYS[1])
        return 1
    ";
const PY_EXTEND: &str = "
        local token = redis.call('get', KEYS[1])
        if not token or token ~= ARGV[1] then
            return 0
        end
        local expiration = redis.call('pttl', KEYS[1])
        if not expiration then
            expiration = 0
        end
        if expiration < 0 then
            return 0
        end

        local newttl = ARGV[2]
        if ARGV[3] == \"0\" then
            newttl = ARGV[2] + expiration
        end
        redis.call('pexpire', KEYS[1], newttl)
        return 1
    ";
/// django-redis, `client/default.py`: `incr`.
const DJANGO_INCR: &str = "
                local exists = redis.call('EXISTS', KEYS[1])
                if (exists == 1) then
                    return redis.call('INCRBY', KEYS[1], ARGV[1])
                else return false end
                ";
/// Laravel, `Cache/RedisStore.php` and `Cache/LuaScripts.php`.
const LARAVEL_ADD: &str = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";
const LARAVEL_RELEASE: &str = "
if redis.call(\"get\",KEYS[1]) == ARGV[1] then
    return redis.call(\"del\",KEYS[1])
else
    return 0
end
";
/// rate-limiter-flexible, `lib/RateLimiterRedis.js`.
const RATE_LIMITER: &str = "redis.call('set', KEYS[1], 0, 'EX', ARGV[2], 'NX') \
local consumed = redis.call('incrby', KEYS[1], ARGV[1]) \
local ttl = redis.call('pttl', KEYS[1]) \
if ttl == -1 then \
  redis.call('expire', KEYS[1], ARGV[2]) \
  ttl = 1000 * ARGV[2] \
end \
return {consumed, ttl} \
";
/// Redisson, `RedissonLock.java`: needs hashes.
const REDISSON_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return \
redis.call('pttl', KEYS[1]);";

#[test]
fn scripts_of_common_libraries_do_what_they_do_in_redis() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    assert_eq!(client.ask("SET lock token NX PX 10000"), "+OK\r\n");
    assert_eq!(eval(client, PY_EXTEND, &["lock"], &["other", "1000", "0"]), ":0\r\n");
    assert_eq!(eval(client, PY_EXTEND, &["lock"], &["token", "100000", "0"]), ":1\r\n");
    let left: i64 = client.ask("PTTL lock").trim()[1..].parse().unwrap();
    assert!((100_000..=110_000).contains(&left), "{left}");
    assert_eq!(eval(client, PY_RELEASE, &["lock"], &["other"]), ":0\r\n");
    assert_eq!(eval(client, PY_RELEASE, &["lock"], &["token"]), ":1\r\n");
    assert_eq!(client.ask("EXISTS lock"), ":0\r\n");

    assert_eq!(eval(client, DJANGO_INCR, &[":1:n"], &["5"]), "$-1\r\n");
    client.ask("SET :1:n 1");
    assert_eq!(eval(client, DJANGO_INCR, &[":1:n"], &["5"]), ":6\r\n");
    assert_eq!(client.ask("GET :1:n"), "$1\r\n6\r\n");

    assert_eq!(eval(client, LARAVEL_ADD, &["laravel:k"], &["v", "60"]), "+OK\r\n");
    assert_eq!(eval(client, LARAVEL_ADD, &["laravel:k"], &["w", "60"]), "$-1\r\n");
    assert_eq!(client.ask("TTL laravel:k"), ":60\r\n");
    assert_eq!(eval(client, LARAVEL_RELEASE, &["laravel:k"], &["w"]), ":0\r\n");
    assert_eq!(eval(client, LARAVEL_RELEASE, &["laravel:k"], &["v"]), ":1\r\n");

    assert_eq!(
        eval(client, RATE_LIMITER, &["rl:user"], &["2", "60"]),
        "*2\r\n:2\r\n:60000\r\n"
    );
    assert!(eval(client, RATE_LIMITER, &["rl:user"], &["1", "60"]).starts_with("*2\r\n:3\r\n:"));

    let reply = eval(client, REDISSON_LOCK, &["redisson"], &["30000", "id:1"]);
    assert!(
        reply.starts_with("-ERR the command 'hincrby' is not offered by Tidemark script: "),
        "{reply}"
    );
    assert_eq!(client.ask("EXISTS redisson"), ":0\r\n");
}

#[test]
fn a_script_reads_its_own_writes_and_is_written_as_a_whole() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    let script = "redis.call('set', KEYS[1], 'a') redis.call('append', KEYS[1], 'b') redis.call('set', KEYS[2], 1, 'PX', 50000) \
                  redis.call('incrby', KEYS[2], 41) local old = redis.call('getdel', KEYS[3]) redis.call('mset', KEYS[4], 'x', \
                  KEYS[5], string.rep('y', 100000)) \
                  return {redis.call('get', KEYS[1]), redis.call('get', KEYS[2]), old, redis.call('exists', KEYS[3]), \
                  redis.call('mget', KEYS[3], KEYS[4]), redis.call('strlen', KEYS[5]), #redis.call('get', KEYS[5])}";
    client.ask("SET k3 gone");
    let reply = eval(client, script, &["k1", "k2", "k3", "k4", "k5"], &[]);
    assert_eq!(
        reply,
        "*7\r\n$2\r\nab\r\n$2\r\n42\r\n$4\r\ngone\r\n:0\r\n*2\r\n$-1\r\n$1\r\nx\r\n:100000\r\n:100000\r\n"
    );
    assert_eq!(
        client.ask("MGET k1 k2 k3 k4"),
        "*4\r\n$2\r\nab\r\n$2\r\n42\r\n$-1\r\n$1\r\nx\r\n"
    );
    assert_eq!(client.ask("STRLEN k5"), ":100000\r\n");
    assert_eq!(
        (client.ask("PTTL k1"), client.ask("TTL k2")),
        (":-1\r\n".into(), ":50\r\n".into())
    );
    // Writes of a script before it failed are not there.
    let failing = "redis.call('set', KEYS[1], 'never') error('no')";
    assert!(eval(client, failing, &["k1"], &[]).starts_with("-ERR user_script:1: no script: "));
    let failing = "redis.call('set', KEYS[1], 'never') while true do end";
    assert!(eval(client, failing, &["k1"], &[]).starts_with("-ERR the script is above the limit of "));
    assert_eq!(client.ask("GET k1"), "$2\r\nab\r\n");
    // The expiry alone.
    assert_eq!(
        eval(client, "return redis.call('expire', KEYS[1], 100)", &["k1"], &[]),
        ":1\r\n"
    );
    assert_eq!(
        (client.ask("TTL k1"), client.ask("GET k1")),
        (":100\r\n".into(), "$2\r\nab\r\n".into())
    );
    client.ask("SELECT 3");
    assert_eq!(
        eval(client, "return redis.call('exists', KEYS[1])", &["k1"], &[]),
        ":0\r\n"
    );
}

#[test]
fn a_command_that_is_not_offered_is_an_error_that_a_script_may_catch() {
    let harness = Harness::start();
    let client = &mut harness.connect();
    // The commands of Redisson's locks, of queues, and of other rate limiters.
    for (command, arguments) in [
        ("hexists", "'f'"),
        ("hincrby", "'f', 1"),
        ("hset", "'f', 1"),
        ("hget", "'f'"),
        ("hdel", "'f'"),
        ("publish", "'m'"),
        ("spublish", "'m'"),
        ("zadd", "1, 'm'"),
        ("zremrangebyscore", "0, 1"),
        ("lpush", "'v'"),
        ("sadd", "'m'"),
    ] {
        let error = format!("ERR the command '{command}' is not offered by Tidemark");
        let called = format!("redis.call('set', KEYS[1], 1) return redis.call('{command}', KEYS[1], {arguments})");
        let reply = eval(client, &called, &["k"], &[]);
        assert!(reply.starts_with(&format!("-{error}")), "{reply}");
        assert_eq!(client.ask("EXISTS k"), ":0\r\n", "{command}");
        let caught = format!(
            "local found = redis.pcall('{command}', KEYS[1], {arguments}) redis.call('set', KEYS[1], 'went on') return found.err"
        );
        let reply = eval(client, &caught, &["k"], &[]);
        assert!(reply.starts_with('$') && reply.contains(&error), "{reply}");
        assert_eq!(client.ask("GETDEL k"), "$7\r\nwent on\r\n", "{command}");
    }
}

#[test]
fn a_write_that_failed_and_was_caught_changes_nothing() {
    let harness = Harness::start();
    let (client, other) = (&mut harness.connect(), &mut harness.connect());
    for (script, reply, of_other) in [
        (
            "redis.pcall('incr', KEYS[1]) return redis.call('get', KEYS[1])",
            "$3\r\nabc\r\n",
            "*1\r\n+PONG\r\n",
        ),
        (
            "return redis.pcall('getex', KEYS[1], 'ex', 'soon') ~= false",
            ":1\r\n",
            "*1\r\n+PONG\r\n",
        ),
        // Its writes before that stay so.
        (
            "redis.call('append', KEYS[1], 'd') redis.pcall('incr', KEYS[1]) return redis.call('get', KEYS[1])",
            "$4\r\nabcd\r\n",
            "*-1\r\n",
        ),
    ] {
        client.ask("SET k abc");
        other.ask("WATCH k");
        assert_eq!(eval(client, script, &["k"], &[]), reply);
        other.ask("MULTI");
        other.ask("PING");
        assert_eq!(other.ask("EXEC"), of_other, "{script}");
    }
    assert_eq!(client.ask("GET k"), "$4\r\nabcd\r\n");
}

#[test]
fn a_script_has_what_it_declares_and_what_its_secret_permits() {
    let reader = ("reader", Permissions::READ);
    let harness = Harness::with(1, vec![open_tenant(), tenant(2, "shop", &[reader])]);
    let client = &mut harness.connect();
    for (script, reply) in [
        (
            "return redis.call('get', 'other')",
            "-ERR Script attempted to access a key that is not in KEYS: 'other'",
        ),
        (
            "return redis.call('mget', KEYS[1], 'o')",
            "-ERR Script attempted to access a key that is not in KEYS: 'o'",
        ),
        (
            "return redis.call('flushall')",
            "-ERR This Redis command is not allowed from script",
        ),
        (
            "return redis.call('keys', '*')",
            "-ERR This Redis command is not allowed from script",
        ),
        (
            "return redis.call('multi')",
            "-ERR This Redis command is not allowed from script",
        ),
        (
            "return redis.call('eval', 'return 1', 0)",
            "-ERR This Redis command is not allowed from script",
        ),
        (
            "return redis.call('get')",
            "-ERR Wrong number of args calling Redis command from script",
        ),
        (
            "return redis.call('nope')",
            "-ERR Unknown Redis command called from script",
        ),
        (
            "return redis.call('zadd', KEYS[1], 1, 'm')",
            "-ERR the command 'zadd' is not offered by Tidemark",
        ),
        (
            "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)",
            "-ERR Write commands are not allowed from read-only",
        ),
        (
            "return redis.call('incr', KEYS[1])",
            "-ERR value is not an integer or out of range",
        ),
        (
            "for i = 1, 20 do redis.call('set', KEYS[1], string.rep('x', 60000)) end",
            "-ERR what the script writes is above the",
        ),
    ] {
        client.ask("SET k v");
        let found = eval(client, script, &["k"], &[]);
        assert!(found.starts_with(reply), "{script}: {found}");
        assert_eq!(client.ask("GET k"), "$1\r\nv\r\n", "{script}");
    }
    let read_only = |command: &str| eval_command(command, "return redis.call('del', KEYS[1])", &["k"], &[]);
    let reply = text(&client.call(&read_only("EVAL_RO")));
    assert!(
        reply.starts_with("-ERR Write commands are not allowed from read-only scripts."),
        "{reply}"
    );
    let shop = &mut harness.connect();
    assert_eq!(shop.ask("AUTH shop reader"), "+OK\r\n");
    assert_eq!(eval(shop, "return redis.call('get', KEYS[1])", &["k"], &[]), "$-1\r\n");
    let reply = eval(shop, "return redis.call('set', KEYS[1], 1)", &["k"], &[]);
    assert!(
        reply.starts_with("-NOPERM this user has no permissions to run the 'set' command"),
        "{reply}"
    );
    for (line, reply) in [
        ("EVAL x", "-ERR wrong number of arguments for 'eval' command\r\n"),
        ("EVAL x a", "-ERR value is not an integer or out of range\r\n"),
        ("EVAL x -1", "-ERR Number of keys can't be negative\r\n"),
        (
            "EVAL x 2 a",
            "-ERR Number of keys can't be greater than number of args\r\n",
        ),
    ] {
        assert_eq!(client.ask(line), reply, "{line}");
    }
}

#[test]
fn scripts_are_known_by_their_names_to_their_tenant_alone() {
    let all = ("s", Permissions::ALL);
    let harness = Harness::with(2, vec![open_tenant(), tenant(2, "shop", &[all])]);
    let (client, shop) = (&mut harness.connect(), &mut harness.connect());
    shop.ask("AUTH shop s");
    const NAME: &str = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let missing = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    assert_eq!(client.ask(&format!("EVALSHA {NAME} 0")), missing);
    assert_eq!(eval(client, "return 1", &[], &[]), ":1\r\n");
    // By now it is named like this.
    let name = text(&client.call(&["SCRIPT", "LOAD", "return 1"]));
    assert_eq!(name, format!("$40\r\n{NAME}\r\n"));
    assert_eq!(
        client.ask(&format!("EVALSHA {} 0", NAME.to_ascii_uppercase())),
        ":1\r\n"
    );
    assert_eq!(client.ask(&format!("EVALSHA_RO {NAME} 0")), ":1\r\n");
    assert_eq!(client.ask(&format!("SCRIPT EXISTS {NAME} x")), "*2\r\n:1\r\n:0\r\n");
    assert_eq!(shop.ask(&format!("EVALSHA {NAME} 0")), missing);
    assert_eq!(shop.ask(&format!("SCRIPT EXISTS {NAME}")), "*1\r\n:0\r\n");
    assert_eq!(shop.ask("SCRIPT FLUSH"), "+OK\r\n");
    assert_eq!(client.ask(&format!("SCRIPT EXISTS {NAME}")), "*1\r\n:1\r\n");
    assert_eq!(client.ask("SCRIPT FLUSH SYNC"), "+OK\r\n");
    assert_eq!(client.ask(&format!("EVALSHA {NAME} 0")), missing);
    assert_eq!(
        client.ask("SCRIPT FLUSH NOW"),
        "-ERR SCRIPT FLUSH only support SYNC|ASYNC option\r\n"
    );
    assert!(text(&client.call(&["SCRIPT", "LOAD", "return return"])).starts_with("-ERR Error compiling script"));
    assert_eq!(
        client.ask("SCRIPT KILL"),
        "-NOTBUSY No scripts in execution right now.\r\n"
    );
    assert!(
        client
            .ask("SCRIPT DEBUG YES")
            .starts_with("-ERR the command 'SCRIPT DEBUG' is not offered")
    );
    let long = "-".repeat((256 << 10) + 1);
    assert_eq!(
        eval(client, &long, &[], &[]),
        "-ERR a script is above the limit of 262144 bytes\r\n"
    );
}

#[test]
fn increments_of_scripts_and_of_commands_are_all_counted() {
    const EACH: usize = 300;
    let harness = Harness::start();
    thread::scope(|scope| {
        for number in 0..4 {
            let mut client = harness.connect();
            scope.spawn(move || {
                for _ in 0..EACH {
                    let reply = match number % 2 {
                        0 => client.ask("INCR n"),
                        _ => loop {
                            // A get and a set, between which the others write.
                            let script = "redis.call('set', KEYS[1], (redis.call('get', KEYS[1]) or 0) + 1) return 1";
                            let reply = eval(&mut client, script, &["n"], &[]);
                            if !reply.starts_with("-TRYAGAIN") {
                                break reply;
                            }
                        },
                    };
                    assert!(reply.starts_with(':'), "{reply}");
                }
            });
        }
    });
    assert_eq!(harness.connect().ask("GET n"), format!("$4\r\n{}\r\n", 4 * EACH));
}

/// Whether a call is ever refused because others write the key `k` each time while it is under way.
pub(crate) fn is_refused_beside_writers(
    harness: &Harness,
    value: &str,
    mut call: impl FnMut(&mut Client) -> String,
) -> bool {
    let is_done = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut writer = harness.connect();
            while !is_done.load(Ordering::Relaxed) {
                writer.call(&["SET", "k", value]);
            }
        });
        let client = &mut harness.connect();
        // A busy machine may not run both at once for a long time.
        let begin = Instant::now();
        let mut is_refused = false;
        while !is_refused && begin.elapsed() < PATIENCE {
            is_refused = call(client).starts_with("-TRYAGAIN");
        }
        is_done.store(true, Ordering::Relaxed);
        is_refused
    })
}

#[test]
fn a_script_that_copies_much_is_not_run_while_its_keys_are_locked() {
    let value = &"x".repeat(256 << 10);
    for script in [
        "for i = 1, 20 do redis.call('get', KEYS[1]) end return 7",
        "redis.call('strlen', KEYS[1]) local text for i = 1, 200 do text = ARGV[1] .. i end return 7",
    ] {
        let harness = Harness::start();
        let mut call = |client: &mut Client| eval(client, script, &["k"], &[value]);
        assert!(is_refused_beside_writers(&harness, value, &mut call), "{script}");
        // If nobody is in the way, it ends.
        assert_eq!(call(&mut harness.connect()), ":7\r\n");
    }
}

#[test]
fn others_are_unhurt_by_hostile_scripts() {
    const HOSTILE: [&str; 5] = [
        "while true do pcall(function() while true do end end) end",
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000) pcall(string.rep, 'x', 1e7) end",
        "local function f() return f() + 1 end while true do pcall(f) end",
        "while true do redis.pcall('set', KEYS[1], string.rep('x', 100000)) end",
        "while true do redis.pcall('get', 'undeclared') end",
    ];
    let all = ("s", Permissions::ALL);
    let names = ["evil0", "evil1", "evil2", "evil3", "evil4"];
    let mut tenants = vec![open_tenant()];
    tenants.extend(names.iter().zip(2..).map(|(name, id)| tenant(id, name, &[all])));
    let harness = Harness::with(1, tenants);
    let mut evil: Vec<Client> = Vec::new();
    for (name, script) in names.iter().zip(HOSTILE) {
        for _ in 0..4 {
            let mut client = harness.connect();
            client.ask(&format!("AUTH {name} s"));
            client.send(&array(&eval_command("EVAL", script, &["k"], &[])));
            evil.push(client);
        }
    }
    let good = &mut harness.connect();
    harness.take_visits_waited("default");
    for number in 0..100 {
        assert_eq!(good.ask(&format!("SET k {number}")), "+OK\r\n");
        let reply = eval(good, "return redis.call('incr', KEYS[1])", &["k"], &[]);
        assert_eq!(reply, format!(":{}\r\n", number + 1));
    }
    // Nobody's script holds a worker.
    let waited = harness.take_visits_waited("default").unwrap();
    assert!(waited <= 64, "{waited} visits to others");
    // Each of them is ended by its limits or by its tenant.
    for (at, client) in evil.iter_mut().enumerate() {
        let name = names[at / 4];
        let killer = &mut harness.connect();
        killer.ask(&format!("AUTH {name} s"));
        let mut is_answered = false;
        wait_until("a hostile script ends", || {
            killer.ask("SCRIPT KILL");
            is_answered |= client.has_reply();
            is_answered
        });
        let reply = text(&client.reply());
        assert!(reply.starts_with('-'), "{reply}");
        // Nothing of it is left.
        assert_eq!(client.ask("EXISTS k"), ":0\r\n");
    }
    // A tenant's scripts run one after the other: now none is before these.
    for client in &mut evil {
        assert_eq!(eval(client, "return 7", &[], &[]), ":7\r\n");
    }
}

#[test]
fn a_script_s_time_is_its_tenant_s() {
    let all = ("s", Permissions::ALL);
    let harness = Harness::with(1, vec![open_tenant(), tenant(2, "shop", &[all])]);
    let (client, shop) = (&mut harness.connect(), &mut harness.connect());
    shop.ask("AUTH shop s");
    // So many steps take milliseconds, on a slow thread too.
    let reply = eval(shop, "for i = 1, 2000000 do end return 1", &[], &[]);
    assert_eq!(reply, ":1\r\n");
    let of_shop = harness.cpu_ns(TenantId(2));
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    let of_others = harness.cpu_ns(TenantId(1));
    assert!(of_shop > 2_000_000, "{of_shop} ns");
    assert!(of_others < of_shop / 2, "{of_others} of {of_shop} ns");
}

#[test]
fn a_client_that_goes_takes_its_script_with_it() {
    let harness = Harness::start();
    let mut first = harness.connect();
    // The answer to what comes before it in one piece is sent when the script waits for a thread.
    let mut requests = array(&["PING"]);
    requests.extend(array(&eval_command("EVAL", "while true do end", &[], &[])));
    first.send(&requests);
    assert_eq!(text(&first.reply()), "+PONG\r\n");
    let mut second = harness.connect();
    second.send(&array(&eval_command(
        "EVAL",
        "return redis.call('set', KEYS[1], 1)",
        &["k"],
        &[],
    )));
    second.send(&array(&["GET", "k"]));
    let client = &mut harness.connect();
    wait_until("the loop runs", || client.ask("SCRIPT KILL") == "+OK\r\n");
    assert!(text(&first.reply()).starts_with("-ERR Error running script: Script killed by user"));
    // Commands that waited behind it are done in order.
    assert_eq!(text(&second.reply()), "+OK\r\n");
    assert_eq!(text(&second.reply()), "$1\r\n1\r\n");
    let mut gone = harness.connect();
    gone.send(&array(&eval_command("EVAL", "return 1", &[], &[])));
    drop(gone);
    assert_eq!(eval(client, "return 2", &[], &[]), ":2\r\n");
}
