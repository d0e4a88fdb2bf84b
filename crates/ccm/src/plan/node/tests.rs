//! What changes on a Node, and what never does.

mod change;

use std::collections::BTreeMap;

use crate::{
    observe::discovery::{Finding, How, Machine},
    plan::{
        node::{NodeChange, Observed, Place, Reason, Settings, Status, plan},
        zones::{Policy, Zones},
    },
    provider_id::ProviderId,
};
use cloud_config::IpFamily;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::{any, proptest};
use serde_json::{Value, json};
use vsphere::inventory::{Nic, PowerState, Vm};

use crate::test_support::{
    EAST, OTHER, UUID, addresses, at, east, find, merge, nics, node, off, outage, patched,
    unavailable, vm,
};

fn settings() -> Settings {
    Settings { patience: SignedDuration::from_secs(30), ..Settings::default() }
}

fn eu_a() -> Zones {
    Zones { zone: Some("a".to_owned()), region: Some("eu".to_owned()), problems: Vec::new() }
}

fn missing() -> Zones {
    Zones { problems: vec!["attach tags".to_owned()], ..Zones::default() }
}

fn found(vm: &Vm) -> Finding<'_> {
    let machine = Machine { vcenter: "east", instance: Some(EAST), vm };
    Finding::Found(machine, How::SystemUuid)
}

fn observed<'a>(finding: Finding<'a>, nics: &'a [Nic]) -> Observed<'a> {
    let (zones, place) = (eu_a(), Place::default());
    Observed { finding, nics, steady: true, metadata: None, zones, place }
}

/// The plan for a Node in a VM with the address 10.0.0.1.
fn planned(node: &Node, settings: &Settings) -> NodeChange {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &["10.0.0.1"]), nics(&["10.0.0.1"]));
    plan(node, &observed(found(&vm), &nics), settings, at(0))
}

fn new_node(fields: Value) -> Node {
    let taints = json!([
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
        {"key": "dedicated", "effect": "NoExecute"},
    ]);
    let mut all = json!({"spec": {"taints": taints}});
    merge(&mut all, fields);
    node(all)
}

/// A Node as the first plan leaves it.
fn old_node(fields: Value) -> Node {
    let node = new_node(json!({}));
    let change = planned(&node, &settings());
    let node = patched(&node, [&change.patch, &change.status]);
    let mut value = serde_json::to_value(node).unwrap();
    merge(&mut value, fields);
    serde_json::from_value(value).unwrap()
}

fn reason(change: &NodeChange) -> Option<Reason> {
    change.summary.condition.as_ref().map(|condition| condition.reason)
}

#[test]
fn a_new_node_gets_everything_at_once() {
    let change = planned(&new_node(json!({})), &settings());
    let expected = json!({
        "metadata": {
            "resourceVersion": "7",
            "labels": {
                "beta.kubernetes.io/instance-type": "vsphere-vm.cpu-4.mem-16gb.os-ubuntu",
                "node.kubernetes.io/instance-type": "vsphere-vm.cpu-4.mem-16gb.os-ubuntu",
                "failure-domain.beta.kubernetes.io/zone": "a",
                "topology.kubernetes.io/zone": "a",
                "failure-domain.beta.kubernetes.io/region": "eu",
                "topology.kubernetes.io/region": "eu",
            },
            "annotations": {
                "ccm.vsphere.vmware.com/vcenter": EAST,
                "ccm.vsphere.vmware.com/vm": "vm-1",
                "ccm.vsphere.vmware.com/folder": "group-v7",
            },
        },
        "spec": {
            "providerID": format!("vsphere://{UUID}"),
            "taints": [{"key": "dedicated", "effect": "NoExecute"}],
        },
    });
    assert_eq!(change.patch, Some(expected));
    let status = change.status.unwrap();
    let expected = json!([
        {"type": "Hostname", "address": "node-1"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "10.0.0.1"},
        {"$patch": "replace"},
    ]);
    assert_eq!(status["status"]["addresses"], expected);
    let condition = &status["status"]["conditions"][0];
    assert_eq!(
        (condition["type"].as_str(), condition["status"].as_str()),
        (Some("VSphereReady"), Some("True"))
    );
    assert_eq!(change.events.len(), 1);
    let event = &change.events[0];
    assert_eq!((event.reason, event.message.as_str()), ("Synced", "Node synced successfully"));
}

