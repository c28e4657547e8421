//! Metering on the command line: the clients' use, the ledger's record of it, and the ledger after the server is
//! killed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::Value;

use super::*;

/// Sends requests and reads replies until as many bytes have come as are expected. Returns the sent and received bytes.
pub(super) fn exchange(server: &Server, key: &str, requests: &[u8], reply_bytes: usize) -> (u64, u64) {
    let address = server.ready.split(' ').find_map(|word| word.strip_prefix(key)).unwrap();
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(requests).unwrap();
    let mut reply = vec![0; reply_bytes];
    socket.read_exact(&mut reply).unwrap();
    (requests.len() as u64, reply_bytes as u64)
}

pub(super) fn rows(server: &Server) -> Vec<Value> {
    server.json(&["usage"])["rows"].as_array().unwrap().clone()
}

pub(super) fn sum(rows: &[Value], kind: &str, field: &str) -> f64 {
    let of_kind = rows.iter().filter(|row| row["kind"] == kind);
    of_kind.map(|row| row[field].as_f64().unwrap()).sum()
}

/// Waits until the ledger has rows of the use so far.
pub(super) fn rows_with(server: &Server, kind: &str, field: &str, least: f64) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let rows = rows(server);
        if sum(&rows, kind, field) >= least {
            return rows;
        }
        assert!(Instant::now() < deadline, "no {kind} with {least} {field}: {rows:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn what_clients_did_is_in_the_ledger_to_the_byte() {
    let server = Server::start(&["--ledger-period", "1s"]);
    let sets = "set key 0 0 5\r\nvalue\r\n".repeat(300);
    let gets = "get key\r\nget none\r\n".repeat(500);
    let reply_bytes = "STORED\r\n".len() * 300 + ("VALUE key 0 5\r\nvalue\r\nEND\r\n".len() + "END\r\n".len()) * 500;
    let (sent, received) = exchange(&server, "memcached=", format!("{sets}{gets}").as_bytes(), reply_bytes);
    let resp = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(700);
    let (sent_resp, received_resp) = exchange(&server, "redis=", resp.as_bytes(), "$5\r\nvalue\r\n".len() * 700);

    let rows = rows_with(&server, "use", "operations", 2000.0);
    for (field, expected) in [
        ("operations", 300 + 1000 + 700),
        ("network_in_bytes", sent + sent_resp),
        ("network_out_bytes", received + received_resp),
        ("gets", 1700),
        ("hits", 1200),
        ("sets", 300),
    ] {
        assert_eq!(sum(&rows, "use", field), expected as f64, "{field}");
    }
    let command = |name: &str| -> u64 { rows.iter().filter_map(|row| row["commands"][name].as_u64()).sum() };
    // By what came of them: half of memcached's gets were for a key that is not there.
    let commands = ["memcached/get", "memcached/get/miss", "memcached/set", "redis/get"].map(command);
    assert_eq!(commands, [500, 500, 300, 700]);
    assert_eq!(command("memcached/get/error") + command("redis/get/miss"), 0);
    // The first row may be of a moment: one more command makes another, with the memory that was held until then.
    exchange(
        &server,
        "redis=",
        b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n",
        "$5\r\nvalue\r\n".len(),
    );
    let rows = rows_with(&server, "use", "operations", 2001.0);
    assert!(sum(&rows, "use", "memory_byte_seconds") > 0.0);

    // As the API and the metrics say it.
    let shown = server.json(&["tenant", "show", "default"]);
    let cpu = shown["cpu_seconds_total"].as_f64().unwrap();
    assert!(cpu > 0.0 && cpu < 10.0, "{cpu}");
    assert!(shown["vcpus"].as_f64().is_some() && shown["memory_byte_seconds_total"].as_u64().unwrap() > 0);
    let outcomes = shown["operations_total"].as_array().unwrap().iter().map(|one| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        (text("command"), text("outcome"), one["count"].as_u64().unwrap())
    });
    let miss = ("get".to_owned(), "miss".to_owned(), 500);
    assert_eq!(outcomes.filter(|one| *one == miss).count(), 1, "{shown}");
    let node = server.json(&["server", "show"]);
    assert!(node["unattributed_cpu_seconds_total"].as_f64().unwrap() > 0.0, "{node}");
    assert!(node["unexplained_cpu_seconds_total"].as_f64().is_some(), "{node}");

    let table = stdout(&server.run(&["usage"]));
    assert!(
        table.starts_with("TENANT") && table.contains("\ndefault ") && table.contains("(unattributed)"),
        "{table}"
    );
    // Operations, and how many of them missed and failed.
    let line = table.lines().find(|line| line.starts_with("default ")).unwrap();
    let columns: Vec<&str> = line.split_whitespace().collect();
    assert!(columns.windows(3).any(|three| three == ["2001", "500", "0"]), "{table}");
    let csv = stdout(&server.run(&["usage", "--format", "csv"]));
    assert!(
        csv.lines().count() > 1 && csv.starts_with("sequence,kind,tenant,"),
        "{csv}"
    );
    let events = stdout(&server.run(&["usage", "--format", "cloudevents"]));
    let event: Value = serde_json::from_str(events.lines().next().unwrap()).unwrap();
    assert_eq!(event["specversion"], "1.0");
    assert_eq!(rows_of(&server, &["usage", "nobody"]), 0);
    server.stop();
}

