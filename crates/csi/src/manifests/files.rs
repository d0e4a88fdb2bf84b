//! The manifests as files for `kubectl apply`, in `deploy/`; `cargo xtask deploy` writes them.
//!
//! The configuration is a file of its own, so that applying the rest again leaves it alone; so are the classes, which
//! users make for themselves.

use cloud_config::Reader;
use lab::manifest_files::{self, File};
use serde_json::{Value, to_value};

use super::{
    CONFIG_FILE, Parameters, configuration, manifests, namespace, snapshot_class, storage_classes,
};

const EXAMPLE: &str = include_str!("csi-vsphere.conf");
const SOURCE: &str = "crates/csi/src/manifests.rs";

#[test]
fn the_files_in_deploy_are_what_the_manifests_say() {
    let secret = configuration([(CONFIG_FILE.to_owned(), EXAMPLE.to_owned())]);
    let example = [to_value(namespace().unwrap()).unwrap(), to_value(secret).unwrap()];
    let classes: Vec<Value> =
        storage_classes().unwrap().iter().map(|class| to_value(class).unwrap()).collect();
    let shipped = File {
        name: "csi-driver.yaml",
        about: "# The CSI driver: what Kubernetes has to know of it, its accounts, what they may do, and its pods.\n\
                # Its configuration is in csi-driver-config.yaml; apply that first, edited.",
        source: SOURCE,
        objects: &manifests(&Parameters::default()).unwrap().values().unwrap(),
    };
    let configuration = File {
        name: "csi-driver-config.yaml",
        about: "# The CSI driver's configuration with its credentials. An example: edit it.",
        source: SOURCE,
        objects: &example,
    };
    let classes = File {
        name: "csi-storage-classes.yaml",
        about: "# Examples of classes for claims: edit them, and apply those that you want.",
        source: SOURCE,
        objects: &classes,
    };
    let snapshots = File {
        name: "csi-snapshot-class.yaml",
        about: "# A class for snapshots. The cluster must have the CustomResourceDefinitions of kubernetes-csi/external-snapshotter.",
        source: SOURCE,
        objects: &[snapshot_class()],
    };
    for file in [shipped, configuration, classes, snapshots] {
        manifest_files::check(&file).unwrap();
    }
}

#[test]
fn the_example_configuration_is_accepted() {
    let reader = Reader { strict: true, ..Reader::default() };
    let accepted = reader.read_csi(CONFIG_FILE, EXAMPLE.as_bytes()).unwrap();
    assert!(accepted.warnings.is_empty(), "{:?}", accepted.warnings);
    let servers: Vec<_> =
        accepted.config.vcenters.iter().map(|one| one.vcenter.server.to_string()).collect();
    assert_eq!(servers, ["vcenter.example.com"]);
}
