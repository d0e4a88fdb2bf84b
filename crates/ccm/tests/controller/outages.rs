//! vCenters that are down, slow or half there, and what is true of Nodes meanwhile and afterwards.

use lab::{
    Wait, until,
    vcenter::{HttpFault, HttpFaultKind, Power},
};
use tokio::net::TcpListener;
use vsphere::tls::Trust;

use crate::cluster::{
    BOUND, Cluster, Running, SHUTDOWN, UNINITIALIZED, UUIDS, addresses, annotation,
    condition_status, has_taint, is_initialised, label, section, settings, vsphere_condition,
};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Breaks everything below a path until it is disarmed.
async fn break_all(cluster: &Cluster, path: &str, kind: HttpFaultKind) {
    let fault = HttpFault { path: path.to_owned(), method: None, kind, count: 0 };
    cluster.vcenter.control().break_http(&fault).await.unwrap();
}

#[tokio::test]
async fn while_vcenter_is_down_no_node_is_tainted_deleted_or_initialised_and_all_say_so() {
    let cluster = Cluster::start().await;
    let impatient = settings(&["--vcenter-patience=0s"]);
    let config = cluster.config(Vec::new());
    let running = Running::start(ccm::Context::new(cluster.plane.client()), config, impatient);
    cluster.register("node-1", UUIDS[0], None).await;
    cluster.until("node-1", "initialised", is_initialised).await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    break_all(&cluster, "/", HttpFaultKind::Status { status: 503 }).await;
    cluster.vcenter.control().restart(0).await.unwrap();
    cluster.vcenter.control().power("node-1", Power::Off).await.unwrap();
    cluster.ready("node-1", false).await;
    cluster.register("node-2", UUIDS[1], None).await;
    for name in ["node-1", "node-2"] {
        let reported = |node: &_| vsphere_condition(node).0 == "VCenterUnavailable";
        let node = cluster.until(name, "a condition with the reason", reported).await;
        assert_eq!(condition_status(&node, "VSphereReady"), Some("Unknown"));
        assert!(!has_taint(&node, SHUTDOWN));
        assert_eq!(has_taint(&node, UNINITIALIZED), name == "node-2");
    }
    let during = cluster.nodes.get("node-1").await.unwrap();
    assert_eq!((&before.metadata.uid, &before.spec), (&during.metadata.uid, &during.spec));
    assert_eq!(addresses(&before), addresses(&during));
    cluster.vcenter.control().disarm().await.unwrap();
    cluster.until("node-2", "initialised", is_initialised).await;
    cluster.until("node-1", "tainted", |node| has_taint(node, SHUTDOWN)).await;
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
}

#[tokio::test]
async fn a_vcenter_that_hung_while_we_logged_in_is_used_once_it_answers() {
    let cluster = Cluster::start().await;
    break_all(&cluster, "/", HttpFaultKind::Hang).await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    until("something hangs", BOUND, || async {
        let state = cluster.vcenter.control().state_as_json().await?;
        let hangs = state["rules"].to_string().contains("\"hits\":1");
        Ok(if hangs { Wait::Done(()) } else { Wait::NotYet(state["rules"].to_string()) })
    })
    .await
    .unwrap();
    assert!(has_taint(&cluster.nodes.get("node-1").await.unwrap(), UNINITIALIZED));
    cluster.vcenter.control().disarm().await.unwrap();
    cluster.until("node-1", "initialised", is_initialised).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_stays_while_one_of_several_vcenters_could_have_its_vm_and_is_down() {
    let cluster = Cluster::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/sdk", listener.local_addr().unwrap());
    let dead = section("dead", &url, Trust::default());
    let running = cluster.run_eagerly(cluster.config(vec![dead]));
    cluster.join_both().await;
    cluster.vcenter.control().unregister("node-1").await.unwrap();
    cluster.ready("node-1", false).await;
    cluster.until_two_rounds_passed().await;
    let node = cluster.nodes.get("node-1").await.unwrap();
    assert!(is_initialised(&node) && !has_taint(&node, SHUTDOWN), "{node:?}");
    running.stop().await;
}

#[tokio::test]
async fn an_expired_session_is_opened_again_and_nothing_else_happens() {
    let cluster = Cluster::start().await;
    let running = cluster.run();
    cluster.join_both().await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    for ip in ["10.99.0.81", "10.99.0.82", "10.99.0.83"] {
        cluster.vcenter.control().expire_sessions().await.unwrap();
        cluster.vcenter.control().readdress("node-1", &[&format!("{ip}/24")]).await.unwrap();
        cluster.until_at("node-1", ip).await;
    }
    let after = cluster.nodes.get("node-1").await.unwrap();
    assert_eq!((before.spec, before.metadata.uid), (after.spec, after.metadata.uid));
    assert!(cluster.sessions("cpi").await <= 2, "one of each kind");
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
}

#[tokio::test]
async fn a_manager_that_starts_again_goes_on_where_the_last_one_was() {
    let cluster = Cluster::start().await;
    let first = cluster.run_eagerly(cluster.config(Vec::new()));
    cluster.join_both().await;
    let before = cluster.nodes.get("node-1").await.unwrap();
    first.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
    cluster.vcenter.control().readdress("node-1", &["10.99.0.84/24"]).await.unwrap();
    cluster.vcenter.control().power("node-2", Power::Off).await.unwrap();
    cluster.ready("node-2", false).await;
    let second = cluster.run_eagerly(cluster.config(Vec::new()));
    let after = cluster.until_at("node-1", "10.99.0.84").await;
    cluster.until("node-2", "tainted", |node| has_taint(node, SHUTDOWN)).await;
    assert_eq!((&before.metadata.uid, &before.spec), (&after.metadata.uid, &after.spec));
    second.stop().await;
    assert_eq!(cluster.event_count("Synced").await, 2);
    assert_eq!(cluster.sessions("cpi").await, 0);
}

#[tokio::test]
async fn tags_that_cannot_be_read_hold_up_no_node_and_zones_come_later() {
    let cluster = Cluster::start().await;
    for path in ["/api", "/rest"] {
        break_all(&cluster, path, HttpFaultKind::Status { status: 503 }).await;
    }
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    let node = cluster.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&node, ZONE), None);
    assert_eq!(addresses(&node)["InternalIP"], "10.99.0.11");
    let reported = |node: &_| vsphere_condition(node).0 == "TopologyIncomplete";
    cluster.until("node-1", "a condition about its zones", reported).await;
    cluster.vcenter.control().disarm().await.unwrap();
    let zoned = |node: &_| label(node, ZONE) == Some("zone-1");
    cluster.until("node-1", "in its zone", zoned).await;
    let done = |node: &_| annotation(node, "ccm.vsphere.vmware.com/zones-pending").is_none();
    cluster.until("node-1", "complete", done).await;
    running.stop().await;
}

#[tokio::test]
async fn zones_that_nobody_configured_cost_no_call_of_tags() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let mut config = cluster.config(Vec::new());
    config.labels = Default::default();
    let running = cluster.run_with(config);
    let node = cluster.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&node, ZONE), None);
    assert_eq!(condition_status(&node, "VSphereReady"), Some("True"));
    let state = cluster.vcenter.control().state_as_json().await.unwrap();
    let calls = state["calls"].to_string();
    assert!(!calls.contains("/api/") && !calls.contains("/rest/"), "{calls}");
    running.stop().await;
}
