//! Where a new volume goes: pure functions from datastores, hosts and a request to a table of candidates.
//!
//! ```text
//!   Inventory (datastores, hosts of nodes and their segments) ─┐
//!   Wish (size, StorageClass, segments in order) ──────────────┴─► decide ─► Decision: a table for each segment
//!   Inventory, a datastore ────────────────────────────────────────► accessible ─► the segments that reach it
//! ```
//!
//! Every datastore is in each table, with the first reason against it or with its rank, so that a refusal can show
//! what was considered. Storage that several datacenters share has an object in each of them, with the same URL:
//! whether a host reaches it is judged by the URL, and each object is a candidate of its own.

mod decision;
mod reach;
mod reason;
mod selection;

use std::{collections::BTreeSet, sync::Arc};

use vsphere::{inventory::Datastore, reference::Ref, types};

pub use self::selection::Selection;
pub(crate) use self::{
    decision::{Candidate, Decision},
    reason::{Hosts, Reason, Size},
};
use self::{
    decision::{Problem, Table},
    reach::{HostSet, Reach},
};
use super::topology::Segment;

/// The category of tags on datastores that are preferred in a segment: a tag is called like a value of the segment.
pub(crate) const PREFERRED_DATASTORES: &str = "cns.vmware.topology-preferred-datastores";

/// A host that runs nodes of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeHost {
    pub(crate) host: Ref<types::HostSystem>,
    pub(crate) name: String,
    /// Of the nodes on it; none where they report no topology.
    pub(crate) segments: BTreeSet<Segment>,
    /// Whether it is connected and not in maintenance: the nodes of others are about to be elsewhere.
    pub(crate) is_serving: bool,
}

/// A node whose VM vCenter does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingNode {
    pub(crate) name: String,
    pub(crate) segment: Option<Segment>,
}

/// What one vCenter has, and where the nodes of the cluster run in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Inventory {
    /// The name of the vCenter.
    pub(crate) vcenter: String,
    pub(crate) stores: Vec<Arc<Store>>,
    pub(crate) hosts: Vec<NodeHost>,
    pub(crate) missing: Vec<MissingNode>,
    /// Why vCenter may have VMs that it does not show.
    pub(crate) incomplete: Option<String>,
}

/// A datastore as the placement sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Store {
    pub(crate) datastore: Ref<types::Datastore>,
    pub(crate) name: String,
    /// Its inventory path, or its name where the path is hidden.
    pub(crate) path: String,
    pub(crate) url: String,
    /// The name of the datastore cluster that it is in.
    pub(crate) cluster: Option<String>,
    /// In bytes.
    pub(crate) capacity: u64,
    pub(crate) free: u64,
    pub(crate) is_accessible: bool,
    /// The maintenance mode, unless it is normal.
    pub(crate) maintenance: Option<String>,
    pub(crate) is_suspended: bool,
    /// Whether the user may create files on it.
    pub(crate) is_permitted: bool,
    /// With the hosts that may write to it, which are many, and copied for nobody.
    pub(crate) seen: Arc<Datastore>,
    /// Values of segments where it is preferred.
    pub(crate) preferred_in: Vec<String>,
}

impl Store {
    /// What the inventory has of a datastore.
    pub(crate) fn new(seen: &Arc<Datastore>, path: Option<String>, cluster: Option<&str>) -> Self {
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        Self {
            datastore: seen.reference.clone(),
            name: seen.name.clone(),
            path: path.unwrap_or_else(|| seen.name.clone()),
            url: seen.url.clone(),
            cluster: cluster.map(str::to_owned),
            capacity: bytes(seen.capacity),
            free: bytes(seen.free),
            is_accessible: seen.accessible,
            maintenance: seen.maintenance.clone().filter(|mode| mode != "normal"),
            is_suspended: seen.suspended(),
            is_permitted: false,
            seen: Arc::clone(seen),
            preferred_in: Vec::new(),
        }
    }

    /// The inventory path of the datastore cluster that it is in.
    fn cluster_path(&self) -> Option<&str> {
        self.cluster.as_ref()?;
        self.path.rsplit_once('/').map(|(cluster, _)| cluster)
    }

    fn is_preferred_in(&self, segment: &Segment) -> bool {
        segment.labels().any(|(_, value)| self.preferred_in.iter().any(|one| one == value))
    }
}

/// What is asked of the place of a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) bytes: u64,
    /// Only these datastores.
    pub(crate) selection: Selection,
    /// Whether it may be larger than what is free: a thin disk takes what is written to it.
    pub(crate) overcommit: bool,
    /// Where it must be reached, the preferred segments first; from all nodes if there are none.
    pub(crate) segments: Vec<Segment>,
}

/// Decides where a volume may go.
pub(crate) fn decide(inventory: &Inventory, wish: &Wish) -> Decision {
    let reach = Reach::new(inventory);
    let terms: Vec<Option<&Segment>> = match &*wish.segments {
        [] => vec![None],
        segments => segments.iter().map(Some).collect(),
    };
    let tables = terms.into_iter().map(|term| table(inventory, &reach, term, wish));
    Decision::new(wish.clone(), tables.collect())
}

/// The nodes that must reach a volume, in groups: it is enough if all of one group do.
///
/// A request that names a part of the labels means any of the segments that have these labels, as for the Go driver.
struct Group {
    segment: Option<Segment>,
    hosts: HostSet,
}

