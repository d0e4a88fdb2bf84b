//! The CSI driver in a lab's cluster, installed as its users do it: an image, a Secret, manifests.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, Node as NodeObject, Pod},
    storage::v1::CSINode,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    Progress,
    cluster::Lab,
    image::{self, SIDECARS},
    manifest_files,
    process::run,
    vcenter::VCenter,
    wait::{Wait, until},
};

/// The name by which Kubernetes knows the driver.
pub const NAME: &str = "csi.vsphere.vmware.com";
/// The namespace of its pods.
pub const NAMESPACE: &str = "vmware-system-csi";
/// The account that the simulator's default world has for CSI drivers: what VMware's documentation asks for, no more.
pub const LOGIN: (&str, &str) = ("csi@vsphere.local", "Lab-csi-1!");
/// How many steps [`install`] reports.
pub const STEPS: usize = 3;

const CONTROLLER: &str = "vsphere-csi-controller";
const INSTALLED_WITHIN: Duration = Duration::from_secs(300);

/// The objects of `deploy/`, without the configuration.
///
/// # Errors
/// When the file cannot be read.
pub fn manifests() -> Result<Vec<Value>> {
    manifest_files::read("csi-driver.yaml")
}

/// Installs the driver from the image in this archive with these objects, and waits until its controller is ready and
/// every node has registered it. All nodes become control-plane nodes, so that the controller's pods may run on each.
///
/// # Errors
/// When an object is rejected, or the driver does not become ready: then with the state of its pods.
pub async fn install(
    lab: &Lab,
    archive: &Path,
    objects: &[Value],
    progress: &Progress,
) -> Result<()> {
    let step = progress.step("images of the CSI driver");
    load_images(lab, archive).await?;
    step.done("loaded into every node");

    let step = progress.step("objects of the CSI driver");
    let applied = apply(lab, objects).await?;
    step.done(&format!("{} applied", applied.lines().count()));

    let step = progress.step("CSI driver");
    until_ready(lab, &|seen| step.note(seen)).await?;
    step.done("the controller is ready, every node has registered");
    Ok(())
}

/// Loads the drivers' image and those of the sidecars into every node.
///
/// # Errors
/// When a sidecar is not built, or a node rejects an image.
pub async fn load_images(lab: &Lab, drivers: &Path) -> Result<()> {
    let mut archives = vec![drivers.to_owned()];
    for (number, sidecar) in image::standard(&SIDECARS)?.iter().enumerate() {
        let archive = lab.control_plane().world().dir().join(format!("sidecar-{number}.tar"));
        sidecar.write(&archive)?;
        archives.push(archive);
    }
    for node in lab.nodes() {
        for archive in &archives {
            node.import(archive).await?;
        }
    }
    Ok(())
}

/// Applies the objects together with the configuration for the lab's vCenter.
///
/// # Errors
/// When the lab has no vCenter, or an object is rejected.
pub async fn apply(lab: &Lab, objects: &[Value]) -> Result<String> {
    let nodes: Api<NodeObject> = Api::all(lab.client());
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    for node in lab.nodes() {
        nodes.patch(node.name(), &PatchParams::default(), &Patch::Merge(&role)).await?;
    }
    let mut objects = objects.to_vec();
    let after_namespace = objects.iter().position(|object| object["kind"] == "Namespace");
    objects.insert(after_namespace.map_or(0, |at| at + 1), secret(lab)?);
    lab.control_plane().apply(&objects)
}

/// The Secret with the configuration for the lab's vCenter.
///
/// # Errors
/// When the lab has no vCenter.
pub fn secret(lab: &Lab) -> Result<Value> {
    let vcenter = lab.vcenter().context("this lab has no vCenter")?;
    let authority = fs::read_to_string(vcenter.authority())?;
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "vsphere-config-secret", "namespace": NAMESPACE},
        "stringData": {"csi-vsphere.conf": configuration(vcenter), "ca.crt": authority},
    }))
}

