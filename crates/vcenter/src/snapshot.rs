//! A vCenter at one moment, and how far it can be trusted.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cloud_config::VCenter;
use jiff::Timestamp;
use rpds::HashTrieMapSync;
use tokio::time::Instant;
use vsphere::{
    collector::Change,
    connection::Connection,
    inventory::Vm,
    reference::Ref,
    tags::TagMap,
    types::{Folder, ManagedEntity, VirtualMachine},
};

use crate::{
    guest::{Entry, Guest, Report},
    inventory::{Inventory, change_in},
    storage::Privileges,
};

/// How long the text of an outage stays while its cause changes.
const TEXT_STAYS: Duration = Duration::from_secs(60);

/// How far a [`Snapshot`] can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Everything that is configured was answered, most recently at this time.
    Current {
        /// When vCenter last answered.
        answered: Timestamp,
    },
    /// A configured datacenter cannot be resolved: what is shown is true, what is not shown may exist.
    Partial(Outage),
    /// The last known state is not to be trusted.
    Unavailable(Outage),
}

/// Why a vCenter does not show everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// Its name in the configuration.
    pub vcenter: String,
    /// When it began.
    pub since: Timestamp,
    /// The cause and the remedy. The text stays the same as long as the cause does.
    pub why: String,
}

/// What an outage is blamed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    /// There are none that can be used.
    Credentials,
    /// vCenter refuses them.
    Login,
    Permissions,
    /// vCenter, or the network before it.
    Server,
}

/// The names of what a VM runs in, as far as they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// `None` for a VM without host.
    pub host: Option<String>,
    /// `None` for a host outside of clusters.
    pub cluster: Option<String>,
    /// The datacenter of the host.
    pub datacenter: Option<String>,
}

/// The paths from a VM up to the root folder, each nearest first. A path that is not known up to the root
/// folder is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ancestors {
    /// Where it runs: host, cluster, folders, datacenter, folders.
    pub host: Vec<Ref<ManagedEntity>>,
    /// Its resource pools, then their cluster.
    pub pool: Vec<Ref<ManagedEntity>>,
    /// Its folders; for a VM in a vApp the same as `host`.
    pub folder: Vec<Ref<ManagedEntity>>,
}

/// The tags that were read, and why they may be old.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tags {
    /// As last read; `None` before that and when no categories are read.
    pub map: Option<Arc<TagMap>>,
    /// Why they could not be read since.
    pub problem: Option<String>,
    /// Whether reading was tried; without categories there is nothing to try.
    pub(crate) tried: bool,
}

/// A vCenter at one moment. A clone shares everything with the original until one of them changes.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// In the configuration.
    pub name: String,
    /// vCenter's own id; `None` before the first answer.
    pub instance: Option<String>,
    /// For requests beyond the snapshot; `None` before there are credentials.
    pub connection: Option<Connection>,
    /// Of the categories in [`Interests`](crate::Interests).
    pub tags: Tags,
    pub(crate) inventory: Inventory,
    pub(crate) guests: HashTrieMapSync<Ref<VirtualMachine>, Arc<Entry>>,
    /// `None` for programs without a storage interest.
    pub(crate) privileges: Option<Privileges>,
    /// Why the inventory is not current.
    pub(crate) outage: Option<Outage>,
    /// The configured datacenters that cannot be watched.
    pub(crate) missing: Option<Outage>,
    /// When the text of the outage was last replaced; `None` before the first failure.
    explained: Option<(Instant, Blame)>,
    pub(crate) answered: Timestamp,
    /// When the inventory last became current.
    pub(crate) current_since: Timestamp,
}

impl Snapshot {
    pub(crate) fn new(vcenter: &VCenter, now: Timestamp) -> Self {
        let why = "it has not answered yet".to_owned();
        Self {
            name: vcenter.name.clone(),
            instance: None,
            connection: None,
            inventory: Inventory::default(),
            guests: HashTrieMapSync::default(),
            tags: Tags::default(),
            privileges: None,
            outage: Some(Outage { vcenter: vcenter.name.clone(), since: now, why }),
            missing: None,
            explained: None,
            answered: now,
            current_since: now,
        }
    }

