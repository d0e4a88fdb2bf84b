//! Calls of CNS.

use vsphere::{
    reference::Ref,
    types::{
        AnyCnsQueryFilter, CnsAttachVolume, CnsBlockBackingDetails, CnsBlockVolumeRelocateSpec,
        CnsConfigureVolumeAcls, CnsContainerCluster, CnsCreateSnapshots, CnsCreateVolume,
        CnsCursor, CnsDebugManager, CnsDeleteSnapshots, CnsDeleteVolume, CnsDetachVolume,
        CnsExtendVolume, CnsKubernetesEntityMetadata, CnsKubernetesEntityReference,
        CnsKubernetesEntityType, CnsNFSAccessControlSpec, CnsQueryAllVolume, CnsQueryAsync,
        CnsQueryFilter, CnsQuerySelection, CnsQuerySnapshots, CnsQueryVolume, CnsQueryVolumeInfo,
        CnsReconfigVolumePolicy, CnsRelocateVolume, CnsSnapshotCreateSpec, CnsSnapshotDeleteSpec,
        CnsSnapshotId, CnsSnapshotQueryFilter, CnsSnapshotQuerySpec, CnsSnapshotVolumeSource,
        CnsSyncDatastore, CnsSyncVolume, CnsSyncVolumeMode, CnsSyncVolumeSpec,
        CnsUnregisterTargetVolumeType, CnsUnregisterVolume, CnsUnregisterVolumeSpec,
        CnsUpdateVolumeMetadata, CnsVSANFileCreateSpec, CnsVolumeACLConfigureSpec,
        CnsVolumeAttachDetachSpec, CnsVolumeCreateSpec, CnsVolumeExtendSpec, CnsVolumeId,
        CnsVolumeManager, CnsVolumeMetadata, CnsVolumeMetadataUpdateSpec,
        CnsVolumePolicyReconfigSpec, CnsVolumeType, CnsVsanFileShareBackingDetails, KeyValue,
        VirtualMachineDefinedProfileSpec, VsanFileShareNetPermission,
    },
};

use crate::request;

const URL: &str = "https://vcenter.example/folder/disk-1.vmdk?dcPath=dc-1&dsName=shared-1";

pub(crate) fn requests() -> Vec<(&'static str, String)> {
    [creations(), changes(), attachments(), queries(), snapshots(), permissions(), upkeep()]
        .concat()
}

fn manager() -> Ref<CnsVolumeManager> {
    Ref::new("cns-volume-manager")
}

fn volume(id: &str) -> CnsVolumeId {
    CnsVolumeId { id: id.to_owned() }
}

fn snapshot() -> CnsSnapshotId {
    CnsSnapshotId { id: "snapshot-1".to_owned() }
}

fn label(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: value.to_owned() }
}

fn profile() -> VirtualMachineDefinedProfileSpec {
    VirtualMachineDefinedProfileSpec { profile_id: "policy-1".to_owned() }
}

fn cluster() -> CnsContainerCluster {
    CnsContainerCluster {
        cluster_type: "KUBERNETES".to_owned(),
        cluster_id: "cluster-1".to_owned(),
        vsphere_user: "csi@vsphere.local".to_owned(),
        cluster_flavor: Some("VANILLA".to_owned()),
        cluster_distribution: Some("kubeadm".to_owned()),
        delete: None,
    }
}

fn entity(kind: CnsKubernetesEntityType, name: &str) -> CnsKubernetesEntityMetadata {
    CnsKubernetesEntityMetadata {
        entity_name: name.to_owned(),
        cluster_id: Some("cluster-1".to_owned()),
        entity_type: kind,
        ..CnsKubernetesEntityMetadata::default()
    }
}

fn reference(kind: CnsKubernetesEntityType, name: &str) -> CnsKubernetesEntityReference {
    CnsKubernetesEntityReference {
        entity_type: kind,
        entity_name: name.to_owned(),
        namespace: None,
        cluster_id: Some("cluster-1".to_owned()),
    }
}

fn metadata() -> CnsVolumeMetadata {
    let pv = CnsKubernetesEntityMetadata {
        labels: vec![label("app", "db"), label("tier", "<gold> & more")],
        ..entity(CnsKubernetesEntityType::PersistentVolume, "pv-1")
    };
    let pvc = CnsKubernetesEntityMetadata {
        labels: vec![label("app", "db")],
        namespace: Some("default".to_owned()),
        referred_entity: vec![reference(CnsKubernetesEntityType::PersistentVolume, "pv-1")],
        ..entity(CnsKubernetesEntityType::PersistentVolumeClaim, "pvc-1")
    };
    CnsVolumeMetadata {
        container_cluster: cluster(),
        entity_metadata: vec![pv.into(), pvc.into()],
        container_cluster_array: vec![cluster()],
    }
}

/// What the volumes below have in common.
fn spec() -> CnsVolumeCreateSpec {
    CnsVolumeCreateSpec {
        name: "pvc-1".to_owned(),
        volume_type: CnsVolumeType::Block,
        datastores: vec![Ref::new("datastore-1")],
        metadata: Some(metadata()),
        backing_object_details: block().into(),
        profile: vec![profile().into()],
        ..CnsVolumeCreateSpec::default()
    }
}

