//! vCenters that restart, and vCenters that do not answer.

use ccm::Options;
use cloud_config::{CredentialSource, Inline, Login, SecretName};
use lab::{Wait, until, vcenter::ADMINISTRATOR};
use tokio::{net::TcpListener, sync::watch};
use vsphere::tls::Trust;

use crate::cluster::{
    BOUND, Cluster, Running, UNINITIALIZED, UUIDS, addresses, condition, has_taint, is_initialised,
    section,
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
    let (logins, login) = watch::channel(None);
    let options = Options { logins: [("vcenter".to_owned(), login)].into(), ..Options::default() };
    let running = Running::start(cluster.plane.client(), config, options);
    let password = |(user, password): (&str, &str)| {
        let user = user.to_owned();
        Some(Login::Password(Inline { user, password: password.into() }))
    };
    logins.send_replace(password(("cpi@vsphere.local", "Lab-cpi-1!")));
    cluster.until("node-1", "initialised", is_initialised).await;
    logins.send_replace(password(ADMINISTRATOR));
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
