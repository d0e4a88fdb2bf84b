//! First class disks.

use std::collections::HashSet;

use vsphere::{
    error::{Error, Remedy},
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
