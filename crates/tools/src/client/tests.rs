use tidemark_types::TenantName;

use super::*;

/// A reply as it is compared: values' parts put together.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Value(Option<Vec<u8>>, Vec<u8>),
    Miss,
    Stored,
    Refused(Vec<u8>),
    Unexpected(Vec<u8>),
    Malformed,
}

/// Feeds `stream` in pieces of `step` bytes, as a connection does.
fn decode(protocol: Protocol, stream: &[u8], step: usize) -> Vec<Seen> {
    let mut decoder = Decoder::new(protocol);
    let (mut input, mut seen, mut value) = (Vec::new(), Vec::new(), (None, Vec::new()));
    for piece in stream.chunks(step) {
        input.extend_from_slice(piece);
        let mut taken = 0;
        while taken < input.len() {
            let (length, reply) = match decoder.next(&input[taken..]) {
                Decoded::NeedMore => break,
                Decoded::Malformed => {
                    seen.push(Seen::Malformed);
                    return seen;
                }
                Decoded::Reply(length, reply) => (length, reply),
            };
            taken += length;
            match reply {
                Reply::Miss => seen.push(Seen::Miss),
                Reply::Stored => seen.push(Seen::Stored),
                Reply::Refused(line) => seen.push(Seen::Refused(line.to_vec())),
                Reply::Unexpected(line) => seen.push(Seen::Unexpected(line.to_vec())),
                Reply::Value(part) => {
                    assert_eq!(part.offset, value.1.len());
                    value.0 = part.key.map(<[u8]>::to_vec).or(value.0.take());
                    value.1.extend_from_slice(part.bytes);
                    if part.last {
                        assert_eq!(part.size_bytes, value.1.len());
                        let (key, bytes) = std::mem::take(&mut value);
                        seen.push(Seen::Value(key, bytes));
                    }
                }
            }
        }
        input.drain(..taken);
    }
    seen
}

fn check(protocol: Protocol, stream: &[u8], expected: &[Seen]) {
    for step in 1..=stream.len() {
        assert_eq!(
            decode(protocol, stream, step),
            expected,
            "{protocol}, {step} at a time: {}",
            stream.escape_ascii()
        );
    }
}

#[test]
fn replies_are_the_same_however_they_are_cut() {
    let value = |key: &[u8], bytes: &[u8]| Seen::Value(Some(key.to_vec()), bytes.to_vec());
    let mut stream = b"END\r\nSTORED\r\nVALUE key 0 5\r\nv\r\nal\r\nEND\r\nVALUE k 7 0\r\n\r\nEND\r\n".to_vec();
    stream.extend(b"SERVER_ERROR object too large for cache\r\nERROR\r\nCLIENT_ERROR bad\r\nNOT_STORED\r\nEND\r\n");
    check(
        Protocol::Memcached,
        &stream,
        &[
            Seen::Miss,
            Seen::Stored,
            value(b"key", b"v\r\nal"),
            value(b"k", b""),
            Seen::Refused(b"SERVER_ERROR object too large for cache".to_vec()),
            Seen::Refused(b"ERROR".to_vec()),
            Seen::Refused(b"CLIENT_ERROR bad".to_vec()),
            Seen::Unexpected(b"NOT_STORED".to_vec()),
            Seen::Miss,
        ],
    );
    check(
        Protocol::Redis,
        b"$-1\r\n+OK\r\n$5\r\nv\r\nal\r\n$0\r\n\r\n-OOM command not allowed\r\n+PONG\r\n:7\r\n$-1\r\n",
        &[
            Seen::Miss,
            Seen::Stored,
            Seen::Value(None, b"v\r\nal".to_vec()),
            Seen::Value(None, b"".to_vec()),
            Seen::Refused(b"-OOM command not allowed".to_vec()),
            Seen::Unexpected(b"+PONG".to_vec()),
            Seen::Unexpected(b":7".to_vec()),
            Seen::Miss,
        ],
    );
}