fn block() -> CnsBlockBackingDetails {
    CnsBlockBackingDetails { capacity_in_mb: Some(1024), ..CnsBlockBackingDetails::default() }
}

fn creations() -> Vec<(&'static str, String)> {
    let from_nothing = CnsVolumeCreateSpec {
        volume_id: Some(volume("volume-1")),
        datastores: vec![Ref::new("datastore-1"), Ref::new("datastore-2")],
        active_clusters: vec![Ref::new("domain-c1")],
        ..spec()
    };
    let from_snapshot = CnsVolumeCreateSpec {
        volume_source: Some(
            CnsSnapshotVolumeSource {
                volume_id: Some(volume("volume-2")),
                snapshot_id: Some(snapshot()),
                linked_clone: Some(true),
            }
            .into(),
        ),
        ..spec()
    };
    let from_disk = CnsVolumeCreateSpec {
        datastores: Vec::new(),
        profile: Vec::new(),
        backing_object_details: CnsBlockBackingDetails {
            backing_disk_id: Some("disk-1".to_owned()),
            backing_disk_url_path: Some(URL.to_owned()),
            ..block()
        }
        .into(),
        ..spec()
    };
    let share = CnsVolumeCreateSpec {
        volume_type: CnsVolumeType::File,
        backing_object_details: CnsVsanFileShareBackingDetails {
            capacity_in_mb: Some(1024),
            ..CnsVsanFileShareBackingDetails::default()
        }
        .into(),
        create_spec: Some(
            CnsVSANFileCreateSpec {
                soft_quota_in_mb: Some(1024),
                permission: vec![writers(), readers()],
            }
            .into(),
        ),
        ..spec()
    };
    let create = |spec| request(&manager(), &CnsCreateVolume { create_specs: vec![spec] });
    vec![
        ("CnsCreateVolume-block", create(from_nothing)),
        ("CnsCreateVolume-snapshot", create(from_snapshot)),
        ("CnsCreateVolume-static", create(from_disk)),
        ("CnsCreateVolume-file", create(share)),
    ]
}

fn writers() -> VsanFileShareNetPermission {
    VsanFileShareNetPermission {
        ips: "10.0.0.0/8".to_owned(),
        permissions: Some("READ_WRITE".to_owned()),
        allow_root: Some(true),
    }
}

fn readers() -> VsanFileShareNetPermission {
    VsanFileShareNetPermission {
        ips: "*".to_owned(),
        permissions: Some("READ_ONLY".to_owned()),
        allow_root: None,
    }
}

fn changes() -> Vec<(&'static str, String)> {
    let delete = CnsDeleteVolume {
        volume_ids: vec![volume("volume-1"), volume("volume-2")],
        delete_disk: true,
    };
    let extend = CnsExtendVolume {
        extend_specs: vec![CnsVolumeExtendSpec {
            volume_id: volume("volume-1"),
            capacity_in_mb: 2048,
        }],
    };
    let mut metadata = metadata();
    let pod = CnsKubernetesEntityMetadata {
        delete: Some(true),
        namespace: Some("default".to_owned()),
        referred_entity: vec![CnsKubernetesEntityReference {
            namespace: Some("default".to_owned()),
            ..reference(CnsKubernetesEntityType::PersistentVolumeClaim, "pvc-1")
        }],
        ..entity(CnsKubernetesEntityType::Pod, "pod-1")
    };
    metadata.entity_metadata.push(pod.into());
    let update = CnsUpdateVolumeMetadata {
        update_specs: vec![CnsVolumeMetadataUpdateSpec { volume_id: volume("volume-1"), metadata }],
    };
    let relocate = CnsBlockVolumeRelocateSpec {
        volume_id: volume("volume-1"),
        datastore: Ref::new("datastore-1"),
        profile: vec![profile().into()],
    };
    let reconfigure = CnsReconfigVolumePolicy {
        volume_policy_reconfig_specs: vec![CnsVolumePolicyReconfigSpec {
            volume_id: volume("volume-1"),
            profile: vec![profile().into()],
        }],
    };
    vec![
        ("CnsDeleteVolume", request(&manager(), &delete)),
        ("CnsExtendVolume", request(&manager(), &extend)),
        ("CnsUpdateVolumeMetadata", request(&manager(), &update)),
        (
            "CnsRelocateVolume",
            request(&manager(), &CnsRelocateVolume { relocate_specs: vec![relocate.into()] }),
        ),
        ("CnsReconfigVolumePolicy", request(&manager(), &reconfigure)),
    ]
}

fn attachments() -> Vec<(&'static str, String)> {
    let plain = CnsVolumeAttachDetachSpec {
        volume_id: volume("volume-1"),
        vm: Ref::new("vm-1"),
        ..CnsVolumeAttachDetachSpec::default()
    };
    let shared = CnsVolumeAttachDetachSpec {
        volume_id: volume("volume-2"),
        vm: Ref::new("vm-2"),
        disk_mode: Some("independent_persistent".to_owned()),
        sharing: Some("sharingMultiWriter".to_owned()),
        controller_key: Some(1000),
        unit_number: Some(3),
        ..CnsVolumeAttachDetachSpec::default()
    };
    let attach = CnsAttachVolume { attach_specs: vec![plain.clone(), shared] };
    let detach = CnsDetachVolume { detach_specs: vec![plain] };
    vec![
        ("CnsAttachVolume", request(&manager(), &attach)),
        ("CnsDetachVolume", request(&manager(), &detach)),
    ]
}

