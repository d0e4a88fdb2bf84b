//! What is kept of VolumeAttachments, PersistentVolumes, CSINodes and Nodes: what plans read, so that thousands fit
//! into little memory. Objects of other drivers are not kept at all.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{core, storage};
use serde::{Deserialize, de::IgnoredAny};

use super::object::{Kept, Key, Metadata};
use crate::{
    DRIVER,
    attach::{NODE_ANNOTATION, OUT_OF_SERVICE, VOLUME_ANNOTATION},
    machine::MAX_VOLUMES,
    rpc::DISK_UUID,
};

/// A VolumeAttachment of this driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Attachment {
    /// The Node's name.
    pub(crate) node: Arc<str>,
    pub(crate) source: Source,
    pub(crate) deleting: bool,
    /// Whether it has our finalizer, which is the stock attacher's.
    pub(crate) finalizer: bool,
    /// Whether it has finalizers of others.
    pub(crate) others: bool,
    /// Where the volume is attached or may be, written before it is attached.
    pub(crate) recorded_node: Option<String>,
    /// Absent if the stock attacher attached it.
    pub(crate) recorded_volume: Option<String>,
    pub(crate) attached: bool,
    /// The disk as the guest sees it.
    pub(crate) disk: Option<String>,
    pub(crate) attach_error: Option<Shown>,
    pub(crate) detach_error: Option<Shown>,
}

/// Where a VolumeAttachment has its volume from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    PersistentVolume(Arc<str>),
    Inline(Origin),
}

/// Which volume a PersistentVolume is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Origin {
    /// A volume of this driver, by its handle.
    Ours(String),
    /// A volume of the in-tree driver, by path.
    InTree,
    Other,
}

/// An error that a VolumeAttachment's status has.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct Shown {
    /// Absent on API servers that do not know the field.
    pub(crate) error_code: Option<i32>,
    pub(crate) message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentSpec {
    attacher: String,
    node_name: String,
    source: SourceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SourceSpec {
    persistent_volume_name: Option<String>,
    inline_volume_spec: Option<VolumeSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AttachmentStatus {
    attached: bool,
    attachment_metadata: BTreeMap<String, String>,
    attach_error: Option<Shown>,
    detach_error: Option<Shown>,
}

impl Kept for Attachment {
    type Object = storage::v1::VolumeAttachment;
    type Spec = AttachmentSpec;
    type Status = AttachmentStatus;

    fn read(
        mut metadata: Metadata,
        spec: AttachmentSpec,
        mut status: AttachmentStatus,
    ) -> Option<Self> {
        let ours = spec.attacher == DRIVER;
        let finalizer = metadata.has_finalizer();
        let source = match (spec.source.persistent_volume_name, spec.source.inline_volume_spec) {
            (Some(name), _) => Source::PersistentVolume(name.into()),
            (None, inline) => Source::Inline(inline.unwrap_or_default().origin()),
        };
        ours.then(|| Self {
            node: spec.node_name.into(),
            source,
            deleting: metadata.is_deleting(),
            finalizer,
            others: metadata.finalizers.len() > usize::from(finalizer),
            recorded_node: metadata.annotations.remove(NODE_ANNOTATION),
            recorded_volume: metadata.annotations.remove(VOLUME_ANNOTATION),
            attached: status.attached,
            disk: status.attachment_metadata.remove(DISK_UUID),
            attach_error: status.attach_error,
            detach_error: status.detach_error,
        })
    }

    fn keys(&self) -> Vec<Key> {
        let mut keys = vec![Key::Node(Arc::clone(&self.node))];
        if let Source::PersistentVolume(name) = &self.source {
            keys.push(Key::Volume(Arc::clone(name)));
        }
        keys
    }
}

/// A PersistentVolume of this driver, or with its finalizer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Volume {
    pub(crate) origin: Origin,
    pub(crate) deleting: bool,
    /// Whether it has the stock attacher's finalizer.
    pub(crate) finalizer: bool,
    pub(crate) claim: Option<Claim>,
}

/// The PersistentVolumeClaim that a volume is bound to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Claim {
    #[serde(default)]
    pub(crate) namespace: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) uid: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeSpec {
    csi: Option<CsiSource>,
    vsphere_volume: Option<IgnoredAny>,
    claim_ref: Option<Claim>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CsiSource {
    driver: String,
    volume_handle: String,
}

impl VolumeSpec {
    fn origin(self) -> Origin {
        match self.csi {
            Some(csi) if csi.driver == DRIVER => Origin::Ours(csi.volume_handle),
            None if self.vsphere_volume.is_some() => Origin::InTree,
            _ => Origin::Other,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Nothing {}

impl Kept for Volume {
    type Object = core::v1::PersistentVolume;
    type Spec = VolumeSpec;
    type Status = Nothing;

    fn read(metadata: Metadata, mut spec: VolumeSpec, _: Nothing) -> Option<Self> {
        let (claim, origin) = (spec.claim_ref.take(), spec.origin());
        let finalizer = metadata.has_finalizer();
        let deleting = metadata.is_deleting();
        let concerns = finalizer || origin != Origin::Other;
        concerns.then_some(Self { origin, deleting, finalizer, claim })
    }
}

/// A CSINode on which this driver is registered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CsiNode {
    pub(crate) node_id: String,
    /// How many volumes fit, as last published.
    pub(crate) limit: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct CsiNodeSpec {
    /// `null` if there is none.
    drivers: Option<Vec<Registered>>,
}

#[derive(Debug, Deserialize)]
struct Registered {
    name: String,
    #[serde(rename = "nodeID")]
    node_id: String,
}

impl Kept for CsiNode {
    type Object = storage::v1::CSINode;
    type Spec = CsiNodeSpec;
    type Status = Nothing;

    fn read(mut metadata: Metadata, spec: CsiNodeSpec, _: Nothing) -> Option<Self> {
        let driver = spec.drivers?.into_iter().find(|driver| driver.name == DRIVER)?;
        let limit = metadata.annotations.remove(MAX_VOLUMES);
        Some(Self { node_id: driver.node_id, limit })
    }
}

/// A Node, which is kept whether or not the driver runs on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Node {
    pub(crate) out_of_service: bool,
    /// The handles of this driver's volumes that the kubelet has not unmounted.
    pub(crate) in_use: BTreeSet<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct NodeSpec {
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Debug, Deserialize)]
struct Taint {
    key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct NodeStatus {
    volumes_in_use: Vec<String>,
}

impl Kept for Node {
    type Object = core::v1::Node;
    type Spec = NodeSpec;
    type Status = NodeStatus;

    fn read(_: Metadata, spec: NodeSpec, status: NodeStatus) -> Option<Self> {
        let handle = |name: String| {
            let name = name.strip_prefix("kubernetes.io/csi/")?.strip_prefix(DRIVER)?;
            name.strip_prefix('^').map(str::to_owned)
        };
        Some(Self {
            out_of_service: spec.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
            in_use: status.volumes_in_use.into_iter().filter_map(handle).collect(),
        })
    }
}

#[cfg(test)]
mod tests;
