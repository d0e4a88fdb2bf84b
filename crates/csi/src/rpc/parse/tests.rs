//! Requests that are wrong, each in one way, and those that are right.

use std::path::Path;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_oneof, proptest};

use super::{create, expand, parameters, path, publish, segment, stage, volume, volume_path};
use crate::{
    node::{mounts::Options, plan::Access},
    proto::{
        CapacityRange, CreateVolumeRequest, NodeExpandVolumeRequest, NodePublishVolumeRequest,
        NodeStageVolumeRequest, Topology, TopologyRequirement, VolumeCapability,
        VolumeContentSource,
        volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
        volume_content_source::{SnapshotSource, Type, VolumeSource},
    },
    refusal::{Kind, Refusal},
    volumes::{SnapshotId, Source},
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
        |request| request.volume_capability = capability(mount(""), Mode::MultiNodeReaderOnly),
        "a volume from one snapshot, for each node",
    );
    wrong(
        |request| request.volume_capability = capability(mount(""), Mode::Unknown),
        "access_mode",
    );
    wrong(|request| request.volume_capability.as_mut().unwrap().access_type = None, "access_type");
}

#[test]
fn the_source_of_a_volume_is_a_snapshot_or_a_volume() {
    let (volume, snapshot) =
        ("0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c", "aa7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2d");
    let created = |source: Option<Type>| {
        create(CreateVolumeRequest {
            name: "pvc-1".to_owned(),
            volume_capabilities: capability(mount(""), Mode::SingleNodeWriter)
                .into_iter()
                .collect(),
            volume_content_source: Some(VolumeContentSource { r#type: source }),
            ..CreateVolumeRequest::default()
        })
    };
    let from_snapshot =
        |id: &str| created(Some(Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })));
    let from_volume =
        |id: &str| created(Some(Type::Volume(VolumeSource { volume_id: id.to_owned() })));
    let id = format!("{volume}+{snapshot}");
    let expected = SnapshotId { volume: volume.to_owned(), snapshot: snapshot.to_owned() };
    assert_eq!(from_snapshot(&id).unwrap().source, Some(Source::Snapshot(expected)));
    assert_eq!(from_volume(volume).unwrap().source, Some(Source::Volume(volume.to_owned())));
    assert_invalid(created(None), "no type");
    assert_invalid(from_snapshot(""), "snapshot_id is missing");
    assert_invalid(from_volume(""), "volume_id is missing");
    for unknown in [snapshot, "a+b+c", &format!("{volume}+latest")] {
        assert_eq!(from_snapshot(unknown).unwrap_err().kind, Kind::NotFound, "{unknown}");
    }
}

fn topology(labels: &[(&str, &str)]) -> Topology {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    Topology { segments: labels.iter().map(owned).collect() }
}

