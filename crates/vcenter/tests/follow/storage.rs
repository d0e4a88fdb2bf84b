//! Hosts and datastores, for a program with an interest in storage.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_config::{CredentialSource, Inline};
use lab::{
    VCenterSpec,
    vcenter::{Objects, Power},
};
use vcenter::{Change, Interests, Snapshot, StorageInterest};
use vsphere::inventory::{ConnectionState, Datastore, Host};

use crate::{
    permissions::starts,
    site::{LIMIT, Site, is_current, section, vm},
    watch::{ATTACHED, calls},
};

pub(crate) const CSI: (&str, &str) = ("csi@vsphere.local", "Lab-csi-1!");
const SHARED: &str = "/dc-1/datastore/shared-1";
const ESX_1: &str = "/dc-1/host/cluster-1/esx-1.lab.example";

/// The interest in storage; nothing that happens within a test makes privileges be read again.
pub(crate) fn interests(auth_check: Duration) -> Interests {
    Interests { storage: Some(StorageInterest { auth_check }), ..Interests::default() }
}

pub(crate) async fn simulator() -> lab::VCenter {
    lab::VCenter::start(&VCenterSpec::default()).await.unwrap()
}

/// Follows a datacenter as the CSI driver does.
pub(crate) fn follow(simulator: lab::VCenter, auth_check: Duration) -> Site {
    let mut section = section(&simulator, &["dc-1"]);
    let inline = Inline { user: CSI.0.to_owned(), password: CSI.1.into() };
    section.credentials = CredentialSource::Inline(inline);
    Site::follow(simulator, section, &interests(auth_check))
}

pub(crate) const SELDOM: Duration = Duration::from_secs(3600);

pub(crate) fn datastore<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Datastore> {
    snapshot.datastores().find(|store| store.name == name).map(AsRef::as_ref)
}

fn host<'a>(snapshot: &'a Snapshot, vm_name: &str) -> &'a Host {
    snapshot.host(vm(snapshot, vm_name).unwrap().host.as_ref().unwrap()).unwrap()
}

#[tokio::test]
async fn datastores_are_known_with_their_hosts_space_and_place() {
    let mut site = follow(simulator().await, SELDOM);
    let snapshot = site.current().await;
    let mut names: Vec<_> = snapshot.datastores().map(|store| store.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["local-1", "local-2", "nfs-1", "pod-1", "pod-2", "shared-1", "vsan-1"]);

    let shared = datastore(&snapshot, "shared-1").unwrap();
    assert_eq!(snapshot.datastore(&shared.reference).map(AsRef::as_ref), Some(shared));
    assert_eq!(snapshot.datastore_path(shared).as_deref(), Some(SHARED));
    assert_eq!(snapshot.datastore_cluster(shared), None);
    assert_eq!((shared.capacity, shared.free), (2 << 40, 1500 << 30));
    assert_eq!(shared.url, "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/");
    assert!(shared.is_usable() && !shared.suspended() && shared.unreadable.is_empty());
    let (one, two) = (host(&snapshot, "node-1"), host(&snapshot, "node-2"));
    let writers: BTreeSet<_> = shared.writers().collect();
    assert_eq!(writers, BTreeSet::from([&one.reference, &two.reference]));
    let local = datastore(&snapshot, "local-1").unwrap();
    assert_eq!(local.writers().collect::<Vec<_>>(), [&one.reference]);

    let pod = datastore(&snapshot, "pod-1").unwrap();
    assert_eq!(snapshot.datastore_path(pod).as_deref(), Some("/dc-1/datastore/fast/pod-1"));
    assert_eq!(snapshot.datastore_cluster(pod), Some("fast"));

    assert_eq!((one.name.as_str(), one.maintenance), ("esx-1.lab.example", false));
    assert_eq!(one.connection, ConnectionState::Connected);
    assert!(
        one.datastores.contains(&local.reference) && !two.datastores.contains(&local.reference)
    );

    let node = vm(&snapshot, "node-1").unwrap();
    let uuid = "4230b1a0-5eed-4000-8000-000000000001".parse().unwrap();
    let found = snapshot.vm_by_uuid(&uuid);
    assert_eq!(found.iter().map(|vm| &vm.reference).collect::<Vec<_>>(), [&node.reference]);
    site.stop().await;
}

