//! What is in a vCenter.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use lab::{
    VCenter,
    vcenter::{Fault, Moment},
};
use vsphere::{
    connection::Connection,
    error::{Error, Remedy},
    inventory::{
        ConnectionState, Controller, Datacenter, Datastore, Host, Nic, PowerState, Uuid, Vm,
        VmSettings, join,
    },
    object,
    reference::Ref,
    soap::Service,
    types::{GuestNicInfo, ManagedEntity, StoragePod, Task, VirtualMachine},
    version::Since,
    xml::{Method, Writer},
};

use crate::site::{
    CPI, CSI, LIMIT, NOBODY, administrator, calls, connect, described, vcenter, vcenter_of,
    wait_for,
};

const NODE_1: &str = "4230b1a0-5eed-4000-8000-000000000001";

/// One VM of each kind that is worth a question.
const WORLD: &str = "
name: vcenter
users:
  - name: administrator@vsphere.local
    password: Lab-admin-1!
    permissions: [{role: Admin, on: /}]
  - name: cpi@vsphere.local
    password: Lab-cpi-1!
    permissions: [{role: ReadOnly, on: /dc/vm/mine}]
datacenters:
  - name: dc
    folders: [vm/mine, vm/theirs]
    networks: [{name: nodes, switch: dvs}, {name: plain}]
    hosts: [{name: esx}]
    datastores: [{name: store, capacity: 1TiB}]
    vms:
      - {name: twin-1, folder: mine, uuid: 56492e42-22ad-3911-6d72-59cc8f26bc90}
      - {name: twin-2, folder: theirs, uuid: 422e4956-ad22-1139-6d72-59cc8f26bc90}
      - {name: template, folder: mine, uuid: 4230b1a0-5eed-4000-8000-000000000009, template: true}
      - name: silent
        folder: mine
        guest: {host_name: silent, no_tools: true}
        nics:
          - {network: nodes, mac: '00:50:56:99:00:01', addresses: [10.99.0.11/24]}
          - {network: plain, mac: '00:50:56:99:00:02', addresses: [10.98.0.11/24]}
";

/// Gives a VM another id, as somebody does who copies one.
struct Renumber(Uuid);

impl Method for Renumber {
    type On = VirtualMachine;
    type Answer = Ref<Task>;
    const NAME: &'static str = "ReconfigVM_Task";
    const SERVICE: Service = Service::Vim;
    const SINCE: Option<Since> = None;

    fn arguments(&self, writer: &mut Writer) {
        writer.open("spec");
        writer.leaf("uuid", &self.0.to_string());
        writer.close("spec");
    }
}

fn uuid(text: &str) -> Uuid {
    text.parse().unwrap()
}

async fn vm(connection: &Connection, name: &str) -> Vm {
    let vms: Vec<Vm> = connection.list().await.unwrap();
    vms.into_iter().find(|vm| vm.name == name).unwrap()
}

async fn datastore(connection: &Connection, name: &str) -> Datastore {
    let all: Vec<Datastore> = connection.list().await.unwrap();
    all.into_iter().find(|one| one.name == name).unwrap()
}

fn names<'a>(datastores: impl IntoIterator<Item = &'a Datastore>) -> BTreeSet<&'a str> {
    datastores.into_iter().map(|datastore| datastore.name.as_str()).collect()
}

/// How many calls of the API there were.
async fn spent(vcenter: &VCenter) -> u64 {
    calls(vcenter).await.values().sum()
}

