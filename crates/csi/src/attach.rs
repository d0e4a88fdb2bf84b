//! The attach controller: VolumeAttachments become attached disks, and deleted ones detached disks.
//!
//! ```text
//!   VolumeAttachments ─┐                                       ┌─► Volumes::publish, unpublish ─┐
//!   PersistentVolumes ─┼─► observe ─► plan (next step, pure) ──┼─► apply (one patch)            ├─► progress, report
//!   CSINodes, Nodes ───┘                                       └─► wait                         ┘        └─► plan
//!   limits: Volumes::slots ─► an annotation of the CSINode      verify: Volumes::published ─► what is missing
//! ```
//!
//! It does what the stock external-attacher does, under the same lease and with the same finalizers, so that either
//! can take over from the other. What differs:
//! - A volume that a node which runs has mounted is not detached, even if Kubernetes asks for it: it does so six
//!   minutes after a node stopped answering, and the node may still write.
//! - PersistentVolumes get no finalizer. The VolumeAttachment has the handle of its volume; the stock attacher's
//!   finalizers are removed when they are the last thing that a deleted PersistentVolume waits for.
//! - What vCenter lost is noticed at the start and every ten minutes, and attached again.
//! - An attach that is refused because the VM is full has the code that makes the scheduler learn it.
//!
//! What never happens:
//! - two operations for one VolumeAttachment at the same time;
//! - an operation or a write by a process that does not hold the lease;
//! - a finalizer that is removed before vCenter confirmed the detach;
//! - a write that changes nothing, or more than one error in ten seconds on one object.

mod apply;
mod controller;
mod limits;
mod metrics;
mod observe;
mod plan;
mod problem;
mod queue;
mod report;
mod verify;

use std::{convert::Infallible, hash::BuildHasher};

use daemon::{
    events::Recorder,
    lease::{self, Leadership},
    permissions::{Permission, Scope},
    supervise::Shutdown,
};
use kube::Client;

pub(crate) use self::metrics::Metrics;
use self::{apply::Writer, controller::Controller, report::Reporter};
use crate::volumes::Volumes;

/// The lease of the stock attacher, so that never both work.
pub(crate) const LEASE: &str = "external-attacher-leader-csi-vsphere-vmware-com";

/// The finalizer of the stock attacher, on VolumeAttachments and PersistentVolumes.
const FINALIZER: &str = "external-attacher/csi-vsphere-vmware-com";
/// Where the volume is attached, as the stock attacher writes it.
const NODE_ANNOTATION: &str = "csi.alpha.kubernetes.io/node-id";
/// Which volume it is.
const VOLUME_ANNOTATION: &str = "csi.vsphere.vmware.com/volume-handle";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Attaches and detaches from the moment this process leads until `shutdown`. Operations in flight are dropped then;
/// whoever leads next goes on with them.
pub(crate) async fn run(
    client: Client,
    volumes: Volumes,
    leadership: Leadership,
    events: Recorder,
    metrics: crate::metrics::Metrics,
    shutdown: Shutdown,
) -> Result<(), Infallible> {
    if shutdown.unless(leadership.acquired()).await.is_none() {
        return Ok(());
    }
    let writer = Writer::new(&client, leadership);
    Controller::new(volumes, writer, Reporter::new(events, metrics)).run(shutdown).await
}

/// What the attach controller and its lease in `namespace` call.
pub(crate) fn permissions(namespace: &str) -> Vec<Permission> {
    let all =
        |group, resource, verbs: &[&str]| Permission::new(Scope::Cluster, (group, resource), verbs);
    let storage = "storage.k8s.io";
    let watched = ["get", "list", "watch", "patch"];
    let mut permissions = vec![
        all(storage, "volumeattachments", &watched),
        all(storage, "volumeattachments/status", &["patch"]),
        all(storage, "csinodes", &watched),
        all("", "persistentvolumes", &watched),
        all("", "nodes", &["list", "watch"]),
        // About claims, in whatever namespace they are.
        all("", "events", &["create", "patch"]),
    ];
    permissions.extend(lease::permissions(namespace, LEASE));
    permissions
}

/// A factor between 0.9 and 1.1, so that what began together does not stay together.
fn spread() -> f64 {
    let random = std::hash::RandomState::new().hash_one(0);
    let fraction = f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX);
    0.9 + 0.2 * fraction
}