#[test]
fn a_node_that_is_right_gets_nothing() {
    let change = planned(&old_node(json!({})), &settings());
    assert!(change.is_empty(), "{change:?}");
}

#[test]
fn a_provider_id_that_is_there_stays() {
    let own = new_node(json!({"spec": {"providerID": format!("vsphere://{UUID}")}}));
    let change = planned(&own, &settings());
    assert!(change.summary.initialised && change.summary.provider_id.is_none());
}

#[test]
fn d3_nodes_of_other_clouds_are_not_touched() {
    let foreign = new_node(json!({"spec": {"providerID": "aws:///eu-1/i-0"}}));
    let vm = vm("vm-1", UUID, "node-1", &["10.0.0.1"]);
    let finding = find(&[east(&[&vm])], &foreign);
    let change = plan(&foreign, &observed(finding, &[]), &settings(), at(0));
    assert!(change.is_empty());
}

#[test]
fn the_taint_stays_until_there_is_a_provider_id() {
    let unborn = Vm { uuid: None, ..vm("vm-1", UUID, "node-1", &[]) };
    let nics = nics(&["10.0.0.1"]);
    let change = plan(&new_node(json!({})), &observed(found(&unborn), &nics), &settings(), at(0));
    assert_eq!((change.patch.as_ref(), reason(&change)), (None, Some(Reason::VmIncomplete)));
    let change = planned(&new_node(json!({"spec": {"providerID": "vsphere://"}})), &settings());
    assert_eq!((change.patch.as_ref(), reason(&change)), (None, Some(Reason::ProviderIdInvalid)));
}

#[test]
fn the_taint_stays_while_the_kubelets_address_is_not_the_vms() {
    let annotated = |ip: &str| {
        let annotations = json!({"alpha.kubernetes.io/provided-node-ip": ip});
        new_node(json!({"metadata": {"annotations": annotations}}))
    };
    let change = planned(&annotated("10.9.9.9"), &settings());
    assert_eq!((change.patch.as_ref(), reason(&change)), (None, Some(Reason::NodeIpInvalid)));
    assert_eq!(change.summary.addresses, None);
    assert_eq!(change.events[0].reason, "NodeIpInvalid");
    let change = planned(&annotated("10.0.0.1"), &settings());
    let expected = addresses("InternalIP=10.0.0.1 ExternalIP=10.0.0.1 Hostname=node-1");
    assert_eq!(change.summary.addresses, Some(expected));
}

#[test]
fn d6_missing_tags_hold_up_neither_initialisation_nor_addresses() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.1"]));
    let untagged = Observed { zones: missing(), ..observed(found(&vm), &nics) };
    let node = new_node(json!({}));
    let change = plan(&node, &untagged, &settings(), at(0));
    assert!(change.summary.initialised && change.summary.addresses.is_some());
    assert_eq!(reason(&change), Some(Reason::TopologyIncomplete));
    assert_eq!(change.summary.condition.as_ref().unwrap().status, Status::True);

    // When tags come, the labels come, under every policy, once.
    let node = patched(&node, [&change.patch, &change.status]);
    let tagged = observed(found(&vm), &nics);
    let change = plan(&node, &tagged, &settings(), at(1));
    assert_eq!(change.summary.labels.len(), 4);
    assert_eq!(reason(&change), Some(Reason::Synced));
    let node = patched(&node, [&change.patch, &change.status]);
    assert!(plan(&node, &tagged, &settings(), at(2)).is_empty());
    let annotations = node.metadata.annotations.unwrap();
    assert!(!annotations.contains_key("ccm.vsphere.vmware.com/zones-pending"));
}

