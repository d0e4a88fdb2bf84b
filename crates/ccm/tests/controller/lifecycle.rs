//! Nodes whose VMs are off.

use ccm::{Options, lifecycle::Settings};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use lab::{Wait, until, vcenter::Power};

use crate::cluster::{BOUND, Cluster, Running, SHUTDOWN, UUIDS, has_taint, is_initialised};

#[tokio::test]
async fn a_node_that_is_not_ready_because_its_vm_is_off_is_tainted_until_it_is_back() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    cluster.ready("node-1", true).await;
    let running = cluster.run();
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().power("node-1", Power::Off).await.unwrap();
    cluster.ready("node-1", false).await;
    cluster.until("node-1", "tainted", |node| has_taint(node, SHUTDOWN)).await;
    cluster.vcenter.control().power("node-1", Power::On).await.unwrap();
    cluster.ready("node-1", true).await;
    let back = |node: &_| !has_taint(node, SHUTDOWN) && is_initialised(node);
    cluster.until("node-1", "not tainted", back).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_is_gone_stays_and_says_why() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().unregister("node-1").await.unwrap();
    let events: Api<Event> = Api::namespaced(cluster.plane.client(), "default");
    until("an event that says why", BOUND, || async {
        let all = events.list(&ListParams::default()).await?.items;
        let reasons: Vec<_> = all.into_iter().filter_map(|event| event.reason).collect();
        let told = reasons.iter().any(|reason| reason == "RemovalUntold");
        Ok(if told { Wait::Done(()) } else { Wait::NotYet(format!("{reasons:?}")) })
    })
    .await
    .unwrap();
    assert!(cluster.nodes.get_opt("node-1").await.unwrap().is_some());
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_is_gone_is_deleted_where_nobody_needs_to_tell_how() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    cluster.register("node-2", UUIDS[1], None).await;
    let lifecycle = Settings {
        delete_untold: true,
        checks: 1,
        grace: SignedDuration::ZERO,
        ..Settings::default()
    };
    let options = Options { lifecycle, ..Options::default() };
    let running = Running::start(cluster.plane.client(), cluster.config(Vec::new()), options);
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.until("node-2", "initialised", is_initialised).await;
    cluster.vcenter.control().unregister("node-1").await.unwrap();
    until("the Node is deleted", BOUND, || async {
        let gone = cluster.nodes.get_opt("node-1").await?.is_none();
        Ok(if gone { Wait::Done(()) } else { Wait::NotYet("it is there".to_owned()) })
    })
    .await
    .unwrap();
    assert!(cluster.nodes.get_opt("node-2").await.unwrap().is_some());
    running.stop().await;
}
