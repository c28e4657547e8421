//! The order of sources, refusals and their words, and that the example is right.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tidemark_control::Idling;
use tidemark_gateway::{Origins, PeersConfig};
use tidemark_types::{BitRate, GIB, MIB};

use super::check::FlashOptions;
use super::*;

fn machine() -> Machine {
    Machine {
        cores: 4,
        memory_bytes: 8 * GIB,
        data_folder: Some("/home/user/.local/share/tidemark".into()),
    }
}

/// Options from a file's text, variables by name, and flags by key.
fn load(
    file: Option<&str>,
    variables: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<(Written, ServeOptions), OptionError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    if let Some(text) = file {
        fs::write(&path, text).unwrap();
    }
    let flags = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
    let variable = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value.into())
    };
    let written = Sources::new(flags, file.map(|_| path.clone()), variable)?.load()?;
    let options = ServeOptions::check(&written, &machine())?;
    Ok((written, options))
}

fn general(address: &str) -> Listening {
    Listening {
        general: Some(address.parse().unwrap()),
        of_tenants: Vec::new(),
    }
}

#[test]
fn listeners_may_belong_to_tenants() {
    for (flags, expected) in [
        (
            vec![("memcached", "127.0.0.1:1,127.0.0.1:2=shop")],
            Ok("127.0.0.1:1,127.0.0.1:2=shop"),
        ),
        (vec![("memcached", "[::1]:2=shop")], Ok("[::1]:2=shop")),
        (
            vec![("memcached", "10.0.0.1:2=shop"), ("allow", "10.0.0.0/8,::1")],
            Ok("10.0.0.1:2=shop"),
        ),
        (vec![("memcached", "10.0.0.1:2=shop")], Err("say who may connect")),
        (
            vec![("memcached", "127.0.0.1:1,127.0.0.1:2")],
            Err("second address of no tenant"),
        ),
        (vec![("memcached", "127.0.0.1:1=a b")], Err("a b")),
        (vec![("memcached", "off=shop")], Err("off is no tenant's")),
        (
            vec![("memcached", "127.0.0.1:6379=shop")],
            Err("--memcached has the same address"),
        ),
        (vec![("allow", "10.0.0.0/64")], Err("`10.0.0.0/64` is no network")),
    ] {
        match (load(None, &[], &flags), expected) {
            (Ok((_, options)), Ok(text)) => assert_eq!(options.text("memcached").as_deref(), Some(text), "{flags:?}"),
            (Err(OptionError(message)), Err(part)) => assert!(message.contains(part), "{flags:?}: {message}"),
            (found, _) => panic!("{flags:?}: {found:?}"),
        }
    }
    let lists = load(Some("redis = ['127.0.0.1:1', '127.0.0.1:2=shop']"), &[], &[])
        .unwrap()
        .1;
    assert_eq!(lists.text("redis").as_deref(), Some("127.0.0.1:1,127.0.0.1:2=shop"));
}

#[test]
fn nothing_configured_is_the_documented_default() {
    let options = load(None, &[], &[]).unwrap().1;
    let expected = ServeOptions {
        memory_bytes: Some(GIB),
        memcached: general("127.0.0.1:11211"),
        redis: general("127.0.0.1:6379"),
        allow: Vec::new(),
        admin: Some("127.0.0.1:7070".parse().unwrap()),
        data: "/home/user/.local/share/tidemark".into(),
        workers: 4,
        pin: false,
        open_metrics: false,
        idling: Idling {
            first_grant_bytes: 20 * MIB,
            idle_after: Duration::from_secs(300),
        },
        node_memory: None,
        lease_period: Duration::from_secs(1),
        flash: None,
        s3: None,
        ledger_period: Duration::from_secs(60),
        network_limit: None,
        key_delimiter: b':',
        ledger_retention: Duration::from_secs(400 * 86_400),
        prices: None,
        cpu_model: CpuModel::BuiltIn,
        cpu_model_interval: Duration::from_secs(1),
        webhook: None,
        otlp: None,
        otlp_period: Duration::from_secs(10),
    };
    assert_eq!(options, expected);
}