#[test]
fn zones_that_change_later_follow_the_policy() {
    let check = |policy, zone: Option<&str>, expected: &[(&str, &str)], said: Option<Reason>| {
        let labels = json!({
            "failure-domain.beta.kubernetes.io/zone": zone,
            "topology.kubernetes.io/zone": zone,
        });
        let node = old_node(json!({"metadata": {"labels": labels}}));
        let change = planned(&node, &Settings { zones: policy, ..settings() });
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(change.summary.labels, expected, "{policy:?} {zone:?}");
        assert_eq!(reason(&change), said, "{policy:?} {zone:?}");
    };
    let both =
        [("failure-domain.beta.kubernetes.io/zone", "a"), ("topology.kubernetes.io/zone", "a")];
    check(Policy::Never, Some("b"), &[], None);
    check(Policy::Never, None, &[], None);
    check(Policy::IfEmpty, Some("b"), &[], None);
    check(Policy::IfEmpty, None, &both, None);
    check(Policy::Always, Some("b"), &both, None);
    check(Policy::Always, None, &both, None);
    check(Policy::Warn, Some("b"), &[], Some(Reason::ZoneChanged));
    check(Policy::Warn, Some("a"), &[], None);
}

#[test]
fn tags_that_vanish_take_no_label_away() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.1"]));
    let untagged = Observed { zones: missing(), ..observed(found(&vm), &nics) };
    let always = Settings { zones: Policy::Always, ..settings() };
    let change = plan(&old_node(json!({})), &untagged, &always, at(1));
    assert_eq!((change.patch.as_ref(), reason(&change)), (None, Some(Reason::TopologyIncomplete)));
}

#[test]
fn the_old_label_of_a_pair_is_the_truth() {
    let check = |old: Option<&str>, stable: Option<&str>, expected: Option<&str>| {
        let labels = json!({
            "beta.kubernetes.io/instance-type": old,
            "node.kubernetes.io/instance-type": stable,
        });
        let change = planned(&old_node(json!({"metadata": {"labels": labels}})), &settings());
        let set = change.summary.labels.get("node.kubernetes.io/instance-type");
        assert_eq!(set.map(String::as_str), expected, "{old:?} {stable:?}");
        assert!(change.summary.labels.len() <= 1);
    };
    check(Some("x"), Some("y"), Some("x"));
    check(Some("x"), None, Some("x"));
    check(Some("x"), Some("x"), None);
    check(None, Some("y"), None);
    check(None, None, None);
}

#[test]
fn labels_of_the_user_are_added_and_those_of_kubernetes_left_alone() {
    let pairs = [
        ("team", "blue"),
        ("kept", "new"),
        ("node.kubernetes.io/x", "1"),
        ("k8s.io/x", "1"),
        ("notk8s.io/x", "1"),
    ];
    let labels = pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let node = new_node(json!({"metadata": {"labels": {"kept": "old"}}}));
    let change = planned(&node, &Settings { labels, ..settings() });
    let set = |key: &str| change.summary.labels.get(key).map(String::as_str);
    assert_eq!((set("team"), set("notk8s.io/x"), set("kept")), (Some("blue"), Some("1"), None));
    assert_eq!((set("node.kubernetes.io/x"), set("k8s.io/x")), (None, None));
    assert_eq!(change.summary.notes.len(), 3, "{:?}", change.summary.notes);
    // A label that is there already is not worth a note.
    let labels = BTreeMap::from([("kept".to_owned(), "old".to_owned())]);
    assert!(planned(&node, &Settings { labels, ..settings() }).summary.notes.is_empty());
}

