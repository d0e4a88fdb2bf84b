//! The manifests of `deploy/`, which `cargo xtask deploy` writes.
//!
//! They are made by a test of the crate that defines them, so that this program does not have to be compiled together
//! with the drivers: whoever tries the demo on a new machine waits for it.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::output::print_line;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
/// The drivers' image, as the manifests name it.
pub(crate) const IMAGE: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-drivers:", env!("CARGO_PKG_VERSION"));
/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "kube-system";

/// The test that writes the files.
const WRITER: &str = "manifests::files::the_files_in_deploy_are_what_the_manifests_say";
/// The ConfigMap that the pods mount.
pub(crate) const CONFIG: &str = "vsphere-cloud-config";

pub(crate) fn run() -> Result<()> {
    let mut cargo = lab::components::cargo();
    cargo.env("UPDATE", "1").args(["test", "--quiet", "--package", "ccm", "--lib", "--"]);
    let output = lab::run(cargo.args(["--exact", WRITER]))?;
    if !output.contains("1 passed") {
        bail!("there is no test {WRITER} that writes the manifests");
    }
    print_line("deploy/ is as crates/ccm/src/manifests.rs says");
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
    fn the_names_that_are_used_here_are_those_of_the_manifests() {
        let objects = cloud_controller_manager().unwrap();
        let daemon_set = objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        assert_eq!(daemon_set["metadata"]["namespace"], NAMESPACE);
        let volume = &daemon_set["spec"]["template"]["spec"]["volumes"][0];
        assert_eq!(volume["configMap"]["name"], CONFIG);
        let images: Vec<&Value> = objects
            .iter()
            .filter_map(|object| object.pointer("/spec/template/spec/containers/0/image"))
            .collect();
        assert_eq!(images, [IMAGE]);
    }
}
