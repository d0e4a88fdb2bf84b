//! Which VM a Node runs in.
//!
//! [`Directory`] indexes the VMs of all vCenters by what a Node knows of its machine; [`Directory::find`] gives
//! one answer per Node: by provider id, then by the UUID that its kernel reports, then by address, then by name.
//! It is updated VM by VM; the [`Key`]s that an update touches name the Nodes that it concerns.
//!
//! Hides byte orders, clones, and what may be concluded while a vCenter is unavailable: that a VM was found,
//! never that it does not exist. A UUID is trusted when exactly one VM has it. Addresses and names are trusted
//! only when every vCenter is current, exactly one VM has them, they do not contradict each other, and the VM's
//! UUID does not contradict the kernel's: a provider id cannot be taken back.

mod lookup;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use jiff::Timestamp;
use vcenter::{Health, Outage};
use vsphere::{
    inventory::{PowerState, Uuid, Vm},
    reference::Ref,
    types::VirtualMachine,
};

pub(crate) use self::lookup::Lookup;
use super::identity::Identity;
use crate::provider_id::Reading;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Machine<'a> {
    /// The vCenter's name in the configuration.
    pub(crate) vcenter: &'a str,
    pub(crate) instance: Option<&'a str>,
    pub(crate) vm: &'a Vm,
}

