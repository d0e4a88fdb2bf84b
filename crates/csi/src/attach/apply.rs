//! Writes what was planned: one patch per step, only while this process holds the lease.
//!
//! Patches of VolumeAttachments and PersistentVolumes name the resource version that was planned on. If another
//! client changed the object meanwhile, nothing is written and its current state is returned, so that it is planned
//! again. A limit is an annotation that no other client writes, so it needs no version.

use std::time::Duration;

use daemon::lease::Leadership;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    FINALIZER, NODE_ANNOTATION, VOLUME_ANNOTATION,
    observe::{
        object::{Kept, Trimmed},
        trimmed::{Attachment, CsiNode, Node, Volume},
    },
    plan::{Field, Step},
};
use crate::{
    machine::MAX_VOLUMES,
    rpc::{BLOCK_VOLUME, DISK_UUID},
};

const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why something was not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotWritten {
    #[error("this process does not hold the lease")]
    NotLeading,
    #[error("the API server did not answer within {} s", WRITE_TIMEOUT.as_secs())]
    TimedOut,
    #[error("the object was changed by another client meanwhile")]
    Conflict,
    #[error("the object was deleted meanwhile")]
    Gone,
    #[error(transparent)]
    Refused(kube::Error),
}

impl From<kube::Error> for NotWritten {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(status) if status.code == 404 => Self::Gone,
            _ => Self::Refused(error),
        }
    }
}

/// What became of a write: the object as it is now, if that is known.
#[derive(Debug)]
pub(crate) struct Written<T> {
    pub(crate) object: Option<Trimmed<T>>,
    pub(crate) result: Result<(), NotWritten>,
}

#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) attachments: Api<Trimmed<Attachment>>,
    pub(crate) volumes: Api<Trimmed<Volume>>,
    pub(crate) csi_nodes: Api<Trimmed<CsiNode>>,
    pub(crate) nodes: Api<Trimmed<Node>>,
    leadership: Leadership,
}

/// A patch, and whether it is one of the status.
#[derive(Debug, PartialEq)]
pub(crate) struct Change {
    status: bool,
    patch: Value,
}

impl Writer {
    pub(crate) fn new(client: &Client, leadership: Leadership) -> Self {
        Self {
            attachments: Api::all(client.clone()),
            volumes: Api::all(client.clone()),
            csi_nodes: Api::all(client.clone()),
            nodes: Api::all(client.clone()),
            leadership,
        }
    }

    /// Whether anything may be changed, in Kubernetes or in vCenter.
    pub(crate) fn leads(&self) -> bool {
        self.leadership.holds()
    }

    /// Applies a step to the VolumeAttachment in this version.
    pub(crate) async fn apply(self, name: &str, version: &str, step: &Step) -> Written<Attachment> {
        match change(step, version, Timestamp::now()) {
            Some(change) => self.write(&self.attachments, name, &change).await,
            None => Written { object: None, result: Ok(()) },
        }
    }

    /// Removes the stock attacher's finalizer from a PersistentVolume in this version.
    pub(crate) async fn release_volume(self, name: &str, version: &str) -> Written<Volume> {
        self.write(&self.volumes, name, &without_finalizer(version)).await
    }

    /// Publishes how many volumes fit on a node.
    pub(crate) async fn publish_limit(self, name: &str, limit: &str) -> Written<CsiNode> {
        let patch = json!({"metadata": {"annotations": {MAX_VOLUMES: limit}}});
        self.write(&self.csi_nodes, name, &Change { status: false, patch }).await
    }

    async fn write<T: Kept>(
        &self,
        api: &Api<Trimmed<T>>,
        name: &str,
        change: &Change,
    ) -> Written<T> {
        let (params, patch) = (PatchParams::default(), Patch::Strategic(&change.patch));
        let written = if change.status {
            self.within(api.patch_status(name, &params, &patch)).await
        } else {
            self.within(api.patch(name, &params, &patch)).await
        };
        match written {
            Ok(object) => Written { object: Some(object), result: Ok(()) },
            Err(NotWritten::Conflict) => match self.within(api.get(name)).await {
                Ok(object) => Written { object: Some(object), result: Err(NotWritten::Conflict) },
                Err(error) => Written { object: None, result: Err(error) },
            },
            Err(error) => Written { object: None, result: Err(error) },
        }
    }

    async fn within<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, NotWritten> {
        if !self.leads() {
            return Err(NotWritten::NotLeading);
        }
        timeout(WRITE_TIMEOUT, request).await.map_err(|_| NotWritten::TimedOut)?.map_err(Into::into)
    }
}

/// The patch of a step, if the step is a write.
fn change(step: &Step, version: &str, now: Timestamp) -> Option<Change> {
    let metadata = json!({"resourceVersion": version});
    let status = |status: Value| {
        let patch = json!({"metadata": metadata, "status": status});
        Some(Change { status: true, patch })
    };
    match step {
        Step::Rest | Step::Wait(_) | Step::Operate(_) => None,
        Step::Prepare(place) => {
            let annotations = json!({NODE_ANNOTATION: place.node, VOLUME_ANNOTATION: place.volume});
            let patch = json!({"metadata": {
                "resourceVersion": version, "finalizers": [FINALIZER], "annotations": annotations,
            }});
            Some(Change { status: false, patch })
        }
        Step::MarkAttached(disk) => status(json!({
            "attached": true,
            "attachmentMetadata": {"type": BLOCK_VOLUME, DISK_UUID: disk},
            "attachError": null,
        })),
        Step::MarkDetached => status(json!({
            "attached": false, "attachmentMetadata": null, "detachError": null,
        })),
        Step::Show(field, problem) => {
            let field = match field {
                Field::AttachError => "attachError",
                Field::DetachError => "detachError",
            };
            let (time, code) = (Time(now), problem.code());
            let error = json!({"time": time, "message": problem.text, "errorCode": code});
            status(json!({ field: error }))
        }
        Step::Release => Some(without_finalizer(version)),
    }
}

/// Removes our finalizer and leaves those of others, also ones that were added meanwhile.
fn without_finalizer(version: &str) -> Change {
    let patch = json!({"metadata": {
        "resourceVersion": version, "$deleteFromPrimitiveList/finalizers": [FINALIZER],
    }});
    Change { status: false, patch }
}

#[cfg(test)]
mod tests;
