//! What Kubernetes and the vCenters report, joined: which VM a Node is, and what is known of it.
//!
//! Everything is read from memory, fed by the watch of Nodes and by one view per vCenter. A change of a Node
//! concerns that Node; a change of a VM concerns the Nodes that share a [`Key`](discovery::Key) with it; a change
//! of anything else (health, tags, hosts, folders) concerns all.

pub(crate) mod discovery;
pub(crate) mod identity;
pub(crate) mod nodes;
pub(crate) mod removals;
pub(crate) mod trimmed;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::future::select_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use vcenter::{Change, Outage, Place, Snapshot, View};
use vsphere::{
    inventory::Vm,
    reference::Ref,
    types::{ManagedEntity, VirtualMachine},
};

use self::{
    discovery::{Directory, Finding},
    nodes::Nodes,
};
use crate::plan::{
    addresses::metadata::Metadata,
    node::Observed,
    zones::{self, Categories, Zones},
};

/// When a guest that was not read until then is reported.
const UNREAD_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// The Nodes of the cluster and the VMs of all vCenters.
pub(crate) struct Observer {
    pub(crate) nodes: Nodes,
    directory: Directory,
    views: Vec<View>,
    /// The names of the vCenters, in the order of `views`.
    names: Vec<String>,
    categories: Categories,
    /// How long a guest must report the same before it is believed against what its Node has.
    steady_after: SignedDuration,
    /// The VM of each Node.
    vms: HashMap<Arc<str>, Link>,
    /// Whether `vms` differs from what the views were last given.
    vms_changed: bool,
}

/// The VM of a Node, whose guest is followed.
struct Link {
    /// The position of its vCenter.
    vcenter: usize,
    vm: Ref<VirtualMachine>,
    since: Timestamp,
}

impl Observer {
    pub(crate) fn new(
        views: Vec<View>,
        categories: Categories,
        steady_after: SignedDuration,
    ) -> Self {
        let names: Vec<String> = views.iter().map(|view| view.snapshot().name.clone()).collect();
        Self {
            nodes: Nodes::default(),
            directory: Directory::new(names.iter().map(String::as_str)),
            views,
            names,
            categories,
            steady_after,
            vms: HashMap::new(),
            vms_changed: false,
        }
    }

    /// Waits for a change in a vCenter and takes it in. Returns the Nodes to plan. Cancel safe.
    pub(crate) async fn vcenter_changed(&mut self) -> BTreeSet<Arc<str>> {
        if self.views.is_empty() {
            return std::future::pending().await;
        }
        let changes = self.views.iter_mut().map(|view| Box::pin(view.changed()));
        let (change, vcenter, _) = select_all(changes).await;
        self.take_change(vcenter, change)
    }

    fn take_change(&mut self, vcenter: usize, change: Change) -> BTreeSet<Arc<str>> {
        let snapshot = self.views[vcenter].snapshot();
        match change {
            Change::Everything => {
                let (health, instance) = (snapshot.health(), snapshot.instance.as_deref());
                self.directory.replace(vcenter, health, instance, snapshot.vms());
                self.nodes.names().cloned().collect()
            }
            Change::Vms(vms) => {
                let updates = vms.iter().map(|vm| (vm, snapshot.vm(vm)));
                concerned(&mut self.directory, &self.nodes, vcenter, updates)
            }
        }
    }

