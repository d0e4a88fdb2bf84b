//! `cargo xtask bench failover`: a host dies with a pod that writes, and its successor writes on another node.
//!
//! The cloud controller manager runs with `--out-of-service-taint` and adds the taint on vCenter's proof that the VM is
//! off. The time begins when Kubernetes misses the node, because what comes before that is a setting of Kubernetes.
//! Times are read from the kernel's uptime, which pods and this program share.

use std::{fs, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Node, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use lab::{
    CloudController, Lab, Progress, Spec, Wait, World, csi_driver, image::BUSYBOX, manifest_files,
    run, until, vcenter::Power,
};
use serde_json::{Value, json};

use crate::{
    bench::Figure,
    demo::manager,
    image::{self, Profile},
    output::print_error,
};

const BOUND: Duration = Duration::from_secs(300);
const NAMESPACE: &str = "default";
const WRITER: &str = "writer";
const POD: &str = "writer-0";
/// Where the pod runs first.
const DYING: &str = "node-2";
/// Where the controllers are.
const LIVING: &str = "node-1";
/// Seconds from the Node's NotReady to the first write of its successor.
const SUCCESSOR_WRITES: f64 = 30.0;

/// A line of the file that the pods write: number, node, uptime.
#[derive(Debug)]
struct Line {
    number: usize,
    node: String,
    at: f64,
}

pub(crate) async fn figures() -> Result<Vec<Figure>> {
    print_error("building our program");
    let drivers = image::make(Profile::Release)?;
    let spec = Spec { cloud_controller: CloudController::Expected, ..Spec::with_vcenter() };
    let progress = Progress::shown(spec.steps());
    let mut lab = Lab::start_in(World::claim()?, &spec, &progress).await?;
    let vcenter = lab.vcenter().context("the lab has a vCenter")?;
    manager::deploy(&lab, vcenter, &drivers.archive, &["--out-of-service-taint"]).await?;
    let progress = Progress::shown(csi_driver::STEPS);
    csi_driver::install(&lab, &drivers.archive, &csi_driver::manifests()?, &progress).await?;
    keep_controllers_on_living_node(&lab).await?;
    lab.control_plane().apply(&manifest_files::read("csi-storage-classes.yaml")?)?;
    start_writer(&lab).await?;

    let before = lines(&lab)?;
    let last = before.last().context("the pod wrote nothing")?;
    ensure!(last.node == DYING, "the pod runs on {}", last.node);
    print_error(&format!("{DYING} loses its power after line {}", last.number));
    let died = uptime()?;
    lab.cut_power(DYING)?;
    lab.vcenter().context("the lab has a vCenter")?.control().power(DYING, Power::Off).await?;
    let missed = until_missed(&lab).await?;
    print_error(&format!("Kubernetes misses it after {:.1} s", missed - died));
    let after = until_successor_writes(&lab).await?;
    judge(last.number, &after)?;
    let first = after.iter().find(|line| line.node == LIVING).context("the successor wrote")?;
    let figure = |name, bound, value| Figure { name, bound, unit: "s", values: vec![value] };
    Ok(vec![
        figure("a host dies until Kubernetes misses its node", None, missed - died),
        figure("until the successor of its pod writes", Some(SUCCESSOR_WRITES), first.at - missed),
    ])
}

/// The first node has been the only one with the label until the driver was installed, and stays the only one.
async fn keep_controllers_on_living_node(lab: &Lab) -> Result<()> {
    let nodes: Api<Node> = Api::all(lab.client());
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": null}}});
    nodes.patch(DYING, &PatchParams::default(), &Patch::Merge(&label)).await?;
    let pods: Api<Pod> = Api::namespaced(lab.client(), csi_driver::NAMESPACE);
    let of_controller = ListParams::default().labels("app=vsphere-csi-controller");
    until("the controllers run on one node", BOUND, || async {
        let all = pods.list(&of_controller).await?.items;
        let there: Vec<String> = all
            .into_iter()
            .filter(|pod| node_of(pod) == Some(DYING))
            .filter_map(|pod| pod.metadata.name)
            .collect();
        for name in &there {
            pods.delete(name, &DeleteParams::default().grace_period(1)).await.ok();
        }
        Ok(if there.is_empty() { Wait::Done(()) } else { Wait::NotYet(there.join(", ")) })
    })
    .await
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// A StatefulSet whose pod adds a line to a file, and another one when that is on the disk. It prefers the dying node.
fn writer() -> Value {
    let script = "touch /data/lines; number=$(wc -l < /data/lines); while true; do number=$((number + 1)); \
                  echo \"$number $NODE $(cut -d' ' -f1 /proc/uptime)\" >> /data/lines; fsync /data/lines; done";
    let selector = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [DYING]});
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [selector]}}]);
    json!({
        "metadata": {"name": WRITER},
        "spec": {
            "serviceName": WRITER,
            "replicas": 1,
            "selector": {"matchLabels": {"app": WRITER}},
            "template": {
                "metadata": {"labels": {"app": WRITER}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
                    "containers": [{
                        "name": "main",
                        "image": BUSYBOX,
                        "imagePullPolicy": "Never",
                        "command": ["sh", "-c", script],
                        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": "vsphere",
                    "resources": {"requests": {"storage": "64Mi"}},
                },
            }],
        },
    })
}

