//! Configurations, Secrets and authorities that change while the program runs.

use std::fs;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Secret};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use crate::world::{World, is_initialised, label, vsphere_condition};

#[tokio::test]
async fn a_configuration_that_becomes_wrong_is_refused_and_told_and_the_old_one_works_on() {
    let world = World::start().await;
    world.write("vsphere.conf", &world.configuration(""));
    let mut program = world.run(&["--leader-elect=false"]);
    program.until_printed("watching vCenter");
    world.write(
        "vsphere.conf",
        &world.configuration("nodes:\n  internalNetworkSubnetCidr: 10.0.0/8\n"),
    );
    let message = world.event("ConfigRefused").await;
    assert!(message.contains("internalNetworkSubnetCidr") && message.contains(":10:"), "{message}");
    program.until_printed("the last good value stays in force");
    world.register("node-1").await;
    world.until("node-1", "initialised", is_initialised).await;

    let zones = "labels: {zone: k8s-zone, region: k8s-region}\n";
    world.write("vsphere.conf", &world.configuration(zones));
    let message = world.event("ConfigReloaded").await;
    assert!(message.contains("without a restart"), "{message}");
    program.until_printed("watching vCenter");
    world.nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    world.register("node-1").await;
    let zoned = |node: &_| label(node, "topology.kubernetes.io/zone") == Some("zone-1");
    world.until("node-1", "its zone", zoned).await;
    program.stop();
    assert_eq!(world.sessions().await, 0);
}

#[tokio::test]
async fn a_rotated_secret_is_used_without_a_restart_and_a_wrong_one_locks_nobody_out() {
    let world = World::start().await;
    world.register("node-1").await;
    let (host, _) = world.server();
    let text = world
        .configuration("")
        .replace("user: cpi@vsphere.local", "secretName: vsphere")
        .replace("password: Lab-cpi-1!", "secretNamespace: kube-system");
    world.write("vsphere.conf", &text);
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains("the Secret kube-system/vsphere"), "{message}");
    assert!(message.contains("does not exist"), "{message}");
    let secrets: Api<Secret> = Api::namespaced(world.plane.client(), "kube-system");
    let secret = |entries| -> Secret {
        let object = json!({"metadata": {"name": "vsphere"}, "stringData": entries});
        serde_json::from_value(object).unwrap()
    };
    let (user, password) = (format!("{host}.username"), format!("{host}.password"));
    let wrong = secret(json!({user.as_str(): "cpi@vsphere.local", "other.password": "x"}));
    secrets.create(&PostParams::default(), &wrong).await.unwrap();
    let reported = |node: &_| vsphere_condition(node).1.contains(&password);
    world.until("node-1", "reported which key is missing", reported).await;
    let mistyped =
        secret(json!({user.as_str(): "cpi@vsphere.local", password.as_str(): "Lab-cpi"}));
    secrets.delete("vsphere", &DeleteParams::default()).await.unwrap();
    secrets.create(&PostParams::default(), &mistyped).await.unwrap();
    let reported = |node: &_| vsphere_condition(node).1.contains("the password is wrong");
    world.until("node-1", "reported that the password is wrong", reported).await;
    let right = secret(json!({user: "cpi@vsphere.local", password: "Lab-cpi-1!\n"}));
    secrets.delete("vsphere", &DeleteParams::default()).await.unwrap();
    secrets.create(&PostParams::default(), &right).await.unwrap();
    world.until("node-1", "initialised", is_initialised).await;
    program.stop();
    let failed = world.vcenter.control().failed_logins().await.unwrap();
    assert!((1..=3).contains(&failed.len()), "{failed:#?}");
}

