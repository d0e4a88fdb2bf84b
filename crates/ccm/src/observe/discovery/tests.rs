//! Which VM a Node is, and when nothing may be concluded.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{any, prop, proptest};
use serde_json::{Value, json};
use vcenter::Health;
use vsphere::{
    inventory::{PowerState, Uuid, Vm},
    reference::Ref,
};

use super::{Directory, Finding, How, Lookup};
use crate::test_support::{
    EAST, OTHER, SWAPPED, UUID, VCenter, WEST, at, directory, east, merge, node, off, outage,
    partial, renamed, unavailable, vm, west,
};

/// What is found for a Node, in short: the reference and how, or what else.
fn find(node: &Node, vcenters: &[VCenter]) -> String {
    short(&directory(vcenters).find(&Lookup::of(node)))
}

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
        assert_eq!(found, expected, "{fields}");
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
    assert_eq!(find(&node(provider("k3s://node-1")), &[east(&[&own])]), "not ours");
}

#[test]
fn names_match_in_any_case_and_with_or_without_domain() {
    let check = |guest: &str, name: &str, found: bool| {
        let own = vm("vm-1", UUID, guest, &[]);
        let node = node(json!({"metadata": {"name": name}}));
        let finding = find(&node, &[east(&[&own])]);
        assert_eq!(finding == "vm-1 by host name", found, "{guest} {name}");
    };
    check("WIN-1", "win-1", true);
    check("node-1.example.test", "node-1", true);
    check("node-1", "node-1.example.test", true);
    check("node-1.a.test", "node-1.b.test", false);
    check("node-10", "node-1", false);
    let (exact, longer) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1.b", &[]));
    let found = find(&node(json!({})), &[east(&[&exact, &longer])]);
    assert_eq!(found, "vm-1 by host name");
}

#[test]
fn two_vms_with_the_nodes_name_are_refused() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let found = find(&node(json!({})), &[east(&[&one, &two])]);
    assert_eq!(found, "ambiguous 2");
}

#[test]
fn d29_two_vms_in_two_vcenters_with_the_nodes_name_are_refused_and_named() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let directory = directory(&[east(&[&one]), west(&[&two])]);
    let found = directory.find(&Lookup::of(&node(json!({}))));
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
    assert_eq!(find(&node(fields.clone()), &[east(&[&own])]), "vm-1 by address");
    assert_eq!(find(&node(fields.clone()), &[east(&[&own, &other])]), "ambiguous 2");
    let named = vm("vm-3", OTHER, "node-1", &["10.0.0.3"]);
    assert_eq!(find(&node(fields), &[east(&[&own, &named])]), "ambiguous 2");
}

#[test]
fn templates_are_nobody() {
    let mut template = vm("vm-1", UUID, "node-1", &[]);
    template.template = true;
    assert_eq!(find(&node(system(UUID)), &[east(&[&template])]), "absent");
}

#[test]
fn cloned_bios_ids_are_told_apart_by_record_or_refused() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", UUID, "node-2", &[]));
    let id = provider(&format!("vsphere://{UUID}"));
    let check = |fields: Value, vms: &[&Vm], expected: &str| {
        assert_eq!(find(&node(fields), &[east(vms)]), expected);
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
    assert_eq!(find(&node(fields.clone()), &[east(&[&new])]), "replaced vm-2");
    let old = off(old);
    assert_eq!(find(&node(fields.clone()), &[east(&[&old, &new])]), "replaced vm-2");
    // A kernel that sees an id of its own does not contradict the provider id.
    let own = vm("vm-1", UUID, "node-1", &[]);
    assert_eq!(find(&node(fields), &[east(&[&own])]), "vm-1 by provider id");
}

#[test]
fn a_vm_is_found_wherever_it_went() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let moved = vm("vm-77", UUID, "node-1", &[]);
    let fields = both(provider(&format!("vsphere://{UUID}")), recorded(EAST, "vm-1"));
    let found = find(&node(fields.clone()), &[east(&[]), west(&[&moved])]);
    assert_eq!(found, "vm-77 by provider id");
    // While it moves, both have it.
    let found = find(&node(fields), &[east(&[&own]), west(&[&moved])]);
    assert_eq!(found, "vm-1 by provider id");
}