    /// Whether what it shows can be trusted, and whether it shows everything.
    pub fn health(&self) -> Health {
        if let Some(outage) = &self.outage {
            return Health::Unavailable(outage.clone());
        }
        if !self.tags.tried {
            let why = "its tags have not been read yet".to_owned();
            return Health::Unavailable(self.outage_since(self.current_since, why));
        }
        match &self.missing {
            Some(outage) => Health::Partial(outage.clone()),
            None => Health::Current { answered: self.answered },
        }
    }

    /// The VMs and templates of the configured datacenters, in no order.
    pub fn vms(&self) -> impl Iterator<Item = &Arc<Vm>> {
        self.inventory.vms.values()
    }

    /// How many VMs and templates the configured datacenters have.
    pub fn vm_count(&self) -> usize {
        self.inventory.vms.size()
    }

    /// A VM of the configured datacenters.
    pub fn vm(&self, reference: &Ref<VirtualMachine>) -> Option<&Arc<Vm>> {
        self.inventory.vms.get(reference)
    }

    /// The guest of a VM that was [selected](crate::View::select_guests); `None` until its network cards were
    /// read.
    pub fn guest(&self, vm: &Ref<VirtualMachine>) -> Option<Guest<'_>> {
        self.guests.get(vm)?.guest()
    }

    /// Whether the user may see this folder and it exists.
    pub fn sees(&self, folder: &Ref<Folder>) -> bool {
        self.inventory.entities.contains_key(&folder.upcast())
    }

    /// What a VM is in.
    pub fn ancestors(&self, vm: &Vm) -> Ancestors {
        let path = |start: Option<Ref<ManagedEntity>>| {
            start.map(|at| self.inventory.path(at)).unwrap_or_default()
        };
        let host = path(vm.host.as_ref().map(Ref::upcast));
        let pool = path(vm.pool.as_ref().map(Ref::upcast));
        let folder =
            vm.parent.clone().map_or_else(|| host.clone(), |folder| self.inventory.path(folder));
        Ancestors { host, pool, folder }
    }

    /// The names of host, cluster and datacenter of a VM.
    pub fn place(&self, vm: &Vm) -> Place {
        let mut place = Place::default();
        let Some(host) = &vm.host else { return place };
        for at in self.inventory.path(host.upcast()) {
            let name = self.inventory.entities.get(&at).map(|entity| entity.name.clone());
            match at.kind() {
                "HostSystem" => place.host = name,
                "ClusterComputeResource" => place.cluster = name,
                "Datacenter" => place.datacenter = name,
                _ => {}
            }
        }
        place
    }
}

impl Snapshot {
    fn outage_since(&self, since: Timestamp, why: String) -> Outage {
        Outage { vcenter: self.name.clone(), since, why }
    }

    /// Takes in that vCenter answered, with what it does not show of the configured datacenters; `nothing` when
    /// it shows none of them. Returns whether that changes its health.
    pub(crate) fn answer(&mut self, problems: &str, nothing: bool, now: Timestamp) -> bool {
        self.answered = now;
        let problem = |known: Option<&Outage>| {
            self.outage_since(known.map_or(now, |outage| outage.since), problems.to_owned())
        };
        let (outage, missing) = match (problems.is_empty(), nothing) {
            (true, _) => (None, None),
            (false, true) => (Some(problem(self.outage.as_ref())), None),
            (false, false) => (None, Some(problem(self.missing.as_ref()))),
        };
        if self.outage.is_some() && outage.is_none() {
            self.current_since = now;
        }
        let news = (&self.outage, &self.missing) != (&outage, &missing);
        (self.outage, self.missing) = (outage, missing);
        news
    }

