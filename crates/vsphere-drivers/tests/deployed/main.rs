//! The cloud controller manager as it is deployed: the program with the account, the roles and the pods of its
//! manifests. Tests below `nodes::` need root.

#![cfg(test)]

mod cluster;
mod nodes;
mod roles;

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use ccm::manifests;
use serde_json::{Value, json};

/// Generous: the machine may be busy with other things.
const BOUND: Duration = Duration::from_secs(120);
const UUIDS: [&str; 2] =
    ["4230b1a0-5eed-4000-8000-000000000001", "4230b1a0-5eed-4000-8000-000000000002"];
/// The account that the simulator's default world has for cloud controller managers.
const LOGIN: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");

/// A configuration for the vCenter at this address, which the authority in this file vouches for.
fn vsphere_conf(url: &str, authority: &str) -> String {
    let (server, port) = server_of(url);
    let config = json!({
        "global": {
            "port": port,
            "caFile": authority,
            "secretName": "vsphere-cloud-secret",
            "secretNamespace": "kube-system",
        },
        "vcenter": {"lab": {"server": server}},
        "labels": {"region": "k8s-region", "zone": "k8s-zone"},
    });
    // JSON is YAML.
    serde_json::to_string_pretty(&config).unwrap()
}

/// The Secret that such a configuration names.
fn secret(url: &str) -> Value {
    let (server, _) = server_of(url);
    let (user, password) = LOGIN;
    let entries = BTreeMap::from([
        (format!("{server}.username"), user),
        (format!("{server}.password"), password),
    ]);
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "vsphere-cloud-secret", "namespace": "kube-system"},
        "stringData": entries,
    })
}

/// The ConfigMap that the pods mount, with the certificate of the authority in it.
fn config_map(url: &str, authority: &Path) -> Value {
    let files = BTreeMap::from([("ca.crt".to_owned(), fs::read_to_string(authority).unwrap())]);
    let text = vsphere_conf(url, "/etc/cloud/ca.crt");
    serde_json::to_value(manifests::configuration(&text, files)).unwrap()
}

/// Host and port of an SDK's address.
fn server_of(url: &str) -> (String, u16) {
    let place = url.trim_start_matches("https://").trim_end_matches("/sdk");
    match place.split_once(':') {
        Some((host, port)) => (host.to_owned(), port.parse().unwrap()),
        None => (place.to_owned(), 443),
    }
}
