//! The repository's rules, as tests: what a reviewer should not have to look for.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Which crate may use which other ones; ARCHITECTURE.md draws the same arrows. A new crate needs a line.
const ARROWS: &[(&str, &[&str])] = &[
    ("ccm", &["cloud-config", "daemon", "vcenter", "vsphere"]),
    ("cloud-config", &["vsphere"]),
    ("components", &[]),
    ("csi", &["cloud-config", "daemon", "vcenter", "vsphere"]),
    ("daemon", &[]),
    ("lab", &["components"]),
    ("vcenter", &["cloud-config", "daemon", "vsphere"]),
    ("vsphere", &[]),
    // The vCenter client only in tests, which judge by it what the drivers left at vCenter.
    ("vsphere-drivers", &["ccm", "csi", "vsphere"]),
    ("xtask", &["ccm", "lab"]),
];

/// Crates that no shipped program may contain.
const DEVELOPMENT_ONLY: &[&str] = &["components", "lab", "xtask"];

const LONGEST_FILE: usize = 600;

/// Files that may be longer, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[
    ("crates/csi/src/proto.rs", "generated from the CSI specification"),
    (
        "crates/vsphere/src/types/faults.rs",
        "a generated table with a line per fault; nobody reads it from front to back",
    ),
];

/// Files that our code generator writes; names in them are not ours.
const GENERATED: &[&str] = &["crates/csi/src/proto.rs", "crates/csi/src/registration/proto.rs"];

/// Words that name no thing of our domain.
const BANNED_WORDS: &[&str] = &["Manager", "Helper", "Util", "Common", "Info", "Data", "Handler"];
const BANNED_PREFIXES: &[&str] = &["do_", "process_", "handle_"];
const BANNED_CRATES: &[&str] = &["common", "utils", "util", "core", "types", "api", "helpers"];

/// Every file that git knows or would know, with its path below the root.
fn files(kinds: &[&str]) -> Vec<(String, String)> {
    let listing = lab::run(Command::new("git").current_dir(ROOT).args([
        "ls-files",
        "-co",
        "--exclude-standard",
    ]))
    .unwrap();
    let wanted = |path: &&str| kinds.iter().any(|kind| path.ends_with(kind));
    let paths: BTreeSet<&str> = listing.lines().filter(wanted).collect();
    // A file that was removed but not yet from the index is gone all the same.
    let read = |path: &str| {
        fs::read_to_string(Path::new(ROOT).join(path)).ok().map(|text| (path.to_owned(), text))
    };
    paths.into_iter().filter_map(read).collect()
}

