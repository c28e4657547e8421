//! The view of scripts, their answers, and the things that they cannot do, with a host that keeps keys in a map.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]
use std::collections::HashMap;
use std::rc::Rc;

use tidemark_protocol::resp::Version;
use tidemark_scripts::{Engine, Host, Run, Script, Stopped, Watchman, name_of};

/// More than any of these scripts takes that ends by itself.
const STEPS_MAX: u64 = 50_000_000;

/// Keys in a map, and what was logged.
#[derive(Default)]
struct Map {
    values: HashMap<Vec<u8>, Vec<u8>>,
    logged: Vec<(u8, String)>,
}

impl Host for Map {
    fn call(&mut self, args: &[&[u8]], reply: &mut Vec<u8>) {
        let text = match args {
            [b"get", key] => match self.values.get(*key) {
                Some(value) => format!("${}\r\n{}\r\n", value.len(), String::from_utf8_lossy(value)),
                None => "$-1\r\n".to_owned(),
            },
            [b"set", key, value] => {
                self.values.insert(key.to_vec(), value.to_vec());
                "+OK\r\n".to_owned()
            }
            [b"list"] => "*3\r\n:1\r\n$-1\r\n*1\r\n+ok\r\n".to_owned(),
            _ => "-ERR Unknown Redis command called from script\r\n".to_owned(),
        };
        reply.extend_from_slice(text.as_bytes());
    }

    fn log(&mut self, level: u8, message: &[u8]) {
        self.logged.push((level, String::from_utf8_lossy(message).into_owned()));
    }
}

fn boxed(items: &[&str]) -> Vec<Box<[u8]>> {
    items.iter().map(|item| item.as_bytes().into()).collect()
}

fn unwatched() -> Watchman {
    Rc::new(|| None)
}

fn run_in(engine: &mut Engine, host: &mut Map, text: &str, version: Version) -> Run {
    let (keys, args) = (boxed(&["k1", "k2"]), boxed(&["a1", "2"]));
    let script = Script {
        name: &name_of(text.as_bytes()),
        text: text.as_bytes(),
        keys: &keys,
        args: &args,
    };
    engine.run(&script, version, host, STEPS_MAX, unwatched()).unwrap()
}

/// A run without keys and arguments within bounds of its own.
fn run_within(engine: &mut Engine, text: &str, steps_max: u64, watchman: Watchman) -> Run {
    let script = Script {
        name: &name_of(text.as_bytes()),
        text: text.as_bytes(),
        keys: &[],
        args: &[],
    };
    engine
        .run(&script, Version::Resp2, &mut Map::default(), steps_max, watchman)
        .unwrap()
}

fn run(text: &str) -> String {
    let run = run_in(&mut Engine::new().unwrap(), &mut Map::default(), text, Version::Resp2);
    String::from_utf8_lossy(&run.reply).into_owned()
}

