//! A snapshot, a volume from it and a clone, by the cluster's own objects.

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use lab::{Lab, Wait, manifest_files, snapshot_controller};
use serde_json::{Value, json};

use super::tenant::{Tenant, claim, pod, read};

const GROUP: &str = "snapshot.storage.k8s.io";

fn snapshots(lab: &Lab, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(GROUP, "v1", "VolumeSnapshot");
    let resource = ApiResource::from_gvk_with_plural(&kind, "volumesnapshots");
    Api::namespaced_with(lab.client(), namespace, &resource)
}

/// A claim with the content of another object.
fn copy(name: &str, class: &str, size: &str, source: &Value) -> Value {
    let mut object = claim(name, class, size, "Filesystem");
    object["spec"]["dataSource"] = source.clone();
    object
}

pub(super) async fn a_file_is_in_the_snapshot_and_in_the_clone(lab: &Lab) {
    snapshot_controller::install(lab).await.unwrap();
    lab.control_plane().apply(&manifest_files::read("csi-snapshot-class.yaml").unwrap()).unwrap();
    let tenant = Tenant::new(lab, "snapshots").await;
    tokio::join!(
        copied(lab, tenant, "vsphere", "64Mi"),
        copied(lab, tenant, "vsphere-xfs", "320Mi")
    );
}

async fn copied(lab: &Lab, tenant: Tenant<'_>, class: &str, size: &str) {
    let name = |text: &str| format!("{text}-{class}");
    let [data, taken, restored, cloned] = ["data", "taken", "restored", "cloned"].map(name);
    let [writer, reader] = ["writer", "reader"].map(name);
    tenant.claim(claim(&data, class, size, "Filesystem")).await;
    tenant.run(pod(&writer, "node-1", &[&data])).await;
    tenant.shell(&writer, &format!("echo first > /{data}/note; sync")).unwrap();

    let all = snapshots(lab, "snapshots");
    let snapshot: DynamicObject = read(json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "VolumeSnapshot",
        "metadata": {"name": taken},
        "spec": {
            "volumeSnapshotClassName": "vsphere",
            "source": {"persistentVolumeClaimName": data},
        },
    }));
    all.create(&PostParams::default(), &snapshot).await.unwrap();
    tenant
        .until(&format!("the snapshot {taken} is ready"), || async {
            let found = all.get(&taken).await?;
            let is_ready = found.data["status"]["readyToUse"] == json!(true);
            let seen = found.data["status"].to_string();
            Ok(if is_ready { Wait::Done(()) } else { Wait::NotYet(seen) })
        })
        .await;
    tenant.shell(&writer, &format!("echo second > /{data}/note; sync")).unwrap();

    let of_snapshot = json!({"apiGroup": GROUP, "kind": "VolumeSnapshot", "name": taken});
    tenant.claim(copy(&restored, class, size, &of_snapshot)).await;
    let of_claim = json!({"kind": "PersistentVolumeClaim", "name": data});
    tenant.claim(copy(&cloned, class, size, &of_claim)).await;
    // Beside the source: some file systems do not mount twice on a node without help.
    tenant.run(pod(&reader, "node-1", &[&restored, &cloned])).await;
    let read = |claim: &str| tenant.shell(&reader, &format!("cat /{claim}/note")).unwrap();
    assert_eq!([read(&restored), read(&cloned)], ["first", "second"]);

    tenant.stop(&reader).await;
    tenant.stop(&writer).await;
    tenant.discard(&cloned).await;
    tenant.discard(&restored).await;
    all.delete(&taken, &DeleteParams::default()).await.unwrap();
    tenant
        .until(&format!("the snapshot {taken} is gone"), || async {
            let found = all.get_opt(&taken).await?;
            Ok(found.map_or(Wait::Done(()), |found| Wait::NotYet(found.data.to_string())))
        })
        .await;
    tenant.discard(&data).await;
}