#[test]
fn an_inaccessible_vm_without_id_is_still_the_recorded_one() {
    let lost = Vm { uuid: None, power: PowerState::Unknown, ..vm("vm-1", UUID, "", &[]) };
    let fields = both(provider(&format!("vsphere://{UUID}")), recorded(EAST, "vm-1"));
    let found = find(&node(fields), &[east(&[&lost])]);
    assert_eq!(found, "vm-1 by recorded reference");
}

#[test]
fn d10_a_dead_vcenter_delays_nobody_who_is_found_elsewhere() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let vcenters = [unavailable(west(&[])), east(&[&own])];
    let check = |fields: Value, expected: &str| {
        assert_eq!(find(&node(fields), &vcenters), expected);
    };
    check(provider(&format!("vsphere://{UUID}")), "vm-1 by provider id");
    check(system(UUID), "vm-1 by system UUID");
    check(provider(&format!("vsphere://{OTHER}")), "unknown 1");
    // A name may be there twice.
    check(json!({}), "unknown 1");
}

#[test]
fn a_vm_that_is_not_found_is_unknown_until_every_vcenter_answered() {
    let node = node(provider(&format!("vsphere://{UUID}")));
    let own = vm("vm-1", UUID, "node-1", &[]);
    assert_eq!(find(&node, &[]), "unknown 0");
    assert_eq!(find(&node, &[unavailable(east(&[]))]), "unknown 1");
    // What an unavailable vCenter once showed is not trusted.
    assert_eq!(find(&node, &[unavailable(east(&[&own]))]), "unknown 1");
    let one_down = directory(&[east(&[]), unavailable(west(&[]))]);
    assert_eq!(one_down.find(&Lookup::of(&node)), Finding::Unknown(vec![outage("west")]));
    let both_up = directory(&[east(&[]), west(&[])]);
    let found = both_up.find(&Lookup::of(&node));
    let Finding::Absent(absence) = found else { panic!("{found:?}") };
    assert_eq!((absence.uuid, absence.asked_at), (UUID.parse().ok(), at(0)));
    assert_eq!(absence.vcenters, ["east", "west"]);
}

#[test]
fn a_datacenter_that_cannot_be_resolved_hides_no_vm_of_the_others() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let vcenters = [partial(east(&[&own]))];
    assert_eq!(find(&node(system(UUID)), &vcenters), "vm-1 by system UUID");
    assert_eq!(find(&node(system(OTHER)), &vcenters), "unknown 1");
}

#[test]
fn a_vcenter_that_answers_again_proves_nothing_before_its_vms_are_listed() {
    let mut directory = directory(&[unavailable(east(&[]))]);
    directory.refresh(0, Health::Current { answered: at(5) });
    let lookup = Lookup::of(&node(provider(&format!("vsphere://{UUID}"))));
    assert_eq!(short(&directory.find(&lookup)), "unknown 1");
    directory.replace(0, Health::Current { answered: at(5) }, Some(EAST), [].iter());
    directory.refresh(0, Health::Current { answered: at(9) });
    let found = directory.find(&lookup);
    let Finding::Absent(absence) = found else { panic!("{found:?}") };
    assert_eq!(absence.asked_at, at(9));
}

#[test]
fn a_vm_of_another_cluster_with_the_nodes_name_and_address_is_not_the_node() {
    let fields = both(
        system(UUID),
        json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
    );
    let stranger = vm("vm-9", OTHER, "node-1", &["10.0.0.1"]);
    assert_eq!(find(&node(fields.clone()), &[east(&[&stranger])]), "absent");
    // Without a UUID of its own, the guest is all there is to go by.
    let unnumbered = Vm { uuid: None, ..stranger };
    assert_eq!(find(&node(fields), &[east(&[&unnumbered])]), "vm-9 by address");
}

