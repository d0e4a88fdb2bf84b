//! vCenters that restart, and vCenters that do not answer.

use cloud_config::{Config, CredentialSource, Inline};
use k8s_openapi::api::core::v1::Node;
use lab::{Wait, until, vcenter::ADMINISTRATOR};
use tokio::net::TcpListener;
use vsphere::tls::Trust;

use crate::cluster::{
    BOUND, Cluster, Running, UNINITIALIZED, UUIDS, condition_status, has_taint, is_initialised,
    put_login, secret, section, settings, vsphere_condition,
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
    let after = cluster.until_at("node-1", "10.99.0.78").await;
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
    config.vcenters[0].credentials = secret();
    let running = cluster.run_with(config);
    let reported = |node: &_| vsphere_condition(node).1.contains("does not exist");
    cluster.until("node-1", "a message that the Secret is missing", reported).await;
    let client = cluster.plane.client();
    put_login(&client, "cpi@vsphere.local", "Lab-cpi-1!").await.unwrap();
    cluster.until("node-1", "initialised", is_initialised).await;
    put_login(&client, ADMINISTRATOR.0, ADMINISTRATOR.1).await.unwrap();
    until("the sessions are the new user's", BOUND, || async {
        let (old, new) = (cluster.sessions("cpi").await, cluster.sessions("administrator").await);
        let seen = format!("{old} old, {new} new");
        Ok(if old == 0 && new > 0 { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await
    .unwrap();
    cluster.vcenter.control().readdress("node-1", &["10.99.0.79/24"]).await.unwrap();
    cluster.until_at("node-1", "10.99.0.79").await;
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
    let reported = |node: &_| condition_status(node, "VSphereReady").is_some();
    let node = cluster.until("node-1", "a condition", reported).await;
    assert_ne!(condition_status(&node, "VSphereReady"), Some("True"));
    assert!(has_taint(&node, UNINITIALIZED));
    elsewhere.stop().await;
    config.vcenters[0].datacenters.push("dc-1".to_owned());
    let running = cluster.run_with(config);
    cluster.until("node-1", "initialised", is_initialised).await;
    running.stop().await;
}

/// The message of a Node that stays uninitialised, where an unavailable vCenter is reported at once.
async fn message_of_a_new_node(cluster: &Cluster, config: Config) -> String {
    cluster.register("node-1", UUIDS[0], None).await;
    let impatient = settings(&["--vcenter-patience=0s"]);
    let running = Running::start(ccm::Context::new(cluster.plane.client()), config, impatient);
    let is_reported = |node: &Node| {
        let (reason, message) = vsphere_condition(node);
        // The first message is that vCenter has not answered yet.
        reason == "VCenterUnavailable" && message.contains("System.")
    };
    let node = cluster.until("node-1", "a message about what is missing", is_reported).await;
    assert!(has_taint(&node, UNINITIALIZED), "{node:?}");
    running.stop().await;
    vsphere_condition(&node).1.to_owned()
}

#[tokio::test]
async fn a_datacenter_that_is_not_there_is_named_and_its_name_is_no_pattern() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config(Vec::new());
    config.vcenters[0].datacenters = vec!["dc-*".to_owned()];
    let message = message_of_a_new_node(&cluster, config).await;
    assert!(
        message.contains("\"dc-*\"") && message.contains("datacenters in the configuration"),
        "{message}"
    );
}

#[tokio::test]
async fn a_user_who_may_see_nothing_is_told_so_and_not_that_the_vm_is_missing() {
    let cluster = Cluster::start().await;
    let mut config = cluster.config(Vec::new());
    let inline =
        Inline { user: "nobody@vsphere.local".to_owned(), password: "Lab-nobody-1!".into() };
    config.vcenters[0].credentials = CredentialSource::Inline(inline);
    let message = message_of_a_new_node(&cluster, config).await;
    assert!(
        message.contains("grant the user a role with the privilege System.View on Folder"),
        "{message}"
    );
}
