//! Nodes as kubelets make them, the manager that keeps them, and what is on them afterwards.

use std::{collections::HashMap, time::Duration};

use ccm::{Context, Settings, args::Flags};
use clap::Parser;
use cloud_config::{Config, CredentialSource, Inline, IpFamily, SecretName};
use daemon::supervise::{Shutdown, Stop, shutdown};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Node, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::task::JoinSet;
use vsphere::tls::Trust;

/// Longer than anything takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// A manager that runs.
pub(crate) struct Running {
    stop: Stop,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) fn start(context: Context, config: Config, settings: Settings) -> Self {
        let (stop, asked): (Stop, Shutdown) = shutdown();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { ccm::run(context, &config, settings, asked).await.unwrap() });
        Self { stop, tasks }
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) {
        self.stop.request();
        tokio::time::timeout(BOUND, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}

/// Settings by flags, as on the command line.
pub(crate) fn settings(flags: &[&str]) -> Settings {
    let line = ["ccm", "--cloud-config=unused"].iter().chain(flags);
    Settings::new(&Flags::try_parse_from(line).unwrap(), false)
}

/// Settings that delete as soon as a deletion is allowed at all: what these leave alone, all others do.
pub(crate) fn eager() -> Settings {
    let flags = ["--node-deletion-grace=0s", "--node-deletion-limit=100", "--place-labels"];
    let mut settings = settings(&flags);
    settings.lifecycle.checks = 1;
    settings
}

/// The Secret that [`put_login`] writes.
pub(crate) fn secret() -> CredentialSource {
    CredentialSource::Secret(SecretName {
        namespace: "kube-system".to_owned(),
        name: "vsphere".to_owned(),
    })
}

/// Writes the Secret with the login for the vCenter `vcenter`, or changes it.
pub(crate) async fn put_login(client: &Client, user: &str, password: &str) -> kube::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kube-system");
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let entries = [("vcenter.username", bytes(user)), ("vcenter.password", bytes(password))];
    let secret = Secret {
        metadata: ObjectMeta { name: Some("vsphere".to_owned()), ..ObjectMeta::default() },
        data: Some(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ..Secret::default()
    };
    let params = PatchParams::apply("a test").force();
    secrets.patch("vsphere", &params, &Patch::Apply(&secret)).await.map(drop)
}

/// Registers a Node as a kubelet does that has an external cloud provider.
pub(crate) async fn register(
    nodes: &Api<Node>,
    name: &str,
    uuid: &str,
    provider_id: Option<&str>,
) -> kube::Result<Node> {
    let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    let node = json!({
        "metadata": {"name": name},
        "spec": {"taints": [taint], "providerID": provider_id},
    });
    let node: Node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    nodes.create(&PostParams::default(), &node).await?;
    let system = json!({
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux",
        "osImage": "", "systemUUID": uuid,
    });
    patch_status(nodes, name, json!({"nodeInfo": system})).await
}

/// Says whether the kubelet is ready.
pub(crate) async fn report_ready(nodes: &Api<Node>, name: &str, ready: bool) -> kube::Result<Node> {
    let status = if ready { "True" } else { "Unknown" };
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null,
    });
    patch_status(nodes, name, json!({"conditions": [condition]})).await
}

async fn patch_status(
    nodes: &Api<Node>,
    name: &str,
    status: serde_json::Value,
) -> kube::Result<Node> {
    let patch = Patch::Strategic(json!({"status": status}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await
}

/// A vCenter of the configuration.
pub(crate) fn section(name: &str, url: &str, trust: Trust) -> cloud_config::VCenter {
    let inline = Inline { user: "cpi@vsphere.local".to_owned(), password: "Lab-cpi-1!".into() };
    cloud_config::VCenter {
        name: name.to_owned(),
        server: name.to_owned(),
        endpoint: url.parse().unwrap(),
        trust,
        datacenters: Vec::new(),
        credentials: CredentialSource::Inline(inline),
        fallback: None,
        ip_families: vec![IpFamily::V4],
    }
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

pub(crate) fn is_initialised(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED) && provider_id(node).is_some()
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

pub(crate) fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub(crate) fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Addresses by type, the last of each.
pub(crate) fn addresses(node: &Node) -> HashMap<String, String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone());
    addresses.unwrap_or_default().into_iter().map(|one| (one.type_, one.address)).collect()
}

pub(crate) fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|one| one.type_ == kind)?.status.clone())
}