#[tokio::test]
async fn machines_are_found_by_id_in_every_spelling_on_every_release() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CPI);
        let inventory = connection.inventory();
        let spellings = [
            NODE_1.to_owned(),
            NODE_1.to_uppercase().replace('-', ""),
            uuid(NODE_1).swapped().to_string(),
            "VMware-42 30 b1 a0 5e ed 40 00-80 00 00 00 00 00 00 01".to_owned(),
        ];
        for text in spellings {
            let found = inventory.vms_by_uuid(&[uuid(&text)], None).await.unwrap();
            assert_eq!(found.len(), 1, "{release}: {text}");
            assert_eq!((found[0].name.as_str(), found[0].template), ("node-1", false));
            assert_eq!(found[0].uuid, Some(uuid(NODE_1)));
        }
        let datacenters: Vec<Datacenter> = connection.list().await.unwrap();
        for (name, expected) in [("dc-1", 1), ("dc-2", 0)] {
            let within = &datacenters.iter().find(|one| one.name == name).unwrap().reference;
            let found = inventory.vms_by_uuid(&[uuid(NODE_1)], Some(within)).await.unwrap();
            assert_eq!(found.len(), expected, "{release}: {name}");
        }
    }
}

#[tokio::test]
async fn machines_with_the_same_id_are_all_told_and_templates_are_marked() {
    let vcenter = described(WORLD).await;
    let connection = administrator(&vcenter);
    let inventory = connection.inventory();
    let wanted = [uuid("56492e42-22ad-3911-6d72-59cc8f26bc90")];
    let mut twins = inventory.vms_by_uuid(&wanted, None).await.unwrap();
    twins.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(twins.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["twin-1", "twin-2"]);
    assert_ne!(twins[0].uuid, twins[1].uuid);

    let same = Renumber(twins[0].uuid.unwrap());
    let task = connection.call(&twins[1].reference, &same).await.unwrap();
    let () = connection.wait(&task, Service::Vim, LIMIT).await.unwrap();
    let twins = inventory.vms_by_uuid(&[same.0], None).await.unwrap();
    assert_eq!(twins.len(), 2);
    assert_eq!(twins[0].uuid, twins[1].uuid);

    let template = uuid("4230b1a0-5eed-4000-8000-000000000009");
    let found = inventory.vms_by_uuid(&[template], None).await.unwrap();
    assert_eq!(found.iter().map(|vm| vm.template).collect::<Vec<_>>(), [true]);
}

#[tokio::test]
async fn many_ids_cost_one_list_instead_of_many_searches() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let mut wanted = vec![uuid(NODE_1).swapped()];
    wanted.extend((1..=1000).map(|n| uuid(&format!("{:032x}", 0x5eed_0000_u64 + n))));
    let before = spent(&vcenter).await;
    let found = connection.inventory().vms_by_uuid(&wanted, None).await.unwrap();
    assert_eq!(found.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["node-1"]);
    let spent = spent(&vcenter).await - before;
    assert!(spent < 10, "{spent} calls");
}

#[tokio::test]
async fn datacenters_inside_folders_are_found_by_path() {
    for release in ["6.7U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CSI);
        let inventory = connection.inventory();
        let all: Vec<Datacenter> = connection.list().await.unwrap();
        let dc_2 = &all.iter().find(|one| one.name == "dc-2").unwrap().reference;
        for text in ["/europe/dc-2", "europe/dc-2/"] {
            let found = inventory.by_path(text).await.unwrap();
            assert_eq!(found, Some(dc_2.upcast()), "{release}: {text}");
        }
        for text in ["dc-2", "/dc-2", "/dc-3"] {
            assert_eq!(inventory.by_path(text).await.unwrap(), None, "{release}: {text}");
        }
        let path = inventory.path(dc_2).await.unwrap();
        assert_eq!(path.as_deref(), Some("/europe/dc-2"));
        let root = inventory.by_path("/").await.unwrap().unwrap();
        assert_eq!(root.value(), inventory.root().await.unwrap().value());
    }
}

object! {
    /// Anything that has a name.
    struct Named: ManagedEntity {
        name: String = "name",
    }
}

