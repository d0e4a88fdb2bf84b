//! The test programs of our crates: cargo builds them and reports where they are.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// A program with tests.
#[derive(Clone, Debug)]
pub(crate) struct TestProgram {
    pub(crate) package: String,
    /// Of the target: the crate's for unit tests.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) executable: PathBuf,
    /// Where its tests expect to run.
    pub(crate) directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Unit tests of a library …
    Lib,
    /// … and of a program.
    Bin,
    Integration,
}

impl TestProgram {
    /// How cargo's flags name it, such as `-p lab --test lab`.
    pub(crate) fn label(&self) -> String {
        let Self { package, name, .. } = self;
        match self.kind {
            Kind::Lib => format!("-p {package} --lib"),
            Kind::Bin => format!("-p {package} --bin {name}"),
            Kind::Integration => format!("-p {package} --test {name}"),
        }
    }
}

/// Builds what `cargo test --workspace` with these flags runs. It is always the workspace: for one package alone cargo
/// would choose other features of the dependencies and compile them once more.
pub(crate) fn build(selection: &[&str]) -> Result<Vec<TestProgram>> {
    let mut cargo = lab::components::cargo();
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let built = cargo.args(selection).stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    read(&String::from_utf8(built.stdout)?)
}

/// A line of what cargo reports.
#[derive(Deserialize)]
struct Artifact {
    reason: String,
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

/// A program itself is built for the tests that run it, beside its unit tests.
#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn read(report: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for line in report.lines() {
        let artifact: Artifact = serde_json::from_str(line)
            .with_context(|| format!("cargo reported something unexpected: {line}"))?;
        if artifact.reason == "compiler-artifact"
            && artifact.profile.as_ref().is_some_and(|profile| profile.test)
        {
            programs.extend(program(artifact));
        }
    }
    Ok(programs)
}

fn program(artifact: Artifact) -> Option<TestProgram> {
    let target = artifact.target?;
    let kind = match target.kind.first()?.as_str() {
        "lib" => Kind::Lib,
        "bin" => Kind::Bin,
        "test" => Kind::Integration,
        _ => return None,
    };
    Some(TestProgram {
        package: package_name(&artifact.package_id?).to_owned(),
        name: target.name,
        kind,
        executable: artifact.executable?,
        directory: artifact.manifest_path?.parent().unwrap_or(Path::new("/")).to_owned(),
    })
}

/// From an id such as `path+file:///project/crates/lab#0.1.0` or `…#lab@0.1.0`.
fn package_name(id: &str) -> &str {
    let (path, fragment) = id.split_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_with_tests_are_named_as_cargos_flags_name_them() {
        let report = r#"{"reason":"compiler-artifact","package_id":"registry+https://x#serde@1.0.0","manifest_path":"/s/Cargo.toml","target":{"kind":["lib"],"name":"serde"},"profile":{"test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"path+file:///project/crates/ccm#0.1.0","manifest_path":"/project/crates/ccm/Cargo.toml","target":{"kind":["lib"],"name":"ccm"},"profile":{"test":true},"executable":"/target/ccm-1"}
{"reason":"compiler-artifact","package_id":"path+file:///project/crates/ccm#0.1.0","manifest_path":"/project/crates/ccm/Cargo.toml","target":{"kind":["test"],"name":"controller"},"profile":{"test":true},"executable":"/target/controller-1"}
{"reason":"compiler-artifact","package_id":"path+file:///project/one#0.1.0","manifest_path":"/project/one/Cargo.toml","target":{"kind":["bin"],"name":"two"},"profile":{"test":false},"executable":"/target/two"}
{"reason":"compiler-artifact","package_id":"path+file:///project/one#0.1.0","manifest_path":"/project/one/Cargo.toml","target":{"kind":["bin"],"name":"two"},"profile":{"test":true},"executable":"/target/two-1"}
{"reason":"build-finished","success":true}"#;
        let programs = read(report).unwrap();
        let labels: Vec<String> = programs.iter().map(TestProgram::label).collect();
        assert_eq!(labels, ["-p ccm --lib", "-p ccm --test controller", "-p one --bin two"]);
        assert_eq!(programs[1].directory, Path::new("/project/crates/ccm"));
        assert_eq!(programs[2].executable, Path::new("/target/two-1"));
    }

    #[test]
    fn a_package_is_named_by_its_id() {
        assert_eq!(package_name("path+file:///project/crates/lab#0.1.0"), "lab");
        assert_eq!(package_name("path+file:///project/one#two@0.1.0"), "two");
    }
}
