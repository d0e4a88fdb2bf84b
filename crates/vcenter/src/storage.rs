//! Storage: hosts, datastores, and on which of them the user may create files.
//!
//! Only for programs with a [`StorageInterest`]. Hosts and datastores are pushed by vCenter. Privileges are read,
//! all in one request: vCenter does not report when they change.

use std::{collections::HashMap, sync::Arc, time::Duration};

use rpds::HashTrieMapSync;
use vsphere::{
    collector::Change,
    inventory::{Datastore, Host, Uuid, Vm},
    property::Object,
    reference::{Kind, Ref},
    types::{Datastore as DatastoreKind, HostSystem, VirtualMachine},
};

use crate::{Snapshot, inventory::change_in};

/// What the view of a datacenter has for storage.
pub(crate) const STORAGE: [&str; 2] = ["HostSystem", "Datastore"];

/// The state of hosts, datastores with their space, and the user's privileges on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageInterest {
    /// How often privileges are read again. They are also read when a datastore appears and when credentials are
    /// replaced.
    pub auth_check: Duration,
}

/// What is kept of the configured datacenters for storage. Clones share what has not changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Storage {
    /// By the BIOS UUID in the smaller of its two byte orders. Node ids are such UUIDs.
    vms: HashTrieMapSync<Uuid, Vec<Ref<VirtualMachine>>>,
    /// VMs that are there and show no UUID any more, with the last one.
    silent: HashTrieMapSync<Ref<VirtualMachine>, Uuid>,
    pub(crate) hosts: HashTrieMapSync<Ref<HostSystem>, Arc<Host>>,
    pub(crate) datastores: HashTrieMapSync<Ref<DatastoreKind>, Arc<Datastore>>,
}

/// What the watch reports of storage.
#[derive(Debug)]
pub(crate) enum Update {
    Host(Change<Host>),
    Datastore(Change<Datastore>),
}

impl Storage {
    /// Takes in that a VM had one BIOS UUID and has another. One that is there and shows none, as while its files are
    /// not accessible, is still found by the last one: it may run.
    pub(crate) fn index(
        &mut self,
        vm: &Ref<VirtualMachine>,
        before: Option<Uuid>,
        now: Option<Uuid>,
        is_there: bool,
    ) {
        let before = before.or_else(|| self.silent.get(vm).copied());
        if now.is_none() && is_there {
            if let Some(last) = before {
                self.silent.insert_mut(vm.clone(), last);
            }
            return;
        }
        self.silent.remove_mut(vm);
        if before == now {
            return;
        }
        if let Some(uuid) = before.map(in_one_order)
            && let Some(known) = self.vms.get_mut(&uuid)
        {
            known.retain(|one| one != vm);
            if known.is_empty() {
                self.vms.remove_mut(&uuid);
            }
        }
        if let Some(uuid) = now.map(in_one_order) {
            match self.vms.get_mut(&uuid) {
                Some(known) => known.push(vm.clone()),
                None => self.vms.insert_mut(uuid, vec![vm.clone()]),
            }
        }
    }

    /// Takes in a change. Returns whether a datastore appeared.
    pub(crate) fn apply(&mut self, update: Update) -> bool {
        match update {
            Update::Host(change) => {
                take_in(&mut self.hosts, change);
                false
            }
            Update::Datastore(change) => {
                let appeared = matches!(change, Change::Entered(_));
                take_in(&mut self.datastores, change);
                appeared
            }
        }
    }
}

fn in_one_order(uuid: Uuid) -> Uuid {
    uuid.min(uuid.swapped())
}

fn take_in<K: Kind, T: Object + Clone>(
    map: &mut HashTrieMapSync<Ref<K>, Arc<T>>,
    change: Change<T>,
) {
    match change {
        Change::Entered(object) => {
            map.insert_mut(Ref::new(object.reference().value()), Arc::new(object));
        }
        Change::Changed(delta) => {
            let reference = Ref::new(delta.reference().value());
            change_in(map, &reference, |object| delta.apply(object));
        }
        Change::Left(reference) => {
            map.remove_mut(&Ref::new(reference.value()));
        }
    }
}

/// Where the user may create files.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Privileges {
    /// As last read, for all datastores of that time; `None` before that.
    pub(crate) granted: Option<Arc<HashMap<Ref<DatastoreKind>, bool>>>,
    /// Why they could not be read since.
    pub(crate) problem: Option<String>,
}

impl Privileges {
    fn unknown(&self) -> Option<String> {
        let why = || "the privileges on its datastores have not been read yet".to_owned();
        self.granted.is_none().then(|| self.problem.clone().unwrap_or_else(why))
    }
}

/// Empty without a [`StorageInterest`].
impl Snapshot {
    /// The datastores of the configured datacenters, in no order. Storage that several datacenters share is
    /// there once for each, always with the same URL.
    pub fn datastores(&self) -> impl Iterator<Item = &Arc<Datastore>> {
        self.storage().into_iter().flat_map(|storage| storage.datastores.values())
    }

