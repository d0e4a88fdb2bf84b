//! Requests that are wrong, over the real socket: each is refused, and nothing is touched.

use csi::{
    client::Client,
    proto::{
        CapacityRange, NodeExpandVolumeRequest, NodeExpandVolumeResponse,
        NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse, NodePublishVolumeRequest,
        NodePublishVolumeResponse, NodeStageVolumeRequest, NodeStageVolumeResponse,
        NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest,
        NodeUnstageVolumeResponse, ProbeRequest, ProbeResponse, VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use tonic::{Code, Status};

use crate::driver::Place;

const STAGE: &str = "/csi.v1.Node/NodeStageVolume";
const UNSTAGE: &str = "/csi.v1.Node/NodeUnstageVolume";
const PUBLISH: &str = "/csi.v1.Node/NodePublishVolume";
const UNPUBLISH: &str = "/csi.v1.Node/NodeUnpublishVolume";
const STATS: &str = "/csi.v1.Node/NodeGetVolumeStats";
const EXPAND: &str = "/csi.v1.Node/NodeExpandVolume";

/// What no path of a volume is, made of a directory that exists.
fn wrong_paths(place: &Place) -> Vec<String> {
    let inside = place.text("kubelet");
    vec![
        String::new(),
        "/".to_owned(),
        format!("{inside}/../kubelet/pod"),
        format!("{inside}/pod/.."),
        format!("{inside}/a\0b"),
        format!("{inside}/a\nb"),
        format!("{inside}/{}", "x".repeat(100_000)),
        format!("/{}", "y/".repeat(1_000_000)),
    ]
}

fn wrong_volumes() -> Vec<String> {
    vec![String::new(), "v\0".to_owned(), "v\n".to_owned(), "v".repeat(3_000_000)]
}

fn capability(mode: i32, fs_type: &str, flag: &str) -> Option<VolumeCapability> {
    let mount_flags = vec![flag.to_owned()];
    let mount = MountVolume { fs_type: fs_type.to_owned(), mount_flags, ..MountVolume::default() };
    let access_mode = Some(AccessMode { mode });
    Some(VolumeCapability { access_mode, access_type: Some(AccessType::Mount(mount)) })
}

fn wrong_capabilities() -> Vec<Option<VolumeCapability>> {
    let writer = Mode::SingleNodeWriter.into();
    let without = |part: fn(&mut VolumeCapability)| {
        capability(writer, "", "").map(|mut whole| {
            part(&mut whole);
            whole
        })
    };
    vec![
        None,
        without(|whole| whole.access_mode = None),
        without(|whole| whole.access_type = None),
        capability(0, "", ""),
        capability(-1, "", ""),
        capability(i32::MAX, "", ""),
        capability(Mode::MultiNodeMultiWriter.into(), "", ""),
        capability(writer, "ntfs", ""),
        capability(writer, "../../bin/sh", ""),
        capability(writer, &"ext4".repeat(100_000), ""),
        capability(writer, "ext4", "noatime\0"),
        capability(writer, "ext4", &"x".repeat(10_000)),
    ]
}

fn stage(place: &Place) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: "v".into(),
        publish_context: [("diskUUID".into(), "6000c29a123456789abcdef012345678".into())].into(),
        staging_target_path: place.text("kubelet/staging"),
        volume_capability: capability(Mode::SingleNodeWriter.into(), "ext4", "noatime"),
        ..NodeStageVolumeRequest::default()
    }
}

/// Every request that differs from a right one in one field.
fn wrong_stages(place: &Place) -> Vec<NodeStageVolumeRequest> {
    let right = stage(place);
    let mut all = Vec::new();
    all.extend(
        wrong_volumes()
            .into_iter()
            .map(|volume_id| NodeStageVolumeRequest { volume_id, ..right.clone() }),
    );
    all.extend(
        wrong_paths(place)
            .into_iter()
            .chain(["relative".to_owned()])
            .map(|path| NodeStageVolumeRequest { staging_target_path: path, ..right.clone() }),
    );
    all.extend(
        wrong_capabilities()
            .into_iter()
            .map(|volume_capability| NodeStageVolumeRequest { volume_capability, ..right.clone() }),
    );
    for disk in ["", "../../../dev/vda", "6000c29a", &"6".repeat(1_000_000)] {
        let publish_context = [("diskUUID".into(), disk.into())].into();
        all.push(NodeStageVolumeRequest { publish_context, ..right.clone() });
    }
    all.push(NodeStageVolumeRequest { publish_context: [].into(), ..right });
    all
}

