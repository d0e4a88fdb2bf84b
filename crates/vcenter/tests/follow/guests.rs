//! What is known of selected guests.

use std::{collections::BTreeSet, net::IpAddr};

use vcenter::{Change, Snapshot};
use vsphere::{inventory::ConnectionState, reference::Ref, types::VirtualMachine};

use crate::site::{LIMIT, Site, wait_for};

/// Without the link-local one that every card has besides.
fn addresses(snapshot: &Snapshot, vm: &Ref<VirtualMachine>) -> Vec<IpAddr> {
    let guest = snapshot.guest(vm);
    let nics = guest.map(|guest| guest.nics).unwrap_or_default();
    let link_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    nics.into_iter().flat_map(|nic| nic.addresses).filter(|ip| !link_local(ip)).collect()
}

pub(crate) fn has(snapshot: &Snapshot, vm: &Ref<VirtualMachine>, address: &str) -> bool {
    addresses(snapshot, vm) == [address.parse::<IpAddr>().unwrap()]
}

#[tokio::test]
async fn a_selected_guest_is_known_with_its_network_and_followed() {
    let mut site = Site::start(&["dc-1"]).await;
    let vm = site.select("node-1").await;
    let snapshot = site.until("it is read", |snapshot| has(snapshot, &vm, "10.99.0.11")).await;
    let guest = snapshot.guest(&vm).unwrap();
    assert_eq!(guest.nics[0].network.as_deref(), Some("nodes"));
    assert!(guest.nics[0].device.is_some());
    site.simulator.control().readdress("/dc-1/vm/k8s/node-1", &["10.99.0.77/24"]).await.unwrap();
    let later = site.until("it has moved", |snapshot| has(snapshot, &vm, "10.99.0.77")).await;
    assert!(later.guest(&vm).unwrap().since > guest.since);
    assert!(has(&snapshot, &vm, "10.99.0.11"), "what is held of the past stays");
    site.view.select_guests(BTreeSet::new());
    site.until("it is forgotten", |snapshot| snapshot.guest(&vm).is_none()).await;
    site.stop().await;
}

#[tokio::test]
async fn an_address_that_is_reported_while_cards_are_read_is_not_lost() {
    let mut site = Site::start(&["dc-1"]).await;
    site.current().await;
    let control = site.simulator.control();
    control.delay("RetrievePropertiesEx", 1500, 0).await.unwrap();
    let read = async || {
        let calls = site.simulator.control().calls().await.unwrap();
        let calls = calls["calls"].as_array().unwrap().clone();
        let reads = calls.iter().filter(|call| call["method"] == "RetrievePropertiesEx");
        reads.map(|call| call["count"].as_u64().unwrap()).sum::<u64>()
    };
    let before = read().await;
    let snapshot = site.view.snapshot();
    let vm = snapshot.vms().find(|vm| vm.name == "node-1").unwrap().reference.clone();
    site.view.select_guests(BTreeSet::from([vm.clone()]));
    // Devices come with the first read, the names of networks with the second, and the push in between.
    wait_for("names of networks are read", async || read().await >= before + 2).await;
    control.readdress("/dc-1/vm/k8s/node-1", &["10.99.0.78/24"]).await.unwrap();
    control.disarm().await.unwrap();
    site.until("the new address is there", |snapshot| has(snapshot, &vm, "10.99.0.78")).await;
    site.stop().await;
}

#[tokio::test]
async fn metadata_is_read_again_when_the_configuration_changes() {
    let mut site = Site::start(&["dc-1"]).await;
    let vm = site.select("node-1").await;
    site.until("it is read", |snapshot| snapshot.guest(&vm).is_some()).await;
    let connection = site.connection();
    let settings = connection.inventory().settings(&vm).await.unwrap().unwrap();
    let options = [("guestinfo.metadata", "bG9jYWw="), ("guestinfo.metadata.encoding", "base64")];
    connection.inventory().set_options(&settings, &options, LIMIT).await.unwrap();
    let snapshot = site
        .until("the metadata is there", |snapshot| {
            snapshot.guest(&vm).is_some_and(|guest| guest.metadata == Some("bG9jYWw="))
        })
        .await;
    assert_eq!(snapshot.guest(&vm).unwrap().encoding, Some("base64"));
    connection.close().await;
    site.stop().await;
}

