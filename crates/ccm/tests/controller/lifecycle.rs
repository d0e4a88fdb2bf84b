//! Nodes whose VMs are off, and Nodes whose VMs are gone.
//!
//! That a Node stays is shown by what happens besides: an event that says why, or another Node that goes.

use std::time::Duration;

use ccm::{Context, Settings};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, api::ListParams};
use lab::{
    ControlPlane, VCenter, VCenterSpec, Wait, until,
    vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind, Power},
};
use vsphere::{
    connection::Connection,
    object,
    session::Credentials,
    tls::{Roots, Trust},
    types::{ManagedEntity, Permission},
};

use crate::cluster::{
    BOUND, Cluster, Running, SHUTDOWN, UUIDS, condition_status, has_taint, is_initialised, settings,
};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// A proof counts again when vCenter was asked again, half a minute later.
const LONG_BOUND: Duration = Duration::from_secs(150);
/// More often than anything is asked in a test.
const ALWAYS: u32 = 1_000_000;

object! {
    /// Whatever VMs are in.
    struct Place: ManagedEntity { name: String = "name" }
}

/// No waiting, where waiting is not what is tested.
fn hasty() -> Settings {
    let mut settings = settings(&["--node-deletion-grace=1s", "--vcenter-patience=1s"]);
    settings.lifecycle.checks = 2;
    settings
}

fn run(cluster: &Cluster, settings: Settings) -> Running {
    Running::start(Context::new(cluster.plane.client()), cluster.config(Vec::new()), settings)
}

/// A cluster with the Nodes of the default world, initialised; they are not ready.
async fn two_nodes(settings: Settings) -> (Cluster, Running) {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    cluster.register("node-2", UUIDS[1], None).await;
    let running = run(&cluster, settings);
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.until("node-2", "initialised", is_initialised).await;
    (cluster, running)
}

/// The reasons of all events about a Node.
async fn reasons(cluster: &Cluster, node: &str) -> Result<Vec<String>, kube::Error> {
    let events: Api<Event> = Api::namespaced(cluster.plane.client(), "default");
    let all = events.list(&ListParams::default()).await?.items;
    let of_node = all.into_iter().filter(|one| one.involved_object.name.as_deref() == Some(node));
    Ok(of_node.filter_map(|event| event.reason).collect())
}

async fn until_event(cluster: &Cluster, node: &str, reason: &str) {
    let waited = until("an event with the reason", LONG_BOUND, || async {
        let reasons = reasons(cluster, node).await?;
        let reported = reasons.iter().any(|one| one == reason);
        Ok(if reported { Wait::Done(()) } else { Wait::NotYet(format!("{reasons:?}")) })
    });
    waited.await.unwrap();
}

async fn until_deleted(cluster: &Cluster, node: &str) {
    let waited = until("the Node is deleted", LONG_BOUND, || async {
        let gone = cluster.nodes.get_opt(node).await?.is_none();
        let reasons = reasons(cluster, node).await?;
        Ok(if gone { Wait::Done(()) } else { Wait::NotYet(format!("{reasons:?}")) })
    });
    waited.await.unwrap();
}

async fn exists(cluster: &Cluster, node: &str) -> bool {
    cluster.nodes.get_opt(node).await.unwrap().is_some()
}

/// How often vCenter was asked something.
async fn calls(cluster: &Cluster, method: &str) -> u64 {
    let state = cluster.vcenter.control().state_as_json().await.unwrap();
    let counts = state["calls"]["calls"].as_array().unwrap();
    let of_method = counts.iter().filter(|count| count["method"] == method);
    of_method.filter_map(|count| count["count"].as_u64()).sum()
}

/// Waits until vCenter was asked whether VMs exist in this many more rounds.
async fn until_existence_checks(cluster: &Cluster, rounds: u64) {
    let before = calls(cluster, "HasPrivilegeOnEntities").await;
    let waited = until("more rounds", BOUND, || async {
        let more = calls(cluster, "HasPrivilegeOnEntities").await - before;
        Ok(if more >= rounds { Wait::Done(()) } else { Wait::NotYet(format!("{more}")) })
    });
    waited.await.unwrap();
}