fn wrong_publishes(place: &Place) -> Vec<NodePublishVolumeRequest> {
    let of = |stage: NodeStageVolumeRequest, target_path: String| NodePublishVolumeRequest {
        volume_id: stage.volume_id,
        publish_context: stage.publish_context,
        staging_target_path: stage.staging_target_path,
        target_path,
        volume_capability: stage.volume_capability,
        ..NodePublishVolumeRequest::default()
    };
    let target = place.text("kubelet/pod");
    // Of a mounted volume the disk is not read.
    let is_about_disk = |one: &NodeStageVolumeRequest| {
        one.publish_context.get("diskUUID") != stage(place).publish_context.get("diskUUID")
    };
    let stages = wrong_stages(place).into_iter().filter(|one| !is_about_disk(one));
    let mut all: Vec<_> = stages.map(|stage| of(stage, target.clone())).collect();
    all.extend(wrong_paths(place).into_iter().map(|target| of(stage(place), target)));
    all
}

#[track_caller]
fn assert_invalid<T: std::fmt::Debug>(answer: Result<T, Status>, request: &impl std::fmt::Debug) {
    let status = answer.unwrap_err();
    let request = format!("{request:?}");
    let request = &request[..request.floor_char_boundary(500)];
    assert_eq!(status.code(), Code::InvalidArgument, "{status} {request}");
    assert!(!status.message().is_empty() && status.message().len() <= 4096);
}

async fn send_all(place: &Place, client: &mut Client) {
    for request in wrong_stages(place) {
        let answer = client.call::<_, NodeStageVolumeResponse>(STAGE, request.clone()).await;
        assert_invalid(answer, &request);
    }
    for request in wrong_publishes(place) {
        let answer = client.call::<_, NodePublishVolumeResponse>(PUBLISH, request.clone()).await;
        assert_invalid(answer, &request);
    }
    let right = place.text("kubelet/pod");
    let volumes = wrong_volumes().into_iter().map(|volume| (volume, right.clone()));
    let paths = wrong_paths(place).into_iter().map(|path| ("v".to_owned(), path));
    for (volume_id, path) in volumes.chain(paths) {
        let request = NodeUnstageVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: path.clone(),
        };
        let answer = client.call::<_, NodeUnstageVolumeResponse>(UNSTAGE, request.clone()).await;
        assert_invalid(answer, &request);
        let request =
            NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: path.clone() };
        let answer =
            client.call::<_, NodeUnpublishVolumeResponse>(UNPUBLISH, request.clone()).await;
        assert_invalid(answer, &request);
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume_id.clone(),
            volume_path: path.clone(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let answer = client.call::<_, NodeGetVolumeStatsResponse>(STATS, request.clone()).await;
        assert_invalid(answer, &request);
        let request = NodeExpandVolumeRequest {
            volume_id,
            volume_path: path,
            ..NodeExpandVolumeRequest::default()
        };
        let answer = client.call::<_, NodeExpandVolumeResponse>(EXPAND, request.clone()).await;
        assert_invalid(answer, &request);
    }
}

#[tokio::test]
async fn malformed_requests_are_invalid_and_touch_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("kubelet/pod")).unwrap();
    let mut program = place.start(&[]);
    let mut client = place.connect("csi/csi.sock").await;
    let before = place.files();
    send_all(&place, &mut client).await;
    // Messages of other kinds, whose fields have other types.
    let other = CapacityRange { required_bytes: -1, limit_bytes: i64::MIN };
    for method in [STAGE, UNSTAGE, PUBLISH, UNPUBLISH, STATS, EXPAND] {
        let status = client.call::<_, ()>(method, other).await.unwrap_err();
        assert!(matches!(status.code(), Code::Internal | Code::InvalidArgument), "{status}");
    }
    assert_eq!(place.files(), before);
    let ready: ProbeResponse =
        client.call("/csi.v1.Identity/Probe", ProbeRequest {}).await.unwrap();
    assert_eq!(ready.ready, Some(true));
    program.stop();
}

#[tokio::test]
async fn a_path_without_a_volume_is_not_found() {
    let place = Place::new();
    let _program = place.start(&[]);
    let mut client = place.connect("csi/csi.sock").await;
    // csi-sanity sends the first one.
    for path in ["some/path".to_owned(), place.text("nothing"), place.text("kubelet")] {
        let stats = NodeGetVolumeStatsRequest {
            volume_id: "v".into(),
            volume_path: path.clone(),
            ..NodeGetVolumeStatsRequest::default()
        };
        let status = client.call::<_, NodeGetVolumeStatsResponse>(STATS, stats).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{path}: {status}");
        let expand = NodeExpandVolumeRequest {
            volume_id: "v".into(),
            volume_path: path.clone(),
            ..NodeExpandVolumeRequest::default()
        };
        let status = client.call::<_, NodeExpandVolumeResponse>(EXPAND, expand).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound, "{path}: {status}");
    }
    // What is not there is done.
    let target_path = place.text("nothing");
    let unpublish = NodeUnpublishVolumeRequest { volume_id: "v".into(), target_path };
    client.call::<_, NodeUnpublishVolumeResponse>(UNPUBLISH, unpublish).await.unwrap();
    let staging_target_path = place.text("nothing");
    let unstage = NodeUnstageVolumeRequest { volume_id: "v".into(), staging_target_path };
    client.call::<_, NodeUnstageVolumeResponse>(UNSTAGE, unstage).await.unwrap();
}
