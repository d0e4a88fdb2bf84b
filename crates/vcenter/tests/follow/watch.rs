//! What a watch asks of the server and leaves there, through outages and lost sessions.

use std::collections::BTreeMap;

use lab::vcenter::{Fault, HttpFault, HttpFaultKind, Objects, Power};
use vcenter::{Health, Snapshot};
use vsphere::inventory::PowerState;

use crate::{
    guests::has,
    permissions::starts,
    site::{Site, USER, is_current, names, vm, wait_for},
};

/// What one follower of one datacenter has at the server, without an interest in storage.
pub(crate) const ATTACHED: Objects = Objects {
    container_views: 2,
    list_views: 1,
    property_collectors: 1,
    property_filters: 3,
    history_collectors: 0,
    open_pages: 0,
};

async fn objects(site: &Site) -> Vec<Objects> {
    site.simulator.control().objects("cpi").await.unwrap()
}

/// How often SOAP methods were called, by name.
pub(crate) async fn calls(site: &Site) -> BTreeMap<String, u64> {
    let state = site.simulator.control().calls().await.unwrap();
    let mut calls = BTreeMap::new();
    for call in state["calls"].as_array().unwrap() {
        let method = call["method"].as_str().unwrap().to_owned();
        *calls.entry(method).or_default() += call["count"].as_u64().unwrap();
    }
    calls
}

#[tokio::test]
async fn every_change_is_published_from_the_poll_alone_and_no_name_is_resolved_again() {
    let mut site = Site::start(&["dc-1"]).await;
    let node = site.select("node-1").await;
    site.until("its guest is read", |snapshot| snapshot.guest(&node).is_some()).await;
    let before = calls(&site).await;

    let control = site.simulator.control().clone();
    control.power("node-2", Power::Off).await.unwrap();
    site.until("it is off", |snapshot| is(snapshot, "node-2", &PowerState::Off)).await;
    control.readdress("/dc-1/vm/k8s/node-1", &["10.99.0.77/24"]).await.unwrap();
    site.until("it has moved", |snapshot| has(snapshot, &node, "10.99.0.77")).await;
    // Datacenters are known by reference: neither their names nor those of VMs are looked up.
    control.rename("/europe/dc-2", "moved").await.unwrap();
    control.rename("/dc-1/vm/k8s/node-2", "worker-2").await.unwrap();
    site.until("it has its name", |snapshot| vm(snapshot, "worker-2").is_some()).await;
    control.unregister("worker-2").await.unwrap();
    site.until("it is gone", |snapshot| names(snapshot) == ["node-1"]).await;

    let mut after = calls(&site).await;
    after.retain(|method, count| before.get(method) != Some(count));
    assert_eq!(after.keys().collect::<Vec<_>>(), ["WaitForUpdatesEx"], "{before:?}");
    site.stop().await;
}

#[tokio::test]
async fn a_watch_that_starts_again_leaves_nothing_at_the_server() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    assert_eq!(objects(&site).await, [ATTACHED]);
    for fault in ["InvalidCollectorVersion", "SystemError", "ManagedObjectNotFound"] {
        let control = site.simulator.control();
        control.fail(&Fault::next("WaitForUpdatesEx", fault)).await.unwrap();
        control.power("/dc-1/vm/k8s/node-1", Power::Off).await.unwrap();
        control.power("/dc-1/vm/k8s/node-1", Power::On).await.unwrap();
        let armed = async || {
            let state = site.simulator.control().state_as_json().await.unwrap();
            !state["rules"]["calls"].as_array().is_none_or(Vec::is_empty)
        };
        wait_for("the fault was met", async || !armed().await).await;
        wait_for("one watch is left", async || objects(&site).await == [ATTACHED]).await;
    }
    site.current().await;
    let simulator = site.stop().await;
    let left = simulator.control().objects("cpi").await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_watch_that_cannot_be_attached_leaves_nothing_at_the_server() {
    let mut site = Site::start(&["dc-1"]).await;
    let control = site.simulator.control();
    control.fail(&Fault { count: 3, ..Fault::next("CreateFilter", "SystemError") }).await.unwrap();
    site.current().await;
    wait_for("one watch is left", async || objects(&site).await == [ATTACHED]).await;
    site.stop().await;
}

