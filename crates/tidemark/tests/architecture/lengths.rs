//! How long functions are. A function reads in one screen: parents branch, leaves compute.

use std::collections::BTreeMap;

use super::root;

/// Lines of a function's body at most, without comments and blank lines. Tests may be longer.
const FUNCTION_LINES_MAX: usize = 60;

/// The functions that are longer, by file: each is to be divided, and none is to come.
const LONGER: [(&str, &str); 25] = [
    ("admin/src/listen.rs", "serve"),
    ("admin/src/metrics/mod.rs", "write_standing"),
    ("admin/src/metrics/server.rs", "write_server"),
    ("agent/src/agent.rs", "start"),
    ("agent/src/show.rs", "metrics"),
    ("control/src/book.rs", "decide"),
    ("control/src/controller/views.rs", "tenant_view"),
    ("experiments/src/experiment/cachelet_regret.rs", "outcome"),
    ("experiments/src/experiment/cachelib_study.rs", "targets"),
    ("experiments/src/experiment/elcached_fig3.rs", "run"),
    ("experiments/src/experiment/genie_fig10.rs", "run"),
    ("experiments/src/experiment/genie_fig14.rs", "comers"),
    ("experiments/src/experiment/overhead/switched.rs", "serve"),
    ("experiments/src/experiment/unicache_fig3.rs", "run"),
    ("plan/src/share/mod.rs", "share_surplus"),
    ("scripts/src/globals.rs", "maker"),
    ("server/src/memcached/meta.rs", "get"),
    ("server/src/memcached/meta.rs", "set"),
    ("server/src/memcached/stats.rs", "general"),
    ("server/src/server.rs", "start"),
    ("server/src/turn.rs", "flush"),
    ("tidemark/src/commands/demo/functions.rs", "show"),
    ("tidemark/src/commands/functions/pool.rs", "tables"),
    ("tidemark/src/commands/serve/mod.rs", "start"),
    ("tools/src/provision/mod.rs", "plan"),
];

/// The names and lengths of the functions in a source that rustfmt has formatted, but for those of its tests.
fn functions(text: &str) -> Vec<(String, usize)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((before, behind)) = line.split_once("fn ") else {
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe"];
        if !before.split_whitespace().all(|word| qualifiers.contains(&word)) {
            continue;
        }
        let name: String = behind
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let end = format!("{}}}", " ".repeat(indent));
        let body = lines[at..].iter().skip_while(|line| !line.ends_with('{')).skip(1);
        let is_code = |line: &&&str| !line.trim().is_empty() && !line.trim_start().starts_with("//");
        found.push((name, body.take_while(|line| **line != end).filter(is_code).count()));
    }
    // A declaration in a trait has no body: the next one's was counted.
    let declared = |name: &str| {
        lines
            .iter()
            .any(|line| line.contains(&format!("fn {name}(")) && line.ends_with(';'))
    };
    found.retain(|(name, _)| !declared(name));
    found
}

#[test]
fn lengths_are_of_bodies() {
    let text = "pub(crate) fn a(\n    b: u8,\n) -> u8 {\n    // Why.\n\n    b\n}\n\nimpl C {\n    fn d() {\n        if e {\n            f();\n        }\n    }\n}\n";
    assert_eq!(functions(text), [("a".to_owned(), 1), ("d".to_owned(), 3)]);
    assert!(functions("#[cfg(test)]\nmod tests {\n    fn a() {\n    }\n}\n").is_empty());
}

#[test]
fn functions_fit_a_screen() {
    let mut longer: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root().join("crates"))
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") && name.contains("/src/") && !name.contains("test") {
                for (function, lines) in functions(&std::fs::read_to_string(&path).unwrap()) {
                    if lines > FUNCTION_LINES_MAX {
                        longer.insert((name.clone(), function), lines);
                    }
                }
            }
        }
    }
    for (file, function) in LONGER {
        let known = longer.remove(&(file.to_owned(), function.to_owned()));
        assert!(
            known.is_some(),
            "{file}: {function} is short by now: take it from the list"
        );
    }
    assert!(longer.is_empty(), "longer than {FUNCTION_LINES_MAX} lines: {longer:#?}");
}
