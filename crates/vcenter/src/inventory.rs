//! The inventory: what is kept of it, and the watch that keeps it.
//!
//! ```text
//!   filter   selects                                          properties
//!   tree     folders and datacenters below the root folder     name, parent
//!   content  hosts, clusters, pools, VMs of each datacenter    name, parent; of VMs what `Vm` has
//!   guests   the selected VMs, as a list                       guest.net, config.changeVersion
//!   storage  hosts and datastores, a filter for each           what `Host` and `Datastore` have
//!            (for programs with a `StorageInterest`)
//! ```
//!
//! All of them are filters of one property collector, so that one long poll serves them. Datacenters are resolved
//! from the tree; when that changes what the configuration means, the watch starts again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rpds::HashTrieMapSync;
use tokio::time::Instant;
use vsphere::{
    collector::{Change, Collector, List, Page},
    connection::Connection,
    error::{Error, Remedy},
    inventory::Vm,
    object, objects,
    property::{Object, Wanted},
    reference::{IsA, Ref},
    types::{Folder, ManagedEntity, ManagedObject, VirtualMachine},
};

use crate::{
    guest::Report,
    storage::{self, STORAGE, Storage},
};

/// No inventory is deeper; parents that form a circle exist only for the moment of a move.
const DEEPEST: usize = 100;
/// Datacenters that a message lists.
const MOST_SHOWN: usize = 10;

/// How soon a datacenter that must not be watched is tried again, with the first answer after that.
const RETRY_REFUSED: Duration = Duration::from_secs(10);

const TREE: [&str; 2] = ["Folder", "Datacenter"];
const CONTENT: [&str; 4] = ["VirtualMachine", "HostSystem", "ComputeResource", "ResourcePool"];

object! {
    /// A folder, datacenter, cluster, host or resource pool.
    pub(crate) struct Entity: ManagedEntity {
        /// In vCenter's spelling: `%`, `/` and `\` are written `%25`, `%2f` and `%5c`.
        pub name: String = "name",
        pub parent: Option<Ref<ManagedEntity>> = "parent",
    }
}

objects! {
    /// An object of the inventory.
    pub(crate) enum Seen {
        Vm(Vm) = "VirtualMachine",
        Entity(Entity) = "Folder" | "StoragePod" | "Datacenter" | "HostSystem" | "ComputeResource"
            | "ClusterComputeResource" | "ResourcePool" | "VirtualApp",
    }
}

/// What the watch reports.
#[derive(Debug)]
pub(crate) enum Update {
    Inventory(Change<Seen>),
    Guest(Change<Report>),
    Storage(storage::Update),
}

/// The objects of the configured datacenters and what they are in. Clones share what has not changed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inventory {
    root: Ref<Folder>,
    pub(crate) vms: HashTrieMapSync<Ref<VirtualMachine>, Arc<Vm>>,
    /// Folders, datacenters, clusters, hosts and pools.
    pub(crate) entities: HashTrieMapSync<Ref<ManagedEntity>, Arc<Entity>>,
    /// `None` for programs without a storage interest.
    pub(crate) storage: Option<Storage>,
}

impl Inventory {
    pub(crate) fn new(root: Ref<Folder>, with_storage: bool) -> Self {
        let storage = with_storage.then(Storage::default);
        Self { root, storage, ..Self::default() }
    }

    /// Takes in a change. Returns the VM that it is about; `None` when it is about another object.
    pub(crate) fn apply(&mut self, change: Change<Seen>) -> Option<Ref<VirtualMachine>> {
        let vm = match &change {
            Change::Entered(Seen::Vm(vm)) => Some(vm.reference.clone()),
            Change::Entered(Seen::Entity(_)) => None,
            Change::Changed(delta) => delta.reference().cast(),
            Change::Left(reference) => reference.cast(),
        };
        let uuid = |inventory: &Self| {
            inventory.storage.as_ref()?;
            inventory.vms.get(vm.as_ref()?)?.uuid
        };
        let before = uuid(self);
        self.take_in(change);
        let now = uuid(self);
        if let (Some(vm), Some(storage)) = (&vm, &mut self.storage) {
            let is_there = self.vms.contains_key(vm);
            storage.index(vm, before, now, is_there);
        }
        vm
    }

