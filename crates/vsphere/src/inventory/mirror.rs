//! A vCenter's inventory in memory, kept by a watch and read without asking anybody.
//!
//! It holds each object once and nothing of the past, so its size is that of the inventory. A clone shares all
//! objects but those that change later. Questions that compare every VM do so in memory: tens of thousands of
//! VMs take less time than one request.

use std::{collections::HashMap, sync::Arc};

use crate::{
    inventory::{
        Datastore, Entity, Host, Uuid, Vm,
        topology::{chain, joined},
    },
    property::Object,
    reference::{IsA, Ref},
    types::{
        Folder as FolderKind, HostSystem, ManagedEntity, ManagedObject, StoragePod, VirtualMachine,
    },
    watch::Change,
};

/// The objects of a vCenter as a watch told them. Feed it every change of one
/// [`Watch`](crate::watch::Watch) over [`Entity`], in order.
#[derive(Debug, Clone)]
pub struct Mirror {
    root: Ref<FolderKind>,
    entities: HashMap<Ref<ManagedObject>, Arc<Entity>>,
    synced: bool,
}

impl Mirror {
    /// An empty mirror of the vCenter with this [root folder](crate::inventory::Inventory::root).
    pub fn new(root: Ref<FolderKind>) -> Self {
        Self { root, entities: HashMap::new(), synced: false }
    }

    /// Takes in what the watch told.
    pub fn apply(&mut self, change: Change<Entity>) {
        match change {
            Change::Entered(entity) => {
                self.entities.insert(entity.reference(), Arc::new(entity));
            }
            Change::Changed(delta) => {
                // A change of what never entered cannot be shown; the watch tells it again as a whole.
                if let Some(entity) = self.entities.get_mut(&delta.reference()) {
                    delta.apply(Arc::make_mut(entity));
                }
            }
            Change::Left(reference) => {
                self.entities.remove(&reference);
            }
            Change::Synced => self.synced = true,
        }
    }

    /// Whether everything that exists has been told at least once. Before that, what is not here may exist.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// The object, if it exists and the user may see it.
    pub fn get<K: IsA<ManagedObject>>(&self, reference: &Ref<K>) -> Option<&Entity> {
        self.entities.get(&reference.upcast()).map(Arc::as_ref)
    }

    /// The virtual machine.
    pub fn vm(&self, reference: &Ref<VirtualMachine>) -> Option<&Vm> {
        self.get(reference).and_then(vm)
    }

    /// The host.
    pub fn host(&self, reference: &Ref<HostSystem>) -> Option<&Host> {
        self.get(reference).and_then(|entity| match entity {
            Entity::Host(host) => Some(host),
            _ => None,
        })
    }

    /// All objects, in no order.
    pub fn entities(&self) -> impl Iterator<Item = &Entity> {
        self.entities.values().map(Arc::as_ref)
    }

    /// All virtual machines and templates, in no order.
    pub fn vms(&self) -> impl Iterator<Item = &Vm> {
        self.entities().filter_map(vm)
    }

    /// All datastores, in no order.
    pub fn datastores(&self) -> impl Iterator<Item = &Datastore> {
        self.entities().filter_map(|entity| match entity {
            Entity::Datastore(datastore) => Some(datastore),
            _ => None,
        })
    }

    /// The datastores of a datastore cluster.
    pub fn datastores_in(&self, cluster: &Ref<StoragePod>) -> impl Iterator<Item = &Datastore> {
        let cluster: Ref<ManagedEntity> = cluster.upcast();
        self.datastores().filter(move |datastore| datastore.parent.as_ref() == Some(&cluster))
    }

    /// The VMs, without templates, whose BIOS has this id in either byte order.
    pub fn vms_by_uuid(&self, uuid: Uuid) -> Vec<&Vm> {
        let has = |vm: &&Vm| !vm.template && vm.uuid.is_some_and(|own| own.matches(uuid));
        self.vms().filter(has).collect()
    }

    /// What an object is in, nearest first, without itself. For a VM that is where it runs: host, cluster,
    /// folders, datacenter, folders, root folder.
    ///
    /// A way that does not end at the root folder is not complete: something on it is hidden from the user,
    /// or not told yet. Then there is no answer.
    pub fn ancestors<K: IsA<ManagedObject>>(
        &self,
        reference: &Ref<K>,
    ) -> Option<Vec<Ref<ManagedEntity>>> {
        let first = match self.get(reference)? {
            Entity::Vm(vm) => vm.host.as_ref()?.upcast(),
            other => other.parent()?,
        };
        self.to_root(first)
    }

    /// The inventory path of an object: `/europe/dc-2/vm/k8s/node-1`.
    pub fn path<K: IsA<ManagedEntity>>(&self, reference: &Ref<K>) -> Option<String> {
        let chain = self.to_root(reference.upcast())?;
        Some(joined(&chain, |at| self.get(at).map(Entity::name)))
    }

    fn to_root(&self, start: Ref<ManagedEntity>) -> Option<Vec<Ref<ManagedEntity>>> {
        let chain = chain(start, |at| self.get(at)?.parent());
        (chain.last()?.value() == self.root.value()).then_some(chain)
    }
}

fn vm(entity: &Entity) -> Option<&Vm> {
    match entity {
        Entity::Vm(vm) => Some(vm),
        _ => None,
    }
}