async fn start_writer(lab: &Lab) -> Result<()> {
    let sets: Api<StatefulSet> = Api::namespaced(lab.client(), NAMESPACE);
    sets.create(&PostParams::default(), &serde_json::from_value(writer())?).await?;
    until("the pod writes", BOUND, || async {
        let written = lines(lab).map_or(0, |lines| lines.len());
        Ok(if written > 20 { Wait::Done(()) } else { Wait::NotYet(format!("{written} lines")) })
    })
    .await
}

/// What the pods have written.
fn lines(lab: &Lab) -> Result<Vec<Line>> {
    let mut kubectl = lab.control_plane().kubectl()?;
    let text = run(kubectl.args(["exec", POD, "--", "cat", "/data/lines"]))?;
    text.lines().map(|line| read(line).with_context(|| format!("the line {line:?}"))).collect()
}

fn read(line: &str) -> Result<Line> {
    let [number, node, at] = *line.split(' ').collect::<Vec<_>>() else {
        bail!("it does not have three parts");
    };
    Ok(Line { number: number.parse()?, node: node.to_owned(), at: at.parse()? })
}

fn uptime() -> Result<f64> {
    let text = fs::read_to_string("/proc/uptime")?;
    let seconds = text.split(' ').next().context("/proc/uptime is empty")?;
    Ok(seconds.parse()?)
}

/// When the node was first seen not to be ready.
async fn until_missed(lab: &Lab) -> Result<f64> {
    let nodes: Api<Node> = Api::all(lab.client());
    until("Kubernetes misses the node", BOUND, || async {
        let conditions = nodes.get(DYING).await?.status.and_then(|status| status.conditions);
        let ready = conditions.into_iter().flatten().find(|one| one.type_ == "Ready");
        let status = ready.map(|one| one.status).unwrap_or_default();
        Ok(if status == "True" { Wait::NotYet(status) } else { Wait::Done(uptime()?) })
    })
    .await
}

async fn until_successor_writes(lab: &Lab) -> Result<Vec<Line>> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    until("the successor writes", BOUND, || async {
        let pod = pods.get_opt(POD).await?;
        let node = pod.as_ref().and_then(node_of).unwrap_or("no node");
        if node != LIVING {
            return Ok(Wait::NotYet(format!("the pod is on {node}")));
        }
        let Ok(lines) = lines(lab) else {
            return Ok(Wait::NotYet("it does not run yet".to_owned()));
        };
        let written = lines.iter().any(|line| line.node == LIVING);
        Ok(if written { Wait::Done(lines) } else { Wait::NotYet("no line of it".to_owned()) })
    })
    .await
}

/// Nothing that was on the disk is lost, nothing is there twice, and no two pods wrote at once.
fn judge(acknowledged: usize, lines: &[Line]) -> Result<()> {
    for (at, line) in lines.iter().enumerate() {
        ensure!(line.number == at + 1, "line {} of the file is {line:?}", at + 1);
    }
    ensure!(lines.len() > acknowledged, "of {acknowledged} lines {} are there", lines.len());
    let moves = lines.windows(2).filter(|pair| pair[0].node != pair[1].node).count();
    ensure!(moves == 1, "the writing node changed {moves} times");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<Line> {
        text.split(", ").map(|line| read(line).unwrap()).collect()
    }

    #[test]
    fn lost_doubled_and_mixed_lines_are_noticed() {
        let whole = "1 node-2 10.00, 2 node-2 10.50, 3 node-1 60.25";
        judge(2, &file(whole)).unwrap();
        judge(3, &file(whole)).unwrap_err();
        judge(1, &file("1 node-2 1, 3 node-1 2")).unwrap_err();
        judge(1, &file("1 node-2 1, 2 node-1 2, 2 node-1 3")).unwrap_err();
        judge(1, &file("1 node-2 1, 2 node-1 2, 3 node-2 3")).unwrap_err();
    }
}