fn filter() -> AnyCnsQueryFilter {
    CnsQueryFilter {
        volume_ids: vec![volume("volume-1"), volume("volume-2")],
        names: vec!["pvc-1".to_owned(), "pvc-2".to_owned()],
        container_cluster_ids: vec!["cluster-1".to_owned()],
        storage_policy_id: Some("policy-1".to_owned()),
        datastores: vec![Ref::new("datastore-1")],
        labels: vec![label("app", "db")],
        compliance_status: Some("compliant".to_owned()),
        datastore_accessibility_status: Some("accessible".to_owned()),
        cursor: Some(CnsCursor { offset: 100, limit: 50, total_records: Some(200) }),
        health_status: Some("green".to_owned()),
    }
    .into()
}

fn queries() -> Vec<(&'static str, String)> {
    let names = ["VOLUME_NAME", "VOLUME_TYPE", "BACKING_OBJECT_DETAILS", "DATASTORE_URL"];
    let selection = CnsQuerySelection { names: names.map(Into::into).to_vec() };
    let query = CnsQueryVolume { filter: filter(), selection: None };
    let all = CnsQueryAllVolume { filter: filter(), selection: selection.clone() };
    let later = CnsQueryAsync { filter: filter(), selection: Some(selection) };
    let details = CnsQueryVolumeInfo { volumes: vec![volume("volume-1"), volume("volume-2")] };
    vec![
        ("CnsQueryVolume", request(&manager(), &query)),
        ("CnsQueryAllVolume", request(&manager(), &all)),
        ("CnsQueryAsync", request(&manager(), &later)),
        ("CnsQueryVolumeInfo", request(&manager(), &details)),
    ]
}

fn snapshots() -> Vec<(&'static str, String)> {
    let create = CnsCreateSnapshots {
        snapshot_specs: vec![CnsSnapshotCreateSpec {
            volume_id: volume("volume-1"),
            description: "snapshot of pvc-1".to_owned(),
            snapshot_id: Some(snapshot()),
        }],
    };
    let delete = CnsDeleteSnapshots {
        snapshot_delete_specs: vec![CnsSnapshotDeleteSpec {
            volume_id: volume("volume-1"),
            snapshot_id: snapshot(),
        }],
    };
    let query = CnsQuerySnapshots {
        snapshot_query_filter: CnsSnapshotQueryFilter {
            snapshot_query_specs: vec![
                CnsSnapshotQuerySpec {
                    volume_id: volume("volume-1"),
                    snapshot_id: Some(snapshot()),
                },
                CnsSnapshotQuerySpec { volume_id: volume("volume-2"), snapshot_id: None },
            ],
            cursor: Some(CnsCursor { offset: 0, limit: 128, total_records: None }),
        },
    };
    vec![
        ("CnsCreateSnapshots", request(&manager(), &create)),
        ("CnsDeleteSnapshots", request(&manager(), &delete)),
        ("CnsQuerySnapshots", request(&manager(), &query)),
    ]
}

fn permissions() -> Vec<(&'static str, String)> {
    let granted = CnsNFSAccessControlSpec { net_permission: writers(), delete: None };
    let withdrawn = CnsNFSAccessControlSpec { net_permission: readers(), delete: Some(true) };
    let configure = CnsConfigureVolumeAcls {
        acl_config_specs: vec![CnsVolumeACLConfigureSpec {
            volume_id: volume("volume-1"),
            access_control_spec_list: vec![granted.into(), withdrawn.into()],
        }],
    };
    vec![("CnsConfigureVolumeACLs", request(&manager(), &configure))]
}

fn upkeep() -> Vec<(&'static str, String)> {
    let sync = CnsSyncVolume {
        sync_specs: vec![CnsSyncVolumeSpec {
            volume_id: volume("volume-1"),
            datastore: Some(Ref::new("datastore-1")),
            sync_mode: vec![CnsSyncVolumeMode::SpaceUsage],
        }],
    };
    let unregister = CnsUnregisterVolume {
        unregister_spec: vec![CnsUnregisterVolumeSpec {
            volume_id: volume("volume-1"),
            target_volume_type: CnsUnregisterTargetVolumeType::Fcd,
        }],
    };
    let datastore = CnsSyncDatastore {
        datastore_url: Some("ds:///vmfs/volumes/datastore-1/".to_owned()),
        full_sync: Some(true),
    };
    let debug = Ref::<CnsDebugManager>::new("cns-debug-manager");
    vec![
        ("CnsSyncVolume", request(&manager(), &sync)),
        ("CnsUnregisterVolume", request(&manager(), &unregister)),
        ("CnsSyncDatastore", request(&debug, &datastore)),
    ]
}
