//! Reads: ranges, conditions, freshness, and what is fetched for them.

use super::*;

#[test]
fn requests_are_counted_by_command_and_outcome() {
    let bench = bench("forever", false);
    bench.origin.put("bucket/there", bytes(10, 1));
    bench.get("/bucket/there", &[]);
    bench.get("/bucket/nothing", &[]);
    bench.send(&bench.ask(Method::HEAD, "/bucket/there"));
    // A bucket that is not behind this address is refused to the tenant.
    bench.get("/elsewhere/there", &[]);
    let executed = bench.memories[0].executed.lock().clone();
    let expected = [
        ("get_object", Outcome::Ok),
        ("get_object", Outcome::Miss),
        ("head_object", Outcome::Ok),
        ("get_object", Outcome::Miss),
    ];
    assert_eq!(executed, expected);
    assert!(
        bench.memories[1].executed.lock().is_empty(),
        "the other tenant did nothing"
    );
}

#[test]
fn every_range_of_every_size_is_right_and_is_fetched_once() {
    let bench = bench("forever", false);
    for (name, length) in [
        ("empty", 0),
        ("small", 10),
        ("block", MIB),
        ("more", MIB + 1),
        ("large", 9 * MIB + 123),
    ] {
        let object = bytes(length, length as u64);
        bench.origin.put(&format!("bucket/{name}"), object.clone());
        let target = format!("/bucket/{name}");
        let size = length as u64;
        let (mib, last) = (MIB as u64, size.saturating_sub(1));
        let ranges = [
            String::new(),
            "bytes=0-0".into(),
            format!("bytes={last}-"),
            format!("bytes={}-{}", mib - 1, mib),
            format!("bytes={}-{}", 3 * mib - 7, 7 * mib + 7),
            "bytes=-1".into(),
            format!("bytes=-{}", 2 * mib),
            format!("bytes={size}-"),
            "bytes=nonsense".into(),
        ];
        for range in &ranges {
            let headers: Vec<(&str, &str)> = if range.is_empty() {
                vec![]
            } else {
                vec![("range", range)]
            };
            let expected = crate::range::Asked::parse((!range.is_empty()).then_some(range)).of(size);
            for round in 0..2 {
                let got = bench.get(&target, &headers);
                let context = format!("{name}, {range:?}, round {round}");
                match &expected {
                    Err(_) => {
                        assert_eq!(got.status, StatusCode::RANGE_NOT_SATISFIABLE, "{context}");
                        assert_eq!(got.header("content-range"), format!("bytes */{size}"), "{context}");
                    }
                    Ok(None) => {
                        assert_eq!(got.status, StatusCode::OK, "{context}");
                        assert!(got.body.as_ref() == Some(&object), "{context}");
                    }
                    Ok(Some(range)) => {
                        assert_eq!(got.status, StatusCode::PARTIAL_CONTENT, "{context}");
                        let part = object.slice(range.start as usize..range.end as usize);
                        assert!(got.body == Some(part), "{context}");
                        let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                        assert_eq!(got.header("content-range"), text, "{context}");
                    }
                }
                if got.status.is_success() {
                    assert_eq!(got.header("x-amz-meta-colour"), "blue", "{context}");
                }
            }
        }
        let head = bench.send(&bench.ask(Method::HEAD, &target));
        assert_eq!(
            (head.status, head.header("content-length")),
            (StatusCode::OK, &*size.to_string())
        );
    }
    // Every byte came once, whatever ranges it was in.
    let all = (10 + MIB + MIB + 1 + 9 * MIB + 123) as u64;
    assert_eq!(bench.origin.sent_bytes.load(Ordering::Relaxed), all);
    let totals = bench.gateway.as_ref().unwrap().totals();
    assert_eq!((totals.known_objects, totals.pending_blocks), (5, 0));
    assert!(
        totals.memory_bytes > 0 && totals.origin_bytes > 0 && totals.requests > 50,
        "{totals:?}"
    );
}

#[test]
fn a_range_of_a_large_object_fetches_its_blocks_only() {
    let bench = bench("forever", false);
    let object = bytes(64 * MIB, 5);
    bench.origin.put("bucket/large", object.clone());
    let got = bench.get("/bucket/large", &[("range", "bytes=33554432-33554435")]);
    assert!(got.body == Some(object.slice(33_554_432..33_554_436)));
    let sent = bench.origin.sent_bytes.load(Ordering::Relaxed);
    assert!(sent <= 4 * BLOCK_BYTES, "{sent} bytes for 4");
}

#[test]
fn many_ask_and_one_fill_answers() {
    let bench = bench("forever", false);
    let object = bytes(3 * MIB, 1);
    bench.origin.put("bucket/open/hot", object.clone());
    bench.origin.set(Faults {
        is_held: true,
        ..Faults::default()
    });
    let requests: Vec<Request<Full<Bytes>>> = (0..40)
        .map(|i| {
            bench.request(&Ask {
                by: &bench.keys[i % 2],
                ..bench.ask(Method::GET, "/bucket/open/hot")
            })
        })
        .collect();
    let gateway = bench.gateway.as_ref().unwrap();
    let before = gateway.totals().requests;
    let asked: Vec<_> = requests
        .into_iter()
        .map(|request| bench.runtime.spawn(got(bench.client.clone(), request)))
        .collect();
    while gateway.totals().requests < before + 40 || bench.origin_reads() == 0 {
        std::thread::yield_now();
    }
    bench.origin.release();
    for one in asked {
        let got = bench.runtime.block_on(one).unwrap();
        assert!(got.status == StatusCode::OK && got.body.as_ref() == Some(&object));
    }
    assert_eq!(bench.origin_reads(), 1, "one fill for all, of both tenants");
    for memory in &bench.memories {
        assert!(!memory.blocks.lock().is_empty(), "each tenant has its own copy");
    }
}