#[tokio::test]
async fn the_cards_of_a_vm_whose_files_are_lost_stay_as_they_were() {
    let mut site = Site::start(&["dc-1"]).await;
    let vm = site.select("node-1").await;
    site.until("it is read", |snapshot| snapshot.guest(&vm).is_some()).await;
    let control = site.simulator.control().clone();
    control.reach_vm("node-1", false).await.unwrap();
    let lost =
        |snapshot: &Snapshot| snapshot.vm(&vm).unwrap().connection == ConnectionState::Inaccessible;
    site.until("it is lost", lost).await;
    // Whatever was read because of that is there with the next change.
    control.readdress("node-1", &["10.99.0.82/24"]).await.unwrap();
    let snapshot = site.until("it has moved", |snapshot| has(snapshot, &vm, "10.99.0.82")).await;
    let guest = snapshot.guest(&vm).unwrap();
    assert!(guest.nics[0].device.is_some() && guest.nics[0].network.is_some(), "{guest:?}");
    control.reach_vm("node-1", true).await.unwrap();
    site.until("it is back", |snapshot| !lost(snapshot)).await;
    site.stop().await;
}

#[tokio::test]
async fn a_change_of_one_vm_is_reported_as_that_vm_and_nothing_else() {
    let mut site = Site::start(&["dc-1"]).await;
    let vm = site.select("node-1").await;
    site.until("it is read", |snapshot| snapshot.guest(&vm).is_some()).await;
    drop(site.view.take_changes());
    let control = site.simulator.control();
    // What the program does not read is not reported.
    control.free_space("/dc-1/datastore/shared-1", 1 << 30).await.unwrap();
    control.maintain_host("/dc-1/host/cluster-1/esx-2.lab.example", true).await.unwrap();
    control.readdress("/europe/dc-2/vm/old-vm", &["10.99.0.99/24"]).await.unwrap();
    // All of that has been reported when the second address is.
    for address in ["10.99.0.79", "10.99.0.80"] {
        let with_mask = format!("{address}/24");
        control.readdress("/dc-1/vm/k8s/node-1", &[&with_mask]).await.unwrap();
        loop {
            let change = tokio::time::timeout(LIMIT, site.view.changed()).await.unwrap();
            assert_eq!(change, Change::Vms(BTreeSet::from([vm.clone()])));
            if has(&site.view.snapshot(), &vm, address) {
                break;
            }
        }
    }
    site.stop().await;
}

#[tokio::test]
async fn a_selected_guest_is_followed_through_a_lost_session() {
    let mut site = Site::start(&["dc-1"]).await;
    let vm = site.select("node-1").await;
    let snapshot = site.until("it is read", |snapshot| snapshot.guest(&vm).is_some()).await;
    let since = snapshot.guest(&vm).unwrap().since;
    site.simulator.control().expire_sessions().await.unwrap();
    site.simulator.control().readdress("/dc-1/vm/k8s/node-2", &["10.99.0.80/24"]).await.unwrap();
    let other = |snapshot: &Snapshot| {
        snapshot.vms().any(|vm| vm.ip_address.as_deref() == Some("10.99.0.80"))
    };
    let snapshot = site.until("the watch is back", other).await;
    assert_eq!(snapshot.guest(&vm).unwrap().since, since, "it reports the same as before");
    site.simulator.control().readdress("/dc-1/vm/k8s/node-1", &["10.99.0.81/24"]).await.unwrap();
    site.until("its change is seen", |snapshot| has(snapshot, &vm, "10.99.0.81")).await;
    site.stop().await;
}