    /// A datastore of the configured datacenters.
    pub fn datastore(&self, reference: &Ref<DatastoreKind>) -> Option<&Arc<Datastore>> {
        self.storage()?.datastores.get(reference)
    }

    /// A host of the configured datacenters.
    pub fn host(&self, reference: &Ref<HostSystem>) -> Option<&Arc<Host>> {
        self.storage()?.hosts.get(reference)
    }

    /// The inventory path of a datastore: `/dc-1/datastore/shared-1`. `None` when something above it is hidden
    /// from the user or not known yet.
    pub fn datastore_path(&self, datastore: &Datastore) -> Option<String> {
        let above = self.inventory.inventory_path(datastore.parent.as_ref()?)?;
        Some(format!("{above}/{}", datastore.name))
    }

    /// The name of the datastore cluster that a datastore is in, if it is in one.
    pub fn datastore_cluster(&self, datastore: &Datastore) -> Option<&str> {
        let parent = datastore.parent.as_ref().filter(|parent| parent.kind() == "StoragePod")?;
        self.inventory.entities.get(parent).map(|cluster| cluster.name.as_str())
    }

    /// Whether every VM shows its BIOS UUID: while one does not, a UUID that is not found shows nothing.
    pub fn are_all_identified(&self) -> bool {
        self.inventory.vms.values().all(|vm| vm.template || vm.uuid.is_some())
    }

    /// Whether the user may create files on a datastore, as last read; `None` before it was read.
    pub fn may_create_on(&self, datastore: &Ref<DatastoreKind>) -> Option<bool> {
        self.privileges.as_ref()?.granted.as_ref()?.get(datastore).copied()
    }

    /// Why nothing is known of the privileges on datastores: they have not been read yet. Their absence is no reason
    /// against anything but creating files.
    pub fn privileges_unknown(&self) -> Option<String> {
        self.privileges.as_ref().and_then(Privileges::unknown)
    }

    /// Why privileges could not be read again; until they are, [`may_create_on`](Self::may_create_on) returns what
    /// was last read.
    pub fn privileges_problem(&self) -> Option<&str> {
        self.privileges.as_ref()?.problem.as_deref()
    }

    /// The VMs, not templates, whose BIOS has this id, in either byte order. Clones may share one.
    pub fn vm_by_uuid(&self, uuid: &Uuid) -> Vec<&Arc<Vm>> {
        let known = self.storage().and_then(|storage| storage.vms.get(&in_one_order(*uuid)));
        let vms = known.into_iter().flatten().filter_map(|vm| self.vm(vm));
        vms.filter(|vm| !vm.template).collect()
    }

