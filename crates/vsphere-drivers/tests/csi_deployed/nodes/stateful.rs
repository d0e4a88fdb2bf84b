//! A StatefulSet with a file system of each kind and a raw device, whose node is drained.

use futures::future::join_all;
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{PersistentVolumeClaim, Pod},
};
use kube::api::{DeleteParams, ListParams};
use lab::Lab;
use serde_json::{Value, json};
use tokio::process::Command;

use super::tenant::{Tenant, claim, is_ready, sleeper};

const POD: &str = "db-0";
const CLAIMS: [&str; 3] = ["ext4-db-0", "xfs-db-0", "raw-db-0"];
/// Writes the same bytes everywhere, and prints their digests as [`READ`] does.
const WRITE: &str = "dd if=/dev/urandom of=/tmp/data bs=1M count=4 2>/dev/null
    cp /tmp/data /ext4/data
    cp /tmp/data /xfs/data
    dd if=/tmp/data of=/dev/raw bs=1M conv=fsync 2>/dev/null
    sync
    for each in /tmp/data /tmp/data /tmp/data; do sha256sum < $each; done";
const READ: &str = "sha256sum < /ext4/data
    sha256sum < /xfs/data
    dd if=/dev/raw bs=1M count=4 2>/dev/null | sha256sum";

/// One pod with three claims of its own.
pub(super) fn set(name: &str) -> Value {
    let mounts = json!([
        {"name": "ext4", "mountPath": "/ext4"},
        {"name": "xfs", "mountPath": "/xfs"},
        {"name": "tmp", "mountPath": "/tmp"},
    ]);
    let mut container = sleeper(&mounts);
    container["volumeDevices"] = json!([{"name": "raw", "devicePath": "/dev/raw"}]);
    json!({
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [container],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
            "volumeClaimTemplates": [
                claim("ext4", "vsphere", "64Mi", "Filesystem"),
                claim("xfs", "vsphere-xfs", "320Mi", "Filesystem"),
                claim("raw", "vsphere", "16Mi", "Block"),
            ],
        },
    })
}

/// The node of a pod.
pub(super) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap()
}

/// Writes to all volumes of the set's pod; returns what [`read`] must return from now on.
pub(super) fn write(tenant: Tenant<'_>) -> String {
    tenant.shell(POD, WRITE).unwrap()
}

pub(super) fn read(tenant: Tenant<'_>) -> String {
    tenant.shell(POD, READ).unwrap()
}

/// Deletes the set and its claims, and waits until their disks are gone.
async fn discard(tenant: Tenant<'_>) {
    tenant.api::<StatefulSet>().delete("db", &DeleteParams::default()).await.unwrap();
    tenant.until_gone::<Pod>(POD).await;
    join_all(CLAIMS.iter().map(|claim| tenant.discard(claim))).await;
}

async fn kubectl(lab: &Lab, arguments: &[&str]) {
    let mut kubectl = Command::from(lab.control_plane().kubectl().unwrap());
    let output = kubectl.args(arguments).kill_on_drop(true).output().await.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

pub(super) async fn a_stateful_set_moves_with_its_data(lab: &Lab) {
    let tenant = Tenant::new(lab, "stateful").await;
    tenant.create::<StatefulSet>(set("db")).await;
    let pod = tenant.until_ready(POD).await;
    let first = node_of(&pod).to_owned();
    let written = write(tenant);
    assert_eq!(read(tenant), written);

    // It returns when the pod is evicted; pods of other scenarios stay.
    let selected = ["--pod-selector=app=db", "--ignore-daemonsets", "--delete-emptydir-data"];
    kubectl(lab, &[&["drain", &first], &selected[..]].concat()).await;
    let elsewhere = |pod: &Pod| is_ready(pod) && node_of(pod) != first;
    tenant.until_pod(POD, "runs on the other node", elsewhere).await;
    assert_eq!(read(tenant), written);
    kubectl(lab, &["uncordon", &first]).await;
    for name in CLAIMS {
        let (_, handle) = tenant.volume(name).await;
        assert_eq!(tenant.vms(&handle).await.len(), 1, "{name} is attached once");
    }
    let claims = tenant.api::<PersistentVolumeClaim>();
    let claims = claims.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(claims.len(), CLAIMS.len(), "no claim was made anew");
    discard(tenant).await;
}