#[tokio::test]
async fn the_ancestors_of_all_machines_take_two_requests() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CPI);
        let inventory = connection.inventory();
        let vms: Vec<Vm> = connection.list().await.unwrap();
        let references: Vec<_> = vms.iter().map(|vm| vm.reference.clone()).collect();
        // The view of the list is destroyed in the background.
        wait_for("the view is gone", async || calls(&vcenter).await.contains_key("DestroyView"))
            .await;
        let before = spent(&vcenter).await;
        let ancestors = inventory.ancestors(&references).await.unwrap();
        assert_eq!(spent(&vcenter).await - before, 2, "{release}");
        let mut seen = BTreeSet::new();
        for vm in &vms {
            let above = &ancestors[&vm.reference];
            let named: Vec<Named> = connection.read(above).await.unwrap();
            let name = |at: &Ref<ManagedEntity>| {
                named.iter().find(|one| one.reference == *at).map(|one| one.name.as_str())
            };
            let (_root, below) = above.split_last().unwrap();
            let names: Vec<_> = below.iter().filter_map(name).collect();
            seen.insert(format!("{}: {}", vm.name, names.join(" < ")));
            let path = inventory.path(&vm.reference).await.unwrap().unwrap();
            assert!(path.ends_with(&format!("/{}", vm.name)), "{release}: {path}");
            let found = inventory.by_path(&path).await.unwrap();
            assert_eq!(found, Some(vm.reference.upcast::<ManagedEntity>()), "{release}: {path}");
        }
        let expected = [
            "node-1: esx-1.lab.example < cluster-1 < host < dc-1",
            "node-2: esx-2.lab.example < cluster-1 < host < dc-1",
            "old-vm: esx-5.lab.example < esx-5.lab.example < host < dc-2 < europe",
        ];
        assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{release}");
    }
}

#[tokio::test]
async fn a_machine_has_what_plans_need() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CPI);
    let node = vm(&connection, "node-1").await;
    assert!(node.uuid.unwrap().matches(uuid(NODE_1).swapped()));
    assert_eq!(node.power, PowerState::On);
    assert_eq!(node.connection, ConnectionState::Connected);
    assert_eq!((node.cpus, node.hardware_version.as_deref()), (Some(2), Some("vmx-19")));
    assert_eq!((node.host_name.as_deref(), node.tools_run()), (Some("node-1"), true));
    assert_eq!(node.ip_address.as_deref(), Some("10.99.0.11"));
    let path = connection.inventory().path(&node.reference).await.unwrap();
    assert_eq!(path.as_deref(), Some("/dc-1/vm/k8s/node-1"));
}

#[tokio::test]
async fn datastores_are_chosen_by_the_hosts_that_write_to_them() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CSI);
        let inventory = connection.inventory();
        let hosts: Vec<Host> = connection.list().await.unwrap();
        let of = |names: &[&str]| -> Vec<_> {
            let named =
                hosts.iter().filter(|host| names.iter().any(|name| host.name.starts_with(name)));
            named.map(|host| host.reference.clone()).collect()
        };
        let shared = inventory.datastores_shared_by(&of(&["esx-1", "esx-2"])).await.unwrap();
        assert_eq!(names(&shared), BTreeSet::from(["pod-1", "pod-2", "shared-1", "vsan-1"]));
        let shared = inventory.datastores_shared_by(&of(&["esx-1"])).await.unwrap();
        assert!(names(&shared).is_superset(&BTreeSet::from(["local-1", "nfs-1"])), "{release}");
        let shared = inventory.datastores_shared_by(&of(&["esx-1", "esx-3"])).await.unwrap();
        assert_eq!(shared, []);
        assert_eq!(inventory.datastores_shared_by(&[]).await.unwrap(), []);

        let control = vcenter.control();
        control.reach_datastore("shared-1", false).await.unwrap();
        control.free_space("vsan-1", 1 << 20).await.unwrap();
        let shared = inventory.datastores_shared_by(&of(&["esx-1", "esx-2"])).await.unwrap();
        assert_eq!(names(&shared), BTreeSet::from(["pod-1", "pod-2", "vsan-1"]), "{release}");
        let vsan = shared.iter().find(|one| one.name == "vsan-1").unwrap();
        assert_eq!((vsan.free, vsan.capacity), (1 << 20, 8 << 40));
    }
}

