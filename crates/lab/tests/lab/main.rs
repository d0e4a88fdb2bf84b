//! The lab against its own promises. Tests below `nodes::` need root.

mod api;
mod nodes;
mod suite;
mod vcenter;

use std::{process::Command, time::Duration};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::PostParams};
use lab::{ControlPlane, Wait, until};
use serde_json::{Value, json};

/// Generous: the machine may be busy with other things.
const BOUND: Duration = Duration::from_secs(180);

fn kubectl(plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    lab::run(plane.kubectl()?.args(arguments))
}

/// Output of a program that the lab built.
fn output_of(component: &str, arguments: &[&str]) -> Result<String> {
    lab::run(Command::new(components::binary(component)?).args(arguments))
}

/// A pod of one container with this spec, in the namespace default.
fn pod(name: &str, node: &str, container: &Value, volumes: &Value) -> Value {
    let mut container = container.clone();
    container["name"] = json!("main");
    container["imagePullPolicy"] = json!("Never");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "volumes": volumes,
            "containers": [container],
        },
    })
}

/// Creates the pod and waits until it runs or has run, then returns it.
async fn run_pod(client: &Client, pod: Value, phase: &str) -> Result<Pod> {
    let api: Api<Pod> = Api::namespaced(client.clone(), "default");
    let created = api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let name = created.metadata.name.unwrap_or_default();
    until(&format!("pod {name} is {phase}"), BOUND, || async {
        let pod = api.get(&name).await?;
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some(phase) {
            return Ok(Wait::Done(pod));
        }
        let seen = format!("{:?} {:?}", status.phase, status.container_statuses);
        if status.phase.as_deref() == Some("Failed") {
            bail!("pod {name} failed: {seen}");
        }
        Ok(Wait::NotYet(seen))
    })
    .await
}
