//! Nodes get what their VMs say.

use ccm::{Apply, Options};
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use tokio::sync::mpsc;

use crate::cluster::{
    BOUND, Cluster, Running, UNINITIALIZED, UUIDS, addresses, condition, has_taint, is_initialised,
    label, provider_id,
};

#[tokio::test]
async fn nodes_are_initialised_with_all_that_is_known_of_their_vms_and_sessions_end() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    // One is there before the manager, one comes later.
    cluster.register("node-2", UUIDS[1], None).await;
    for (name, uuid, ip) in [("node-1", UUIDS[0], "10.99.0.11"), ("node-2", UUIDS[1], "10.99.0.12")]
    {
        let node = cluster.until(name, "initialised", is_initialised).await;
        assert_eq!(provider_id(&node), Some(format!("vsphere://{uuid}").as_str()));
        let addresses = addresses(&node);
        assert_eq!(addresses["InternalIP"], ip);
        assert_eq!(addresses["ExternalIP"], ip);
        assert_eq!(addresses["Hostname"], name);
        assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
        assert_eq!(label(&node, "topology.kubernetes.io/region"), Some("region-1"));
        let kind = label(&node, "node.kubernetes.io/instance-type").unwrap_or_default();
        assert!(kind.starts_with("vsphere-vm."), "{kind}");
        assert_eq!(condition(&node, "VSphereReady").as_deref(), Some("True"), "{node:?}");
    }
    assert!(cluster.sessions("cpi").await > 0);
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
    let events: Api<Event> = Api::namespaced(cluster.plane.client(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items;
    let synced = all.iter().filter(|event| event.reason.as_deref() == Some("Synced"));
    assert_eq!(synced.map(|event| event.count.unwrap_or(0)).sum::<i32>(), 2, "{all:?}");
}

#[tokio::test]
async fn a_new_address_of_the_guest_reaches_the_node() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().readdress("node-1", &["10.99.0.77/24"]).await.unwrap();
    let moved = |node: &_| addresses(node).get("InternalIP").is_some_and(|ip| ip == "10.99.0.77");
    cluster.until("node-1", "its new address", moved).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_of_another_cloud_is_left_alone() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], Some("aws:///zone/i-1")).await;
    cluster.register("node-2", UUIDS[1], None).await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    let running = cluster.run();
    cluster.until("node-2", "initialised", is_initialised).await;
    running.stop().await;
    let after = cluster.nodes.get("node-1").await.unwrap();
    assert_eq!(before, after);
    assert!(has_taint(&after, UNINITIALIZED));
}

#[tokio::test]
async fn a_manager_that_only_prints_writes_nothing() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    let (sender, mut lines) = mpsc::unbounded_channel();
    let options = Options { apply: Apply::Print(sender), ..Options::default() };
    let running = Running::start(cluster.plane.client(), cluster.config(Vec::new()), options);
    let told = async {
        while let Some(line) = lines.recv().await {
            if line.contains("vsphere://") {
                return line;
            }
        }
        String::new()
    };
    let line = tokio::time::timeout(BOUND, told).await.unwrap();
    assert!(line.starts_with("patch node node-1: ") && line.contains("10.99.0.11"), "{line}");
    running.stop().await;
    assert_eq!(before, cluster.nodes.get("node-1").await.unwrap());
}
