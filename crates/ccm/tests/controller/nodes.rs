//! Nodes get what their VMs say.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use ccm::{Context, Mode};
use kube::{Api, api::ListParams};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, until};
use tokio::sync::mpsc;
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

use crate::cluster::{
    BOUND, Cluster, Running, UNINITIALIZED, UUIDS, addresses, condition_status, has_taint,
    is_initialised, label, provider_id, settings,
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
        assert_eq!(condition_status(&node, "VSphereReady"), Some("True"), "{node:?}");
    }
    assert!(cluster.sessions("cpi").await > 0);
    running.stop().await;
    assert_eq!(cluster.sessions("cpi").await, 0);
    assert_eq!(cluster.event_count("Synced").await, 2);
}

/// More than are read from a vCenter and written to the API at once.
#[tokio::test]
async fn hundreds_of_nodes_that_are_there_from_the_start_are_all_initialised() {
    const NODES: u32 = 300;
    let spec = VCenterSpec { generated_vms: NODES, ..VCenterSpec::default() };
    let (plane, vcenter) = tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
    let nodes = Api::all(plane.client());
    let cluster = Cluster { plane, vcenter, nodes };
    // Their VMs are found by the names of the guests.
    let unknown = "";
    for number in 1..=NODES {
        cluster.register(&format!("generated-{number:05}"), unknown, None).await;
    }
    let running = cluster.run();
    until("all are initialised", BOUND, || async {
        let all = cluster.nodes.list(&ListParams::default()).await?.items;
        let done = all.iter().filter(|node| is_initialised(node)).count();
        Ok(if done == NODES as usize { Wait::Done(()) } else { Wait::NotYet(done.to_string()) })
    })
    .await
    .unwrap();
    running.stop().await;
}

#[tokio::test]
async fn a_new_address_of_the_guest_reaches_the_node() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = cluster.run();
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().readdress("node-1", &["10.99.0.77/24"]).await.unwrap();
    cluster.until_at("node-1", "10.99.0.77").await;
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
    let context = Context { mode: Mode::Print(sender), ..Context::new(cluster.plane.client()) };
    let running = Running::start(context, cluster.config(Vec::new()), settings(&[]));
    let reported = async {
        while let Some(line) = lines.recv().await {
            if line.contains("vsphere://") {
                return line;
            }
        }
        String::new()
    };
    let line = tokio::time::timeout(BOUND, reported).await.unwrap();
    assert!(line.starts_with("patch node node-1: ") && line.contains("10.99.0.11"), "{line}");
    running.stop().await;
    assert_eq!(before, cluster.nodes.get("node-1").await.unwrap());
}

/// Everything that is logged as a warning or worse.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = format!("{} {}:", event.metadata().level(), event.metadata().target());
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

#[tokio::test]
async fn d27_a_run_without_trouble_warns_of_nothing() {
    let cluster = Cluster::start().await;
    let warnings = Warnings::default();
    let _guard = tracing::subscriber::set_default(warnings.clone());
    let running = cluster.run();
    cluster.join_both().await;
    cluster.vcenter.control().readdress("node-1", &["10.99.0.88/24"]).await.unwrap();
    cluster.until_at("node-1", "10.99.0.88").await;
    cluster.until_two_rounds_passed().await;
    running.stop().await;
    let message = warnings.0.lock().unwrap().clone();
    assert!(message.is_empty(), "{}", message.join("\n"));
}