/// Takes all rights on everything of this name from the user of the manager.
async fn hide(vcenter: &VCenter, name: &str) {
    let credentials = Credentials::password(ADMINISTRATOR.0, ADMINISTRATOR.1);
    let mut settings =
        vsphere::connection::Settings::new(vcenter.url().parse().unwrap(), credentials);
    settings.trust =
        Trust::Verify { roots: Roots::File(vcenter.authority().to_owned()), thumbprint: None };
    let administrator = Connection::new(&settings).unwrap();
    let roles = administrator.authorization().roles().await.unwrap();
    let role_id = roles.iter().find(|role| role.name == "NoAccess").unwrap().role_id;
    let principal = "VSPHERE.LOCAL\\cpi".to_owned();
    let none = Permission { principal, role_id, propagate: true, ..Permission::default() };
    let places: Vec<Place> = administrator.list().await.unwrap();
    for place in places.into_iter().filter(|place| place.name == name) {
        let authorization = administrator.authorization();
        authorization.set_permission(&place.reference, none.clone()).await.unwrap();
    }
    administrator.close().await;
}

#[tokio::test]
async fn a_node_that_is_not_ready_because_its_vm_is_off_is_tainted_until_it_is_back() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    cluster.ready("node-1", true).await;
    let running = cluster.run();
    cluster.until("node-1", "initialised", is_initialised).await;
    cluster.vcenter.control().power("node-1", Power::Off).await.unwrap();
    cluster.ready("node-1", false).await;
    let tainted = |node: &Node| has_taint(node, SHUTDOWN);
    let node = cluster.until("node-1", "tainted", tainted).await;
    assert!(!has_taint(&node, OUT_OF_SERVICE), "nobody asked for that");
    cluster.vcenter.control().power("node-1", Power::On).await.unwrap();
    cluster.ready("node-1", true).await;
    let back = |node: &_| !has_taint(node, SHUTDOWN) && is_initialised(node);
    cluster.until("node-1", "not tainted", back).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_is_out_of_service_only_while_its_vm_is_off_for_certain() {
    let cluster = Cluster::start().await;
    cluster.register("node-1", UUIDS[0], None).await;
    let running = run(&cluster, settings(&["--out-of-service-taint", "--vcenter-patience=1s"]));
    cluster.until("node-1", "initialised", is_initialised).await;
    let control = cluster.vcenter.control();
    control.power("node-1", Power::Off).await.unwrap();
    let both = |node: &_| has_taint(node, SHUTDOWN) && has_taint(node, OUT_OF_SERVICE);
    let node = cluster.until("node-1", "both taints", both).await;
    let taints = node.spec.unwrap().taints.unwrap();
    let taint = taints.iter().find(|taint| taint.key == OUT_OF_SERVICE).unwrap();
    assert_eq!(taint.effect, "NoExecute");
    // A host that does not answer may run the VM after all.
    control.connect_host("esx-1.lab.example", false).await.unwrap();
    let shut_down = |node: &_| has_taint(node, SHUTDOWN) && !has_taint(node, OUT_OF_SERVICE);
    cluster.until("node-1", "in service, because nobody knows", shut_down).await;
    control.connect_host("esx-1.lab.example", true).await.unwrap();
    cluster.until("node-1", "out of service again", both).await;
    // The kubelet says nothing yet, but volumes must not move while the VM runs.
    control.power("node-1", Power::On).await.unwrap();
    cluster.until("node-1", "in service, because it runs", shut_down).await;
    cluster.ready("node-1", true).await;
    let free = |node: &_| !has_taint(node, SHUTDOWN) && !has_taint(node, OUT_OF_SERVICE);
    cluster.until("node-1", "free of taints", free).await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_was_destroyed_is_deleted_and_says_so() {
    let (cluster, running) = two_nodes(hasty()).await;
    assert_eq!(calls(&cluster, "CreateCollectorForTasks").await, 0, "all is well");
    cluster.vcenter.control().delete("node-1").await.unwrap();
    until_deleted(&cluster, "node-1").await;
    until_event(&cluster, "node-1", "DeletingNode").await;
    // Nothing was refused on the way: that would have worried somebody.
    let reported = reasons(&cluster, "node-1").await.unwrap();
    assert!(
        !reported
            .iter()
            .any(|reason| ["NoRemovalRecord", "TaskHistoryUnreadable"].contains(&reason.as_str())),
        "{reported:?}"
    );
    assert!(exists(&cluster, "node-2").await);
    running.stop().await;
}

#[tokio::test]
async fn a_ready_node_stays_though_its_vm_was_destroyed() {
    let (cluster, running) = two_nodes(hasty()).await;
    cluster.ready("node-1", true).await;
    cluster.vcenter.control().delete("node-1").await.unwrap();
    let unfound = |node: &_| condition_status(node, "VSphereReady") != Some("True");
    cluster.until("node-1", "a condition that says so", unfound).await;
    assert_eq!(calls(&cluster, "HasPrivilegeOnEntities").await, 0);
    cluster.ready("node-1", false).await;
    until_deleted(&cluster, "node-1").await;
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_was_unregistered_stays_and_vcenter_is_asked_for_it_once() {
    let (cluster, running) = two_nodes(hasty()).await;
    cluster.vcenter.control().unregister("node-1").await.unwrap();
    until_event(&cluster, "node-1", "VmUnregistered").await;
    until_existence_checks(&cluster, 3).await;
    assert_eq!(calls(&cluster, "CreateCollectorForTasks").await, 1);
    assert_eq!(calls(&cluster, "DestroyCollector").await, 1);
    assert!(exists(&cluster, "node-1").await);
    running.stop().await;
}

#[tokio::test]
async fn a_history_that_cannot_be_read_keeps_the_node_until_it_can_and_is_not_one_without_a_record()
{
    let (cluster, running) = two_nodes(hasty()).await;
    let silent = Fault::next("CreateCollectorForTasks", "NoPermission");
    let control = cluster.vcenter.control();
    control.fail(&Fault { count: ALWAYS, ..silent }).await.unwrap();
    control.delete("node-1").await.unwrap();
    until_existence_checks(&cluster, 3).await;
    let asked = calls(&cluster, "CreateCollectorForTasks").await;
    assert!(asked <= 2, "once, and once more soon, because the record may come late: {asked}");
    // An event says so after the third time, half a minute later.
    until_event(&cluster, "node-1", "TaskHistoryUnreadable").await;
    let asked = calls(&cluster, "CreateCollectorForTasks").await;
    assert_eq!(asked, 3, "it is asked ever more seldom");
    assert!(exists(&cluster, "node-1").await);
    control.disarm().await.unwrap();
    until_deleted(&cluster, "node-1").await;
    let reported = reasons(&cluster, "node-1").await.unwrap();
    assert!(!reported.iter().any(|reason| reason == "NoRemovalRecord"), "{reported:?}");
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_went_with_its_host_stays_because_nothing_records_how_it_went() {
    let (cluster, running) = two_nodes(hasty()).await;
    cluster.vcenter.control().delete("esx-1.lab.example").await.unwrap();
    until_event(&cluster, "node-1", "NoRemovalRecord").await;
    assert!(exists(&cluster, "node-1").await);
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_vm_the_user_may_not_see_any_more_stays_though_it_is_destroyed_then() {
    let (cluster, running) = two_nodes(hasty()).await;
    // The folder and the resource pool of both.
    hide(&cluster.vcenter, "k8s").await;
    // A watch that has seen a VM does not learn of this; the next one does.
    cluster.vcenter.control().expire_sessions().await.unwrap();
    until_event(&cluster, "node-1", "VmStillThere").await;
    cluster.vcenter.control().delete("node-1").await.unwrap();
    until_event(&cluster, "node-1", "FolderNotVisible").await;
    assert!(exists(&cluster, "node-1").await);
    assert!(exists(&cluster, "node-2").await);
    running.stop().await;
}

#[tokio::test]
async fn an_outage_of_vcenter_deletes_nothing_and_the_proof_begins_anew_after_it() {
    let (cluster, running) = two_nodes({
        let mut settings = hasty();
        settings.lifecycle.checks = 3;
        settings
    })
    .await;
    let control = cluster.vcenter.control();
    control.delete("node-1").await.unwrap();
    until_existence_checks(&cluster, 2).await;
    let kind = HttpFaultKind::Status { status: 503 };
    let outage = HttpFault { path: "/sdk".to_owned(), method: None, kind, count: ALWAYS };
    control.break_http(&outage).await.unwrap();
    for name in ["node-1", "node-2"] {
        let unknown = |node: &_| condition_status(node, "VSphereReady") == Some("Unknown");
        cluster.until(name, "a condition that says so", unknown).await;
    }
    let before = calls(&cluster, "HasPrivilegeOnEntities").await;
    assert!(exists(&cluster, "node-1").await);
    control.disarm().await.unwrap();
    until_deleted(&cluster, "node-1").await;
    let checks = calls(&cluster, "HasPrivilegeOnEntities").await - before;
    assert!(checks >= 3, "{checks}");
    assert!(exists(&cluster, "node-2").await);
    running.stop().await;
}

#[tokio::test]
async fn a_node_whose_host_and_storage_are_lost_stays_while_another_goes() {
    let (cluster, running) = two_nodes(hasty()).await;
    let control = cluster.vcenter.control();
    control.reach_datastore("shared-1", false).await.unwrap();
    control.connect_host("esx-1.lab.example", false).await.unwrap();
    control.delete("node-2").await.unwrap();
    until_deleted(&cluster, "node-2").await;
    let node = cluster.nodes.get("node-1").await.unwrap();
    assert!(node.metadata.deletion_timestamp.is_none(), "{node:?}");
    running.stop().await;
}

#[tokio::test]
async fn of_four_vms_that_are_destroyed_at_once_three_nodes_go_and_the_fourth_waits_over_a_reload()
{
    let spec = VCenterSpec { generated_vms: 2, ..VCenterSpec::default() };
    let (plane, vcenter) = tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
    let nodes = Api::all(plane.client());
    let cluster = Cluster { plane, vcenter, nodes };
    let names = ["node-1", "node-2", "generated-00001", "generated-00002"];
    for name in names {
        // By its name: nobody knows the ids of VMs that are made up.
        cluster.register(name, "", None).await;
    }
    let context = Context::new(cluster.plane.client());
    let run = || Running::start(context.clone(), cluster.config(Vec::new()), hasty());
    let running = run();
    for name in names {
        cluster.until(name, "initialised", is_initialised).await;
    }
    let control = cluster.vcenter.control();
    for name in names {
        control.delete(name).await.unwrap();
    }
    let waited = until("three Nodes gone and one that waits", LONG_BOUND, || async {
        let left = cluster.nodes.list(&ListParams::default()).await?.items;
        let mut waiting = 0;
        for node in &left {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            let reported = reasons(&cluster, name).await?;
            waiting += usize::from(reported.iter().any(|one| one == "TooManyDeletions"));
        }
        let done = (left.len(), waiting) == (1, 1);
        Ok(if done { Wait::Done(()) } else { Wait::NotYet(format!("{} left", left.len())) })
    });
    waited.await.unwrap();
    // A changed configuration is a new run in the same process, which knows what the last one deleted.
    running.stop().await;
    let running = run();
    let again = until("the fourth waits in the new run", LONG_BOUND, || async {
        let times = cluster.event_count("TooManyDeletions").await;
        Ok(if times > 1 { Wait::Done(()) } else { Wait::NotYet(format!("reported {times} times")) })
    });
    again.await.unwrap();
    assert_eq!(cluster.nodes.list(&ListParams::default()).await.unwrap().items.len(), 1);
    running.stop().await;
}
