//! The manifests of `deploy/`, which `cargo xtask deploy` writes.
//!
//! They are made by a test of the crate that defines them, so that this program does not have to be compiled together
//! with the drivers: whoever tries the demo on a new machine waits for it.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::Value;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
/// The drivers' image, as the manifests name it.
pub(crate) const IMAGE: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-drivers:", env!("CARGO_PKG_VERSION"));
/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "kube-system";

pub(crate) fn run() -> Result<()> {
    let mut cargo = lab::components::cargo();
    cargo.env("UPDATE", "1").args(["test", "--quiet", "--package", "ccm", "--lib"]);
    let status = cargo.arg("manifests::files").status().context("cannot run cargo")?;
    if !status.success() {
        bail!("the manifests were not written ({status})");
    }
    Ok(())
}

/// The objects of the cloud controller manager, without its configuration.
pub(crate) fn cloud_controller_manager() -> Result<Vec<Value>> {
    let path = Path::new(DIRECTORY).join("cloud-controller-manager.yaml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_saphyr::from_multiple(&text).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_that_is_built_is_the_one_that_the_manifests_name() {
        let objects = cloud_controller_manager().unwrap();
        let images: Vec<&Value> = objects
            .iter()
            .filter_map(|object| object.pointer("/spec/template/spec/containers/0/image"))
            .collect();
        assert_eq!(images, [IMAGE]);
    }
}