#[test]
fn labels_of_the_place_follow_the_vm() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.1"]));
    let settings = Settings { place_labels: true, ..settings() };
    let place = Place {
        host: Some("esx-2.lab".to_owned()),
        cluster: Some("Cluster 1".to_owned()),
        datacenter: None,
    };
    let there = Observed { place, ..observed(found(&vm), &nics) };
    let change = plan(&old_node(json!({})), &there, &settings, at(1));
    assert_eq!(change.summary.labels["ccm.vsphere.vmware.com/host"], "esx-2.lab");
    assert_eq!(change.summary.labels.len(), 1);
    assert!(change.summary.notes[0].contains("\"Cluster 1\" cannot be a label"));
}

#[test]
fn d21_addresses_of_two_families_are_written_when_they_change_only() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.1", "fd00::1"]));
    let mut settings = settings();
    settings.addresses.families.insert("east".to_owned(), vec![IpFamily::V4, IpFamily::V6]);
    let node = new_node(json!({}));
    let both = observed(found(&vm), &nics);
    let change = plan(&node, &both, &settings, at(0));
    assert_eq!(change.summary.addresses.as_ref().unwrap().len(), 5);
    let node = patched(&node, [&change.patch, &change.status]);
    assert!(plan(&node, &both, &settings, at(1)).is_empty());
    // The order counts, also of addresses of different types.
    let mut turned = node;
    turned.status.as_mut().unwrap().addresses.as_mut().unwrap().reverse();
    let change = plan(&turned, &both, &settings, at(1));
    assert_eq!(change.summary.addresses.unwrap().len(), 5);
}

#[test]
fn an_address_that_changes_in_the_guest_changes_on_the_node() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.2"]));
    let change = plan(&old_node(json!({})), &observed(found(&vm), &nics), &settings(), at(1));
    let expected = addresses("Hostname=node-1 InternalIP=10.0.0.2 ExternalIP=10.0.0.2");
    assert_eq!(change.summary.addresses, Some(expected));
    assert!(change.patch.is_none() && change.events.is_empty());
}

#[test]
fn guests_that_say_nothing_leave_the_node_its_addresses() {
    let check = |vm: Vm, nics: &[Nic], expected: Reason| {
        let change = plan(&old_node(json!({})), &observed(found(&vm), nics), &settings(), at(1));
        assert_eq!((change.summary.addresses.as_ref(), change.patch.as_ref()), (None, None));
        assert_eq!(reason(&change), Some(expected));
    };
    let own = vm("vm-1", UUID, "node-1", &[]);
    check(own.clone(), &[], Reason::NoInterfaces);
    check(own.clone(), &nics(&["fe80::1"]), Reason::NoAddress);
    check(own.clone(), &nics(&["fd00::1"]), Reason::NoAddressOfFamily);
    check(off(own.clone()), &[], Reason::PoweredOff);
    let words = |power: PowerState| {
        let vm = Vm { power, ..off(own.clone()) };
        let change = plan(&old_node(json!({})), &observed(found(&vm), &[]), &settings(), at(1));
        change.summary.condition.unwrap().message
    };
    assert!(words(PowerState::Off).contains("the VM is powered off; power it on"));
    assert!(words(PowerState::Suspended).contains("the VM is suspended; power it on"));
    check(Vm { power: PowerState::On, ..off(own) }, &[], Reason::ToolsNotRunning);
}

#[test]
fn who_cannot_be_found_is_told_why_and_nothing_else_happens() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let check = |vms: &[&Vm], expected: Reason, words: &str| {
        let node = new_node(json!({}));
        let finding = find(&[east(vms)], &node);
        let change = plan(&node, &observed(finding, &[]), &settings(), at(0));
        assert_eq!((change.patch.as_ref(), reason(&change)), (None, Some(expected)));
        let message = &change.events[0].message;
        assert!(message.contains(words), "{message}");
        let node = patched(&node, [&None, &change.status]);
        let finding = find(&[east(vms)], &node);
        assert!(plan(&node, &observed(finding, &[]), &settings(), at(9)).is_empty());
    };
    check(&[&one, &two], Reason::VmAmbiguous, "(vm-1) in east, node-1-in-inventory (vm-2) in east");
    check(&[], Reason::VmNotFound, "check the datacenters of the configuration");
}

