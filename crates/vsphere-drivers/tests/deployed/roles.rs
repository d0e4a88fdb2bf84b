//! The roles give what the program needs and nothing else, by the API's own record of what was asked.

use ccm::manifests::{Manifests, Parameters, manifests};
use hyper::http::Request;
use kube::{Client, Config, config::AuthInfo};
use lab::{
    Wait,
    audit::{self, Grant},
    kubelet::{UNINITIALIZED, has_taint, is_initialised},
    until,
};
use serde_json::{Value, json};

use crate::{
    BOUND,
    cluster::{Cluster, Program},
};

#[tokio::test]
async fn every_right_of_the_account_is_used_and_none_is_missing() {
    let made = manifests(&Parameters::default()).unwrap();
    let cluster = Cluster::start(&made).await;
    let program = cluster.run().await;
    for number in [1, 2] {
        let name = cluster.register(number).await;
        cluster.until(&name, "initialised", is_initialised).await;
    }
    // The same Node again: its event is counted.
    cluster.forget("node-1").await;
    cluster.register(1).await;
    cluster.until("node-1", "initialised again", is_initialised).await;
    contend(&cluster).await;
    refuse_twice(&cluster).await;
    let metrics = answer(&cluster, "/metrics", &collector(&cluster).await).await.unwrap();
    assert!(metrics.contains("leader_election_master_status"), "{metrics}");
    cluster.vcenter.control().delete("node-1").await.unwrap();
    cluster.until_gone("node-1").await;
    program.stop().await;

    let requests = cluster.requests();
    let denied: Vec<_> = requests.iter().filter(|request| request.code == 403).collect();
    assert!(denied.is_empty(), "the roles lack {denied:#?}");
    let unused: Vec<Grant> = Grant::all(made.roles.rules())
        .into_iter()
        .filter(|grant| !requests.iter().any(|request| grant.allows(request)))
        .collect();
    assert!(unused.is_empty(), "the roles allow what nobody does: {unused:#?}\n{requests:#?}");
}

/// Registers a Node again and again while somebody else changes it, until the program was slower once and reads
/// it again.
async fn contend(cluster: &Cluster) {
    let reads = |request: &audit::Request| {
        (request.verb.as_str(), request.resource.as_str()) == ("get", "nodes")
    };
    let mut turn = 0;
    until("the program was slower than somebody else", BOUND, || {
        turn += 1;
        async move {
            cluster.forget("node-2").await;
            cluster.register(2).await;
            until("node-2: initialised", BOUND, || async {
                let node = cluster.touch("node-2").await;
                let seen = format!("{node:?}");
                Ok(if is_initialised(&node) { Wait::Done(()) } else { Wait::NotYet(seen) })
            })
            .await?;
            let found = cluster.requests().iter().any(reads);
            Ok(if found { Wait::Done(()) } else { Wait::NotYet(format!("{turn} turns")) })
        }
    })
    .await
    .unwrap();
}

/// Makes the same mistake twice in the configuration: its event is counted.
async fn refuse_twice(cluster: &Cluster) {
    let mistake = "vcenter: {lab: {port: many}}\n";
    let other = cluster.good_configuration().replace("k8s-region", "another-region");
    for (text, reason, count) in [
        (mistake, "ConfigRefused", 1),
        (&other, "ConfigReloaded", 1),
        (mistake, "ConfigRefused", 2),
    ] {
        cluster.configure(text);
        cluster.until_event_count(reason, count).await;
    }
}

/// The token of an account that may read metrics.
async fn collector(cluster: &Cluster) -> String {
    let name = json!({"name": "collector", "namespace": "default"});
    let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "collector"});
    let subject = json!([{"kind": "ServiceAccount", "name": "collector", "namespace": "default"}]);
    let object = |kind: &str, rest: Value| {
        let group = if kind == "ServiceAccount" { "v1" } else { "rbac.authorization.k8s.io/v1" };
        let mut object = json!({"apiVersion": group, "kind": kind, "metadata": name});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let objects = [
        object("ServiceAccount", json!({})),
        object("ClusterRole", json!({"rules": rules, "metadata": {"name": "collector"}})),
        object(
            "ClusterRoleBinding",
            json!({"roleRef": role, "subjects": subject, "metadata": {"name": "collector"}}),
        ),
    ];
    cluster.plane.apply(&objects).unwrap();
    let kubeconfig = cluster.plane.kubeconfig_of("default", "collector").await.unwrap();
    let read: Value = serde_json::from_slice(&std::fs::read(kubeconfig).unwrap()).unwrap();
    read["users"][0]["user"]["token"].as_str().unwrap().to_owned()
}

/// What the program serves at a path.
async fn answer(cluster: &Cluster, path: &str, token: &str) -> Result<String, String> {
    let place = format!("https://127.0.0.1:{}", cluster.port());
    let mut config = Config::new(place.parse().unwrap());
    config.accept_invalid_certs = true;
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    let client = Client::try_from(config).unwrap();
    let request = Request::get(path).body(Vec::new()).unwrap();
    client.request_text(request).await.map_err(|error| error.to_string())
}

/// The manifests without what they allow on a resource.
fn without(resource: &str) -> Manifests {
    let mut made = manifests(&Parameters::default()).unwrap();
    made.roles.without(resource);
    made
}

/// Runs the program without the right to a resource until the API refuses it; a Node waits for it meanwhile.
async fn refused(resource: &str) -> (Cluster, Program) {
    let cluster = Cluster::start(&without(resource)).await;
    let program = cluster.run().await;
    cluster.register(1).await;
    cluster
        .until_requested(&format!("{resource} is refused"), |request| {
            request.code == 403 && request.resource == resource
        })
        .await;
    (cluster, program)
}

#[tokio::test]
async fn a_manager_that_may_not_read_its_secret_says_so_and_initialises_no_node() {
    let (cluster, program) = refused("secrets").await;
    let token = collector(&cluster).await;
    until("readiness names the Secret", BOUND, || async {
        let output =
            answer(&cluster, "/readyz?verbose", &token).await.unwrap_or_else(|error| error);
        let names =
            output.contains("kube-system/vsphere-cloud-secret") && output.contains("forbidden");
        Ok(if names { Wait::Done(()) } else { Wait::NotYet(output) })
    })
    .await
    .unwrap();
    let node = cluster.nodes.get("node-1").await.unwrap();
    assert!(has_taint(&node, UNINITIALIZED), "{node:?}");
    program.stop().await;
}

#[tokio::test]
async fn a_manager_that_may_not_write_addresses_says_so_and_leaves_the_taint() {
    let (cluster, program) = refused("nodes/status").await;
    until("its log names the right that is missing", BOUND, || async {
        let output = program.log();
        let names = output.contains("nodes/status") && output.contains("forbidden");
        Ok(if names { Wait::Done(()) } else { Wait::NotYet(output) })
    })
    .await
    .unwrap();
    let node = cluster.nodes.get("node-1").await.unwrap();
    assert!(has_taint(&node, UNINITIALIZED), "{node:?}");
    program.stop().await;
}