    fn take_in(&mut self, change: Change<Seen>) {
        match change {
            Change::Entered(Seen::Vm(vm)) => {
                self.vms.insert_mut(vm.reference.clone(), Arc::new(vm));
            }
            Change::Entered(Seen::Entity(entity)) => {
                self.entities.insert_mut(entity.reference.clone(), Arc::new(entity));
            }
            Change::Changed(delta) => {
                let reference = delta.reference();
                let applied = |mut seen: Seen| {
                    delta.apply(&mut seen);
                    seen
                };
                match reference.cast() {
                    Some(vm) => change_in(&mut self.vms, &vm, |vm| {
                        if let Seen::Vm(changed) = applied(Seen::Vm(std::mem::take(vm))) {
                            *vm = changed;
                        }
                    }),
                    None => change_in(&mut self.entities, &entity(&reference), |entity| {
                        if let Seen::Entity(changed) = applied(Seen::Entity(std::mem::take(entity)))
                        {
                            *entity = changed;
                        }
                    }),
                }
            }
            Change::Left(reference) => {
                match reference.cast() {
                    Some(vm) => self.vms.remove_mut(&vm),
                    None => self.entities.remove_mut(&entity(&reference)),
                };
            }
        }
    }

    /// Takes VMs that are equal from an older inventory, so that they are in memory once.
    pub(crate) fn share(&mut self, older: &Self) {
        for (reference, vm) in &older.vms {
            if self.vms.get(reference).is_some_and(|own| own == vm) {
                self.vms.insert_mut(reference.clone(), Arc::clone(vm));
            }
        }
    }

    /// An object and everything above it, nearest first; empty when the root folder is not reached, because
    /// something in between is hidden from the user or not known yet.
    pub(crate) fn path(&self, start: Ref<ManagedEntity>) -> Vec<Ref<ManagedEntity>> {
        let parent = |at: &Ref<ManagedEntity>| self.entities.get(at)?.parent.clone();
        let path: Vec<_> = std::iter::successors(Some(start), parent).take(DEEPEST).collect();
        let complete = path.last().is_some_and(|last| last.value() == self.root.value());
        if complete { path } else { Vec::new() }
    }

    /// The inventory path of an object: `/europe/dc-2`.
    pub(crate) fn inventory_path<K: IsA<ManagedEntity>>(&self, object: &Ref<K>) -> Option<String> {
        let path = self.path(object.upcast());
        let below_root = path.iter().rev().skip(1);
        let name = |at| Some(format!("/{}", self.entities.get(at)?.name));
        (!path.is_empty()).then(|| below_root.filter_map(name).collect())
    }

    fn datacenters(&self) -> impl Iterator<Item = &Arc<Entity>> {
        self.entities.values().filter(|entity| entity.reference.kind() == "Datacenter")
    }

    /// The datacenters that the configuration means: by reference, inventory path or name, which several may
    /// have.
    fn resolve(&self, text: &str) -> Vec<Ref<ManagedEntity>> {
        let by_reference = text.strip_prefix("Datacenter:");
        let is_meant = |one: &&Arc<Entity>| {
            by_reference == Some(one.reference.value())
                || one.name == text
                || self.inventory_path(&one.reference).is_some_and(|path| {
                    path.trim_start_matches('/') == text.trim_start_matches('/')
                })
        };
        self.datacenters().filter(is_meant).map(|one| one.reference.clone()).collect()
    }

    /// What to watch for these configured datacenters: everything when there are none.
    pub(crate) fn scope(&self, datacenters: &[String]) -> Scope {
        let mut scope = Scope::default();
        if datacenters.is_empty() {
            scope.roots.insert(self.root.upcast(), String::new());
        }
        for text in datacenters {
            let found = self.resolve(text);
            if found.is_empty() {
                scope.missing.push(self.unresolved(text));
            }
            scope.roots.extend(found.into_iter().map(|root| (root, text.clone())));
        }
        scope
    }

