//! Requests that are wrong, each in one way, and those that are right.

use std::path::Path;

use proptest::prelude::{Strategy, any, prop_assert, proptest};

use super::{expand, path, publish, stage, volume};
use crate::{
    node::plan::Access,
    proto::{
        CapacityRange, NodeExpandVolumeRequest, NodePublishVolumeRequest, NodeStageVolumeRequest,
        VolumeCapability,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
    },
    refusal::{Kind, Refusal},
};

fn capability(access: AccessType, mode: Mode) -> Option<VolumeCapability> {
    let access_mode = Some(AccessMode { mode: mode.into() });
    Some(VolumeCapability { access_mode, access_type: Some(access) })
}

fn mount(fs_type: &str) -> AccessType {
    AccessType::Mount(MountVolume { fs_type: fs_type.into(), ..MountVolume::default() })
}

fn staging() -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: "v".into(),
        staging_target_path: "/staging".into(),
        volume_capability: capability(mount("ext4"), Mode::SingleNodeWriter),
        publish_context: [("diskUUID".into(), "6000c29a123456789abcdef012345678".into())].into(),
        ..NodeStageVolumeRequest::default()
    }
}

fn publishing() -> NodePublishVolumeRequest {
    let staging = staging();
    NodePublishVolumeRequest {
        volume_id: staging.volume_id,
        staging_target_path: staging.staging_target_path,
        target_path: "/pod".into(),
        volume_capability: staging.volume_capability,
        publish_context: staging.publish_context,
        ..NodePublishVolumeRequest::default()
    }
}

fn assert_invalid<T: std::fmt::Debug>(parsed: Result<T, Refusal>, text: &str) {
    let refusal = parsed.unwrap_err();
    assert_eq!(refusal.kind, Kind::Invalid);
    assert!(refusal.to_string().contains(text), "{refusal}");
}

#[test]
fn a_request_to_stage_names_what_is_missing_or_wrong() {
    stage(staging()).unwrap();
    let wrong = |change: fn(&mut NodeStageVolumeRequest), text| {
        let mut request = staging();
        change(&mut request);
        assert_invalid(stage(request), text);
    };
    wrong(|request| request.volume_id.clear(), "volume_id");
    wrong(|request| request.volume_id = "a\nb".into(), "volume_id");
    wrong(|request| request.volume_id = "x".repeat(10_000), "volume_id");
    wrong(|request| request.staging_target_path.clear(), "staging_target_path");
    wrong(|request| request.staging_target_path = "/a/../../etc".into(), "`..`");
    wrong(|request| request.staging_target_path = "relative".into(), "absolute");
    wrong(|request| request.volume_capability = None, "volume_capability");
    wrong(|request| request.publish_context.clear(), "attached first");
    wrong(
        |request| drop(request.publish_context.insert("diskUUID".into(), "../x".into())),
        "32 hexadecimal",
    );
    wrong(
        |request| request.volume_capability = capability(mount("ntfs"), Mode::SingleNodeWriter),
        "ntfs",
    );
    wrong(
        |request| request.volume_capability = capability(mount("ext2"), Mode::SingleNodeWriter),
        "use ext4",
    );
    wrong(
        |request| request.volume_capability = capability(mount(""), Mode::MultiNodeMultiWriter),
        "MULTI_NODE_MULTI_WRITER",
    );
    wrong(
        |request| request.volume_capability = capability(mount(""), Mode::Unknown),
        "access_mode",
    );
    wrong(|request| request.volume_capability.as_mut().unwrap().access_type = None, "access_type");
}

#[test]
fn a_reader_mounts_read_only() {
    let mut request = staging();
    request.volume_capability = capability(mount("XFS"), Mode::SingleNodeReaderOnly);
    let Access::Mount { options, file_system, .. } = stage(request).unwrap().access else {
        panic!()
    };
    assert!(options.read_only());
    assert_eq!(file_system.unwrap().name(), "xfs");
    let mut request = publishing();
    request.readonly = true;
    assert!(publish(request).unwrap().options.read_only());
}

#[test]
fn a_device_is_published_for_writing_only() {
    let mut request = publishing();
    request.volume_capability =
        capability(AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter);
    assert!(publish(request.clone()).unwrap().device.is_some());
    request.readonly = true;
    assert_invalid(publish(request), "read-only");
}

#[test]
fn a_request_to_grow_may_leave_out_the_size() {
    let request = |bytes| NodeExpandVolumeRequest {
        volume_id: "v".into(),
        volume_path: "/pod/".into(),
        capacity_range: bytes,
        ..NodeExpandVolumeRequest::default()
    };
    let range = |required_bytes| Some(CapacityRange { required_bytes, limit_bytes: 0 });
    let parsed = expand(&request(None)).unwrap();
    assert_eq!((parsed.bytes, parsed.path.as_path()), (0, Path::new("/pod")));
    assert_eq!(expand(&request(range(7))).unwrap().bytes, 7);
    assert_invalid(expand(&request(range(-1))), "negative");
}

proptest! {
    #[test]
    fn a_path_that_is_accepted_leads_where_it_says(
        text in proptest::collection::vec("[a-c]|\\.\\.|\\.|/|\0|", 0..12).prop_map(|parts| parts.concat())
    ) {
        if let Ok(path) = path("field", &text) {
            prop_assert!(path.is_absolute());
            prop_assert!(path.components().all(|part| part != std::path::Component::ParentDir), "{path:?}");
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        drop((volume(&text), path("field", &text)));
    }
}
