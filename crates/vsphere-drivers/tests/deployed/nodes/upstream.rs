//! The Go manager's own manifest and chart, as they are, with our image. Needs root.
//!
//! Both are read from Go's module cache; `lab/upstream` pins the version. Only what every user fills in is filled in:
//! the address of vCenter, its datacenters and the credentials.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ccm::manifests::{IMAGE, NAMESPACE};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use lab::{
    CloudController, Lab, Spec, Wait, components,
    kubelet::{is_initialised, label, provider_id},
    until, upstream,
};
use serde_json::{Value, json};

use super::load_image;
use crate::{BOUND, LOGIN, UUIDS, server_of};

/// The objects in a file, as kubectl reads it.
fn objects(lab: &Lab, file: &Path) -> Vec<Value> {
    let mut kubectl = lab.control_plane().kubectl().unwrap();
    let text = lab::run(kubectl.args(["create", "--dry-run=client", "-o", "json", "-f"]).arg(file));
    let text = text.unwrap();
    let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
    let values = values.map(Result::unwrap);
    values
        .flat_map(|value| match value["items"].as_array() {
            Some(items) => items.clone(),
            None => vec![value],
        })
        .collect()
}

fn find<'a>(objects: &'a mut [Value], kind: &str) -> &'a mut Value {
    objects.iter_mut().find(|object| object["kind"] == kind).unwrap()
}

/// The newest manifest, with the values of the lab in its Secret and its ConfigMap.
fn manifest(lab: &Lab, directory: &Path, server: &str) -> Vec<Value> {
    let mut objects = objects(lab, &upstream::manager_manifest(directory).unwrap());
    let (user, password) = LOGIN;
    let secret = find(&mut objects, "Secret");
    secret["stringData"] = json!({
        format!("{server}.username"): user,
        format!("{server}.password"): password,
    });
    let text = &mut find(&mut objects, "ConfigMap")["data"]["vsphere.conf"];
    // The example's second vCenter is left out; its user and password, which nobody uses, stay in the first.
    let example = text.as_str().unwrap();
    let second = example.find("  could-be-a-tenant-label:").unwrap();
    let labels = example.find("# labels for regions and zones").unwrap();
    let filled = format!("{}{}", &example[..second], &example[labels..]);
    let filled =
        filled.replace("10.0.0.1", server).replace("hrwest", "dc-1").replace("hreast", "dc-2");
    *text = json!(filled);
    find(&mut objects, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!(IMAGE);
    objects
}

/// What the chart renders to with the values that its users give.
fn chart(lab: &Lab, directory: &Path, server: &str) -> Vec<Value> {
    let (image, tag) = IMAGE.rsplit_once(':').unwrap();
    let (user, password) = LOGIN;
    let values = json!({
        "config": {
            "enabled": true, "vcenter": server, "username": user, "password": password,
            "datacenter": "dc-1", "region": "k8s-region", "zone": "k8s-zone",
        },
        "daemonset": {"image": image, "tag": tag},
    });
    let mut command = Command::new(components::binary("chart").unwrap());
    command.args(["vsphere-cpi", NAMESPACE]).arg(directory.join("charts/vsphere-cpi"));
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(values.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let file = lab.control_plane().world().dir().join("chart.yaml");
    fs::write(&file, output.stdout).unwrap();
    objects(lab, &file)
}

async fn are_initialised(lab: &Lab) {
    let nodes: Api<Node> = Api::all(lab.client());
    for (name, uuid) in ["node-1", "node-2"].into_iter().zip(UUIDS) {
        let node = until(&format!("{name} is initialised"), BOUND, || async {
            let node = nodes.get(name).await?;
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            let seen = format!("{:?} {conditions:?}", node.spec);
            Ok(if is_initialised(&node) { Wait::Done(node) } else { Wait::NotYet(seen) })
        })
        .await
        .unwrap_or_else(|error| panic!("{error:#}\n{}", log(lab)));
        assert_eq!(provider_id(&node), Some(format!("vsphere://{uuid}").as_str()));
        assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
    }
}

/// The end of the manager's log.
fn log(lab: &Lab) -> String {
    let mut kubectl = lab.control_plane().kubectl().unwrap();
    let selected = ["-l", "component=cloud-controller-manager", "--tail=50"];
    let text = lab::run(kubectl.args(["logs", "-n", NAMESPACE]).args(selected));
    text.unwrap_or_else(|error| error.to_string())
}

/// What the account was refused.
fn refused(lab: &Lab) -> Vec<lab::audit::Request> {
    let account = format!("system:serviceaccount:{NAMESPACE}:cloud-controller-manager");
    let mut requests = lab.control_plane().audit().unwrap();
    requests.retain(|request| request.user == account && request.code == 403);
    requests
}

/// A lab whose Nodes wait for a manager, the address of its vCenter, and the Go manager's files.
async fn start() -> (Lab, String, PathBuf) {
    let spec = Spec { cloud_controller: CloudController::Expected, ..Spec::with_vcenter() };
    let lab = Lab::start(&spec).await.unwrap();
    load_image(&lab).await;
    let nodes: Api<Node> = Api::all(lab.client());
    let role = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}});
    nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(role)).await.unwrap();
    let (server, port) = server_of(lab.vcenter().unwrap().url_for_pods());
    assert_eq!(port, 443, "both configurations have the usual port");
    (lab, server, upstream::module(upstream::MANAGER).unwrap())
}

#[tokio::test]
async fn the_go_managers_manifest_works_as_it_is_with_only_our_image() {
    let (lab, server, directory) = start().await;
    lab.control_plane().apply(&manifest(&lab, &directory, &server)).unwrap();
    are_initialised(&lab).await;
    assert_eq!(refused(&lab), [], "its roles suffice");
    let failed = lab.vcenter().unwrap().control().failed_logins().await.unwrap();
    assert_eq!(failed, [], "the example's user in the file is not tried");
}

#[tokio::test]
async fn the_go_managers_chart_works_with_its_own_values_and_our_image() {
    let (lab, server, directory) = start().await;
    lab.control_plane().apply(&chart(&lab, &directory, &server)).unwrap();
    are_initialised(&lab).await;
    assert_eq!(refused(&lab), [], "its roles suffice");
}
