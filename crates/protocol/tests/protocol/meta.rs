//! Meta commands of memcached.

use crate::memcached::check;

#[test]
fn meta_commands() {
    let opaque = "1".repeat(32);
    let base64 = "A".repeat(248);
    check(&[
        ("mg a\r\n", "mg a @6"),
        ("mg a v\r\n", "mg a v @8"),
        ("mg  a  s v k O12 q \r\n", "mg a s v k O12 q @21"),
        (
            "mg a N30 R-5 T0 E7 C9\r\n",
            "mg a N30 R-5 T0 E7 C9 ttl=0 vivify=30 recache=-5 compare=9 new=7 @23",
        ),
        ("mg 44OG b v\r\n", "mg \\xe3\\x83\\x86 (base64) b v @13"),
        ("mg YQ== v k b\r\n", "mg a (base64) v k b @15"),
        (
            &format!("mg {base64} b\r\n"),
            &format!("mg {}..(186) (base64) b @255", "\\x00".repeat(60)),
        ),
        ("mg a P/path Lhint\r\n", "mg a P/path Lhint @19"),
        ("mg a vv s5\r\n", "mg a vv s5 @12"),
        ("ms a 2\r\nhi\r\n", "ms Set a [hi] @12"),
        ("ms a 2 T90 F1 c\r\nhi\r\n", "ms Set a T90 F1 c ttl=90 flags=1 [hi] @21"),
        ("ms a 0 ME\r\n\r\n", "ms Add a ME [] @13"),
        ("ms a 1 MA N5\r\nx\r\n", "ms Append a MA N5 vivify=5 [x] @17"),
        ("ms a 1 MP\r\nx\r\n", "ms Prepend a MP [x] @14"),
        ("ms a 1 MR\r\nx\r\n", "ms Replace a MR [x] @14"),
        ("ms a 1 MS I C3\r\nx\r\n", "ms Set a MS I C3 compare=3 [x] @19"),
        ("md a q I T30 x\r\n", "md a q I T30 x ttl=30 @16"),
        ("ma a\r\n", "ma Increment a @6"),
        (
            "ma a N0 J13 D30 v MD\r\n",
            "ma Decrement a N0 J13 D30 v MD vivify=0 delta=30 initial=13 @22",
        ),
        ("ma a M+\r\n", "ma Increment a M+ @9"),
        ("ma a M-\r\n", "ma Decrement a M- @9"),
        ("me a\r\n", "me a @6"),
        ("me YQ== b\r\n", "me a @11"),
        ("me a v b\r\n", "me a @10"),
        (&format!("mg a O{opaque}\r\n"), &format!("mg a O{opaque} @40")),
        (
            &format!("mg a O{opaque}1\r\n"),
            "CLIENT_ERROR opaque token too long @41",
        ),
    ]);
}

#[test]
fn errors_of_meta_commands() {
    let too_long = "k".repeat(251);
    check(&[
        ("mg\r\n", "CLIENT_ERROR bad command line format @4"),
        ("md\r\n", "CLIENT_ERROR bad command line format @4"),
        ("ma\r\n", "CLIENT_ERROR bad command line format @4"),
        ("me\r\n", "CLIENT_ERROR bad command line format @4"),
        ("mx a\r\n", "ERROR @6"),
        (
            &format!("mg {too_long} v\r\n"),
            "CLIENT_ERROR bad command line format @258",
        ),
        (
            &format!("me {too_long}\r\n"),
            "CLIENT_ERROR bad command line format @256",
        ),
        ("mg a v v\r\n", "CLIENT_ERROR duplicate flag @10"),
        ("mg a S1\r\n", "CLIENT_ERROR invalid flag @9"),
        ("mg a \x7f\r\n", "CLIENT_ERROR invalid flag @8"),
        ("mg a T\r\n", "CLIENT_ERROR bad token in command line format @8"),
        ("mg a R5x\r\n", "CLIENT_ERROR bad token in command line format @10"),
        ("mg a C-1\r\n", "CLIENT_ERROR bad token in command line format @10"),
        ("mg a Tx Z\r\n", "CLIENT_ERROR invalid flag @11"),
        ("mg a Fx\r\n", "CLIENT_ERROR bad command line format @9"),
        ("mg a b\r\n", "CLIENT_ERROR error decoding key @8"),
        ("mg YQ= b\r\n", "CLIENT_ERROR error decoding key @10"),
        ("mg YR== b\r\n", "CLIENT_ERROR error decoding key @11"),
        ("md a q q\r\n", "CLIENT_ERROR duplicate flag @10"),
        ("ma a Z\r\n", "CLIENT_ERROR invalid or duplicate flag @8"),
        ("ma a Dx\r\n", "CLIENT_ERROR invalid or duplicate flag @9"),
        ("ma a MX\r\n", "CLIENT_ERROR invalid mode for ma M token @9"),
        ("me a b\r\n", "CLIENT_ERROR bad command line format @8"),
    ]);
}

#[test]
fn bodies_of_refused_meta_sets_are_swallowed() {
    let too_long = "k".repeat(251);
    check(&[
        ("ms a 1 Z\r\nx\r\n", "CLIENT_ERROR invalid flag @10 swallow 3"),
        ("ms a 1 S1\r\nx\r\n", "CLIENT_ERROR invalid flag @11 swallow 3"),
        (
            "ms a 1 q T\r\nx\r\n",
            "CLIENT_ERROR bad token in command line format @12 swallow 3",
        ),
        (
            "ms a 1 MZ\r\nx\r\n",
            "CLIENT_ERROR invalid mode for ms M token @11 swallow 3",
        ),
        (
            "ms a 1 MEE\r\nx\r\n",
            "CLIENT_ERROR incorrect length for M token @12 swallow 3",
        ),
        ("ms a 1 ME MR\r\nx\r\n", "CLIENT_ERROR duplicate flag @14 swallow 3"),
        ("ms a 1 b\r\nx\r\n", "CLIENT_ERROR error decoding key @10 swallow 3"),
        (
            "ms a 1 Fx\r\nx\r\n",
            "CLIENT_ERROR bad command line format @11 swallow 3",
        ),
        (
            &format!("ms {too_long} 1\r\nx\r\n"),
            "CLIENT_ERROR bad command line format @258 swallow 3",
        ),
        (
            "ms a 11 q\r\n",
            "SERVER_ERROR object too large for cache @11 swallow 13 forget a",
        ),
        ("ms a 2 q\r\nxyz\r\n", "CLIENT_ERROR bad data chunk close"),
        ("ms\r\n", "CLIENT_ERROR bad command line format close"),
        ("ms a\r\n", "CLIENT_ERROR bad command line format close"),
        ("ms a x\r\n", "CLIENT_ERROR bad command line format close"),
        ("ms a -1\r\n", "CLIENT_ERROR bad command line format close"),
        ("ms a S1\r\n", "CLIENT_ERROR bad command line format close"),
        (
            "ms a 2147483646\r\n",
            "CLIENT_ERROR bad command line format @17 swallow 2147483648 forget a",
        ),
        // A space in the key, and a key without a byte.
        ("ms a 5 9\r\nflush_all\r\n", "CLIENT_ERROR invalid flag close"),
        ("ms  9 c\r\nflush_all\r\n", "CLIENT_ERROR bad command line format close"),
        ("MS a 9\r\nflush_all\r\n", "ERROR @8 swallow 11"),
    ]);
}