/// A model that reckons 1000 ns for each command.
const MODEL: &str = "format = 1\nreference = \"a machine\"\nmachine = \"this one\"\nfactor = 2.0\noutput_ns = [1000.0, 1000.0]\n\
    [accuracy]\nloads = 150\nheld_out = 30\nr_squared = 0.97\nmean_error = 0.04\n\
    [[inputs]]\nname = \"rate\"\nleast = 0.0\nmost = 1.0\nmean = 0.0\ndeviation = 1.0\n\
    [[layers]]\nneurons = [[0.0, 6.9077553]]\n";

#[test]
fn modelled_cpu_time_is_shown_beside_the_measured_one_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.toml");
    std::fs::write(&model, MODEL).unwrap();
    let model_text = model.to_str().unwrap();
    let prices = with_prices(&folder, &PRICES.replace("\"measured\"", "\"modelled\""));
    let server = Server::start(&["--ledger-period", "1s", "--cpu-model", model_text, "--prices", &prices]);
    let requests = format!("set key 0 0 5\r\nvalue\r\n{}", "get key\r\n".repeat(1999));
    let reply_bytes = "STORED\r\n".len() + "VALUE key 0 5\r\nvalue\r\nEND\r\n".len() * 1999;
    exchange(&server, "memcached=", requests.as_bytes(), reply_bytes);

    let rows = rows_with(&server, "use", "operations", 2000.0);
    let near = |seconds: f64| (seconds - 0.002).abs() < 1e-8;
    assert!(near(sum(&rows, "use", "cpu_model_seconds")), "{rows:?}");
    let measured = sum(&rows, "use", "cpu_seconds");
    assert!(measured > 0.0 && !near(measured), "{measured}");
    let shown = server.json(&["tenant", "show", "default"]);
    assert!(near(shown["cpu_model_seconds_total"].as_f64().unwrap()), "{shown}");
    assert!(
        shown["vcpus"].as_f64().unwrap() > 0.0 && shown["cores"].as_f64().is_some(),
        "{shown}"
    );
    let shape = &shown["shape_total"];
    assert_eq!(
        (&shape["written_key_bytes"], &shape["written_value_bytes"]),
        (&3.into(), &5.into())
    );
    let [visits, arrivals] = ["visits", "arrivals"].map(|key| shape[key].as_u64().unwrap());
    assert!(1 <= arrivals && arrivals <= visits && visits <= 2000, "{shape}");
    let node = server.json(&["server", "show"]);
    assert_eq!(node["cpu_model"]["reference"], "a machine", "{node}");
    assert_eq!(node["cpu_model"]["factor"], 2.0);
    let month = &rows[0]["from"].as_str().unwrap()[..7].to_owned();
    let text = stdout(&server.run(&["bill", "default", "--month", month]));
    for part in [
        "0.002 s modelled; the modelled one is billed",
        "need not add up to what",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    server.stop();

    std::fs::write(&model, MODEL.replace("factor = 2.0", "factor = -2.0")).unwrap();
    check_fails(
        &["serve", "--cpu-model", model_text, "--check-config"],
        USAGE,
        &["--cpu-model", "line 4: `factor` is -2", "0.01 to 100"],
    );
}