    /// Whether an outage with this text differs from what is known. While one lasts, texts of the same blame
    /// replace each other seldom: causes that alternate must not make callers write again and again.
    pub(crate) fn is_news(&self, why: &str, blame: Blame) -> bool {
        let stays = match blame {
            // A person changed them.
            Blame::Credentials => Duration::ZERO,
            // Several credentials and the budget of logins take turns.
            Blame::Login => 5 * TEXT_STAYS,
            Blame::Permissions | Blame::Server => TEXT_STAYS,
        };
        let recent = self.explained.is_some_and(|(at, of)| of == blame && at.elapsed() < stays);
        self.outage.as_ref().is_none_or(|known| known.why != why && !recent)
    }

    pub(crate) fn fail(&mut self, why: String, blame: Blame, now: Timestamp) {
        let since = self.outage.as_ref().map_or(now, |known| known.since);
        self.outage = Some(self.outage_since(since, why));
        self.explained = Some((Instant::now(), blame));
    }

    /// Takes in what vCenter reports of a selected guest. Returns whose guest it is.
    pub(crate) fn take_report(
        &mut self,
        change: Change<Report>,
        now: Timestamp,
    ) -> Ref<VirtualMachine> {
        match change {
            Change::Entered(report) => {
                let vm = report.reference.clone();
                match self.guests.get_mut(&vm) {
                    Some(entry) => Arc::make_mut(entry).update(report, now),
                    None => self.guests.insert_mut(vm.clone(), Arc::new(Entry::new(report, now))),
                }
                vm
            }
            Change::Changed(delta) => {
                let vm = Ref::new(delta.reference().value());
                change_in(&mut self.guests, &vm, |entry| {
                    let mut report = entry.report.clone();
                    delta.apply(&mut report);
                    entry.update(report, now);
                });
                vm
            }
            Change::Left(reference) => {
                let vm = Ref::new(reference.value());
                self.guests.remove_mut(&vm);
                vm
            }
        }
    }

