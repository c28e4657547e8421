//! Bodies of writes, and clients that take none of a reply's.

use super::*;

#[test]
fn a_wrong_or_half_body_never_reaches_the_origin_whole() {
    let bench = bench("forever", false);
    let before = bytes(100, 9);
    bench.origin.put("bucket/k", before.clone());
    let body = bytes(200_000, 1);
    let wrong_hash = payload_hash(b"something else");
    for (headers, payload, code) in [
        (vec![("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], None, "BadDigest"),
        (vec![("x-amz-checksum-crc32", "AAAAAA==")], None, "BadDigest"),
        (vec![], Some(&*wrong_hash), "BadDigest"),
    ] {
        let got = bench.send(&Ask {
            headers: headers.clone(),
            body: body.clone(),
            payload,
            ..bench.ask(Method::PUT, "/bucket/k")
        });
        assert_eq!(got.status, StatusCode::BAD_REQUEST, "{headers:?}: {}", got.text());
        assert!(got.text().contains(code), "{headers:?}: {}", got.text());
    }
    // A client that goes away in the middle.
    let request = bench.request(&Ask {
        payload: Some("UNSIGNED-PAYLOAD"),
        body: body.clone(),
        ..bench.ask(Method::PUT, "/bucket/k")
    });
    let mut head = format!("PUT /bucket/k HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in request.headers() {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    head.push_str("\r\n");
    bench.runtime.block_on(async {
        let mut stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&body[..100_000]).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    });
    assert!(bench.get("/bucket/k", &[]).body == Some(before.clone()));
    assert!(bench.origin.get("bucket/k") == Some(before));
    assert_eq!(bench.origin.puts.load(Ordering::Relaxed), 0);
}

#[test]
fn a_body_with_a_checksum_behind_it_is_passed_on_so() {
    let bench = bench("forever", false);
    let body = bytes(70_000, 1);
    let mut hasher = s3s::checksum::ChecksumHasher {
        crc32: Some(<s3s::crypto::Crc32 as s3s::crypto::Checksum>::new()),
        ..Default::default()
    };
    hasher.update(&body);
    let right = hasher.finalize().checksum_crc32.unwrap();
    for (sum, status) in [(&*right, 200), ("AAAAAA==", 400)] {
        let mut framed = format!("{:x}\r\n", body.len()).into_bytes();
        framed.extend_from_slice(&body);
        framed.extend_from_slice(format!("\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n").as_bytes());
        let length = body.len().to_string();
        let got = bench.send(&Ask {
            headers: vec![
                ("content-encoding", "aws-chunked"),
                ("x-amz-decoded-content-length", &length),
                ("x-amz-trailer", "x-amz-checksum-crc32"),
            ],
            body: framed.into(),
            payload: Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ..bench.ask(Method::PUT, "/bucket/k")
        });
        assert_eq!(got.status.as_u16(), status, "{}", got.text());
    }
    assert!(bench.origin.get("bucket/k") == Some(body.clone()));
    let last = bench.origin.last.lock().clone();
    assert!(bench.get("/bucket/k", &[]).body == Some(body));
    assert!(last.contains_key("x-amz-date"), "requests to the origin are signed");
}

/// A PUT whose body comes in signed chunks. The signature of one of them may be wrong.
fn put_in_chunks(bench: &Bench, body: &[u8], chunk_bytes: usize, wrong: Option<usize>) -> Got {
    let length = body.len().to_string();
    let (parts, _) = bench
        .request(&Ask {
            headers: vec![("x-amz-decoded-content-length", &length)],
            payload: Some("STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
            ..bench.ask(Method::PUT, "/bucket/k")
        })
        .into_parts();
    let text = |name: &str| parts.headers[name].to_str().unwrap().to_owned();
    let (at, authorization) = (text("x-amz-date"), text("authorization"));
    let (_, seed) = authorization.split_once("Signature=").unwrap();
    let scope = format!("{}/us-east-1/s3/aws4_request", &at[..8]);
    let mut key = mac(format!("AWS4{}", bench.keys[0].secret_key).as_bytes(), &at[..8]);
    for part in ["us-east-1", "s3", "aws4_request"] {
        key = mac(&key, part);
    }
    let (mut framed, mut before) = (Vec::new(), seed.to_owned());
    for (number, chunk) in body.chunks(chunk_bytes).chain([&[][..]]).enumerate() {
        let (nothing, hash) = (payload_hash(b""), payload_hash(chunk));
        let signed = format!("AWS4-HMAC-SHA256-PAYLOAD\n{at}\n{scope}\n{before}\n{nothing}\n{hash}");
        before = hex(&mac(&key, &signed));
        let said = if wrong == Some(number) { &nothing } else { &before };
        framed.extend_from_slice(format!("{:x};chunk-signature={said}\r\n", chunk.len()).as_bytes());
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    let request = Request::from_parts(parts, Full::new(framed.into()));
    bench.runtime.block_on(got(bench.client.clone(), request))
}

#[test]
fn a_signed_chunk_is_checked_before_it_is_passed_on_and_is_not_too_long() {
    let bench = bench("forever", false);
    let body = bytes(16 * MIB + 1, 3);
    let before = bytes(100, 9);
    bench.origin.put("bucket/k", before.clone());
    let refused = put_in_chunks(&bench, &body, body.len(), None);
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text().contains("EntityTooLarge"), "{}", refused.text());
    let refused = put_in_chunks(&bench, &body, 4 * MIB, Some(2));
    assert!(refused.text().contains("BadDigest"), "{}", refused.text());
    assert!(bench.origin.get("bucket/k") == Some(before));
    for chunk_bytes in [16 * MIB, 5 * MIB, 64 << 10] {
        let taken = put_in_chunks(&bench, &body, chunk_bytes, None);
        assert_eq!(taken.status, StatusCode::OK, "{}", taken.text());
        assert!(bench.origin.get("bucket/k") == Some(body.clone()), "{chunk_bytes}");
        bench.origin.put("bucket/k", bytes(1, 1));
    }
}

#[test]
fn clients_that_stop_reading_hold_little() {
    let bench = bench("forever", false);
    let object = bytes(50 * MIB, 1);
    bench.origin.put("bucket/k", object.clone());
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let request = bench.request(&bench.ask(Method::GET, "/bucket/k"));
        let mut head = "GET /bucket/k HTTP/1.1\r\n".to_owned();
        for (name, value) in request.headers() {
            head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        head.push_str("\r\n");
        stalled.push(bench.runtime.block_on(async {
            let mut stream = tokio::net::TcpStream::connect(bench.address).await.unwrap();
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.readable().await.unwrap();
            stream
        }));
    }
    // Others are served meanwhile.
    assert!(bench.get("/bucket/k", &[]).body == Some(object));
    let held = bench.gateway.as_ref().unwrap().totals();
    assert_eq!(held.pending_blocks, 0, "{held:?}");
}
