//! The manifests as files for `kubectl apply`, in `deploy/`; `cargo xtask deploy` writes them.
//!
//! The configuration is a file of its own, so that applying the rest again leaves it alone.

use std::collections::BTreeMap;

use cloud_config::{CredentialSource, Reader};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use lab::manifest_files::{self, File};

use super::{CONFIG_FILE, NAMESPACE, Parameters, SECRET, configuration, manifests, metadata};

const EXAMPLE: &str = include_str!("vsphere.conf.yaml");

/// A configuration to start from: the file, and a Secret with what must be typed into it.
fn example() -> (ConfigMap, Secret) {
    let entries = ["username", "password"].map(|what| {
        (format!("vcenter.example.com.{what}"), format!("<the {what} of the vSphere account>"))
    });
    let metadata = metadata(SECRET, Some(NAMESPACE), "secret");
    let secret = Secret { metadata, string_data: Some(entries.into()), ..Secret::default() };
    (configuration(EXAMPLE, BTreeMap::new()), secret)
}

#[test]
fn the_files_in_deploy_are_what_the_manifests_say() {
    let (config, secret) = example();
    let example = [serde_json::to_value(config).unwrap(), serde_json::to_value(secret).unwrap()];
    let source = "crates/ccm/src/manifests.rs";
    let shipped = File {
        name: "cloud-controller-manager.yaml",
        about: "# The cloud controller manager: its account, what it may do, and its pods.\n\
                # Its configuration is in cloud-controller-manager-config.yaml; apply that first, edited.",
        source,
        objects: &manifests(&Parameters::default()).unwrap().values().unwrap(),
    };
    let configuration = File {
        name: "cloud-controller-manager-config.yaml",
        about: "# The cloud controller manager's configuration and credentials. An example: edit it.",
        source,
        objects: &example,
    };
    for file in [shipped, configuration] {
        manifest_files::check(&file).unwrap();
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
