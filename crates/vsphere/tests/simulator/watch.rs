//! Following the inventory through everything that can happen to a watch.

use std::{collections::BTreeMap, time::Duration};

use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind, Power},
};
use tokio::time::timeout;
use vsphere::{
    collector::{Change, Collector, is_lost},
    connection::{Connection, Settings},
    error::{Error, Remedy},
    object,
    reference::Ref,
    types::{GuestNicInfo, ManagedObject, VirtualMachine},
};

use crate::site::{
    LIMIT, NOBODY, administrator, calls, connect, generated, sessions, settings, vcenter, wait_for,
    watched,
};

object! {
    /// What is followed.
    struct Vm: VirtualMachine {
        name: String = "name",
        power: String = "runtime.powerState",
        nics: Vec<GuestNicInfo> = "guest.net",
    }
}

/// A consumer, which starts again after an error.
struct Follower {
    connection: Connection,
    collector: Collector<Change<Vm>>,
    vms: BTreeMap<Ref<ManagedObject>, Vm>,
    /// How often everything was known.
    complete: usize,
    errors: Vec<Error>,
}

impl Follower {
    async fn next(&mut self) {
        match timeout(LIMIT, self.collector.next()).await.expect("something happens") {
            Ok(page) => {
                page.changes.into_iter().for_each(|change| self.take(change));
                self.complete += usize::from(page.complete);
            }
            Err(error) => {
                self.errors.push(error);
                self.restart().await;
            }
        }
    }

    fn take(&mut self, change: Change<Vm>) {
        match change {
            Change::Entered(vm) => drop(self.vms.insert(vm.reference.upcast(), vm)),
            Change::Changed(delta) => {
                let vm = self.vms.get_mut(&delta.reference()).expect("it entered before");
                delta.apply(vm);
            }
            Change::Left(reference) => drop(self.vms.remove(&reference).expect("it was there")),
        }
    }

    async fn restart(&mut self) {
        self.vms.clear();
        let (connection, errors) = (&self.connection, &mut self.errors);
        wait_for("a watch is attached", async || match watched(connection).await {
            Ok(collector) => {
                self.collector = collector;
                true
            }
            Err(error) => {
                errors.push(error);
                false
            }
        })
        .await;
    }

    /// Reads on until it holds.
    async fn until(&mut self, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.next().await;
        }
    }

    fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.values().find(|vm| vm.name == name)
    }

    fn is(&self, name: &str, power: &str) -> bool {
        self.vm(name).is_some_and(|vm| vm.power == power)
    }
}

async fn follow(vcenter: &VCenter) -> Follower {
    let connection = administrator(vcenter);
    let collector = watched(&connection).await.unwrap();
    let (vms, errors) = (BTreeMap::new(), Vec::new());
    let mut follower = Follower { connection, collector, vms, complete: 0, errors };
    follower.until(|follower| follower.complete == 1).await;
    follower
}

#[tokio::test]
async fn every_change_arrives_and_nothing_else_is_asked() {
    let vcenter = vcenter().await;
    let mut known = follow(&vcenter).await;
    assert_eq!(known.vms.len(), 3);
    let before = calls(&vcenter).await;

    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known.until(|known| known.is("node-1", "poweredOff")).await;
    vcenter.control().readdress("node-2", &["10.99.0.77/24"]).await.unwrap();
    let has = |vm: &Vm| vm.nics.iter().any(|nic| nic.ip_address.contains(&"10.99.0.77".to_owned()));
    known.until(|known| known.vm("node-2").is_some_and(has)).await;
    vcenter.control().rename("node-2", "worker-2").await.unwrap();
    known.until(|known| known.vm("worker-2").is_some()).await;
    vcenter.control().unregister("node-1").await.unwrap();
    known.until(|known| known.vm("node-1").is_none()).await;

    let mut after = calls(&vcenter).await;
    for (method, count) in before {
        *after.get_mut(&method).unwrap() -= count;
    }
    after.retain(|_, count| *count > 0);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["WaitForUpdatesEx"], "{after:?}");
    assert!(known.errors.is_empty());
}

#[tokio::test]
async fn an_expired_session_is_replaced_and_loses_nothing() {
    let vcenter = vcenter().await;
    let mut known = follow(&vcenter).await;
    for round in 0..5 {
        let (control, power) =
            (vcenter.control(), if round % 2 == 0 { Power::Off } else { Power::On });
        control.expire_sessions().await.unwrap();
        control.power("node-1", power).await.unwrap();
        let state = if power == Power::Off { "poweredOff" } else { "poweredOn" };
        known.until(|known| known.is("node-1", state)).await;
    }
    assert!(!known.errors.is_empty() && known.errors.iter().all(is_lost), "{:?}", known.errors);
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 1);
}

