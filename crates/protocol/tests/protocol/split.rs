//! However a stream is cut, it means the same. Every prefix of every command answers that it is incomplete, or already
//! the same error. Bytes behind a command change nothing.

use tidemark_protocol::{memcached, resp};

use crate::describe;

/// A parser's answer: the text of it, and how it goes on.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// How a parser goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With what stands behind so many bytes.
    Taken(usize),
    /// When there are so many bytes.
    Needs(usize),
    /// Not at all.
    Closed,
}

/// Asks the memcached parser.
pub(crate) fn ask_memcached(input: &[u8]) -> Answer {
    let limits = memcached::Limits {
        value_bytes: 1000,
        long_key_lines: true,
    };
    let parsed = memcached::parse(input, &limits);
    let kind = match &parsed {
        memcached::Parsed::Complete { consumed, .. } => Kind::Taken(*consumed),
        memcached::Parsed::Incomplete { needed } => Kind::Needs(*needed),
        memcached::Parsed::Failed(failure) if failure.close => Kind::Closed,
        memcached::Parsed::Failed(failure) | memcached::Parsed::TooLarge { failure, .. } => {
            Kind::Taken(failure.consumed)
        }
    };
    Answer {
        text: describe::memcached(&parsed),
        kind,
    }
}

/// The limits of [`ask_resp`].
pub(crate) const RESP_LIMITS: resp::Limits = resp::Limits {
    args: 100,
    bulk_bytes: 1000,
    command_bytes: 3000,
    before_login: false,
};

/// Asks the RESP parser.
pub(crate) fn ask_resp(input: &[u8]) -> Answer {
    let mut list = resp::ArgList::new();
    let parsed = resp::parse(input, &RESP_LIMITS, &mut list);
    let kind = match &parsed {
        resp::Parsed::Complete { consumed } | resp::Parsed::Nothing { consumed } => Kind::Taken(*consumed),
        resp::Parsed::Refused { consumed, .. } => Kind::Taken(*consumed),
        resp::Parsed::Incomplete { needed } => Kind::Needs(*needed),
        resp::Parsed::Failed(_) => Kind::Closed,
    };
    Answer {
        text: describe::resp(&parsed, &list, input),
        kind,
    }
}

/// The laws for one command, complete or wrong, at the beginning of `input`.
pub(crate) fn check_every_prefix(ask: fn(&[u8]) -> Answer, input: &[u8]) {
    let whole = ask(input);
    if let Kind::Needs(needed) = whole.kind {
        assert!(needed > input.len(), "{} needs {needed}", describe::text(input));
    }
    let mut least = 0;
    for end in 0..input.len() {
        let part = ask(&input[..end]);
        match part.kind {
            Kind::Needs(needed) => {
                assert!(needed > end, "{} needs {needed}", describe::text(&input[..end]));
                least = least.max(needed);
            }
            // An answer before the end is the answer, and comes no earlier than was announced.
            _ => {
                assert_eq!(part.text, whole.text, "{} of {}", end, describe::text(input));
                assert!(
                    end >= least,
                    "{} answers at {end}, not at {least}",
                    describe::text(input)
                );
            }
        }
    }
    if !matches!(whole.kind, Kind::Needs(_)) {
        assert!(input.len() >= least, "{} answers before {least}", describe::text(input));
        if let Kind::Taken(consumed) = whole.kind {
            assert!(
                consumed > 0 && consumed <= input.len(),
                "{consumed} of {}",
                describe::text(input)
            );
        }
        for behind in [&b"x"[..], b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"get a\r\n", b"\0\xff 1"] {
            let longer = ask(&[input, behind].concat());
            assert_eq!(longer.text, whole.text, "{}", describe::text(input));
        }
    }
}

/// Commands of memcached, right and wrong; the fuzzer begins with them, too. Among them are inputs behind bugs of
/// memcached: a line of spaces, numeric flags without numbers, and `F` before the parser knew it. Others are a refused
/// `ms` whose body must still be dropped, and keys at and above the limit in both forms.
pub(crate) const MEMCACHED: &[&[u8]] = &[
    b"get a\r\n",
    b"get key:000000000042\n",
    b"gets a b  c \r\n",
    b"gat 10 a b\r\n",
    b"gats -1 a\r\n",
    b"set a 1 2 3\r\nxyz\r\n",
    b"set a 0 0 3 noreply\r\nx\r\n\r\n",
    b"add a 4294967295 9223372036854775807 0\r\n\r\n",
    b"replace a 0 0 1\r\nx\r\n",
    b"append a 0 0 1\nx\r\n",
    b"prepend a 0 0 1 noreply\r\nx\r\n",
    b"cas a 0 0 1 18446744073709551615\r\nx\r\n",
    b"set a 0 0 4\r\nget \r\n",
    b"set a 0 0 2\r\nabcd\r\n",
    b"set a 0 0 1001\r\n",
    b"set a 0 0 -1\r\n",
    b"set a 0 0 99999999999999999999\r\n",
    b"set a 0 0 2147483648\r\n",
    b"set a x 0 1\r\nx\r\n",
    b"set a 0 0\r\n",
    b"incr a 18446744073709551615 noreply\r\n",
    b"decr a 1\r\n",
    b"touch a -1\r\n",
    b"delete a 0 noreply\r\n",
    b"delete a 7\r\n",
    b"flush_all 10 noreply\r\n",
    b"version\r\n",
    b"verbosity 1\r\n",
    b"stats settings\r\n",
    b"quit\r\n",
    b"shutdown\r\n",
    b"\r\n",
    b"\n",
    b"                \r\n",
    b" \n",
    b"mg a s v c f l h t k O12 q u\r\n",
    b"mg a N30 R30 T30 E5\r\n",
    b"mg 44OG44K544OI b k v\r\n",
    b"mg a\r\n",
    b"mg a F\r\n",
    b"mg a F1 M\r\n",
    b"mg a O123456789012345678901234567890123\r\n",
    b"mg a N\r\n",
    b"mg a T99999999999999999999\r\n",
    b"mg a v v\r\n",
    b"mg a S\r\n",
    b"ms a 2 T90 F1 C3 c ME\r\nhi\r\n",
    b"ms a 2 S2\r\nhi\r\n",
    b"ms a 2 C\r\nhi\r\n",
    b"ms YQ== 1 b MA N5 E9\r\nx\r\n",
    b"ms YQ 1 b\r\nx\r\n",
    b"ms a 2 q I\r\nhix\n",
    b"ms a -5\r\n",
    b"ms a 99999999999\r\n",
    b"md a q I T30 x\r\n",
    b"ma a N0 J13 D30 v MD\r\n",
    b"ma a D-1\r\n",
    b"ma a MX\r\n",
    b"me YQ== b\r\n",
    b"mn\r\n",
    b"mn foo\r\n",
    b"\x80\x00\x00\x03abcd",
    b"get a\tb\r\n",
    b"get a\0b\r\n",
    b"get kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\
        kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\
        kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk\r\n",
];

