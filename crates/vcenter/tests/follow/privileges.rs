//! On which datastores the user may create files, for a program with an interest in storage.

use std::{fs, time::Duration};

use cloud_config::CredentialSource;
use lab::vcenter::Fault;
use tempfile::TempDir;
use vcenter::Snapshot;
use vsphere::{
    connection::Connection,
    reference::Ref,
    types::{Datastore, Permission},
};

use crate::{
    permissions::starts,
    site::{Site, administrator, is_current, section, wait_for},
    storage::{CSI, SELDOM, datastore, follow, interests, simulator},
    watch::calls,
};

const OFTEN: Duration = Duration::from_millis(100);

/// Gives the driver's user another role on a datastore.
async fn grant(administrator: &Connection, store: &Ref<Datastore>, role: &str) {
    let authorization = administrator.authorization();
    let roles = authorization.roles().await.unwrap();
    let role_id = roles.iter().find(|one| one.name == role).unwrap().role_id;
    let principal = CSI.0.to_owned();
    let permission = Permission { principal, role_id, propagate: true, ..Permission::default() };
    authorization.set_permission(store, permission).await.unwrap();
}

async fn reference(administrator: &Connection, path: &str) -> Ref<Datastore> {
    let found = administrator.inventory().by_path(path).await.unwrap();
    found.unwrap().cast().unwrap()
}

fn may(snapshot: &Snapshot, name: &str) -> Option<bool> {
    snapshot.may_create_on(&datastore(snapshot, name)?.reference)
}

async fn reads(site: &Site) -> u64 {
    calls(site).await.get("HasPrivilegeOnEntities").copied().unwrap_or_default()
}

#[tokio::test]
async fn privileges_on_all_datastores_are_read_in_one_request() {
    let mut site = follow(simulator().await, SELDOM);
    let snapshot = site.current().await;
    for store in snapshot.datastores() {
        let granted = ["shared-1", "vsan-1", "pod-1", "pod-2"].contains(&store.name.as_str());
        assert_eq!(snapshot.may_create_on(&store.reference), Some(granted), "{}", store.name);
    }
    assert_eq!(snapshot.privileges_problem(), None);
    assert_eq!(snapshot.may_create_on(&Ref::new("datastore-4711")), None);
    assert_eq!(reads(&site).await, 1);
    site.stop().await;
}

#[tokio::test]
async fn a_privilege_that_is_taken_away_is_noticed() {
    let mut site = follow(simulator().await, OFTEN);
    let snapshot = site.current().await;
    let administrator = site.connection();
    let store = datastore(&snapshot, "shared-1").unwrap().reference.clone();
    drop(site.view.take_changes());
    grant(&administrator, &store, "ReadOnly").await;
    site.until("it is noticed", |snapshot| may(snapshot, "shared-1") == Some(false)).await;
    assert_eq!(site.view.take_changes(), None, "nobody is woken");
    grant(&administrator, &store, "CNS-DATASTORE").await;
    site.until("it is back", |snapshot| may(snapshot, "shared-1") == Some(true)).await;
    administrator.close().await;
    site.stop().await;
}

#[tokio::test]
async fn a_datastore_is_not_there_while_it_is_hidden_and_checked_when_it_appears() {
    let simulator = simulator().await;
    let administrator = administrator(&simulator);
    let store = reference(&administrator, "/dc-1/datastore/shared-1").await;
    grant(&administrator, &store, "NoAccess").await;
    let mut site = follow(simulator, SELDOM);
    let snapshot = site.current().await;
    assert!(datastore(&snapshot, "shared-1").is_none());
    assert!(snapshot.datastore(&store).is_none());
    assert_eq!(snapshot.may_create_on(&store), None);

    grant(&administrator, &store, "CNS-DATASTORE").await;
    // The simulator shows it with its next change.
    site.simulator.control().free_space("/dc-1/datastore/shared-1", 4096).await.unwrap();
    site.until("it may be used", |snapshot| may(snapshot, "shared-1") == Some(true)).await;
    assert_eq!((starts(&site).await, reads(&site).await), (1, 2));
    administrator.close().await;
    site.stop().await;
}