fn packages() -> Vec<Value> {
    let json = lab::run(Command::new("cargo").current_dir(ROOT).args([
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--offline",
    ]))
    .unwrap();
    let metadata: Value = serde_json::from_str(&json).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The dependencies of a package: name, and whether only its tests use it.
fn dependencies(package: &Value) -> Vec<(String, bool)> {
    let list = package["dependencies"].as_array().unwrap();
    list.iter()
        .map(|one| (one["name"].as_str().unwrap().to_owned(), one["kind"] == "dev"))
        .collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn arrows_between_crates_go_down_only() {
    let mut problems = Vec::new();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            problems
                .push(format!("the crate {name} has no line in ARROWS (and in ARCHITECTURE.md)"));
            continue;
        };
        for (used, only_tests) in dependencies(&package) {
            let ours = ARROWS.iter().any(|(known, _)| *known == used);
            let may = allowed.contains(&used.as_str())
                || (only_tests && DEVELOPMENT_ONLY.contains(&used.as_str()));
            if ours && !may {
                problems.push(format!("{name} must not use {used}"));
            }
        }
        if BANNED_CRATES.contains(&name) {
            problems.push(format!("a crate called {name} does not name what it hides"));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_dependency_has_its_reason() {
    let reasons = fs::read_to_string(Path::new(ROOT).join("docs/dependencies.md")).unwrap();
    let mut direct = BTreeSet::new();
    for package in packages() {
        direct.extend(dependencies(&package).into_iter().map(|(name, _)| name));
    }
    direct.retain(|name| !ARROWS.iter().any(|(known, _)| known == name));
    let unexplained = direct.iter().filter(|name| !reasons.contains(&format!("| `{name}` |")));
    assert_none(
        &unexplained
            .map(|name| format!("docs/dependencies.md has no row for {name}"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn every_file_says_what_it_is() {
    let mut problems = Vec::new();
    for (path, text) in files(&[".rs"]) {
        if !text.starts_with("//! ") {
            problems.push(format!("{path}: begins with no `//!` header"));
        }
    }
    for (path, text) in files(&[".sh"]) {
        if !text.starts_with("#!")
            || !text.lines().nth(1).is_some_and(|line| line.starts_with("# "))
        {
            problems.push(format!("{path}: begins with no interpreter and a comment"));
        }
    }
    let go = files(&[".go"]);
    let package_of =
        |path: &str| path.rsplit_once('/').map_or(String::new(), |(dir, _)| dir.to_owned());
    let explained: BTreeSet<String> = go
        .iter()
        .filter(|(_, text)| {
            text.lines().any(|line| {
                ["// Package ", "Package ", "// Command "].iter().any(|word| line.starts_with(word))
            })
        })
        .map(|(path, _)| package_of(path))
        .collect();
    let silent: BTreeSet<String> = go
        .iter()
        .map(|(path, _)| package_of(path))
        .filter(|dir| !explained.contains(dir))
        .collect();
    problems.extend(silent.iter().map(|dir| format!("{dir}: no file has a package comment")));
    assert_none(&problems);
}

#[test]
fn files_are_short_enough_to_read() {
    let mut problems = Vec::new();
    for (path, text) in files(&[".rs", ".go"]) {
        let lines = text.lines().count();
        let excused = LONG_FILES.iter().any(|(known, _)| *known == path);
        if lines > LONGEST_FILE && !excused {
            problems.push(format!("{path}: {lines} lines; which half has the smaller interface?"));
        }
        if lines <= LONGEST_FILE && excused {
            problems.push(format!("{path}: {lines} lines; take it off LONG_FILES"));
        }
    }
    assert_none(&problems);
}

#[test]
fn names_come_from_the_domain() {
    let mut problems = Vec::new();
    for (path, text) in files(&[".rs"]).into_iter().filter(|(path, _)| !is_generated(path)) {
        for (number, line) in text.lines().enumerate() {
            if let Some(name) = declared(line)
                && (BANNED_WORDS.iter().any(|word| name.ends_with(word))
                    || BANNED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
            {
                problems
                    .push(format!("{path}:{}: {name} does not say what it is or does", number + 1));
            }
        }
    }
    assert_none(&problems);
}

fn is_generated(path: &str) -> bool {
    GENERATED.contains(&path)
}

/// The name that a line declares, if it declares a type, a module or a function.
fn declared(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let keyword = words
        .iter()
        .position(|word| ["struct", "enum", "trait", "mod", "fn", "type"].contains(word))?;
    let leading = ["pub", "async", "const", "unsafe", "pub(crate)", "pub(super)"];
    if !words[..keyword].iter().all(|word| leading.contains(word)) {
        return None;
    }
    words.get(keyword + 1)?.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

#[test]
fn lints_are_not_silenced_without_a_reason() {
    let mut problems = Vec::new();
    // Put together here so that this file does not find itself.
    let banned =
        ["#[allow", "#![allow", "#[ignore", "#[should_", "to\u{64}o!", "FIX\u{4d}E", "XX\u{58}"];
    // The generator silences what it does not keep to.
    let ours = files(&[".rs", ".go"]).into_iter().filter(|(path, _)| !is_generated(path));
    for (path, text) in ours {
        for (number, line) in text.lines().enumerate() {
            let found = banned.iter().find(|word| {
                line.trim_start().starts_with(**word) || line.contains(&format!("// {word}"))
            });
            if let Some(word) = found {
                problems.push(format!("{path}:{}: {word}", number + 1));
            }
            let mutable = ["Mutex<", "RwLock<", "OnceLock<", "OnceCell<", "LazyLock<", "Atomic"];
            let statement =
                line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            if path.ends_with(".rs")
                && statement.starts_with("static ")
                && mutable.iter().any(|kind| line.contains(kind))
            {
                problems.push(format!("{path}:{}: mutable global state", number + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn go_code_is_formatted() {
    let unformatted =
        lab::run(Command::new("gofmt").current_dir(ROOT).args(["-l", "lab"])).unwrap();
    assert_none(
        &unformatted
            .lines()
            .map(|path| format!("{path}: run `gofmt -w {path}`"))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut problems = Vec::new();
    for (path, text) in files(&[".md"]) {
        let dir = Path::new(ROOT).join(&path).parent().map(Path::to_owned).unwrap_or_default();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !dir.join(file).exists() {
                problems.push(format!("{path}: {target} does not exist"));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn tests_that_the_parity_page_names_exist() {
    let page = fs::read_to_string(Path::new(ROOT).join("docs/parity.md")).unwrap();
    let sources = files(&[".rs"]);
    let exists = |krate: &str, name: &str| {
        let (below, declaration) = (format!("crates/{krate}/"), format!("fn {name}("));
        let declares = |text: &str| {
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            lines.windows(2).any(|two| two[0].contains("test]") && two[1].contains(&declaration))
        };
        sources.iter().any(|(path, text)| path.starts_with(&below) && declares(text))
    };
    let mut problems = Vec::new();
    for (number, row) in page.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let last = row.trim_end_matches('|').rsplit(" | ").next().unwrap_or_default().trim();
        if last.is_empty() {
            problems.push(format!("docs/parity.md:{}: neither a test nor a reason", number + 1));
        }
        let quoted = last.split('`').skip(1).step_by(2);
        for (krate, name) in quoted.filter_map(|text| text.split_once("::")) {
            if !exists(krate, name) {
                problems.push(format!("docs/parity.md:{}: {krate} has no test {name}", number + 1));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn a_declaration_is_found_by_its_keyword() {
    assert_eq!(declared("pub(crate) struct WorldInfo {"), Some("WorldInfo"));
    assert_eq!(declared("    async fn do_it<T>(x: T) {"), Some("do_it"));
    assert_eq!(declared("let kind = \"struct\";"), None);
}