#[test]
fn results_become_replies_as_in_redis() {
    for (text, reply) in [
        ("return 1", ":1\r\n"),
        ("return 3.99", ":3\r\n"),
        ("return 'x'", "$1\r\nx\r\n"),
        ("return true", ":1\r\n"),
        ("return false", "$-1\r\n"),
        ("return", "$-1\r\n"),
        ("return {1, 'a', {2}, nil, 3}", "*3\r\n:1\r\n$1\r\na\r\n*1\r\n:2\r\n"),
        ("return {ok = 'fine'}", "+fine\r\n"),
        ("return {err = 'ERR no\\r\\nway'}", "-ERR no  way\r\n"),
        ("return redis.status_reply('PONG')", "+PONG\r\n"),
        ("return redis.error_reply('My Err')", "-My Err\r\n"),
        ("return redis.error_reply('-WRONG')", "-ERR WRONG\r\n"),
        (
            "return redis.sha1hex('')",
            "$40\r\nda39a3ee5e6b4b0d3255bfef95601890afd80709\r\n",
        ),
        (
            "return {KEYS[1], KEYS[2], ARGV[1], #ARGV}",
            "*4\r\n$2\r\nk1\r\n$2\r\nk2\r\n$2\r\na1\r\n:2\r\n",
        ),
        ("return redis.call('list')", "*3\r\n:1\r\n$-1\r\n*1\r\n+ok\r\n"),
        ("return redis.call('get', 'none') == false", ":1\r\n"),
        ("redis.setresp(3) return redis.call('get', 'none') == nil", ":1\r\n"),
        ("return redis.call('set', KEYS[1], 7)", "+OK\r\n"),
        (
            "redis.call('set', 'k', 1.5) return redis.call('get', 'k')",
            "$3\r\n1.5\r\n",
        ),
        (
            "redis.call('set', 'k', 10) return redis.call('get', 'k') + 1",
            ":11\r\n",
        ),
        (
            "return redis.pcall('nope').err",
            "$44\r\nERR Unknown Redis command called from script\r\n",
        ),
        ("local f = loadstring('return KEYS[1]') return f()", "$2\r\nk1\r\n"),
        ("return pcall(loadstring, string.char(27) .. 'Lua')", "$-1\r\n"),
        (
            "return {xpcall(error, function() return 'handled' end)}",
            "*2\r\n$-1\r\n$7\r\nhandled\r\n",
        ),
        (
            "return {xpcall(function() return 1, 2 end, error)}",
            "*3\r\n:1\r\n:1\r\n:2\r\n",
        ),
        ("return #string.rep('ab', 3)", ":6\r\n"),
        ("return string.rep('', 1e15)", "$0\r\n\r\n"),
        ("return coroutine.wrap(function() coroutine.yield(5) end)()", ":5\r\n"),
        ("#!lua flags=no-writes\nreturn 1", ":1\r\n"),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    let resp3 = |text| run_in(&mut Engine::new().unwrap(), &mut Map::default(), text, Version::Resp3).reply;
    assert_eq!(resp3("return nil"), b"_\r\n");
    assert_eq!(resp3("return {double = 1.5}"), b",1.5\r\n");
}

#[test]
fn errors_say_what_redis_says() {
    for (text, reply) in [
        (
            "return redis.call('nope')",
            "-ERR Unknown Redis command called from script script: {sha}.\r\n",
        ),
        (
            "\n\nlocal x = redis.call('nope') return x",
            "-ERR Unknown Redis command called from script script: {sha}, on @user_script:3.\r\n",
        ),
        (
            "\nreturn x",
            "-ERR user_script:2: Script attempted to access nonexistent global variable 'x' script: {sha}, on \
             @user_script:2.\r\n",
        ),
        (
            "x = 1",
            "-ERR user_script:1: Attempt to modify a readonly table script: {sha}, on @user_script:1.\r\n",
        ),
        (
            "error('mine')",
            "-ERR user_script:1: mine script: {sha}, on @user_script:1.\r\n",
        ),
        (
            "error({err = 'MINE it'})",
            "-MINE it script: {sha}, on @user_script:1.\r\n",
        ),
        (
            "return redis.call()",
            "-ERR Please specify at least one argument for this redis.call() call script: {sha}.\r\n",
        ),
        (
            "return redis.call('set', {})",
            "-ERR Lua redis lib command arguments must be strings or integers script: {sha}.\r\n",
        ),
        (
            "return return",
            "-ERR Error compiling script (new function): user_script:1: unexpected symbol near 'return'\r\n",
        ),
        (
            "#!lua flags=x\nreturn 1",
            "-ERR Unexpected flag in script shebang: x\r\n",
        ),
        (
            "local t = {} t[1] = t return t",
            "-ERR the script's result is nested deeper than 64 tables\r\n",
        ),
        (
            "return {string.rep('x', 1e6), string.rep('x', 1e6)}",
            "-ERR the script's result is above the limit of 1114112 bytes\r\n",
        ),
    ] {
        assert_eq!(run(text), reply.replace("{sha}", &name_of(text.as_bytes())), "{text}");
    }
    assert!(run("\u{1b}LuaQ").starts_with("-ERR Error compiling script"));
}

#[test]
fn nothing_of_a_script_is_left_for_the_next_one() {
    let mut engine = Engine::new().unwrap();
    let host = &mut Map::default();
    for text in [
        "string.format = nil table.concat = nil redis.call = nil KEYS[1] = 'other' return 1",
        "rawset(_G, 'pairs', nil) rawset(_G, 'left', 1) return 1",
        "return pcall(setmetatable, _G, {})",
        "getmetatable('').__index = nil",
        "math.floor = function() return 'mine' end return 1",
    ] {
        run_in(&mut engine, host, text, Version::Resp2);
    }
    let after = "return {string.format('%d', 1), table.concat({'a'}), KEYS[1], type(pairs), math.floor(1.5), ('x'):upper(), \
                 redis.call('get', 'k') == false, rawget(_G, 'left') == nil}";
    let reply = run_in(&mut engine, host, after, Version::Resp2).reply;
    let expected = "*8\r\n$1\r\n1\r\n$1\r\na\r\n$2\r\nk1\r\n$8\r\nfunction\r\n:1\r\n$1\r\nX\r\n:1\r\n:1\r\n";
    assert_eq!(String::from_utf8(reply).unwrap(), expected);
    for name in [
        "os", "io", "require", "dofile", "loadfile", "debug", "package", "getfenv", "setfenv", "newproxy", "load",
        "print",
    ] {
        let text = format!("return rawget(_G, '{name}') == nil");
        assert_eq!(run(&text), ":1\r\n", "{name}");
    }
    assert_eq!(run("return string.dump == nil"), ":1\r\n");
}

#[test]
fn whatever_a_script_catches_it_ends() {
    for text in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local function f() pcall(f) while true do pcall(f) end end f()",
        "while true do coroutine.wrap(function() pcall(function() while true do end end) end)() end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local co while true do co = coroutine.create(function() while true do end end) coroutine.resume(co) end",
        "while true do pcall(coroutine.wrap(function() while true do pcall(function() while true do end end) end end)) end",
    ] {
        let mut engine = Engine::new().unwrap();
        let run = run_within(&mut engine, text, 100_000, unwatched());
        assert_eq!(run.stopped, Some(Stopped::Steps), "{text}");
        assert_eq!(run.reply, b"-ERR the script is above the limit of 100000 steps\r\n");
        // The engine goes on with the next one.
        let next = run_in(&mut engine, &mut Map::default(), "return 1", Version::Resp2);
        assert_eq!(next.reply, b":1\r\n", "{text}");
    }
}