#[tokio::test]
async fn a_datastore_that_becomes_hidden_does_not_hide_the_privileges_on_others() {
    let mut site = follow(simulator().await, OFTEN);
    let snapshot = site.current().await;
    let administrator = site.connection();
    for (name, role) in [("shared-1", "NoAccess"), ("vsan-1", "ReadOnly")] {
        let store = &datastore(&snapshot, name).unwrap().reference;
        grant(&administrator, store, role).await;
    }
    let noticed = |snapshot: &Snapshot| {
        may(snapshot, "vsan-1") == Some(false) && may(snapshot, "shared-1") != Some(true)
    };
    let snapshot = site.until("both are noticed", noticed).await;
    assert_eq!(may(&snapshot, "pod-1"), Some(true));
    assert_eq!(snapshot.privileges_problem(), None);
    administrator.close().await;
    site.stop().await;
}

#[tokio::test]
async fn privileges_that_cannot_be_read_are_a_problem_and_the_last_answer_stays() {
    let mut site = follow(simulator().await, OFTEN);
    site.current().await;
    let fault = Fault::next("HasPrivilegeOnEntities", "SystemError");
    site.simulator.control().fail(&Fault { count: 1_000_000, ..fault }).await.unwrap();
    let failed = |snapshot: &Snapshot| snapshot.privileges_problem().is_some();
    let snapshot = site.until("it is a problem", failed).await;
    let why = snapshot.privileges_problem().unwrap();
    assert!(why.starts_with("the privileges on its datastores cannot be read: "), "{why}");
    assert_eq!(may(&snapshot, "shared-1"), Some(true));
    assert!(is_current(&snapshot), "{:?}", snapshot.health());
    site.simulator.control().disarm().await.unwrap();
    site.until("it is read again", |snapshot| !failed(snapshot)).await;
    site.stop().await;
}

#[tokio::test]
async fn a_vcenter_is_current_although_privileges_cannot_be_read() {
    let simulator = simulator().await;
    let fault = Fault::next("HasPrivilegeOnEntities", "SystemError");
    simulator.control().fail(&Fault { count: 1_000_000, ..fault }).await.unwrap();
    let mut site = follow(simulator, SELDOM);
    let refused = |snapshot: &Snapshot| snapshot.privileges_problem().is_some();
    let snapshot = site.until("privileges are not read", refused).await;
    assert!(is_current(&snapshot), "{:?}", snapshot.health());
    assert_eq!(snapshot.privileges_unknown().as_deref(), snapshot.privileges_problem());
    assert!(snapshot.datastores().count() > 0 && may(&snapshot, "shared-1").is_none());
    site.simulator.control().disarm().await.unwrap();
    assert_eq!(may(&*site.current().await, "shared-1"), Some(true));
    site.stop().await;
}

#[tokio::test]
async fn privileges_are_read_again_when_credentials_are_replaced() {
    let directory = TempDir::new().unwrap();
    let write = |password: &str| {
        fs::write(directory.path().join("vcenter.username"), CSI.0).unwrap();
        fs::write(directory.path().join("vcenter.password"), password).unwrap();
    };
    write(CSI.1);
    let simulator = simulator().await;
    let mut section = section(&simulator, &["dc-1"]);
    section.credentials = CredentialSource::Directory(directory.path().to_owned());
    let mut site = Site::follow(simulator, section, &interests(SELDOM));
    let snapshot = site.current().await;
    let store = datastore(&snapshot, "vsan-1").unwrap().reference.clone();
    let administrator = site.connection();
    grant(&administrator, &store, "ReadOnly").await;
    site.simulator.control().set_password(CSI.0, "Lab-csi-2!").await.unwrap();
    write("Lab-csi-2!");
    site.until("it is noticed", |snapshot| may(snapshot, "vsan-1") == Some(false)).await;
    let settled = async || is_current(&site.view.snapshot());
    wait_for("it is current", settled).await;
    administrator.close().await;
    site.stop().await;
}
