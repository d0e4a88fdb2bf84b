//! The forms in which pods use a volume: by a group, in part, read-only; and a volume that the Go driver made.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use lab::{Lab, csi_driver};
use serde_json::json;

use super::tenant::{Tenant, claim, pod, read};

pub(super) async fn pods_share_and_protect_a_volume(lab: &Lab) {
    let tenant = Tenant::new(lab, "forms").await;
    tenant.claim(claim("data", "vsphere", "64Mi", "Filesystem")).await;

    let mut writer = pod("writer", "node-2", &["data"]);
    writer["spec"]["securityContext"] =
        json!({"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000});
    writer["spec"]["containers"][0]["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/all"},
        {"name": "data", "mountPath": "/one", "subPath": "parts/one"},
        {"name": "data", "mountPath": "/two", "subPath": "parts/two"},
    ]);
    tenant.run(writer).await;
    let script = "echo 1 > /one/note; echo 2 > /two/note; echo 0 > /all/note; sync
        id -G; stat -c %g /all /one/note; cat /all/parts/one/note /all/parts/two/note /all/note";
    let printed = tenant.shell("writer", script).unwrap();
    assert_eq!(printed, "1000 2000\n2000\n2000\n1\n2\n0");

    // Beside the writer on its node: one that may not write, and one that could but asks not to.
    let mut reader = pod("reader", "node-2", &["data"]);
    reader["spec"]["containers"][0]["volumeMounts"][0]["readOnly"] = json!(true);
    let mut guest = pod("guest", "node-2", &["data"]);
    guest["spec"]["volumes"][0]["persistentVolumeClaim"]["readOnly"] = json!(true);
    tokio::join!(tenant.run(reader), tenant.run(guest));
    for name in ["reader", "guest"] {
        assert_eq!(tenant.shell(name, "cat /data/parts/two/note").unwrap(), "2");
        let refused = tenant.shell(name, "echo 3 > /data/note").unwrap_err().to_string();
        assert!(refused.contains("Read-only file system"), "{name}: {refused}");
    }
    // They took nothing from the one that may.
    tenant.shell("writer", "echo 4 > /one/note").unwrap();
    assert_eq!(tenant.shell("reader", "cat /data/parts/one/note").unwrap(), "4");
    tokio::join!(tenant.stop("reader"), tenant.stop("guest"), tenant.stop("writer"));
    tenant.discard("data").await;
}

/// A PersistentVolume as the Go driver and its sidecars left it.
fn go_volume(name: &str, handle: &str) -> PersistentVolume {
    read(json!({
        "metadata": {
            "name": name,
            "annotations": {
                "pv.kubernetes.io/provisioned-by": csi_driver::NAME,
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
            "finalizers": [
                "kubernetes.io/pv-protection",
                "external-provisioner.volume.kubernetes.io/finalizer",
                "external-attacher/csi-vsphere-vmware-com",
            ],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "64Mi"},
            "csi": {
                "driver": csi_driver::NAME,
                "fsType": "ext4",
                "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": "1716800000000-8081-csi.vsphere.vmware.com",
                    "type": "vSphere CNS Block Volume",
                },
                "volumeHandle": handle,
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "vsphere",
            "volumeMode": "Filesystem",
        },
    }))
}

pub(super) async fn a_volume_of_the_go_driver_is_used_and_deleted(lab: &Lab) {
    let tenant = Tenant::new(lab, "inherited").await;
    let vcenter = lab.vcenter().unwrap();
    let name = "pvc-7d9f3c1e-5eed-4000-8000-0000000000aa";
    let handle = vcenter.cnsctl(&["create", name, "64", "/dc-1/datastore/shared-1"]).unwrap();
    let volumes: Api<PersistentVolume> = Api::all(lab.client());
    volumes.create(&PostParams::default(), &go_volume(name, &handle)).await.unwrap();
    let mut wanted = claim("old", "vsphere", "64Mi", "Filesystem");
    wanted["spec"]["volumeName"] = json!(name);
    tenant.claim(wanted).await;
    tenant.run(pod("user", "node-1", &["old"])).await;
    assert_eq!(tenant.volume("old").await, (name.to_owned(), handle.clone()));
    assert_eq!(tenant.vms(&handle).await, ["node-1"]);
    tenant.shell("user", "echo kept > /old/note; sync").unwrap();
    tenant.stop("user").await;
    tenant.run(pod("other", "node-2", &["old"])).await;
    assert_eq!(tenant.shell("other", "cat /old/note").unwrap(), "kept");
    tenant.stop("other").await;
    let claims = tenant.api::<PersistentVolumeClaim>();
    claims.delete("old", &DeleteParams::default()).await.unwrap();
    tenant.until_deleted(name, &handle).await;
}