/// What a VM was found by, most trusted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    ProviderId,
    SystemUuid,
    /// The reference recorded on the Node, although the VM's UUID is not that of the provider id.
    Recorded,
    Address,
    Name,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Finding<'a> {
    Found(Machine<'a>, How),
    /// Several VMs have an address or a name that only one can have.
    Ambiguous(Vec<Machine<'a>>, How),
    /// Several VMs have the same BIOS UUID, and nothing shows which of them the Node is.
    CloneOf(Uuid, Vec<Machine<'a>>),
    /// The kernel reports the UUID of this VM, the provider id names another.
    Replaced(Machine<'a>),
    /// Nothing can be concluded before these vCenters are current.
    Unknown(Vec<Outage>),
    /// Every vCenter is current and none has the VM.
    Absent(Absence),
    /// The provider id is of another cloud.
    NotOurs,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Absence {
    /// The UUID of the Node's provider id.
    pub(crate) uuid: Option<Uuid>,
    pub(crate) vcenters: Vec<String>,
    /// When the least recent of them answered.
    pub(crate) asked_at: Timestamp,
    pub(crate) identity: Option<Identity>,
}

/// What VMs are indexed by, and what Nodes know of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A BIOS UUID in the smaller of its two byte orders.
    Uuid(Uuid),
    Address(IpAddr),
    /// The first label of a host name, lower case.
    Name(String),
    /// The value of a VM's reference, whichever vCenter it is in.
    Reference(String),
}

#[derive(Debug, Default)]
pub(crate) struct Directory {
    vcenters: Vec<Listing>,
    /// VMs with the position of their vCenter, in the order of that and of references: of several that are the
    /// same, the first counts each time.
    by_key: HashMap<Key, Vec<(usize, Arc<Vm>)>>,
}

#[derive(Debug)]
struct Listing {
    name: String,
    instance: Option<String>,
    health: Health,
    vms: HashMap<Ref<VirtualMachine>, Arc<Vm>>,
}

impl Listing {
    fn is_available(&self) -> bool {
        !matches!(self.health, Health::Unavailable(_))
    }
}

impl Directory {
    /// An empty directory of vCenters with these names; they are referred to by their position.
    pub(crate) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let listing = |name: &str| Listing {
            name: name.to_owned(),
            instance: None,
            health: Health::Unavailable(Outage {
                vcenter: name.to_owned(),
                since: Timestamp::now(),
                why: "it has not been read yet".to_owned(),
            }),
            vms: HashMap::new(),
        };
        Self { vcenters: names.into_iter().map(listing).collect(), ..Self::default() }
    }

    /// Replaces all that is known of a vCenter. The VMs of one that is unavailable are not searched.
    pub(crate) fn replace<'a>(
        &mut self,
        vcenter: usize,
        health: Health,
        instance: Option<&str>,
        vms: impl Iterator<Item = &'a Arc<Vm>>,
    ) {
        let listing = &mut self.vcenters[vcenter];
        (listing.health, listing.instance) = (health, instance.map(str::to_owned));
        let available = listing.is_available();
        let mut gone = listing.vms.clone();
        for vm in vms.filter(|_| available) {
            let known = gone.remove(&vm.reference);
            if !known.is_some_and(|known| Arc::ptr_eq(&known, vm)) {
                self.update(vcenter, &vm.reference, Some(vm));
            }
        }
        for reference in gone.keys() {
            self.update(vcenter, reference, None);
        }
    }

    /// Takes in when a vCenter last answered, or that it does not. One whose VMs are not listed stays
    /// unavailable until it is [replaced](Self::replace): an empty list proves nothing.
    pub(crate) fn refresh(&mut self, vcenter: usize, health: Health) {
        let listing = &mut self.vcenters[vcenter];
        if listing.is_available() {
            listing.health = health;
        }
    }

    /// Replaces one VM of a vCenter, or removes it. Returns the keys it had and has.
    pub(crate) fn update(
        &mut self,
        vcenter: usize,
        reference: &Ref<VirtualMachine>,
        vm: Option<&Arc<Vm>>,
    ) -> HashSet<Key> {
        let listing = &mut self.vcenters[vcenter];
        let mut touched = HashSet::new();
        for key in listing.vms.remove(reference).iter().flat_map(|vm| keys_of(vm)) {
            if let Some(holders) = self.by_key.get_mut(&key) {
                holders.retain(|(of, vm)| *of != vcenter || vm.reference != *reference);
                if holders.is_empty() {
                    self.by_key.remove(&key);
                }
            }
            touched.insert(key);
        }
        if let Some(vm) = vm.filter(|vm| listing.is_available() && !vm.template) {
            listing.vms.insert(reference.clone(), Arc::clone(vm));
            for key in keys_of(vm) {
                let one = || Vec::with_capacity(1);
                let holders = self.by_key.entry(key.clone()).or_insert_with(one);
                let before =
                    |(of, held): &(usize, Arc<Vm>)| (*of, &held.reference) < (vcenter, reference);
                holders.insert(holders.partition_point(before), (vcenter, Arc::clone(vm)));
                touched.insert(key);
            }
        }
        touched
    }

    pub(crate) fn find(&self, lookup: &Lookup) -> Finding<'_> {
        let by_system = lookup.system_uuid.map(|uuid| self.with_uuid(uuid)).unwrap_or_default();
        match &lookup.provider_id {
            Reading::Foreign(_) => Finding::NotOurs,
            Reading::Ours(id) => {
                let same = lookup.system_uuid.is_none_or(|uuid| uuid.matches(id.0));
                match (self.with_uuid(id.0).as_slice(), by_system.as_slice()) {
                    (_, [other]) if !same => Finding::Replaced(*other),
                    ([], _) => self.recorded(lookup),
                    (found, _) => one_of(found, id.0, lookup, How::ProviderId),
                }
            }
            Reading::Absent | Reading::Malformed(_) => {
                match (by_system.as_slice(), lookup.system_uuid) {
                    ([], _) | (_, None) => self.by_guest(lookup),
                    (found, Some(uuid)) => one_of(found, uuid, lookup, How::SystemUuid),
                }
            }
        }
    }

    /// By what VMware Tools report of the guest. A VM with another UUID than the kernel reports is not the
    /// Node's, whatever its guest is called: names and addresses repeat between clusters.
    fn by_guest(&self, lookup: &Lookup) -> Finding<'_> {
        let outages = self.outages();
        if !outages.is_empty() {
            return Finding::Unknown(outages);
        }
        let agrees = |machine: &Machine<'_>| match (lookup.system_uuid, machine.vm.uuid) {
            (Some(kernel), Some(bios)) => kernel.matches(bios),
            _ => true,
        };
        let mut by_address: Vec<Machine<'_>> = Vec::new();
        for machine in lookup.addresses.iter().flat_map(|ip| self.with(&Key::Address(*ip))) {
            if agrees(&machine) && !by_address.contains(&machine) {
                by_address.push(machine);
            }
        }
        let by_name: Vec<_> = self.with_name(&lookup.name).into_iter().filter(agrees).collect();
        match (by_address.as_slice(), by_name.as_slice()) {
            ([], []) => self.absent(lookup),
            ([one], []) => Finding::Found(*one, How::Address),
            ([one], names) if names.contains(one) => Finding::Found(*one, How::Address),
            ([], [one]) => Finding::Found(*one, How::Name),
            ([], names) => Finding::Ambiguous(names.to_vec(), How::Name),
            (holders, names) => {
                let others = names.iter().filter(|one| !holders.contains(one));
                Finding::Ambiguous(holders.iter().chain(others).copied().collect(), How::Address)
            }
        }
    }

    /// The VM recorded on the Node, if its UUID changed or is missing: inaccessible VMs have none.
    fn recorded(&self, lookup: &Lookup) -> Finding<'_> {
        let found = lookup.identity.as_ref().and_then(|identity| {
            let holders = self.with(&Key::Reference(identity.vm.clone()));
            holders.into_iter().find(|machine| identity.is(machine))
        });
        found.map_or_else(|| self.absent(lookup), |machine| Finding::Found(machine, How::Recorded))
    }

    fn absent(&self, lookup: &Lookup) -> Finding<'_> {
        let outages = self.outages();
        let answered = self.vcenters.iter().filter_map(|listing| match listing.health {
            Health::Current { answered } => Some(answered),
            _ => None,
        });
        match answered.min() {
            Some(asked_at) if outages.is_empty() => Finding::Absent(Absence {
                uuid: lookup.provider_id.uuid(),
                vcenters: self.vcenters.iter().map(|listing| listing.name.clone()).collect(),
                asked_at,
                identity: lookup.identity.clone(),
            }),
            _ => Finding::Unknown(outages),
        }
    }

    /// The vCenters that may have VMs which they do not show.
    fn outages(&self) -> Vec<Outage> {
        let outage = |listing: &Listing| match &listing.health {
            Health::Current { .. } => None,
            Health::Partial(outage) | Health::Unavailable(outage) => Some(outage.clone()),
        };
        self.vcenters.iter().filter_map(outage).collect()
    }

    fn with_uuid(&self, uuid: Uuid) -> Vec<Machine<'_>> {
        self.with(&Key::Uuid(canonical(uuid)))
    }

    /// VMs whose guest has exactly this name; else those with the same first label, where one of both names
    /// has no more than that.
    fn with_name(&self, name: &str) -> Vec<Machine<'_>> {
        let first = short(name).to_lowercase();
        let has = |machine: &Machine<'_>, name: &str| {
            let own = machine.vm.host_name.as_deref().unwrap_or_default();
            own.trim().eq_ignore_ascii_case(name)
        };
        let all = self.with(&Key::Name(first.clone()));
        let exact: Vec<_> = all.iter().filter(|machine| has(machine, name)).copied().collect();
        if !exact.is_empty() {
            return exact;
        }
        if !name.contains('.') {
            return all;
        }
        all.into_iter().filter(|machine| has(machine, &first)).collect()
    }

    /// The VMs with this key. A VM that is seen twice counts once: in a vCenter that is configured under two
    /// names, or as the two halves of a fault-tolerant pair, which share the instance UUID.
    fn with(&self, key: &Key) -> Vec<Machine<'_>> {
        let mut distinct: Vec<Machine<'_>> = Vec::new();
        for (vcenter, vm) in self.by_key.get(key).into_iter().flatten() {
            let Listing { name, instance, .. } = &self.vcenters[*vcenter];
            let machine = Machine { vcenter: name, instance: instance.as_deref(), vm };
            if !distinct.iter().any(|known| known.is_same(&machine)) {
                distinct.push(machine);
            }
        }
        distinct
    }
}