#[test]
fn what_is_not_the_protocol_is_not_guessed_at() {
    let long = [b"-".as_slice(), &[b'x'; 5000]].concat();
    for (protocol, stream) in [
        (Protocol::Memcached, b"+OK\r\n".as_slice()),
        (Protocol::Memcached, b"stored\r\n"),
        (Protocol::Memcached, b"STORED\n"),
        (Protocol::Memcached, b"VALUE k 0\r\n"),
        (Protocol::Memcached, b"VALUE k 0 x\r\n"),
        (Protocol::Memcached, b"VALUE k 0 1 9\r\nv\r\nEND\r\n"),
        (Protocol::Memcached, b"VALUE k 0 3\r\nvalue\r\nEND\r\n"),
        (Protocol::Memcached, b"VALUE k 0 1\r\nv\r\nVALUE l 0 1\r\n"),
        (Protocol::Memcached, &long),
        (Protocol::Redis, b"STORED\r\n"),
        (Protocol::Redis, b"$-2\r\n"),
        (Protocol::Redis, b"$\r\n"),
        (Protocol::Redis, b"$99999999999\r\n"),
        (Protocol::Redis, b"$1\r\nvv\r\n"),
        (Protocol::Redis, b"*1\r\n$1\r\nv\r\n"),
        (Protocol::Redis, &long),
    ] {
        for step in (1..stream.len()).take(50).chain([stream.len()]) {
            let seen = decode(protocol, stream, step);
            assert_eq!(
                seen,
                [Seen::Malformed],
                "{protocol}, {step} at a time: {}",
                stream.escape_ascii()
            );
        }
    }
}

#[test]
fn requests_are_written_as_the_protocols_say() {
    let tenant: TenantName = "shop".parse().unwrap();
    for (protocol, get, set, login) in [
        (
            Protocol::Memcached,
            "get key1\r\n",
            "set key1 0 0 3\r\nabc\r\n",
            "set auth 0 0 11\r\nshop s3cret\r\n",
        ),
        (
            Protocol::Redis,
            "*2\r\n$3\r\nGET\r\n$4\r\nkey1\r\n",
            "*3\r\n$3\r\nSET\r\n$4\r\nkey1\r\n$3\r\nabc\r\n",
            "*3\r\n$4\r\nAUTH\r\n$4\r\nshop\r\n$6\r\ns3cret\r\n",
        ),
    ] {
        let mut out = Vec::new();
        protocol.write_get(b"key1", &mut out);
        protocol.write_set(b"key1", 3, None, &mut out, |out| out.extend(b"abc"));
        out.extend(protocol.login_request(&tenant, "s3cret"));
        assert_eq!(String::from_utf8(out).unwrap(), [get, set, login].concat());
    }
}

#[test]
fn lifetimes_are_rounded_up_to_what_the_protocol_has() {
    let day = 86_400_000;
    for (milliseconds, seconds, px) in [
        (60, "1", "$2\r\n60"),
        (1000, "1", "$4\r\n1000"),
        (1001, "2", "$4\r\n1001"),
        (31 * day, "2592000", "$10\r\n2678400000"),
    ] {
        let written = |protocol: Protocol| {
            let mut out = Vec::new();
            let lifetime = Some(Duration::from_millis(milliseconds));
            protocol.write_set(b"k", 1, lifetime, &mut out, |out| out.extend(b"v"));
            String::from_utf8(out).unwrap()
        };
        assert_eq!(written(Protocol::Memcached), format!("set k 0 {seconds} 1\r\nv\r\n"));
        let redis = format!("*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n{px}\r\n");
        assert_eq!(written(Protocol::Redis), redis);
    }
    let mut out = Vec::new();
    let lifetime = Some(Duration::from_nanos(1));
    Protocol::Redis.write_set(b"k", 1, lifetime, &mut out, |out| out.extend(b"v"));
    assert!(out.ends_with(b"PX\r\n$1\r\n1\r\n"), "never none at all");
}

#[test]
fn secrets_are_found_by_name_and_never_printed() {
    let login = |text: &str, tenant: &str| {
        let secrets = Secrets::parse(text)?;
        assert!(!format!("{secrets:?}").contains("s3"), "{secrets:?}");
        secrets.login(&tenant.parse().unwrap())
    };
    for (text, tenant, secret) in [
        ("s3\n", "shop", Some("s3")),
        ("shop s3\n\nblog s4\n", "blog", Some("s4")),
        ("", "default", None),
        ("s3", "default", None),
        ("default s3", "default", Some("s3")),
    ] {
        let login = login(text, tenant).unwrap();
        assert!(!format!("{login:?}").contains("s3"), "{login:?}");
        assert_eq!(login.as_ref().map(Login::secret), secret, "{text:?} {tenant}");
    }
    for (text, tenant) in [
        ("", "shop"),
        ("shop s3", "blog"),
        ("a b s3", "a"),
        ("s3\ns4", "a"),
        ("s3\na s4", "a"),
    ] {
        let error = login(text, tenant).unwrap_err().to_string();
        assert!(!error.contains("s3") && !error.contains("s4"), "{error}");
    }
}

#[test]
fn addresses_are_resolved() {
    assert_eq!(resolve("127.0.0.1:80").unwrap().to_string(), "127.0.0.1:80");
    assert!(resolve("localhost:80").unwrap().ip().is_loopback());
    for text in ["", "here", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999"] {
        let error = resolve(text).unwrap_err().to_string();
        assert!(error.contains(&format!("`{text}`")), "{error}");
    }
}
