//! What kubelets and Prometheus get from the program, and what its flags change.

use hyper::http::Request;
use kube::{
    Client,
    api::{Patch, PatchParams},
};
use lab::{Wait, until, vcenter::Power};
use serde_json::json;

use crate::world::{
    BOUND, SHUTDOWN, UNINITIALIZED, UUID, World, has_taint, is_initialised, label,
    vsphere_condition,
};

async fn get(client: &Client, path: &str, token: &str) -> Result<String, kube::Error> {
    let mut request = Request::get(path);
    if !token.is_empty() {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    client.request_text(request.body(Vec::new()).unwrap()).await
}

#[tokio::test]
async fn health_and_metrics_are_served_as_to_upstreams_users() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration(""));
    let (port, client) = world.admin();
    let mut program = world.run(&[&format!("--secure-port={port}"), "--bind-address=127.0.0.1"]);
    world.until("node-1", "initialised", is_initialised).await;
    let scraper = scraper(&world).await;
    let ready = until("ready", BOUND, || async {
        Ok(match get(&client, "/readyz?verbose", &scraper).await {
            Ok(text) if text.contains("[+]vcenter/east ok") => Wait::Done(text),
            other => Wait::NotYet(format!("{other:?}")),
        })
    });
    let text = ready.await.unwrap();
    for line in [
        "[+]vcenters ok: 1 of 1 answer",
        "[+]leaderElection ok: leading",
        "[+]cloud-node-controller ok",
    ] {
        assert!(text.contains(line), "{line}:\n{text}");
    }
    assert_eq!(get(&client, "/healthz", "").await.unwrap(), "ok");
    assert_eq!(get(&client, "/livez", "").await.unwrap(), "ok");
    assert!(get(&client, "/metrics", "").await.is_err(), "who asks must prove who it is");
    let text = get(&client, "/metrics", &scraper).await.unwrap();
    for name in [
        "node_controller_cloud_provider_taint_removal_delay_seconds_count 1",
        "node_controller_initial_node_sync_delay_seconds_bucket",
        "running_managed_controllers{name=\"cloud-node-controller\"",
        "leader_election_master_status{name=\"cloud-controller-manager\"} 1",
        "vsphere_ccm_vcenter_up{vcenter=\"east\"} 1",
        "vsphere_ccm_decisions_total{decision=\"initialise\"} 1",
        "vsphere_call_duration_seconds_bucket",
        "vsphere_open_sessions",
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
    ] {
        assert!(text.contains(name), "{name} is missing in:\n{text}");
    }
    let page = include_str!("../../../../docs/user/cloud-controller-manager.md");
    for name in text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()) {
        assert!(page.contains(&format!("`{name}")), "docs/user says nothing about {name}");
    }
    world.vcenter.control().restart(600_000).await.unwrap();
    until("not ready", BOUND, || async {
        Ok(match get(&client, "/readyz", "").await {
            Err(error) if format!("{error:?}").contains("vcenters failed") => Wait::Done(()),
            other => Wait::NotYet(format!("{other:?}")),
        })
    })
    .await
    .unwrap();
    assert_eq!(get(&client, "/livez", "").await.unwrap(), "ok", "a restart would not help");
    program.stop();
}

/// The token of an account that may read metrics.
async fn scraper(world: &World) -> String {
    let objects = json!([
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "scraper", "namespace": "default"}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "scraper"},
         "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
         "metadata": {"name": "scraper"},
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
         "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}]},
    ]);
    for object in objects.as_array().unwrap() {
        let path = world.write("object.json", &object.to_string());
        lab::run(world.plane.kubectl().unwrap().arg("create").arg("-f").arg(path)).unwrap();
    }
    let token = lab::run(world.plane.kubectl().unwrap().args(["create", "token", "scraper"]));
    token.unwrap().trim().to_owned()
}

