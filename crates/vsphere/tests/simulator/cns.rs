//! Volumes: each operation, on each release.

mod faults;

use std::collections::HashSet;

use futures::future::join_all;
use lab::VCenter;
use vsphere::{
    cns::{ALL, Content, NewVolume, Select},
    connection::Connection,
    error::{Error, Remedy},
    object,
    reference::Ref,
    types::{
        AnyCnsBackingObjectDetails, AnyCnsEntityMetadata, CnsBlockVolumeRelocateSpec,
        CnsContainerCluster, CnsCursor, CnsKubernetesEntityMetadata, CnsKubernetesEntityType,
        CnsKubernetesQueryFilter, CnsNFSAccessControlSpec, CnsQueryFilter, CnsSyncVolumeMode,
        CnsSyncVolumeSpec, CnsUnregisterTargetVolumeType, CnsUnregisterVolumeSpec, CnsVolume,
        CnsVolumeACLConfigureSpec, CnsVolumeAttachDetachSpec, CnsVolumeId, CnsVolumeMetadata,
        CnsVolumeMetadataUpdateSpec, Datastore, VirtualMachine, VsanFileShareNetPermission,
    },
    vslm::file_url,
};

use crate::site::{CSI, LIMIT, calls, connect, fix, vcenter, vcenter_of, wait_for};

const GOLD: &str = "9f6e1c3a-5eed-4000-8000-00000000000a";
const SHARED: &str = "9f6e1c3a-5eed-4000-8000-00000000000b";
const UNKNOWN: &str = "00000000-0000-4000-8000-000000000000";

object! {
    struct Place: Datastore {
        name: String = "name",
    }
}

object! {
    struct Machine: VirtualMachine {
        name: String = "name",
    }
}

pub(crate) async fn datastore(connection: &Connection, name: &str) -> Ref<Datastore> {
    let places: Vec<Place> = connection.list().await.unwrap();
    places.into_iter().find(|place| place.name == name).unwrap().reference
}

async fn vm(connection: &Connection, name: &str) -> Ref<VirtualMachine> {
    let machines: Vec<Machine> = connection.list().await.unwrap();
    machines.into_iter().find(|machine| machine.name == name).unwrap().reference
}

/// A cluster that the user of the default world owns, with a PV in it.
fn metadata(pv: &str) -> CnsVolumeMetadata {
    let cluster = CnsContainerCluster {
        cluster_type: "KUBERNETES".to_owned(),
        cluster_id: "cluster-1".to_owned(),
        vsphere_user: CSI.0.to_owned(),
        cluster_flavor: Some("VANILLA".to_owned()),
        cluster_distribution: Some("kubeadm".to_owned()),
        delete: None,
    };
    let entity = CnsKubernetesEntityMetadata {
        entity_name: pv.to_owned(),
        cluster_id: Some("cluster-1".to_owned()),
        entity_type: CnsKubernetesEntityType::PersistentVolume,
        ..CnsKubernetesEntityMetadata::default()
    };
    CnsVolumeMetadata {
        container_cluster: cluster.clone(),
        entity_metadata: vec![entity.into()],
        container_cluster_array: vec![cluster],
    }
}

/// A volume on the datastore that every host of the first datacenter has.
pub(crate) async fn volume(connection: &Connection, name: &str) -> CnsVolumeId {
    let wanted = NewVolume {
        datastores: vec![datastore(connection, "shared-1").await],
        metadata: Some(metadata(name)),
        ..NewVolume::block(name, 64)
    };
    let started = connection.volumes().create(&wanted).await.unwrap();
    started.wait(LIMIT).await.unwrap().volume
}

/// How often a method was called.
async fn count(vcenter: &VCenter, method: &str) -> u64 {
    calls(vcenter).await.get(method).copied().unwrap_or_default()
}