#[tokio::test]
async fn datastores_are_found_by_url_and_as_members_of_a_cluster() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let inventory = connection.inventory();
    let url = "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/";
    for text in [url, url.trim_end_matches('/')] {
        let found = inventory.datastores_by_url(text).await.unwrap();
        assert_eq!(names(&found), BTreeSet::from(["shared-1"]));
    }
    assert_eq!(inventory.datastores_by_url("ds:///vmfs/volumes/none/").await.unwrap(), []);
    let pod = datastore(&connection, "pod-1").await.parent.unwrap();
    let cluster: Ref<StoragePod> = pod.cast().unwrap();
    let members = inventory.datastores_in(&cluster).await.unwrap();
    assert_eq!(names(&members), BTreeSet::from(["pod-1", "pod-2"]));
    let path = inventory.path(&cluster).await.unwrap();
    assert_eq!(path.as_deref(), Some("/dc-1/datastore/fast"));
}

object! {
    /// What a guest reports.
    struct Reported: VirtualMachine {
        nics: Vec<GuestNicInfo> = "guest.net",
    }
}

#[tokio::test]
async fn cards_have_the_name_of_their_network_whether_or_not_the_guest_reports() {
    let talking = "
      - name: talking
        nics: [{network: nodes, mac: '00:50:56:99:00:03', addresses: [10.99.0.13/24, 'fd00::13/64']}]
";
    let card = |mac: &str, network: &str, reported| (mac.to_owned(), network.to_owned(), reported);
    let told = |nic: &Nic| (nic.mac.clone().unwrap(), nic.network.clone().unwrap(), nic.reported);
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = described(&format!("release: {release}{WORLD}{talking}")).await;
        let connection = administrator(&vcenter);
        let (silent, talking) = (vm(&connection, "silent").await, vm(&connection, "talking").await);
        assert!(!silent.tools_run() && silent.host_name.is_none() && silent.ip_address.is_none());
        let vms = [silent.reference, talking.reference];
        let cards = connection.inventory().cards(&vms).await.unwrap();
        let reports: Vec<Reported> = connection.read(&vms).await.unwrap();
        let nics: HashMap<_, _> = cards
            .iter()
            .map(|cards| {
                let report = reports.iter().find(|report| report.reference == cards.vm).unwrap();
                (cards.vm.clone(), join(&report.nics, &cards.cards))
            })
            .collect();
        let expected =
            [card("00:50:56:99:00:01", "nodes", false), card("00:50:56:99:00:02", "plain", false)];
        assert_eq!(nics[&vms[0]].iter().map(told).collect::<Vec<_>>(), expected, "{release}");
        let [nic] = &nics[&vms[1]][..] else { panic!("{release}: {nics:?}") };
        assert_eq!(told(nic), card("00:50:56:99:00:03", "nodes", true), "{release}");
        let addresses = ["10.99.0.13", "fd00::13", "fe80::250:56ff:fe99:3"];
        let addresses = addresses.map(|ip| ip.parse::<IpAddr>().unwrap());
        assert_eq!(nic.addresses, addresses, "{release}");
    }
}

#[tokio::test]
async fn devices_are_read_on_every_release() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = connect(&vcenter, CSI);
        let node = vm(&connection, "node-1").await;
        let devices = connection.inventory().devices(&node.reference).await.unwrap().unwrap();
        let disk = devices.iter().find(|device| device.is_disk()).unwrap();
        assert_eq!((disk.label.as_str(), disk.unit_number), ("Hard disk 1", Some(0)), "{release}");
        assert_eq!(disk.capacity, Some(16 << 30));
        assert!(disk.backing.file_name.as_ref().unwrap().starts_with("[shared-1] "));
        assert!(disk.backing.uuid.is_some());
        let controller = devices.iter().find(|one| Some(one.key) == disk.controller_key).unwrap();
        assert_eq!(controller.type_name, "ParaVirtualSCSIController");
        let card = devices.iter().find(|device| device.is_card()).unwrap();
        assert_eq!(card.mac_address.as_deref(), Some("00:50:56:99:00:01"));
        assert!(card.backing.portgroup_key.is_some());
    }
}

