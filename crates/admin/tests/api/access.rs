//! The calls that are let in.

use super::*;

#[test]
fn over_tcp_the_token_is_needed() {
    let scene = start();
    let token = format!("Authorization: Bearer {}\r\n", scene.token);
    let wrong = format!("Authorization: Bearer {}x\r\n", scene.token);
    for (path, headers, status) in [
        ("/api/v1/server", token.as_str(), 200),
        ("/api/v1/server", wrong.as_str(), 401),
        ("/api/v1/server", "", 401),
        ("/api/v1/server", "Authorization: \u{ff}\r\n", 401),
        ("/api/v1/nothing", "", 401),
        ("/api/v1/nothing", token.as_str(), 404),
        ("/api/v1/events", "", 401),
        ("/healthz", "", 200),
        ("/readyz", "", 200),
        ("/metrics", "", 401),
        ("/metrics", token.as_str(), 200),
    ] {
        let reply = scene.over_tcp(path, headers);
        assert_eq!(reply.status, status, "{path} {headers}");
        assert_eq!(reply.status == 401, reply.head.contains("www-authenticate: bearer"));
    }
    scene.stop();
}

#[test]
fn no_page_of_a_stranger_reads_anything() {
    let scene = start();
    let token = format!("Authorization: Bearer {}\r\n", scene.token);
    for path in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/api/v1/server",
        "/api/v1/tenants",
        "/nothing",
    ] {
        for (host, more) in [
            ("evil.example", ""),
            ("evil.example:7070", token.as_str()),
            ("localhost", "Origin: http://evil.example\r\n"),
            ("localhost", "Origin: null\r\n"),
        ] {
            let mut stream = scene.tcp();
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let reply = Reply::read(stream);
            assert_eq!((reply.status, reply.code()), (403, "foreign"), "{path} {host} {more}");
        }
    }
    let own = format!("{token}Origin: http://localhost\r\n");
    assert_eq!(scene.over_tcp("/api/v1/server", &own).status, 200);
    scene.stop();
}

#[test]
fn idle_connections_delay_no_health_check() {
    let scene = start();
    // Each has been answered and is kept alive; some have sent the beginning of a request, some nothing.
    let idle: Vec<TcpStream> = (0..200)
        .map(|number| {
            let mut stream = scene.tcp();
            let (sent, answer) = match number % 3 {
                0 => ("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP/1.1 200 OK"),
                1 => ("GET /healthz HTTP/1.1\r\nHost: loc", ""),
                _ => ("", ""),
            };
            stream.write_all(sent.as_bytes()).unwrap();
            let mut answered = vec![0; answer.len()];
            stream.read_exact(&mut answered).unwrap();
            assert_eq!(answered, answer.as_bytes());
            stream
        })
        .collect();
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(scene.over_tcp("/healthz", "").status, 200);
    }
    assert!(began.elapsed() < PATIENCE / 2, "{:?}", began.elapsed());
    drop(idle);
    scene.stop();
}

#[test]
fn busy_connections_leave_room_for_health_checks() {
    let scene = start();
    scene.data_plane.withhold_removed(true);
    let token = format!("Authorization: Bearer {}\r\n", scene.token);
    // Removals that wait for memory which does not come back.
    let busy: Vec<TcpStream> = (0..64)
        .map(|number| {
            let name = format!("t{number}");
            scene.create(&name);
            let mut stream = scene.tcp();
            let path = format!("/api/v1/tenants/{name}");
            stream.write_all(&request("DELETE", &path, &token, b"")).unwrap();
            let state = || scene.get(&path).body["state"].clone();
            wait_for("its removal", || (state() == json!("removing")).then_some(()));
            stream
        })
        .collect();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(scene.over_tcp(path, "").status, 200);
    }
    let refused = scene.over_tcp("/api/v1/server", &token);
    assert_eq!((refused.status, refused.code()), (503, "unavailable"));
    drop(busy);
    wait_for("room", || {
        (scene.over_tcp("/api/v1/server", &token).status == 200).then_some(())
    });
    let Scene { control, admin, .. } = scene;
    control.stop().unwrap();
    admin.stop();
}

#[test]
fn a_token_with_a_role_opens_what_the_role_says() {
    let scene = start();
    let made = |role: &str| {
        let made = scene.call("POST", "/api/v1/tokens", &json!({ "role": role }));
        assert_eq!(
            (made.status, &made.body["name"], &made.body["role"]),
            (201, &json!(role), &json!(role))
        );
        format!("Authorization: Bearer {}\r\n", made.body["token"].as_str().unwrap())
    };
    let (scraper, viewer, operator) = (made("scraper"), made("viewer"), made("operator"));
    let again = scene.call("POST", "/api/v1/tokens", &json!({"role": "scraper"}));
    assert_eq!((again.status, again.code()), (409, "name_taken"));
    let listed = scene.get("/api/v1/tokens").body;
    let names: Vec<_> = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| &token["name"])
        .collect();
    assert_eq!(names, ["scraper", "viewer", "operator"]);
    assert!(listed["tokens"][0].get("hash").is_none(), "{listed}");
    let shop = json!({"name": "shop"}).to_string();
    for (method, path, body, statuses) in [
        ("GET", "/metrics", "", [200, 200, 200]),
        ("GET", "/healthz", "", [200, 200, 200]),
        ("GET", "/api/v1/server", "", [403, 200, 200]),
        ("GET", "/api/v1/tenants", "", [403, 200, 200]),
        ("POST", "/api/v1/tenants", &shop, [403, 403, 201]),
        ("GET", "/api/v1/tokens", "", [403, 403, 403]),
        (
            "POST",
            "/api/v1/tokens",
            "{\"role\": \"viewer\", \"name\": \"b\"}",
            [403, 403, 403],
        ),
        ("DELETE", "/api/v1/tokens/scraper", "", [403, 403, 403]),
    ] {
        for (token, status) in [&scraper, &viewer, &operator].into_iter().zip(statuses) {
            let mut stream = scene.tcp();
            stream
                .write_all(&request(method, path, token, body.as_bytes()))
                .unwrap();
            let reply = Reply::read(stream);
            assert_eq!(reply.status, status, "{method} {path} {}", reply.body);
            assert!(status != 403 || reply.code() == "forbidden", "{}", reply.body);
        }
    }
    assert_eq!(scene.call("DELETE", "/api/v1/tokens/scraper", &Value::Null).status, 204);
    assert_eq!(scene.over_tcp("/metrics", &scraper).status, 401);
    assert_eq!(scene.over_tcp("/metrics", &viewer).status, 200);
    assert_eq!(scene.call("DELETE", "/api/v1/tokens/scraper", &Value::Null).status, 404);
    scene.stop();
}
