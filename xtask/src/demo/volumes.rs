//! The chapters of the CSI driver: a claim becomes a disk that moves with its pod, grows, and goes.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use lab::{
    Lab, Progress, Wait, csi_driver, image, manifest_files, run, snapshot_controller, until,
};
use serde_json::{Value, json};

use super::{BOUND, chapter};
use crate::output::print_line;

/// A class of `deploy/csi-storage-classes.yaml` whose file system grows while it is mounted, without the privilege
/// that ext4 needs for it and some machines do not give.
const CLASS: &str = "vsphere-xfs";
const NAMESPACE: &str = "default";

pub(super) async fn show(lab: &Lab, archive: &Path) -> Result<()> {
    chapter("The CSI driver is deployed: a controller, and one container on each node");
    let progress = Progress::shown(csi_driver::STEPS);
    csi_driver::install(lab, archive, &csi_driver::manifests()?, &progress).await?;
    lab.control_plane().apply(&manifest_files::read("csi-storage-classes.yaml")?)?;

    chapter("A claim of 400 MB: vCenter makes a disk, and a pod on node-1 writes to it");
    claim(lab, "data", "400Mi", "Filesystem", None).await?;
    start(lab, &pod("writer", "node-1", "data", "Filesystem")).await?;
    let write = "echo \"written on $NODE\" > /data/note && sync && cat /data/note";
    print_line(&format!("writer:   {}", shell(lab, "writer", write)?));
    print_line(&format!("mounted:  {}", shell(lab, "writer", "df -h /data | tail -1")?));
    show_vcenter(lab).await?;

    chapter("The pod is deleted, and another one on node-2 reads what it wrote");
    stop(lab, "writer").await?;
    start(lab, &pod("reader", "node-2", "data", "Filesystem")).await?;
    let read = shell(lab, "reader", "echo \"read on $NODE: $(cat /data/note)\"")?;
    print_line(&format!("reader:   {read}"));
    if read != "read on node-2: written on node-1" {
        bail!("the data did not survive the move");
    }
    show_vcenter(lab).await?;

    chapter("The claim grows to 800 MB while the pod uses it");
    grow(lab, "data", "800Mi").await?;
    print_line(&format!("mounted:  {}", shell(lab, "reader", "df -h /data | tail -1")?));
    show_vcenter(lab).await?;

    snapshot(lab).await?;

    chapter("A claim without a file system: a pod uses the disk itself");
    claim(lab, "raw", "64Mi", "Block", None).await?;
    start(lab, &pod("raw", "node-1", "raw", "Block")).await?;
    let copy = "echo raw bytes | dd of=/dev/disk conv=fsync 2>/dev/null && dd if=/dev/disk bs=9 count=1 2>/dev/null";
    print_line(&format!("on disk:  {}", shell(lab, "raw", copy)?));
    show_vcenter(lab).await?;

    chapter("Pods, claims and the snapshot are deleted, and so are the disks");
    kubectl(lab, &["delete", "volumesnapshot", "before"])?;
    for (pod, claim) in [("reader", "data"), ("restored", "restored"), ("raw", "raw")] {
        stop(lab, pod).await?;
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client(), NAMESPACE);
        claims.delete(claim, &DeleteParams::default()).await?;
    }
    until("vCenter has deleted the disks", BOUND, || async {
        let left = volumes(lab).await?;
        Ok(if left.is_empty() { Wait::Done(()) } else { Wait::NotYet(left.join("\n")) })
    })
    .await?;
    show_vcenter(lab).await
}

async fn snapshot(lab: &Lab) -> Result<()> {
    chapter(
        "A snapshot of the disk; the pod changes the file, and a claim from the snapshot has the old one",
    );
    take_snapshot(lab, "data", "before").await?;
    shell(lab, "reader", "echo changed > /data/note && sync")?;
    let source =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "before"});
    claim(lab, "restored", "800Mi", "Filesystem", Some(&source)).await?;
    start(lab, &pod("restored", "node-1", "restored", "Filesystem")).await?;
    print_line(&format!("reader:   {}", shell(lab, "reader", "cat /data/note")?));
    let restored = shell(lab, "restored", "cat /data/note")?;
    print_line(&format!("restored: {restored}"));
    if restored != "written on node-1" {
        bail!("the snapshot does not have what was written before it");
    }
    show_vcenter(lab).await
}

