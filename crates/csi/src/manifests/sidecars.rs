//! The stock sidecars beside the controller: their images, how they are started, and what they may do.
//!
//! Attacher, registrar and liveness probe are not among them: the driver does that itself.

use daemon::{
    lease,
    permissions::{Permission, Scope},
};
use serde_json::{Value, json};

use super::{NAMESPACE, SOCKET, controller::restricted};

const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const REGISTRY: &str = "registry.k8s.io/sig-storage";

/// The images of the sidecars.
#[derive(Debug, Clone)]
pub struct Images {
    /// Makes and deletes volumes for claims.
    pub provisioner: String,
    /// Grows them.
    pub resizer: String,
    /// Takes and deletes snapshots.
    pub snapshotter: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            provisioner: format!("{REGISTRY}/csi-provisioner:v5.1.0"),
            resizer: format!("{REGISTRY}/csi-resizer:v1.14.0"),
            snapshotter: format!("{REGISTRY}/csi-snapshotter:v8.3.0"),
        }
    }
}

impl Images {
    pub(super) fn containers(&self) -> [Value; 3] {
        [
            // A volume is made in the zone of the node that was chosen for its pod, and nowhere else. Without zones, of which
            // the driver tells when it starts, this has no effect.
            container(
                "csi-provisioner",
                &self.provisioner,
                &["--default-fstype=ext4", "--strict-topology"],
            ),
            // Volumes in use are grown, too; to watch every pod for those that are not would be for nothing.
            container("csi-resizer", &self.resizer, &["--handle-volume-inuse-error=false"]),
            container("csi-snapshotter", &self.snapshotter, &[]),
        ]
    }
}

fn container(name: &str, image: &str, flags: &[&str]) -> Value {
    let mut arguments = vec![
        format!("--csi-address={SOCKET}"),
        // vCenter may take minutes for an operation; after an outage of it, a minute is the longest pause.
        "--timeout=300s".to_owned(),
        "--retry-interval-max=1m".to_owned(),
        "--leader-election".to_owned(),
        "--kube-api-qps=100".to_owned(),
        "--kube-api-burst=100".to_owned(),
        "--v=2".to_owned(),
    ];
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    json!({
        "name": name,
        "image": image,
        "args": arguments,
        // No limit: their memory grows with the objects of the cluster.
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        "securityContext": restricted(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "socket-dir", "mountPath": "/csi"}],
    })
}

/// What csi-provisioner requests as it is started here: without capacities.
#[must_use]
pub fn provisioner_permissions() -> Vec<Permission> {
    let storage = |resource| ("storage.k8s.io", resource);
    let new = |resource, verbs: &[&str]| Permission::new(Scope::Cluster, resource, verbs);
    let mut all = vec![
        // Read one by one when they are cloned.
        new(("", "persistentvolumes"), &["get", "list", "watch", "create", "patch", "delete"]),
        // Updated when the node that was chosen for a claim is gone, and while a claim is cloned.
        new(("", "persistentvolumeclaims"), &["list", "watch", "update"]),
        new(storage("storageclasses"), &["list", "watch"]),
        // The node that was chosen for a claim; all of them, and the keys of their zones, where there are zones.
        new(("", "nodes"), &["get", "list", "watch"]),
        new(storage("csinodes"), &["list", "watch"]),
        // A volume is deleted when it is attached nowhere.
        new(storage("volumeattachments"), &["list", "watch"]),
        // The sources of claims.
        new((SNAPSHOTS, "volumesnapshots"), &["get"]),
        new((SNAPSHOTS, "volumesnapshotcontents"), &["get"]),
        new(("", "events"), &["create", "patch"]),
    ];
    all.extend(lease::permissions(NAMESPACE, "csi-vsphere-vmware-com"));
    all
}

/// What csi-resizer requests as it is started here.
#[must_use]
pub fn resizer_permissions() -> Vec<Permission> {
    let new = |resource, verbs: &[&str]| Permission::new(Scope::Cluster, ("", resource), verbs);
    let mut all = vec![
        new("persistentvolumes", &["list", "watch", "patch"]),
        new("persistentvolumeclaims", &["list", "watch"]),
        new("persistentvolumeclaims/status", &["patch"]),
        new("events", &["create", "patch"]),
    ];
    all.extend(lease::permissions(NAMESPACE, "external-resizer-csi-vsphere-vmware-com"));
    all
}

/// What csi-snapshotter requests as it is started here.
#[must_use]
pub fn snapshotter_permissions() -> Vec<Permission> {
    let new = |resource, verbs: &[&str]| Permission::new(Scope::Cluster, resource, verbs);
    let mut all = vec![
        new((SNAPSHOTS, "volumesnapshotcontents"), &["get", "list", "watch", "patch"]),
        new((SNAPSHOTS, "volumesnapshotcontents/status"), &["update", "patch"]),
        new((SNAPSHOTS, "volumesnapshotclasses"), &["list", "watch"]),
        new(("", "events"), &["create", "patch"]),
    ];
    all.extend(lease::permissions(NAMESPACE, "external-snapshotter-leader-csi-vsphere-vmware-com"));
    all
}
