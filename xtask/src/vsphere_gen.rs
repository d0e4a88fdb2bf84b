//! `cargo xtask vsphere-gen`: writes the types of crate `vsphere` from pyVmomi's tables.
//!
//! The tables say what vCenter's API is, `crates/vsphere/schema` says what we want of it and adds what the tables
//! lack. The output is committed; a test fails when it is stale.

mod chosen;
mod emit;
mod literals;
mod model;
mod names;
mod package;
mod schema;
mod versions;

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::output::print_line;

const CRATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/vsphere");

/// Writes the generated types of crate `vsphere`.
#[derive(Args)]
pub(crate) struct VsphereGen {
    /// The pyVmomi package to read; otherwise the pinned one is fetched once and kept
    #[arg(long, value_name = "FILE")]
    wheel: Option<PathBuf>,
    /// Write nothing; fail if a file is not what it should be
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(command: &VsphereGen) -> Result<()> {
    let package = match &command.wheel {
        Some(file) => file.clone(),
        None => package::fetched()?,
    };
    let files = generated(&package)?;
    if command.check {
        let stale = stale(&files);
        ensure!(
            stale.is_empty(),
            "stale: {}; run `cargo xtask vsphere-gen` and look at the difference",
            stale.join(", ")
        );
        return Ok(());
    }
    for (name, text) in &files {
        let path = folder().join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        print_line(&format!("{name}: {} lines", text.lines().count()));
    }
    Ok(())
}

/// Where the generated files are.
fn folder() -> PathBuf {
    Path::new(CRATE).join("src/types")
}

/// The names and texts of all generated files.
fn generated(package: &Path) -> Result<Vec<(String, String)>> {
    let schema = |name: &str| {
        let path = Path::new(CRATE).join("schema").join(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    };
    let mut model = model::Model::read(&package::tables(package)?)?;
    schema::overlay(&mut model, &schema("overlay.txt")?)?;
    let selection = schema::Selection::read(&schema("select.txt")?)?;
    let files = emit::files(&chosen::Chosen::new(&model, &selection)?)?;
    files.into_iter().map(|(name, text)| Ok((name, formatted(&text)?))).collect()
}

/// The names of the files that differ from what was generated.
fn stale(files: &[(String, String)]) -> Vec<&str> {
    let differs = |(name, text): &&(String, String)| {
        fs::read_to_string(folder().join(name)).ok().as_ref() != Some(text)
    };
    files.iter().filter(differs).map(|(name, _)| name.as_str()).collect()
}

/// The text, formatted by rustfmt, so that generated files pass the same check as the others.
fn formatted(text: &str) -> Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(Path::new(CRATE).join("../.."))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("run rustfmt")?;
    let mut input = rustfmt.stdin.take().context("rustfmt has an input")?;
    input.write_all(text.as_bytes()).context("write to rustfmt")?;
    drop(input);
    let output = rustfmt.wait_with_output()?;
    if !output.status.success() {
        bail!("rustfmt rejects the generated code");
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::print_error;

    #[test]
    fn the_types_are_what_the_tables_and_the_schema_say() {
        let package = match package::fetched() {
            Ok(package) => package,
            Err(error) => return print_error(&format!("not compared, no package: {error:#}")),
        };
        let files = generated(&package).unwrap();
        assert_eq!(stale(&files), Vec::<&str>::new(), "run `cargo xtask vsphere-gen`");
    }
}
