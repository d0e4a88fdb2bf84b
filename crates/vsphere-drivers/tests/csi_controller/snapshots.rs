//! Snapshots, and volumes with the content of snapshots and of other volumes.

use std::collections::BTreeSet;

use csi::proto::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, CreateSnapshotRequest,
    CreateSnapshotResponse, CreateVolumeRequest, CreateVolumeResponse, DeleteSnapshotRequest,
    DeleteSnapshotResponse, ListSnapshotsRequest, ListSnapshotsResponse, Snapshot,
    VolumeContentSource,
    controller_service_capability::{Type, rpc},
    volume_content_source::{self, SnapshotSource, VolumeSource},
};
use lab::{
    Wait, until,
    vcenter::{Fault, Moment},
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::{
    attempts::started_patient,
    situations::started,
    vcenters::calls,
    world::{BOUND, Controller, MIB, World, request},
};

const SHARED_1: &str = "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/";

/// A volume with the content of a snapshot.
pub(crate) fn restored(name: &str, mebibytes: u64, snapshot: &str) -> CreateVolumeRequest {
    let source = SnapshotSource { snapshot_id: snapshot.to_owned() };
    with_source(request(name, mebibytes), volume_content_source::Type::Snapshot(source))
}

/// A volume with the content of another one.
pub(crate) fn cloned(name: &str, mebibytes: u64, volume: &str) -> CreateVolumeRequest {
    let source = VolumeSource { volume_id: volume.to_owned() };
    with_source(request(name, mebibytes), volume_content_source::Type::Volume(source))
}

fn with_source(
    mut request: CreateVolumeRequest,
    source: volume_content_source::Type,
) -> CreateVolumeRequest {
    request.volume_content_source = Some(VolumeContentSource { r#type: Some(source) });
    request
}

impl Controller {
    pub(crate) async fn snapshot(&self, volume: &str, name: &str) -> Result<Snapshot, Status> {
        let request = CreateSnapshotRequest {
            source_volume_id: volume.to_owned(),
            name: name.to_owned(),
            ..CreateSnapshotRequest::default()
        };
        let answer: CreateSnapshotResponse =
            self.call("/csi.v1.Controller/CreateSnapshot", request).await?;
        Ok(answer.snapshot.unwrap())
    }

    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request = DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            ..DeleteSnapshotRequest::default()
        };
        let done: Result<DeleteSnapshotResponse, _> =
            self.call("/csi.v1.Controller/DeleteSnapshot", request).await;
        done.map(|_| ())
    }

    async fn list_snapshots(&self, request: ListSnapshotsRequest) -> (Vec<String>, String) {
        let answer: ListSnapshotsResponse =
            self.call("/csi.v1.Controller/ListSnapshots", request).await.unwrap();
        let ids = answer.entries.into_iter().map(|one| one.snapshot.unwrap().snapshot_id);
        (ids.collect(), answer.next_token)
    }

    /// Creates a volume, and returns its size in MiB beside its id.
    async fn create_sized(&self, request: CreateVolumeRequest) -> Result<(String, u64), Status> {
        let sent = request.volume_content_source.clone();
        let answer: CreateVolumeResponse =
            self.call("/csi.v1.Controller/CreateVolume", request).await?;
        let volume = answer.volume.unwrap();
        assert_eq!(volume.content_source, sent, "the answer names the source");
        Ok((volume.volume_id, u64::try_from(volume.capacity_bytes).unwrap() / MIB))
    }

    async fn capabilities(&self) -> BTreeSet<rpc::Type> {
        let answer: ControllerGetCapabilitiesResponse = self
            .call(
                "/csi.v1.Controller/ControllerGetCapabilities",
                ControllerGetCapabilitiesRequest {},
            )
            .await
            .unwrap();
        let capabilities = answer.capabilities.into_iter();
        capabilities
            .filter_map(|one| match one.r#type? {
                Type::Rpc(rpc) => Some(rpc.r#type()),
            })
            .collect()
    }
}

impl World {
    /// The descriptions of all snapshots in vCenter, by volume and id.
    pub(crate) async fn snapshots(&self) -> Vec<(String, String)> {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut all = Vec::new();
        for volume in state["volumes"].as_array().unwrap() {
            for one in volume["snapshots"].as_array().unwrap() {
                let id = format!("{}+{}", text(&volume["id"]), text(&one["id"]));
                all.push((id, text(&one["description"])));
            }
        }
        all
    }

    async fn size(&self, volume: &str) -> i64 {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let volumes = state["volumes"].as_array().unwrap();
        let found = volumes.iter().find(|one| one["id"] == volume).unwrap();
        found["capacityMb"].as_i64().unwrap()
    }
}

async fn started_on(release: &str) -> (World, Controller) {
    let release = format!("release: {release}");
    let world = World::start_with(|usual| usual.replace("release: 8.0U3", &release)).await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    (world, controller)
}

/// Taken, restored, cloned and deleted, each of it twice.
async fn live(release: &str) {
    let (world, controller) = started_on(release).await;
    let volume = controller.create_patiently("pvc-1").await;
    let taken = controller.snapshot(&volume, "snapshot-1").await.unwrap();
    assert_eq!(controller.snapshot(&volume, "snapshot-1").await.unwrap(), taken);
    assert!(taken.ready_to_use);
    assert_eq!(taken.size_bytes, i64::try_from(64 * MIB).unwrap());
    assert!(taken.creation_time.unwrap().seconds > 0);
    let id = taken.snapshot_id;
    let description = format!("snapshot-1-{volume}");
    assert_eq!(world.snapshots().await, [(id.clone(), description)], "the Go driver's form");

    for _ in 0..2 {
        let (same, size) = controller.create_sized(restored("pvc-2", 64, &id)).await.unwrap();
        assert_eq!((world.size(&same).await, size), (64, 64));
        let (larger, size) = controller.create_sized(restored("pvc-3", 200, &id)).await.unwrap();
        assert_eq!((world.size(&larger).await, size), (200, 200));
        let (clone, size) = controller.create_sized(cloned("pvc-4", 100, &volume)).await.unwrap();
        assert_eq!((world.size(&clone).await, size), (100, 100));
    }
    assert_eq!(world.volumes().await.len(), 4);
    assert_eq!(world.snapshots().await.len(), 1, "that of the clone is gone");
    let places = world.places().await;
    assert_eq!(
        places.values().collect::<BTreeSet<_>>().len(),
        1,
        "where the source is: {places:?}"
    );

    let refused = controller.delete(&volume).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let snapshot = id.split_once('+').unwrap().1;
    assert!(refused.message().contains(snapshot), "{refused}");
    let refused = controller.expand(&volume, 128).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains(snapshot), "{refused}");

    for _ in 0..2 {
        controller.delete_snapshot(&id).await.unwrap();
    }
    controller.expand(&volume, 128).await.unwrap();
    controller.delete(&volume).await.unwrap();
    controller.delete_snapshot(&id).await.unwrap();
    assert!(world.snapshots().await.is_empty());
}