/// Reads a volume until it is as it should be: queries may lag behind what a task has done.
async fn shown(
    connection: &Connection,
    id: &CnsVolumeId,
    what: &str,
    holds: impl Fn(&CnsVolume) -> bool,
) -> CnsVolume {
    let mut last = None;
    wait_for(&format!("the volume shows {what}"), async || {
        let mut found = connection.volumes().read(std::slice::from_ref(id), ALL).await.unwrap();
        assert!(found.len() < 2, "{found:?}");
        last = found.pop();
        last.as_ref().is_some_and(&holds)
    })
    .await;
    last.unwrap()
}

/// A volume whose creation has arrived in queries.
async fn one(connection: &Connection, id: &CnsVolumeId) -> CnsVolume {
    shown(connection, id, "where it is", |volume| volume.datastore_url.is_some()).await
}

/// Waits until queries know of the end of a volume.
async fn ended(connection: &Connection, id: &CnsVolumeId) {
    wait_for("the volume is not shown", async || {
        connection.volumes().read(std::slice::from_ref(id), ALL).await.unwrap().is_empty()
    })
    .await;
}

/// Waits until queries know of so many new volumes.
async fn listed(connection: &Connection, number: usize) {
    wait_for(&format!("{number} volumes are listed"), async || {
        let all = connection.volumes().list(CnsQueryFilter::default(), &[]).await.unwrap();
        all.len() == number
    })
    .await;
}

fn capacity(volume: &CnsVolume) -> Option<i64> {
    match volume.backing_object_details.as_ref()? {
        AnyCnsBackingObjectDetails::CnsBlockBackingDetails(backing) => backing.capacity_in_mb,
        AnyCnsBackingObjectDetails::CnsVsanFileShareBackingDetails(share) => share.capacity_in_mb,
        _ => None,
    }
}

/// From create to delete, as a driver does it.
async fn lives(release: &str) {
    let vcenter = vcenter_of(release).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let shared = datastore(&connection, "shared-1").await;
    let wanted = NewVolume {
        datastores: vec![shared.clone(), datastore(&connection, "vsan-1").await],
        policy: Some(SHARED.to_owned()),
        metadata: Some(metadata("pv-1")),
        ..NewVolume::block("pvc-1", 64)
    };
    let created = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!(created.name.as_deref(), Some("pvc-1"));
    if ["6.7U3", "7.0U1"].contains(&release) {
        assert_eq!(created.datastore, None);
    } else {
        assert_eq!(created.datastore, Some(shared));
        assert_eq!(created.placements.len(), 2);
        assert!(created.placements[1].placement_faults[0].is_a("CnsInCompatibleFault"));
    }
    let id = created.volume;
    let read = one(&connection, &id).await;
    assert_eq!(read.name.as_deref(), Some("pvc-1"));
    assert_eq!(read.storage_policy_id.as_deref(), Some(SHARED));
    assert!(read.datastore_url.unwrap().contains("5eed0001"));

    let spec = CnsVolumeAttachDetachSpec::new(&id, &vm(&connection, "node-1").await);
    let specs = [spec];
    let attached = volumes.attach(&specs).await.unwrap().wait(LIMIT).await.unwrap().remove(0);
    assert!(!attached.unwrap().disk_uuid.is_empty());
    volumes.detach(&specs).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();

    volumes.extend(&id, 128).await.unwrap().wait(LIMIT).await.unwrap();
    shown(&connection, &id, "its new size", |volume| capacity(volume) == Some(128)).await;

    let update = CnsVolumeMetadataUpdateSpec { volume_id: id.clone(), metadata: renamed("pv-1") };
    let updated = volumes.update_metadata(&[update]).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(updated[0].is_ok(), "{updated:?}");
    shown(&connection, &id, "its new label", |volume| label(volume) == Some("<gold> & more")).await;

    let by_name = CnsQueryFilter { names: vec!["pvc-1".to_owned()], ..CnsQueryFilter::default() };
    let found = volumes.list(by_name.clone(), &[Select::VolumeName]).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].volume_id, id);

    volumes.delete(&id, true).await.unwrap().wait(LIMIT).await.unwrap();
    ended(&connection, &id).await;
    connection.close().await;
}

