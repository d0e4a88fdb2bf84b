//! The Go drivers' own files, in Go's module cache; `lab/upstream` pins the versions.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde_json::Value;

/// The cloud controller manager.
pub const MANAGER: &str = "k8s.io/cloud-provider-vsphere";
/// The CSI driver.
pub const CSI_DRIVER: &str = "sigs.k8s.io/vsphere-csi-driver/v3";

/// The directory of a module, fetched unless it is there.
///
/// # Errors
/// When Go cannot fetch it.
pub fn module(name: &str) -> Result<PathBuf> {
    pinned_module("upstream", name)
}

/// The directory of a module that the go.mod of this directory below `lab/` pins, fetched unless it is there.
pub(crate) fn pinned_module(pinned_by: &str, name: &str) -> Result<PathBuf> {
    let source = components::source_dir().join(pinned_by);
    let version = components::pinned_version(pinned_by, name)?;
    let mut download = Command::new("go");
    download.current_dir(source).args(["mod", "download", "-json", &format!("{name}@{version}")]);
    let answer: Value = serde_json::from_str(&components::run(&mut download)?)?;
    answer["Dir"].as_str().map(PathBuf::from).context("go mod download names no directory")
}

/// The newest manifest of the manager in its module.
///
/// # Errors
/// When the module has none.
pub fn manager_manifest(module: &Path) -> Result<PathBuf> {
    let minor =
        |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("v1.")?.parse::<u32>().ok();
    let releases = fs::read_dir(module.join("releases"))?.filter_map(Result::ok);
    let newest = releases.map(|entry| entry.path()).max_by_key(minor).context("no releases")?;
    Ok(newest.join("vsphere-cloud-controller-manager.yaml"))
}

/// The objects of the CSI driver's manifest, with its namespace.
///
/// # Errors
/// When Go cannot fetch the module.
pub fn csi_objects() -> Result<Vec<Value>> {
    let directory = module(CSI_DRIVER)?.join("manifests/vanilla");
    let mut objects = Vec::new();
    for file in ["namespace.yaml", "vsphere-csi-driver.yaml"] {
        let path = directory.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let read: Vec<Value> = serde_saphyr::from_multiple(&text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        objects.extend(read);
    }
    Ok(objects)
}
