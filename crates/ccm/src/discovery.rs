//! Which VM a Node runs in.
//!
//! [`Census`] is everybody in all vCenters, [`Census::find`] the one answer for a Node: by provider id, then
//! by the id that its kernel sees, then by address, then by name. Hides byte orders, clones, and what may be
//! concluded while a vCenter does not answer: that somebody was found, never that somebody does not exist.
//!
//! Ids are trusted when one VM has them. Addresses and names are trusted only when every vCenter answered,
//! exactly one VM has them, and they do not contradict each other: a provider id cannot be taken back.

mod wanted;

use std::{collections::HashMap, net::IpAddr};

use jiff::Timestamp;
use vsphere::inventory::{PowerState, Uuid, Vm};

pub use self::wanted::Wanted;
use crate::{identity::Identity, provider_id::Reading};

/// A vCenter, and what it last said.
#[derive(Debug, Clone)]
pub struct VCenter<'a> {
    /// Its name in the configuration.
    pub name: &'a str,
    /// The id of its instance, if it is known.
    pub instance: Option<&'a str>,
    /// Whether it answers.
    pub answer: Answer,
    /// All VMs that it showed. Those of a vCenter that is silent are not looked at.
    pub vms: Vec<&'a Vm>,
}

/// Whether everything that was asked of a vCenter was answered, in all its configured datacenters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Everything, most recently at this time.
    Complete(Timestamp),
    /// Not, or not everything.
    Silent(Silence),
}

/// A vCenter that cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Its name in the configuration.
    pub vcenter: String,
    /// Since when.
    pub since: Timestamp,
    /// What it says instead, with the remedy.
    pub why: String,
}

/// A VM, and where.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine<'a> {
    /// The vCenter's name in the configuration.
    pub vcenter: &'a str,
    /// The id of the vCenter's instance.
    pub instance: Option<&'a str>,
    /// The VM.
    pub vm: &'a Vm,
}