#[test]
fn the_built_in_model_is_in_force_unless_it_is_off() {
    let requests = format!("set key 0 0 5\r\nvalue\r\n{}", "get key\r\n".repeat(1999));
    let reply_bytes = "STORED\r\n".len() + "VALUE key 0 5\r\nvalue\r\nEND\r\n".len() * 1999;
    for (options, is_modelled) in [(&[][..], true), (&["--cpu-model", "off"], false)] {
        let server = Server::start(&[&["--ledger-period", "1s"], options].concat());
        exchange(&server, "memcached=", requests.as_bytes(), reply_bytes);
        let rows = rows_with(&server, "use", "operations", 2000.0);
        let shown = server.json(&["server", "show"]);
        assert_eq!(shown["cpu_model"]["reference"].is_string(), is_modelled, "{shown}");
        if is_modelled {
            // A command takes between a tenth of a microsecond and a tenth of a millisecond on any machine.
            let ns_per_command = sum(&rows, "use", "cpu_model_seconds") * 1e9 / 2000.0;
            assert!((100.0..100_000.0).contains(&ns_per_command), "{ns_per_command} ns");
        } else {
            assert!(rows.iter().all(|row| row["cpu_model_seconds"].is_null()), "{rows:?}");
        }
        server.stop();
    }
}

#[test]
fn workers_estimate_at_intervals_below_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model.toml");
    std::fs::write(&model, MODEL).unwrap();
    let server = Server::start(&[
        "--ledger-period",
        "1s",
        "--cpu-model",
        model.to_str().unwrap(),
        "--cpu-model-interval",
        "100us",
    ]);
    let near = |seconds: f64, commands: f64| (seconds - commands / 1e6).abs() < 1e-8;
    let requests = format!("set key 0 0 5\r\nvalue\r\n{}", "get key\r\n".repeat(4999));
    let reply_bytes = "STORED\r\n".len() + "VALUE key 0 5\r\nvalue\r\nEND\r\n".len() * 4999;
    exchange(&server, "memcached=", requests.as_bytes(), reply_bytes);
    let rows = rows_with(&server, "use", "operations", 5000.0);
    assert!(near(sum(&rows, "use", "cpu_model_seconds"), 5000.0), "{rows:?}");
    // One command after a silence is estimated as well.
    let resp = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    exchange(&server, "redis=", resp.as_bytes(), "$5\r\nvalue\r\n".len());
    let rows = rows_with(&server, "use", "operations", 5001.0);
    assert!(near(sum(&rows, "use", "cpu_model_seconds"), 5001.0), "{rows:?}");
    let shown = server.json(&["tenant", "show", "default"]);
    assert!(
        near(shown["cpu_model_seconds_total"].as_f64().unwrap(), 5001.0),
        "{shown}"
    );
    server.stop();
    check_fails(
        &["serve", "--cpu-model-interval", "900ns", "--check-config"],
        USAGE,
        &["--cpu-model-interval", "1us to 1m"],
    );
}

fn rows_of(server: &Server, arguments: &[&str]) -> usize {
    server.json(arguments)["rows"].as_array().unwrap().len()
}