#[test]
fn flags_win_over_the_environment_over_the_file_over_defaults() {
    let (file, variable, flag) = ("memory = \"16MiB\"", ("TIDEMARK_MEMORY", "32MiB"), ("memory", "64MiB"));
    for (file, variables, flags, memory_mib) in [
        (None, vec![], vec![], 1024),
        (Some(file), vec![], vec![], 16),
        (Some(file), vec![variable], vec![], 32),
        (Some(file), vec![variable], vec![flag], 64),
        (None, vec![], vec![flag], 64),
        (Some(file), vec![("TIDEMARK_MEMORY", "")], vec![], 16),
    ] {
        let options = load(file, &variables, &flags).unwrap().1;
        assert_eq!(
            options.memory_bytes,
            Some(memory_mib * MIB),
            "{file:?} {variables:?} {flags:?}"
        );
    }
}

#[test]
fn every_option_can_come_from_every_source() {
    let file = "memory = 33554432\nmemcached = 'off'\nredis = '[::1]:0'\nadmin = 'off'\ndata = '/d'\nworkers = 3\npin = true\nopen_metrics = true\n\
                allow = '10.0.0.0/8'\n\
                first_grant = '5MiB'\nidle_after = '1h'\nnode_memory = '/n'\nlease_period = '2s'\n\
                s3 = '127.0.0.1:9'\norigin = 's3://b'\nfreshness = '1s'\ns3_workers = 4\ns3_read_only = true\ns3_peers = '/p'\ns3_advertise = 'h:1'\nfunctions = '/f'\n\
                ledger_period = '5s'\nkey_delimiter = '/'\nledger_retention = '90d'\ncpu_model = '/m'\ncpu_model_interval = '2s'\nflash = '/f'\nflash_size = '1GiB'\nnetwork_limit = '10Gbit'\n\
                webhook = 'http://w/'\nwebhook_secret_file = '/s'\nwebhook_local = true\notlp = 'http://o/'\notlp_period = '5s'";
    let values = [
        ("memory", "32MiB"),
        ("memcached", "off"),
        ("redis", "[::1]:0"),
        ("allow", "10.0.0.0/8"),
        ("admin", "off"),
        ("data", "/d"),
        ("workers", "3"),
        ("first_grant", "5MiB"),
        ("idle_after", "1h"),
        ("node_memory", "/n"),
        ("lease_period", "2s"),
        ("s3", "127.0.0.1:9"),
        ("origin", "s3://b"),
        ("freshness", "1s"),
        ("s3_workers", "4"),
        ("s3_peers", "/p"),
        ("s3_advertise", "h:1"),
        ("functions", "/f"),
        ("ledger_period", "5s"),
        ("key_delimiter", "/"),
        ("network_limit", "10Gbit"),
        ("ledger_retention", "90d"),
        ("cpu_model", "/m"),
        ("cpu_model_interval", "2s"),
        ("flash", "/f"),
        ("flash_size", "1GiB"),
        ("webhook", "http://w/"),
        ("webhook_secret_file", "/s"),
        ("otlp", "http://o/"),
        ("otlp_period", "5s"),
    ];
    let names: Vec<String> = OPTIONS.iter().map(OptionSpec::variable).collect();
    let mut variables: Vec<(&str, &str)> = values
        .iter()
        .map(|(key, value)| {
            (
                names
                    .iter()
                    .find(|n| n.ends_with(&key.to_uppercase()))
                    .unwrap()
                    .as_str(),
                *value,
            )
        })
        .collect();
    variables.push(("TIDEMARK_PIN", "true"));
    variables.push(("TIDEMARK_S3_READ_ONLY", "true"));
    variables.push(("TIDEMARK_OPEN_METRICS", "true"));
    variables.push(("TIDEMARK_WEBHOOK_LOCAL", "true"));
    let mut flags = values.to_vec();
    flags.push(("pin", "true"));
    flags.push(("s3_read_only", "true"));
    flags.push(("open_metrics", "true"));
    flags.push(("webhook_local", "true"));
    let expected = ServeOptions {
        memory_bytes: Some(32 * MIB),
        memcached: Listening::default(),
        redis: general("[::1]:0"),
        allow: vec!["10.0.0.0/8".parse().unwrap()],
        admin: None,
        data: "/d".into(),
        workers: 3,
        pin: true,
        open_metrics: true,
        idling: Idling {
            first_grant_bytes: 5 * MIB,
            idle_after: Duration::from_secs(3600),
        },
        node_memory: Some("/n".into()),
        lease_period: Duration::from_secs(2),
        flash: Some(FlashOptions {
            path: "/f".into(),
            size_bytes: 1 << 30,
        }),
        s3: Some(S3Options {
            address: "127.0.0.1:9".parse().unwrap(),
            origins: Origins::parse("s3://b", "1s".parse().unwrap()).unwrap(),
            freshness: "1s".parse().unwrap(),
            workers: 4,
            read_only: true,
            peers: Some(PeersConfig {
                file: "/p".into(),
                own: Some("h:1".into()),
            }),
            functions: Some("/f".into()),
        }),
        ledger_period: Duration::from_secs(5),
        network_limit: Some(BitRate(10_000_000_000)),
        key_delimiter: b'/',
        ledger_retention: Duration::from_secs(90 * 86_400),
        prices: None,
        cpu_model: CpuModel::File("/m".into()),
        cpu_model_interval: Duration::from_secs(2),
        webhook: Some(WebhookOptions {
            target: "http://w/".parse().unwrap(),
            secret_file: Some("/s".into()),
            is_local: true,
        }),
        otlp: Some("http://o/".parse().unwrap()),
        otlp_period: Duration::from_secs(5),
    };
    assert_eq!(load(Some(file), &[], &[]).unwrap().1, expected);
    assert_eq!(load(None, &variables, &[]).unwrap().1, expected);
    assert_eq!(load(None, &[], &flags).unwrap().1, expected);
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    // One byte too many for `/admin.sock.new` in it.
    let long_folder = format!("/{}", "x".repeat(92));
    assert!(load(None, &[], &[("data", &long_folder[..92])]).is_ok());
    for (file, variable, flag, parts) in [
        (
            Some("memory = '3XB'"),
            None,
            None,
            vec!["memory = 3XB in ", "t.toml", "64MiB"],
        ),
        (
            None,
            Some(("TIDEMARK_MEMORY", "3XB")),
            None,
            vec!["TIDEMARK_MEMORY=3XB"],
        ),
        (None, None, Some(("memory", "3XB")), vec!["--memory 3XB"]),
        (
            None,
            None,
            Some(("memory", "1MiB")),
            vec!["--memory 1MiB", "at least 8MiB"],
        ),
        (None, None, Some(("memory", "9GiB")), vec!["--memory 9GiB", "8192 MiB"]),
        (
            None,
            None,
            Some(("s3", "127.0.0.1:0")),
            vec!["--s3 127.0.0.1:0", "--origin"],
        ),
        (
            None,
            None,
            Some(("origin", "s3://b")),
            vec!["--origin s3://b", "--s3 ADDR"],
        ),
        (
            None,
            None,
            Some(("origin", "gs://b")),
            vec!["--origin gs://b", "s3://BUCKET"],
        ),
        (
            None,
            None,
            Some(("freshness", "soon")),
            vec!["--freshness soon", "forever"],
        ),
        (None, None, Some(("redis", "6379")), vec!["--redis 6379", "IP:PORT"]),
        (
            None,
            None,
            Some(("redis", "127.0.0.1:11211")),
            vec!["--redis 127.0.0.1:11211", "--memcached has the same"],
        ),
        (None, None, Some(("workers", "0")), vec!["--workers 0", "1 to 256"]),
        (
            None,
            None,
            Some(("first_grant", "64KiB")),
            vec!["--first-grant 64KiB", "at least 1MiB"],
        ),
        (
            Some("first_grant = 'some'"),
            None,
            None,
            vec!["first_grant = some in ", "64MiB"],
        ),
        (
            None,
            Some(("TIDEMARK_IDLE_AFTER", "500ms")),
            None,
            vec!["TIDEMARK_IDLE_AFTER=500ms", "1s to 8760h"],
        ),
        (
            None,
            None,
            Some(("idle_after", "soon")),
            vec!["--idle-after soon", "700us"],
        ),
        (None, None, Some(("data", "")), vec!["--data", "folder"]),
        (
            None,
            None,
            Some(("data", long_folder.as_str())),
            vec!["--data /xxx", "too long, the socket in it may have at most 107 bytes"],
        ),
        (Some("pin = 3"), None, None, vec!["pin = 3 in ", "true or false"]),
        (Some("memory = 1.5"), None, None, vec!["memory in ", "float"]),
        (
            Some("memroy = '1GiB'"),
            None,
            None,
            vec!["`memroy`", "t.toml", "did you mean `memory`"],
        ),
        (Some("[redis]\nport = 1"), None, None, vec!["redis in ", "table"]),
        (
            Some("a = 1\nmemory = '1GiB"),
            None,
            None,
            vec!["t.toml is not TOML, line 2"],
        ),
        (Some("memory = 1\nmemory = 2"), None, None, vec!["is not TOML, line 2"]),
        (
            Some("tls = ['redis']"),
            None,
            None,
            vec!["tls = redis in ", "not available in this version"],
        ),
        (
            None,
            Some(("TIDEMARK_TLS_KEY", "x")),
            None,
            vec!["TIDEMARK_TLS_KEY=x", "not available in this version"],
        ),
        (
            None,
            None,
            Some(("tls_cert", "x")),
            vec!["--tls-cert x", "not available in this version"],
        ),
        (None, None, Some(("node_memory", "")), vec!["--node-memory", "folder"]),
        (
            None,
            None,
            Some(("lease_period", "50ms")),
            vec!["--lease-period 50ms", "100ms to 10s"],
        ),
    ] {
        let error = load(file, variable.as_slice(), flag.as_slice())
            .unwrap_err()
            .to_string();
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(
        load(None, &[], &[("memcached", "off"), ("redis", "off")])
            .unwrap_err()
            .0
            .contains("nothing to serve")
    );
}

#[test]
fn memory_is_the_nodes_unless_a_limit_is_written() {
    let node = ("node_memory", "/n");
    for (variables, flags, memory_mib) in [
        (vec![], vec![node], None),
        (vec![], vec![node, ("memory", "1GiB")], Some(1024)),
        (vec![("TIDEMARK_MEMORY", "32MiB")], vec![node], Some(32)),
        (vec![], vec![], Some(1024)),
    ] {
        let options = load(None, &variables, &flags).unwrap().1;
        let memory_bytes = memory_mib.map(|mib| mib * MIB);
        assert_eq!(options.memory_bytes, memory_bytes, "{variables:?} {flags:?}");
        assert_eq!(options.text("memory").is_some(), memory_mib.is_some());
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let sources = Sources::new(BTreeMap::new(), Some("/nowhere/t.toml".into()), |_| None).unwrap();
    assert!(sources.load().unwrap_err().0.contains("/nowhere/t.toml"));
    let variable = |name: &str| (name == "TIDEMARK_CONFIG").then(|| "/elsewhere/t.toml".into());
    let sources = Sources::new(BTreeMap::new(), None, variable).unwrap();
    assert!(sources.load().unwrap_err().0.contains("/elsewhere/t.toml"));
}

#[test]
fn the_example_documents_every_option_with_its_default() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tidemark.example.toml");
    let text = fs::read_to_string(&path).unwrap();
    let example = load(Some(&text), &[], &[]).unwrap();
    assert_eq!(example.1, load(None, &[], &[]).unwrap().1);
    for option in OPTIONS.iter().filter(|option| option.availability != Later) {
        let is_there = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{} = ", option.key));
        assert!(text.lines().any(is_there), "{} is not in the example", option.key);
    }
    // Those without a fixed default are commented out; with the mark removed they are right as well.
    let all = text.lines().map(|line| {
        line.strip_prefix("# ")
            .filter(|rest| rest.contains(" = "))
            .unwrap_or(line)
    });
    let options = load(Some(&all.collect::<Vec<_>>().join("\n")), &[], &[]).unwrap();
    for option in OPTIONS.iter().filter(|option| option.availability != Later) {
        assert!(
            matches!(options.0.get(option.key).unwrap().source, Source::File(_)),
            "{}",
            option.key
        );
    }
}

#[test]
fn the_data_folder_follows_the_xdg_specification() {
    for (xdg, home, folder) in [
        (Some("/x"), Some("/home/u"), Some("/x/tidemark")),
        (None, Some("/home/u"), Some("/home/u/.local/share/tidemark")),
        (Some("relative"), Some("/home/u"), Some("/home/u/.local/share/tidemark")),
        (None, None, None),
        (None, Some(""), None),
    ] {
        let variable = |name: &str| match name {
            "XDG_DATA_HOME" => xdg.map(Into::into),
            "HOME" => home.map(Into::into),
            _ => None,
        };
        assert_eq!(
            default_data_folder(variable),
            folder.map(PathBuf::from),
            "{xdg:?} {home:?}"
        );
    }
}

#[test]
fn changes_are_listed_with_whether_they_act_at_once() {
    let before = load(None, &[], &[]).unwrap().1;
    let after = load(None, &[], &[("memory", "2GiB"), ("workers", "2"), ("idle_after", "1m")])
        .unwrap()
        .1;
    let changes: Vec<_> = after
        .changes(&before)
        .iter()
        .map(|option| (option.key, option.availability))
        .collect();
    assert_eq!(changes, [("memory", Live), ("workers", AtStart), ("idle_after", Live)]);
    assert!(before.changes(&before).is_empty());
}
