//! Nodes and VMs for tests, made of the few facts that matter.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use serde_json::{Value, json};
use vcenter::{Health, Outage};
use vsphere::{
    inventory::{ConnectionState, Nic, PowerState, Vm},
    reference::Ref,
};

use crate::observe::discovery::{Directory, Finding, Lookup};

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
        ip_address: ips.first().map(|ip| (*ip).to_owned()),
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
    vm.ip_address = None;
    vm.tools = Some("guestToolsNotRunning".to_owned());
    vm
}

pub(crate) fn nics(ips: &[&str]) -> Vec<Nic> {
    let addresses = ips.iter().map(|ip| ip.parse().unwrap()).collect();
    vec![Nic { device: Some(4000), addresses, reported: true, ..Nic::default() }]
}

/// A vCenter and the VMs that it shows.
#[derive(Clone)]
pub(crate) struct VCenter {
    name: &'static str,
    instance: &'static str,
    health: Health,
    vms: Vec<Arc<Vm>>,
}

pub(crate) fn east(vms: &[&Vm]) -> VCenter {
    let vms = vms.iter().map(|vm| Arc::new((*vm).clone())).collect();
    VCenter { name: "east", instance: EAST, health: Health::Current { answered: at(0) }, vms }
}

pub(crate) fn west(vms: &[&Vm]) -> VCenter {
    VCenter { name: "west", instance: WEST, ..east(vms) }
}

/// The same vCenter under another name.
pub(crate) fn renamed(name: &'static str, vcenter: VCenter) -> VCenter {
    VCenter { name, ..vcenter }
}

pub(crate) fn outage(vcenter: &str) -> Outage {
    Outage { vcenter: vcenter.to_owned(), since: at(0), why: "does not answer".to_owned() }
}

pub(crate) fn unavailable(vcenter: VCenter) -> VCenter {
    VCenter { health: Health::Unavailable(outage(vcenter.name)), ..vcenter }
}

pub(crate) fn partial(vcenter: VCenter) -> VCenter {
    let health = Health::Partial(outage(vcenter.name));
    VCenter { health, ..vcenter }
}

pub(crate) fn directory(vcenters: &[VCenter]) -> Directory {
    let mut directory = Directory::new(vcenters.iter().map(|vcenter| vcenter.name));
    for (position, VCenter { instance, health, vms, .. }) in vcenters.iter().enumerate() {
        directory.replace(position, health.clone(), Some(instance), vms.iter());
    }
    directory
}

/// What is found for a Node in these vCenters.
pub(crate) fn find(vcenters: &[VCenter], node: &Node) -> Finding<'static> {
    // A few VMs per test are never freed, which saves every test from keeping the directory.
    Box::leak(Box::new(directory(vcenters))).find(&Lookup::of(node))
}

/// The same vCenter, which answered most recently at this second.
pub(crate) fn answered(second: i64, vcenter: VCenter) -> VCenter {
    VCenter { health: Health::Current { answered: at(second) }, ..vcenter }
}

/// Addresses as `Type=address`, with blanks between them.
pub(crate) fn addresses(text: &str) -> Vec<NodeAddress> {
    let one = |pair: &str| {
        let (type_, address) = pair.split_once('=').unwrap();
        NodeAddress { type_: type_.to_owned(), address: address.to_owned() }
    };
    text.split_whitespace().map(one).collect()
}
