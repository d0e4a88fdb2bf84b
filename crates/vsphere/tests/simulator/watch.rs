//! Following the inventory through everything that can happen to a watch.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use lab::{
    VCenter,
    vcenter::{ADMINISTRATOR, Fault, HttpFault, HttpFaultKind, Power},
};
use tokio::time::timeout;
use vsphere::{
    error::{Error, Remedy},
    object,
    reference::Ref,
    types::{GuestNicInfo, ManagedObject, VirtualMachine},
    watch::{Change, Watch},
};

use crate::site::{LIMIT, NOBODY, administrator, calls, connect, generated, sessions, vcenter};

object! {
    /// What is followed.
    struct Vm: VirtualMachine {
        name: String = "name",
        power: String = "runtime.powerState",
        nics: Vec<GuestNicInfo> = "guest.net",
    }
}

/// What a consumer knows.
#[derive(Default)]
struct Known {
    vms: BTreeMap<Ref<ManagedObject>, Vm>,
    synced: usize,
    errors: Vec<Error>,
}

impl Known {
    async fn next(&mut self, watch: &mut Watch<Vm>) {
        let change = timeout(LIMIT, watch.next()).await.expect("something happens");
        match change.expect("a watch never ends") {
            Ok(Change::Entered(vm)) => {
                self.vms.insert(vm.reference.upcast(), vm);
            }
            Ok(Change::Changed(delta)) => {
                let vm = self.vms.get_mut(&delta.reference()).expect("it entered before");
                delta.apply(vm);
            }
            Ok(Change::Left(reference)) => {
                self.vms.remove(&reference).expect("it was there");
            }
            Ok(Change::Synced) => self.synced += 1,
            Err(error) => self.errors.push(error),
        }
    }

    /// Reads on until it holds.
    async fn until(&mut self, watch: &mut Watch<Vm>, holds: impl Fn(&Self) -> bool) {
        while !holds(self) {
            self.next(watch).await;
        }
    }

    fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.values().find(|vm| vm.name == name)
    }

    fn is(&self, name: &str, power: &str) -> bool {
        self.vm(name).is_some_and(|vm| vm.power == power)
    }
}

async fn followed(vcenter: &VCenter) -> (Watch<Vm>, Known) {
    let mut watch = administrator(vcenter).watch::<Vm>();
    let mut known = Known::default();
    known.until(&mut watch, |known| known.synced == 1).await;
    (watch, known)
}

#[tokio::test]
async fn every_change_arrives_and_nothing_else_is_asked() {
    let vcenter = vcenter().await;
    let (mut watch, mut known) = followed(&vcenter).await;
    assert_eq!(known.vms.len(), 3);
    let before = calls(&vcenter).await;

    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known.until(&mut watch, |known| known.is("node-1", "poweredOff")).await;
    vcenter.control().readdress("node-2", &["10.99.0.77/24"]).await.unwrap();
    let has = |vm: &Vm| vm.nics.iter().any(|nic| nic.ip_address.contains(&"10.99.0.77".to_owned()));
    known.until(&mut watch, |known| known.vm("node-2").is_some_and(has)).await;
    vcenter.control().rename("node-2", "worker-2").await.unwrap();
    known.until(&mut watch, |known| known.vm("worker-2").is_some()).await;
    vcenter.control().unregister("node-1").await.unwrap();
    known.until(&mut watch, |known| known.vm("node-1").is_none()).await;

    let mut after = calls(&vcenter).await;
    for (method, count) in before {
        *after.get_mut(&method).unwrap() -= count;
    }
    after.retain(|_, count| *count > 0);
    assert_eq!(after.keys().collect::<Vec<_>>(), ["WaitForUpdatesEx"], "{after:?}");
    assert!(known.errors.is_empty());
}

#[tokio::test]
async fn an_expired_session_is_not_noticed_and_loses_nothing() {
    let vcenter = vcenter().await;
    let (mut watch, mut known) = followed(&vcenter).await;
    for round in 0..5 {
        let (control, power) =
            (vcenter.control(), if round % 2 == 0 { Power::Off } else { Power::On });
        control.expire_sessions().await.unwrap();
        control.power("node-1", power).await.unwrap();
        let state = if power == Power::Off { "poweredOff" } else { "poweredOn" };
        known.until(&mut watch, |known| known.is("node-1", state)).await;
    }
    assert!(known.errors.is_empty(), "{:?}", known.errors);
    assert_eq!(sessions(&vcenter, ADMINISTRATOR.0).await, 1);
}