/// As the example in the Go manager's manifest has it: nobody ever replaces the user in the file.
#[tokio::test]
async fn a_start_with_a_secret_and_an_example_user_in_the_file_fails_no_login() {
    let world = World::start().await;
    world.register("node-1").await;
    let (host, _) = world.server();
    let text = world
        .configuration(
            "    user: use-your-vcenter-user-here\n    password: use-your-vcenter-password-here\n",
        )
        .replace("user: cpi@vsphere.local", "secretName: vsphere")
        .replace("password: Lab-cpi-1!", "secretNamespace: kube-system");
    world.write("vsphere.conf", &text);
    let secrets: Api<Secret> = Api::namespaced(world.plane.client(), "kube-system");
    let entries = json!({format!("{host}.username"): "cpi@vsphere.local", format!("{host}.password"): "Lab-cpi-1!"});
    let object = json!({"metadata": {"name": "vsphere"}, "stringData": entries});
    let secret = serde_json::from_value(object).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let mut program = world.run(&["--leader-elect=false"]);
    world.until("node-1", "initialised", is_initialised).await;
    program.stop();
    assert_eq!(world.vcenter.control().failed_logins().await.unwrap(), []);
}

#[tokio::test]
async fn credentials_in_a_directory_are_followed() {
    let world = World::start().await;
    world.register("node-1").await;
    let (host, _) = world.server();
    let directory = world.path("secrets");
    let text = world
        .configuration("")
        .replace("  user: cpi@vsphere.local\n", "")
        .replace("password: Lab-cpi-1!", &format!("secretsDirectory: {}", directory.display()));
    world.write("vsphere.conf", &text);
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains("does not exist"), "{message}");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join(format!("{host}.username")), "cpi@vsphere.local\n").unwrap();
    fs::write(directory.join(format!("{host}.password")), "Lab-cpi-1!\n").unwrap();
    world.until("node-1", "initialised", is_initialised).await;
    program.stop();
}

#[tokio::test]
async fn a_new_file_of_authorities_is_used_without_a_restart() {
    let world = World::start().await;
    world.register("node-1").await;
    let good = fs::read_to_string(world.vcenter.authority()).unwrap();
    let file = world.write("ca.pem", &another_authority(&world));
    let authority = world.vcenter.authority().display().to_string();
    let text = world.configuration("").replace(&authority, &file.display().to_string());
    world.write("vsphere.conf", &text);
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains("certificate"), "{message}");
    world.write("ca.pem", &good);
    world.until("node-1", "initialised", is_initialised).await;
    program.stop();
}

#[tokio::test]
async fn a_file_of_authorities_may_come_later() {
    let world = World::start().await;
    world.register("node-1").await;
    let authority = world.vcenter.authority().display().to_string();
    let file = world.path("ca.pem").display().to_string();
    world.write("vsphere.conf", &world.configuration("").replace(&authority, &file));
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains(&file), "{message}");
    world.write("ca.pem", &fs::read_to_string(&authority).unwrap());
    world.until("node-1", "initialised", is_initialised).await;
    program.stop();
}

#[tokio::test]
async fn what_would_be_done_is_printed_and_not_done() {
    let world = World::start().await;
    world.register("node-1").await;
    let before = world.nodes.get("node-1").await.unwrap();
    world.write("vsphere.conf", &world.configuration(""));
    let mut program = world.run(&["--dry-run"]);
    let line = program.until_printed("patch node node-1");
    assert!(line.contains("vsphere://"), "{line}");
    program.stop();
    assert_eq!(before, world.nodes.get("node-1").await.unwrap());
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), "kube-system");
    let lease = leases.get_opt("cloud-controller-manager").await.unwrap();
    assert_eq!(lease, None, "others may lead meanwhile");
}

/// The certificate that vouches for the API server.
fn another_authority(world: &World) -> String {
    let mut kubectl = world.plane.kubectl().unwrap();
    kubectl.args(["config", "view", "--raw", "-o"]);
    kubectl.arg("jsonpath={.clusters[0].cluster.certificate-authority}");
    let path = lab::run(&mut kubectl).unwrap();
    fs::read_to_string(path.trim()).unwrap()
}