#[test]
fn a_silent_vcenter_is_told_after_some_patience() {
    let own = old_node(json!({}));
    let finding = find(&[unavailable(east(&[]))], &own);
    assert_eq!(finding, Finding::Unknown(vec![outage("east")]));
    let seen = observed(finding, &[]);
    assert!(plan(&own, &seen, &settings(), at(29)).is_empty());
    let change = plan(&own, &seen, &settings(), at(30));
    assert_eq!(change.patch, None);
    let condition = change.summary.condition.unwrap();
    assert_eq!((condition.status, condition.reason), (Status::Unknown, Reason::VCenterUnavailable));
    assert_eq!(condition.message, "east: does not answer");
}

#[test]
fn d4_a_vcenter_that_was_down_at_first_is_not_forgotten() {
    let node = old_node(json!({}));
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.2"]));
    let finding = find(&[unavailable(east(&[]))], &node);
    let change = plan(&node, &observed(finding, &[]), &settings(), at(60));
    let node = patched(&node, [&change.patch, &change.status]);
    let finding = find(&[east(&[&vm])], &node);
    let change = plan(&node, &observed(finding, &nics), &settings(), at(90));
    assert!(change.summary.addresses.is_some());
    assert_eq!(reason(&change), Some(Reason::Synced));
}

#[test]
fn a_card_that_loses_its_address_for_a_moment_changes_nothing() {
    let own = vm("vm-1", UUID, "node-1", &[]);
    let mut cards = nics(&["10.0.0.1"]);
    cards.extend(nics(&["192.168.0.1"]));
    cards[0].addresses.clear();
    let check = |steady: bool, moves: bool| {
        let seen = Observed { steady, ..observed(found(&own), &cards) };
        let change = plan(&old_node(json!({})), &seen, &settings(), at(1));
        assert_eq!(change.summary.addresses.is_some(), moves, "{steady}");
    };
    check(false, false);
    check(true, true);
}

#[test]
fn vms_that_come_in_another_order_change_no_message() {
    let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-1", &[]));
    let node = new_node(json!({}));
    let said = |vms: &[&Vm]| {
        let finding = find(&[east(vms)], &node);
        let change = plan(&node, &observed(finding, &[]), &settings(), at(0));
        change.summary.condition.unwrap()
    };
    assert_eq!(said(&[&one, &two]), said(&[&two, &one]));
}

#[test]
fn a_message_names_five_vms_at_most_and_counts_the_others() {
    let clones: Vec<Vm> = (1..=7).map(|at| vm(&format!("vm-{at}"), UUID, "node-1", &[])).collect();
    let said = |count: usize| {
        let node = new_node(json!({"status": {"nodeInfo": {"systemUUID": UUID}}}));
        let finding = find(&[east(&clones[..count].iter().collect::<Vec<_>>())], &node);
        let change = plan(&node, &observed(finding, &[]), &settings(), at(0));
        change.summary.condition.unwrap().message
    };
    assert!(said(5).contains("(vm-5) in east; all but one are clones"), "{}", said(5));
    assert!(said(7).contains("(vm-5) in east, and 2 more; all but one are clones"), "{}", said(7));
}

