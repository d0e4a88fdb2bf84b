//! VolumeAttachments and what they refer to, as Kubernetes' own controllers and kubelets write them.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::{CSINode, VolumeAttachment, VolumeAttachmentStatus, VolumeError},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab::{Wait, until};
use serde_json::{Value, from_value, json};

use crate::world::{BOUND, Controller, World, request};

pub(crate) const FINALIZER: &str = "external-attacher/csi-vsphere-vmware-com";
pub(crate) const LIMIT: &str = "csi.vsphere.vmware.com/max-volumes-per-node";

impl World {
    pub(crate) fn attachments(&self) -> Api<VolumeAttachment> {
        Api::all(self.plane.client())
    }

    pub(crate) fn persistent_volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.plane.client())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.plane.client())
    }

    /// Creates a volume and its PersistentVolume of the same name. Returns the handle.
    pub(crate) async fn provision(&self, controller: &Controller, name: &str) -> String {
        let create = async |to: &Controller| to.create(request(name, 10)).await;
        let handle = controller.patiently("volume created", create).await.unwrap();
        self.persistent_volume(name, &handle, &[]).await;
        handle
    }

    pub(crate) async fn persistent_volume(&self, name: &str, handle: &str, finalizers: &[&str]) {
        let claim = json!({"namespace": "default", "name": name, "uid": "5eed"});
        let volume = json!({
            "metadata": {"name": name, "finalizers": finalizers},
            "spec": {
                "capacity": {"storage": "10Mi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim,
                "csi": {"driver": csi::DRIVER, "volumeHandle": handle},
            },
        });
        let volume = from_value(volume).unwrap();
        self.persistent_volumes().create(&PostParams::default(), &volume).await.unwrap();
    }

    /// Creates the VolumeAttachment of a PersistentVolume on a node, of the same name as the volume.
    pub(crate) async fn attach(&self, volume: &str, node: &str) {
        let metadata = json!({"name": volume});
        self.attach_with(volume, node, metadata).await;
    }

    pub(crate) async fn attach_with(&self, volume: &str, node: &str, metadata: Value) {
        let source = json!({"persistentVolumeName": volume});
        let spec = json!({"attacher": csi::DRIVER, "nodeName": node, "source": source});
        let attachment = from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        self.attachments().create(&PostParams::default(), &attachment).await.unwrap();
    }

    /// What Kubernetes does when no pod needs the volume on that node any more.
    pub(crate) async fn detach(&self, attachment: &str) {
        self.attachments().delete(attachment, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn until_attachment(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&VolumeAttachment) -> bool,
    ) -> VolumeAttachment {
        let waited = until(what, 2 * BOUND, || async {
            let found = self.attachments().get(name).await?;
            Ok(if holds(&found) { Wait::Done(found) } else { Wait::NotYet(format!("{found:?}")) })
        });
        waited.await.unwrap()
    }

    /// Waits until it is attached. Returns the disk.
    pub(crate) async fn until_attached(&self, name: &str) -> String {
        let attached = |one: &VolumeAttachment| status(one).attached;
        let status = status(&self.until_attachment(name, "attached", attached).await);
        assert_eq!(status.attach_error, None);
        status.attachment_metadata.unwrap()["diskUUID"].clone()
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let waited = until("VolumeAttachment gone", 2 * BOUND, || async {
            let found = self.attachments().get_opt(name).await?;
            Ok(match found {
                None => Wait::Done(()),
                Some(found) => Wait::NotYet(format!("{found:?}")),
            })
        });
        waited.await.unwrap();
    }

    /// Waits until a problem is shown for which `holds` is true.
    pub(crate) async fn until_error(
        &self,
        name: &str,
        of: impl Fn(&VolumeAttachmentStatus) -> Option<VolumeError>,
        holds: impl Fn(&VolumeError) -> bool,
    ) -> VolumeError {
        let shown = |one: &VolumeAttachment| of(&status(one)).is_some_and(|error| holds(&error));
        let found = self.until_attachment(name, "error shown", shown).await;
        of(&status(&found)).unwrap()
    }

    /// The volumes that vCenter shows on VMs: the VM's name, the volume, and the disk as guests see it.
    pub(crate) async fn disks(&self) -> BTreeSet<(String, String, String)> {
        let state = self.vcenter.control().state().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = |vm: &str| {
            // References end in what attachments have: `VirtualMachine:vm-52`.
            let is_it = |one: &&Value| text(&one["ref"]).rsplit(':').next() == Some(vm);
            let path = state.inventory.iter().find(is_it).map(|one| text(&one["path"])).unwrap();
            path.rsplit('/').next().unwrap().to_owned()
        };
        let plain = |uuid: &str| uuid.replace(['-', ' '], "").to_lowercase();
        let disk = |one: &Value| {
            let vm = name(&text(&one["vm"]));
            (vm, text(&one["volume"]), plain(&text(&one["diskUuid"])))
        };
        state.attachments.iter().map(disk).collect()
    }

    /// Registers a Node that has mounted these volumes.
    pub(crate) async fn node(&self, name: &str, mounted: &[&str]) {
        let node = from_value(json!({"metadata": {"name": name}})).unwrap();
        if self.nodes().get_opt(name).await.unwrap().is_none() {
            self.nodes().create(&PostParams::default(), &node).await.unwrap();
        }
        let in_use = mounted.iter().map(|one| format!("kubernetes.io/csi/{}^{one}", csi::DRIVER));
        let status = json!({"status": {"volumesInUse": in_use.collect::<Vec<_>>()}});
        let (params, status) = (PatchParams::default(), Patch::Merge(status));
        self.nodes().patch_status(name, &params, &status).await.unwrap();
    }

    /// Waits until the limit of a node is published.
    pub(crate) async fn until_limited(&self, node: &str) -> u32 {
        let nodes: Api<CSINode> = Api::all(self.plane.client());
        let waited = until("limit published", 2 * BOUND, || async {
            let node = nodes.get(node).await?;
            let limit = node.metadata.annotations.unwrap_or_default().remove(LIMIT);
            Ok(limit.map_or(Wait::NotYet("none".to_owned()), Wait::Done))
        });
        waited.await.unwrap().parse().unwrap()
    }
}

pub(crate) fn status(attachment: &VolumeAttachment) -> VolumeAttachmentStatus {
    attachment.status.clone().unwrap_or_default()
}

pub(crate) fn attach_error(status: &VolumeAttachmentStatus) -> Option<VolumeError> {
    status.attach_error.clone()
}

pub(crate) fn detach_error(status: &VolumeAttachmentStatus) -> Option<VolumeError> {
    status.detach_error.clone()
}