#[tokio::test]
async fn what_happened_while_vcenter_restarted_is_caught_up_with() {
    let vcenter = vcenter().await;
    let mut known = follow(&vcenter).await;
    vcenter.control().unregister("node-2").await.unwrap();
    vcenter.control().restart(500).await.unwrap();
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known
        .until(|known| {
            known.is("node-1", "poweredOff") && known.vm("node-2").is_none() && known.complete > 1
        })
        .await;
    assert_eq!(known.vms.len(), 2);
}

#[tokio::test]
async fn trouble_is_reported_and_a_new_watch_misses_nothing() {
    let vcenter = vcenter().await;
    let mut known = follow(&vcenter).await;
    let kinds =
        [HttpFaultKind::Status { status: 503 }, HttpFaultKind::Truncate, HttpFaultKind::Reset];
    for (round, kind) in kinds.into_iter().enumerate() {
        let method = Some("WaitForUpdatesEx".to_owned());
        let fault = HttpFault { path: "/sdk".to_owned(), method, kind, count: 2 };
        vcenter.control().break_http(&fault).await.unwrap();
        let name = format!("renamed-{round}");
        let old = if round == 0 { "node-1".to_owned() } else { format!("renamed-{}", round - 1) };
        vcenter.control().rename(&old, &name).await.unwrap();
        known.until(|known| known.vm(&name).is_some()).await;
        vcenter.control().disarm().await.unwrap();
    }
    assert!(!known.errors.is_empty());
    assert_eq!(known.vms.len(), 3);
}

#[tokio::test]
async fn a_lost_version_starts_anew() {
    let vcenter = vcenter().await;
    let mut known = follow(&vcenter).await;
    let fault = Fault::next("WaitForUpdatesEx", "InvalidCollectorVersion");
    vcenter.control().fail(&fault).await.unwrap();
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known.until(|known| known.is("node-1", "poweredOff")).await;
    vcenter.control().power("node-2", Power::Off).await.unwrap();
    known.until(|known| known.is("node-2", "poweredOff")).await;
    assert!(matches!(&known.errors[..], [error] if is_lost(error)), "{:?}", known.errors);
}

#[tokio::test]
async fn a_large_inventory_comes_in_pages_and_completely() {
    let vcenter = generated(700).await;
    let mut known = follow(&vcenter).await;
    assert_eq!(known.vms.len(), 703);
    vcenter.control().expire_sessions().await.unwrap();
    known.until(|known| known.complete == 2).await;
    assert_eq!(known.vms.len(), 703);
}

#[tokio::test]
async fn a_first_answer_that_takes_longer_than_a_call_may_is_waited_for() {
    let vcenter = vcenter().await;
    let timeout = Duration::from_secs(3);
    let settings = Settings { timeout, ..settings(&vcenter, ADMINISTRATOR) };
    let connection = Connection::new(&settings).unwrap();
    let mut collector = watched::<Vm>(&connection).await.unwrap();
    vcenter.control().delay("WaitForUpdatesEx", 6000, 0).await.unwrap();
    let page = collector.next().await.unwrap();
    assert_eq!((page.changes.len(), page.complete), (3, true));
}

#[tokio::test]
async fn who_may_see_nothing_is_told_what_is_missing() {
    let vcenter = vcenter().await;
    let error = watched::<Vm>(&connect(&vcenter, NOBODY)).await.err().unwrap();
    assert!(matches!(error.remedy, Remedy::NoPermission { .. }), "{error}");
}

#[tokio::test]
async fn a_watch_that_is_given_up_while_it_waits_for_the_login_keeps_nobody_waiting() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    vcenter.control().delay("Login", 2000, 0).await.unwrap();
    let briefly = Duration::from_millis(200);
    // The login goes on when its caller gives up; the watch stands in line behind it and is given up, too.
    assert!(timeout(briefly, connection.time()).await.is_err());
    assert!(timeout(briefly, watched::<Vm>(&connection)).await.is_err());
    timeout(LIMIT, connection.time()).await.unwrap().unwrap();
    watched::<Vm>(&connection).await.unwrap().next().await.unwrap();
}
