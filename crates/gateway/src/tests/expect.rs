//! Clients that wait for `100 Continue` before they send a body.

use super::*;

#[test]
fn an_answer_that_may_have_come_instead_of_continue_ends_the_connection() {
    let bench = bench("forever", false);
    let stranger = Credentials {
        secret_key: "wrong".into(),
        ..bench.keys[0].clone()
    };
    let (some, none) = (bytes(100, 1), Bytes::new());
    let waiting = [("expect", "100-continue")];
    for (by, body, headers, is_right, ends) in [
        (&bench.keys[0], &none, &waiting[..], true, true),
        (&bench.keys[0], &some, &waiting[..], true, false),
        (&stranger, &some, &waiting[..], false, true),
        (&bench.keys[0], &none, &[][..], true, false),
        (&bench.keys[0], &some, &[][..], true, false),
    ] {
        let got = bench.send(&Ask {
            by,
            headers: headers.to_vec(),
            body: body.clone(),
            ..bench.ask(Method::PUT, "/bucket/k")
        });
        assert_eq!(got.status.is_success(), is_right, "{}", got.text());
        let is_last = got.headers.get("connection").is_some_and(|value| value == "close");
        assert_eq!(is_last, ends, "{} bytes, {headers:?}, {}", body.len(), got.status);
    }
}
