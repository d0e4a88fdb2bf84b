//! What Nodes carry of their VMs, as a table: a column for each Node.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::ListParams};
use lab::Lab;

use crate::output::table;

/// The taint of Nodes that no cloud controller has seen.
pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint of Nodes whose VM is off.
pub(super) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

/// The facts of all Nodes.
pub(super) async fn facts(lab: &Lab) -> Result<String> {
    let nodes = Api::<Node>::all(lab.client()).list(&ListParams::default()).await?.items;
    let row = |name: &str, fact: &dyn Fn(&Node) -> String| {
        let cells = nodes.iter().map(fact);
        let cells = cells.map(|cell| if cell.is_empty() { "-".to_owned() } else { cell });
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<_>>()
    };
    let label = |key: &'static str| {
        move |node: &Node| {
            node.metadata.labels.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
        }
    };
    let rows = [
        row("", &|node| node.metadata.name.clone().unwrap_or_default()),
        row("taints", &taints),
        row("provider id", &|node| {
            node.spec.as_ref().and_then(|spec| spec.provider_id.clone()).unwrap_or_default()
        }),
        row("internal IP", &|node| address(node, "InternalIP")),
        row("external IP", &|node| address(node, "ExternalIP")),
        row("region", &label("topology.kubernetes.io/region")),
        row("zone", &label("topology.kubernetes.io/zone")),
        row("type", &label("node.kubernetes.io/instance-type")),
    ];
    Ok(table(&rows))
}

/// Whether the Node has a taint with this key.
pub(super) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

/// The last address of a type; empty if there is none.
pub(super) fn address(node: &Node, type_: &str) -> String {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    let found = addresses.and_then(|all| all.iter().rfind(|one| one.type_ == type_));
    found.map(|one| one.address.clone()).unwrap_or_default()
}

/// Taints without the domain in front, which is long and the same for all that matter here.
pub(super) fn taints(node: &Node) -> String {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let short = |key: &str| key.rsplit('/').next().unwrap_or(key).to_owned();
    let words = taints.iter().copied().flatten();
    let words: Vec<_> = words.map(|one| format!("{}:{}", short(&one.key), one.effect)).collect();
    words.join(" ")
}