    fn unresolved(&self, datacenter: &str) -> String {
        let mut paths: Vec<_> =
            self.datacenters().filter_map(|one| self.inventory_path(&one.reference)).collect();
        paths.sort();
        paths.truncate(MOST_SHOWN);
        let shown = if paths.is_empty() { "none".to_owned() } else { paths.join(", ") };
        format!(
            "it does not show the datacenter {datacenter:?}, only {shown}; correct datacenters in the \
             configuration, or give the user System.Read there"
        )
    }
}

/// Where VMs are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    /// The datacenters, or the root folder, by the texts of the configuration.
    roots: BTreeMap<Ref<ManagedEntity>, String>,
    /// Why configured datacenters are not among them.
    missing: Vec<String>,
}

fn entity(reference: &Ref<ManagedObject>) -> Ref<ManagedEntity> {
    Ref::with_kind(reference.kind(), reference.value())
}

/// Changes a value of a map; what others share of it stays as it was.
pub(crate) fn change_in<K, V>(
    map: &mut HashTrieMapSync<Ref<K>, Arc<V>>,
    key: &Ref<K>,
    change: impl FnOnce(&mut V),
) where
    K: vsphere::reference::Kind,
    V: Clone,
{
    // A change of what never entered cannot be applied; the watch reports it again as a whole.
    if let Some(value) = map.get_mut(key) {
        change(Arc::make_mut(value));
    }
}

/// The watch of one vCenter, attached to a session.
pub(crate) struct Attached {
    pub(crate) collector: Collector<Update>,
    pub(crate) guests: List,
    /// What was reported so far.
    pub(crate) inventory: Inventory,
    /// What is watched, but for what is refused.
    scope: Scope,
    /// Configured datacenters that cannot be watched, and why.
    refused: BTreeMap<Ref<ManagedEntity>, String>,
    /// When they were last tried.
    tried: Instant,
}

impl Attached {
    /// Attaches to a session, reads the tree and starts to watch the datacenters in it.
    pub(crate) async fn new(
        connection: &Connection,
        datacenters: &[String],
        with_storage: bool,
    ) -> Result<Self, Error> {
        let root = connection.inventory().root().await?;
        let mut collector = connection.collector().await?;
        let tree = collector.below(&root, &TREE).await?;
        collector.filter(&[tree], Some(wanted(&TREE)), Update::Inventory).await?;
        let mut inventory = Inventory::new(root, with_storage);
        loop {
            let Page { changes, complete } = collector.next().await?;
            for change in changes {
                if let Update::Inventory(change) = change {
                    inventory.apply(change);
                }
            }
            if complete {
                break;
            }
        }
        let scope = inventory.scope(datacenters);
        let refused = watch_content(&mut collector, &scope.roots, with_storage).await?;
        let guests = collector.list().await?;
        let view = guests.view().clone();
        collector.filter(&[view], None, Update::Guest).await?;
        Ok(Self { collector, guests, inventory, scope, refused, tried: Instant::now() })
    }

    /// Tries again to watch datacenters that were refused, when it is time. Returns whether any was added.
    pub(crate) async fn retry_refused(&mut self) -> Result<bool, Error> {
        if self.refused.is_empty() || self.tried.elapsed() < RETRY_REFUSED {
            return Ok(false);
        }
        let mut roots = self.scope.roots.clone();
        roots.retain(|root, _| self.refused.contains_key(root));
        let with_storage = self.inventory.storage.is_some();
        self.refused = watch_content(&mut self.collector, &roots, with_storage).await?;
        self.tried = Instant::now();
        Ok(self.refused.len() < roots.len())
    }

    /// Why configured datacenters are not watched.
    pub(crate) fn problems(&self) -> String {
        let all = self.scope.missing.iter().chain(self.refused.values());
        all.map(String::as_str).collect::<Vec<_>>().join("; ")
    }

