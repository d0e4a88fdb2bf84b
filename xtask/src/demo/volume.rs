//! The chapter of storage: a volume that moves between two nodes with its data.
//!
//! There is no CSI driver yet, so the demo does its work: govmomi's client attaches the volume where the driver's
//! controller would, and a pod mounts it where its node plugin would.

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{LogParams, PostParams},
};
use lab::{Lab, VCenter, Wait, image, until};
use serde_json::json;

use super::{BOUND, chapter};
use crate::output::print_line;

pub(super) async fn show(lab: &Lab) -> Result<()> {
    let vcenter = lab.vcenter().context("the demo's lab has a vCenter")?;
    let [first, second] = lab.nodes() else { bail!("a default lab has two nodes") };
    chapter("vCenter makes a volume of 64 MB and attaches it to the VM of node-1");
    let volume = vcenter.cnsctl(&["create", "demo", "64", "/dc-1/datastore/shared-1"])?;
    print_line(&format!("volume:     {volume}"));
    let link = attach(vcenter, &volume, first)?;
    print_line(&format!(
        "on node-1:  {} -> {}",
        link,
        first.run("readlink", &["-f", &link])?.trim()
    ));
    let absent = second.run("test", &["-e", &link]).is_err();
    print_line(&format!(
        "on node-2:  {}",
        if absent { "not there, as it should be" } else { "there as well!" }
    ));
    let refused =
        vcenter.cnsctl(&["attach", &volume, second.uuid()]).err().map(|error| error.to_string());
    let why = refused
        .as_deref()
        .and_then(|text| text.rsplit("cnsctl: ").next())
        .unwrap_or("was allowed!");
    print_line(&format!("attaching it to node-2 as well: {why}"));
    first.run("mkfs.ext4", &["-q", &link])?;
    print_line("formatted:  ext4");

    chapter("A pod on node-1 writes to it");
    let write = "echo \"written on $NODE\" > /disk/note && cat /disk/note";
    print_line(&format!("writer:     {}", shell(lab, "writer", "node-1", &link, write).await?));

    chapter("The volume moves to node-2, where another pod reads it");
    vcenter.cnsctl(&["detach", &volume, first.uuid()])?;
    let link = attach(vcenter, &volume, second)?;
    let output =
        shell(lab, "reader", "node-2", &link, "echo \"read on $NODE: $(cat /disk/note)\"").await?;
    print_line(&format!("reader:     {output}"));
    if output != "read on node-2: written on node-1" {
        bail!("the data did not survive the move");
    }

    Ok(())
}

/// Attaches the volume and returns the link by which the node sees it.
fn attach(vcenter: &VCenter, volume: &str, node: &lab::Node) -> Result<String> {
    let uuid = vcenter.cnsctl(&["attach", volume, node.uuid()])?;
    Ok(format!("/dev/disk/by-id/wwn-0x{}", uuid.replace('-', "").to_lowercase()))
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
