//! First class disks.

use std::collections::HashSet;

use lab::vcenter::Fault;
use serde_json::json;
use vsphere::{
    error::{Error, Missing, Remedy},
    vslm::{condition, file_url},
};

use crate::{
    cns::volume,
    site::{CSI, administrator, connect, vcenter, vcenter_of},
};

#[tokio::test]
async fn a_plain_disk_becomes_a_first_class_disk_once() {
    for release in ["6.7U3", "8.0U3", "9.1"] {
        let vcenter = vcenter_of(release).await;
        let connection = administrator(&vcenter);
        let disks = connection.disks().await.unwrap();
        let url = file_url("vcenter", "/dc-1", "shared-1", "node-1/node-1.vmdk");
        let id = disks.register(&url, Some("migrated")).await.unwrap();
        assert_eq!(disks.register(&url, Some("again")).await.unwrap(), id);
        let read = disks.read(&id).await.unwrap();
        assert_eq!((&read.config.id.id, &*read.config.name), (&id, "migrated"));

        let nowhere = file_url("vcenter", "/dc-1", "shared-1", "nowhere/disk.vmdk");
        let error = disks.register(&nowhere, None).await.unwrap_err();
        assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
        let error = disks.read("00000000-0000-4000-8000-000000000000").await.unwrap_err();
        assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
        connection.close().await;
    }
}

#[tokio::test]
async fn only_a_disk_that_does_not_exist_is_missing() {
    let vcenter = vcenter().await;
    let control = vcenter.control();
    let connection = connect(&vcenter, CSI);
    let id = volume(&connection, "pvc-1").await.id;
    let disks = connection.disks().await.unwrap();
    let unknown = "00000000-0000-4000-8000-000000000000";
    for answer in ["NotFound", "InvalidArgument"] {
        control.assume("UnknownDisk", json!(answer)).await.unwrap();
        let error = disks.read(unknown).await.unwrap_err();
        let what = Missing::Volume(unknown.to_owned());
        assert_eq!(error.remedy, Remedy::NotFound { what }, "{answer}: {error}");
    }
    // Also of types that are an InvalidArgument or an InvalidDatastore by inheritance.
    let others = ["InvalidDatastore", "InaccessibleDatastore", "InvalidName", "InvalidRequest"];
    for fault in others {
        control.fail(&Fault::next("VslmRetrieveVStorageObject", fault)).await.unwrap();
        let error = disks.read(&id).await.unwrap_err();
        assert_eq!(error.remedy, Remedy::Retry, "{fault}: {error}");
    }
    let gone = Fault {
        fields: json!({"obj": {"type": "Datastore", "value": "datastore-9"}}),
        ..Fault::next("VslmRetrieveVStorageObject", "ManagedObjectNotFound")
    };
    control.fail(&gone).await.unwrap();
    let error = disks.read(&id).await.unwrap_err();
    assert_eq!(error.remedy, Remedy::Retry, "{error}");
    assert_eq!(disks.read(&id).await.unwrap().config.id.id, id);
    connection.close().await;
}

#[tokio::test]
async fn a_disk_on_a_datastore_that_cannot_be_reached_is_not_missing() {
    let vcenter = vcenter().await;
    let control = vcenter.control();
    let connection = connect(&vcenter, CSI);
    let id = volume(&connection, "pvc-1").await.id;
    let disks = connection.disks().await.unwrap();
    let state = control.state_as_json().await.unwrap();
    let datastore = state["volumes"][0]["datastore"].as_str().unwrap();
    control.reach_datastore(datastore, false).await.unwrap();
    for answer in ["InvalidDatastore", "SystemError", "shown"] {
        control.assume("DiskOfInaccessibleDatastore", json!(answer)).await.unwrap();
        match disks.read(&id).await {
            Ok(read) => assert_eq!((answer, &read.config.id.id), ("shown", &id)),
            Err(error) => assert_eq!(error.remedy, Remedy::Retry, "{answer}: {error}"),
        }
    }
    connection.close().await;
}

#[tokio::test]
async fn disks_are_listed_page_by_page_and_by_condition() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let mut made = HashSet::new();
    for number in 0..5 {
        made.insert(volume(&connection, &format!("pvc-{number}")).await.id);
    }
    let disks = connection.disks().await.unwrap();
    let mut pages = disks.pages(&[]).of(2);
    let (mut sizes, mut found) = (Vec::new(), HashSet::new());
    while let Some(page) = pages.next_page().await.unwrap() {
        sizes.push(page.len());
        found.extend(page.into_iter().map(|disk| disk.id.id));
    }
    assert_eq!(sizes, [2, 2, 1]);
    assert_eq!(found, made);

    let mut pages = disks.pages(&[condition("name", "equals", "pvc-3")]);
    let page = pages.next_page().await.unwrap().unwrap();
    assert_eq!(page.len(), 1);
    assert_eq!(page[0].name.as_deref(), Some("pvc-3"));
    assert!(pages.next_page().await.unwrap().is_none());
    connection.close().await;
}
