//! Which VM a Node is, and when nothing may be concluded.

use ccm::discovery::{Census, Finding, How, VCenter, Wanted};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};
use vsphere::inventory::{PowerState, Uuid, Vm};

use crate::build::{
    EAST, OTHER, SWAPPED, UUID, WEST, at, east, merge, node, off, silence, silent, vm, west,
};

fn find<'a>(node: &Node, vcenters: &[VCenter<'a>]) -> Finding<'a> {
    Census::new(vcenters).find(&Wanted::of(node))
}

/// What was found, in short: the reference and how, or what else.
fn short(finding: &Finding<'_>) -> String {
    match finding {
        Finding::Found(machine, how) => {
            format!("{} by {}", machine.vm.reference.value(), how.name())
        }
        Finding::Ambiguous(machines, _) => format!("ambiguous {}", machines.len()),
        Finding::CloneOf(_, machines) => format!("clones {}", machines.len()),
        Finding::Replaced(machine) => format!("replaced {}", machine.vm.reference.value()),
        Finding::Unknown(silent) => format!("unknown {}", silent.len()),
        Finding::Absent(_) => "absent".to_owned(),
        Finding::NotOurs => "not ours".to_owned(),
    }
}

fn provider(id: &str) -> Value {
    json!({"spec": {"providerID": id}})
}

fn system(uuid: &str) -> Value {
    let mut info = json!({});
    for key in ["architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "machineID"] {
        info[key] = json!("");
    }
    for key in ["kubeProxyVersion", "kubeletVersion", "operatingSystem", "osImage"] {
        info[key] = json!("");
    }
    info["systemUUID"] = json!(uuid);
    json!({"status": {"nodeInfo": info}})
}

fn both(mut one: Value, other: Value) -> Value {
    merge(&mut one, other);
    one
}

fn recorded(vcenter: &str, vm: &str) -> Value {
    let annotations = json!({
        "ccm.vsphere.vmware.com/vcenter": vcenter,
        "ccm.vsphere.vmware.com/vm": vm,
    });
    json!({"metadata": {"annotations": annotations}})
}

#[test]
fn ids_find_a_vm_in_both_byte_orders_with_and_without_dashes() {
    let own = vm("vm-1", UUID, "somebody", &[]);
    let other = vm("vm-2", OTHER, "node-1", &[]);
    let check = |fields: Value, expected: &str| {
        let found = find(&node(fields.clone()), &[east(&[&own, &other])]);
        assert_eq!(short(&found), expected, "{fields}");
    };
    check(provider(&format!("vsphere://{UUID}")), "vm-1 by provider id");
    check(provider(&format!("vsphere://{SWAPPED}")), "vm-1 by provider id");
    check(system(UUID), "vm-1 by system UUID");
    check(system(SWAPPED), "vm-1 by system UUID");
    check(system(&SWAPPED.to_uppercase().replace('-', "")), "vm-1 by system UUID");
    check(json!({}), "vm-2 by host name");
}

#[test]
fn d3_a_node_of_another_cloud_is_not_looked_for() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let found = find(&node(provider("k3s://node-1")), &[east(&[&own])]);
    assert_eq!(found, Finding::NotOurs);
}

#[test]
fn names_match_in_any_case_and_with_or_without_domain() {
    let check = |guest: &str, name: &str, found: bool| {
        let own = vm("vm-1", UUID, guest, &[]);
        let node = node(json!({"metadata": {"name": name}}));
        let finding = find(&node, &[east(&[&own])]);
        assert_eq!(matches!(finding, Finding::Found(_, How::Name)), found, "{guest} {name}");
    };
    check("WIN-1", "win-1", true);
    check("node-1.example.test", "node-1", true);
    check("node-1", "node-1.example.test", true);
    check("node-1.a.test", "node-1.b.test", false);
    check("node-10", "node-1", false);
    let (exact, longer) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1.b", &[]));
    let found = find(&node(json!({})), &[east(&[&exact, &longer])]);
    assert_eq!(short(&found), "vm-1 by host name");
}

#[test]
fn two_vms_with_the_nodes_name_are_refused() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let found = find(&node(json!({})), &[east(&[&one, &two])]);
    assert_eq!(short(&found), "ambiguous 2");
}

#[test]
fn d29_two_vms_in_two_vcenters_with_the_nodes_name_are_refused_and_named() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let found = find(&node(json!({})), &[east(&[&one]), west(&[&two])]);
    let Finding::Ambiguous(machines, How::Name) = found else { panic!("{found:?}") };
    let names: Vec<String> = machines.iter().map(ToString::to_string).collect();
    let expected = ["node-1-in-inventory (vm-1) in east", "node-1-in-inventory (vm-2) in west"];
    assert_eq!(names, expected);
}

#[test]
fn an_address_finds_a_vm_unless_several_hold_it_or_the_name_says_another() {
    let fields = json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}});
    let (own, other) =
        (vm("vm-1", UUID, "x", &["10.0.0.1"]), vm("vm-2", OTHER, "y", &["10.0.0.1"]));
    assert_eq!(short(&find(&node(fields.clone()), &[east(&[&own])])), "vm-1 by address");
    assert_eq!(short(&find(&node(fields.clone()), &[east(&[&own, &other])])), "ambiguous 2");
    let named = vm("vm-3", OTHER, "node-1", &["10.0.0.3"]);
    assert_eq!(short(&find(&node(fields.clone()), &[east(&[&own, &named])])), "ambiguous 2");
    let mut bridge = vm("vm-4", UUID, "x", &["10.0.0.1"]);
    bridge.nics[0].device_config_id = -1;
    assert_eq!(short(&find(&node(fields), &[east(&[&bridge])])), "absent");
}