#[tokio::test]
async fn snapshots_are_taken_restored_and_deleted_on_7_0u3() {
    live("7.0U3").await;
}

#[tokio::test]
async fn snapshots_are_taken_restored_and_deleted_on_8_0u3() {
    live("8.0U3").await;
}

#[tokio::test]
async fn snapshots_are_taken_restored_and_deleted_on_9_1() {
    live("9.1").await;
}

#[tokio::test]
async fn releases_without_snapshots_refuse_with_the_reason() {
    let (world, controller) = started_on("6.7U3").await;
    let volume = controller.create_patiently("pvc-1").await;
    let unknown = format!("{volume}+00000000-5eed-4000-8000-000000000000");
    let answers = [
        controller.snapshot(&volume, "snapshot-1").await.map(|_| ()),
        controller.delete_snapshot(&unknown).await,
        controller.create(restored("pvc-2", 64, &unknown)).await.map(|_| ()),
        controller.create(cloned("pvc-3", 64, &volume)).await.map(|_| ()),
    ];
    for answer in answers {
        let refused = answer.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("need vCenter 7.0U3"), "{refused}");
    }
    let snapshots =
        [rpc::Type::CreateDeleteSnapshot, rpc::Type::ListSnapshots, rpc::Type::CloneVolume];
    let advertised = controller.capabilities().await;
    assert!(snapshots.iter().all(|one| !advertised.contains(one)), "{advertised:?}");
    assert_eq!(world.volumes().await, std::slice::from_ref(&volume));
    controller.delete(&volume).await.unwrap();
    let (_world, newer) = started().await;
    let advertised = newer.capabilities().await;
    assert!(snapshots.iter().all(|one| advertised.contains(one)), "{advertised:?}");
}

