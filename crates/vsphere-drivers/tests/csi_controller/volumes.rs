//! The life of volumes, by the calls of the controller service.

use csi::proto::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, GetCapacityRequest,
    GetCapacityResponse, ListVolumesRequest, ListVolumesResponse,
};
use lab::{Wait, until};
use tonic::Code;

use crate::world::{BOUND, Controller, MIB, NODES, World, request};

macro_rules! on_releases {
    ($($name:ident: $release:literal)*) => { $(
        #[tokio::test]
        async fn $name() {
            a_volume_lives($release).await;
        }
    )* };
}

on_releases! {
    a_volume_lives_on_6_7_u3: "6.7U3"
    a_volume_lives_on_7_0_u3: "7.0U3"
    a_volume_lives_on_8_0_u3: "8.0U3"
    a_volume_lives_on_9_0: "9.0"
    a_volume_lives_on_9_1: "9.1"
}

/// A volume is created, attached, grown, listed, detached and deleted, each of them twice.
async fn a_volume_lives(release: &str) {
    let named = format!("release: {release}");
    let world = World::start_with(|usual| usual.replace("release: 8.0U3", &named)).await;
    let controller = world.run(&[]).await;
    assert_eq!(controller.probe().await.unwrap().ready, Some(true));
    let volume = controller
        .patiently("created", async |to| to.create(request("pvc-1", 100)).await)
        .await
        .unwrap();
    let again = controller.create(request("pvc-1", 100)).await.unwrap();
    assert_eq!(again, volume, "the same name is the same volume");
    let other = controller.create(request("pvc-1", 200)).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists, "{other}");
    assert_eq!(world.volumes().await, std::slice::from_ref(&volume));

    let disk = controller.attach(&volume, NODES[0]).await.unwrap();
    assert_eq!((disk.len(), disk.to_lowercase()), (32, disk.clone()));
    assert_eq!(controller.attach(&volume, NODES[0]).await.unwrap(), disk, "attached already");
    let elsewhere = controller.attach(&volume, NODES[1]).await.unwrap_err();
    assert_eq!(elsewhere.code(), Code::FailedPrecondition, "{elsewhere}");
    assert!(elsewhere.message().contains("VM node-1 (node node-1)"), "{elsewhere}");
    let in_use = controller.delete(&volume).await.unwrap_err();
    assert_eq!(in_use.code(), Code::FailedPrecondition, "{in_use}");

    if release == "6.7U3" {
        let refused = controller.expand(&volume, 151).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("grows detached volumes only"), "{refused}");
        controller.detach(&volume, NODES[0]).await.unwrap();
        controller.expand(&volume, 151).await.unwrap();
        controller.attach(&volume, NODES[0]).await.unwrap();
    }
    for _ in 0..2 {
        controller.expand(&volume, 151).await.unwrap();
    }
    let list = ListVolumesRequest::default();
    let listed: ListVolumesResponse =
        controller.call("/csi.v1.Controller/ListVolumes", list).await.unwrap();
    assert_eq!(listed.entries.len(), 1);
    let status = listed.entries[0].status.clone().unwrap();
    assert_eq!(status.published_node_ids, [NODES[0]]);
    until_grown(&controller, &volume, 151).await;

    for _ in 0..2 {
        controller.detach(&volume, NODES[0]).await.unwrap();
    }
    for _ in 0..2 {
        controller.delete(&volume).await.unwrap();
    }
    assert!(world.volumes().await.is_empty());
    let capacity: GetCapacityResponse = controller
        .call("/csi.v1.Controller/GetCapacity", GetCapacityRequest::default())
        .await
        .unwrap();
    assert!(capacity.available_capacity > 1 << 40, "{capacity:?}");
}

/// Waits until the volume is healthy and of this size: CNS may show the old one for a while.
async fn until_grown(controller: &Controller, volume: &str, mebibytes: u64) {
    until("the new size shows", BOUND, || async {
        let get = ControllerGetVolumeRequest { volume_id: volume.to_owned() };
        let got: ControllerGetVolumeResponse =
            controller.call("/csi.v1.Controller/ControllerGetVolume", get).await?;
        assert!(!got.status.unwrap().volume_condition.unwrap().abnormal);
        let size = got.volume.unwrap().capacity_bytes;
        let is_new = size == i64::try_from(mebibytes * MIB).unwrap();
        Ok(if is_new { Wait::Done(()) } else { Wait::NotYet(format!("{size} bytes")) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_request_that_cannot_be_met_is_answered_with_cause_and_remedy() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.patiently("ready", async |to| to.create(request("first", 10)).await).await.unwrap();
    let with = |key: &str, value: &str| {
        let mut request = request("pvc-2", 10);
        request.parameters = [(key.to_owned(), value.to_owned())].into();
        request
    };
    let cases = [
        (
            with("storagepolicyname", "golt"),
            Code::InvalidArgument,
            "the most similar names are [\"gold\"",
        ),
        (with("datastoreurl", "ds:///vmfs/volumes/none/"), Code::InvalidArgument, "the URLs are "),
        (with("datastorurl", "x"), Code::InvalidArgument, "unknown parameter \"datastorurl\""),
        (request("pvc-2", 40 << 20), Code::OutOfRange, "in all"),
        (request("pvc-2", 70 << 20), Code::OutOfRange, "62 TiB"),
    ];
    for (request, code, text) in cases {
        let refused = controller.create(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(text), "{refused}");
    }
    let missing = controller.attach("00000000-5eed-4000-8000-000000000000", NODES[0]).await;
    let missing = missing.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "{missing}");
    let nobody = controller.attach("00000000-5eed-4000-8000-000000000000", "node-9").await;
    assert_eq!(nobody.unwrap_err().code(), Code::NotFound);
    assert_eq!(world.volumes().await.len(), 1, "only the first one was made");
}

#[tokio::test]
async fn a_class_names_its_datastores_or_their_cluster() {
    let world = World::start().await;
    let controller = world.run(&[]).await;
    controller.until_ready().await;
    let create = async |name: &str, key: &str, value: &str| {
        let mut request = request(name, 64);
        request.parameters.insert(key.to_owned(), value.to_owned());
        controller.create(request).await
    };
    let url = "ds:///vmfs/volumes/5eed0001-00000001-0001-000000000001/";
    let by_url = create("url", "datastoreurl", url).await.unwrap();
    let listed = create("listed", "datastores", "local-1, shared-1").await.unwrap();
    let by_name = create("name", "datastores", "pod-2").await.unwrap();
    let by_path = create("path", "datastores", "/dc-1/datastore/fast/pod-2").await.unwrap();
    let other = create("other", "datastores", "pod-1").await.unwrap();
    let member = create("member", "datastorecluster", "fast").await.unwrap();
    let places = world.places().await;
    assert_eq!(places[&listed], places[&by_url], "local-1 is not shared: {places:?}");
    assert_eq!(places[&by_path], places[&by_name]);
    assert_ne!(places[&other], places[&by_name]);
    assert!([&places[&other], &places[&by_name]].contains(&&places[&member]), "{places:?}");
    let refused = create("wrong", "datastorecluster", "fats").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("/dc-1/datastore/fast"), "{refused}");
    let again = create("listed", "datastores", "vsan-1").await.unwrap_err();
    assert_eq!(again.code(), Code::AlreadyExists, "{again}");
}