#[tokio::test]
async fn what_happens_to_storage_is_in_the_next_snapshot_and_wakes_nobody() {
    let mut site = follow(simulator().await, SELDOM);
    let before = site.current().await;
    let requests = calls(&site).await;
    drop(site.view.take_changes());
    let control = site.simulator.control().clone();
    let shared = |snapshot: &Snapshot| datastore(snapshot, "shared-1").unwrap().clone();

    control.free_space(SHARED, 4096).await.unwrap();
    site.until("it is full", |snapshot| shared(snapshot).free == 4096).await;
    control.maintain_datastore(SHARED, true).await.unwrap();
    site.until("it is in maintenance", |snapshot| !shared(snapshot).is_usable()).await;
    control.maintain_datastore(SHARED, false).await.unwrap();
    site.until("it is usable", |snapshot| shared(snapshot).is_usable()).await;
    control.suspend_datastore(SHARED, true).await.unwrap();
    site.until("it is suspended", |snapshot| shared(snapshot).suspended()).await;
    control.suspend_datastore(SHARED, false).await.unwrap();
    site.until("it is not suspended", |snapshot| !shared(snapshot).suspended()).await;
    control.reach_datastore_from(SHARED, ESX_1, false).await.unwrap();
    let snapshot =
        site.until("one host lost it", |snapshot| shared(snapshot).writers().count() == 1).await;
    let left = host(&snapshot, "node-2").reference.clone();
    assert_eq!(shared(&snapshot).writers().collect::<Vec<_>>(), [&left]);
    assert!(shared(&snapshot).is_usable());
    control.reach_datastore(SHARED, false).await.unwrap();
    site.until("nobody reaches it", |snapshot| !shared(snapshot).is_usable()).await;
    control.reach_datastore(SHARED, true).await.unwrap();
    site.until("all reach it", |snapshot| shared(snapshot).writers().count() == 2).await;

    control.maintain_host(ESX_1, true).await.unwrap();
    site.until("a host is in maintenance", |snapshot| host(snapshot, "node-1").maintenance).await;
    assert_eq!(site.view.take_changes(), None);
    control.connect_host(ESX_1, false).await.unwrap();
    let snapshot = site
        .until("the host is lost", |snapshot| {
            host(snapshot, "node-1").connection == ConnectionState::Disconnected
        })
        .await;

    assert_eq!(shared(&before).free, 1500 << 30, "what is held of the past stays");
    let untouched = |snapshot: &Arc<Snapshot>| {
        Arc::clone(snapshot.datastores().find(|store| store.name == "vsan-1").unwrap())
    };
    assert!(Arc::ptr_eq(&untouched(&before), &untouched(&snapshot)));
    let mut after = calls(&site).await;
    after.retain(|method, count| requests.get(method) != Some(count));
    assert_eq!(after.keys().collect::<Vec<_>>(), ["WaitForUpdatesEx"], "{requests:?}");
    site.stop().await;
}

#[tokio::test]
async fn what_cannot_be_read_of_an_inaccessible_datastore_does_not_end_the_watch() {
    let simulator = simulator().await;
    let control = simulator.control().clone();
    control.assume("InaccessibleSummary", "missing".into()).await.unwrap();
    control.reach_datastore("/dc-1/datastore/vsan-1", false).await.unwrap();
    let mut site = follow(simulator, SELDOM);
    let snapshot = site.current().await;
    let vsan = datastore(&snapshot, "vsan-1").unwrap();
    assert!(!vsan.is_usable() && vsan.url.is_empty(), "{vsan:?}");
    assert!(vsan.unreadable.iter().any(|missing| missing.path == "summary.url"), "{vsan:?}");
    let path = snapshot.datastore_path(vsan);
    assert_eq!(path.as_deref(), Some("/dc-1/datastore/vsan-1"));

    let usable = |snapshot: &Snapshot, name| datastore(snapshot, name).unwrap().is_usable();
    control.reach_datastore(SHARED, false).await.unwrap();
    site.until("another is lost", |snapshot| !usable(snapshot, "shared-1")).await;
    control.reach_datastore("/dc-1/datastore/vsan-1", true).await.unwrap();
    let snapshot = site.until("one is back", |snapshot| usable(snapshot, "vsan-1")).await;
    let vsan = datastore(&snapshot, "vsan-1").unwrap();
    assert!(vsan.capacity > 0 && !vsan.url.is_empty(), "{vsan:?}");
    assert!(is_current(&snapshot));
    assert_eq!(starts(&site).await, 1);
    site.stop().await;
}

#[tokio::test]
async fn a_vm_that_moves_to_another_host_is_reported_with_it() {
    let mut site = follow(simulator().await, SELDOM);
    let snapshot = site.current().await;
    let moved = vm(&snapshot, "node-1").unwrap().reference.clone();
    drop(site.view.take_changes());
    let control = site.simulator.control().clone();
    control.migrate("node-1", "esx-2.lab.example").await.unwrap();
    while host(&site.view.snapshot(), "node-1").name != "esx-2.lab.example" {
        let change = tokio::time::timeout(LIMIT, site.view.changed()).await.unwrap();
        assert_eq!(change, Change::Vms(BTreeSet::from([moved.clone()])));
    }
    control.power("node-1", Power::Off).await.unwrap();
    let uuid = vm(&snapshot, "node-1").unwrap().uuid.unwrap();
    let off = |snapshot: &Snapshot| {
        let found = snapshot.vm_by_uuid(&uuid);
        matches!(found[..], [vm] if vm.power == vsphere::inventory::PowerState::Off)
    };
    site.until("it is off", off).await;
    site.stop().await;
}

#[tokio::test]
async fn storage_costs_a_view_and_two_filters_and_programs_without_it_nothing() {
    let mut site = follow(simulator().await, SELDOM);
    site.current().await;
    let with_storage = Objects {
        container_views: ATTACHED.container_views + 1,
        property_filters: ATTACHED.property_filters + 2,
        ..ATTACHED
    };
    let objects = site.simulator.control().objects("csi").await.unwrap();
    assert_eq!(objects, [with_storage]);
    site.stop().await;

    let mut site = Site::start(&["dc-1"]).await;
    let snapshot = site.current().await;
    assert_eq!(site.simulator.control().objects("cpi").await.unwrap(), [ATTACHED]);
    assert_eq!(snapshot.datastores().count(), 0);
    let node = vm(&snapshot, "node-1").unwrap();
    assert!(snapshot.host(node.host.as_ref().unwrap()).is_none());
    assert!(snapshot.vm_by_uuid(&node.uuid.unwrap()).is_empty());
    assert!(!calls(&site).await.contains_key("HasPrivilegeOnEntities"));
    site.stop().await;
}