#[tokio::test]
async fn a_vcenter_that_lacks_the_calls_of_its_release_refuses_snapshots_with_the_reason() {
    let (world, controller) = started().await;
    world.vcenter.control().assume("Snapshots", json!(false)).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    let unknown = format!("{volume}+00000000-5eed-4000-8000-000000000000");
    let answers = [
        controller.snapshot(&volume, "snapshot-1").await.map(|_| ()),
        controller.delete_snapshot(&unknown).await,
        controller.create(restored("pvc-2", 64, &unknown)).await.map(|_| ()),
        controller.create(cloned("pvc-3", 64, &volume)).await.map(|_| ()),
    ];
    for (number, answer) in answers.into_iter().enumerate() {
        let refused = answer.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{number}: {refused}");
        let text = refused.message();
        assert!(text.contains("has no snapshots of volumes"), "{number}: {text}");
        assert!(text.contains("MethodNotFound"), "{number}: {text}");
    }
    let (listed, _) = controller.list_snapshots(ListSnapshotsRequest::default()).await;
    assert!(listed.is_empty(), "{listed:?}");
    controller.expand(&volume, 128).await.unwrap();
    controller.delete(&volume).await.unwrap();
    assert!(world.volumes().await.is_empty());
}

#[tokio::test]
async fn a_changed_limit_of_snapshots_needs_no_new_session() {
    let world = World::start().await;
    let limit = |most: u32| {
        let limits = format!("[Snapshot]\nglobal-max-snapshots-per-block-volume = {most}\n");
        world.write("csi-vsphere.conf", &(world.configuration("") + &limits));
    };
    limit(1);
    world.vcenter.control().assume("Snapshots", json!(true)).await.unwrap();
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let volume = controller.create_patiently("pvc-1").await;
    controller.snapshot(&volume, "snapshot-1").await.unwrap();
    let refused = controller.snapshot(&volume, "snapshot-2").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let logins = async || calls(&world.vcenter, |method| method.starts_with("Login")).await;
    let before = logins().await;
    limit(2);
    until("the limit is known", BOUND, || async {
        Ok(match controller.snapshot(&volume, "snapshot-2").await {
            Ok(_) => Wait::Done(()),
            Err(refused) => Wait::NotYet(refused.to_string()),
        })
    })
    .await
    .unwrap();
    assert_eq!(logins().await, before, "{}", controller.log());
}

