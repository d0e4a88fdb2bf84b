//! The mistakes of a first hour: each leads to its remedy, from the pod's log or from the Node alone.

use std::process::Command;

use crate::world::{MANAGER, Program, World, is_initialised, label, vsphere_condition};

fn refused(flags: &[&str]) -> String {
    let (status, text) = Program::start(MANAGER, flags, &[]).until_ended();
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

#[test]
fn without_a_configuration_the_flag_is_named() {
    assert!(refused(&[]).contains("--cloud-config <PATH>"));
    let text = refused(&["--cloud-config=/nowhere/vsphere.conf"]);
    assert!(text.contains("/nowhere/vsphere.conf cannot be used: it does not exist"), "{text}");
}

#[test]
fn a_driver_that_does_not_exist_is_answered_with_those_that_do() {
    let output = Command::new(env!("CARGO_BIN_EXE_vsphere-drivers")).arg("csy").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("there is no driver csy"), "{text}");
    assert!(text.contains("vsphere-cloud-controller-manager"), "{text}");
    assert!(text.contains("vsphere-csi"), "{text}");
}

#[test]
fn version_and_help_are_no_errors() {
    let mut program = Program::start(MANAGER, &["--version"], &[]);
    let (status, text) = program.until_ended();
    assert!(status.success());
    assert_eq!(text, format!("vsphere-cloud-controller-manager {}\n", env!("CARGO_PKG_VERSION")));
    let (status, text) = Program::start(MANAGER, &["--help"], &[]).until_ended();
    assert!(status.success());
    assert!(text.contains("--zone-policy <POLICY>"), "{text}");
}

#[tokio::test]
async fn a_wrong_indent_is_found_with_line_and_key() {
    let world = World::start().await;
    let text = world.configuration("").replace("vcenter:\n  east:", "  vcenter:\n    east:");
    world.write("vsphere.conf", &text);
    let (status, output) = world.run(&["--leader-elect=false"]).until_ended();
    assert_eq!(status.code(), Some(1), "{output}");
    assert!(output.contains("vsphere.conf:6:3"), "{output}");
    assert!(output.contains("vcenter"), "{output}");
}

#[tokio::test]
async fn a_wrong_password_is_told_by_the_node_that_waits() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration("").replace("Lab-cpi-1!", "Lab-cpi-2!"));
    let mut program = world.run(&["--leader-elect=false"]);
    let line = program.until_printed("vCenter is unavailable");
    assert!(line.contains("the user name or the password is wrong"), "{line}");
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains("east") && message.contains("the password is wrong"), "{message}");
    assert!(message.contains("correct the credentials in the configuration"), "{message}");
    assert!(!message.contains("Lab-cpi-2!"), "{message}");
    program.stop();
}

#[tokio::test]
async fn a_datacenter_that_does_not_exist_is_named() {
    let world = World::start().await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration("    datacenters: [dc-one]\n"));
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "VCenterUnavailable").await;
    assert!(message.contains("does not show the datacenter \"dc-one\""), "{message}");
    assert!(message.contains("dc-1"), "those that exist are named: {message}");
    program.stop();
}

#[tokio::test]
async fn zones_without_tags_leave_a_node_that_works_and_says_so() {
    let world = World::start().await;
    world.register("node-1").await;
    let labels = "labels:\n  zone: k8s-zone\n  region: no-such-category\n";
    world.write("vsphere.conf", &world.configuration(labels));
    let mut program = world.run(&["--leader-elect=false"]);
    let node = world.until("node-1", "initialised", is_initialised).await;
    assert_eq!(label(&node, "topology.kubernetes.io/zone"), Some("zone-1"));
    let message = world.until_reason("node-1", "TopologyIncomplete").await;
    assert!(message.contains("no-such-category"), "{message}");
    program.stop();
}

#[tokio::test]
async fn a_user_without_privileges_is_told_which_one_is_missing() {
    let world = World::start().await;
    world.register("node-1").await;
    let text =
        world.configuration("").replace("cpi@", "nobody@").replace("Lab-cpi-1!", "Lab-nobody-1!");
    world.write("vsphere.conf", &text);
    let mut program = world.run(&["--leader-elect=false"]);
    let reported = |node: &_| !vsphere_condition(node).1.is_empty();
    let node = world.until("node-1", "a condition", reported).await;
    let (reason, message) = vsphere_condition(&node);
    assert!(
        message.contains("grant the user a role with the privilege System."),
        "{reason}: {message}"
    );
    program.stop();
}

#[tokio::test]
async fn a_guest_without_tools_is_told_by_the_node() {
    let guest = "guest: {host_name: node-1}";
    let silent = "guest: {host_name: node-1, no_tools: true}";
    let world = World::start_with(|description| description.replace(guest, silent)).await;
    world.register("node-1").await;
    world.write("vsphere.conf", &world.configuration(""));
    let mut program = world.run(&["--leader-elect=false"]);
    let message = world.until_reason("node-1", "ToolsNotRunning").await;
    assert!(message.contains("VMware Tools"), "{message}");
    program.stop();
}