    /// Whether nothing that is configured is watched.
    pub(crate) fn is_blind(&self) -> bool {
        self.scope.roots.len() == self.refused.len()
    }

    /// Whether the configured datacenters are others by now.
    pub(crate) fn is_moved(&mut self, datacenters: &[String]) -> bool {
        let now = self.inventory.scope(datacenters);
        let moved = now.roots != self.scope.roots;
        self.scope.missing = now.missing;
        moved
    }
}

/// Adds filters for what is in these datacenters. Returns those that vCenter refuses, and why.
async fn watch_content(
    collector: &mut Collector<Update>,
    roots: &BTreeMap<Ref<ManagedEntity>, String>,
    with_storage: bool,
) -> Result<BTreeMap<Ref<ManagedEntity>, String>, Error> {
    let (mut content, mut storage, mut refused) = (Vec::new(), Vec::new(), BTreeMap::new());
    for (root, text) in roots {
        let mut views = collector.below(root, &CONTENT).await.map(|view| (view, None));
        if let Ok((_, storage)) = &mut views
            && with_storage
        {
            match collector.below(root, &STORAGE).await {
                Ok(view) => *storage = Some(view),
                Err(error) => views = Err(error),
            }
        }
        match views {
            Ok((view, of_storage)) => {
                content.push(view);
                storage.extend(of_storage);
            }
            Err(error) if error.fault().is_some() && error.remedy != Remedy::LoggedOut => {
                let why = format!("the datacenter {text:?} cannot be watched: {error}");
                refused.insert(root.clone(), why);
            }
            Err(error) => return Err(error),
        }
    }
    if !content.is_empty() {
        collector.filter(&content, Some(wanted(&CONTENT)), Update::Inventory).await?;
    }
    if !storage.is_empty() {
        let host = |change| Update::Storage(storage::Update::Host(change));
        collector.filter(&storage, None, host).await?;
        let datastore = |change| Update::Storage(storage::Update::Datastore(change));
        collector.filter(&storage, None, datastore).await?;
    }
    Ok(refused)
}