#[tokio::test]
async fn what_happened_while_vcenter_restarted_is_caught_up_with() {
    let vcenter = vcenter().await;
    let (mut watch, mut known) = followed(&vcenter).await;
    vcenter.control().unregister("node-2").await.unwrap();
    vcenter.control().restart(500).await.unwrap();
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known
        .until(&mut watch, |known| {
            known.is("node-1", "poweredOff") && known.vm("node-2").is_none() && known.synced > 1
        })
        .await;
    assert_eq!(known.vms.len(), 2);
}

#[tokio::test]
async fn trouble_is_told_and_the_watch_goes_on_by_itself() {
    let vcenter = vcenter().await;
    let (mut watch, mut known) = followed(&vcenter).await;
    let kinds =
        [HttpFaultKind::Status { status: 503 }, HttpFaultKind::Truncate, HttpFaultKind::Reset];
    for (round, kind) in kinds.into_iter().enumerate() {
        let method = Some("WaitForUpdatesEx".to_owned());
        let fault = HttpFault { path: "/sdk".to_owned(), method, kind, count: 2 };
        vcenter.control().break_http(&fault).await.unwrap();
        let name = format!("renamed-{round}");
        let old = if round == 0 { "node-1".to_owned() } else { format!("renamed-{}", round - 1) };
        vcenter.control().rename(&old, &name).await.unwrap();
        known.until(&mut watch, |known| known.vm(&name).is_some()).await;
        vcenter.control().disarm().await.unwrap();
    }
    assert!(!known.errors.is_empty());
    assert_eq!(known.vms.len(), 3);
}

#[tokio::test]
async fn a_lost_version_starts_anew() {
    let vcenter = vcenter().await;
    let (mut watch, mut known) = followed(&vcenter).await;
    let fault = Fault::next("WaitForUpdatesEx", "InvalidCollectorVersion");
    vcenter.control().fail(&fault).await.unwrap();
    vcenter.control().power("node-1", Power::Off).await.unwrap();
    known.until(&mut watch, |known| known.is("node-1", "poweredOff")).await;
    vcenter.control().power("node-2", Power::Off).await.unwrap();
    known.until(&mut watch, |known| known.is("node-2", "poweredOff")).await;
    assert!(known.errors.is_empty(), "{:?}", known.errors);
}

#[tokio::test]
async fn a_large_inventory_comes_in_pages_and_completely() {
    let vcenter = generated(700).await;
    let (mut watch, mut known) = followed(&vcenter).await;
    assert_eq!(known.vms.len(), 703);
    vcenter.control().expire_sessions().await.unwrap();
    known.until(&mut watch, |known| known.synced == 2).await;
    assert_eq!(known.vms.len(), 703);
}

#[tokio::test]
async fn who_may_see_nothing_is_told_what_is_missing() {
    let vcenter = vcenter().await;
    let mut watch = connect(&vcenter, NOBODY).watch::<Vm>();
    let mut known = Known::default();
    known.until(&mut watch, |known| known.synced == 1 || !known.errors.is_empty()).await;
    assert!(
        matches!(known.errors[..], [Error { remedy: Remedy::NoPermission { .. }, .. }]),
        "{:?}",
        known.errors
    );
}

#[tokio::test]
async fn a_watch_that_nobody_looks_at_keeps_nobody_waiting() {
    let vcenter = vcenter().await;
    let connection = administrator(&vcenter);
    vcenter.control().delay("Login", 2000, 0).await.unwrap();
    let briefly = Duration::from_millis(200);
    // The login goes on when its caller gives up; the watch stands in line behind it and is then left alone.
    assert!(timeout(briefly, connection.time()).await.is_err());
    let mut watch = connection.watch::<Vm>();
    assert!(timeout(briefly, watch.next()).await.is_err());
    timeout(LIMIT, connection.time()).await.unwrap().unwrap();
    assert!(matches!(watch.next().await, Some(Ok(_))));
}
