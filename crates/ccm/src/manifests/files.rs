//! The manifests as files for `kubectl apply`, in `deploy/`; `cargo xtask deploy` writes them.
//!
//! The configuration is a file of its own, so that applying the rest again leaves it alone.

mod yaml;

use std::{fs, path::Path};

use serde_json::Value;

use super::{Parameters, example, manifests};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// The names and texts of all files.
fn files() -> Vec<(&'static str, String)> {
    let (config, secret) = example();
    let example = [serde_json::to_value(config).unwrap(), serde_json::to_value(secret).unwrap()];
    let header = "# The cloud controller manager: its account, what it may do, and its pods.\n\
                  # Its configuration is in cloud-controller-manager-config.yaml; apply that first, edited.\n";
    let example_header =
        "# The cloud controller manager's configuration and credentials. An example: edit it.\n";
    let objects = manifests(&Parameters::default()).unwrap().values().unwrap();
    vec![
        ("cloud-controller-manager.yaml", file(header, &objects)),
        ("cloud-controller-manager-config.yaml", file(example_header, &example)),
    ]
}

fn file(header: &str, objects: &[Value]) -> String {
    let made = "# Written by `cargo xtask deploy`; its content is defined in crates/ccm/src/manifests.rs.\n";
    let documents: String =
        objects.iter().map(|object| format!("---\n{}", yaml::document(object))).collect();
    format!("{header}{made}{documents}")
}

#[test]
fn the_files_in_deploy_are_what_the_manifests_say() {
    for (name, text) in files() {
        let path = Path::new(DIRECTORY).join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(path).unwrap_or_default();
        assert!(found == text, "deploy/{name} is stale; run `cargo xtask deploy`");
    }
}