#[test]
fn segments_are_tried_as_preferred_and_only_if_they_are_allowed() {
    let wanted = |preferred: &[&str], requisite: &[&str]| {
        let zones = |names: &[&str]| -> Vec<Topology> {
            names
                .iter()
                .map(|name| match name.split_once('/') {
                    Some((region, zone)) => topology(&[("region", region), ("zone", zone)]),
                    None if name.is_empty() => topology(&[]),
                    None => topology(&[("zone", name)]),
                })
                .collect()
        };
        let (preferred, requisite) = (zones(preferred), zones(requisite));
        let parsed = create(CreateVolumeRequest {
            name: "pvc-1".into(),
            volume_capabilities: capability(mount(""), Mode::SingleNodeWriter)
                .into_iter()
                .collect(),
            accessibility_requirements: Some(TopologyRequirement { preferred, requisite }),
            ..CreateVolumeRequest::default()
        });
        let segments = parsed.unwrap().segments;
        segments.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(wanted(&[], &[]), "");
    assert_eq!(wanted(&[""], &["", ""]), "", "they leave open where");
    assert_eq!(wanted(&["b"], &["a", "b", "c"]), "zone=b zone=a zone=c");
    assert_eq!(wanted(&["b", "a", "b"], &[]), "zone=b zone=a");
    assert_eq!(wanted(&["c", "b"], &["a", "b"]), "zone=b zone=a", "c is not allowed");
    assert_eq!(wanted(&["r/a"], &["a"]), "region=r,zone=a zone=a", "a part of what is allowed");
}

#[test]
fn a_segment_consists_of_labels() {
    assert_eq!(segment("preferred", Topology::default()).unwrap(), None);
    segment("preferred", topology(&[("topology.csi.vmware.com/zone", "")])).unwrap();
    let long = "x".repeat(64);
    for wrong in [("", "a"), ("zone", "a\n"), ("zone\0", "a"), ("zone", &long)] {
        assert_invalid(segment("preferred", topology(&[wrong])), "preferred has ");
    }
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
fn a_device_is_published_for_writing_or_reading() {
    let mut request = publishing();
    request.volume_capability =
        capability(AccessType::Block(BlockVolume {}), Mode::SingleNodeWriter);
    assert!(publish(request.clone()).unwrap().device.is_some());
    request.readonly = true;
    let read_only = publish(request).unwrap();
    assert!(read_only.device.is_some() && read_only.options.read_only());
}

#[test]
fn a_volume_that_is_staged_read_only_is_published_so() {
    let published = |flag: &str| {
        let mount = MountVolume { mount_flags: vec![flag.to_owned()], ..MountVolume::default() };
        let volume_capability = capability(AccessType::Mount(mount), Mode::SingleNodeWriter);
        publish(NodePublishVolumeRequest { volume_capability, ..publishing() }).unwrap()
    };
    assert!(published("ro").options.read_only());
    assert_eq!(published("noatime").options, Options::default());
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

/// A text that is right, or wrong in one of the ways that matter.
fn text(right: &'static str) -> impl Strategy<Value = String> {
    let trick = "/?[a-c]{0,3}/\\.\\./[a-c]{0,3}";
    prop_oneof![
        4 => Just(right.to_owned()),
        1 => prop_oneof![Just(String::new()), Just("/".to_owned()), Just("x/y".to_owned())],
        1 => Just(format!("/{}", "x".repeat(70_000))),
        1 => trick.prop_map(String::from),
        2 => any::<String>(),
    ]
}

fn anything() -> impl Strategy<Value = NodePublishVolumeRequest> {
    let flags = proptest::collection::vec(text("noatime"), 0..4);
    let mount = (text("ext4"), flags).prop_map(|(fs_type, mount_flags)| {
        AccessType::Mount(MountVolume { fs_type, mount_flags, ..MountVolume::default() })
    });
    let block = Just(AccessType::Block(BlockVolume {}));
    let access_type = proptest::option::weighted(0.9, prop_oneof![mount, block]);
    let mode = prop_oneof![Just(1), Just(6), any::<i32>()];
    let access_mode = proptest::option::weighted(0.9, mode.prop_map(|mode| AccessMode { mode }));
    let capability = (access_type, access_mode)
        .prop_map(|(access_type, access_mode)| VolumeCapability { access_mode, access_type });
    let capability = proptest::option::weighted(0.9, capability);
    let disk = text("6000c29a123456789abcdef012345678");
    (text("v"), text("/pods/a"), text("/staging/a"), capability, disk).prop_map(
        |(volume_id, target_path, staging_target_path, volume_capability, disk)| {
            NodePublishVolumeRequest {
                volume_id,
                target_path,
                staging_target_path,
                volume_capability,
                publish_context: [("diskUUID".to_owned(), disk)].into(),
                ..NodePublishVolumeRequest::default()
            }
        },
    )
}

#[test]
fn nothing_is_published_at_a_relative_path() {
    let kind = |text: &str| volume_path(text).unwrap_err().kind;
    assert_eq!(kind("some/path"), Kind::NotFound);
    for wrong in ["", "/", "../x", "a/../b", "/a/../b", "a\nb"] {
        assert_eq!(kind(wrong), Kind::Invalid, "{wrong:?}");
    }
    assert_eq!(volume_path("/some/path/").unwrap(), Path::new("/some/path"));
}

#[test]
fn options_of_a_mount_are_text_and_not_too_long() {
    let with = |flags: Vec<String>| {
        let mount = MountVolume { mount_flags: flags, ..MountVolume::default() };
        let capability = capability(AccessType::Mount(mount), Mode::SingleNodeWriter);
        stage(NodeStageVolumeRequest { volume_capability: capability, ..staging() })
    };
    with(vec!["noatime".into(), "data=ordered".into()]).unwrap();
    assert_invalid(with(vec!["noatime\0,suid".into()]), "is not an option of mount");
    assert_invalid(with(vec!["x".repeat(100); 50]), "4096 at most");
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
    fn what_is_accepted_is_harmless_and_the_rest_is_invalid(request in anything()) {
        let publishing = NodePublishVolumeRequest { readonly: request.volume_id.len() % 2 == 0, ..request };
        let staging = NodeStageVolumeRequest {
            volume_id: publishing.volume_id.clone(),
            publish_context: publishing.publish_context.clone(),
            staging_target_path: publishing.staging_target_path.clone(),
            volume_capability: publishing.volume_capability.clone(),
            ..NodeStageVolumeRequest::default()
        };
        let harmless = |path: &Path| {
            path.file_name().is_some() && path.is_absolute() && !path.to_str().unwrap().contains("..")
        };
        let refused = |refusal: Refusal| {
            refusal.kind == Kind::Invalid && refusal.to_string().len() < 2500
        };
        match publish(publishing) {
            Ok(request) => prop_assert!(harmless(&request.target) && harmless(&request.staging), "{request:?}"),
            Err(refusal) => prop_assert!(refused(refusal)),
        }
        match stage(staging) {
            Ok(request) => prop_assert!(harmless(&request.staging), "{request:?}"),
            Err(refusal) => prop_assert!(refused(refusal)),
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        drop((volume(&text), path("field", &text)));
    }
}

#[test]
fn a_class_names_its_datastores_in_one_way() {
    let parse = |given: &[(&str, &str)]| {
        let given = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        parameters(&given.collect())
    };
    let listed = parse(&[("datastores", "a, /dc-1/datastore/b,,ds:///c/ ")]).unwrap();
    assert_eq!(listed.selection.datastores, ["a", "/dc-1/datastore/b", "ds:///c/"]);
    let pod = parse(&[("DatastoreCluster", " fast ")]).unwrap();
    assert_eq!(pod.selection.cluster.as_deref(), Some("fast"));
    let both = parse(&[("datastores", "a"), ("datastorecluster", "fast")]);
    assert_invalid(both, "more than one of datastoreurl, datastores and datastorecluster");
    assert_invalid(parse(&[("datastore", "a")]), "unknown parameter");
}