/// The first label of a volume's first entity.
fn label(volume: &CnsVolume) -> Option<&str> {
    match volume.metadata.as_ref()?.entity_metadata.first()? {
        AnyCnsEntityMetadata::CnsKubernetesEntityMetadata(entity) => {
            entity.labels.first().map(|label| label.value.as_str())
        }
        _ => None,
    }
}

fn renamed(pv: &str) -> CnsVolumeMetadata {
    let mut changed = metadata(pv);
    let entity = CnsKubernetesEntityMetadata {
        entity_name: pv.to_owned(),
        labels: vec![vsphere::types::KeyValue {
            key: "tier".to_owned(),
            value: "<gold> & more".to_owned(),
        }],
        cluster_id: Some("cluster-1".to_owned()),
        entity_type: CnsKubernetesEntityType::PersistentVolume,
        ..CnsKubernetesEntityMetadata::default()
    };
    changed.entity_metadata = vec![entity.into()];
    changed
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_6_7u3() {
    lives("6.7U3").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_7_0u1() {
    lives("7.0U1").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_7_0u2() {
    lives("7.0U2").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_7_0u3() {
    lives("7.0U3").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_8_0u3() {
    lives("8.0U3").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_9_0() {
    lives("9.0").await;
}

#[tokio::test]
async fn a_volume_lives_from_create_to_delete_on_9_1() {
    lives("9.1").await;
}

#[tokio::test]
async fn the_result_of_a_volume_s_task_comes_with_the_poll() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    // Logs in, and makes the view of tasks.
    let first = volume(&connection, "first").await;
    let place = datastore(&connection, "shared-1").await;
    let reads = || count(&vcenter, "RetrievePropertiesEx");
    let before = reads().await;
    let wanted = NewVolume {
        datastores: vec![place],
        metadata: Some(metadata("second")),
        ..NewVolume::block("second", 64)
    };
    let made = connection.volumes().create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
    assert_ne!(made.volume, first);
    assert_eq!(reads().await, before, "a task that succeeds is not read");
    // What failed is read, with all that is known of it.
    let unknown = CnsVolumeId::from(UNKNOWN);
    let deleted = async { connection.volumes().delete(&unknown, true).await?.wait(LIMIT).await };
    deleted.await.unwrap_err();
}

#[tokio::test]
async fn file_volumes_are_made_and_their_access_changes() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let permission = |ips: &str, permissions: &str| VsanFileShareNetPermission {
        ips: ips.to_owned(),
        permissions: Some(permissions.to_owned()),
        allow_root: Some(true),
    };
    let permissions = vec![permission("10.0.0.0/8", "READ_WRITE")];
    let wanted = NewVolume {
        datastores: vec![datastore(&connection, "vsan-1").await],
        metadata: Some(metadata("pv-1")),
        ..NewVolume::new("share-1", Content::Share { mebibytes: 1024, permissions })
    };
    let id = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap().volume;
    assert_eq!(capacity(&one(&connection, &id).await), Some(1024));

    let access = CnsNFSAccessControlSpec {
        net_permission: permission("192.0.2.0/24", "READ_ONLY"),
        delete: None,
    };
    let spec = CnsVolumeACLConfigureSpec {
        volume_id: id.clone(),
        access_control_spec_list: vec![access.into()],
    };
    let changed = volumes.configure_access(&[spec]).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(changed[0].is_ok(), "{changed:?}");
    match one(&connection, &id).await.backing_object_details.unwrap() {
        AnyCnsBackingObjectDetails::CnsVsanFileShareBackingDetails(share) => {
            let ips: Vec<&str> = share.permission.iter().map(|entry| &*entry.ips).collect();
            assert_eq!(ips, ["10.0.0.0/8", "192.0.2.0/24"]);
            assert_eq!(share.access_points.len(), 2);
        }
        other => panic!("{other:?}"),
    }
    connection.close().await;
}

#[tokio::test]
async fn disks_that_exist_are_registered_once_and_again() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = volume(&connection, "pvc-1").await;
    let disk = volumes.disks(std::slice::from_ref(&id)).await.unwrap();
    let disk = disk.wait(LIMIT).await.unwrap().remove(0).unwrap();
    assert_eq!(disk.config.id.id, id.id);
    volumes.delete(&id, false).await.unwrap().wait(LIMIT).await.unwrap();

    let by_id = NewVolume {
        metadata: Some(metadata("pv-1")),
        ..NewVolume::new("static", Content::Disk(id.id.clone()))
    };
    let registered = volumes.create(&by_id).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!((&registered.volume, registered.existed), (&id, false));
    // A server that answers with success does not say that the volume was there before.
    let answers = [("success", false), ("fault", true)];
    for (answer, existed) in answers {
        vcenter.control().assume("RegisterKnown", answer.into()).await.unwrap();
        let registered = volumes.create(&by_id).await.unwrap().wait(LIMIT).await.unwrap();
        assert_eq!((&registered.volume, registered.existed), (&id, existed), "{answer}");
    }

    // The system disk of a node is a plain one.
    let url = file_url("vcenter", "/dc-1", "shared-1", "node-2/node-2.vmdk");
    let by_file = NewVolume {
        metadata: Some(metadata("pv-2")),
        ..NewVolume::new("migrated", Content::File(url))
    };
    let migrated = volumes.create(&by_file).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(!migrated.existed);
    assert_eq!(one(&connection, &migrated.volume).await.name.as_deref(), Some("migrated"));
    for (answer, existed) in answers {
        vcenter.control().assume("RegisterKnown", answer.into()).await.unwrap();
        let registered = volumes.create(&by_file).await.unwrap().wait(LIMIT).await.unwrap();
        let expected = (&migrated.volume, existed);
        assert_eq!((&registered.volume, registered.existed), expected, "{answer}");
    }
    connection.close().await;
}

#[tokio::test]
async fn listings_follow_cursors_and_split_long_lists_of_ids() {
    let vcenter = vcenter().await;
    fix(&vcenter, &[("Snapshots", true.into()), ("MaxQueryIDs", 1000.into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let shared = &datastore(&connection, "shared-1").await;
    let create = |number: usize| async move {
        let wanted = NewVolume {
            datastores: vec![shared.clone()],
            metadata: Some(metadata("pv-1")),
            ..NewVolume::block(&format!("pvc-{number}"), 1)
        };
        volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap().volume
    };
    let made: HashSet<_> = join_all((0..120).map(create)).await.into_iter().collect();
    assert_eq!(made.len(), 120);
    listed(&connection, 120).await;

    let mut pages = volumes.pages(CnsQueryFilter::default(), &[Select::VolumeName]).of(50);
    let (mut sizes, mut found) = (Vec::new(), HashSet::new());
    while let Some(page) = pages.next_page().await.unwrap() {
        assert!(page.iter().all(|volume| volume.name.is_some() && volume.metadata.is_none()));
        sizes.push(page.len());
        found.extend(page.into_iter().map(|volume| volume.volume_id));
    }
    assert_eq!(sizes, [50, 50, 20]);
    assert_eq!(found, made);
    assert!(pages.next_page().await.unwrap().is_none());

    let strangers = (0..1100).map(|number| format!("00000000-0000-4000-8000-{number:012}"));
    let mut ids: Vec<CnsVolumeId> = strangers.map(|id| id.as_str().into()).collect();
    ids.extend(made.iter().cloned());
    let before = count(&vcenter, "CnsQueryVolume").await;
    assert_eq!(volumes.read(&ids, &[]).await.unwrap().len(), 120);
    assert_eq!(count(&vcenter, "CnsQueryVolume").await, before + 2);
    assert!(volumes.read(&[], ALL).await.unwrap().is_empty());

    let cursor = Some(CnsCursor { offset: 100, limit: 50, total_records: None });
    let filter = CnsQueryFilter { cursor, ..CnsQueryFilter::default() };
    let page = volumes.query_by_task(&filter, ALL).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!(page.volumes.len(), 20);
    assert_eq!(page.cursor.total_records, Some(120));
    assert_eq!(capacity(&page.volumes[0]), Some(1));
    connection.close().await;
}

#[tokio::test]
async fn a_kubernetes_filter_finds_by_names_of_kubernetes() {
    let vcenter = vcenter().await;
    let connection = connect(&vcenter, CSI);
    let id = volume(&connection, "pv-one").await;
    volume(&connection, "pv-two").await;
    listed(&connection, 2).await;
    let filter = CnsKubernetesQueryFilter {
        pv_names: vec!["pv-one".to_owned()],
        ..CnsKubernetesQueryFilter::default()
    };
    let found = connection.volumes().list(filter, &[]).await.unwrap();
    assert_eq!(found.into_iter().map(|volume| volume.volume_id).collect::<Vec<_>>(), [id]);
    connection.close().await;
}

#[tokio::test]
async fn volumes_move_and_change_their_policy() {
    let vcenter = vcenter().await;
    // A NotFound inside a CnsFault may be about a host or a datastore: the client does not take it for the volume.
    fix(&vcenter, &[("ReconfigIncompatible", "fault".into()), ("UnknownVolume", "call".into())])
        .await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let id = volume(&connection, "pvc-1").await;
    let pod = datastore(&connection, "pod-1").await;
    let specs = [
        CnsBlockVolumeRelocateSpec::new(&id, &pod, Some(&GOLD.to_owned())),
        CnsBlockVolumeRelocateSpec::new(&UNKNOWN.into(), &pod, None),
    ];
    let moved = volumes.relocate(&specs).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(
        moved[0].is_ok() && matches!(moved[1], Err(Error { remedy: Remedy::NotFound { .. }, .. })),
        "{moved:?}"
    );
    shown(&connection, &id, "its new policy", |volume| {
        volume.storage_policy_id.as_deref() == Some(GOLD)
    })
    .await;

    let back = CnsBlockVolumeRelocateSpec::new(
        &id,
        &datastore(&connection, "shared-1").await,
        Some(&SHARED.to_owned()),
    );
    volumes.relocate(&[back]).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();
    let changes = [(id.clone(), GOLD.to_owned())];
    let changed = volumes.change_policy(&changes).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(changed[0].is_err(), "shared-1 is not gold");
    let changes = [(id.clone(), SHARED.to_owned())];
    let changed = volumes.change_policy(&changes).await.unwrap().wait(LIMIT).await.unwrap();
    assert!(changed[0].is_ok(), "{changed:?}");

    let read = shown(&connection, &id, "that it is back", |volume| {
        volume.datastore_url.as_ref().is_some_and(|url| url.contains("5eed0001"))
    });
    let url = read.await.datastore_url.unwrap();
    volumes.sync_datastore(&url, true).await.unwrap().wait(LIMIT).await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn the_newest_release_syncs_and_unregisters_and_takes_chosen_ids() {
    let vcenter = vcenter_of("9.1").await;
    fix(&vcenter, &[("Transactions", true.into()), ("OldHosts", "none".into())]).await;
    let connection = connect(&vcenter, CSI);
    let volumes = connection.volumes();
    let chosen = CnsVolumeId::from("11111111-2222-4333-8444-555555555555");
    let wanted = NewVolume {
        id: Some(chosen.clone()),
        datastores: vec![datastore(&connection, "shared-1").await],
        metadata: Some(metadata("pv-1")),
        ..NewVolume::block("pvc-1", 64)
    };
    let created = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!(created.volume, chosen);
    let again = volumes.create(&wanted).await.unwrap().wait(LIMIT).await.unwrap();
    assert_eq!(again.volume, chosen, "{again:?}");

    let sync = CnsSyncVolumeSpec {
        volume_id: chosen.clone(),
        datastore: None,
        sync_mode: vec![CnsSyncVolumeMode::SpaceUsage],
    };
    volumes.sync(&[sync]).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();
    let spec = CnsUnregisterVolumeSpec {
        volume_id: chosen.clone(),
        target_volume_type: CnsUnregisterTargetVolumeType::Fcd,
    };
    volumes.unregister(&[spec]).await.unwrap().wait(LIMIT).await.unwrap().remove(0).unwrap();
    ended(&connection, &chosen).await;
    connection.close().await;
}
