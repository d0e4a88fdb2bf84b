//! The Go cloud controller manager's own files, in Go's module cache; `lab/upstream` pins the version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

const MODULE: &str = "k8s.io/cloud-provider-vsphere";

/// The directory of the module, fetched unless it is there.
///
/// # Errors
/// When Go cannot fetch it.
pub fn module() -> Result<PathBuf> {
    let source = components::source_dir().join("upstream");
    let pinned = fs::read_to_string(source.join("go.mod"))?;
    let line = pinned.lines().find(|line| line.starts_with("require"));
    let version =
        line.and_then(|line| line.rsplit(' ').next()).context("go.mod requires nothing")?;
    let mut download = Command::new("go");
    download.current_dir(source).args(["mod", "download", "-json", &format!("{MODULE}@{version}")]);
    let answer: Value = serde_json::from_str(&components::run(&mut download)?)?;
    answer["Dir"].as_str().map(PathBuf::from).context("go mod download names no directory")
}

/// The newest manifest in the module.
///
/// # Errors
/// When the module has none.
pub fn manifest(module: &Path) -> Result<PathBuf> {
    let minor =
        |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("v1.")?.parse::<u32>().ok();
    let releases = fs::read_dir(module.join("releases"))?.filter_map(Result::ok);
    let newest = releases.map(|entry| entry.path()).max_by_key(minor).context("no releases")?;
    Ok(newest.join("vsphere-cloud-controller-manager.yaml"))
}