fn table(inventory: &Inventory, reach: &Reach<'_>, term: Option<&Segment>, wish: &Wish) -> Table {
    let term = term.cloned();
    let groups = match groups(inventory, reach, term.as_ref()) {
        Ok(groups) => groups,
        Err(problem) => return Table { term, problem: Some(problem), all: Vec::new() },
    };
    let mut everyone = HostSet::default();
    groups.iter().for_each(|group| everyone.extend(&group.hosts));
    let judge = |store: &Arc<Store>| {
        let is_reached = |(_, group): &(usize, &Group)| reach.is_reached(store, &group.hosts);
        let reached: Vec<(usize, &Group)> = groups.iter().enumerate().filter(is_reached).collect();
        let unreached = || reached.is_empty().then(|| reach.missing(store, &everyone).collect());
        let mut segments = reached.iter().filter_map(|(_, group)| group.segment.as_ref());
        Candidate {
            store: Arc::clone(store),
            against: against(store, wish, unreached),
            is_preferred: segments.any(|segment| store.is_preferred_in(segment)),
            is_reached_by_all: reached.len() == groups.len(),
            groups: reached.iter().map(|(at, _)| *at).collect(),
        }
    };
    let mut all: Vec<Candidate> = inventory.stores.iter().map(judge).collect();
    // Deterministic, so that a repeated request finds the same order.
    all.sort_by(Candidate::compare);
    Table { term, problem: None, all }
}

/// The groups of nodes that a term means, or why none of them can be judged.
///
/// A node whose VM is missing in a complete inventory hinders no other: Kubernetes may remember it for long after it is
/// gone.
fn groups(
    inventory: &Inventory,
    reach: &Reach<'_>,
    term: Option<&Segment>,
) -> Result<Vec<Group>, Problem> {
    let is_meant = |segment: Option<&Segment>| match term {
        None => true,
        Some(term) => segment.is_some_and(|segment| segment.is_within(term)),
    };
    let vcenter = || inventory.vcenter.clone();
    let unseen = inventory.missing.iter().filter(|node| is_meant(node.segment.as_ref()));
    let unseen: Vec<String> = unseen.map(|node| node.name.clone()).collect();
    if let (Some(why), [_, ..]) = (&inventory.incomplete, &*unseen) {
        return Err(Problem::Unseen { vcenter: vcenter(), nodes: unseen, why: why.clone() });
    }
    let is_host_meant = |host: &&NodeHost| match term {
        None => true,
        Some(_) => host.segments.iter().any(|one| is_meant(Some(one))),
    };
    let hosts: Vec<&NodeHost> = inventory.hosts.iter().filter(is_host_meant).collect();
    if hosts.is_empty() {
        return Err(Problem::NoNode { vcenter: vcenter() });
    }
    if !hosts.iter().any(|host| host.is_serving) {
        return Err(Problem::NotServing(hosts.iter().map(|host| host.name.as_str()).collect()));
    }
    let Some(term) = term else {
        return Ok(vec![Group { segment: None, hosts: reach.serving() }]);
    };
    let served = reach.segments_in(term).filter(|(_, hosts)| !hosts.is_empty());
    let group = |(segment, hosts): (&Segment, &HostSet)| Group {
        segment: Some(segment.clone()),
        hosts: hosts.clone(),
    };
    Ok(served.map(group).collect())
}

/// The first reason against a datastore, those first that nobody but the user can change. `unreached` are the hosts that
/// do not reach it, if they should.
fn against(
    store: &Store,
    wish: &Wish,
    unreached: impl FnOnce() -> Option<Hosts>,
) -> Option<Reason> {
    if !wish.selection.has(store) {
        return Some(Reason::NotSelected);
    }
    if !store.is_accessible {
        return Some(Reason::Inaccessible);
    }
    if let Some(mode) = &store.maintenance {
        return Some(Reason::Maintenance(mode.clone()));
    }
    if store.is_suspended {
        return Some(Reason::Suspended);
    }
    if let Some(hosts) = unreached() {
        return Some(Reason::NotShared(hosts));
    }
    if !store.is_permitted {
        return Some(Reason::NoPrivilege);
    }
    if wish.overcommit {
        return None;
    }
    if store.capacity < wish.bytes {
        return Some(Reason::TooSmall(store.capacity));
    }
    (store.free < wish.bytes).then_some(Reason::Full(store.free))
}

/// The segments all of whose nodes reach a datastore, the hosts in maintenance aside. Of a segment whose hosts are all in
/// maintenance, all hosts count. None if the nodes report no topology, or vCenter does not show the datastore.
pub(crate) fn accessible(
    inventory: &Inventory,
    datastore: &Ref<types::Datastore>,
) -> BTreeSet<Segment> {
    let reach = Reach::new(inventory);
    let Some(store) = inventory.stores.iter().find(|one| one.datastore == *datastore) else {
        return BTreeSet::new();
    };
    let is_unseen = |segment: &Segment| {
        inventory.incomplete.is_some()
            && inventory.missing.iter().any(|node| node.segment.as_ref() == Some(segment))
    };
    reach.segments_of(store).filter(|segment| !is_unseen(segment)).cloned().collect()
}

/// What of a URL identifies the storage.
fn identity(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

#[cfg(test)]
mod tests;
