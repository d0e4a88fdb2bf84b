//! Others who change Nodes at the same time, and an API that is away for a moment.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, api::PostParams};

use crate::cluster::{Cluster, UUIDS, addresses, has_taint, is_initialised, label};

/// Taints a Node again and again until `over`, as often as the API takes it. Returns the taints that it took.
async fn interfere(nodes: &Api<Node>, name: &str, over: &AtomicBool) -> Vec<String> {
    let mut taints = Vec::new();
    for round in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let mut node = nodes.get(name).await.unwrap();
        let key = format!("example.com/taint-{round}");
        let effect = "NoExecute".to_owned();
        let taint = Taint { key: key.clone(), effect, ..Taint::default() };
        node.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
        match nodes.replace(name, &PostParams::default(), &node).await {
            Ok(_) => taints.push(key),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => panic!("{error}"),
        }
    }
    taints
}

#[tokio::test]
async fn a_node_that_somebody_else_changes_all_the_time_is_initialised_and_loses_nothing() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let over = AtomicBool::new(false);
    let ours = async {
        let running = cluster.run();
        cluster.until("node-1", "initialised", is_initialised).await;
        cluster.vcenter.control().readdress("node-1", &["10.99.0.85/24"]).await.unwrap();
        cluster.until_at("node-1", "10.99.0.85").await;
        over.store(true, Ordering::Relaxed);
        running.stop().await;
    };
    let (taints, ()) = tokio::join!(interfere(&cluster.nodes, "node-1", &over), ours);
    let node = cluster.nodes.get("node-1").await.unwrap();
    let lost: Vec<_> = taints.iter().filter(|taint| !has_taint(&node, taint)).collect();
    assert!(lost.is_empty() && taints.len() > 3, "{lost:?} of {taints:?}");
    assert!(is_initialised(&node), "{node:?}");
    assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
    assert_eq!(cluster.event_count("Synced").await, 1);
}

#[tokio::test]
async fn an_api_that_restarts_is_followed_again() {
    let mut cluster = Cluster::start().await;
    let running = cluster.run();
    cluster.join_both().await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    cluster.vcenter.control().readdress("node-1", &["10.99.0.86/24"]).await.unwrap();
    cluster.plane.restart_api().await.unwrap();
    let after = cluster.until_at("node-1", "10.99.0.86").await;
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    cluster.vcenter.control().readdress("node-2", &["10.99.0.87/24"]).await.unwrap();
    let node = cluster.until_at("node-2", "10.99.0.87").await;
    assert_eq!(addresses(&node)["Hostname"], "node-2");
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
}