#[test]
fn another_message_under_the_same_reason_only_rewords_the_condition() {
    let own = old_node(json!({}));
    let outage = |why: &str| {
        let outage = vcenter::Outage { why: why.to_owned(), ..outage("east") };
        observed(Finding::Unknown(vec![outage]), &[])
    };
    let first = plan(&own, &outage("refused"), &settings(), at(60));
    assert!(!first.rewords_condition && first.events.len() == 1);
    let own = patched(&own, [&first.patch, &first.status]);
    let again = plan(&own, &outage("refused"), &settings(), at(60));
    assert!(again.is_empty() && !again.rewords_condition);
    let other = plan(&own, &outage("timed out"), &settings(), at(60));
    assert!(other.rewords_condition && other.events.is_empty() && other.status.is_some());
    // Whatever else changes is not a mere rewording.
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.2"]));
    let mut untagged = Observed { zones: missing(), ..observed(found(&vm), &nics) };
    let own = old_node(json!({}));
    let own = patched(&own, [&None, &plan(&own, &untagged, &settings(), at(1)).status]);
    untagged.zones.problems[0].push('!');
    assert!(plan(&own, &untagged, &settings(), at(2)).rewords_condition);
    let moved = crate::test_support::nics(&["10.0.0.3"]);
    let change = plan(&own, &Observed { nics: &moved, ..untagged.clone() }, &settings(), at(2));
    assert!(change.summary.condition.is_some() && !change.rewords_condition);
    let place = Place { host: Some("esx-1".to_owned()), ..Place::default() };
    let placed = Settings { place_labels: true, ..settings() };
    let change = plan(&own, &Observed { place, ..untagged }, &placed, at(2));
    assert!(change.summary.condition.is_some() && !change.rewords_condition);
}

#[test]
fn a_new_node_waits_for_a_doubtful_guest_until_its_report_is_steady_or_time_is_up() {
    let mut own = vm("vm-1", UUID, "node-1", &[]);
    own.ip_address = Some("10.0.0.1".to_owned());
    let mut half = nics(&["192.168.0.1"]);
    half.extend(nics(&[]));
    let check = |nics: &[Nic], age: i64, steady: bool, initialised: bool| {
        let created = json!({"metadata": {"creationTimestamp": at(0).to_string()}});
        let seen = Observed { steady, ..observed(found(&own), nics) };
        let change = plan(&new_node(created), &seen, &settings(), at(age));
        assert_eq!(change.summary.initialised, initialised, "{nics:?} {age} {steady}");
        assert_eq!(change.summary.addresses.is_some(), initialised);
        let status = change.summary.condition.unwrap().status;
        assert_eq!(status == Status::True, initialised);
    };
    // Only `guest.ipAddress`, as while tools start.
    check(&[], 0, false, false);
    check(&[], 299, false, false);
    check(&[], 300, false, true);
    check(&[], 0, true, true);
    // One of two cards has no address yet, or is meant to have none.
    check(&half, 0, false, false);
    check(&half, 29, false, false);
    check(&half, 30, false, true);
    check(&half, 0, true, true);
    // All cards have addresses.
    check(&nics(&["10.0.0.1"]), 0, false, true);
}

#[test]
fn a_machine_without_vm_that_nobody_asked_us_to_initialise_is_left_alone() {
    let check = |node: &Node, settings: &Settings, expected: Option<Reason>| {
        let gone = find(&[east(&[])], node);
        let change = plan(node, &observed(gone, &[]), settings, at(60));
        assert_eq!(reason(&change), expected);
        let unknown = find(&[unavailable(east(&[]))], node);
        let change = plan(node, &observed(unknown, &[]), settings, at(60));
        assert_eq!(reason(&change), expected.map(|_| Reason::VCenterUnavailable));
    };
    check(&node(json!({})), &settings(), None);
    check(&new_node(json!({})), &settings(), Some(Reason::VmNotFound));
    check(&old_node(json!({})), &settings(), Some(Reason::VmNotFound));
    check(&node(json!({})), &Settings { adopt: true, ..settings() }, Some(Reason::VmNotFound));
    // What was once said of it is kept true.
    let said = json!({"status": {"conditions": [{"type": "VSphereReady", "status": "True"}]}});
    check(&node(said), &settings(), Some(Reason::VmNotFound));
}