#[tokio::test]
async fn a_volume_has_as_many_snapshots_as_the_configuration_allows() {
    let world = World::start().await;
    let limits = "[Snapshot]\nglobal-max-snapshots-per-block-volume = 2\n\
                  granular-max-snapshots-per-block-volume-vsan = 1\n";
    world.write("csi-vsphere.conf", &(world.configuration("") + limits));
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let mut on_vmfs = request("pvc-1", 64);
    on_vmfs.parameters = [("datastoreurl".to_owned(), SHARED_1.to_owned())].into();
    let volume = controller.create(on_vmfs).await.unwrap();
    for number in 1..=2 {
        controller.snapshot(&volume, &format!("snapshot-{number}")).await.unwrap();
    }
    let refused = controller.snapshot(&volume, "snapshot-3").await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("has 2 snapshots, and may have 2"), "{refused}");
    // A repeated request is not one more, and a clone is not hindered.
    let second = controller.snapshot(&volume, "snapshot-2").await.unwrap();
    controller.create(cloned("pvc-2", 64, &volume)).await.unwrap();
    controller.delete_snapshot(&second.snapshot_id).await.unwrap();
    controller.snapshot(&volume, "snapshot-3").await.unwrap();
    let vsan = world.places().await.into_iter().find(|(_, place)| place.contains("vsan"));
    assert_eq!(vsan, None);
    let state = world.vcenter.control().state_as_json().await.unwrap().to_string();
    let url = state.split('"').find(|text| text.starts_with("ds:///vmfs/volumes/vsan:"));
    if let Some(url) = url {
        let mut on_vsan = request("pvc-3", 64);
        on_vsan.parameters = [("datastoreurl".to_owned(), url.to_owned())].into();
        let volume = controller.create(on_vsan).await.unwrap();
        controller.snapshot(&volume, "snapshot-4").await.unwrap();
        let refused = controller.snapshot(&volume, "snapshot-5").await.unwrap_err();
        assert!(refused.message().contains("may have 1"), "{refused}");
    }
}

#[tokio::test]
async fn snapshots_of_this_cluster_are_listed_page_by_page() {
    let (_world, controller) = started().await;
    let mut ids = BTreeSet::new();
    let mut last = String::new();
    for number in 1..=3 {
        let volume = controller.create_patiently(&format!("pvc-{number}")).await;
        for name in ["a", "b"].map(|name| format!("snapshot-{name}-{number}")) {
            ids.insert(controller.snapshot(&volume, &name).await.unwrap().snapshot_id);
        }
        last = volume;
    }
    let (mut found, mut token) = (BTreeSet::new(), String::new());
    for size in [4, 2] {
        let request = ListSnapshotsRequest {
            max_entries: 4,
            starting_token: token,
            ..ListSnapshotsRequest::default()
        };
        let (page, next) = controller.list_snapshots(request).await;
        assert_eq!(page.len(), size);
        found.extend(page);
        token = next;
    }
    assert_eq!((found, token.as_str()), (ids.clone(), ""));
    let request =
        ListSnapshotsRequest { source_volume_id: last.clone(), ..ListSnapshotsRequest::default() };
    let (of_volume, _) = controller.list_snapshots(request).await;
    assert_eq!(of_volume.len(), 2);
    assert!(of_volume.iter().all(|id| id.starts_with(&last)));
    let one = of_volume[0].clone();
    let request =
        ListSnapshotsRequest { snapshot_id: one.clone(), ..ListSnapshotsRequest::default() };
    assert_eq!(controller.list_snapshots(request).await.0, [one]);
}

#[tokio::test]
async fn snapshots_of_other_clusters_are_not_listed() {
    let (world, controller) = started().await;
    let volume = controller.create_patiently("pvc-1").await;
    let ours = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    let configuration = world.configuration("").replace("\"lab\"", "\"other\"");
    world.write("csi-vsphere.conf", &configuration);
    let other = world.serve(crate::world::Start::controller("other.sock")).await;
    other.until_ready().await;
    let theirs = other.create_patiently("pvc-2").await;
    let theirs = other.snapshot(&theirs, "snapshot-2").await.unwrap().snapshot_id;
    assert_ne!(ours, theirs);
    // A page is full although others' snapshots are between.
    let request = ListSnapshotsRequest { max_entries: 1, ..ListSnapshotsRequest::default() };
    assert_eq!(other.list_snapshots(request).await.0, [theirs]);
}

