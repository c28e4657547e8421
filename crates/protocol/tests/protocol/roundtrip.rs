//! A composed command is read back: any arguments, any values.

use proptest::collection::vec;
use proptest::prelude::{any, prop_assert_eq, proptest};
use tidemark_protocol::memcached::{self, Command, compose};
use tidemark_protocol::resp::float::Float;
use tidemark_protocol::resp::{self, ArgList, Reply, Version};
use tidemark_protocol::{number, resp::glob};

/// Any key that memcached allows.
fn key() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::strategy::Strategy;
    vec((0x21_u8..=0xff).prop_filter("no DEL", |byte| *byte != 0x7f), 1..=250)
}

/// In hundredths.
const SUMMAND_MAX: i64 = 1_000_000_000_000;

proptest! {
    #[test]
    fn resp_requests_are_read_back(args in vec(vec(any::<u8>(), 0..40), 1..20)) {
        let mut request = Vec::new();
        let mut reply = Reply::new(&mut request, Version::Resp2);
        reply.array(args.len());
        for arg in &args {
            reply.bulk(arg);
        }
        let mut list = ArgList::new();
        let parsed = resp::parse(&request, &resp::Limits::with_value_bytes(1000), &mut list);
        prop_assert_eq!(parsed, resp::Parsed::Complete { consumed: request.len() });
        let read: Vec<&[u8]> = list.args(&request).from(0).collect();
        prop_assert_eq!(read, args);
    }

    #[test]
    fn inline_arguments_survive_quoting(args in vec(vec(any::<u8>(), 0..20), 1..6)) {
        let quoted: Vec<String> = args
            .iter()
            .map(|arg| format!("\"{}\"", arg.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>()))
            .collect();
        let line = quoted.join(" ") + "\r\n";
        let mut list = ArgList::new();
        let parsed = resp::parse(line.as_bytes(), &resp::Limits::with_value_bytes(1000), &mut list);
        prop_assert_eq!(parsed, resp::Parsed::Complete { consumed: line.len() });
        let read: Vec<&[u8]> = list.args(line.as_bytes()).from(0).collect();
        prop_assert_eq!(read, args);
    }

    #[test]
    fn values_are_stored_and_returned_as_they_are(
        key in key(),
        value in vec(any::<u8>(), 0..200),
        flags in any::<u32>(),
        exptime in any::<i64>(),
        cas in any::<u64>(),
    ) {
        let mut request = b"cas ".to_vec();
        request.extend_from_slice(&key);
        request.extend_from_slice(format!(" {flags} {exptime} {} {cas}\r\n", value.len()).as_bytes());
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        let parsed = memcached::parse(&request, &memcached::Limits::default());
        let memcached::Parsed::Complete { command: Command::Store(store), consumed } = parsed else {
            panic!("{parsed:?}");
        };
        prop_assert_eq!(consumed, request.len());
        prop_assert_eq!((store.key, store.value), (&key[..], &value[..]));
        prop_assert_eq!((store.flags, store.exptime, store.verb), (flags, exptime, memcached::Verb::Cas(cas)));

        let mut reply = Vec::new();
        compose::value(&mut reply, store.key, store.flags, Some(cas), store.value);
        let header = [b"VALUE ", &key[..], format!(" {flags} {} {cas}\r\n", value.len()).as_bytes()].concat();
        prop_assert_eq!(reply, [&header[..], &value, b"\r\n"].concat());
    }

    #[test]
    fn many_keys_are_read_back(keys in vec(key(), 1..12)) {
        let line = [b"gets ", &keys.join(&b' ')[..], b"\r\n"].concat();
        let parsed = memcached::parse(&line, &memcached::Limits::default());
        let memcached::Parsed::Complete { command: Command::Get(get), .. } = parsed else {
            panic!("{parsed:?}");
        };
        prop_assert_eq!(get.keys.len(), keys.len());
        prop_assert_eq!(get.keys.first(), &keys[0][..]);
        prop_assert_eq!(get.keys.into_iter().collect::<Vec<_>>(), keys);
    }

    #[test]
    fn numbers_are_read_back(signed in any::<i64>(), unsigned in any::<u64>()) {
        let mut text = Vec::new();
        number::append_i64(&mut text, signed);
        prop_assert_eq!(number::parse_canonical_i64(&text), Some(signed));
        prop_assert_eq!(number::parse_i64(&text), Some(signed));
        text.clear();
        number::append_u64(&mut text, unsigned);
        prop_assert_eq!(number::parse_u64(&text), Some(unsigned));
    }

    #[test]
    fn sums_are_exact_in_hundredths(a in -SUMMAND_MAX..SUMMAND_MAX, b in -SUMMAND_MAX..SUMMAND_MAX) {
        let hundredths = |number: i64| {
            let sign = if number < 0 { "-" } else { "" };
            format!("{sign}{}.{:02}", number.unsigned_abs() / 100, number.unsigned_abs() % 100)
        };
        let sum = Float::parse(hundredths(a).as_bytes()).unwrap().plus(Float::parse(hundredths(b).as_bytes()).unwrap());
        let mut text = Vec::new();
        sum.unwrap().append_to(&mut text);
        let expected = hundredths(a + b);
        let expected = expected.trim_end_matches('0').trim_end_matches('.');
        let expected = if expected == "-0" { "0" } else { expected };
        prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn literal_patterns_match_themselves_only(text in vec(any::<u8>(), 0..20), other in vec(any::<u8>(), 0..20)) {
        let pattern: Vec<u8> = text.iter().flat_map(|byte| [b'\\', *byte]).collect();
        prop_assert_eq!(glob::matches(&pattern, &other, glob::Case::Exact), text == other);
        prop_assert_eq!(glob::matches(&pattern, &text, glob::Case::Exact), true);
        let around = [b"*", &pattern[..], b"*"].concat();
        let inside = [&other[..], &text, &other].concat();
        prop_assert_eq!(glob::matches(&around, &inside, glob::Case::Exact), true);
    }
}

proptest! {
    #[test]
    fn a_pattern_that_was_read_matches_the_same_texts(
        pattern in "[ab*?\\[\\]^\\\\-]{0,24}",
        long in "[ab?]{0,90}",
        text in "[abc\\[\\]^\\\\*-]{0,40}",
    ) {
        for pattern in [pattern.clone(), format!("*{long}*{pattern}"), format!("{pattern}*{long}")] {
            let read = glob::Pattern::new(pattern.as_bytes()).unwrap();
            for text in [text.clone(), format!("{text}{}c{text}", long.replace('?', "b"))] {
                let matches = glob::matches(pattern.as_bytes(), text.as_bytes(), glob::Case::Exact);
                prop_assert_eq!(read.matches(text.as_bytes()), matches, "{:?} {:?}", pattern, text);
            }
        }
    }
}