#[tokio::test]
async fn devices_of_several_vms_are_read_in_one_request_and_unknown_ones_are_left_out() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let inventory = connection.inventory();
    let nodes =
        [vm(&connection, "node-1").await.reference, vm(&connection, "node-2").await.reference];
    let reads = async || calls(&vcenter).await["RetrievePropertiesEx"];
    let before = reads().await;
    let asked = [nodes[0].clone(), Ref::new("vm-4711"), nodes[1].clone()];
    let devices = inventory.devices_of(&asked).await.unwrap();
    assert_eq!(reads().await, before + 1);
    assert_eq!(devices.len(), 2);
    let disk = devices[&nodes[1]].iter().find(|device| device.is_disk()).unwrap();
    let on = devices[&nodes[1]].iter().find(|one| Some(one.key) == disk.controller_key).unwrap();
    assert_eq!(on.controller(), Some(Controller::Pvscsi));
    assert_eq!(inventory.devices_of(&[]).await.unwrap().len(), 0);

    // A VM without files has no configuration, and nobody knows its disks.
    vcenter.control().assume("InaccessibleConfig", "unset".into()).await.unwrap();
    vcenter.control().reach_vm("node-1", false).await.unwrap();
    let devices = inventory.devices_of(&nodes).await.unwrap();
    assert_eq!(devices.keys().collect::<Vec<_>>(), [&nodes[1]]);
    assert_eq!(inventory.devices(&nodes[0]).await.unwrap(), None);

    // Nor do they when vCenter shows an empty list because the host is away: every VM has devices.
    vcenter.control().assume("OfflineDevices", "empty".into()).await.unwrap();
    vcenter.control().connect_host("esx-2.lab.example", false).await.unwrap();
    assert!(inventory.devices_of(&nodes).await.unwrap().is_empty());
    assert_eq!(inventory.devices(&nodes[1]).await.unwrap(), None);
}

async fn settings(connection: &Connection, vm: &Ref<VirtualMachine>) -> VmSettings {
    connection.inventory().settings(vm).await.unwrap().unwrap()
}

#[tokio::test]
async fn options_of_a_machine_are_read_and_set() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = administrator(&vcenter);
        let inventory = connection.inventory();
        let node = vm(&connection, "node-1").await.reference;
        assert!(settings(&connection, &node).await.shows_disk_uuids(), "{release}");
        let old = vm(&connection, "old-vm").await.reference;
        let before = settings(&connection, &old).await;
        assert!(!before.shows_disk_uuids(), "{release}");
        assert_eq!((before.hardware(), before.option("guestinfo.x")), (Some(13), None));
        let options = [("disk.EnableUUID", "TRUE"), ("guestinfo.x", "<&\">")];
        inventory.set_options(&before, &options, LIMIT).await.unwrap();
        let after = settings(&connection, &old).await;
        assert!(after.shows_disk_uuids(), "{release}");
        assert_eq!(after.disk_uuid_flag, Some(true), "{release}");
        assert_eq!(after.option("GUESTINFO.X").as_deref(), Some("<&\">"));
        assert_ne!(after.change_version, before.change_version);
        let stale = Fault::next("ReconfigVM_Task", "ConcurrentAccess");
        vcenter.control().fail(&stale).await.unwrap();
        let refused = inventory.set_options(&before, &[("guestinfo.x", "")], LIMIT).await;
        assert!(
            matches!(refused, Err(Error { remedy: Remedy::Busy, .. })),
            "{release}: {refused:?}"
        );
        inventory.set_options(&after, &[("guestinfo.x", "")], LIMIT).await.unwrap();
        assert_eq!(settings(&connection, &old).await.option("guestinfo.x"), None);
    }
}