#[tokio::test]
async fn a_source_that_does_not_exist_or_differs_is_refused() {
    let (world, controller) = started().await;
    let volume = controller.create_patiently("pvc-1").await;
    let one = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    let two = controller.snapshot(&volume, "snapshot-2").await.unwrap().snapshot_id;
    let nothing = "00000000-5eed-4000-8000-000000000000";
    for missing in [
        restored("pvc-9", 64, "no-snapshot"),
        restored("pvc-9", 64, &format!("{volume}+{nothing}")),
        restored("pvc-9", 64, &format!("{nothing}+{nothing}")),
        cloned("pvc-9", 64, nothing),
    ] {
        let refused = controller.create(missing).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused}");
    }
    let second = controller.create_patiently("pvc-8").await;
    let refused = controller.snapshot(&second, "snapshot-1").await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    controller.delete(&second).await.unwrap();
    let refused = controller.snapshot(nothing, "snapshot-9").await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    for id in ["no-snapshot", &format!("{volume}+{nothing}"), &format!("{nothing}+{nothing}")] {
        controller.delete_snapshot(id).await.unwrap();
    }

    controller.create(restored("pvc-2", 64, &one)).await.unwrap();
    for other in [restored("pvc-2", 64, &two), cloned("pvc-2", 64, &volume), request("pvc-2", 64)] {
        let refused = controller.create(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    }
    let mut small = restored("pvc-3", 1, &one);
    small.capacity_range.as_mut().unwrap().limit_bytes = i64::try_from(32 * MIB).unwrap();
    let refused = controller.create(small).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    // A volume that exists does not need its source any more.
    controller.delete_snapshot(&one).await.unwrap();
    controller.create(restored("pvc-2", 64, &one)).await.unwrap();
    assert_eq!(world.volumes().await.len(), 2);
}

#[tokio::test]
async fn a_copy_is_made_on_another_datastore_where_the_release_can() {
    let (world, controller) = started().await;
    let volume = controller.create_patiently("pvc-1").await;
    let id = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    let mut elsewhere = restored("pvc-2", 64, &id);
    elsewhere.parameters = [("datastoreurl".to_owned(), SHARED_1.to_owned())].into();
    let refused = controller.create(elsewhere.clone()).await.unwrap_err();
    assert!(refused.message().contains("within the source's datastore only"), "{refused}");
    assert_eq!(world.volumes().await.len(), 1);
    world.vcenter.control().assume("RestoreAnyDatastore", json!(true)).await.unwrap();
    let copy = controller.create(elsewhere).await.unwrap();
    let places = world.places().await;
    assert_ne!(places[&volume], places[&copy], "{places:?}");
}

#[tokio::test]
async fn snapshots_of_a_volume_that_cns_has_lost_are_taken_and_deleted() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    for fault in ["CnsFault", "CnsNotRegisteredFault"] {
        control.assume("NotRegisteredFault", json!(fault)).await.unwrap();
        let volume = controller.create_patiently(&format!("lost-{fault}").to_lowercase()).await;
        control.forget_record(&volume).await.unwrap();
        let take = async |to: &Controller| to.snapshot(&volume, "snapshot-1").await;
        let taken = controller.patiently("taken", take).await.unwrap().snapshot_id;
        control.forget_record(&volume).await.unwrap();
        let delete = async |to: &Controller| to.delete_snapshot(&taken).await;
        controller.patiently("deleted", delete).await.unwrap();
        controller.delete(&volume).await.unwrap();
    }
}

#[tokio::test]
async fn a_snapshot_that_vcenter_misplaced_is_not_reported_as_deleted() {
    let (world, controller) = started().await;
    world.vcenter.control().assume("Snapshots", json!(true)).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    let id = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    for (fault, fields) in
        [("NotFound", json!({})), ("InvalidArgument", json!({"invalidProperty": ""}))]
    {
        let fault = Fault::next("CnsDeleteSnapshots", fault);
        let fault = Fault { fields, at: Moment::Result, ..fault };
        world.vcenter.control().fail(&fault).await.unwrap();
        let refused = controller.delete_snapshot(&id).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    controller.delete_snapshot(&id).await.unwrap();
    assert!(world.snapshots().await.is_empty());
}

#[tokio::test]
async fn a_snapshot_whose_outcome_was_lost_is_taken_once() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    for (number, at) in [Moment::Gone, Moment::Hold].into_iter().enumerate() {
        let lost = Fault { fault: None, at, ..Fault::next("CnsCreateSnapshots", "") };
        let rule = control.fail(&lost).await.unwrap();
        let name = format!("snapshot-{number}");
        let take = async |to: &Controller| to.snapshot(&volume, &name).await;
        let restart = async {
            world.until_struck(rule).await;
            if at == Moment::Hold {
                control.restart_cns(200, "done").await.unwrap();
            }
        };
        let (taken, ()) = tokio::join!(controller.patiently("taken", take), restart);
        taken.unwrap();
        assert_eq!(world.snapshots().await.len(), number + 1, "{}", controller.log());
    }
}

