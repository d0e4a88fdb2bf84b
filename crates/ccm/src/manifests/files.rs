//! The manifests as files for `kubectl apply`, in `deploy/`; `cargo xtask deploy` writes them.
//!
//! The configuration is a file of its own, so that applying the rest again leaves it alone.

mod yaml;

use std::{collections::BTreeMap, fs, path::Path};

use cloud_config::{CredentialSource, Reader};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::Value;

use super::{CONFIG_FILE, NAMESPACE, Parameters, SECRET, configuration, manifests, metadata};

const EXAMPLE: &str = include_str!("vsphere.conf.yaml");
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");

/// A configuration to start from: the file, and a Secret with what must be typed into it.
fn example() -> (ConfigMap, Secret) {
    let entries = ["username", "password"].map(|what| {
        (format!("vcenter.example.com.{what}"), format!("<the {what} of the vSphere account>"))
    });
    let metadata = metadata(SECRET, Some(NAMESPACE), "secret");
    let secret = Secret { metadata, string_data: Some(entries.into()), ..Secret::default() };
    (configuration(EXAMPLE, BTreeMap::new()), secret)
}

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

#[test]
fn the_example_configuration_is_accepted_and_its_secret_is_the_one_that_may_be_read() {
    let (config, secret) = example();
    let text = &config.data.unwrap()[CONFIG_FILE];
    let read = Reader { strict: true, ..Reader::default() }.read(CONFIG_FILE, text.as_bytes());
    let accepted = read.unwrap();
    assert!(accepted.warnings.is_empty(), "{:?}", accepted.warnings);
    for vcenter in &accepted.config.vcenters {
        let CredentialSource::Secret(name) = &vcenter.credentials else {
            panic!("the example has a password in it")
        };
        assert!(Parameters::default().secrets.contains(name));
        assert_eq!(secret.metadata.name.as_deref(), Some(name.name.as_str()));
        let keys = secret.string_data.as_ref().unwrap();
        assert!(keys.contains_key(&format!("{}.username", vcenter.server)), "{keys:?}");
    }
}
