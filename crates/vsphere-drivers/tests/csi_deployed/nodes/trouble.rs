//! What happens to clusters: a node's programs are killed, vCenter is down, a node's power fails.

use k8s_openapi::api::{
    apps::v1::StatefulSet,
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use lab::{
    Lab, VCenterSpec, Wait, csi_driver,
    vcenter::{HttpFault, HttpFaultKind, Power},
};
use serde_json::json;

use super::{
    classes, spec, stateful,
    tenant::{Tenant, claim, is_ready, pod},
};
use crate::csi_lab::deployed;

#[tokio::test]
async fn volumes_outlive_killed_programs_a_vcenter_that_is_down_and_a_node_without_power() {
    let mut lab = deployed(&spec(VCenterSpec::default())).await;
    lab.control_plane().apply(&classes()).unwrap();
    kubelet_and_plugin_are_killed(&mut lab).await;
    tokio::join!(
        a_pod_is_deleted_while_vcenter_is_down(&lab),
        a_plugin_that_hangs_is_restarted(&lab),
    );
    the_power_of_a_node_fails(&mut lab).await;
}

/// The driver's pod on a node.
async fn plugin(lab: &Lab, node: &str) -> Pod {
    let pods: Api<Pod> = Api::namespaced(lab.client(), csi_driver::NAMESPACE);
    let of_nodes = ListParams::default().labels("app=vsphere-csi-node");
    let all = pods.list(&of_nodes).await.unwrap().items;
    all.into_iter().find(|pod| stateful::node_of(pod) == node).unwrap()
}

fn restarts(pod: &Pod) -> i32 {
    pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].restart_count
}

/// Sends a signal to the first process of a pod with one container.
fn signal(node: &lab::Node, pod: &Pod, signal: &str) {
    let status = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    let container = status[0].container_id.as_deref().unwrap();
    let container = container.trim_start_matches("containerd://");
    let signal = format!("--signal={signal}");
    node.run("ctr", &["--namespace=k8s.io", "tasks", "kill", &signal, container]).unwrap();
}

/// Kills the kubelet and the driver's process of a node; the kernel keeps what they mounted.
async fn kill(lab: &mut Lab, name: &str) {
    let pod = plugin(lab, name).await;
    let node = lab.node_mut(name).unwrap();
    node.kill_kubelet();
    signal(node, &pod, "SIGKILL");
}

/// The kubelet's probe is a command in the container, which works without the pod network.
async fn a_plugin_that_hangs_is_restarted(lab: &Lab) {
    let before = plugin(lab, "node-1").await;
    signal(&lab.nodes()[0], &before, "SIGSTOP");
    let driver = Tenant::of(lab, csi_driver::NAMESPACE);
    let name = before.metadata.name.as_deref().unwrap();
    driver.until_event(name, &["Liveness probe failed", "no answer at the socket"]).await;
    let again = |pod: &Pod| is_ready(pod) && restarts(pod) > restarts(&before);
    driver.until_pod(name, "runs again", again).await;
}

async fn kubelet_and_plugin_are_killed(lab: &mut Lab) {
    let tenant = Tenant::new(lab, "killed").await;
    for name in ["kept", "leaving"] {
        tenant.claim(claim(name, "vsphere", "32Mi", "Filesystem")).await;
    }
    tokio::join!(
        tenant.run(pod("stays", "node-1", &["kept"])),
        tenant.run(pod("leaves", "node-1", &["leaving"])),
    );
    tenant.shell("stays", "echo before > /kept/note; sync").unwrap();
    let before = plugin(lab, "node-1").await;
    let stays = tenant.until_ready("stays").await.metadata.uid;
    kill(lab, "node-1").await;

    let mounts = lab.nodes()[0].run("cat", &["/proc/mounts"]).unwrap();
    assert!(mounts.contains("/kubernetes.io~csi/"), "the mounts are still there:\n{mounts}");
    // Nobody hears of it on the node until the kubelet is back.
    let tenant = Tenant::of(lab, "killed");
    tenant.api::<Pod>().delete("leaves", &DeleteParams::default()).await.unwrap();
    lab.node_mut("node-1").unwrap().restart_kubelet().unwrap();

    let tenant = Tenant::of(lab, "killed");
    tenant.until_gone::<Pod>("leaves").await;
    tenant.discard("leaving").await;
    let driver = Tenant::of(lab, csi_driver::NAMESPACE);
    let again = |pod: &Pod| is_ready(pod) && restarts(pod) > restarts(&before);
    let name = before.metadata.name.as_deref().unwrap();
    driver.until_pod(name, "runs again", again).await;

    // The pod was not even restarted, and reads and writes as before.
    assert_eq!(tenant.until_ready("stays").await.metadata.uid, stays);
    let script = "echo after >> /kept/note; sync; cat /kept/note";
    assert_eq!(tenant.shell("stays", script).unwrap(), "before\nafter");
    tenant.stop("stays").await;
    tenant.run(pod("moved", "node-2", &["kept"])).await;
    assert_eq!(tenant.shell("moved", "cat /kept/note").unwrap(), "before\nafter");
    tenant.stop("moved").await;
    tenant.discard("kept").await;
    let mounts = lab.nodes()[0].run("cat", &["/proc/mounts"]).unwrap();
    assert!(!mounts.contains("/kubernetes.io~csi/"), "mounts are left:\n{mounts}");
}