/// One of several VMs that share a UUID: the recorded one, else the only one that runs if its guest has the
/// Node's name or address.
fn one_of<'a>(found: &[Machine<'a>], uuid: Uuid, lookup: &Lookup, how: How) -> Finding<'a> {
    if let [only] = found {
        return Finding::Found(*only, how);
    }
    let identity = lookup.identity.as_ref();
    let recorded = found.iter().find(|machine| identity.is_some_and(|own| own.is(machine)));
    if let Some(machine) = recorded {
        return Finding::Found(*machine, how);
    }
    let running: Vec<_> = found.iter().filter(|one| one.vm.power == PowerState::On).collect();
    match running.as_slice() {
        [only] if lookup.looks_like(only.vm) => Finding::Found(**only, how),
        _ => Finding::CloneOf(uuid, found.to_vec()),
    }
}

fn keys_of(vm: &Vm) -> impl Iterator<Item = Key> {
    let name = vm.host_name.as_deref().map(|name| short(name.trim()).to_lowercase());
    let address = vm.ip_address.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
    let keys = [
        Some(Key::Reference(vm.reference.value().to_owned())),
        vm.uuid.map(|uuid| Key::Uuid(canonical(uuid))),
        address.map(|ip| Key::Address(ip.to_canonical())),
        name.filter(|name| !name.is_empty()).map(Key::Name),
    ];
    keys.into_iter().flatten()
}

/// The same of the two byte orders of a UUID, whichever was given.
fn canonical(uuid: Uuid) -> Uuid {
    uuid.min(uuid.swapped())
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

impl Machine<'_> {
    fn is_same(&self, other: &Self) -> bool {
        let vcenter = match (self.instance, other.instance) {
            (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
            _ => self.vcenter == other.vcenter,
        };
        let unique = self.vm.instance_uuid;
        vcenter
            && (self.vm.reference == other.vm.reference
                || unique.is_some() && unique == other.vm.instance_uuid)
    }
}

impl fmt::Display for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) in {}", self.vm.name, self.vm.reference.value(), self.vcenter)
    }
}

impl How {
    /// As messages and events name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ProviderId => "provider id",
            Self::SystemUuid => "system UUID",
            Self::Recorded => "recorded reference",
            Self::Address => "address",
            Self::Name => "host name",
        }
    }
}

#[cfg(test)]
mod tests;
