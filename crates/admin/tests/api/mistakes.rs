//! Calls that are refused, and bodies that are none.

use super::*;

#[test]
fn mistakes_are_answered_by_code_and_field() {
    let scene = start();
    scene.create("shop");
    let tenants = "/api/v1/tenants";
    let shop = "/api/v1/tenants/shop";
    for (method, path, body, status, code, field) in [
        (
            "POST",
            "/api/v1/tenants/shop/preview",
            json!({"goals": {"cap_bytes": 5}}),
            400,
            "invalid",
            "goals.cap_bytes",
        ),
        ("POST", tenants, json!({}), 400, "invalid", "name"),
        ("POST", tenants, json!({"name": "a b"}), 400, "invalid", "name"),
        (
            "POST",
            tenants,
            json!({"name": "x", "colour": 1}),
            400,
            "unknown_field",
            "colour",
        ),
        (
            "POST",
            tenants,
            json!({"name": "x", "goals": {"hit_ratio": 0}}),
            400,
            "invalid",
            "goals.hit_ratio",
        ),
        (
            "PATCH",
            shop,
            json!({"goals": {"hit_ratio": 1.5}}),
            400,
            "invalid",
            "goals.hit_ratio",
        ),
        (
            "PATCH",
            shop,
            json!({"goals": {"hit_ratio": "ninety"}}),
            400,
            "invalid",
            "goals.hit_ratio",
        ),
        (
            "POST",
            tenants,
            json!({"name": "x", "limits": {"connections": 0}}),
            400,
            "invalid",
            "limits.connections",
        ),
        (
            "PATCH",
            shop,
            json!({"goals": {"weight": 101}}),
            400,
            "invalid",
            "goals.weight",
        ),
        (
            "POST",
            tenants,
            json!({"name": "x", "goals": {"cap_bytes": 5}}),
            400,
            "invalid",
            "goals.cap_bytes",
        ),
        (
            "POST",
            tenants,
            json!({"name": "x", "goals": {"floor_bytes": 2 * GIB}}),
            409,
            "over_limit",
            "goals.floor_bytes",
        ),
        (
            "POST",
            tenants,
            json!({"name": "x", "policy": "lru"}),
            400,
            "invalid",
            "policy",
        ),
        ("POST", tenants, json!([1]), 400, "bad_json", ""),
        ("POST", tenants, Value::Null, 400, "bad_json", ""),
        ("PATCH", shop, json!({"name": "y"}), 400, "invalid", "name"),
        ("PATCH", shop, Value::Null, 400, "bad_json", ""),
        ("PATCH", "/api/v1/tenants/nobody", json!({}), 404, "not_found", ""),
        ("DELETE", "/api/v1/tenants/nobody", Value::Null, 404, "not_found", ""),
        (
            "POST",
            "/api/v1/tenants/nobody/rotate",
            Value::Null,
            404,
            "not_found",
            "",
        ),
        (
            "POST",
            "/api/v1/tenants/shop/rotate",
            json!({"finish": 1}),
            400,
            "invalid",
            "finish",
        ),
        (
            "PATCH",
            "/api/v1/server",
            json!({"pool_bytes": 1}),
            400,
            "invalid",
            "pool_bytes",
        ),
        (
            "PATCH",
            "/api/v1/server",
            json!({"round_period_us": 1}),
            400,
            "invalid",
            "round_period_us",
        ),
        (
            "PATCH",
            "/api/v1/server",
            json!({"memory": 1}),
            400,
            "unknown_field",
            "memory",
        ),
        (
            "POST",
            "/api/v1/tenants/shop/curve",
            Value::Null,
            405,
            "method_not_allowed",
            "",
        ),
        (
            "DELETE",
            "/api/v1/tenants/shop/moves",
            Value::Null,
            405,
            "method_not_allowed",
            "",
        ),
        ("GET", "/api/v1/tenants/nope/curve", Value::Null, 404, "not_found", ""),
        ("GET", "/api/v1/tenants/nope/moves", Value::Null, 404, "not_found", ""),
        ("GET", "/api/v1/usage?tenant=shop", Value::Null, 404, "not_found", ""),
        (
            "GET",
            "/api/v1/usage?from=yesterday",
            Value::Null,
            400,
            "invalid",
            "from",
        ),
        ("GET", "/api/v1/usage?who=shop", Value::Null, 400, "invalid", ""),
        ("GET", "/api/v1/events", Value::Null, 404, "not_available", ""),
        ("GET", "/api/v1/tenants/%ff%fe", Value::Null, 404, "not_found", ""),
        ("GET", "/api/v2/server", Value::Null, 404, "not_found", ""),
        ("PUT", shop, json!({}), 405, "method_not_allowed", ""),
        ("OPTIONS", "/api/v1/server", Value::Null, 405, "method_not_allowed", ""),
    ] {
        let reply = scene.call(method, path, &body);
        let found_field = reply.body["error"]["field"].as_str().unwrap_or_default();
        assert_eq!(
            (reply.status, reply.code(), found_field),
            (status, code, field),
            "{method} {path} {body}"
        );
        assert!(reply.body["error"]["message"].as_str().unwrap().len() > 10, "{reply:?}");
        assert!(
            reply.body["error"].as_object().unwrap().contains_key("allowed"),
            "{reply:?}"
        );
    }
    assert_eq!(
        scene.get("/api/v1/tenants").body["tenants"].as_array().unwrap().len(),
        2
    );
    let allowed = scene.call("PATCH", shop, &json!({"policy": "lru"})).body["error"]["allowed"].clone();
    assert_eq!(allowed, json!(["adaptive", "genie", "fifo", "clock", "s3fifo"]));
    let ratio = scene
        .call("PATCH", shop, &json!({"goals": {"hit_ratio": "ninety"}}))
        .body["error"]
        .clone();
    assert_eq!(ratio["allowed"], json!(["0.001 to 0.9999", "null"]));
    assert!(scene.call("PUT", shop, &json!({})).head.contains("allow: get"));
    scene.stop();
}