/// What a VM was found by, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// The Node's provider id.
    ProviderId,
    /// The id that the Node's kernel sees.
    SystemUuid,
    /// The reference that the Node recorded, although the id is not that of its provider id.
    Recorded,
    /// One of the Node's addresses.
    Address,
    /// The Node's name.
    Name,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Finding<'a> {
    /// This one.
    Found(Machine<'a>, How),
    /// Several, by something that only one can have.
    Ambiguous(Vec<Machine<'a>>, How),
    /// Several with the same BIOS: all but one are clones, and nothing tells which.
    CloneOf(Uuid, Vec<Machine<'a>>),
    /// Another one than the Node was made for; the provider id says a VM that this is not.
    Replaced(Machine<'a>),
    /// It cannot be known before these answer.
    Unknown(Vec<Silence>),
    /// None, and everybody who could know was asked.
    Absent(Absence),
    /// A machine of another cloud.
    NotOurs,
}

/// That a VM does not exist, as far as searching can show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// The id that was looked for, if the Node has one.
    pub uuid: Option<Uuid>,
    /// Who was asked.
    pub vcenters: Vec<String>,
    /// When the first of them answered.
    pub asked_at: Timestamp,
    /// Which VM it was, if that was recorded.
    pub identity: Option<Identity>,
}

/// All VMs that can be Nodes, findable by what Nodes know of themselves.
#[derive(Debug, Default)]
pub struct Census<'a> {
    machines: Vec<Machine<'a>>,
    answered: Vec<(&'a str, Timestamp)>,
    silent: Vec<Silence>,
    by_uuid: HashMap<Uuid, Vec<usize>>,
    by_address: HashMap<IpAddr, Vec<usize>>,
    by_name: HashMap<String, Vec<usize>>,
}

impl<'a> Census<'a> {
    /// Counts everybody once; finding then does not look at everybody again.
    pub fn new(vcenters: &[VCenter<'a>]) -> Self {
        let mut census = Self::default();
        for vcenter in vcenters {
            match &vcenter.answer {
                Answer::Complete(at) => census.answered.push((vcenter.name, *at)),
                Answer::Silent(silence) => {
                    census.silent.push(silence.clone());
                    continue;
                }
            }
            for vm in vcenter.vms.iter().filter(|vm| !vm.template) {
                let (name, instance) = (vcenter.name, vcenter.instance);
                census.count(Machine { vcenter: name, instance, vm });
            }
        }
        census
    }

    fn count(&mut self, machine: Machine<'a>) {
        let at = self.machines.len();
        if let Some(uuid) = machine.vm.uuid {
            self.by_uuid.entry(normal(uuid)).or_default().push(at);
        }
        let cards = machine.vm.nics.iter().filter(|nic| nic.device_config_id != -1);
        for ip in cards.flat_map(|nic| &nic.ip_address).filter_map(|text| text.parse().ok()) {
            let holders = self.by_address.entry(IpAddr::to_canonical(&ip)).or_default();
            if holders.last() != Some(&at) {
                holders.push(at);
            }
        }
        let name = machine.vm.host_name.as_deref().unwrap_or_default().trim().to_lowercase();
        if !name.is_empty() {
            let short = short(&name);
            if short != name {
                self.by_name.entry(short.to_owned()).or_default().push(at);
            }
            self.by_name.entry(name).or_default().push(at);
        }
        self.machines.push(machine);
    }

    /// The VM of a Node.
    pub fn find(&self, wanted: &Wanted) -> Finding<'a> {
        let by_system = wanted.system_uuid.map(|uuid| self.with_uuid(uuid)).unwrap_or_default();
        match &wanted.provider_id {
            Reading::Foreign(_) => Finding::NotOurs,
            Reading::Ours(id) => {
                let same = wanted.system_uuid.is_none_or(|uuid| uuid.matches(id.0));
                match (self.with_uuid(id.0).as_slice(), by_system.as_slice()) {
                    (_, [other]) if !same => Finding::Replaced(*other),
                    ([], _) => self.recorded(wanted),
                    (found, _) => Self::one_of(found, id.0, wanted, How::ProviderId),
                }
            }
            Reading::Absent | Reading::Malformed(_) => {
                match (by_system.as_slice(), wanted.system_uuid) {
                    ([], _) | (_, None) => self.by_guest(wanted),
                    (found, Some(uuid)) => Self::one_of(found, uuid, wanted, How::SystemUuid),
                }
            }
        }
    }

    /// One of several that share an id: the recorded one, else the one that runs and is the Node by its
    /// guest's name or address.
    fn one_of(found: &[Machine<'a>], uuid: Uuid, wanted: &Wanted, how: How) -> Finding<'a> {
        if let [only] = found {
            return Finding::Found(*only, how);
        }
        let identity = wanted.identity.as_ref();
        let recorded = found.iter().find(|machine| identity.is_some_and(|own| own.is(machine)));
        if let Some(machine) = recorded {
            return Finding::Found(*machine, how);
        }
        let running: Vec<_> = found.iter().filter(|one| one.vm.power == PowerState::On).collect();
        match running.as_slice() {
            [only] if wanted.looks_like(only.vm) => Finding::Found(**only, how),
            _ => Finding::CloneOf(uuid, found.to_vec()),
        }
    }

    /// By what the guest says of itself.
    fn by_guest(&self, wanted: &Wanted) -> Finding<'a> {
        if !self.silent.is_empty() {
            return Finding::Unknown(self.silent.clone());
        }
        let at = wanted.addresses.iter().filter_map(|ip| self.by_address.get(ip)).flatten();
        let by_address = self.distinct(at.copied());
        let by_name = self.with_name(&wanted.name);
        match (by_address.as_slice(), by_name.as_slice()) {
            ([], []) => self.nobody(wanted),
            ([one], []) => Finding::Found(*one, How::Address),
            ([one], names) if names.contains(one) => Finding::Found(*one, How::Address),
            ([], [one]) => Finding::Found(*one, How::Name),
            ([], names) => Finding::Ambiguous(names.to_vec(), How::Name),
            (holders, names) => {
                let others = names.iter().filter(|one| !holders.contains(one));
                let all = holders.iter().chain(others).copied().collect();
                Finding::Ambiguous(all, How::Address)
            }
        }
    }

    /// The VM that the Node was, if it lost its id or got another: inaccessible VMs have none.
    fn recorded(&self, wanted: &Wanted) -> Finding<'a> {
        let identity = wanted.identity.as_ref();
        let is_it = |machine: &&Machine<'a>| identity.is_some_and(|identity| identity.is(machine));
        match self.machines.iter().find(is_it) {
            Some(machine) => Finding::Found(*machine, How::Recorded),
            None => self.nobody(wanted),
        }
    }

    fn nobody(&self, wanted: &Wanted) -> Finding<'a> {
        let first = self.answered.iter().map(|(_, at)| *at).min();
        match first {
            Some(asked_at) if self.silent.is_empty() => Finding::Absent(Absence {
                uuid: wanted.provider_id.uuid(),
                vcenters: self.answered.iter().map(|(name, _)| (*name).to_owned()).collect(),
                asked_at,
                identity: wanted.identity.clone(),
            }),
            _ => Finding::Unknown(self.silent.clone()),
        }
    }

    fn with_uuid(&self, uuid: Uuid) -> Vec<Machine<'a>> {
        self.distinct(self.by_uuid.get(&normal(uuid)).into_iter().flatten().copied())
    }

    /// Those whose guest has exactly this name, else those with the same first part, where one side has no
    /// more than that.
    fn with_name(&self, name: &str) -> Vec<Machine<'a>> {
        let name = name.to_lowercase();
        let with = |name: &str| self.by_name.get(name).into_iter().flatten().copied();
        let has = |machine: &Machine<'a>, name: &str| {
            let own = machine.vm.host_name.as_deref().unwrap_or_default();
            own.trim().eq_ignore_ascii_case(name)
        };
        let all = self.distinct(with(&name));
        let exact: Vec<_> = all.iter().filter(|machine| has(machine, &name)).copied().collect();
        if !exact.is_empty() || !name.contains('.') {
            return if exact.is_empty() { all } else { exact };
        }
        let short = short(&name);
        self.distinct(with(short)).into_iter().filter(|machine| has(machine, short)).collect()
    }

    fn distinct(&self, at: impl Iterator<Item = usize>) -> Vec<Machine<'a>> {
        let mut at: Vec<usize> = at.collect();
        at.sort_unstable();
        at.dedup();
        at.into_iter().filter_map(|at| self.machines.get(at).copied()).collect()
    }
}

/// One of the two byte orders of an id, the same for both.
fn normal(uuid: Uuid) -> Uuid {
    uuid.min(uuid.swapped())
}

fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

impl std::fmt::Display for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}) in {}", self.vm.name, self.vm.reference.value(), self.vcenter)
    }
}

impl How {
    /// What it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProviderId => "provider id",
            Self::SystemUuid => "system UUID",
            Self::Recorded => "recorded reference",
            Self::Address => "address",
            Self::Name => "host name",
        }
    }
}
