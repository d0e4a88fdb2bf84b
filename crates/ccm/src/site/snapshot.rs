//! What is known of a vCenter at one moment, and how far it can be trusted.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use cloud_config::VCenter;
use jiff::{SignedDuration, Timestamp};
use vsphere::{
    connection::Connection,
    inventory::{Entity, Mirror, Nic, Vm},
    reference::Ref,
    tags::TagMap,
    types::{GuestNicInfo, ManagedEntity, VirtualMachine},
    watch::Change,
};

use crate::{
    addresses::metadata::Metadata,
    discovery::{self, Answer, Silence},
    node::Place,
    zones::{self, Categories, Ways, Zones},
};

/// Datacenters that a message names.
const MOST_SHOWN: usize = 10;

/// A vCenter at one moment. Cheap to clone as long as nobody changes the clone.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its name in the configuration.
    pub name: String,
    /// The id of its instance, if it is known.
    pub instance: Option<String>,
    /// How to ask it more.
    pub connection: Option<Connection>,
    /// Its inventory, as far as it was told.
    pub mirror: Option<Arc<Mirror>>,
    /// What tags say.
    pub tags: Tags,
    /// Guests that somebody wants to know of.
    pub guests: Arc<HashMap<Ref<VirtualMachine>, Arc<Guest>>>,
    /// Where VMs are looked for; everywhere if empty.
    datacenters: Vec<String>,
    /// Why the watch has not caught up.
    behind: Option<Silence>,
    answered: Timestamp,
    /// When the watch last caught up.
    caught_up: Timestamp,
}

/// What tags say, and why they may not say it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tags {
    /// The tags, when they were last read.
    pub map: Option<Arc<TagMap>>,
    /// Why they could not be read since.
    pub problem: Option<String>,
    /// Whether it was tried at all.
    pub tried: bool,
}

/// What is known of a guest beside what the inventory has.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    /// Its interfaces, joined with the VM's cards.
    pub nics: Vec<Nic>,
    /// What cloud-init started from.
    pub metadata: Option<String>,
    /// How that is encoded.
    pub encoding: Option<String>,
    /// What the guest reported when they were.
    pub(super) report: Vec<GuestNicInfo>,
    /// Since when it reports that.
    pub(super) since: Timestamp,
}

impl Guest {
    /// What cloud-init started from.
    pub fn metadata(&self) -> Option<Metadata<'_>> {
        let text = self.metadata.as_deref()?;
        Some(Metadata { text, encoding: self.encoding.as_deref() })
    }

    /// Whether the guest has told the same for so long.
    pub fn is_steady(&self, long: SignedDuration, now: Timestamp) -> bool {
        now.duration_since(self.since) >= long
    }
}

impl Snapshot {
    pub(super) fn silent(vcenter: &VCenter, why: &str, now: Timestamp) -> Self {
        let name = vcenter.name.clone();
        let silence = Silence { vcenter: name.clone(), since: now, why: why.to_owned() };
        Self {
            name,
            instance: None,
            connection: None,
            mirror: None,
            tags: Tags::default(),
            guests: Arc::default(),
            datacenters: vcenter.datacenters.clone(),
            behind: Some(silence),
            answered: now,
            caught_up: now,
        }
    }

    /// When it last answered.
    pub(crate) fn answered(&self) -> Timestamp {
        self.answered
    }

    /// Whether everything was answered.
    pub fn answer(&self) -> Answer {
        if let Some(silence) = &self.behind {
            return Answer::Silent(silence.clone());
        }
        let silent = |why: String| {
            Answer::Silent(Silence { vcenter: self.name.clone(), since: self.caught_up, why })
        };
        if !self.tags.tried {
            return silent("its tags have not been read yet".to_owned());
        }
        let missing = self.datacenters.iter().find(|wanted| self.meant(wanted).is_empty());
        match missing {
            Some(wanted) => silent(format!(
                "it does not show the datacenter {wanted:?}, only {}; correct datacenters in the \
                 configuration, or give the user System.Read there",
                self.shown()
            )),
            None => Answer::Complete(self.answered),
        }
    }