#[test]
fn the_chain_survives_kill_and_stop_and_a_change_is_found() {
    let server = Server::start(&["--ledger-period", "1s"]);
    exchange(&server, "memcached=", b"set key 0 0 5\r\nvalue\r\n", 8);
    rows_with(&server, "use", "operations", 1.0);
    let mut server = server;
    send(&server.child, Signal::KILL);
    server.child.wait().unwrap();
    let folder = std::mem::replace(&mut server.folder, tempfile::tempdir().unwrap());
    drop(server);

    let server = Server::start_in(folder, &["--ledger-period", "1s"]);
    exchange(&server, "memcached=", b"get key\r\n", 5);
    let rows = rows_with(&server, "use", "operations", 2.0);
    let gaps = rows.iter().filter(|row| row["kind"] == "gap").count();
    assert_eq!(gaps, 1, "{rows:?}");
    assert!(stdout(&server.run(&["usage"])).contains("gap 20"), "gaps are shown");
    let verified = server.json(&["usage", "verify"]);
    assert!(verified["rows"].as_u64().unwrap() >= rows.len() as u64);
    let (code, _, folder) = server.stop();
    assert_eq!(code, Some(0));

    // Without a server, too; and one that ended in order leaves no gap.
    let data = data(&folder);
    let verify = |part: &str, code: i32| {
        let output = run(&["usage", "verify", "--data", &data]);
        let said = stdout(&output) + &stderr(&output);
        assert!(
            output.status.code() == Some(code) && said.contains(part),
            "{part}: {said}"
        );
    };
    verify("every row is as it was written", 0);
    let server = Server::start_in(folder, &[]);
    let rows = server.json(&["usage"])["rows"].as_array().unwrap().clone();
    assert_eq!(rows.iter().filter(|row| row["kind"] == "gap").count(), 1);
    let (_, _, folder) = server.stop();
    let file = Path::new(&data).join("ledger.sqlite");
    let connection = rusqlite::Connection::open(file).unwrap();
    let changed = connection.execute(
        "UPDATE rows SET operations = 0 WHERE sequence = (SELECT min(sequence) FROM rows WHERE operations > 0)",
        [],
    );
    assert_eq!(changed.unwrap(), 1);
    verify("was changed", FAILED);
    drop(folder);
}

#[test]
fn mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    check_fails(&["usage", "--data", data], NOT_FOUND, &["there is no ledger", data]);
    check_fails(&["usage", "verify", "--data", data], NOT_FOUND, &["there is no ledger"]);
    let server = Server::start(&[]);
    let data = server.data();
    check_fails(
        &["usage", "--data", &data, "--since", "soon"],
        USAGE,
        &["--since soon", "24h"],
    );
    server.stop();
}

const PRICES: &str = "\
currency = \"USD\"
cpu = \"measured\"

[[prices]]
version = \"test-1\"
from = 2020-01-01
vcpu_hour = \"0.04\"
memory_gib_hour = \"0.006\"
network_in_gib = \"0\"
network_out_gib = \"0.01\"
operations_million = \"1\"

[[instances]]
name = \"small\"
vcpus = 16
memory = \"64GiB\"
hour = \"1.5\"
";