#[tokio::test]
async fn an_expired_session_is_not_an_outage() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    site.simulator.control().expire_sessions().await.unwrap();
    site.simulator.control().power("/dc-1/vm/k8s/node-1", Power::Off).await.unwrap();
    let off = |snapshot: &Snapshot| {
        assert!(is_current(snapshot), "{:?}", snapshot.health());
        is(snapshot, "node-1", &PowerState::Off)
    };
    site.until("the change is seen", off).await;
    site.stop().await;
}

fn is(snapshot: &Snapshot, name: &str, power: &PowerState) -> bool {
    vm(snapshot, name).is_some_and(|vm| vm.power == *power)
}

#[tokio::test]
async fn what_happened_while_vcenter_restarted_is_caught_up_with() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let control = site.simulator.control();
    control.unregister("node-2").await.unwrap();
    control.restart(500).await.unwrap();
    control.power("node-1", Power::Off).await.unwrap();
    let caught_up = |snapshot: &Snapshot| {
        is_current(snapshot)
            && is(snapshot, "node-1", &PowerState::Off)
            && vm(snapshot, "node-2").is_none()
    };
    let snapshot = site.until("it caught up", caught_up).await;
    assert_eq!(names(&snapshot), ["node-1"]);
    site.stop().await;
}

#[tokio::test]
async fn broken_answers_and_a_lost_version_lose_no_change() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let http = |kind| {
        let method = Some("WaitForUpdatesEx".to_owned());
        HttpFault { path: "/sdk".to_owned(), method, kind, count: 2 }
    };
    let broken = [
        Some(http(HttpFaultKind::Status { status: 503 })),
        Some(http(HttpFaultKind::Truncate)),
        Some(http(HttpFaultKind::Reset)),
        None,
    ];
    let lost = Fault::next("WaitForUpdatesEx", "InvalidCollectorVersion");
    let mut name = "node-1".to_owned();
    for (round, broken) in broken.into_iter().enumerate() {
        let control = site.simulator.control();
        let armed = match broken {
            Some(fault) => control.break_http(&fault).await,
            None => control.fail(&lost).await,
        };
        armed.unwrap();
        // The poll that is open is past the fault: a change ends it, and the next one is struck.
        let before = starts(&site).await;
        let power = if round % 2 == 0 { Power::Off } else { Power::On };
        control.power("node-2", power).await.unwrap();
        wait_for("the watch started again", async || starts(&site).await > before).await;
        let other = format!("renamed-{round}");
        control.rename(&name, &other).await.unwrap();
        name = other;
        site.until("the new name is seen", |snapshot| vm(snapshot, &name).is_some()).await;
        site.simulator.control().disarm().await.unwrap();
    }
    let snapshot = site.current().await;
    assert_eq!(names(&snapshot), ["node-2", "renamed-3"]);
    site.stop().await;
}

#[tokio::test]
async fn an_outage_is_reported_with_one_text_and_ends() {
    let mut site = Site::start(&["dc-1"]).await;
    let before = site.current().await;
    site.simulator.control().restart(4000).await.unwrap();
    let snapshot = site.until("it is away", |snapshot| !is_current(snapshot)).await;
    let Health::Unavailable(first) = snapshot.health() else { panic!("{:?}", snapshot.health()) };
    assert_eq!(snapshot.vms().count(), before.vms().count(), "the last state stays");
    loop {
        match site.view.snapshot().health() {
            Health::Unavailable(outage) => assert_eq!(outage, first),
            Health::Current { .. } => break,
            other => panic!("{other:?}"),
        }
        drop(site.view.changed().await);
    }
    assert_eq!(site.view.snapshot().vms().count(), 2);
    site.stop().await;
}

#[tokio::test]
async fn an_aborted_follower_is_logged_out_by_its_sessions() {
    let mut site = Site::start(&[]).await;
    site.current().await;
    let sessions = site.sessions.clone();
    let Site { simulator, tasks, .. } = site;
    drop(tasks);
    assert_eq!(simulator.control().objects("cpi").await.unwrap().len(), 1, "{}", USER.0);
    sessions.close().await;
    wait_for("no session is left", async || {
        simulator.control().objects("cpi").await.unwrap().is_empty()
    })
    .await;
}