/// Requests of RESP, right and wrong; the fuzzer begins with them, too.
pub(crate) const RESP: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$7\r\na\r\nb\r\nc\r\n",
    b"*5\r\n$3\r\nset\r\n$1\r\nk\r\n$1\r\nv\r\n$2\r\nPX\r\n$5\r\n10000\r\n",
    b"*4\r\n$4\r\nMGET\r\n$0\r\n\r\n$1\r\nb\r\n$2\r\ncc\r\n",
    b"*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n",
    b"*6\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$1\r\nn\r\n$1\r\ns\r\n$0\r\n\r\n",
    b"*3\r\n$4\r\nEVAL\r\n$6\r\nreturn\r\n$1\r\n0\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*\r\n",
    b"*a\r\n",
    b"*01\r\n",
    b"*101\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\nPING\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$04\r\n",
    b"*1\r\n$1001\r\n",
    b"*1\r\n$536870913\r\n",
    b"*3\r\n$999\r\n",
    b"*2\r\n$1\r\na\r\nx",
    b"*1\r\n$4\rxPINGxx",
    b"PING\r\n",
    b"set  k\tv \r\n",
    b"ECHO \"a\\x41\\n\\\"b\" 'c\\'d' e\"f\"\n",
    b"ECHO \"a\r\n",
    b"ECHO 'a'b\r\n",
    b"\r\n",
    b"  \n",
    b"\"\"\r\n",
    b"POST / HTTP/1.1\r\n",
    b"GET a\0b\r\n",
    b"$4\r\n",
];

#[test]
fn every_prefix_of_memcached_commands() {
    for input in MEMCACHED {
        check_every_prefix(ask_memcached, input);
    }
}

#[test]
fn every_prefix_of_resp_commands() {
    for input in RESP {
        check_every_prefix(ask_resp, input);
    }
}

/// Gives a list the command piece by piece, as they come or when enough has come; the answer.
fn ask_resp_in_pieces(input: &[u8], step: usize, wait: bool) -> String {
    let mut list = resp::ArgList::new();
    let mut end = 0;
    loop {
        end = (end + step).min(input.len());
        let parsed = resp::parse_more(&input[..end], &RESP_LIMITS, &mut list);
        match parsed {
            resp::Parsed::Incomplete { needed } if end < input.len() => {
                if wait {
                    end = end.max(needed.min(input.len()) - step.min(needed));
                }
            }
            _ => return describe::resp(&parsed, &list, input),
        }
    }
}

#[test]
fn a_list_that_is_kept_goes_on_where_it_stopped() {
    let many = [&b"*60\r\n"[..], &b"$20\r\n01234567890123456789\r\n".repeat(60)].concat();
    let twice = [&many[..], &many].concat();
    for input in RESP.iter().copied().chain([&many[..], &twice]) {
        let whole = ask_resp(input).text;
        for step in [1, 2, 3, 7, 100] {
            for wait in [false, true] {
                assert_eq!(
                    ask_resp_in_pieces(input, step, wait),
                    whole,
                    "{} by {step}",
                    describe::text(input)
                );
            }
        }
    }
}

#[test]
fn limits_are_the_same_for_every_prefix() {
    let keys = [&b"get "[..], &b"k ".repeat(2100), b"\r\n"].concat();
    let line = [&b"set "[..], &b"k".repeat(2100), b" 0 0 1\r\nx\r\n"].concat();
    let spaces = [b" ".repeat(2046), b"get a b\r\n".to_vec()].concat();
    for input in [keys, line, spaces] {
        check_every_prefix(ask_memcached, &input);
    }
    let many = [
        &b"*90\r\n"[..],
        &b"$40\r\n0123456789012345678901234567890123456789\r\n".repeat(90),
    ]
    .concat();
    check_every_prefix(ask_resp, &many);
}