#[test]
fn a_vcenter_configured_under_two_names_has_no_clones() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let vcenters = [east(&[&own]), renamed("east.example", east(&[&own]))];
    assert_eq!(find(&node(system(UUID)), &vcenters), "vm-1 by system UUID");
    // In another vCenter the same reference is another VM.
    assert_eq!(find(&node(system(UUID)), &[east(&[&own]), west(&[&own])]), "clones 2");
}

#[test]
fn a_vm_that_is_seen_twice_is_found_in_the_same_vcenter_after_each_change() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let mut directory = directory(&[east(&[&own]), renamed("east.example", east(&[&own]))]);
    let lookup = Lookup::of(&node(system(UUID)));
    for changed in [0, 1, 0] {
        directory.update(changed, &own.reference, Some(&Arc::new(own.clone())));
        let found = directory.find(&lookup);
        let Finding::Found(machine, _) = found else { panic!("{found:?}") };
        assert_eq!(machine.vcenter, "east");
    }
}

#[test]
fn the_secondary_of_a_fault_tolerant_vm_is_not_a_clone() {
    let unique = OTHER.parse().ok();
    let primary = Vm { instance_uuid: unique, ..vm("vm-1", UUID, "node-1", &[]) };
    let secondary = Vm { instance_uuid: unique, ..vm("vm-2", UUID, "node-1", &[]) };
    let found = find(&node(system(UUID)), &[east(&[&primary, &secondary])]);
    assert!(found.ends_with("by system UUID"), "{found}");
}

#[test]
fn a_reference_that_was_given_to_another_vm_is_not_the_recorded_one() {
    let reused = Vm { instance_uuid: OTHER.parse().ok(), ..vm("vm-1", OTHER, "other", &[]) };
    let annotations = json!({"ccm.vsphere.vmware.com/instance-uuid": UUID});
    let record = both(recorded(EAST, "vm-1"), json!({"metadata": {"annotations": annotations}}));
    let fields = both(provider(&format!("vsphere://{UUID}")), record);
    assert_eq!(find(&node(fields), &[east(&[&reused])]), "absent");
}

#[test]
fn a_record_and_a_vm_that_do_not_both_have_an_instance_uuid_do_not_contradict_each_other() {
    let numbered = Vm { instance_uuid: UUID.parse().ok(), ..vm("vm-1", OTHER, "other", &[]) };
    let annotations = json!({"ccm.vsphere.vmware.com/instance-uuid": UUID});
    let annotated = json!({"metadata": {"annotations": annotations}});
    let record = both(provider(&format!("vsphere://{UUID}")), recorded(EAST, "vm-1"));
    let check = |fields: &Value, vm: &Vm| {
        let found = find(&node(fields.clone()), &[east(&[vm])]);
        assert_eq!(found, "vm-1 by recorded reference");
    };
    check(&record, &numbered);
    let record = both(record, annotated);
    check(&record, &numbered);
    check(&record, &Vm { instance_uuid: None, ..numbered });
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
        let found = find(&node(fields), &[unavailable(west(&[])), east(shown)]);
        assert_ne!(found, "absent");
    }

    #[test]
    fn a_directory_that_was_updated_finds_the_same_as_one_that_was_filled(
        changes in prop::collection::vec((0..4_u8, 0..3_u8, 0..3_u8, any::<bool>()), 0..24),
    ) {
        let uuids = [UUID, SWAPPED, OTHER];
        let mut updated = directory(&[east(&[])]);
        let mut current: HashMap<String, Vm> = HashMap::new();
        for (which, uuid, name, there) in changes {
            let reference = format!("vm-{which}");
            let machine =
                vm(&reference, uuids[usize::from(uuid)], &format!("node-{name}"), &["10.0.0.1"]);
            let shared = there.then(|| Arc::new(machine.clone()));
            updated.update(0, &Ref::new(&reference), shared.as_ref());
            current.remove(&reference);
            current.extend(there.then_some((reference, machine)));
        }
        let filled: Directory = directory(&[east(&current.values().collect::<Vec<_>>())]);
        for fields in [json!({}), system(UUID), provider(&format!("vsphere://{OTHER}"))] {
            let lookup = Lookup::of(&node(fields));
            assert_eq!(short(&updated.find(&lookup)), short(&filled.find(&lookup)));
        }
    }
}
