//! Where a new volume goes: a pure function from datastores, hosts and a request to a table of candidates.
//!
//! Every datastore is in the table, with the first reason against it or with its rank, so that a refusal can show
//! what was considered. Storage that several datacenters share has an object in each of them, with the same URL:
//! whether a host reaches it is judged by the URL, and each object is a candidate of its own.

mod selection;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use vsphere::{inventory::Datastore, reference::Ref, types};

pub use self::selection::Selection;
use crate::refusal::{Kind, Refusal};

/// Reasons that a refusal lists; a vCenter may have hundreds of datastores.
const MOST_LISTED: usize = 12;

/// A host that runs nodes of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeHost {
    pub(crate) host: Ref<types::HostSystem>,
    pub(crate) name: String,
    /// The nodes on it.
    pub(crate) nodes: Vec<String>,
    /// Whether it is connected and not in maintenance: the nodes of others are about to be elsewhere.
    pub(crate) is_serving: bool,
}

/// Where the nodes of the cluster run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePlaces {
    pub(crate) hosts: Vec<NodeHost>,
    /// Nodes whose VMs vCenter does not show.
    pub(crate) missing: Vec<String>,
}

impl NodePlaces {
    /// The hosts, if a datastore that all of them reach is one for all nodes. `incomplete` is why vCenter may have VMs
    /// that it does not show.
    ///
    /// A node whose VM is missing in a complete inventory hinders no other: Kubernetes may remember it for long after
    /// it is gone.
    pub(crate) fn judged(
        self,
        vcenter: &str,
        incomplete: Option<&str>,
    ) -> Result<Vec<NodeHost>, Refusal> {
        let unavailable =
            |what: String, remedy: &str| Err(Refusal::new(Kind::Unavailable, what).remedy(remedy));
        if self.hosts.is_empty() {
            let what = format!("no node of this cluster was found in vCenter {vcenter}");
            let remedy = "the driver's node pods must run (kubectl get csinodes), and vCenter must show their VMs to its user";
            return unavailable(what, remedy);
        }
        if let (Some(why), [_, ..]) = (incomplete, &*self.missing) {
            let what = format!(
                "no datastore can be chosen: vCenter {vcenter} does not show where {} runs ({why})",
                self.missing.join(" and ")
            );
            return unavailable(
                what,
                "a volume is created when all configured datacenters are seen",
            );
        }
        if !self.hosts.iter().any(|host| host.is_serving) {
            let names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
            let what = format!(
                "no datastore can be chosen: no host that runs nodes is connected and out of maintenance ({})",
                names.join(", ")
            );
            return unavailable(what, "connect one of them, or end its maintenance");
        }
        Ok(self.hosts)
    }
}

/// A datastore as the placement sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// The hosts that may write to it.
    pub(crate) writers: BTreeSet<Ref<types::HostSystem>>,
}

impl Store {
    /// What the inventory has of a datastore.
    pub(crate) fn new(
        seen: &Datastore,
        path: Option<String>,
        cluster: Option<&str>,
        is_permitted: bool,
    ) -> Self {
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
            is_permitted,
            writers: seen.writers().cloned().collect(),
        }
    }

    /// The inventory path of the datastore cluster that it is in.
    fn cluster_path(&self) -> Option<&str> {
        self.cluster.as_ref()?;
        self.path.rsplit_once('/').map(|(cluster, _)| cluster)
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
}

/// Why a datastore is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The StorageClass names others.
    NotSelected,
    Inaccessible,
    Maintenance(String),
    Suspended,
    /// The hosts of nodes that do not reach it.
    NotShared(Vec<String>),
    NoPrivilege,
    /// Smaller than the volume, even when empty.
    TooSmall(u64),
    Full(u64),
    /// The storage policy does not accept it, with vCenter's words.
    Policy(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected => f.write_str("the StorageClass does not name it"),
            Self::Inaccessible => f.write_str("no host reaches it"),
            Self::Maintenance(mode) => write!(f, "it is in maintenance ({mode})"),
            Self::Suspended => f.write_str("it is suspended for new volumes"),
            Self::NotShared(hosts) => {
                let run = if hosts.len() == 1 { "runs" } else { "run" };
                write!(f, "not writable from {}, which {run} nodes", hosts.join(" and "))
            }
            Self::NoPrivilege => {
                f.write_str("the user lacks Datastore.FileManagement or System.Read on it")
            }
            Self::TooSmall(capacity) => write!(f, "it has {} in all", Size(*capacity)),
            Self::Full(free) => write!(f, "it has {} free", Size(*free)),
            Self::Policy(why) => write!(f, "the storage policy does not accept it: {why}"),
        }
    }
}

/// A size as people read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")];
        let unit = UNITS.into_iter().find(|(unit, _)| self.0 >= *unit);
        let Some((unit, name)) = unit else { return write!(f, "{} bytes", self.0) };
        let (whole, tenths) = (self.0 / unit, self.0 % unit * 10 / unit);
        if tenths == 0 { write!(f, "{whole} {name}") } else { write!(f, "{whole}.{tenths} {name}") }
    }
}

/// A datastore and what was decided about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) datastore: Ref<types::Datastore>,
    name: String,
    pub(crate) path: String,
    pub(crate) url: String,
    /// The inventory path of its datastore cluster.
    cluster: Option<String>,
    pub(crate) free: u64,
    pub(crate) against: Option<Reason>,
}

/// Every datastore with a reason against it, or as a candidate; the best candidates first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    wish: Wish,
    all: Vec<Candidate>,
}