#[tokio::test]
async fn a_snapshot_that_is_taken_after_its_fault_was_reported_is_taken_once() {
    let (world, controller) = started_patient().await;
    let control = world.vcenter.control();
    control.assume("Snapshots", json!(true)).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    for (number, fault) in (1..).zip(["Timedout", "CnsFault"]) {
        let late = Fault { at: Moment::ResultLate, ..Fault::next("CnsCreateSnapshots", fault) };
        control.fail(&late).await.unwrap();
        let name = format!("snapshot-{number}");
        controller.snapshot(&volume, &name).await.unwrap_err();
        let early = controller.snapshot(&volume, &name).await.unwrap_err();
        assert_eq!(early.code(), Code::Aborted, "{fault}: {early}");
        control.release_tasks().await.unwrap();
        let take = async |to: &Controller| to.snapshot(&volume, &name).await;
        controller.patiently("taken", take).await.unwrap();
        assert_eq!(world.snapshots().await.len(), number, "{fault}");
    }
}

#[tokio::test]
async fn a_snapshot_of_a_volume_that_cannot_be_read_is_not_reported_as_deleted() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    control.assume("Snapshots", json!(true)).await.unwrap();
    control.assume("NotRegisteredFault", json!("CnsFault")).await.unwrap();
    let volume = controller.create_patiently("pvc-1").await;
    let id = controller.snapshot(&volume, "snapshot-1").await.unwrap().snapshot_id;
    control.forget_record(&volume).await.unwrap();
    let unread = Fault::next("VslmRetrieveVStorageObject", "SystemError");
    control.fail(&Fault { count: 1_000_000, ..unread }).await.unwrap();
    let refused = controller.delete_snapshot(&id).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    control.disarm().await.unwrap();
    let delete = async |to: &Controller| to.delete_snapshot(&id).await;
    controller.patiently("deleted", delete).await.unwrap();
    assert_eq!(world.volumes().await, [volume], "CNS knows it again");
    assert!(world.snapshots().await.is_empty());
}

#[tokio::test]
async fn what_a_clone_that_was_given_up_left_behind_hinders_nobody() {
    let (world, controller) = started().await;
    let control = world.vcenter.control();
    let volume = controller.create_patiently("pvc-1").await;
    // The copy fails for good: nothing is left.
    for _ in 0..3 {
        let full = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "NoDiskSpace") };
        control.fail(&full).await.unwrap();
    }
    let refused = controller.create(cloned("pvc-2", 64, &volume)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(world.snapshots().await.is_empty(), "{:?}", world.snapshots().await);

    // The copy fails, the snapshot cannot be deleted, and the claim is not asked for again.
    for _ in 0..3 {
        let full = Fault { at: Moment::Result, ..Fault::next("CnsCreateVolume", "NoDiskSpace") };
        control.fail(&full).await.unwrap();
    }
    let stuck = Fault { at: Moment::Result, ..Fault::next("CnsDeleteSnapshots", "TaskInProgress") };
    control.fail(&stuck).await.unwrap();
    controller.create(cloned("pvc-3", 64, &volume)).await.unwrap_err();
    assert_eq!(world.snapshots().await.len(), 1);
    let grow = async |to: &Controller| to.expand(&volume, 128).await;
    controller.patiently("grown", grow).await.unwrap();
    assert!(world.snapshots().await.is_empty());
    controller.delete(&volume).await.unwrap();
    assert!(world.volumes().await.is_empty());
}