#[test]
fn templates_are_nobody() {
    let mut template = vm("vm-1", UUID, "node-1", &[]);
    template.template = true;
    assert_eq!(short(&find(&node(system(UUID)), &[east(&[&template])])), "absent");
}

#[test]
fn cloned_bios_ids_are_told_apart_by_record_or_refused() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", UUID, "node-2", &[]));
    let id = provider(&format!("vsphere://{UUID}"));
    let check = |fields: Value, vms: &[&Vm], expected: &str| {
        assert_eq!(short(&find(&node(fields), &[east(vms)])), expected);
    };
    check(id.clone(), &[&one, &two], "clones 2");
    check(system(UUID), &[&one, &two], "clones 2");
    check(both(id.clone(), recorded(EAST, "vm-2")), &[&one, &two], "vm-2 by provider id");
    // The record of another vCenter says nothing here.
    check(both(id, recorded(WEST, "vm-2")), &[&one, &two], "clones 2");
    // A copy that never runs, as backups leave it, is no reason to refuse the one that does.
    let copy = off(two);
    check(system(UUID), &[&one, &copy], "vm-1 by system UUID");
    let stranger = Vm { host_name: Some("node-9".to_owned()), ..one };
    check(system(UUID), &[&stranger, &copy], "clones 2");
}

#[test]
fn a_node_made_anew_under_an_old_name_is_not_the_old_vm() {
    let (old, new) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let fields = both(provider(&format!("vsphere://{UUID}")), system(OTHER));
    assert_eq!(short(&find(&node(fields.clone()), &[east(&[&new])])), "replaced vm-2");
    let old = off(old);
    assert_eq!(short(&find(&node(fields.clone()), &[east(&[&old, &new])])), "replaced vm-2");
    // A kernel that sees an id of its own does not contradict the provider id.
    let own = vm("vm-1", UUID, "node-1", &[]);
    assert_eq!(short(&find(&node(fields), &[east(&[&own])])), "vm-1 by provider id");
}

#[test]
fn a_vm_is_found_wherever_it_went() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let moved = vm("vm-77", UUID, "node-1", &[]);
    let fields = both(provider(&format!("vsphere://{UUID}")), recorded(EAST, "vm-1"));
    assert_eq!(
        short(&find(&node(fields.clone()), &[east(&[]), west(&[&moved])])),
        "vm-77 by provider id"
    );
    // While it moves, both have it.
    let found = find(&node(fields), &[east(&[&own]), west(&[&moved])]);
    assert_eq!(short(&found), "vm-1 by provider id");
}

#[test]
fn an_inaccessible_vm_without_id_is_still_the_recorded_one() {
    let lost = Vm { uuid: None, power: PowerState::Unknown, ..vm("vm-1", UUID, "", &[]) };
    let fields = both(provider(&format!("vsphere://{UUID}")), recorded(EAST, "vm-1"));
    let found = find(&node(fields), &[east(&[&lost])]);
    assert_eq!(short(&found), "vm-1 by recorded reference");
}

#[test]
fn d10_a_dead_vcenter_delays_nobody_who_is_found_elsewhere() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let vcenters = [silent(west(&[])), east(&[&own])];
    let check = |fields: Value, expected: &str| {
        assert_eq!(short(&find(&node(fields), &vcenters)), expected);
    };
    check(provider(&format!("vsphere://{UUID}")), "vm-1 by provider id");
    check(system(UUID), "vm-1 by system UUID");
    check(provider(&format!("vsphere://{OTHER}")), "unknown 1");
    // A name may be there twice.
    check(json!({}), "unknown 1");
}

#[test]
fn who_is_not_found_is_unknown_until_every_vcenter_answered() {
    let node = node(provider(&format!("vsphere://{UUID}")));
    let check = |vcenters: &[VCenter<'_>], expected: Finding<'_>| {
        assert_eq!(find(&node, vcenters), expected);
    };
    check(&[], Finding::Unknown(vec![]));
    check(&[silent(east(&[]))], Finding::Unknown(vec![silence("east")]));
    check(&[east(&[]), silent(west(&[]))], Finding::Unknown(vec![silence("west")]));
    let found = find(&node, &[east(&[]), west(&[])]);
    let Finding::Absent(absence) = found else { panic!("{found:?}") };
    assert_eq!((absence.uuid, absence.asked_at), (UUID.parse().ok(), at(0)));
    assert_eq!(absence.vcenters, ["east", "west"]);
    // What a silent vCenter once showed is not looked at.
    let own = vm("vm-1", UUID, "node-1", &[]);
    check(&[silent(east(&[&own]))], Finding::Unknown(vec![silence("east")]));
}

#[test]
fn byte_orders_are_swapped_as_ever() {
    let uuid: Uuid = UUID.to_uppercase().parse().unwrap();
    assert_eq!(uuid.swapped().to_string(), SWAPPED);
    assert_eq!(uuid.swapped().swapped().to_string(), UUID);
    assert!("".parse::<Uuid>().is_err());
}

proptest! {
    #[test]
    fn nobody_is_absent_while_somebody_is_silent(which in 0..4_u8, ours in any::<bool>()) {
        let own = vm("vm-1", UUID, "node-1", &["10.0.0.1"]);
        let shown: &[&Vm] = if which & 1 == 0 { &[] } else { &[&own] };
        let fields = if ours { provider(&format!("vsphere://{OTHER}")) } else { json!({}) };
        let found = find(&node(fields), &[silent(west(&[])), east(shown)]);
        assert!(!matches!(found, Finding::Absent(_)));
    }
}