    /// Forgets the guests that are not selected.
    pub(crate) fn keep_guests(&mut self, selected: &BTreeSet<Ref<VirtualMachine>>) {
        for vm in self.guests.clone().keys().filter(|vm| !selected.contains(*vm)) {
            self.guests.remove_mut(vm);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{collections::HashMap, sync::Arc};

    use cloud_config::{CredentialSource, Inline, VCenter};
    use jiff::{SignedDuration, Timestamp};
    use vsphere::{
        collector::Change,
        reference::Ref,
        tls::Trust,
        types::{GuestNicInfo, ManagedObject},
    };

    use super::{Blame, Health, Snapshot};
    use crate::{Tags, guest::Report, storage::Privileges};

    pub(crate) fn snapshot() -> Snapshot {
        let inline = Inline { user: "cpi".to_owned(), password: "secret".into() };
        let vcenter = VCenter {
            name: "vcenter".to_owned(),
            server: "vcenter".to_owned(),
            endpoint: "https://vcenter.example".parse().unwrap(),
            trust: Trust::default(),
            datacenters: Vec::new(),
            credentials: CredentialSource::Inline(inline),
            fallback: None,
            ip_families: Vec::new(),
        };
        let tags = Tags { tried: true, ..Tags::default() };
        Snapshot { tags, ..Snapshot::new(&vcenter, Timestamp::UNIX_EPOCH) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn health_follows_what_vcenter_answers() {
        let mut snapshot = snapshot();
        let why = |health: Health| match health {
            Health::Current { answered } => format!("current {answered}"),
            Health::Partial(outage) => format!("partial {} {}", outage.why, outage.since),
            Health::Unavailable(outage) => format!("unavailable {} {}", outage.why, outage.since),
        };
        assert!(why(snapshot.health()).starts_with("unavailable it has not answered yet"));
        assert!(snapshot.answer("", false, at(1)));
        assert_eq!(why(snapshot.health()), format!("current {}", at(1)));
        assert!(!snapshot.answer("", false, at(2)), "an answer without news");
        assert!(snapshot.answer("dc-3 is missing", false, at(3)));
        assert!(!snapshot.answer("dc-3 is missing", false, at(4)));
        assert_eq!(why(snapshot.health()), format!("partial dc-3 is missing {}", at(3)));
        assert!(snapshot.answer("dc-3 is missing", true, at(5)));
        assert_eq!(why(snapshot.health()), format!("unavailable dc-3 is missing {}", at(5)));
        snapshot.fail("the connection broke".to_owned(), Blame::Server, at(6));
        assert_eq!(why(snapshot.health()), format!("unavailable the connection broke {}", at(5)));
    }

    #[test]
    fn privileges_that_were_never_read_are_a_matter_of_those_who_need_them() {
        let mut snapshot = snapshot();
        assert_eq!(snapshot.privileges_unknown(), None, "nobody needs them");
        snapshot.privileges = Some(Privileges::default());
        snapshot.answer("", false, at(1));
        let text = "the privileges on its datastores have not been read yet".to_owned();
        assert_eq!(snapshot.privileges_unknown(), Some(text));
        let refused = Some("refused".to_owned());
        snapshot.privileges = Some(Privileges { granted: None, problem: refused.clone() });
        assert_eq!(snapshot.privileges_unknown(), refused);
        assert_eq!(snapshot.health(), Health::Current { answered: at(1) });
        let store = Ref::new("datastore-1");
        let granted = Some(Arc::new(HashMap::from([(store.clone(), true)])));
        snapshot.privileges = Some(Privileges { granted, problem: refused });
        assert_eq!(snapshot.privileges_unknown(), None);
        assert_eq!(snapshot.may_create_on(&store), Some(true));
        assert_eq!(snapshot.may_create_on(&Ref::new("datastore-2")), None);
        assert_eq!(snapshot.privileges_problem(), Some("refused"));
    }

    #[test]
    fn texts_that_alternate_do_not_replace_each_other() {
        let mut snapshot = snapshot();
        snapshot.answer("", false, at(1));
        assert!(snapshot.is_news("broken", Blame::Server));
        snapshot.fail("broken".to_owned(), Blame::Server, at(2));
        assert!(!snapshot.is_news("broken", Blame::Server));
        assert!(!snapshot.is_news("status 503", Blame::Server));
        assert!(snapshot.is_news("the login was refused", Blame::Login));
        snapshot.fail("the Secret does not exist".to_owned(), Blame::Credentials, at(3));
        assert!(snapshot.is_news("the Secret has no password", Blame::Credentials));
    }

    #[test]
    fn a_guest_is_as_old_as_what_it_reports() {
        let mut snapshot = snapshot();
        let report = |address: &str, version: &str| {
            let nic = GuestNicInfo { ip_address: vec![address.to_owned()], ..Default::default() };
            let (reference, change_version) = (Ref::new("vm-1"), Some(version.to_owned()));
            let report = Report { reference, nics: vec![nic], change_version, ..Report::default() };
            Change::Entered(report)
        };
        let vm = Ref::new("vm-1");
        let since = |snapshot: &Snapshot| snapshot.guests.get(&vm).unwrap().since;
        snapshot.take_report(report("10.0.0.1", "1"), at(1));
        snapshot.take_report(report("10.0.0.1", "2"), at(2));
        assert_eq!(since(&snapshot), at(1), "the configuration is not the guest's");
        snapshot.take_report(report("10.0.0.2", "2"), at(3));
        assert_eq!(since(&snapshot), at(3));
        assert!(snapshot.guest(&vm).is_none(), "cards were not read");
        snapshot.take_report(Change::Left(Ref::<ManagedObject>::new("vm-1")), at(4));
        assert!(snapshot.guests.is_empty());
    }
}