/// Decides where a volume may go.
pub(crate) fn decide(stores: &[Store], hosts: &[NodeHost], wish: &Wish) -> Decision {
    let mut writers: BTreeMap<&str, BTreeSet<&Ref<types::HostSystem>>> = BTreeMap::new();
    for store in stores {
        writers.entry(identity(&store.url)).or_default().extend(&store.writers);
    }
    let mut all: Vec<Candidate> = stores
        .iter()
        .map(|store| {
            let reached = writers.get(identity(&store.url));
            let missing = hosts
                .iter()
                .filter(|host| host.is_serving)
                .filter(|host| reached.is_none_or(|reached| !reached.contains(&host.host)));
            let missing: Vec<String> = missing.map(|host| host.name.clone()).collect();
            Candidate {
                datastore: store.datastore.clone(),
                name: store.name.clone(),
                path: store.path.clone(),
                url: store.url.clone(),
                cluster: store.cluster_path().map(str::to_owned),
                free: store.free,
                against: against(store, missing, wish),
            }
        })
        .collect();
    // Deterministic, so that a repeated request finds the same order.
    all.sort_by(|a, b| {
        let order = (a.against.is_some(), b.free).cmp(&(b.against.is_some(), a.free));
        order.then_with(|| a.path.cmp(&b.path)).then_with(|| a.datastore.cmp(&b.datastore))
    });
    Decision { wish: wish.clone(), all }
}

fn identity(url: &str) -> &str {
    url.trim().trim_end_matches('/')
}

/// The first reason against a datastore, those first that nobody but the user can change.
fn against(store: &Store, missing: Vec<String>, wish: &Wish) -> Option<Reason> {
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
    if !missing.is_empty() {
        return Some(Reason::NotShared(missing));
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

impl Decision {
    /// The datastores to try, the best first.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.all.iter().filter(|candidate| candidate.against.is_none())
    }

    /// Excludes the candidates that a storage policy does not accept.
    pub(crate) fn exclude(&mut self, rejected: &BTreeMap<Ref<types::Datastore>, String>) {
        for candidate in self.all.iter_mut().filter(|one| one.against.is_none()) {
            if let Some(why) = rejected.get(&candidate.datastore) {
                candidate.against = Some(Reason::Policy(why.clone()));
            }
        }
        // Stable: the order among equals stays.
        self.all.sort_by_key(|candidate| candidate.against.is_some());
    }

    /// How much fits in all, and the largest volume that fits.
    pub(crate) fn room(&self) -> (u64, u64) {
        let mut by_url: BTreeMap<&str, u64> = BTreeMap::new();
        for candidate in self.candidates() {
            by_url.insert(identity(&candidate.url), candidate.free);
        }
        (by_url.values().sum(), by_url.values().copied().max().unwrap_or_default())
    }

    /// Refuses a class whose names leave a choice between several datastores of this vCenter: which one is meant cannot
    /// be known.
    pub(crate) fn check_unambiguous(&self, volume: &str) -> Result<(), Refusal> {
        let candidates: Vec<&Candidate> = self.candidates().collect();
        self.wish.selection.check_unambiguous(volume, &candidates)
    }

    /// Why there is no candidate: each datastore with the reason against it.
    pub(crate) fn refusal(&self, volume: &str) -> Refusal {
        let size = Size(self.wish.bytes);
        let meant = |candidate: &&Candidate| candidate.against != Some(Reason::NotSelected);
        let considered: Vec<&Candidate> = self.all.iter().filter(meant).collect();
        if considered.is_empty()
            && let Some(refusal) = self.wish.selection.refusal(volume, &self.all)
        {
            return refusal;
        }
        let mut reasons: Vec<String> = considered
            .iter()
            .take(MOST_LISTED)
            .filter_map(|one| Some(format!("{}: {}", one.path, one.against.as_ref()?)))
            .collect();
        if considered.len() > MOST_LISTED {
            reasons.push(format!("and {} more", considered.len() - MOST_LISTED));
        }
        let table =
            if reasons.is_empty() { "vCenter shows none".to_owned() } else { reasons.join("; ") };
        let what = format!("volume {volume}: no datastore can take {size} ({table})");
        let (kind, remedy) = advice(&considered);
        Refusal::new(kind, what).remedy(remedy)
    }
}

impl fmt::Display for Decision {
    /// The table, a datastore after the other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, one) in self.all.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            write!(f, "{separator}{}: ", one.path)?;
            match &one.against {
                Some(reason) => reason.fmt(f)?,
                None => write!(f, "candidate, {} free", Size(one.free))?,
            }
        }
        Ok(())
    }
}

/// What helps, by the reasons that are nearest to success.
fn advice(considered: &[&Candidate]) -> (Kind, &'static str) {
    let any =
        |is: fn(&Reason) -> bool| considered.iter().any(|one| one.against.as_ref().is_some_and(is));
    if any(|reason| matches!(reason, Reason::Full(_))) {
        return (Kind::Exhausted, "free space on one of them, or request less");
    }
    if any(|reason| matches!(reason, Reason::TooSmall(_))) {
        return (Kind::OutOfRange, "request less than the largest of them has");
    }
    if any(|reason| matches!(reason, Reason::Policy(_))) {
        return (Kind::Precondition, "choose another storage policy, or make a datastore fit it");
    }
    if any(|reason| matches!(reason, Reason::NoPrivilege)) {
        return (
            Kind::Denied,
            "grant the user a role with Datastore.FileManagement on one of them",
        );
    }
    if any(|reason| matches!(reason, Reason::NotShared(_))) {
        let remedy = "mount one of them on every host that runs nodes";
        return (Kind::Precondition, remedy);
    }
    (Kind::Precondition, "make one of them available, and see that vCenter shows it to the user")
}

#[cfg(test)]
mod tests;