#[tokio::test]
async fn upstreams_command_line_works_and_says_what_has_no_effect() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration(""));
    let mut program = world.run(&[
        "--cloud-provider=vsphere",
        "--v=2",
        "--controllers=*,-service,-route",
        "--kube-api-qps=1000",
        "--profiling=false",
        "--node-labels=team=storage",
        "--leader_elect=false",
    ]);
    let line = program.until_printed("flags without effect");
    assert!(line.contains("--profiling") && !line.contains("--kube-api-qps"), "{line}");
    let node = world.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&node, "team"), Some("storage"));
    program.stop();
}

/// Makes a Node look as if its kubelet had stopped reporting.
async fn stop_reporting(world: &World, name: &str) {
    let condition = json!([{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]);
    let patch = Patch::Strategic(json!({"status": {"conditions": condition}}));
    world.nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_switched_off_lifecycle_controller_taints_nothing_while_the_other_one_works() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration(""));
    let flags = ["--controllers=cloud-node", "--leader-elect=false", "--node-monitor-period=1s"];
    let mut program = world.run(&flags);
    world.until("node-1", "initialised", is_initialised).await;
    stop_reporting(&world, "node-1").await;
    world.vcenter.control().power("node-1", Power::Off).await.unwrap();
    world.until("node-1", "its VM is off", |node| vsphere_condition(node).0 == "PoweredOff").await;
    // Whatever the other controller does after that, it does after it saw that the VM is off.
    world.vcenter.control().power("node-1", Power::On).await.unwrap();
    let node =
        world.until("node-1", "its VM is on", |node| vsphere_condition(node).0 == "Synced").await;
    assert!(!has_taint(&node, SHUTDOWN), "{node:?}");
    program.stop();
}

#[tokio::test]
async fn a_controller_that_is_switched_off_does_nothing() {
    let world = World::start().await;
    world.register("node-1").await;
    let id = json!({"spec": {"providerID": format!("vsphere://{UUID}")}});
    world.nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(id)).await.unwrap();
    stop_reporting(&world, "node-1").await;
    world.vcenter.control().power("node-1", Power::Off).await.unwrap();
    world.write("vsphere.conf", &world.configuration(""));
    let (port, client) = world.admin();
    let port = format!("--secure-port={port}");
    let flags = ["--controllers=cloud-node-lifecycle", "--leader-elect=false", &port];
    let mut program = world.run(&flags);
    let known = until("the vCenter is known", BOUND, || async {
        Ok(match get(&client, "/readyz?verbose", "").await {
            Ok(text) if text.contains("[+]vcenter/east ok") => Wait::Done(text),
            other => Wait::NotYet(format!("{other:?}")),
        })
    });
    let text = known.await.unwrap();
    assert!(text.contains("[+]cloud-node-lifecycle-controller ok"), "{text}");
    assert!(!text.contains("cloud-node-controller"), "{text}");
    // The controller that runs has looked at the Node when it is tainted; the other one would have initialised it.
    let node = world.until("node-1", "shut down", |node| has_taint(node, SHUTDOWN)).await;
    assert!(has_taint(&node, UNINITIALIZED), "{node:?}");
    assert_eq!(vsphere_condition(&node), ("", ""), "{node:?}");
    program.stop();
}

#[tokio::test]
async fn a_normal_start_logs_no_warning_of_the_libraries_below() {
    let world = World::start().await;
    let (host, _) = world.server();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "vsphere", "namespace": "kube-system"},
        "stringData": {
            format!("{host}.username"): "cpi@vsphere.local",
            format!("{host}.password"): "Lab-cpi-1!",
        },
    });
    world.plane.apply(&[secret]).unwrap();
    world.register("node-1").await;
    let text = world
        .configuration("")
        .replace("user: cpi@vsphere.local", "secretName: vsphere")
        .replace("password: Lab-cpi-1!", "secretNamespace: kube-system");
    world.write("vsphere.conf", &text);
    let mut program = world.run(&[]);
    world.until("node-1", "initialised", is_initialised).await;
    program.signal(rustix::process::Signal::TERM);
    let (status, log) = program.until_ended();
    assert!(status.success(), "{log}");
    let loud = |line: &&str| line.contains(" WARN daemon") || line.contains(" ERROR ");
    assert_eq!(log.lines().filter(loud).collect::<Vec<_>>(), [""; 0]);
}
