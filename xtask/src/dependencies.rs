//! `deny.toml`, checked from what cargo itself reports: licences, banned and doubled crates, sources.
//!
//! `cargo deny check bans licenses sources` reads the same file and checks the same, but takes four minutes to
//! build. Advisories need it (and the internet): `cargo deny check advisories`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
};

use serde::Deserialize;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Deserialize)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Graph {
    targets: Vec<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    skip: Vec<Rule>,
    deny: Vec<Rule>,
}

/// A crate by name, or as `name@version` with as much of the version as matters.
#[derive(Deserialize)]
struct Rule {
    #[serde(rename = "crate")]
    of: String,
    reason: String,
    /// Crates that may use a banned one.
    #[serde(default)]
    wrappers: Vec<String>,
}

/// Name and version of every crate in the tree, with its licence; empty for ours.
type Crates = BTreeMap<(String, String), String>;

fn rules() -> Rules {
    toml::from_str(&fs::read_to_string(Path::new(ROOT).join("deny.toml")).unwrap()).unwrap()
}

fn tree(target: &str, more: &[&str]) -> Crates {
    let mut command = Command::new("cargo");
    command.current_dir(ROOT).args(["tree", "--workspace", "--locked", "--prefix=none"]);
    command.args(["--format={p}|{l}", "--target", target]).args(more);
    let listing = lab::run(&mut command).unwrap();
    let entry = |line: &str| {
        let (package, license) = line.split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?, words.next()?.trim_start_matches('v'));
        let ours = words.next().is_some_and(|place| place.starts_with("(/"));
        let license = license.trim_end_matches(" (*)");
        let license = if ours { "" } else { license };
        Some(((name.to_owned(), version.to_owned()), license.to_owned()))
    };
    listing.lines().filter_map(entry).collect()
}

fn all_crates(rules: &Rules, more: &[&str]) -> Crates {
    rules.graph.targets.iter().flat_map(|target| tree(target, more)).collect()
}

impl Rule {
    fn matches(&self, name: &str, version: &str) -> bool {
        let (of, exactly) = self.of.split_once('@').unwrap_or((&self.of, ""));
        let mut numbers = version.split('.');
        of == name
            && exactly
                .split('.')
                .filter(|part| !part.is_empty())
                .all(|part| numbers.next() == Some(part))
    }
}

/// Whether an SPDX expression can be fulfilled with these licences. `/` is the old way to write `OR`.
fn is_allowed(expression: &str, allow: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    either(&mut words, allow)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words<'_>, allow: &BTreeSet<String>) -> bool {
    let mut allowed = both(words, allow);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= both(words, allow);
    }
    allowed
}

fn both(words: &mut Words<'_>, allow: &BTreeSet<String>) -> bool {
    let mut allowed = one(words, allow);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words, allow);
    }
    allowed
}

fn one(words: &mut Words<'_>, allow: &BTreeSet<String>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let allowed = either(words, allow);
        return words.next() == Some(")") && allowed;
    }
    let Some(license) = words.next() else { return false };
    match words.next_if_eq(&"WITH") {
        Some(_) => words
            .next()
            .is_some_and(|exception| allow.contains(&format!("{license} WITH {exception}"))),
        None => allow.contains(license),
    }
}

#[track_caller]
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn every_licence_is_allowed() {
    let rules = rules();
    let crates = all_crates(&rules, &[]);
    assert!(crates.len() > 100, "cargo tree lists {} crates", crates.len());
    let ours: BTreeSet<&str> = crates
        .iter()
        .filter(|(_, license)| license.is_empty())
        .map(|((name, _), _)| name.as_str())
        .collect();
    assert!(ours.contains("xtask") && ours.len() < 20, "these have no licence: {ours:?}");
    let refused = crates.iter().filter(|((name, _), license)| {
        !ours.contains(name.as_str()) && !is_allowed(license, &rules.licenses.allow)
    });
    assert_none(
        &refused
            .map(|((name, version), license)| {
                format!("{name} {version}: the licence {license:?} is not allowed by deny.toml")
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_crate_is_in_the_tree_twice() {
    let rules = rules();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    // As cargo-deny does: what only tests use may differ.
    let crates = all_crates(&rules, &["--edges=normal,build"]);
    for (name, version) in crates.keys() {
        if !rules.bans.skip.iter().any(|rule| rule.matches(name, version)) {
            versions.entry(name).or_default().push(version);
        }
    }
    let doubled = versions.iter().filter(|(_, versions)| versions.len() > 1);
    assert_none(
        &doubled
            .map(|(name, versions)| {
                format!("{name}: {}; align them, or skip one in deny.toml", versions.join(" and "))
            })
            .collect::<Vec<_>>(),
    );
}

#[test]
fn no_banned_crate_is_in_the_tree() {
    let rules = rules();
    let mut problems = Vec::new();
    for target in &rules.graph.targets {
        for (name, version) in tree(target, &[]).keys() {
            let Some(rule) = rules.bans.deny.iter().find(|rule| rule.matches(name, version)) else {
                continue;
            };
            let users = tree(target, &["--invert", name, "--depth=1"]);
            let users =
                users.keys().filter(|(user, _)| user != name && !rule.wrappers.contains(user));
            problems.extend(users.map(|(user, _)| format!("{user} uses {name}: {}", rule.reason)));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_crate_comes_from_crates_io() {
    let lock = fs::read_to_string(Path::new(ROOT).join("Cargo.lock")).unwrap();
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let others: BTreeSet<&str> =
        sources.filter(|source| source.trim_matches('"') != CRATES_IO).collect();
    assert!(others.is_empty(), "Cargo.lock has crates from {others:?}");
}

#[test]
fn licence_expressions_are_evaluated() {
    let allow: BTreeSet<String> = ["MIT", "ISC", "A WITH e"].map(str::to_owned).into();
    for (expression, allowed) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("MIT AND ISC", true),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("MIT OR ISC AND GPL-3.0", true),
        ("(MIT OR ISC) AND GPL-3.0", false),
        ("A WITH e", true),
        ("MIT WITH e", false),
        ("", false),
        ("(MIT", false),
    ] {
        assert_eq!(is_allowed(expression, &allow), allowed, "{expression:?}");
    }
}
