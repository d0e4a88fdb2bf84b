//! Attaching and detaching as Kubernetes does it: by VolumeAttachments.

use anyhow::Result;
use k8s_openapi::api::{core::v1::PersistentVolume, storage::v1::VolumeAttachment};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use lab::{Wait, until};
use serde_json::json;

use crate::{
    calls::BOUND,
    lane::{self, Lane},
};

/// On every PersistentVolume.
const PROTECTION: &str = "kubernetes.io/pv-protection";

/// The PersistentVolume of a volume and its VolumeAttachments.
pub(crate) struct Objects {
    volumes: Api<PersistentVolume>,
    attachments: Api<VolumeAttachment>,
}

impl Objects {
    pub(crate) fn new(lane: &Lane) -> Self {
        let client = lane.plane.client();
        Self { volumes: Api::all(client.clone()), attachments: Api::all(client) }
    }

    /// Attaches a volume, and returns the UUID of its disk.
    pub(crate) async fn attach(&self, name: &str, volume: &str, node: usize) -> Result<String> {
        if self.volumes.get_opt(name).await?.is_none() {
            let object = json!({
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "10Mi"},
                    "csi": {"driver": csi::DRIVER, "volumeHandle": volume, "fsType": "ext4"},
                },
            });
            self.volumes.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
        let object = json!({
            "metadata": {"name": name},
            "spec": {
                "attacher": csi::DRIVER, "nodeName": lane::name(node),
                "source": {"persistentVolumeName": name},
            },
        });
        self.attachments.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        until("the VolumeAttachment is attached", BOUND, || async {
            let Some(found) = self.attachments.get_opt(name).await? else {
                anyhow::bail!("the VolumeAttachment {name} is gone")
            };
            let status = found.status.unwrap_or_default();
            if !status.attached {
                let why = status.attach_error.and_then(|error| error.message);
                return Ok(Wait::NotYet(why.unwrap_or_else(|| "no answer".to_owned())));
            }
            let mut metadata = status.attachment_metadata.unwrap_or_default();
            Ok(Wait::Done(metadata.remove("diskUUID").unwrap_or_default()))
        })
        .await
    }

    pub(crate) async fn is_attached(&self, name: &str) -> Result<bool> {
        Ok(self.attachments.get_opt(name).await?.is_some())
    }

    pub(crate) async fn detach(&self, name: &str) -> Result<()> {
        self.attachments.delete(name, &DeleteParams::default()).await?;
        until("the VolumeAttachment is gone", BOUND, || async {
            Ok(match self.attachments.get_opt(name).await? {
                None => Wait::Done(()),
                Some(found) => Wait::NotYet(format!("{:?}", found.status)),
            })
        })
        .await
    }

    /// Deletes the PersistentVolume.
    pub(crate) async fn forget(&self, name: &str) -> Result<()> {
        if self.volumes.get_opt(name).await?.is_none() {
            return Ok(());
        }
        self.volumes.delete(name, &DeleteParams::default()).await?;
        until("the PersistentVolume is gone", BOUND, || async {
            let Some(mut found) = self.volumes.get_opt(name).await? else {
                return Ok(Wait::Done(()));
            };
            let finalizers = found.metadata.finalizers.take().unwrap_or_default();
            let seen = format!("{finalizers:?}");
            // As the controller of such protections does it; here none runs. Of two writers the other may be first.
            let others = finalizers.into_iter().filter(|one| one != PROTECTION).collect();
            found.metadata.finalizers = Some(others);
            self.volumes.replace(name, &PostParams::default(), &found).await.ok();
            Ok(Wait::NotYet(seen))
        })
        .await
    }
}

/// The volume and the states of operations that the record of a name has.
pub(crate) async fn record(lane: &Lane, name: &str) -> Result<Option<(String, Vec<String>)>> {
    let kind = GroupVersionKind::gvk("cns.vmware.com", "v1alpha1", "CnsVolumeOperationRequest");
    let resource = ApiResource::from_gvk_with_plural(&kind, "cnsvolumeoperationrequests");
    let api: Api<DynamicObject> =
        Api::namespaced_with(lane.plane.client(), csi::manifests::NAMESPACE, &resource);
    let Some(found) = api.get_opt(name).await? else { return Ok(None) };
    let status = &found.data["status"];
    let volume = status["volumeID"].as_str().unwrap_or_default().to_owned();
    let operations = status["latestOperationDetails"].as_array().into_iter().flatten();
    let states = operations.map(|one| one["taskStatus"].as_str().unwrap_or_default().to_owned());
    Ok(Some((volume, states.collect())))
}