#[test]
fn compiling_takes_steps() {
    let steps = |last: &str| {
        let text = format!("local text = string.rep('do end ', 20000) {last}");
        let run = run_in(&mut Engine::new().unwrap(), &mut Map::default(), &text, Version::Resp2);
        (String::from_utf8(run.reply).unwrap(), run.steps)
    };
    let (length, without) = steps("return #text");
    let (kind, with) = steps("return type(loadstring(text))");
    assert_eq!((&*length, &*kind), (":140000\r\n", "$8\r\nfunction\r\n"));
    assert!(with >= without + 140_000, "{with} of {without}");
}

#[test]
fn a_watchman_ends_a_script() {
    for (stopped, reply) in [
        (Stopped::Time, "-ERR the script is above the limit of its time\r\n"),
        (
            Stopped::Killed,
            "-ERR Error running script: Script killed by user with SCRIPT KILL.\r\n",
        ),
    ] {
        let text = "while true do pcall(error) end";
        let watchman = Rc::new(move || Some(stopped));
        let run = run_within(&mut Engine::new().unwrap(), text, STEPS_MAX, watchman);
        assert_eq!((run.stopped, run.reply), (Some(stopped), reply.as_bytes().to_vec()));
        assert!(run.steps < 1_000);
    }
}

#[test]
fn memory_and_depth_are_bounded() {
    for (text, says) in [
        ("local t = {} for i = 1, 1e8 do t[i] = {i} end", "not enough memory"),
        ("local s = 'x' while true do s = s .. s end", "not enough memory"),
        ("return string.rep('x', 1e9)", "not enough memory"),
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("return unpack({}, 1, 1e8)", "too many results to unpack"),
        ("local t = {} table.insert(t, -2^31, 1)", "position out of bounds"),
    ] {
        let mut engine = Engine::new().unwrap();
        let run = run_in(&mut engine, &mut Map::default(), text, Version::Resp2);
        let reply = String::from_utf8_lossy(&run.reply).into_owned();
        assert!(reply.starts_with('-') && reply.contains(says), "{text}: {reply}");
        assert!(run.has_failed);
    }
}

#[test]
fn a_script_logs_through_its_host() {
    let mut host = Map::default();
    let text = "redis.log(redis.LOG_WARNING, 'a', 1) return pcall(redis.log, 9, 'x')";
    let run = run_in(&mut Engine::new().unwrap(), &mut host, text, Version::Resp2);
    assert_eq!(run.reply, b"$-1\r\n");
    assert_eq!(host.logged, [(3, "a 1".to_owned())]);
}

