//! `cargo xtask demo`: a disk that moves between two real nodes, told as it happens.
//!
//! The drivers are not there yet, so the demo's own hands do what they will do: it plugs the disk in
//! where a CSI driver would ask vCenter to attach it, and mounts it where a node plugin would.

use std::time::Duration;

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{ListParams, LogParams, PostParams},
};
use lab::{Lab, Progress, Spec, Wait, World, image, preflight, until};
use serde_json::json;

use crate::{
    interrupt::interruptible,
    lab_commands,
    output::{say, table},
};

const BOUND: Duration = Duration::from_secs(180);
const DISK: &str = "6000c29a5eed4000800000000000de30";

pub(crate) fn run() -> Result<()> {
    chapter("Getting the parts: real Kubernetes components, built once and kept");
    lab_commands::build()?;
    preflight::check()?;
    interruptible(tell())
}

async fn tell() -> Result<()> {
    chapter("Starting a control plane and two nodes, in namespaces of their own");
    let progress = Progress::shown(lab::STEPS);
    let lab = Lab::start_in(World::claim()?, &Spec::default(), &progress).await?;
    say(&nodes(&lab).await?);

    let [first, second] = lab.nodes() else { bail!("a default lab has two nodes") };
    chapter("Hot-plugging a disk of 64 MiB into node-1");
    let disk = lab.disk(DISK, 64 << 20)?;
    first.plug(&disk)?;
    let link = format!("/dev/disk/by-id/{}", disk.link());
    say(&format!("on node-1:  {} -> {}", link, first.run("readlink", &["-f", &link])?.trim()));
    let absent = second.run("test", &["-e", &link]).is_err();
    say(&format!(
        "on node-2:  {}",
        if absent { "not there, as it should be" } else { "there as well!" }
    ));
    first.run("mkfs.ext4", &["-q", &link])?;
    say("formatted:  ext4");

    chapter("A pod on node-1 writes to it");
    let said = shell(
        &lab,
        "writer",
        "node-1",
        &link,
        "echo \"written on $NODE\" > /disk/note && cat /disk/note",
    )
    .await?;
    say(&format!("writer says: {said}"));

    chapter("The disk moves to node-2, where another pod reads it");
    first.unplug(&disk)?;
    second.plug(&disk)?;
    let said =
        shell(&lab, "reader", "node-2", &link, "echo \"read on $NODE: $(cat /disk/note)\"").await?;
    say(&format!("reader says: {said}"));
    if said != "read on node-2: written on node-1" {
        bail!("the data did not survive the move");
    }

    chapter("Removing everything");
    drop(disk);
    drop(lab);
    say(
        "Processes, mounts, loop devices, namespaces and files are gone.\n\nNext: `make lab` for a cluster of your own.",
    );
    Ok(())
}

fn chapter(title: &str) {
    say(&format!("\n── {title}"));
}

async fn nodes(lab: &Lab) -> Result<String> {
    let mut rows = vec![["NODE", "VERSION", "RUNTIME", "VM UUID"].map(str::to_owned).to_vec()];
    for node in Api::<Node>::all(lab.client()).list(&ListParams::default()).await? {
        let facts = node.status.and_then(|status| status.node_info).unwrap_or_default();
        let name = node.metadata.name.unwrap_or_default();
        rows.push(vec![
            name,
            facts.kubelet_version,
            facts.container_runtime_version,
            facts.system_uuid,
        ]);
    }
    Ok(table(&rows))
}

/// Runs a script in a privileged pod that has the disk mounted at /disk, and returns what it printed.
async fn shell(lab: &Lab, name: &str, node: &str, link: &str, script: &str) -> Result<String> {
    let script =
        format!("mkdir -p /disk && mount -t ext4 {link} /disk && {{ {script}; }} && umount /disk");
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "restartPolicy": "Never",
            "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
            "containers": [{
                "name": "main",
                "image": image::BUSYBOX,
                "imagePullPolicy": "Never",
                "command": ["sh", "-ec", script],
                "env": [{"name": "NODE", "value": node}],
                "securityContext": {"privileged": true},
                "volumeMounts": [{"name": "dev", "mountPath": "/dev"}],
            }],
        },
    });
    let pods: Api<Pod> = Api::namespaced(lab.client(), "default");
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    until(&format!("the pod {name} has run"), BOUND, || async {
        let phase =
            pods.get(name).await?.status.and_then(|status| status.phase).unwrap_or_default();
        match phase.as_str() {
            "Succeeded" => Ok(Wait::Done(())),
            "Failed" => bail!(
                "the pod {name} failed: {}",
                pods.logs(name, &LogParams::default()).await?.trim()
            ),
            _ => Ok(Wait::NotYet(phase)),
        }
    })
    .await?;
    Ok(pods.logs(name, &LogParams::default()).await?.trim().to_owned())
}
