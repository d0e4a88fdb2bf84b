//! What kubelets and Prometheus get from the program, and what its flags change.

use hyper::http::Request;
use kube::Client;
use lab::{Wait, until};
use serde_json::json;

use crate::world::{BOUND, UNINITIALIZED, World, is_initialised, label};

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
    let ready = until("ready", BOUND, || async {
        Ok(match get(&client, "/readyz?verbose", "").await {
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
    let text = get(&client, "/metrics", &scraper(&world).await).await.unwrap();
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
        "--node-labels=team=storage",
        "--leader_elect=false",
    ]);
    let line = program.says("no effect");
    assert!(line.contains("--kube-api-qps") && !line.contains("--v"), "{line}");
    let node = world.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&node, "team"), Some("storage"));
    program.stop();
}

#[tokio::test]
async fn a_controller_that_is_switched_off_does_nothing() {
    let world = World::start().await;
    world.register("node-1").await;
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
    let node = world.nodes.get("node-1").await.unwrap();
    let taints = node.spec.unwrap().taints.unwrap();
    assert_eq!(taints[0].key, UNINITIALIZED);
    program.stop();
}
