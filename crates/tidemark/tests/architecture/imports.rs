//! Whether files import one way. Whoever reads a file then meets what it is made of below it, never above.
//!
//! Read from the sources: paths that begin with `crate`, `super` or `self`, followed through names that a module passes
//! on (`use b::C` in `a` makes `a::C` a thing of `b`). Paths from a module into its own parts are how it is put together
//! and no import. A name that a macro makes is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::root;

/// Crates in which no files import each other at all.
const ONE_WAY: [&str; 8] = [
    "admin",
    "calibrate",
    "curve",
    "plane",
    "push",
    "scripts",
    "store",
    "types",
];

/// How often a name is passed on at most.
const PASSED_ON_MAX: usize = 8;

/// A module's path below the crate; the crate itself is empty.
type Module = Vec<String>;

/// The names that a module uses.
struct Uses {
    /// Each path of a `use`, and its name here.
    imports: Vec<(Vec<String>, String)>,
    /// Paths that stand in the code.
    inline: Vec<Vec<String>>,
}

/// The modules of a crate, and what they use.
type Modules = BTreeMap<Module, Uses>;

fn segments(path: &str) -> Vec<String> {
    let segments = path.split("::").map(str::trim).filter(|segment| !segment.is_empty());
    segments.map(str::to_owned).collect()
}

/// The paths of a `use` below a prefix, each with its name.
fn leaves(tree: &str, prefix: &[String], found: &mut Vec<(Vec<String>, String)>) {
    let tree = tree.trim();
    if let Some((path, branches)) = tree.strip_suffix('}').and_then(|tree| tree.split_once('{')) {
        let prefix = [prefix, &segments(path)].concat();
        let (mut depth, mut begin) = (0, 0);
        for (at, letter) in branches.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    leaves(&branches[begin..at], &prefix, found);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        return leaves(&branches[begin..], &prefix, found);
    }
    let (path, alias) = tree
        .split_once(" as ")
        .map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path = [prefix, &segments(path)].concat();
    path.pop_if(|last| last == "self");
    if let Some(last) = path.last().cloned() {
        found.push((path, alias.map_or(last, |alias| alias.trim().to_owned())));
    }
}

impl Uses {
    fn read(text: &str) -> Self {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        let (mut imports, mut inline) = (Vec::new(), Vec::new());
        for statement in code.split(';') {
            // A `use` may follow the end of an item, or an attribute.
            let begin = statement.rfind("use ").filter(|begin| {
                let before = &statement[..*begin];
                before.rsplit('\n').next().is_some_and(|line| {
                    let line = line.trim();
                    line.is_empty() || line.starts_with("pub")
                })
            });
            let before = &statement[..begin.unwrap_or(statement.len())];
            if let Some(begin) = begin {
                leaves(&statement[begin + "use ".len()..], &[], &mut imports);
            }
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
            let words = before.split(|letter: char| !is_part(letter)).map(segments);
            inline.extend(words.filter(|path| path.len() > 1));
        }
        Self { imports, inline }
    }

    fn paths(&self) -> impl Iterator<Item = &[String]> {
        let imports = self.imports.iter().map(|(path, _)| path);
        imports.chain(&self.inline).map(Vec::as_slice)
    }
}

/// The files of a crate but for its tests.
fn modules(folder: &Path) -> Modules {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().with_extension("");
            let mut name: Module = name.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
            name.pop_if(|last| last == "mod");
            if name == ["lib"] {
                name.clear();
            }
            let is_left_out = name.iter().any(|part| part.contains("test")) || name == ["main"];
            if !is_left_out {
                files.insert(name, Uses::read(&std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

/// The module to which a path leads: the module above the rest, and the rest. `None`: not by `crate`, `super` or `self`.
fn begin<'p>(module: &[String], mut path: &'p [String]) -> Option<(Module, &'p [String])> {
    let mut at = module.to_vec();
    match path.first()?.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            while let Some(("super", rest)) = path.split_first().map(|(first, rest)| (first.as_str(), rest)) {
                at.pop();
                path = rest;
            }
            return Some((at, path));
        }
        _ => return None,
    }
    Some((at, &path[1..]))
}

/// The module that a path of a module leads to.
fn resolve(modules: &Modules, module: &[String], path: &[String], passed_on: usize) -> Option<Module> {
    let is_part = |first: &String| modules.contains_key(&[module, std::slice::from_ref(first)].concat());
    let (mut at, mut rest) = match begin(module, path) {
        Some(begun) => begun,
        // Inside of a module its parts are known by their names.
        None if passed_on > 0 && path.first().is_some_and(is_part) => (module.to_vec(), path),
        None => return None,
    };
    while let Some((first, behind)) = rest.split_first() {
        at.push(first.clone());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
        rest = behind;
    }
    let passed = rest.first().filter(|_| passed_on < PASSED_ON_MAX).and_then(|name| {
        let imports = &modules.get(&at)?.imports;
        let mut named = imports.iter().filter(|(_, here)| here == name);
        named.find_map(|(path, _)| resolve(modules, &at, path, passed_on + 1))
    });
    Some(passed.unwrap_or(at))
}

/// The modules that each module imports from.
fn graph(modules: &Modules) -> BTreeMap<&Module, BTreeSet<Module>> {
    let named = modules.keys().filter(|module| !module.is_empty());
    let uses = named.map(|module| {
        let paths = modules[module].paths();
        let used = paths.filter_map(|path| resolve(modules, module, path, 0));
        (module, used.filter(|used| used != module && !used.is_empty()).collect())
    });
    uses.collect()
}

/// Everything that a module leads to.
fn reach(graph: &BTreeMap<&Module, BTreeSet<Module>>, from: &Module) -> BTreeSet<Module> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from.clone()]);
    while let Some(module) = next.pop() {
        for used in graph.get(&module).into_iter().flatten() {
            if reached.insert(used.clone()) {
                next.push(used.clone());
            }
        }
    }
    reached
}