/// What is read of objects of these kinds.
fn wanted(kinds: &[&'static str]) -> Vec<Wanted> {
    let of_kind = |kind: &&'static str| {
        let of_vm = *kind == "VirtualMachine";
        let all = if of_vm { Vm::wanted() } else { Entity::wanted() };
        all.into_iter().map(|one| Wanted { kind, paths: one.paths })
    };
    kinds.iter().flat_map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use vsphere::{
        collector::Change,
        inventory::Vm,
        property::Object,
        reference::Ref,
        types::{ManagedEntity, ManagedObject, VirtualMachine},
    };

    use super::{CONTENT, Entity, Inventory, Seen, TREE, wanted};
    use crate::guest::Report;

    fn entity(kind: &str, value: &str, name: &str, parent: Option<(&str, &str)>) -> Change<Seen> {
        let parent = parent.map(|(kind, value)| Ref::with_kind(kind, value));
        let reference = Ref::<ManagedEntity>::with_kind(kind, value);
        Change::Entered(Seen::Entity(Entity {
            reference,
            name: name.to_owned(),
            parent,
            ..Entity::default()
        }))
    }

    fn vm(value: &str, name: &str) -> Change<Seen> {
        let (reference, name) = (Ref::new(value), name.to_owned());
        Change::Entered(Seen::Vm(Vm { reference, name, ..Vm::default() }))
    }

    /// `/dc-1`, `/europe/dc-1` and `/europe/dc-2`.
    fn inventory() -> Inventory {
        let mut inventory = Inventory::new(Ref::new("group-d1"), false);
        for change in [
            entity("Folder", "group-d1", "Datacenters", None),
            entity("Datacenter", "datacenter-1", "dc-1", Some(("Folder", "group-d1"))),
            entity("Folder", "group-d2", "europe", Some(("Folder", "group-d1"))),
            entity("Datacenter", "datacenter-2", "dc-1", Some(("Folder", "group-d2"))),
            entity("Datacenter", "datacenter-3", "dc-2", Some(("Folder", "group-d2"))),
        ] {
            assert_eq!(inventory.apply(change), None);
        }
        inventory
    }

    #[test]
    fn only_what_the_programs_need_is_watched() {
        let all = [wanted(&TREE), wanted(&CONTENT), Report::wanted()].concat();
        let kinds: Vec<_> = all.iter().map(|one| one.kind).collect();
        let expected = [TREE.as_slice(), &CONTENT, &["VirtualMachine"]].concat();
        assert_eq!(kinds, expected);
        let of_every_vm = all.iter().find(|one| one.kind == "VirtualMachine").unwrap().paths;
        for large in ["guest.net", "config.hardware.device", "config.extraConfig"] {
            assert!(!of_every_vm.contains(&large), "{large}");
        }
        for one in all.iter().filter(|one| one.kind != "VirtualMachine") {
            assert_eq!(one.paths, ["name", "parent"], "{}", one.kind);
        }
        assert!(inventory().storage.is_none());
    }

    #[test]
    fn datacenters_are_meant_by_name_path_and_reference() {
        let inventory = inventory();
        let cases: [(&[&str], &[&str], usize); 6] = [
            (&[], &["group-d1"], 0),
            (&["dc-1"], &["datacenter-1", "datacenter-2"], 0),
            (&["/europe/dc-1"], &["datacenter-2"], 0),
            (&["europe/dc-2", "dc-2"], &["datacenter-3"], 0),
            (&["Datacenter:datacenter-1", "dc-3"], &["datacenter-1"], 1),
            (&["europe", "dc-3"], &[], 2),
        ];
        for (configured, roots, missing) in cases {
            let configured: Vec<_> = configured.iter().map(|&one| one.to_owned()).collect();
            let scope = inventory.scope(&configured);
            let found: Vec<_> = scope.roots.keys().map(Ref::value).collect();
            assert_eq!(found, roots, "{configured:?}");
            assert_eq!(scope.missing.len(), missing, "{configured:?}");
        }
        let text = &inventory.scope(&["dc-3".to_owned()]).missing[0];
        assert!(text.contains("\"dc-3\", only /dc-1, /europe/dc-1, /europe/dc-2;"), "{text}");
    }

    #[test]
    fn a_path_that_does_not_reach_the_root_folder_is_not_a_path() {
        let mut inventory = inventory();
        let of = |inventory: &Inventory, value| {
            let path = inventory.path(Ref::with_kind("Datacenter", value));
            path.iter().map(|at| at.value().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(&inventory, "datacenter-3"), ["datacenter-3", "group-d2", "group-d1"]);
        inventory.apply(Change::Left(Ref::<ManagedObject>::with_kind("Folder", "group-d2")));
        assert!(of(&inventory, "datacenter-3").is_empty());
        assert_eq!(of(&inventory, "datacenter-1"), ["datacenter-1", "group-d1"]);
    }

    #[test]
    fn a_clone_keeps_its_state_and_shares_what_did_not_change() {
        let mut now = inventory();
        now.apply(vm("vm-1", "one"));
        now.apply(vm("vm-2", "two"));
        let before = now.clone();
        assert_eq!(now.apply(vm("vm-1", "other")), Some(Ref::new("vm-1")));
        now.apply(Change::Left(Ref::<ManagedObject>::with_kind("VirtualMachine", "vm-2")));
        let name = |inventory: &Inventory, value| {
            inventory.vms.get(&Ref::<VirtualMachine>::new(value)).map(|vm| vm.name.clone())
        };
        assert_eq!(name(&before, "vm-1").as_deref(), Some("one"));
        assert_eq!(name(&before, "vm-2").as_deref(), Some("two"));
        assert_eq!(name(&now, "vm-1").as_deref(), Some("other"));
        assert_eq!(name(&now, "vm-2"), None);
        let mut again = inventory();
        again.apply(vm("vm-1", "one"));
        again.share(&before);
        let reference = Ref::<VirtualMachine>::new("vm-1");
        assert!(std::sync::Arc::ptr_eq(&again.vms[&reference], &before.vms[&reference]));
    }
}
