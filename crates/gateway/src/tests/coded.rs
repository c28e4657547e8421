//! A client that codes itself, against a place that loses chunks.

use tidemark_functions::codec::{Parity, Rs};

use super::large::{LEAST, STRIPE, code, large_bench};
use super::*;
use crate::{Client, ClientCounts, ClientError, Ring};

fn coding(bench: &Bench) -> Client {
    let ring = Ring::new([bench.address.to_string()]).unwrap();
    Client::new(ring, bench.keys[0].clone()).unwrap().coding()
}

fn get(bench: &Bench, client: &Client, key: &str, range: Option<std::ops::Range<u64>>) -> Result<Bytes, ClientError> {
    bench.runtime.block_on(client.get("bucket", key, range))
}

/// A stripe's parity as anybody computes it.
fn parity(stripe: &Bytes) -> Parity {
    Parity::of(&Rs::default(), code(), stripe).unwrap()
}

#[test]
fn a_client_puts_stripes_together_from_chunks() {
    let (bench, place) = large_bench("forever");
    let client = coding(&bench);
    let object = bytes(2 * STRIPE + 12_345, 1);
    bench.origin.put("bucket/large", object.clone());
    assert!(get(&bench, &client, "large", None).unwrap() == object);
    let filled = ClientCounts {
        plain: 3,
        ..ClientCounts::default()
    };
    assert_eq!(client.counts(), filled, "they come from the origin");
    place.until_it_holds(3);
    let reads = bench.origin_reads();
    assert!(get(&bench, &client, "large", None).unwrap() == object);
    assert_eq!(client.counts(), ClientCounts { chunked: 3, ..filled });
    // Chunks 0 and 3 are of data. Two more parts of stripes are read at the ends of the stripe in the middle.
    *place.lost.lock() = vec![0, 3];
    assert!(get(&bench, &client, "large", None).unwrap() == object);
    let (from, to) = (STRIPE - 5, 2 * STRIPE + 5);
    let some = get(&bench, &client, "large", Some(from as u64..to as u64)).unwrap();
    assert!(some == object.slice(from..to));
    let counts = ClientCounts {
        chunked: 9,
        computed: 6,
        ..filled
    };
    assert_eq!(client.counts(), counts);
    // Parity alone is lost: there is nothing to compute.
    *place.lost.lock() = vec![4, 5];
    assert!(get(&bench, &client, "large", None).unwrap() == object);
    assert_eq!(client.counts(), ClientCounts { chunked: 12, ..counts });
    assert_eq!(bench.origin_reads(), reads, "the origin is not asked for what is there");
}

#[test]
fn what_cannot_be_had_in_chunks_comes_in_bytes() {
    let (bench, place) = large_bench("forever");
    let client = coding(&bench);
    let object = bytes(2 * STRIPE, 2);
    bench.origin.put("bucket/large", object.clone());
    bench.origin.put("bucket/small", object.slice(..1000));
    bench.origin.put("bucket/empty", Bytes::new());
    get(&bench, &client, "large", None).unwrap();
    place.until_it_holds(2);
    let mut plain = client.counts().plain;
    *place.lost.lock() = vec![0, 1, 2];
    assert!(
        get(&bench, &client, "large", None).unwrap() == object,
        "one too many is lost"
    );
    plain += 2;
    assert_eq!((client.counts().plain, client.counts().chunked), (plain, 0));
    *place.lost.lock() = vec![1];
    place.is_damaged.store(true, Ordering::Relaxed);
    assert!(
        get(&bench, &client, "large", None).unwrap() == object,
        "a chunk is another one"
    );
    plain += 2;
    assert_eq!((client.counts().plain, client.counts().chunked), (plain, 0));
    assert!(get(&bench, &client, "small", None).unwrap() == object.slice(..1000));
    assert!(get(&bench, &client, "small", Some(990..2000)).unwrap() == object.slice(990..1000));
    assert_eq!(get(&bench, &client, "empty", None).unwrap(), Bytes::new());
    for (key, range, expected) in [("none", None, 404), ("small", Some(1000..1001), 416)] {
        let refused = get(&bench, &client, key, range);
        assert!(
            matches!(refused, Err(ClientError::Refused { status, .. }) if status == expected),
            "{refused:?}"
        );
    }
}