fn configuration(vcenter: &VCenter) -> String {
    let place = vcenter.url_for_pods().trim_start_matches("https://").trim_end_matches("/sdk");
    let (server, port) = place.split_once(':').unwrap_or((place, "443"));
    let (user, password) = LOGIN;
    format!(
        "[Global]\nca-file = /etc/cloud/ca.crt\n\n\
         [VirtualCenter \"{server}\"]\nuser = \"{user}\"\npassword = \"{password}\"\nport = {port}\n"
    )
}

/// Waits until all of the controller's pods are ready and every node has registered the driver; `note` gets what is seen.
///
/// # Errors
/// When that does not happen, with the state of the driver's pods and the end of their logs.
pub async fn until_ready(lab: &Lab, note: &dyn Fn(&str)) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(lab.client(), NAMESPACE);
    let ready = until("the CSI driver is ready", INSTALLED_WITHIN, || async {
        let mut missing = unregistered(lab).await?;
        let deployment = deployments.get(CONTROLLER).await?;
        let wanted = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.unwrap_or_default();
        let replicas = status.ready_replicas.unwrap_or_default();
        if replicas < wanted || status.updated_replicas.unwrap_or_default() < wanted {
            missing.push(format!("{replicas} of {wanted} pods of {CONTROLLER} are ready"));
        }
        if missing.is_empty() {
            return Ok(Wait::Done(()));
        }
        let seen = format!("{}; {}", missing.join(", "), pods(lab).await?.join(", "));
        note(&seen);
        Ok(Wait::NotYet(seen))
    })
    .await;
    ready.with_context(|| logs(lab))
}

/// The nodes on which the kubelet does not know the driver.
async fn unregistered(lab: &Lab) -> Result<Vec<String>> {
    let nodes: Api<CSINode> = Api::all(lab.client());
    let mut missing = Vec::new();
    for node in lab.nodes() {
        let drivers = nodes.get_opt(node.name()).await?.map(|found| found.spec.drivers);
        if !drivers.unwrap_or_default().iter().any(|driver| driver.name == NAME) {
            missing.push(format!("{} has no driver", node.name()));
        }
    }
    Ok(missing)
}

/// What is wrong with the driver's pods.
async fn pods(lab: &Lab) -> Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let mut problems = Vec::new();
    for pod in pods.list(&ListParams::default()).await?.items {
        let name = pod.metadata.name.unwrap_or_default();
        let status = pod.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        if containers.is_empty() {
            let conditions = status.conditions.unwrap_or_default();
            let messages = conditions.into_iter().filter_map(|condition| condition.message);
            let phase = status.phase.unwrap_or_default();
            let words: Vec<String> = std::iter::once(phase).chain(messages).collect();
            problems.push(format!("{name}: {}", words.join(" ")));
        }
        let unwell = containers.iter().filter(|one| !one.ready).map(describe);
        problems.extend(unwell.map(|problem| format!("{name}: {problem}")));
    }
    Ok(problems)
}

fn describe(container: &ContainerStatus) -> String {
    let state = container.state.clone().unwrap_or_default();
    let now = match (&state.waiting, &state.terminated) {
        (Some(waiting), _) => waiting.reason.clone().unwrap_or_default(),
        (_, Some(ended)) => format!("ended with {}", ended.exit_code),
        _ => "not ready".to_owned(),
    };
    let ended = state.terminated.or_else(|| container.last_state.clone()?.terminated);
    let why = ended.and_then(|ended| ended.message).unwrap_or_default();
    format!("{} {now} {}", container.name, why.trim()).trim_end().to_owned()
}

/// The end of the logs of all containers of the driver.
#[must_use]
pub fn logs(lab: &Lab) -> String {
    let read = |flags: &[&str]| {
        let mut kubectl = lab.control_plane().kubectl()?;
        run(kubectl
            .args(["--namespace", NAMESPACE, "logs", "--selector=role=vsphere-csi"])
            .args(["--all-containers", "--prefix", "--tail=40", "--ignore-errors"])
            .args(flags))
    };
    let now = read(&[]);
    let now = now.unwrap_or_else(|error| format!("the driver's logs cannot be read: {error:#}"));
    // Of containers that were restarted: why they ended.
    let before = read(&["--previous"]).unwrap_or_default();
    format!("{now}\nbefore they were restarted:\n{before}")
}
