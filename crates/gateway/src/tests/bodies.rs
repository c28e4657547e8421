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