/// The folder that a module's file belongs to: its own, if it has parts.
fn room<'m>(modules: &Modules, module: &'m Module) -> &'m [String] {
    let has_parts = |one: &Module| one.len() > module.len() && one.starts_with(module);
    if modules.keys().any(has_parts) {
        return module;
    }
    &module[..module.len().saturating_sub(1)]
}

/// The modules in circles, each with one that leads back to it: of other folders only, if so asked.
fn circles(modules: &Modules, across_folders: bool) -> Vec<String> {
    let graph = graph(modules);
    let reached: BTreeMap<_, _> = graph.keys().map(|module| (*module, reach(&graph, module))).collect();
    let mut found = Vec::new();
    for (module, others) in &reached {
        let back = others.iter().find(|other| {
            let leads_back = reached.get(*other).is_some_and(|others| others.contains(*module));
            leads_back && *other != *module && (!across_folders || room(modules, other) != room(modules, module))
        });
        if let Some(other) = back {
            found.push(format!("{} <-> {}", module.join("::"), other.join("::")));
        }
    }
    found
}

#[test]
fn circles_are_found() {
    let check = |texts: &[(&str, &str)], all: &[&str], across: &[&str]| {
        let modules = texts.iter().map(|(name, text)| (segments(name), Uses::read(text)));
        let modules = modules.collect();
        assert_eq!(circles(&modules, false), all, "{texts:?}");
        assert_eq!(circles(&modules, true), across, "{texts:?}");
    };
    check(
        &[("a", "use crate::b::C;"), ("b", "use crate::c::{D, E};"), ("c", "")],
        &[],
        &[],
    );
    check(
        &[("a", "use crate::b::C;"), ("b", "fn f() { crate::a::f() }")],
        &["a <-> b", "b <-> a"],
        &[],
    );
    check(
        &[("a", "use crate::b::C;"), ("b", "/// See [`crate::a`].\nfn f() {}")],
        &[],
        &[],
    );
    check(
        &[
            ("a::x", "use super::y::C;"),
            ("a::y", "use super::{x, z::{A, B}};"),
            ("a", "mod x;"),
        ],
        &["a::x <-> a::y", "a::y <-> a::x"],
        &[],
    );
    let parts = ("a", "mod x;\nmod y;\npub(crate) use x::X;\nuse y::{Y as Z};");
    let across = ["a::x <-> b", "b <-> a::x"];
    check(
        &[
            parts,
            ("a::x", "use crate::b::B;"),
            ("a::y", ""),
            ("b", "use crate::a::X;"),
        ],
        &across,
        &across,
    );
    check(
        &[
            parts,
            ("a::x", "use crate::b::B;"),
            ("a::y", ""),
            ("b", "use crate::a::Z;"),
        ],
        &[],
        &[],
    );
    check(
        &[
            parts,
            ("a::x", "#[cfg(test)]\nmod tests {\nuse crate::b::B;\n}"),
            ("a::y", ""),
            ("b", "use crate::a::X;"),
        ],
        &[],
        &[],
    );
}

#[test]
fn files_import_one_way() {
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let names: BTreeSet<String> = crates
        .map(|one| one.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(ONE_WAY.iter().all(|name| names.contains(*name)));
    let mut broken = Vec::new();
    for name in &names {
        let modules = modules(&root().join("crates").join(name).join("src"));
        assert!(modules.len() > 1, "{name}");
        let found = circles(&modules, !ONE_WAY.contains(&name.as_str()));
        broken.extend(found.iter().map(|circle| format!("{name}: {circle}")));
    }
    assert!(broken.is_empty(), "files import each other: {broken:#?}");
}