/// Takes a snapshot of a claim's volume, in a cluster that has learned what snapshots are.
async fn take_snapshot(lab: &Lab, claim: &str, name: &str) -> Result<()> {
    snapshot_controller::install(lab).await?;
    let mut objects = manifest_files::read("csi-snapshot-class.yaml")?;
    let class = objects[0]["metadata"]["name"].clone();
    objects.push(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": claim}},
    }));
    lab.control_plane().apply(&objects)?;
    let (bound, object) =
        (format!("--timeout={}s", BOUND.as_secs()), format!("volumesnapshot/{name}"));
    kubectl(lab, &["wait", "--for=jsonpath={.status.readyToUse}=true", &bound, &object])?;
    Ok(())
}

fn kubectl(lab: &Lab, arguments: &[&str]) -> Result<String> {
    run(lab.control_plane().kubectl()?.args(arguments))
}

async fn claim(
    lab: &Lab,
    name: &str,
    size: &str,
    mode: &str,
    source: Option<&Value>,
) -> Result<()> {
    let claim = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": CLASS,
            "volumeMode": mode,
            "dataSource": source,
            "resources": {"requests": {"storage": size}},
        },
    });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client(), NAMESPACE);
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

/// A pod that sleeps, with the claim at /data or as /dev/disk.
fn pod(name: &str, node: &str, claim: &str, mode: &str) -> Value {
    let (place, value) = match mode {
        "Block" => ("volumeDevices", json!([{"name": "claim", "devicePath": "/dev/disk"}])),
        _ => ("volumeMounts", json!([{"name": "claim", "mountPath": "/data"}])),
    };
    let mut pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "claim", "persistentVolumeClaim": {"claimName": claim}}],
            "containers": [{
                "name": "main",
                "image": image::BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sleep", "3600"],
                "env": [{"name": "NODE", "value": node}],
            }],
        },
    });
    pod["spec"]["containers"][0][place] = value;
    pod
}

async fn start(lab: &Lab, pod: &Value) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let created =
        pods.create(&PostParams::default(), &serde_json::from_value(pod.clone())?).await?;
    let name = created.metadata.name.context("a pod has a name")?;
    until(&format!("the pod {name} runs"), BOUND, || async {
        let status = pods.get(&name).await?.status.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        Ok(if phase == "Running" { Wait::Done(()) } else { Wait::NotYet(phase) })
    })
    .await
}

async fn stop(lab: &Lab, name: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    pods.delete(name, &DeleteParams::default()).await?;
    until(&format!("the pod {name} is gone"), BOUND, || async {
        let found = pods.get_opt(name).await?;
        Ok(if found.is_none() { Wait::Done(()) } else { Wait::NotYet("it is there".to_owned()) })
    })
    .await
}

/// Runs a script in a pod and returns what it printed.
fn shell(lab: &Lab, pod: &str, script: &str) -> Result<String> {
    let printed = kubectl(lab, &["exec", pod, "--", "sh", "-ec", script])?;
    Ok(printed.trim().to_owned())
}

async fn grow(lab: &Lab, name: &str, size: &str) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client(), NAMESPACE);
    let wish = json!({"spec": {"resources": {"requests": {"storage": size}}}});
    claims.patch(name, &PatchParams::default(), &Patch::Merge(&wish)).await?;
    until(&format!("the claim {name} has {size}"), BOUND, || async {
        let status = claims.get(name).await?.status.unwrap_or_default();
        let capacity = status.capacity.unwrap_or_default().remove("storage");
        let now = capacity.map(|quantity| quantity.0).unwrap_or_default();
        Ok(if now == size { Wait::Done(()) } else { Wait::NotYet(format!("it has {now}")) })
    })
    .await
}

/// A line for each volume, as vCenter has it.
async fn volumes(lab: &Lab) -> Result<Vec<String>> {
    let vcenter = lab.vcenter().context("the demo's lab has a vCenter")?;
    let state = vcenter.control().state().await?;
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or("-").to_owned();
    let path_of = |reference: &Value| {
        let object = state.inventory.iter().find(|one| one["ref"] == *reference);
        object.map_or_else(|| reference.to_string(), |object| text(object, "path"))
    };
    let line = |volume: &Value| {
        let id = text(volume, "id");
        let attached = state.attachments.iter().filter(|one| one["volume"] == id.as_str());
        let vms: Vec<String> = attached.map(|one| path_of(&one["vm"])).collect();
        let place = if vms.is_empty() { "no VM".to_owned() } else { vms.join(", ") };
        let datastore = path_of(&volume["datastore"]);
        format!("{id}, {} MB on {datastore}, attached to {place}", volume["capacityMb"])
    };
    Ok(state.volumes.iter().map(line).collect())
}

async fn show_vcenter(lab: &Lab) -> Result<()> {
    let volumes = volumes(lab).await?;
    if volumes.is_empty() {
        print_line("vCenter:  no volume");
    }
    for volume in volumes {
        print_line(&format!("vCenter:  {volume}"));
    }
    Ok(())
}
