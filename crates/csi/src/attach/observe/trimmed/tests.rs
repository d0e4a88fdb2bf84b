//! What is kept of objects as the API writes them.

use serde_json::{Value, json};

use super::{Attachment, Claim, CsiNode, Kept, Key, Node, Origin, Shown, Source, Volume};
use crate::attach::observe::object::Trimmed;

fn read<T: Kept>(value: Value) -> Trimmed<T> {
    serde_json::from_value(value).unwrap()
}

fn kept<T: Kept>(value: Value) -> Option<T> {
    read(value).kept
}

fn metadata(more: &Value) -> Value {
    let mut metadata = json!({
        "name": "csi-1", "uid": "u-1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "x", "fieldsV1": {"f:status": {}}}],
    });
    metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    metadata
}

#[test]
fn an_attachment_keeps_what_plans_read() {
    let object = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": metadata(&json!({
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["external-attacher/csi-vsphere-vmware-com", "example.com/other"],
            "annotations": {
                "csi.alpha.kubernetes.io/node-id": "n-1", "csi.vsphere.vmware.com/volume-handle": "v-1",
            },
        })),
        "spec": {"attacher": "csi.vsphere.vmware.com", "nodeName": "node-1", "source": {"persistentVolumeName": "pv-1"}},
        "status": {
            "attached": true, "attachmentMetadata": {"type": "vSphere CNS Block Volume", "diskUUID": "6000c29"},
            "detachError": {"message": "busy", "time": "2026-01-01T00:00:00Z", "errorCode": 9},
        },
    });
    let trimmed = read::<Attachment>(object);
    assert_eq!((&*trimmed.name(), trimmed.uid(), trimmed.version()), ("csi-1", "u-1", "7"));
    let attachment = trimmed.kept.unwrap();
    let keys = [Key::Node("node-1".into()), Key::Volume("pv-1".into())];
    assert_eq!(attachment.keys(), keys);
    let expected = Attachment {
        node: "node-1".into(),
        source: Source::PersistentVolume("pv-1".into()),
        deleting: true,
        finalizer: true,
        others: true,
        recorded_node: Some("n-1".to_owned()),
        recorded_volume: Some("v-1".to_owned()),
        attached: true,
        disk: Some("6000c29".to_owned()),
        attach_error: None,
        detach_error: Some(Shown { error_code: Some(9), message: "busy".to_owned() }),
    };
    assert_eq!(attachment, expected);
}

#[test]
fn a_new_attachment_has_neither_status_nor_finalizers() {
    let spec = json!({"attacher": "csi.vsphere.vmware.com", "nodeName": "n", "source": {"inlineVolumeSpec": {
        "csi": {"driver": "csi.vsphere.vmware.com", "volumeHandle": "v-2"}, "accessModes": ["ReadWriteOnce"],
    }}});
    let object =
        json!({"metadata": metadata(&json!({})), "spec": spec, "status": {"attached": false}});
    let attachment: Attachment = kept(object).unwrap();
    assert_eq!(attachment.source, Source::Inline(Origin::Ours("v-2".to_owned())));
    assert!(!attachment.deleting && !attachment.finalizer && !attachment.others);
    let object = json!({"metadata": metadata(&json!({})), "spec": {"attacher": "csi.vsphere.vmware.com",
        "nodeName": "n", "source": {}}});
    assert_eq!(kept::<Attachment>(object).unwrap().source, Source::Inline(Origin::Other));
}

#[test]
fn objects_of_other_drivers_are_not_kept() {
    let attachment = json!({"metadata": metadata(&json!({})), "spec": {
        "attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "p"}}});
    assert_eq!(kept::<Attachment>(attachment), None);
    let volume = json!({"metadata": metadata(&json!({})), "spec": {"csi": {"driver": "x", "volumeHandle": "v"}}});
    assert_eq!(kept::<Volume>(volume), None);
    for drivers in [json!(null), json!([]), json!([{"name": "x", "nodeID": "n"}])] {
        let node = json!({"metadata": metadata(&json!({})), "spec": {"drivers": drivers}});
        assert_eq!(kept::<CsiNode>(node), None);
    }
}

#[test]
fn volumes_are_known_by_handle_and_in_tree_ones_as_such() {
    let claim =
        json!({"kind": "PersistentVolumeClaim", "namespace": "ns", "name": "data", "uid": "c-1"});
    let ours = json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "v-1", "fsType": "ext4"});
    let object = json!({
        "metadata": metadata(&json!({"finalizers": ["external-attacher/csi-vsphere-vmware-com"]})),
        "spec": {"csi": ours, "claimRef": claim, "capacity": {"storage": "1Gi"}}, "status": {"phase": "Bound"},
    });
    let claim = Claim { namespace: "ns".into(), name: "data".into(), uid: "c-1".into() };
    let expected = Volume {
        origin: Origin::Ours("v-1".to_owned()),
        deleting: false,
        finalizer: true,
        claim: Some(claim),
    };
    assert_eq!(kept::<Volume>(object), Some(expected));
    let spec = json!({"vsphereVolume": {"volumePath": "[ds] a.vmdk"}});
    let volume: Volume = kept(json!({"metadata": metadata(&json!({})), "spec": spec})).unwrap();
    assert_eq!(volume.origin, Origin::InTree);
}

#[test]
fn a_csi_node_has_the_node_id_and_the_limit_of_this_driver() {
    let drivers = json!([
        {"name": "x", "nodeID": "other", "topologyKeys": null},
        {"name": "csi.vsphere.vmware.com", "nodeID": "n-1", "topologyKeys": [], "allocatable": {"count": 59}},
    ]);
    let annotations = json!({"annotations": {"csi.vsphere.vmware.com/max-volumes-per-node": "59"}});
    let object = json!({"metadata": metadata(&annotations), "spec": {"drivers": drivers}});
    let expected = CsiNode { node_id: "n-1".to_owned(), limit: Some("59".to_owned()) };
    assert_eq!(kept::<CsiNode>(object), Some(expected));
}

#[test]
fn a_node_keeps_the_volumes_of_this_driver_that_are_in_use() {
    let object = json!({
        "metadata": metadata(&json!({})),
        "spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}]},
        "status": {
            "volumesInUse": [
                "kubernetes.io/csi/csi.vsphere.vmware.com^v-1", "kubernetes.io/csi/other^v-2",
                "kubernetes.io/csi/csi.vsphere.vmware.com.example^v-3",
            ],
            "images": [{"names": ["a:1"], "sizeBytes": 1}],
        },
    });
    let node: Node = kept(object).unwrap();
    assert!(node.out_of_service);
    assert_eq!(node.in_use, ["v-1".to_owned()].into());
    assert_eq!(kept::<Node>(json!({"metadata": metadata(&json!({}))})), Some(Node::default()));
}