#[test]
fn bodies_that_are_no_json_or_too_long() {
    let scene = start();
    let longest = " ".repeat(64 << 10);
    let nested = "[".repeat(10_000);
    for (body, status, code) in [
        (b"{".as_slice(), 400, "bad_json"),
        (b"\xff\xfe", 400, "bad_json"),
        (b"{\"name\": \"x\"} x", 400, "bad_json"),
        (nested.as_bytes(), 400, "bad_json"),
        (b"{\"name\": \"x\", \"name\": \"y\"}", 400, "bad_json"),
        (longest.as_bytes(), 400, "bad_json"),
    ] {
        let reply = scene.call_raw("POST", "/api/v1/tenants", body);
        assert_eq!((reply.status, reply.code()), (status, code));
    }
    // Announced bytes are not waited for, and a body that ends within a chunk is told from one that is too long.
    let chunk = format!("Transfer-Encoding: chunked\r\n\r\n10001\r\n{longest} ");
    for (rest, status, code) in [
        ("Content-Length: 65537\r\n\r\n", 413, "too_large"),
        ("Transfer-Encoding: chunked\r\n\r\nx\r\n", 400, "broken_off"),
        (&chunk, 413, "too_large"),
    ] {
        let mut stream = scene.unix();
        let head = "POST /api/v1/tenants HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        stream.write_all(format!("{head}{rest}").as_bytes()).unwrap();
        let reply = Reply::read(stream);
        assert_eq!((reply.status, reply.code()), (status, code), "{}", &rest[..30]);
    }
    // A length that is promised and not sent, and bytes that are no HTTP: the connection ends, the server goes on.
    for bytes in [
        b"POST /api/v1/tenants HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{".as_slice(),
        b"\x80\r\n\r\n",
    ] {
        let mut stream = scene.unix();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
    }
    assert_eq!(scene.get("/healthz").status, 200);
    scene.stop();
}