async fn a_pod_is_deleted_while_vcenter_is_down(lab: &Lab) {
    let tenant = Tenant::new(lab, "outage").await;
    let control = lab.vcenter().unwrap().control();
    tenant.claim(claim("data", "vsphere", "32Mi", "Filesystem")).await;
    tenant.run(pod("user", "node-2", &["data"])).await;
    let (volume, handle) = tenant.volume("data").await;
    let kind = HttpFaultKind::Status { status: 503 };
    let down = HttpFault { path: "/".to_owned(), method: None, kind, count: 0 };
    let rule = control.break_http(&down).await.unwrap();

    // Volumes that are mounted go on working, and are unmounted without vCenter.
    tenant.shell("user", "echo still > /data/note; sync").unwrap();
    tenant.stop("user").await;
    let claims = tenant.api::<PersistentVolumeClaim>();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    tenant.until_gone::<PersistentVolumeClaim>("data").await;
    tenant
        .until("the VolumeAttachment shows why it stays", || async {
            let found = tenant.attachment(&volume).await?.expect("it is not detached");
            let error = found.status.and_then(|status| status.detach_error?.message);
            let seen = error.unwrap_or_default();
            Ok(if seen.contains("503") { Wait::Done(()) } else { Wait::NotYet(seen) })
        })
        .await;
    assert_eq!(tenant.vms(&handle).await, ["node-2"], "nobody could detach it");
    let volumes: Api<PersistentVolume> = Api::all(lab.client());
    assert!(volumes.get_opt(&volume).await.unwrap().is_some(), "nobody could delete it");

    control.disarm_one(rule).await.unwrap();
    tenant.until_volume_detached(&volume, &handle).await;
    tenant.until_deleted(&volume, &handle).await;
}

async fn the_power_of_a_node_fails(lab: &mut Lab) {
    let tenant = Tenant::new(lab, "powerless").await;
    tenant.create::<StatefulSet>(stateful::set("db")).await;
    let pod = tenant.until_ready("db-0").await;
    let (lost, written) = (stateful::node_of(&pod).to_owned(), stateful::write(tenant));
    lab.cut_power(&lost).unwrap();
    lab.vcenter().unwrap().control().power(&lost, Power::Off).await.unwrap();

    let tenant = Tenant::of(lab, "powerless");
    let nodes: Api<Node> = Api::all(lab.client());
    tenant
        .until("the node is not ready", || async {
            let conditions = nodes.get(&lost).await?.status.and_then(|status| status.conditions);
            let mut all = conditions.unwrap_or_default().into_iter();
            let ready = all.find(|one| one.type_ == "Ready").map(|one| one.status);
            let is_lost = ready.as_deref() == Some("Unknown");
            Ok(if is_lost { Wait::Done(()) } else { Wait::NotYet(format!("{ready:?}")) })
        })
        .await;
    // What an administrator does who knows that the machine is off.
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "off"}]);
    let taints = json!({"spec": {"taints": taint}});
    nodes.patch(&lost, &PatchParams::default(), &Patch::Merge(&taints)).await.unwrap();
    let elsewhere = |pod: &Pod| is_ready(pod) && stateful::node_of(pod) != lost;
    tenant.until_pod("db-0", "runs on the other node", elsewhere).await;
    assert_eq!(stateful::read(tenant), written);
}
