//! Refusals: faults of the origin, signatures, grants, addresses for reading.

use super::*;

#[test]
fn faults_of_the_origin_are_the_clients_errors() {
    let bench = bench("0", false);
    let object = bytes(6 * MIB, 1);
    bench.origin.put("bucket/k", object.clone());
    let with = |faults: Faults| {
        bench.origin.set(faults);
        bench.memories[0].blocks.lock().clear();
        bench.get("/bucket/k", &[])
    };
    for (status, code) in [
        (500, "ServiceUnavailable"),
        (503, "ServiceUnavailable"),
        (403, "AccessDenied"),
    ] {
        let got = with(Faults {
            status: StatusCode::from_u16(status).ok(),
            ..Faults::default()
        });
        assert_eq!(got.status.as_u16(), status);
        assert!(got.text().contains(code), "{}", got.text());
    }
    let cut = with(Faults {
        cut_bytes: Some(2 << 20),
        ..Faults::default()
    });
    assert!(cut.body.is_none(), "a reply that is cut is seen to be");
    let cut = with(Faults {
        cut_bytes: Some(5),
        ..Faults::default()
    });
    assert_eq!(cut.status, StatusCode::SERVICE_UNAVAILABLE);
    let other = with(Faults {
        has_other_etag: true,
        ..Faults::default()
    });
    assert!(other.body != Some(object.clone()) || other.status == StatusCode::OK);
    let simple = with(Faults {
        is_simple: true,
        ..Faults::default()
    });
    assert!(simple.body == Some(object.clone()), "an origin that knows no ranges");
    assert!(with(Faults::default()).body == Some(object));
    // Nobody is there.
    let nobody = bench.get("/elsewhere/k", &[]);
    assert!(nobody.text().contains("NoSuchBucket"), "{}", nobody.text());
}

#[test]
fn signatures_are_checked() {
    let bench = bench("forever", false);
    bench.origin.put("bucket/open/k", bytes(3, 1));
    let wrong = Credentials {
        secret_key: "wrong".into(),
        ..bench.keys[0].clone()
    };
    let other_generation = Credentials {
        access_key: "shop.2".into(),
        ..bench.keys[0].clone()
    };
    let nobody = Credentials {
        access_key: "nobody.1".into(),
        ..bench.keys[0].clone()
    };
    for (by, skew, status, code) in [
        (&bench.keys[0], 0, 200, ""),
        (&bench.keys[1], 0, 200, ""),
        (&wrong, 0, 403, "SignatureDoesNotMatch"),
        (&other_generation, 0, 403, "SignatureDoesNotMatch"),
        (&nobody, 0, 403, "SignatureDoesNotMatch"),
        (&bench.keys[0], -3600, 403, "RequestTimeTooSkewed"),
    ] {
        let got = bench.send(&Ask {
            by,
            skew,
            ..bench.ask(Method::GET, "/bucket/open/k")
        });
        assert_eq!(got.status.as_u16(), status, "{by:?} {skew}: {}", got.text());
        assert!(got.text().contains(code) || status == 200, "{by:?}: {}", got.text());
    }
    // One that was made for another request, and none at all.
    let mut replayed = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    *replayed.uri_mut() = format!("http://{}/bucket/other", bench.address).parse().unwrap();
    let mut bare = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    bare.headers_mut().remove(AUTHORIZATION);
    let mut old = bench.request(&bench.ask(Method::GET, "/bucket/open/k"));
    old.headers_mut()
        .insert(AUTHORIZATION, HeaderValue::from_static("AWS shop.1:abc"));
    for (request, status) in [(replayed, 403), (bare, 403), (old, 501)] {
        let got = bench.runtime.block_on(got(bench.client.clone(), request));
        assert_eq!(got.status.as_u16(), status, "{}", got.text());
    }
}

#[test]
fn grants_bound_what_a_tenant_may_do() {
    let bench = bench("forever", false);
    bench.origin.put("bucket/open/k", bytes(3, 1));
    bench.origin.put("bucket/k", bytes(3, 1));
    let delete = Bytes::from_static(b"<Delete><Object><Key>k</Key></Object></Delete>");
    for (method, target, body, status) in [
        (Method::GET, "/bucket/open/k", Bytes::new(), 200),
        (Method::GET, "/bucket/k", Bytes::new(), 403),
        (Method::PUT, "/bucket/open/k", Bytes::new(), 403),
        (Method::DELETE, "/bucket/open/k", Bytes::new(), 403),
        (Method::GET, "/bucket?list-type=2&prefix=open/", Bytes::new(), 404),
        (Method::GET, "/bucket?list-type=2", Bytes::new(), 403),
        (Method::POST, "/bucket?delete", delete, 403),
        (Method::GET, "/bucket?policy", Bytes::new(), 403),
        (Method::DELETE, "/bucket", Bytes::new(), 403),
        (Method::GET, "/", Bytes::new(), 200),
    ] {
        let got = bench.send(&Ask {
            by: &bench.keys[1],
            body,
            ..bench.ask(method.clone(), target)
        });
        assert_eq!(got.status.as_u16(), status, "{method} {target}: {}", got.text());
    }
    let copied = bench.put("/bucket/copy", &Bytes::new(), &[("x-amz-copy-source", "/elsewhere/k")]);
    assert_eq!(copied.status, StatusCode::NOT_IMPLEMENTED, "{}", copied.text());
}

#[test]
fn an_address_for_reading_writes_nothing() {
    let bench = bench("forever", true);
    bench.origin.put("bucket/k", bytes(3, 1));
    assert_eq!(bench.get("/bucket/k", &[]).status, StatusCode::OK);
    for method in [Method::PUT, Method::POST, Method::DELETE] {
        let got = bench.send(&bench.ask(method.clone(), "/bucket/k"));
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{method}");
    }
    assert_eq!(bench.origin.puts.load(Ordering::Relaxed), 0);
}
