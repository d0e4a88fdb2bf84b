//! Nodes and VMs for tests, made of the few facts that matter.

use ccm::discovery::{Answer, Silence, VCenter};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use serde_json::{Value, json};
use vsphere::{
    inventory::{ConnectionState, Nic, PowerState, Vm},
    reference::Ref,
    types::GuestNicInfo,
};

/// A BIOS UUID, and the same in the other byte order.
pub(crate) const UUID: &str = "56492e42-22ad-3911-6d72-59cc8f26bc90";
pub(crate) const SWAPPED: &str = "422e4956-ad22-1139-6d72-59cc8f26bc90";
/// Another one.
pub(crate) const OTHER: &str = "4230b1a0-5eed-4000-8000-000000000001";

/// The instance ids of the vCenters called east and west.
pub(crate) const EAST: &str = "aaaaaaaa-0000-4000-8000-000000000001";
pub(crate) const WEST: &str = "bbbbbbbb-0000-4000-8000-000000000002";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// A Node with these fields over a few that every Node has.
pub(crate) fn node(fields: Value) -> Node {
    let mut node = json!({
        "metadata": {"name": "node-1", "uid": "uid-1", "resourceVersion": "7"},
        "spec": {},
        "status": {},
    });
    merge(&mut node, fields);
    serde_json::from_value(node).unwrap()
}

/// A merge patch, with strategic lists replaced.
pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, Value::Array(from)) => {
            let kept = from.into_iter().filter(|one| one.get("$patch").is_none());
            *into = Value::Array(kept.collect());
        }
        (into, from) => *into = from,
    }
}

/// A Node after patches as an apiserver would leave it; it has one condition at most.
pub(crate) fn patched(node: &Node, patches: [&Option<Value>; 2]) -> Node {
    let mut value = serde_json::to_value(node).unwrap();
    for patch in patches.into_iter().flatten() {
        merge(&mut value, patch.clone());
    }
    serde_json::from_value(value).unwrap()
}

pub(crate) fn vm(reference: &str, uuid: &str, host_name: &str, ips: &[&str]) -> Vm {
    Vm {
        reference: Ref::new(reference),
        name: format!("{host_name}-in-inventory"),
        uuid: uuid.parse().ok(),
        power: PowerState::On,
        connection: ConnectionState::Connected,
        host_name: Some(host_name.to_owned()).filter(|name| !name.is_empty()),
        tools: Some("guestToolsRunning".to_owned()),
        nics: vec![GuestNicInfo {
            ip_address: ips.iter().map(|ip| (*ip).to_owned()).collect(),
            device_config_id: 4000,
            ..GuestNicInfo::default()
        }],
        guest_id: Some("ubuntu64Guest".to_owned()),
        cpus: Some(4),
        memory_mib: Some(16384),
        parent: Some(Ref::new("group-v7")),
        ..Vm::default()
    }
}

pub(crate) fn off(mut vm: Vm) -> Vm {
    vm.power = PowerState::Off;
    vm.host_name = None;
    vm.nics = Vec::new();
    vm.tools = Some("guestToolsNotRunning".to_owned());
    vm
}

pub(crate) fn nics(ips: &[&str]) -> Vec<Nic> {
    let addresses = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    vec![Nic { device: Some(4000), addresses, reported: true, ..Nic::default() }]
}

pub(crate) fn east<'a>(vms: &[&'a Vm]) -> VCenter<'a> {
    let answer = Answer::Complete(at(0));
    VCenter { name: "east", instance: Some(EAST), answer, vms: vms.to_vec() }
}

pub(crate) fn west<'a>(vms: &[&'a Vm]) -> VCenter<'a> {
    VCenter { name: "west", instance: Some(WEST), ..east(vms) }
}

pub(crate) fn silence(vcenter: &str) -> Silence {
    Silence { vcenter: vcenter.to_owned(), since: at(0), why: "does not answer".to_owned() }
}

pub(crate) fn silent<'a>(vcenter: VCenter<'a>) -> VCenter<'a> {
    VCenter { answer: Answer::Silent(silence(vcenter.name)), ..vcenter }
}

/// Addresses as `Type=address`, with blanks between them.
pub(crate) fn addresses(text: &str) -> Vec<NodeAddress> {
    let one = |pair: &str| {
        let (type_, address) = pair.split_once('=').unwrap();
        NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
    };
    text.split_whitespace().map(one).collect()
}
