//! Snapshots of volumes, and volumes from snapshots.

use std::collections::HashSet;

use lab::vcenter::{Fault, Moment};
use vsphere::{
    cns::{Content, NewVolume},
    error::{Error, Remedy},
    types::{
        CnsSnapshot, CnsSnapshotCreateSpec, CnsSnapshotDeleteSpec, CnsSnapshotId, CnsVolumeId,
    },
};

use crate::{
    cns::{datastore, volume},
    site::{CSI, LIMIT, connect, fix, vcenter, vcenter_of},
};

const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

fn of(volume: &CnsVolumeId) -> CnsSnapshotCreateSpec {
    CnsSnapshotCreateSpec {
        volume_id: volume.clone(),
        description: "before the upgrade".to_owned(),
        snapshot_id: None,
    }
}

fn gone(snapshot: &CnsSnapshot) -> CnsSnapshotDeleteSpec {
    CnsSnapshotDeleteSpec {
        volume_id: snapshot.volume_id.clone(),
        snapshot_id: snapshot.snapshot_id.clone(),
    }
}

/// Taken, listed, restored and deleted.
async fn live(release: &str) {
    let vcenter = vcenter_of(release).await;
    fix(&vcenter, &[("Snapshots", true.into())]).await;
    fix(&vcenter, &[("DeleteMissingSnapshot", "NotFound".into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let one = volume(&connection, "pvc-1").await;
    let two = volume(&connection, "pvc-2").await;
    let specs = [of(&one), of(&UNKNOWN.into()), of(&two), of(&one)];
    let taken = volumes.create_snapshots(&specs).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(matches!(taken[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })), "{taken:?}");
    let taken: Vec<_> = taken.into_iter().flatten().collect();
    let owners: Vec<_> = taken.iter().map(|taken| &taken.snapshot.volume_id).collect();
    assert_eq!(owners, [&one, &two, &one]);
    assert_eq!(taken[0].all_mebibytes.is_some(), release.starts_with('9'));

    let first = &taken[0].snapshot;
    assert_eq!(first.description.as_deref(), Some("before the upgrade"));
    let read = volumes.snapshot(&one, &first.snapshot_id, LIMIT).await.unwrap();
    assert_eq!(read.snapshot_id, first.snapshot_id);

    let restored = NewVolume {
        datastores: vec![datastore(&connection, "shared-1").await],
        ..NewVolume::new(
            "pvc-3",
            Content::Snapshot {
                mebibytes: 64,
                volume: one.clone(),
                snapshot: first.snapshot_id.clone(),
                linked: false,
            },
        )
    };
    let restored = volumes.create(&restored).await.unwrap().wait(LIMIT).await.unwrap();
    assert_ne!(restored.volume, one);

    // A disk with snapshots stays where vCenter refuses, whatever its words.
    for refusal in ["CnsFault", "InvalidState", "ResourceInUse"] {
        fix(&vcenter, &[("DeleteWithSnapshots", refusal.into())]).await;
        volumes.delete(&one, true).await.unwrap().wait(LIMIT).await.unwrap_err();
    }

    let missing = CnsSnapshotDeleteSpec { volume_id: one.clone(), snapshot_id: UNKNOWN.into() };
    let specs = [gone(first), missing, gone(&taken[2].snapshot)];
    let deleted = volumes.delete_snapshots(&specs).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!(deleted[0].as_ref().unwrap().snapshot.as_ref(), Some(&first.snapshot_id));
    assert!(
        matches!(deleted[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })),
        "{deleted:?}"
    );
    assert!(deleted[2].is_ok(), "{deleted:?}");
    volumes.delete(&one, true).await.unwrap().wait(LIMIT).await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn snapshots_live_from_create_to_delete_on_7_0u3() {
    live("7.0U3").await;
}

#[tokio::test]
async fn snapshots_live_from_create_to_delete_on_8_0u3() {
    live("8.0U3").await;
}

#[tokio::test]
async fn snapshots_live_from_create_to_delete_on_9_1() {
    live("9.1").await;
}

#[tokio::test]
async fn snapshots_are_listed_page_by_page() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("Snapshots", true.into()), ("SnapshotLimit", 32.into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let one = volume(&connection, "pvc-1").await;
    let two = volume(&connection, "pvc-2").await;
    let specs = [of(&one), of(&one), of(&one), of(&one), of(&one), of(&two)];
    let taken = volumes.create_snapshots(&specs).await.unwrap().wait(LIMIT).await.unwrap();
    let made: HashSet<CnsSnapshotId> =
        taken.into_iter().map(|taken| taken.unwrap().snapshot.snapshot_id).collect();
    assert_eq!(made.len(), 6);

    let mut pages = volumes.snapshots_of(&one).of(2);
    let mut sizes = Vec::new();
    while let Some(page) = pages.next_page(LIMIT).await.unwrap() {
        assert!(page.iter().flatten().all(|snapshot| snapshot.volume_id == one));
        sizes.push(page.len());
    }
    assert_eq!(sizes, [2, 2, 1]);

    let mut pages = volumes.snapshots().of(4);
    let mut found = HashSet::new();
    while let Some(page) = pages.next_page(LIMIT).await.unwrap() {
        found.extend(page.into_iter().map(|snapshot| snapshot.unwrap().snapshot_id));
    }
    assert_eq!(found, made);

    let page = volumes.snapshots_of(&UNKNOWN.into()).next_page(LIMIT).await.unwrap().unwrap();
    assert!(matches!(page[..], [Err(Error { remedy: Remedy::NotFound { .. }, .. })]), "{page:?}");
    let error = volumes.snapshot(&one, &UNKNOWN.into(), LIMIT).await.unwrap_err();
    assert!(matches!(error, Error { remedy: Remedy::NotFound { .. }, .. }), "{error}");
    let three = volume(&connection, "pvc-3").await;
    assert!(volumes.snapshots_of(&three).next_page(LIMIT).await.unwrap().is_none());
    connection.close().await;
}

#[tokio::test]
async fn a_snapshot_that_was_taken_but_not_recorded_is_not_lost() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("Snapshots", true.into())]).await;
    let connection = connect(&vcenter, CSI);
    let id = volume(&connection, "pvc-1").await;
    let fields = serde_json::json!({
        "volumeId": {"id": id.id},
        "snapshotId": {"id": UNKNOWN},
        "datastore": {"type": "Datastore", "value": "datastore-1"},
    });
    let fault = Fault::next("CnsCreateSnapshots", "CnsSnapshotCreatedFault");
    let fault = Fault { fields, at: Moment::Result, ..fault };
    vcenter.control().fail(&fault).await.unwrap();
    let batch = connection.volumes().create_snapshots(&[of(&id)]).await.unwrap();
    let taken = batch.wait(LIMIT).await.unwrap().remove(0).unwrap();
    assert_eq!(taken.snapshot.snapshot_id.id, UNKNOWN);
    assert_eq!(taken.snapshot.volume_id, id);
    connection.close().await;
}
