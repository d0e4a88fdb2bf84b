//! vCenters that restart, and vCenters that do not answer.

use cloud_config::{CredentialSource, SecretName};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use lab::{Wait, until, vcenter::ADMINISTRATOR};
use serde_json::json;
use tokio::net::TcpListener;
use vsphere::tls::Trust;

use crate::cluster::{
    BOUND, Cluster, UNINITIALIZED, UUIDS, addresses, condition, condition_message, has_taint,
    is_initialised, section,
};

#[tokio::test]
async fn a_restart_of_vcenter_changes_nothing_and_changes_arrive_afterwards() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    let before = cluster.until("node-1", "initialised", is_initialised).await;
    let control = cluster.vcenter.control();
    control.restart(2000).await.unwrap();
    control.readdress("node-1", &["10.99.0.78/24"]).await.unwrap();
    let moved = |node: &_| addresses(node).get("InternalIP").is_some_and(|ip| ip == "10.99.0.78");
    let after = cluster.until("node-1", "its new address", moved).await;
    assert_eq!(before.spec, after.spec);
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_eq!(before.metadata.labels, after.metadata.labels);
    running.stop().await;
}

#[tokio::test]
async fn a_vcenter_that_never_answers_does_not_delay_nodes_of_another() {
    let cluster = Cluster::start().await;
    // Connections are accepted by the kernel, and nobody ever says anything.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/sdk", listener.local_addr().unwrap());
    let dead = section("dead", &url, Trust::default());
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run_with(cluster.config(vec![dead]));
    cluster.until("node-1", "initialised", is_initialised).await;
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
}

#[tokio::test]
async fn credentials_may_come_later_and_change() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let mut config = cluster.config(Vec::new());
    let secret = SecretName { namespace: "kube-system".to_owned(), name: "vsphere".to_owned() };
    config.vcenters[0].credentials = CredentialSource::Secret(secret);
    let running = cluster.run_with(config);
    let told = |node: &_| {
        condition_message(node, "VSphereReady").is_some_and(|why| why.contains("does not exist"))
    };
    cluster.until("node-1", "told that the Secret is missing", told).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.plane.client(), "kube-system");
    let secret = |(user, password): (&str, &str)| -> Secret {
        let entries = json!({"vcenter.username": user, "vcenter.password": password});
        serde_json::from_value(json!({"metadata": {"name": "vsphere"}, "stringData": entries}))
            .unwrap()
    };
    let first = secret(("cpi@vsphere.local", "Lab-cpi-1!"));
    secrets.create(&PostParams::default(), &first).await.unwrap();
    cluster.until("node-1", "initialised", is_initialised).await;
    let other = Patch::Merge(secret(ADMINISTRATOR));
    secrets.patch("vsphere", &PatchParams::default(), &other).await.unwrap();
    until("the sessions are the new user's", BOUND, || async {
        let (old, new) = (cluster.sessions("cpi").await, cluster.sessions("administrator").await);
        let seen = format!("{old} old, {new} new");
        Ok(if old == 0 && new > 0 { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await
    .unwrap();
    cluster.vcenter.control().readdress("node-1", &["10.99.0.79/24"]).await.unwrap();
    let moved = |node: &_| addresses(node).get("InternalIP").is_some_and(|ip| ip == "10.99.0.79");
    cluster.until("node-1", "its new address", moved).await;
    running.stop().await;
    assert_eq!(cluster.sessions("administrator").await, 0);
}

#[tokio::test]
async fn vms_are_looked_for_in_the_configured_datacenters_only() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let mut config = cluster.config(Vec::new());
    config.vcenters[0].datacenters = vec!["/europe/dc-2".to_owned()];
    let elsewhere = cluster.run_with(config.clone());
    let told = |node: &_| condition(node, "VSphereReady").is_some();
    let node = cluster.until("node-1", "a condition", told).await;
    assert_ne!(condition(&node, "VSphereReady").as_deref(), Some("True"));
    assert!(has_taint(&node, UNINITIALIZED));
    elsewhere.stop().await;
    config.vcenters[0].datacenters.push("dc-1".to_owned());
    let running = cluster.run_with(config);
    cluster.until("node-1", "initialised", is_initialised).await;
    running.stop().await;
}
