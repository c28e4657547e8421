//! Holds ARCHITECTURE.md true: its table of crates against the workspace's real dependencies, its libraries against the
//! manifests. Holds the limits of docs/design/limits.md against the constants, [`imports`] the ways in which files
//! import each other, and [`lengths`] how long functions are.

#![expect(clippy::unwrap_used, reason = "a test that can not go on has failed")]

mod imports;
mod lengths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The page with the tables of crates and libraries.
const MAP: &str = "ARCHITECTURE.md";
/// As many words as fit a map; depth goes to `docs/design`.
const MAP_WORDS_MAX: usize = 4_000;
/// The prefix of all packages but the program.
const PREFIX: &str = "tidemark-";

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

/// The rows of the first table below a heading of a page, each as its cells' texts.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    let below = text.split_once(&format!("\n## {heading}\n")).expect(heading).1;
    let below = below.split("\n## ").next().unwrap();
    let lines = below.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    };
    // The first two lines are the table's head.
    let rows: Vec<Vec<String>> = lines.skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

/// The words in backticks.
fn names(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// A dependency of a crate of the workspace, crates of the workspace without their prefix.
#[derive(Debug)]
struct Dependency {
    user: String,
    used: String,
    is_of_workspace: bool,
    is_normal: bool,
}

/// The crates of the workspace, and their dependencies.
fn workspace() -> (BTreeSet<String>, Vec<Dependency>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let short = |name: &str| name.strip_prefix(PREFIX).unwrap_or(name).to_owned();
    let (mut crates, mut dependencies) = (BTreeSet::new(), Vec::new());
    for package in metadata["packages"].as_array().unwrap() {
        let user = short(&text(&package["name"]));
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = text(&dependency["name"]);
            dependencies.push(Dependency {
                user: user.clone(),
                used: short(&name),
                is_of_workspace: dependency["path"].is_string(),
                is_normal: dependency["kind"].is_null(),
            });
        }
        crates.insert(user);
    }
    (crates, dependencies)
}

/// Which crates of the workspace a crate may use.
#[derive(Debug, PartialEq, Eq)]
enum MayUse {
    /// These, and it does.
    Exactly(BTreeSet<String>),
    /// All but these.
    AnyBut(BTreeSet<String>),
}

impl MayUse {
    fn read(cell: &str) -> Self {
        if cell.starts_with("any") {
            return Self::AnyBut(names(cell));
        }
        assert!(cell == "-" || !names(cell).is_empty(), "what does `{cell}` allow?");
        Self::Exactly(names(cell))
    }

    fn is_kept_by(&self, used: &BTreeSet<String>) -> bool {
        match self {
            Self::Exactly(allowed) => allowed == used,
            Self::AnyBut(forbidden) => forbidden.is_disjoint(used),
        }
    }
}

#[test]
fn a_rule_is_kept_or_broken() {
    let set = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    for (rule, used, kept) in [
        ("-", &[][..], true),
        ("-", &["types"], false),
        ("`types`, `store`", &["store", "types"], true),
        ("`types`, `store`", &["types"], false),
        ("`types`", &["store", "types"], false),
        ("any", &["store"], true),
        ("any but `tidemark`", &["store"], true),
        ("any but `tidemark`", &["store", "tidemark"], false),
    ] {
        assert_eq!(MayUse::read(rule).is_kept_by(&set(used)), kept, "{rule}: {used:?}");
    }
}

#[test]
fn the_map_is_a_map() {
    let text = std::fs::read_to_string(root().join(MAP)).unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= MAP_WORDS_MAX, "{MAP} has {words} words");
}

#[test]
fn crates_use_what_the_table_says() {
    let (crates, dependencies) = workspace();
    let rows = table(MAP, "Crates");
    let named: BTreeSet<String> = rows.iter().flat_map(|row| names(&row[0])).collect();
    assert_eq!(named, crates, "the table's crates and the workspace's");
    for row in rows {
        let name = names(&row[0]).pop_first().unwrap();
        let is_its = |dependency: &&Dependency| dependency.user == name && dependency.is_normal;
        let used: BTreeSet<String> = dependencies
            .iter()
            .filter(|dependency| is_its(dependency) && dependency.is_of_workspace)
            .map(|dependency| dependency.used.clone())
            .collect();
        let rule = MayUse::read(&row[2]);
        assert!(
            rule.is_kept_by(&used),
            "{name} uses {used:?}; the table allows {}",
            row[2]
        );
    }
}

#[test]
fn every_library_is_in_the_table_with_its_users() {
    let (_, dependencies) = workspace();
    let mut real: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for dependency in dependencies
        .into_iter()
        .filter(|dependency| !dependency.is_of_workspace)
    {
        real.entry(dependency.used).or_default().insert(dependency.user);
    }
    let rows = table(MAP, "Libraries");
    let written: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (names(&row[0]).pop_first().unwrap(), names(&row[1])))
        .collect();
    assert_eq!(written, real, "the table's libraries (left) and the manifests'");
}

/// A limit's value: a number, of bytes or of something else, or a time.
#[derive(Debug, PartialEq, Eq)]
enum Limit {
    Number(u64),
    Microseconds(u64),
}