#[test]
fn a_card_without_address_is_not_worth_a_warning_once_the_node_is_initialised() {
    let mut own = vm("vm-1", UUID, "node-1", &[]);
    own.ip_address = Some("10.0.0.1".to_owned());
    let mut half = nics(&["10.0.0.1"]);
    half.extend(nics(&[]));
    let check = |nics: &[Nic], expected: Reason| {
        let change = plan(&new_node(json!({})), &observed(found(&own), nics), &settings(), at(0));
        assert_eq!((change.summary.initialised, reason(&change)), (true, Some(expected)));
    };
    check(&half, Reason::Synced);
    check(&[], Reason::AddressesPartial);
}

#[test]
fn nodes_that_nobody_tainted_are_adopted_on_request() {
    let bare = node(json!({}));
    let change = planned(&bare, &settings());
    assert!(change.summary.provider_id.is_none() && change.summary.addresses.is_some());
    assert_eq!(reason(&change), Some(Reason::NotAdopted));
    let change = planned(&bare, &Settings { adopt: true, ..settings() });
    assert_eq!(change.summary.provider_id, Some(ProviderId(UUID.parse().unwrap())));
}

#[test]
fn the_time_of_a_condition_is_that_of_its_status() {
    let (vm, nics) = (vm("vm-1", UUID, "node-1", &[]), nics(&["10.0.0.1"]));
    let untagged = Observed { zones: missing(), ..observed(found(&vm), &nics) };
    let change = plan(&old_node(json!({})), &untagged, &settings(), at(50));
    let condition = &change.status.unwrap()["status"]["conditions"][0];
    assert_eq!(condition["reason"], "TopologyIncomplete");
    assert_eq!(condition["lastTransitionTime"], json!(at(0).to_string()));
    assert_eq!(condition["lastHeartbeatTime"], json!(at(50).to_string()));
}

proptest! {
    #[test]
    fn no_node_is_untainted_without_provider_id_and_all_plans_settle(
        id in 0..4_usize,
        has_uuid in any::<bool>(),
        has_address in any::<bool>(),
        tagged in any::<bool>(),
        tainted in any::<bool>(),
        adopt in any::<bool>(),
        policy in 0..4_usize,
    ) {
        let ids = [json!({}), json!({"spec": {"providerID": format!("vsphere://{UUID}")}}),
            json!({"spec": {"providerID": "vsphere://"}}), json!({"spec": {"providerID": "gce://a"}})];
        let node = if tainted { new_node(ids[id].clone()) } else { node(ids[id].clone()) };
        let mut vm = vm("vm-1", UUID, "node-1", &["10.0.0.1"]);
        if !has_uuid { vm.uuid = None; }
        let nics = if has_address { nics(&["10.0.0.1"]) } else { Vec::new() };
        let zones = if tagged { eu_a() } else { missing() };
        let policies = [Policy::Never, Policy::IfEmpty, Policy::Always, Policy::Warn];
        let settings = Settings { adopt, zones: policies[policy], ..settings() };
        let seen = Observed { zones, ..observed(found(&vm), &nics) };

        let change = plan(&node, &seen, &settings, at(0));
        let after = patched(&node, [&change.patch, &change.status]);
        let spec = after.spec.clone().unwrap_or_default();
        let taints = spec.taints.unwrap_or_default();
        let untainted = tainted && !taints.iter().any(|one| one.key.ends_with("/uninitialized"));
        assert_eq!(untainted, tainted && change.summary.initialised);
        assert!(!untainted || spec.provider_id.is_some_and(|id| id.len() > "vsphere://".len()));
        assert!(!tainted || taints.iter().any(|taint| taint.key == "dedicated"));
        assert!(id != 3 || change.is_empty());
        // A second plan has nothing to do.
        let again = plan(&after, &seen, &settings, at(1));
        assert!(again.is_empty(), "{again:?}");
    }
}
