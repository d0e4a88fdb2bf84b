//! Nodes as kubelets make them where no kubelet runs, and what is on them afterwards.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::{
    Api, Result,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

/// On Nodes that no cloud provider has initialised.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// On Nodes whose machine is off.
pub const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// Registers a Node as a kubelet does that has an external cloud provider.
///
/// # Errors
/// When the API server refuses it.
pub async fn register(
    nodes: &Api<Node>,
    name: &str,
    uuid: &str,
    provider_id: Option<&str>,
) -> Result<Node> {
    let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
    let system = json!({
        "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
        "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux",
        "osImage": "", "systemUUID": uuid,
    });
    let node = json!({
        "metadata": {"name": name},
        "spec": {"taints": [taint], "providerID": provider_id},
        "status": {"nodeInfo": system},
    });
    let node = serde_json::from_value(node).map_err(kube::Error::SerdeError)?;
    nodes.create(&PostParams::default(), &node).await
}

/// Reports whether the kubelet is ready.
///
/// # Errors
/// When the API server refuses it.
pub async fn report_ready(nodes: &Api<Node>, name: &str, ready: bool) -> Result<Node> {
    let status = if ready { "True" } else { "Unknown" };
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": null, "lastTransitionTime": null,
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await
}

/// Whether the Node has a taint with this key.
#[must_use]
pub fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

/// Whether a cloud controller manager has initialised the Node.
#[must_use]
pub fn is_initialised(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED) && provider_id(node).is_some()
}

/// The Node's provider id.
#[must_use]
pub fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// A label of the Node.
#[must_use]
pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// An annotation of the Node.
#[must_use]
pub fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The Node's addresses by type, the last of each.
#[must_use]
pub fn addresses(node: &Node) -> HashMap<String, String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone());
    addresses.unwrap_or_default().into_iter().map(|one| (one.type_, one.address)).collect()
}

/// The status of a condition of the Node: `True`, `False` or `Unknown`.
#[must_use]
pub fn condition_status<'a>(node: &'a Node, type_: &str) -> Option<&'a str> {
    Some(condition(node, type_)?.status.as_str())
}

/// Reason and message of the condition `VSphereReady`, empty without it.
#[must_use]
pub fn vsphere_condition(node: &Node) -> (&str, &str) {
    let Some(condition) = condition(node, "VSphereReady") else { return ("", "") };
    (
        condition.reason.as_deref().unwrap_or_default(),
        condition.message.as_deref().unwrap_or_default(),
    )
}

fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
}
