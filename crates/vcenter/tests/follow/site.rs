//! A simulator, and a follower of it.

use std::{collections::BTreeSet, path::Path, time::Duration};

use cloud_config::{CredentialSource, Inline, IpFamily, VCenter};
use daemon::supervise::Tasks;
use lab::VCenterSpec;
use tokio::time::timeout;
use vcenter::{Health, Interests, Sessions, Snapshot, View, follow};
use vsphere::{
    connection::{Connection, Settings},
    inventory::Vm,
    reference::Ref,
    session::Credentials,
    tls::{Roots, Trust},
    types::VirtualMachine,
};

/// Longer than anything takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const USER: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");

pub(crate) struct Site {
    pub(crate) simulator: lab::VCenter,
    pub(crate) view: View,
    pub(crate) sessions: Sessions,
    pub(crate) tasks: Tasks,
}

/// The configuration of a simulator, with the user's password in it.
pub(crate) fn section(simulator: &lab::VCenter, datacenters: &[&str]) -> VCenter {
    let inline = Inline { user: USER.0.to_owned(), password: USER.1.into() };
    VCenter {
        name: "vcenter".to_owned(),
        server: "vcenter".to_owned(),
        endpoint: simulator.url().parse().unwrap(),
        trust: trust(simulator.authority()),
        datacenters: datacenters.iter().map(|&one| one.to_owned()).collect(),
        credentials: CredentialSource::Inline(inline),
        fallback: None,
        ip_families: vec![IpFamily::V4],
    }
}

fn trust(authority: &Path) -> Trust {
    Trust::Verify { roots: Roots::File(authority.to_owned()), thumbprint: None }
}

/// Only credentials in Secrets need an API server.
fn no_kubernetes() -> kube::Client {
    kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap()
}

impl Site {
    /// Follows the default world, in these datacenters.
    pub(crate) async fn start(datacenters: &[&str]) -> Self {
        Self::with(|simulator| section(simulator, datacenters), &[]).await
    }

    pub(crate) async fn with(
        section: impl Fn(&lab::VCenter) -> VCenter,
        categories: &[&str],
    ) -> Self {
        let simulator = lab::VCenter::start(&VCenterSpec::default()).await.unwrap();
        let categories = categories.iter().map(|&one| one.to_owned()).collect();
        let interests = Interests { categories, ..Interests::default() };
        let section = section(&simulator);
        Self::follow(simulator, section, &interests)
    }

    /// Follows a simulator that runs.
    pub(crate) fn follow(simulator: lab::VCenter, section: VCenter, interests: &Interests) -> Self {
        let (mut tasks, sessions) = (Tasks::default(), Sessions::default());
        let metrics = Default::default();
        let mut views =
            follow(&no_kubernetes(), &[section], interests, &metrics, &sessions, &mut tasks);
        let view = views.pop().unwrap();
        Self { simulator, view, sessions, tasks }
    }

    /// Waits until a snapshot is as wanted, and returns that.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Snapshot) -> bool,
    ) -> std::sync::Arc<Snapshot> {
        self.until_within(LIMIT, what, holds).await
    }

    pub(crate) async fn until_within(
        &mut self,
        limit: Duration,
        what: &str,
        holds: impl Fn(&Snapshot) -> bool,
    ) -> std::sync::Arc<Snapshot> {
        let waiting = async {
            while !holds(&self.view.snapshot()) {
                // Heartbeats are not changes, so look again now and then.
                drop(timeout(Duration::from_millis(200), self.view.changed()).await);
            }
        };
        if timeout(limit, waiting).await.is_err() {
            panic!("not within {limit:?}: {what}; health: {:?}", self.view.snapshot().health());
        }
        self.view.snapshot()
    }

    /// Waits until everything that is configured was answered, and privileges were read if somebody needs them.
    pub(crate) async fn current(&mut self) -> std::sync::Arc<Snapshot> {
        let is_known =
            |snapshot: &Snapshot| is_current(snapshot) && snapshot.privileges_unknown().is_none();
        self.until("vCenter is current", is_known).await
    }

    /// Waits until the guest of a VM was read, and follows it from there on.
    pub(crate) async fn select(&mut self, name: &str) -> Ref<VirtualMachine> {
        let vm = vm(&*self.current().await, name).unwrap().reference.clone();
        self.view.select_guests(BTreeSet::from([vm.clone()]));
        vm
    }

    /// A connection of the test's own.
    pub(crate) fn connection(&self) -> Connection {
        administrator(&self.simulator)
    }

    pub(crate) async fn stop(self) -> lab::VCenter {
        self.tasks.stop(LIMIT).await.unwrap();
        self.simulator
    }
}

/// A connection of the administrator.
pub(crate) fn administrator(simulator: &lab::VCenter) -> Connection {
    let credentials =
        Credentials::password(lab::vcenter::ADMINISTRATOR.0, lab::vcenter::ADMINISTRATOR.1);
    let (endpoint, trust) = (simulator.url().parse().unwrap(), trust(simulator.authority()));
    Connection::new(&Settings { trust, ..Settings::new(endpoint, credentials) }).unwrap()
}

pub(crate) fn is_current(snapshot: &Snapshot) -> bool {
    matches!(snapshot.health(), Health::Current { .. })
}

pub(crate) fn vm<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a Vm> {
    snapshot.vms().find(|vm| vm.name == name).map(AsRef::as_ref)
}

pub(crate) fn names(snapshot: &Snapshot) -> Vec<&str> {
    let mut names: Vec<_> = snapshot.vms().map(|vm| vm.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Asks until the answer is yes.
pub(crate) async fn wait_for(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LIMIT, asking).await.is_ok(), "not within a minute: {what}");
}