#[test]
fn parity_goes_to_the_place_and_the_object_to_the_origin() {
    let (bench, place) = large_bench("forever");
    let client = coding(&bench);
    let object = bytes(2 * STRIPE + 77, 3);
    bench
        .runtime
        .block_on(client.put("bucket", "large", object.clone()))
        .unwrap();
    place.until_it_holds(3);
    assert!(bench.origin.get("bucket/large") == Some(object.clone()));
    for (number, stripe) in [(0, 0..STRIPE), (1, STRIPE..2 * STRIPE), (2, 2 * STRIPE..object.len())] {
        let there = place.parities.lock().get(&number).cloned().flatten();
        assert!(there == Some(parity(&object.slice(stripe))), "stripe {number}");
    }
    assert_eq!(client.counts().with_parity, 3);
    let reads = bench.origin_reads();
    assert!(get(&bench, &client, "large", None).unwrap() == object);
    assert_eq!((client.counts().chunked, bench.origin_reads()), (3, reads));
    // It is kept in memory: parity would be for nothing.
    let small = object.slice(..LEAST - 1);
    bench
        .runtime
        .block_on(client.put("bucket", "small", small.clone()))
        .unwrap();
    assert!(bench.origin.get("bucket/small") == Some(small));
    assert_eq!(client.counts().with_parity, 3);
}

/// Puts an object of one byte more than a stripe with parity of zeros, by hand.
fn put_by_hand(bench: &Bench, target: &str, parity: &str, object_bytes: &str, zeros: [usize; 2]) -> Got {
    let object = bytes(STRIPE + 1, 4);
    let [first, second] = zeros.map(|zeros| vec![0; zeros]);
    let body = [&first[..], &object[..STRIPE], &second, &object[STRIPE..]].concat();
    let headers = [("x-tidemark-parity", parity), ("x-tidemark-bytes", object_bytes)];
    bench.send(&Ask {
        headers: headers.to_vec(),
        body: body.into(),
        ..bench.ask(Method::PUT, target)
    })
}

#[test]
fn only_bodies_that_fit_their_parity_are_taken() {
    let (bench, place) = large_bench("forever");
    let right = (STRIPE + 1).to_string();
    let zeros = [STRIPE / 2, 128];
    for (target, code, object_bytes, zeros) in [
        ("/bucket/k", "4+2", "4194304", zeros),
        ("/bucket/k", "4+2", &right, [STRIPE / 2, 127]),
        ("/bucket/k", "4+1", &right, zeros),
        ("/bucket/k", "0+2", &right, zeros),
        ("/bucket/k", "4+2", "18446744073709551615", zeros),
        ("/bucket/k", "4+2", "", zeros),
        ("/bucket/k?partNumber=1&uploadId=u", "4+2", &right, zeros),
    ] {
        let got = put_by_hand(&bench, target, code, object_bytes, zeros);
        assert_eq!(
            got.status,
            StatusCode::BAD_REQUEST,
            "{target} {code} {object_bytes}: {}",
            got.text()
        );
        assert!(got.text().contains("InvalidArgument"), "{}", got.text());
    }
    assert!(bench.origin.get("bucket/k").is_none() && place.parities.lock().is_empty());
    // Of a code that the place does not have, only the object is used; and it is too short for the place.
    let got = put_by_hand(&bench, "/bucket/k", "1+1", &right, [STRIPE, 64]);
    assert_eq!(got.status, StatusCode::OK, "{}", got.text());
    assert!(bench.origin.get("bucket/k") == Some(bytes(STRIPE + 1, 4)));
    // Whoever may not write may not write so, and whoever is not known is told nothing.
    let blog = &bench.keys[1];
    let got = bench.send(&Ask {
        by: blog,
        headers: vec![("x-tidemark-parity", "4+2"), ("x-tidemark-bytes", "0")],
        ..bench.ask(Method::PUT, "/bucket/closed")
    });
    assert_eq!(got.status, StatusCode::FORBIDDEN, "{}", got.text());
    let stranger = Credentials {
        secret_key: "other".into(),
        ..blog.clone()
    };
    for (by, target, status) in [
        (blog, "/?tidemark-code=9000000", StatusCode::NO_CONTENT),
        (blog, "/?tidemark-code=many", StatusCode::BAD_REQUEST),
        (&stranger, "/?tidemark-code=9000000", StatusCode::FORBIDDEN),
    ] {
        let got = bench.send(&Ask {
            by,
            ..bench.ask(Method::GET, target)
        });
        assert_eq!(got.status, status, "{target}");
        let code = if status == StatusCode::NO_CONTENT { "4+2" } else { "" };
        assert_eq!(got.header("x-tidemark-code"), code);
    }
}

#[test]
fn a_client_that_codes_never_mixes_two_versions() {
    let (bench, place) = large_bench("0");
    let client = coding(&bench);
    let [old, new] = [5, 6].map(|seed| bytes(3 * STRIPE, seed));
    bench.origin.put("bucket/large", old.clone());
    assert!(get(&bench, &client, "large", None).unwrap() == old);
    place.until_it_holds(3);
    let (origin, version) = (Arc::clone(&bench.origin), new.clone());
    *place.meanwhile.lock() = Some(Box::new(move || origin.put("bucket/large", version)));
    // Its first stripe comes as chunks of the old one.
    let before = client.counts();
    assert!(get(&bench, &client, "large", None).unwrap() == new);
    let counts = client.counts();
    assert_eq!((counts.chunked, counts.plain), (before.chunked + 1, before.plain + 3));
}