fn with_prices(folder: &TempDir, text: &str) -> String {
    let file = folder.path().join("prices.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_bill_is_the_ledger_s_sums_times_the_prices() {
    let files = tempfile::tempdir().unwrap();
    let prices = with_prices(&files, PRICES);
    let server = Server::start(&["--ledger-period", "1s", "--prices", &prices]);
    // Two commands more, which are free.
    let requests = "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".repeat(1500) + &"PING\r\n".repeat(2);
    exchange(
        &server,
        "redis=",
        requests.as_bytes(),
        "$-1\r\n".len() * 1500 + "+PONG\r\n".len() * 2,
    );
    let rows = rows_with(&server, "use", "operations", 1502.0);
    assert!(
        rows.iter()
            .filter(|row| row["kind"] == "use")
            .all(|row| row["price_version"] == "test-1"),
        "{rows:?}"
    );
    let month = &rows[0]["from"].as_str().unwrap()[..7].to_owned();

    let bill = server.json(&["bill", "default", "--month", month]);
    let line = |meter: &str| -> Value {
        let lines = bill["lines"].as_array().unwrap();
        lines.iter().find(|line| line["meter"] == meter).unwrap().clone()
    };
    assert_eq!(
        line("operations_million")["amount"],
        "1500",
        "what is free is not billed: {bill}"
    );
    assert_eq!(line("operations_million")["cost"], "0.0015");
    let out = (1500 * 5 + 2 * 7).to_string();
    assert_eq!(line("network_out_gib")["amount"], out.as_str());
    let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
    let sum: f64 = bill["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| number(&line["cost"]))
        .sum();
    assert!((number(&bill["total"]) - sum).abs() < 1e-9);
    assert_eq!(bill["fixed"][0]["instance"], "small");

    let text = stdout(&server.run(&["bill", "default", "--month", month]));
    for part in [
        "1500 operations / 1000000 x 1.00 = 0.0015",
        "CPU time:",
        "small:",
        "the peak just fits",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The charges add up to the bill as it is when no row comes in between.
    let (_, _, folder) = server.stop();
    let data = data(&folder);
    let focus = stdout(&run(&["usage", "default", "--format", "focus", "--data", &data]));
    let mut lines = focus.lines();
    let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = columns.iter().position(|column| *column == "BilledCost").unwrap();
    let charged: f64 = lines
        .map(|line| line.split(',').nth(place).unwrap().parse::<f64>().unwrap())
        .sum();
    let bill = stdout(&run(&["bill", "default", "--month", month, "--data", &data, "--json"]));
    let bill: Value = serde_json::from_str(&bill).unwrap();
    assert!((charged - number(&bill["total"])).abs() < 1e-12, "{charged} {bill}");

    check_fails(
        &["bill", "nobody", "--month", month, "--data", &data],
        NOT_FOUND,
        &["nothing of tenant `nobody`"],
    );
    check_fails(
        &["bill", "default", "--month", "May", "--data", &data],
        USAGE,
        &["--month May", "2026-08"],
    );
    // A version that rows name cannot come to mean something else.
    let other = with_prices(&files, &PRICES.replace("0.006", "0.007"));
    check_fails(
        &[
            "serve",
            "--data",
            &data,
            "--prices",
            &other,
            "--memcached",
            "off",
            "--redis",
            "127.0.0.1:0",
            "--admin",
            "off",
            "--memory",
            "64MiB",
        ],
        USAGE,
        &["`test-1`", "another name"],
    );
}

#[test]
fn prices_change_at_their_time_and_on_a_reload() {
    let files = tempfile::tempdir().unwrap();
    let prices = with_prices(&files, PRICES);
    let mut server = Server::start(&["--ledger-period", "1h", "--prices", &prices]);
    exchange(&server, "memcached=", b"get none\r\n", 5);
    // In the middle of the hour, for which no row was due.
    with_prices(
        &files,
        &PRICES.replace("test-1", "test-2").replace("2020-01-01", "2020-02-01"),
    );
    server.signal(Signal::HUP);
    server.wait_for_log("configuration read again");
    exchange(&server, "memcached=", b"get none\r\nget none\r\n", 10);
    let (_, _, folder) = server.stop();
    let output = run(&["usage", "--data", &data(&folder), "--json"]);
    let rows: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let of = |version: &str| -> u64 {
        let rows = rows["rows"].as_array().unwrap().iter();
        rows.filter(|row| row["kind"] == "use" && row["price_version"] == version)
            .map(|row| row["operations"].as_u64().unwrap())
            .sum()
    };
    assert_eq!((of("test-1"), of("test-2")), (1, 2), "{rows}");
    with_prices(
        &files,
        "currency = \"USD\"\n\n[[prices]]\nversion = \"x\"\nfrom = 2026-01-01\nvcpu_hour = \"-1\"\n",
    );
    check_fails(
        &["serve", "--check-config", "--prices", &prices],
        USAGE,
        &["--prices", "line 6", "negative"],
    );
}

#[test]
fn an_estimate_follows_from_a_trace_and_the_prices() {
    let files = tempfile::tempdir().unwrap();
    let prices = with_prices(&files, PRICES);
    let trace = files.path().join("loop.lis");
    // A thousand objects, each asked for ten times, in turn: all of them are needed for any hit.
    std::fs::write(&trace, "0 1000 0 0\n".repeat(10)).unwrap();
    let trace = trace.to_str().unwrap();
    let arguments = |more: &[&'static str]| {
        let given = [
            "estimate",
            "--trace",
            trace,
            "--prices",
            &prices,
            "--cpu-per-operation",
            "3600ns",
            "--json",
        ];
        let output = tidemark().args(given).args(more).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).unwrap()
    };
    let told = arguments(&[
        "--rate",
        "1000",
        "--hit-ratio",
        "0.9",
        "--value-size",
        "100",
        "--overhead",
        "50",
    ]);
    assert_eq!(told["memory_bytes"], 150_000, "{told}");
    let hours = told["lines"][0]["quantity"].as_f64().unwrap();
    // 1,100 commands of 3.6 us a second, for 720 hours.
    assert!((hours - 1100.0 * 3.6e-6 * 720.0).abs() < 1e-3, "{told}");
    check_fails(
        &[
            "estimate",
            "--trace",
            trace,
            "--prices",
            &prices,
            "--cpu-per-operation",
            "1us",
        ],
        USAGE,
        &["--rate"],
    );
    check_fails(
        &[
            "estimate",
            "--trace",
            trace,
            "--prices",
            &prices,
            "--data",
            files.path().to_str().unwrap(),
        ],
        NOT_FOUND,
        &["there is no ledger"],
    );
    check_fails(
        &["estimate", "--trace", trace, "--hit-ratio", "2"],
        USAGE,
        &["--hit-ratio 2"],
    );
}

#[test]
fn how_full_the_network_is_is_shown_of_tenants_and_server() {
    let server = Server::start(&["--network-limit", "8Mbit"]);
    let limited = server.run(&["tenant", "set", "default", "--bytes-limit", "4MB"]);
    assert_eq!(limited.status.code(), Some(0), "{}", stderr(&limited));
    let moved_bytes = {
        let sets = "set key 0 0 1000\r\n".to_owned() + &"v".repeat(1000) + "\r\n";
        let (sent, received) = exchange(
            &server,
            "memcached=",
            sets.repeat(500).as_bytes(),
            "STORED\r\n".len() * 500,
        );
        (sent + received) as f64
    };
    let deadline = Instant::now() + PATIENCE;
    loop {
        let tenant = server.json(&["tenant", "show", "default"]);
        let of_server = server.json(&["server", "show"]);
        let per_second = |answer: &Value| answer["network_bytes_per_second"].as_f64().unwrap();
        let total = |field: &str| tenant[field].as_f64().unwrap();
        let is_whole = total("network_in_bytes_total") + total("network_out_bytes_total") >= moved_bytes;
        if is_whole && per_second(&of_server) > 0.0 {
            for (answer, limit) in [(&tenant, 4e6), (&of_server, 1e6)] {
                let (rate, occupancy) = (per_second(answer), answer["network_occupancy"].as_f64().unwrap());
                assert!((occupancy - rate / limit).abs() < 1e-12, "{answer}");
                // All of it came in one to ten seconds.
                assert!(
                    rate <= moved_bytes && rate >= moved_bytes / 10.0 * 0.99,
                    "{rate} {moved_bytes}"
                );
            }
            assert_eq!(of_server["network_limit_bytes_per_second"], 1_000_000);
            break;
        }
        assert!(Instant::now() < deadline, "{tenant}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = deploy::scrape(&server);
    for metric in [
        "tidemark_network_occupancy ",
        "tidemark_tenant_network_occupancy{tenant=\"default\"} ",
    ] {
        assert!(metrics.contains(metric), "{metric} is not in {metrics}");
    }
    assert!(Server::start(&[]).json(&["server", "show"])["network_occupancy"].is_null());
}
