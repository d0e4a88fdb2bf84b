//! What an object is in: the way up to the root folder.
//!
//! A VM is in a folder, but where it runs is its host, in a cluster, in a datacenter; zones and regions are
//! tags on that second way. One request follows all parents of all hosts at once.

use std::collections::{HashMap, HashSet};

use crate::{
    error::Error,
    fault::Fault,
    inventory::Inventory,
    object,
    reference::{IsA, Kind, Ref},
    soap::Service,
    types::{
        AnySelectionSpec, Folder as FolderKind, HostSystem, ManagedEntity, ObjectSpec,
        SelectionSpec, TraversalSpec, VirtualApp, VirtualMachine,
    },
};

/// No inventory is deeper. Parents that go round in circles exist for the moment of a move only.
const DEEPEST: usize = 100;

object! {
    /// One step of the way up.
    struct Step: ManagedEntity {
        name: String = "name",
        parent: Option<Ref<ManagedEntity>> = "parent",
    }
}

object! {
    /// Where a VM runs, and where it is filed.
    struct Placement: VirtualMachine {
        name: String = "name",
        host: Option<Ref<HostSystem>> = "runtime.host",
        parent: Option<Ref<ManagedEntity>> = "parent",
        vapp: Option<Ref<VirtualApp>> = "parentVApp",
    }
}

impl Inventory<'_> {
    /// What each VM runs in, nearest first: host, cluster, folders, datacenter, folders, root folder. Two
    /// requests, however many VMs. VMs that do not exist, or are on no host, are left out.
    ///
    /// Fails with [`Remedy::NoPermission`](crate::error::Remedy::NoPermission) if the user may not see a part of the way: half a way would be the
    /// wrong zone.
    pub async fn ancestors(
        &self,
        vms: &[Ref<VirtualMachine>],
    ) -> Result<HashMap<Ref<VirtualMachine>, Vec<Ref<ManagedEntity>>>, Error> {
        let placements: Vec<Placement> = self.connection.read(vms).await?;
        let hosts: HashSet<Ref<ManagedEntity>> =
            placements.iter().filter_map(|vm| Some(vm.host.as_ref()?.upcast())).collect();
        let way = self.way_up(hosts).await?;
        let mut found = HashMap::with_capacity(placements.len());
        for vm in placements {
            // A host that vanished meanwhile is the host of no VM.
            let host =
                vm.host.map(|host| host.upcast()).filter(|host| way.steps.contains_key(host));
            if let Some(host) = host {
                found.insert(vm.reference, self.climb(&way, host)?);
            }
        }
        Ok(found)
    }

    /// The inventory path of an object: `/europe/dc-2/vm/k8s/node-1`; nothing if the object does not exist.
    pub async fn path<K: IsA<ManagedEntity>>(
        &self,
        object: &Ref<K>,
    ) -> Result<Option<String>, Error> {
        let mut start: Ref<ManagedEntity> = object.upcast();
        let mut below = String::new();
        // A VM in a vApp has no parent that leads on.
        if let Some(vm) = start.cast::<VirtualMachine>()
            && let Some(placed) = self.connection.read_one::<Placement, _>(&vm).await?
            && placed.parent.is_none()
            && let Some(vapp) = placed.vapp
        {
            below = format!("/{}", placed.name);
            start = vapp.upcast();
        }
        let way = self.way_up(HashSet::from([start.clone()])).await?;
        if !way.steps.contains_key(&start) {
            return Ok(None);
        }
        let chain = self.climb(&way, start)?;
        // The root folder has no name in paths.
        let below_root = chain.iter().rev().skip(1).filter_map(|at| way.steps.get(at));
        Ok(Some(below_root.map(|step| format!("/{}", step.name)).collect::<String>() + &below))
    }

    /// These objects and everything above them, in one request.
    async fn way_up(&self, from: HashSet<Ref<ManagedEntity>>) -> Result<Way, Error> {
        let root = self.root().await?;
        if from.is_empty() {
            return Ok(Way { root, steps: HashMap::new() });
        }
        let object = |start: &Ref<ManagedEntity>| ObjectSpec {
            obj: start.upcast(),
            skip: Some(false),
            select_set: vec![AnySelectionSpec::TraversalSpec(TraversalSpec {
                name: Some("up".to_owned()),
                type_: ManagedEntity::NAME.to_owned(),
                path: "parent".to_owned(),
                skip: Some(false),
                select_set: vec![SelectionSpec { name: Some("up".to_owned()) }.into()],
            })],
        };
        let steps: Vec<Step> =
            self.connection.select(Service::Vim, from.iter().map(object).collect()).await?;
        let steps = steps.into_iter().map(|step| (step.reference.clone(), step)).collect();
        Ok(Way { root, steps })
    }

    /// An object and what it is in; an error if that does not reach the root folder.
    fn climb(
        &self,
        way: &Way,
        start: Ref<ManagedEntity>,
    ) -> Result<Vec<Ref<ManagedEntity>>, Error> {
        let chain = chain(start, |at| way.steps.get(at)?.parent.clone());
        let last = chain.last().cloned().unwrap_or_default();
        if last.value() == way.root.value() {
            return Ok(chain);
        }
        let unreadable = way.steps.get(&last).and_then(|step| step.unreadable.first());
        let fault = unreadable.map_or_else(
            || Fault::bare("NoPermission", "an ancestor is hidden from the user"),
            |unreadable| unreadable.fault.clone(),
        );
        Err(self.hidden(last.upcast(), "System.View", fault))
    }
}

/// Objects with everything above them that the user may see.
struct Way {
    root: Ref<FolderKind>,
    steps: HashMap<Ref<ManagedEntity>, Step>,
}

/// An object and what it is in, as far as parents are known.
fn chain(
    start: Ref<ManagedEntity>,
    parent: impl Fn(&Ref<ManagedEntity>) -> Option<Ref<ManagedEntity>>,
) -> Vec<Ref<ManagedEntity>> {
    std::iter::successors(Some(start), parent).take(DEEPEST).collect()
}

#[cfg(test)]
mod tests {
    use super::chain;
    use crate::reference::Ref;

    #[test]
    fn parents_in_a_circle_end() {
        let around = chain(Ref::new("a"), |at| {
            Some(if at.value() == "a" { Ref::new("b") } else { Ref::new("a") })
        });
        assert_eq!(around.len(), super::DEEPEST);
    }
}