#[test]
fn patterns_are_lua_s() {
    for (text, reply) in [
        ("return {string.find('hello world', 'o w')}", "*2\r\n:5\r\n:7\r\n"),
        ("return {string.find('a.b', '.', 1, true)}", "*2\r\n:2\r\n:2\r\n"),
        ("return {string.find('abc', 'b', -1)}", "*0\r\n"),
        (
            "return {string.find('abc', '(b)(c)')}",
            "*4\r\n:2\r\n:3\r\n$1\r\nb\r\n$1\r\nc\r\n",
        ),
        ("return {string.find('', '')}", "*2\r\n:1\r\n:0\r\n"),
        (
            "return {string.match('key = value', '^(%w+)%s*=%s*(%w+)$')}",
            "*2\r\n$3\r\nkey\r\n$5\r\nvalue\r\n",
        ),
        ("return string.match('2026-11-27', '%d+-(%d+)')", "$2\r\n11\r\n"),
        ("return {string.match('hello', '()ll()')}", "*2\r\n:3\r\n:5\r\n"),
        ("return string.match('x(a(b)c)y', '%b()')", "$7\r\n(a(b)c)\r\n"),
        (
            "return string.match('THE (quick) fox', '%f[%a]%a+', 5)",
            "$5\r\nquick\r\n",
        ),
        ("return string.match('abcabc', '(abc)%1')", "$3\r\nabc\r\n"),
        ("return string.match('aXb', '[^%l]')", "$1\r\nX\r\n"),
        ("return string.match('a]b', '[]]')", "$1\r\n]\r\n"),
        ("return string.match('a-b', '[a%-]+')", "$2\r\na-\r\n"),
        ("return string.match('<<a>>', '<(.-)>')", "$2\r\n<a\r\n"),
        (
            "return {string.gsub('hello world', 'o', '0')}",
            "*2\r\n$11\r\nhell0 w0rld\r\n:2\r\n",
        ),
        (
            "return {string.gsub('hello', '', '-')}",
            "*2\r\n$11\r\n-h-e-l-l-o-\r\n:6\r\n",
        ),
        (
            "return {string.gsub('abc', '%w', '%0%0', 2)}",
            "*2\r\n$5\r\naabbc\r\n:2\r\n",
        ),
        (
            "return {string.gsub('a b', '(%w) (%w)', '%2 %1')}",
            "*2\r\n$3\r\nb a\r\n:1\r\n",
        ),
        (
            "return {string.gsub('$x $y', '%$(%w)', {x = 1})}",
            "*2\r\n$4\r\n1 $y\r\n:2\r\n",
        ),
        (
            "return {string.gsub('abc', '.', function(c) if c ~= 'b' then return c:upper() end end)}",
            "*2\r\n$3\r\nAbC\r\n:3\r\n",
        ),
        (
            "local t = {} for k, v in ('a=1, b=2'):gmatch('(%w)=(%w)') do t[#t + 1] = k .. v end return t",
            "*2\r\n$2\r\na1\r\n$2\r\nb2\r\n",
        ),
        (
            "local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n",
            ":4\r\n",
        ),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    for (text, says) in [
        ("return ('x'):find('[')", "malformed pattern (missing ']')"),
        ("return ('x'):find('%')", "malformed pattern (ends with '%')"),
        ("return ('x'):find('(x')", "unfinished capture"),
        ("return ('x'):match('x)')", "invalid pattern capture"),
        ("return ('x'):find('%1')", "invalid capture index"),
        ("return ('x'):gsub('x', '%2')", "invalid capture index"),
        ("return ('x'):find(string.rep('(', 40))", "too many captures"),
    ] {
        let reply = run(text);
        assert!(reply.contains(says), "{text}: {reply}");
    }
}

#[test]
fn a_pattern_that_never_comes_to_an_end_is_ended() {
    let text = "return string.rep('a', 100000):find(string.rep('a*', 30) .. 'b')";
    let mut engine = Engine::new().unwrap();
    let run = run_within(&mut engine, text, 1_000_000, unwatched());
    assert_eq!(run.stopped, Some(Stopped::Steps));
}

#[test]
fn numbers_in_bits_are_as_in_lua_bit_op() {
    for (text, reply) in [
        (
            "return {bit.tobit(0xffffffff), bit.tobit(2^40 + 1234)}",
            "*2\r\n:-1\r\n:1234\r\n",
        ),
        (
            "return {bit.band(0x12345678, 0xff), bit.bor(1, 2, 4), bit.bxor(0xa5, 0x0f), bit.bnot(0)}",
            "*4\r\n:120\r\n:7\r\n:170\r\n:-1\r\n",
        ),
        (
            "return {bit.lshift(1, 31), bit.rshift(-1, 24), bit.arshift(-256, 8), bit.lshift(1, 32)}",
            "*4\r\n:-2147483648\r\n:255\r\n:-1\r\n:1\r\n",
        ),
        (
            "return {bit.rol(0x12345678, 12), bit.ror(0x12345678, 12), bit.bswap(0x12345678)}",
            "*3\r\n:1164411171\r\n:1736516421\r\n:2018915346\r\n",
        ),
        (
            "return {bit.tohex(255), bit.tohex(-1, 4), bit.tohex(0xabcd, -2)}",
            "*3\r\n$8\r\n000000ff\r\n$4\r\nffff\r\n$2\r\nCD\r\n",
        ),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
}

#[test]
fn json_is_as_in_lua_cjson() {
    for (value, text) in [
        ("1", "1"),
        ("1.5", "1.5"),
        ("1e100", "1e+100"),
        ("'a\"b\\\\c/\\n\\1'", r#""a\"b\\c\/\n\u0001""#),
        ("true", "true"),
        ("cjson.null", "null"),
        ("{}", "{}"),
        ("{1, 2, {3}}", "[1,2,[3]]"),
        ("{[1] = 1, [3] = 3}", "[1,null,3]"),
        ("{a = {b = 1}}", r#"{"a":{"b":1}}"#),
        ("{[1.5] = 'x'}", r#"{"1.5":"x"}"#),
    ] {
        let reply = run(&format!("return cjson.encode({value})"));
        assert_eq!(reply, format!("${}\r\n{text}\r\n", text.len()), "{value}");
    }
    for (text, reply) in [
        (
            r#"local t = cjson.decode('{"a": [1, 2.5e1, true, null], "b": "x\\u00e9\\ud83d\\ude00\\/"}') return {t.a[1], t.a[2], t.a[3], t.a[4] == cjson.null, t.b}"#,
            "*5\r\n:1\r\n:25\r\n:1\r\n:1\r\n$8\r\nxé😀/\r\n",
        ),
        ("return #cjson.decode(' [ ] ')", ":0\r\n"),
        ("return cjson.encode(cjson.decode('[[],{}]'))", "$7\r\n[{},{}]\r\n"),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    for (text, says) in [
        ("return cjson.encode({[20] = 1})", "excessively sparse array"),
        ("return cjson.encode(0/0)", "must not be NaN or Inf"),
        ("return cjson.encode(error)", "type not supported"),
        ("local t = {} t.t = t return cjson.encode(t)", "excessively nested"),
        (
            "return cjson.decode('[1,]')",
            "Expected value but found invalid token at character 4",
        ),
        ("return cjson.decode('{\"a\" 1}')", "Expected colon"),
        (
            "return cjson.decode('')",
            "Expected value but found T_END at character 1",
        ),
        ("return cjson.decode('1 2')", "Expected the end"),
        (
            "return cjson.decode(string.rep('[', 1000))",
            "too many nested data structures",
        ),
        ("return cjson.decode('\"\\\\ud800\"')", "unicode escape"),
    ] {
        let reply = run(text);
        assert!(reply.starts_with('-') && reply.contains(says), "{text}: {reply}");
    }
}

#[test]
fn message_pack_is_as_in_lua_cmsgpack() {
    for (value, hex) in [
        ("nil", "c0"),
        ("true", "c3"),
        ("127", "7f"),
        ("-32", "e0"),
        ("200", "ccc8"),
        ("-100", "d09c"),
        ("65535", "cdffff"),
        ("-30000", "d18ad0"),
        ("2^32 - 1", "ceffffffff"),
        ("-2^31", "d280000000"),
        ("2^40", "cf0000010000000000"),
        ("1.5", "ca3fc00000"),
        ("0.1", "cb3fb999999999999a"),
        ("'abc'", "a3616263"),
        ("{1, 2}", "920102"),
        ("{a = 1}", "81a16101"),
        ("{}", "90"),
    ] {
        let text = format!("return (cmsgpack.pack({value}):gsub('.', function(c) return bit.tohex(c:byte(), 2) end))");
        assert_eq!(run(&text), format!("${}\r\n{hex}\r\n", hex.len()), "{value}");
    }
    for (text, reply) in [
        (
            "local t = cmsgpack.unpack(cmsgpack.pack({1, 'x', {y = -5}, 1.25, true})) return {t[1], t[2], t[3].y, t[4] * 4, t[5]}",
            "*5\r\n:1\r\n$1\r\nx\r\n:-5\r\n:5\r\n:1\r\n",
        ),
        (
            "return {cmsgpack.unpack(cmsgpack.pack(1, 2, 'z'))}",
            "*3\r\n:1\r\n:2\r\n$1\r\nz\r\n",
        ),
        (
            "return {cmsgpack.unpack_one(cmsgpack.pack(7, 8))}",
            "*2\r\n:1\r\n:7\r\n",
        ),
        (
            "return {cmsgpack.unpack_one(cmsgpack.pack(7, 8), 1)}",
            "*2\r\n:-1\r\n:8\r\n",
        ),
        (
            "return {cmsgpack.unpack_limit(cmsgpack.pack(7, 8, 9), 2)}",
            "*3\r\n:2\r\n:7\r\n:8\r\n",
        ),
        (
            "return #cmsgpack.unpack(cmsgpack.pack(string.rep('x', 70000)))",
            ":70000\r\n",
        ),
        (
            "local t = {} for i = 1, 70000 do t[i] = i end return #cmsgpack.unpack(cmsgpack.pack(t))",
            ":70000\r\n",
        ),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    for (data, says) in [
        ("'\\220\\255\\255'", "Missing bytes in input."),
        ("'\\193'", "Bad data format in input."),
        ("string.rep('\\145', 1000)", "Bad data format in input."),
        ("'\\219\\255\\255\\255\\255'", "Missing bytes in input."),
    ] {
        let reply = run(&format!("return cmsgpack.unpack({data})"));
        assert!(reply.starts_with('-') && reply.contains(says), "{data}: {reply}");
    }
}

#[test]
fn structs_are_as_in_lua_struct() {
    for (arguments, hex) in [
        ("'>I2I4b', 258, 1, -1", "010200000001ff"),
        ("'<i2', -2", "feff"),
        ("'>L', 2^53", "0020000000000000"),
        ("'<d', 1", "000000000000f03f"),
        ("'>f', -2", "c0000000"),
        ("'s', 'ab'", "616200"),
        ("'bc0', 2, 'hi'", "026869"),
        ("'c2x', 'hello'", "686500"),
        ("'!4bi4', 1, 2", "0100000002000000"),
    ] {
        let text =
            format!("return (struct.pack({arguments}):gsub('.', function(c) return bit.tohex(c:byte(), 2) end))");
        assert_eq!(run(&text), format!("${}\r\n{hex}\r\n", hex.len()), "{arguments}");
    }
    for (text, reply) in [
        (
            "return {struct.unpack('>I2i4s', struct.pack('>I2i4s', 65535, -7, 'x'))}",
            "*4\r\n:65535\r\n:-7\r\n$1\r\nx\r\n:9\r\n",
        ),
        (
            "return {struct.unpack('bc0', struct.pack('bc0', 2, 'hi') .. '!')}",
            "*2\r\n$2\r\nhi\r\n:4\r\n",
        ),
        ("return {struct.unpack('b', 'ab', 2)}", "*2\r\n:98\r\n:3\r\n"),
        (
            "return {struct.unpack('<l', struct.pack('<l', -9))}",
            "*2\r\n:-9\r\n:9\r\n",
        ),
        (
            "return {struct.size('>I2i4d'), struct.size('!8bd')}",
            "*2\r\n:14\r\n:16\r\n",
        ),
    ] {
        assert_eq!(run(text), reply, "{text}");
    }
    for (text, says) in [
        ("return struct.unpack('i4', 'ab')", "data string too short"),
        ("return struct.unpack('s', 'ab')", "unfinished string"),
        ("return struct.pack('i40', 1)", "larger than limit"),
        ("return struct.pack('q', 1)", "invalid format option 'q'"),
        ("return struct.size('s')", "variable-size"),
        ("return struct.pack('i')", "no value"),
        ("return struct.unpack('b', 'a', 2^60)", "data string too short"),
        (
            "return struct.unpack(string.rep('x', 20) .. 'b', 'a', 2^63)",
            "data string too short",
        ),
    ] {
        let reply = run(text);
        assert!(reply.starts_with('-') && reply.contains(says), "{text}: {reply}");
    }
}
