//! The manifests of `deploy/`, which `cargo xtask deploy` writes.
//!
//! They are made by tests of the crates that define them, so that this program does not have to be compiled together
//! with the drivers: whoever tries the demo on a new machine waits for it.

use anyhow::{Result, bail};
use lab::manifest_files;
use serde_json::Value;

use crate::output::print_line;

/// The namespace of all objects.
pub(crate) const NAMESPACE: &str = "kube-system";

/// The crates that define manifests.
const PACKAGES: [&str; 2] = ["ccm", "csi"];
/// The test of each that writes its files.
const WRITER: &str = "manifests::files::the_files_in_deploy_are_what_the_manifests_say";
/// The ConfigMap that the pods mount.
pub(crate) const CONFIG: &str = "vsphere-cloud-config";

pub(crate) fn run() -> Result<()> {
    for package in PACKAGES {
        let mut cargo = lab::components::cargo();
        cargo.env("UPDATE", "1").args(["test", "--quiet", "--package", package, "--lib", "--"]);
        let output = lab::run(cargo.args(["--exact", WRITER]))?;
        if !output.contains("1 passed") {
            bail!("{package} has no test {WRITER} that writes the manifests");
        }
        print_line(&format!("deploy/ is as crates/{package}/src/manifests.rs says"));
    }
    Ok(())
}

/// The objects of the cloud controller manager, without its configuration.
pub(crate) fn cloud_controller_manager() -> Result<Vec<Value>> {
    manifest_files::read("cloud-controller-manager.yaml")
}

#[cfg(test)]
mod tests {
    use lab::image::DRIVERS;

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
        assert_eq!(images, [DRIVERS]);
    }
}