    /// Calls `plan` with a Node and all that is known of its VM. None if there is no such Node, or the guest of
    /// its VM has not been read yet; it is among the changes when it was.
    pub(crate) fn observe<T>(
        &mut self,
        name: &Arc<str>,
        now: Timestamp,
        plan: impl FnOnce(&Node, &Observed<'_>) -> T,
    ) -> Option<T> {
        let (node, lookup) = self.nodes.get(name)?;
        let finding = self.directory.find(lookup);
        let Finding::Found(machine, _) = &finding else {
            return Some(plan(node, &without_vm(finding)));
        };
        let (vm, vcenter) = (machine.vm, machine.vcenter);
        let position = self.names.iter().position(|name| name == vcenter)?;
        let followed = self.vms.get(name);
        if followed.is_none_or(|link| link.vcenter != position || link.vm != vm.reference) {
            let link = Link { vcenter: position, vm: vm.reference.clone(), since: now };
            self.vms.insert(Arc::clone(name), link);
            self.vms_changed = true;
        }
        let snapshot = self.views[position].snapshot();
        let Some(guest) = snapshot.guest(&vm.reference) else {
            let since = self.vms.get(name)?.since;
            if now.duration_since(since) < UNREAD_AFTER {
                return None;
            }
            let why = format!(
                "the network cards of the VM {} cannot be read; give the user System.Read on the VM and its \
                 networks, and look at the log of the cloud controller manager",
                vm.name
            );
            let outage = Outage { vcenter: vcenter.to_owned(), since, why };
            return Some(plan(node, &without_vm(Finding::Unknown(vec![outage]))));
        };
        let encoding = guest.encoding;
        let observed = Observed {
            nics: &guest.nics,
            steady: now.duration_since(guest.since) >= self.steady_after,
            metadata: guest.metadata.map(|text| Metadata { text, encoding }),
            zones: zones_of(&snapshot, vm, &self.categories),
            place: snapshot.place(vm),
            finding,
        };
        Some(plan(node, &observed))
    }

    /// All Nodes with the VM found for each, by the most recent answers of the vCenters.
    pub(crate) fn findings(&mut self) -> (Vec<&Node>, Vec<Finding<'_>>) {
        for (position, view) in self.views.iter().enumerate() {
            self.directory.refresh(position, view.snapshot().health());
        }
        self.nodes.iter().map(|(node, lookup)| (node, self.directory.find(lookup))).unzip()
    }

    pub(crate) fn snapshots(&self) -> Vec<Arc<Snapshot>> {
        self.views.iter().map(View::snapshot).collect()
    }

    /// Forgets Nodes that are gone.
    pub(crate) fn prune(&mut self) {
        let before = self.vms.len();
        self.vms.retain(|name, _| self.nodes.get(name).is_some());
        self.vms_changed |= self.vms.len() != before;
    }

    /// Has the guests of all Nodes followed, and no others. Called once per round.
    pub(crate) fn select_guests(&mut self) {
        if !std::mem::take(&mut self.vms_changed) {
            return;
        }
        for (position, view) in self.views.iter().enumerate() {
            let of_view = self.vms.values().filter(|link| link.vcenter == position);
            view.select_guests(of_view.map(|link| link.vm.clone()).collect());
        }
    }
}

/// An observation without anything that is known of a VM.
fn without_vm(finding: Finding<'_>) -> Observed<'_> {
    Observed {
        finding,
        nics: &[],
        steady: false,
        metadata: None,
        zones: Zones::default(),
        place: Place::default(),
    }
}

/// Takes in VMs that changed or, without value, left. Returns the Nodes that share a key with one of them.
fn concerned<'a>(
    directory: &mut Directory,
    nodes: &Nodes,
    vcenter: usize,
    updates: impl Iterator<Item = (&'a Ref<VirtualMachine>, Option<&'a Arc<Vm>>)>,
) -> BTreeSet<Arc<str>> {
    let touched = updates.flat_map(|(reference, vm)| directory.update(vcenter, reference, vm));
    touched.flat_map(|key| nodes.with_key(&key).to_vec()).collect()
}

/// Zone and region of a VM, by the tags on it and on what it is in.
fn zones_of(snapshot: &Snapshot, vm: &Vm, categories: &Categories) -> Zones {
    let tags = &snapshot.tags;
    let map = tags.map.as_deref();
    let on = |object: &Ref<ManagedEntity>, category: &str| {
        map.map_or(&[][..], |map| map.on(object, category))
    };
    let mut zones = zones::find(vm.reference.upcast(), &snapshot.ancestors(vm), categories, on);
    // Tags that were read once still answer; that they cannot be read again is for the log, not for every Node.
    if let (Some(problem), None, false) = (&tags.problem, map, zones.problems.is_empty()) {
        zones.problems = vec![problem.clone()];
    }
    zones
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::{trimmed::TrimmedNode, *};
    use crate::test_support::{OTHER, UUID, directory, east, vm};

    fn node(name: &str, uuid: &str) -> TrimmedNode {
        let metadata = json!({"name": name, "uid": name, "resourceVersion": "1"});
        let status = json!({"nodeInfo": {"systemUUID": uuid}});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    #[test]
    fn a_change_of_one_vm_plans_the_node_that_shares_a_key_with_it_and_no_other() {
        let (one, two) = (vm("vm-1", UUID, "node-1", &[]), vm("vm-2", OTHER, "node-2", &[]));
        let mut directory = directory(&[east(&[&one, &two])]);
        let mut nodes = Nodes::default();
        nodes.take(Some(Ok(Event::Init)));
        for node in [node("node-1", UUID), node("node-2", OTHER), node("node-3", "")] {
            nodes.take(Some(Ok(Event::InitApply(node))));
        }
        nodes.take(Some(Ok(Event::InitDone)));
        let mut planned = |changed: &Vm, there: bool| {
            let (reference, vm) = (changed.reference.clone(), Arc::new(changed.clone()));
            let updates = [(&reference, there.then_some(&vm))].into_iter();
            let names = concerned(&mut directory, &nodes, 0, updates);
            names.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(planned(&Vm { cpus: Some(8), ..one.clone() }, true), ["node-1"]);
        // A clone concerns the Node of the original, a new name the Nodes of both names.
        assert_eq!(planned(&vm("vm-9", UUID, "copy", &[]), true), ["node-1"]);
        assert_eq!(planned(&vm("vm-2", OTHER, "node-3", &[]), true), ["node-2", "node-3"]);
        assert_eq!(planned(&one, false), ["node-1"]);
    }
}