    fn storage(&self) -> Option<&Storage> {
        self.inventory.storage.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vsphere::{
        collector::Change,
        inventory::{Datastore, Host, Uuid, Vm},
        property::Object,
        reference::Ref,
        types::{ManagedEntity, ManagedObject},
    };

    use super::{STORAGE, Update};
    use crate::{
        Snapshot,
        inventory::{Entity, Inventory, Seen},
        snapshot::tests::snapshot,
    };

    fn with_storage() -> Snapshot {
        let mut snapshot = snapshot();
        snapshot.inventory = Inventory::new(Ref::new("group-d1"), true);
        snapshot
    }

    fn entity(snapshot: &mut Snapshot, kind: &str, value: &str, name: &str, parent: (&str, &str)) {
        let reference = Ref::<ManagedEntity>::with_kind(kind, value);
        let parent = (!parent.1.is_empty()).then(|| Ref::with_kind(parent.0, parent.1));
        let entity = Entity { reference, name: name.to_owned(), parent, ..Entity::default() };
        snapshot.inventory.apply(Change::Entered(Seen::Entity(entity)));
    }

    fn datastore(value: &str, name: &str, parent: (&str, &str)) -> Datastore {
        Datastore {
            reference: Ref::new(value),
            name: name.to_owned(),
            parent: Some(Ref::with_kind(parent.0, parent.1)),
            ..Datastore::default()
        }
    }

    #[test]
    fn of_hosts_and_datastores_only_what_volumes_need_is_watched() {
        let all = [Host::wanted(), Datastore::wanted()].concat();
        assert_eq!(all.iter().map(|one| one.kind).collect::<Vec<_>>(), STORAGE);
        let of_hosts = [
            "name",
            "parent",
            "runtime.connectionState",
            "runtime.powerState",
            "runtime.inMaintenanceMode",
            "datastore",
        ];
        let of_datastores = [
            "name",
            "parent",
            "summary.url",
            "summary.type",
            "summary.capacity",
            "summary.freeSpace",
            "summary.accessible",
            "summary.maintenanceMode",
            "host",
            "customValue",
        ];
        assert_eq!((all[0].paths, all[1].paths), (&of_hosts[..], &of_datastores[..]));
    }

    #[test]
    fn a_datastore_has_the_path_and_the_cluster_that_it_is_in() {
        let mut snapshot = with_storage();
        entity(&mut snapshot, "Folder", "group-d1", "Datacenters", ("", ""));
        entity(&mut snapshot, "Datacenter", "datacenter-1", "dc-1", ("Folder", "group-d1"));
        entity(&mut snapshot, "Folder", "group-s1", "datastore", ("Datacenter", "datacenter-1"));
        entity(&mut snapshot, "StoragePod", "group-p1", "fast", ("Folder", "group-s1"));
        let cases = [
            (("Folder", "group-s1"), Some("/dc-1/datastore/one"), None),
            (("StoragePod", "group-p1"), Some("/dc-1/datastore/fast/one"), Some("fast")),
            (("Folder", "hidden"), None, None),
        ];
        for (parent, path, cluster) in cases {
            let store = datastore("datastore-1", "one", parent);
            assert_eq!(snapshot.datastore_path(&store).as_deref(), path, "{parent:?}");
            assert_eq!(snapshot.datastore_cluster(&store), cluster, "{parent:?}");
        }
    }

    #[test]
    fn a_snapshot_keeps_its_storage_and_shares_what_did_not_change() {
        let mut snapshot = with_storage();
        let enter = |snapshot: &mut Snapshot, value, name| {
            let store = datastore(value, name, ("Folder", "group-s1"));
            let update = Update::Datastore(Change::Entered(store));
            assert!(snapshot.inventory.storage.as_mut().unwrap().apply(update), "it appeared");
        };
        enter(&mut snapshot, "datastore-1", "one");
        enter(&mut snapshot, "datastore-2", "two");
        let host = Host { reference: Ref::new("host-1"), ..Host::default() };
        let storage = snapshot.inventory.storage.as_mut().unwrap();
        assert!(!storage.apply(Update::Host(Change::Entered(host))));
        let before = snapshot.clone();
        enter(&mut snapshot, "datastore-1", "other");
        let gone = Ref::<ManagedObject>::with_kind("HostSystem", "host-1");
        let storage = snapshot.inventory.storage.as_mut().unwrap();
        assert!(!storage.apply(Update::Host(Change::Left(gone))));

        let of =
            |snapshot: &Snapshot, value| Arc::clone(snapshot.datastore(&Ref::new(value)).unwrap());
        assert_eq!(of(&before, "datastore-1").name, "one");
        assert_eq!(of(&snapshot, "datastore-1").name, "other");
        assert!(Arc::ptr_eq(&of(&before, "datastore-2"), &of(&snapshot, "datastore-2")));
        assert!(before.host(&Ref::new("host-1")).is_some());
        assert!(snapshot.host(&Ref::new("host-1")).is_none());
        assert_eq!(snapshot.datastores().count(), 2);
    }

    #[test]
    fn vms_are_found_by_uuid_in_either_byte_order_as_they_come_change_and_go() {
        let mut snapshot = with_storage();
        let uuid = |last: u8| -> Uuid {
            format!("56492e42-22ad-3911-6d72-59cc8f26bc{last:02}").parse().unwrap()
        };
        let enter = |snapshot: &mut Snapshot, value: &str, uuid: Option<Uuid>, template| {
            let vm = Vm { reference: Ref::new(value), uuid, template, ..Vm::default() };
            snapshot.inventory.apply(Change::Entered(Seen::Vm(vm)));
        };
        let found = |snapshot: &Snapshot, uuid: Uuid| {
            let mut found: Vec<_> = snapshot
                .vm_by_uuid(&uuid)
                .iter()
                .map(|vm| vm.reference.value().to_owned())
                .collect();
            assert_eq!(snapshot.vm_by_uuid(&uuid.swapped()).len(), found.len());
            found.sort();
            found
        };
        enter(&mut snapshot, "vm-1", Some(uuid(1)), false);
        enter(&mut snapshot, "vm-2", Some(uuid(1).swapped()), false);
        enter(&mut snapshot, "vm-3", Some(uuid(1)), true);
        enter(&mut snapshot, "vm-4", None, false);
        assert_eq!(found(&snapshot, uuid(1)), ["vm-1", "vm-2"]);
        let before = snapshot.clone();
        enter(&mut snapshot, "vm-1", Some(uuid(2)), false);
        enter(&mut snapshot, "vm-2", None, false);
        enter(&mut snapshot, "vm-4", Some(uuid(1)), false);
        assert_eq!(found(&snapshot, uuid(1)), ["vm-2", "vm-4"], "one that is silent may still run");
        assert_eq!(found(&snapshot, uuid(2)), ["vm-1"]);
        let mut identified = snapshot.clone();
        enter(&mut identified, "vm-2", Some(uuid(3)), false);
        assert_eq!(found(&identified, uuid(1)), ["vm-4"]);
        assert_eq!(found(&identified, uuid(3)), ["vm-2"]);
        assert_eq!(found(&before, uuid(1)), ["vm-1", "vm-2"], "what is held of the past stays");
        for vm in ["vm-1", "vm-2", "vm-3", "vm-4"] {
            let gone = Ref::<ManagedObject>::with_kind("VirtualMachine", vm);
            snapshot.inventory.apply(Change::Left(gone));
        }
        assert!(
            snapshot.inventory.storage.unwrap().vms.is_empty(),
            "nothing is left of VMs that are gone"
        );
    }
}