    /// The vCenter as a census counts it.
    pub(crate) fn counted(&self) -> discovery::VCenter<'_> {
        let all = self.mirror.as_deref().into_iter().flat_map(Mirror::vms);
        discovery::VCenter {
            name: &self.name,
            instance: self.instance.as_deref(),
            answer: self.answer(),
            vms: if self.datacenters.is_empty() { all.collect() } else { self.inside(all) },
        }
    }

    /// Those that are in the configured datacenters. VMs share few folders, so that each is asked for once.
    fn inside<'a>(&self, vms: impl Iterator<Item = &'a Vm>) -> Vec<&'a Vm> {
        let wanted: Vec<_> = self.datacenters.iter().flat_map(|name| self.meant(name)).collect();
        let is_in = |way: &[Ref<ManagedEntity>]| way.iter().any(|at| wanted.contains(at));
        let mut folders = HashMap::new();
        vms.filter(|vm| match &vm.parent {
            Some(folder) => *folders.entry(folder).or_insert_with(|| is_in(&self.way(folder))),
            None => is_in(&self.folders(vm)),
        })
        .collect()
    }

    /// Zone and region of a VM.
    pub(crate) fn zones(&self, vm: &Vm, categories: &Categories) -> Zones {
        let host = self.hosts(vm);
        let pool = vm.pool.as_ref().map(|pool| self.way(&pool.upcast())).unwrap_or_default();
        let folder = self.folders(vm);
        let own = vm.reference.upcast();
        let ways = Ways { vm: Some(&own), host: &host, pool: &pool, folder: &folder };
        let map = self.tags.map.as_deref();
        let on = |object: &Ref<ManagedEntity>, category: &str| {
            map.map_or(&[][..], |map| map.on(object, category))
        };
        let mut zones = zones::find(ways, categories, on);
        if let (Some(problem), false) = (&self.tags.problem, zones.problems.is_empty()) {
            zones.problems = vec![problem.clone()];
        }
        zones
    }

    /// What a VM runs on.
    pub(crate) fn place(&self, vm: &Vm) -> Place {
        let mut place = Place::default();
        let Some(mirror) = self.mirror.as_deref() else { return place };
        for entity in self.hosts(vm).iter().filter_map(|at| mirror.get(at)) {
            match entity {
                Entity::Host(host) => place.host = Some(host.name.clone()),
                Entity::Cluster(cluster) if cluster.is_cluster() => {
                    place.cluster = Some(cluster.name.clone());
                }
                Entity::Datacenter(one) => place.datacenter = Some(one.name.clone()),
                _ => {}
            }
        }
        place
    }

    fn hosts(&self, vm: &Vm) -> Vec<Ref<ManagedEntity>> {
        let mirror = self.mirror.as_deref();
        mirror.and_then(|mirror| mirror.ancestors(&vm.reference)).unwrap_or_default()
    }

    fn folders(&self, vm: &Vm) -> Vec<Ref<ManagedEntity>> {
        match &vm.parent {
            Some(folder) => self.way(folder),
            // In a vApp, which is among the hosts.
            None => self.hosts(vm),
        }
    }

    /// An object and what it is in, nearest first.
    fn way(&self, start: &Ref<ManagedEntity>) -> Vec<Ref<ManagedEntity>> {
        let mirror = self.mirror.as_deref();
        let above = mirror.and_then(|mirror| mirror.ancestors(start)).unwrap_or_default();
        std::iter::once(start.clone()).chain(above).collect()
    }

    /// The datacenters that the configuration means: by reference, inventory path or name, which several may
    /// have.
    fn meant(&self, wanted: &str) -> Vec<Ref<ManagedEntity>> {
        let Some(mirror) = self.mirror.as_deref() else { return Vec::new() };
        let by_reference = wanted.strip_prefix("Datacenter:");
        let meant = mirror.entities().filter_map(|entity| {
            let Entity::Datacenter(one) = entity else { return None };
            let is_it = by_reference == Some(one.reference.value())
                || one.name == wanted
                || mirror.path(&one.reference).is_some_and(|path| {
                    path.trim_start_matches('/') == wanted.trim_start_matches('/')
                });
            is_it.then(|| one.reference.upcast())
        });
        meant.collect()
    }

    /// The datacenters that there are, for people.
    fn shown(&self) -> String {
        let Some(mirror) = self.mirror.as_deref() else { return "none".to_owned() };
        let mut paths: Vec<_> = mirror
            .entities()
            .filter_map(|entity| match entity {
                Entity::Datacenter(one) => mirror.path(&one.reference),
                _ => None,
            })
            .collect();
        paths.sort();
        paths.truncate(MOST_SHOWN);
        if paths.is_empty() { "none".to_owned() } else { paths.join(", ") }
    }

    pub(super) fn take(&mut self, change: Change<Entity>, now: Timestamp) {
        if matches!(change, Change::Synced) {
            self.answered = now;
            if self.behind.take().is_some() {
                self.caught_up = now;
            }
        }
        if let Some(mirror) = &mut self.mirror {
            Arc::make_mut(mirror).apply(change);
        }
    }

    /// Whether the inventory is complete and current.
    pub(super) fn has_caught_up(&self) -> bool {
        self.behind.is_none()
    }

    pub(super) fn fall_silent(&mut self, why: &str, now: Timestamp) {
        let since = self.behind.as_ref().map_or(now, |silence| silence.since);
        self.behind = Some(Silence { vcenter: self.name.clone(), since, why: why.to_owned() });
    }

    /// The VMs among these whose guest says something else than when it was last looked at.
    pub(super) fn stale(&self, wanted: &BTreeSet<Ref<VirtualMachine>>) -> Vec<Ref<VirtualMachine>> {
        let Some(mirror) = self.mirror.as_deref() else { return Vec::new() };
        let known = |vm: &Vm| {
            let guest = self.guests.get(&vm.reference);
            guest.is_some_and(|guest| guest.report == vm.nics)
        };
        let wanted = wanted.iter().filter_map(|reference| mirror.vm(reference));
        wanted.filter(|vm| !known(vm)).map(|vm| vm.reference.clone()).collect()
    }

    /// Keeps what was read of some guests, and forgets those that nobody wants.
    pub(super) fn know(
        &mut self,
        wanted: &BTreeSet<Ref<VirtualMachine>>,
        read: HashMap<Ref<VirtualMachine>, Guest>,
        now: Timestamp,
    ) {
        let Some(mirror) = self.mirror.as_deref() else { return };
        let guests = Arc::make_mut(&mut self.guests);
        guests.retain(|reference, _| wanted.contains(reference));
        for (reference, guest) in read {
            let Some(vm) = mirror.vm(&reference) else { continue };
            let before = guests.get(&vm.reference).filter(|guest| guest.report == vm.nics);
            let since = before.map_or(now, |guest| guest.since);
            let fresh = Guest { report: vm.nics.clone(), since, ..guest };
            guests.insert(reference, Arc::new(fresh));
        }
    }
}