#[tokio::test]
async fn the_virtual_hardware_is_upgraded_once() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let inventory = connection.inventory();
    let old = vm(&connection, "old-vm").await.reference;
    inventory.upgrade_hardware(&old, Some("vmx-15"), LIMIT).await.unwrap();
    assert_eq!(settings(&connection, &old).await.hardware(), Some(15));
    for at in [Moment::Call, Moment::Task] {
        let done = Fault { at, ..Fault::next("UpgradeVM_Task", "AlreadyUpgraded") };
        vcenter.control().fail(&done).await.unwrap();
        inventory.upgrade_hardware(&old, Some("vmx-15"), LIMIT).await.unwrap();
    }
    let running = vm(&connection, "node-1").await.reference;
    let refused = inventory.upgrade_hardware(&running, Some("vmx-20"), LIMIT).await.unwrap_err();
    assert!(
        matches!(
            refused,
            Error { remedy: Remedy::Refused, .. } | Error { remedy: Remedy::Retry, .. }
        ),
        "{refused}"
    );
}

#[tokio::test]
async fn the_time_is_that_of_vcenter() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    vcenter.control().skew_clock(-3_600_000).await.unwrap();
    let time = connection.time().await.unwrap();
    let behind = jiff::Timestamp::now().duration_since(time).as_secs();
    assert!((3500..3700).contains(&behind), "it is {behind} s behind");
}

#[tokio::test]
async fn who_may_see_nothing_is_told_so_and_not_that_there_is_nothing() {
    let vcenter = vcenter().await;
    // vCenter does not even let them in.
    let error = connect(&vcenter, NOBODY).list::<Vm>().await.unwrap_err();
    let Error { remedy: Remedy::NoPermission { object, privilege }, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(object.as_ref().unwrap().kind(), "Folder");
    assert_eq!(privilege.as_deref(), Some("System.View"));
    for user in [CPI, CSI] {
        connect(&vcenter, user).inventory().check_sight().await.unwrap();
    }
    let vcenter = described(WORLD).await;
    let error = connect(&vcenter, CPI).inventory().check_sight().await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NoPermission { .. }, .. }), "{error}");
    assert!(error.to_string().contains("System.Read on Folder "), "{error}");
}

#[tokio::test]
async fn who_may_see_a_part_gets_that_part() {
    let vcenter = described(WORLD).await;
    let connection = connect(&vcenter, CPI);
    let inventory = connection.inventory();
    let vms: Vec<Vm> = connection.list().await.unwrap();
    let mine: BTreeSet<_> = vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(mine, BTreeSet::from(["silent", "template", "twin-1"]));
    let twins = [uuid("56492e42-22ad-3911-6d72-59cc8f26bc90")];
    let found = inventory.vms_by_uuid(&twins, None).await.unwrap();
    assert_eq!(found.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["twin-1"]);
    // The host is not visible, so the way up is not known, and half of it is no answer.
    let error = inventory.ancestors(&[found[0].reference.clone()]).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NoPermission { .. }, .. }), "{error}");
}

#[tokio::test]
async fn what_vanishes_between_list_and_read_is_left_out() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    let inventory = connection.inventory();
    let vms: Vec<Vm> = connection.list().await.unwrap();
    let references: Vec<_> = vms.iter().map(|vm| vm.reference.clone()).collect();
    let node = &vms.iter().find(|vm| vm.name == "node-1").unwrap().reference;
    vcenter.control().unregister("node-1").await.unwrap();
    let left: Vec<Vm> = connection.read(&references).await.unwrap();
    assert_eq!(left.len(), vms.len() - 1);
    assert_eq!(inventory.cards(&references).await.unwrap().len(), left.len());
    assert_eq!(inventory.ancestors(&references).await.unwrap().len(), left.len());
    assert_eq!(inventory.path(node).await.unwrap(), None);
    assert_eq!(inventory.settings(node).await.unwrap(), None);
    assert_eq!(inventory.devices(node).await.unwrap(), None);
    assert_eq!(inventory.vms_by_uuid(&[uuid(NODE_1)], None).await.unwrap(), []);
}