#[test]
fn conditions_are_judged_here() {
    let bench = bench("forever", false);
    let object = bytes(10, 1);
    bench.origin.put("bucket/k", object.clone());
    let etag = origin::etag(&object);
    let etag = etag.to_str().unwrap();
    for (headers, status) in [
        (vec![("if-none-match", etag)], 304),
        (vec![("if-none-match", "\"x\"")], 200),
        (vec![("if-match", etag)], 200),
        (vec![("if-match", "\"x\"")], 412),
        (vec![("if-range", etag), ("range", "bytes=0-1")], 206),
        (vec![("if-range", "\"x\""), ("range", "bytes=0-1")], 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let got = bench.send(&Ask {
                headers: headers.clone(),
                ..bench.ask(method.clone(), "/bucket/k")
            });
            assert_eq!(got.status.as_u16(), status, "{method} {headers:?}");
        }
    }
}

#[test]
fn what_others_write_is_found_when_freshness_ends() {
    for (freshness, finds) in [("0", true), ("forever", false)] {
        let bench = bench(freshness, false);
        let (first, second) = (bytes(2 * MIB, 1), bytes(2 * MIB, 2));
        bench.origin.put("bucket/k", first.clone());
        assert!(bench.get("/bucket/k", &[]).body == Some(first.clone()));
        bench.origin.put("bucket/k", second.clone());
        let expected = if finds { second } else { first };
        assert!(bench.get("/bucket/k", &[]).body == Some(expected), "{freshness}");
        bench.origin.remove("bucket/k");
        let status = bench.get("/bucket/k", &[]).status;
        assert_eq!(status == StatusCode::NOT_FOUND, finds, "{freshness}");
    }
}

#[test]
fn a_write_through_the_gateway_is_found_at_once() {
    let bench = bench("forever", false);
    for (round, length) in [10, MIB, 3 * MIB + 5, 20 * MIB, 0].into_iter().enumerate() {
        let object = bytes(length, round as u64);
        let put = bench.put("/bucket/k", &object, &[]);
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
        assert!(bench.origin.get("bucket/k").as_ref() == Some(&object));
        assert!(bench.get("/bucket/k", &[]).body == Some(object), "{length} bytes");
    }
    let gone = bench.send(&bench.ask(Method::DELETE, "/bucket/k"));
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    let got = bench.get("/bucket/k", &[]);
    assert_eq!(got.status, StatusCode::NOT_FOUND);
    assert!(got.text().contains("NoSuchKey"), "{}", got.text());
}

#[test]
fn an_object_that_changes_is_never_mixed() {
    let bench = bench("forever", false);
    let (old, new) = (bytes(12 * MIB, 1), bytes(12 * MIB, 2));
    bench.origin.put("bucket/k", old.clone());
    // The beginning of the old version is cached, the rest is not.
    assert_eq!(
        bench.get("/bucket/k", &[("range", "bytes=0-9")]).status,
        StatusCode::PARTIAL_CONTENT
    );
    bench.origin.put("bucket/k", new.clone());
    let got = bench.get("/bucket/k", &[]);
    match got.body {
        // It breaks off where the new version begins.
        None => {}
        Some(body) => assert!(body == new || body == old, "mixed"),
    }
    // And the gateway knows by that.
    assert!(bench.get("/bucket/k", &[]).body == Some(new.clone()));
    // If the first byte is missing already, the new version is the answer.
    bench.origin.put("bucket/k", old.clone());
    bench.memories[0].blocks.lock().clear();
    assert!(bench.get("/bucket/k", &[]).body == Some(old));
}

#[test]
fn memory_that_takes_nothing_still_answers() {
    let bench = bench("forever", false);
    bench.memories[0].is_full.store(true, Ordering::Relaxed);
    let object = bytes(33 * MIB + 7, 3);
    bench.origin.put("bucket/k", object.clone());
    for _ in 0..2 {
        assert!(bench.get("/bucket/k", &[]).body == Some(object.clone()));
    }
    // A few blocks were fetched ahead for nothing.
    let sent = bench.origin.sent_bytes.load(Ordering::Relaxed) as usize;
    assert!(sent < 2 * object.len() + 20 * MIB, "{sent}");
    // A block in memory that is shorter than it should be is not used.
    bench.memories[0].is_full.store(false, Ordering::Relaxed);
    bench.get("/bucket/k", &[]);
    for block in bench.memories[0].blocks.lock().values_mut() {
        *block = Bytes::from_static(b"short");
    }
    assert!(bench.get("/bucket/k", &[]).body == Some(object));
}
