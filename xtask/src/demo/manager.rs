//! The chapters of the cloud controller manager: it initialises nodes from vCenter, and keeps them up to date.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use lab::{
    Lab, Progress, VCenter, Wait,
    progress::{Step, seconds},
    until,
    vcenter::Power,
};
use serde_json::{Value, json};

use super::{
    BOUND, chapter,
    node_facts::{SHUTDOWN, UNINITIALIZED, address, facts, has_taint, taints},
};
use crate::{
    deploy::{self, CONFIG, NAMESPACE},
    output::print_line,
};

/// The account that the simulator has for cloud controller managers: it may read, and nothing else.
const LOGIN: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");
const PUBLIC: &str = "203.0.113.0/24";
const PUBLIC_ADDRESS: &str = "203.0.113.77";

pub(super) async fn show(lab: &Lab, archive: &Path) -> Result<()> {
    let vcenter = lab.vcenter().context("the demo's lab has a vCenter")?;
    chapter("The nodes are Ready and not initialised: no pod is scheduled to them");
    print_line(&facts(lab).await?);

    chapter("The cloud controller manager is deployed, with the rights of its own account");
    deploy(lab, vcenter, archive, &[]).await?;

    chapter("It finds the VMs in vCenter and initialises the nodes");
    let nodes: Api<Node> = Api::all(lab.client());
    for node in lab.nodes() {
        let known = |one: &Node| !has_taint(one, UNINITIALIZED);
        wait(&nodes, node.name(), "is initialised", None, known).await?;
    }
    print_line(&facts(lab).await?);

    chapter("The VM of node-2 gets a public address");
    let addresses = ["10.99.0.12/24", &format!("{PUBLIC_ADDRESS}/24")];
    vcenter.control().readdress("node-2", &addresses).await?;
    let arrived = |node: &Node| address(node, "ExternalIP") == PUBLIC_ADDRESS;
    let took = wait(&nodes, "node-2", "has the address", None, arrived).await?;
    print_line(&format!(
        "in Kubernetes after {}: vCenter reports changes, nothing is polled",
        seconds(took)
    ));
    print_line(&facts(lab).await?);
    switch_off(lab, vcenter, &nodes).await
}

async fn switch_off(lab: &Lab, vcenter: &VCenter, nodes: &Api<Node>) -> Result<()> {
    chapter("Somebody switches the VM of node-2 off, and on again");
    let machine = lab.nodes().iter().find(|node| node.name() == "node-2");
    let machine = machine.context("a default lab has a node-2")?;
    let progress = Progress::shown(3);
    vcenter.control().power("node-2", Power::Off).await?;
    machine.pause_kubelet()?;
    let step = progress.step("Kubernetes misses node-2 (it waits most of a minute)");
    wait(nodes, "node-2", "is not ready", Some(&step), |node| !is_ready(node)).await?;
    step.done("not ready");
    let step = progress.step("the cloud controller manager adds why");
    wait(nodes, "node-2", "is tainted", Some(&step), |node| has_taint(node, SHUTDOWN)).await?;
    step.done(&taints(&nodes.get("node-2").await?));
    vcenter.control().power("node-2", Power::On).await?;
    machine.resume_kubelet()?;
    let step = progress.step("on again");
    let back = |node: &Node| is_ready(node) && taints(node).is_empty();
    wait(nodes, "node-2", "is back", Some(&step), back).await?;
    step.done("ready, and no taint is left");
    Ok(())
}

/// Deploys it on the first node, with flags besides those of the manifests.
pub(crate) async fn deploy(
    lab: &Lab,
    vcenter: &VCenter,
    archive: &Path,
    flags: &[&str],
) -> Result<()> {
    let progress = Progress::shown(3);
    let step = progress.step("image");
    let [first, ..] = lab.nodes() else { return Ok(()) };
    first.import(archive).await?;
    step.done(&format!("loaded into {}", first.name()));

    let step = progress.step("objects");
    let nodes: Api<Node> = Api::all(lab.client());
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    nodes.patch(first.name(), &PatchParams::default(), &Patch::Merge(role)).await?;
    let applied = lab.control_plane().apply(&objects(vcenter, flags)?)?;
    step.done(&format!(
        "{} applied, as in deploy/cloud-controller-manager.yaml",
        applied.lines().count()
    ));

    let step = progress.step("pod");
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let name = until("the manager's pod is ready", BOUND, || async {
        let all = pods.list(&ListParams::default()).await?.items;
        let Some(pod) = all.first() else { return Ok(Wait::NotYet("no pod".to_owned())) };
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref());
        let ready = conditions
            .is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"));
        let phase = status.and_then(|status| status.phase.clone()).unwrap_or_default();
        step.note(&phase);
        let name = pod.metadata.name.clone().unwrap_or_default();
        Ok(if ready { Wait::Done(name) } else { Wait::NotYet(phase) })
    })
    .await?;
    step.done(&format!("{name} is ready"));
    Ok(())
}

/// The configuration for the lab's vCenter, its Secret, and the manifests as they are shipped.
fn objects(vcenter: &VCenter, flags: &[&str]) -> Result<Vec<Value>> {
    let server = vcenter.url_for_pods().trim_start_matches("https://");
    let server = server.trim_end_matches("/sdk").trim_end_matches(":443");
    let config = format!(
        "global:\n  caFile: /etc/cloud/ca.crt\n  secretName: vsphere-cloud-secret\n  secretNamespace: {NAMESPACE}\n\
         vcenter:\n  lab:\n    server: {server}\n\
         labels:\n  region: k8s-region\n  zone: k8s-zone\n\
         nodes:\n  internalNetworkSubnetCidr: 10.99.0.0/24\n  externalNetworkSubnetCidr: {PUBLIC}\n"
    );
    let configuration = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG, "namespace": NAMESPACE},
        "data": {"vsphere.conf": config, "ca.crt": fs::read_to_string(vcenter.authority())?},
    });
    let (user, password) = LOGIN;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "vsphere-cloud-secret", "namespace": NAMESPACE},
        "stringData": {format!("{server}.username"): user, format!("{server}.password"): password},
    });
    let mut objects = vec![configuration, secret];
    objects.extend(deploy::cloud_controller_manager()?);
    let arguments = "/spec/template/spec/containers/0/args";
    for object in &mut objects {
        if let Some(Value::Array(arguments)) = object.pointer_mut(arguments) {
            arguments.extend(flags.iter().map(|flag| json!(flag)));
        }
    }
    Ok(objects)
}

/// Waits until the condition holds for a Node, and returns how long that took.
async fn wait(
    nodes: &Api<Node>,
    name: &str,
    what: &str,
    step: Option<&Step<'_>>,
    holds: impl Fn(&Node) -> bool,
) -> Result<Duration> {
    let started = Instant::now();
    until(&format!("{name} {what}"), BOUND, || async {
        let node = nodes.get(name).await?;
        let seen = taints(&node);
        if let Some(step) = step {
            step.note(&seen);
        }
        Ok(if holds(&node) { Wait::Done(()) } else { Wait::NotYet(seen) })
    })
    .await?;
    Ok(started.elapsed())
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}