impl Limit {
    /// `1,024`, `64 KiB`, `20 us`.
    fn read(text: &str) -> Option<Self> {
        let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
        let number: u64 = number.replace(',', "").parse().ok()?;
        Some(match unit {
            "" => Self::Number(number),
            "KiB" => Self::Number(number << 10),
            "MiB" => Self::Number(number << 20),
            "EiB" => Self::Number(number << 60),
            "us" => Self::Microseconds(number),
            "ms" => Self::Microseconds(number * 1000),
            "s" => Self::Microseconds(number * 1_000_000),
            _ => return None,
        })
    }

    /// A constant's expression; other constants are looked for in the same source.
    fn evaluate(expression: &str, source: &str) -> Option<Self> {
        let time = |unit: &str| {
            let argument = expression
                .strip_prefix(&format!("Duration::from_{unit}("))?
                .strip_suffix(')')?;
            number(argument, source)
        };
        if let Some(seconds) = time("secs") {
            return Some(Self::Microseconds(seconds * 1_000_000));
        }
        if let Some(milliseconds) = time("millis") {
            return Some(Self::Microseconds(milliseconds * 1000));
        }
        if let Some(microseconds) = time("micros") {
            return Some(Self::Microseconds(microseconds));
        }
        number(expression, source).map(Self::Number)
    }
}

/// `7`, `64 << 10`, `4 * OTHER`, `8 * MIB`.
fn number(expression: &str, source: &str) -> Option<u64> {
    if let Some((left, right)) = expression.split_once(" << ") {
        return Some(number(left, source)? << number(right, source)?);
    }
    if let Some((left, right)) = expression.split_once(" * ") {
        return Some(number(left, source)? * number(right, source)?);
    }
    match expression {
        "MIB" => Some(1 << 20),
        _ if expression.starts_with(|c: char| c.is_ascii_digit()) => expression.replace('_', "").parse().ok(),
        name => number(constant(name, source)?, source),
    }
}

/// The expression of a constant in a source.
fn constant<'s>(name: &str, source: &'s str) -> Option<&'s str> {
    let declaration = format!("const {name}: ");
    let behind = source.split_once(&declaration)?.1;
    let (_type, behind) = behind.split_once(" = ")?;
    Some(behind.split_once(';')?.0.trim())
}

/// The source file of a module: `server::limits` is crates/server/src/limits.rs.
fn source(module: &str) -> String {
    let (name, path) = module.split_once("::").unwrap_or((module, "lib"));
    let folder = root().join("crates").join(name).join("src");
    let path = folder.join(path.replace("::", "/"));
    let file = path.with_extension("rs");
    let file = if file.is_file() { file } else { path.join("mod.rs") };
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{module}, {}: {error}", file.display()))
}

#[test]
fn expressions_are_evaluated() {
    const SOURCE: &str = "const OTHER: usize = 3;\npub(crate) const LONG: u64 =\n    64 << 10;";
    for (expression, text) in [
        ("16", "16"),
        ("10_000", "10,000"),
        ("64 << 10", "64 KiB"),
        ("4 * OTHER", "12"),
        ("8 * MIB", "8 MiB"),
        ("Duration::from_micros(20)", "20 us"),
        ("Duration::from_millis(100)", "100 ms"),
        ("Duration::from_secs(5)", "5 s"),
    ] {
        let (evaluated, read) = (Limit::evaluate(expression, SOURCE), Limit::read(text));
        assert!(
            evaluated.is_some() && evaluated == read,
            "{expression} is {evaluated:?}, {text} {read:?}"
        );
    }
    assert_eq!(Limit::evaluate("MISSING", SOURCE), None);
    assert_eq!(Limit::evaluate("16", SOURCE), Limit::read("16"));
    assert_ne!(Limit::evaluate("16", SOURCE), Limit::read("17"));
    assert_ne!(Limit::evaluate("16", SOURCE), Limit::read("16 us"));
    assert_eq!(Limit::read("many"), None);
}

#[test]
fn limits_have_the_values_of_their_constants() {
    let mut of_server = BTreeSet::new();
    for row in table("docs/design/limits.md", "Limits") {
        let path = names(&row[2])
            .pop_first()
            .unwrap_or_else(|| panic!("{row:?} names no constant"));
        let (module, name) = path.rsplit_once("::").unwrap();
        let source = source(module);
        let expression = constant(name, &source).unwrap_or_else(|| panic!("there is no constant {path}"));
        let real = Limit::evaluate(expression, &source);
        assert!(real.is_some(), "{path} = {expression}: what is it?");
        assert_eq!(
            real,
            Limit::read(&row[1]),
            "{path} = {expression}; the table says {}",
            row[1]
        );
        if module == "server::limits" {
            of_server.insert(name.to_owned());
        }
    }
    // The data plane keeps all its limits in one file, so that the table can be whole.
    let source = source("server::limits");
    let declared = source.lines().filter_map(|line| {
        let behind = line.trim_start_matches("pub(crate) ").strip_prefix("const ")?;
        Some(behind.split_once(':')?.0.to_owned())
    });
    assert_eq!(
        of_server,
        declared.collect(),
        "the table's limits of the data plane (left) and those that it has"
    );
}
