//! The tests of our crates: their programs are built by cargo, which also tells where they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::test_run::{Language, Program, Test};
use crate::suite;

/// The tests of these programs (package and name), grouped by program.
pub(super) fn find(wanted: &BTreeSet<(String, String)>) -> Result<Vec<Vec<Test>>> {
    let mut cargo = lab::components::cargo();
    // Of the workspace, as `make test` builds them: for one package alone cargo would choose other features of the
    // dependencies and compile them once more.
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    cargo.args(wanted.iter().flat_map(|(_, program)| ["--test", program]));
    let built = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    let found = built_programs(&String::from_utf8(built.stdout)?)?.into_iter();
    let found = found.filter(|(target, _)| wanted.contains(target));
    found.map(|(_, program)| tests(&Arc::new(program))).collect()
}

/// A line of what cargo reports.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

/// Every test program, by package and name.
fn built_programs(report: &str) -> Result<BTreeMap<(String, String), Program>> {
    let mut programs = BTreeMap::new();
    for line in report.lines() {
        let artifact: Artifact = serde_json::from_str(line)
            .with_context(|| format!("cargo reported something unexpected: {line}"))?;
        let (Some(package), Some(manifest), Some(target), Some(executable)) = (
            artifact.package_id.as_deref().map(package_name),
            artifact.manifest_path,
            artifact.target,
            artifact.executable,
        ) else {
            continue;
        };
        if artifact.reason == "compiler-artifact" && target.kind == ["test"] {
            let directory = manifest.parent().unwrap_or(Path::new("/")).to_owned();
            let label = label(package, &target.name);
            let program = Program { label, language: Language::Rust, executable, directory };
            programs.insert((package.to_owned(), target.name), program);
        }
    }
    Ok(programs)
}

/// How cargo's flags name a test program.
pub(super) fn label(package: &str, program: &str) -> String {
    format!("-p {package} --test {program}")
}

/// From an id such as `path+file:///project/crates/lab#0.1.0` or `…#lab@0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

fn tests(program: &Arc<Program>) -> Result<Vec<Test>> {
    let mut list = Command::new(&program.executable);
    list.current_dir(&program.directory).args(["--list", "--format", "terse"]);
    if suite::nodes_are_left_out() {
        list.args(["--skip", suite::NODES]);
    }
    let listing = lab::run(&mut list)?;
    let names = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| Test { program: Arc::clone(program), name: name.to_owned() }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integration_tests_count_as_programs() {
        let report = r#"{"reason":"compiler-artifact","package_id":"registry+https://x#serde@1.0.0","manifest_path":"/s/Cargo.toml","target":{"kind":["lib"],"name":"serde"},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///project/crates/ccm#0.1.0","manifest_path":"/project/crates/ccm/Cargo.toml","target":{"kind":["lib"],"name":"ccm"},"executable":"/target/ccm-1"}
{"reason":"compiler-artifact","package_id":"path+file:///project/crates/ccm#0.1.0","manifest_path":"/project/crates/ccm/Cargo.toml","target":{"kind":["test"],"name":"controller"},"executable":"/target/controller-1"}
{"reason":"build-finished","success":true}"#;
        let programs = built_programs(report).unwrap();
        let [program] = programs.values().collect::<Vec<_>>()[..] else {
            panic!("{programs:?} is not one program");
        };
        assert_eq!(program.label, "-p ccm --test controller");
        assert_eq!(program.directory, Path::new("/project/crates/ccm"));
    }

    #[test]
    fn a_package_is_named_by_its_id() {
        assert_eq!(package_name("path+file:///project/crates/lab#0.1.0"), "lab");
        assert_eq!(package_name("path+file:///project/one#two@0.1.0"), "two");
    }
}
