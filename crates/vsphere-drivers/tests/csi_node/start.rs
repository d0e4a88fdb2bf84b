//! How the driver is started, and what it does then.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use csi::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, ProbeRequest,
    ProbeResponse,
};
use lab::{Wait, until};
use rustix::process::Signal;

use crate::{
    driver::{NAME, Place},
    process::{BOUND, Program},
};

#[tokio::test]
async fn started_as_upstreams_daemonset_does_it_serves_what_a_registrar_calls() {
    let place = Place::new();
    let mut program = place.start(&[]);
    let line = program.until_printed("flags and variables without effect");
    assert!(line.contains("--fss-name --fss-namespace"), "{line}");
    // What the external registrar and the external liveness probe call.
    let mut client = place.connect("csi/csi.sock").await;
    let request = GetPluginInfoRequest {};
    let info: GetPluginInfoResponse =
        client.call("/csi.v1.Identity/GetPluginInfo", request).await.unwrap();
    assert_eq!(info.name, "csi.vsphere.vmware.com");
    let ready: ProbeResponse =
        client.call("/csi.v1.Identity/Probe", ProbeRequest {}).await.unwrap();
    assert_eq!(ready.ready, Some(true));
    let plugin: GetPluginCapabilitiesResponse = client
        .call("/csi.v1.Identity/GetPluginCapabilities", GetPluginCapabilitiesRequest {})
        .await
        .unwrap();
    assert_eq!(plugin.capabilities.len(), 2);
    let node: NodeGetCapabilitiesResponse = client
        .call("/csi.v1.Node/NodeGetCapabilities", NodeGetCapabilitiesRequest {})
        .await
        .unwrap();
    assert_eq!(node.capabilities.len(), 5);
    // Nothing registers it, and nothing serves its health.
    assert!(program.printed("plain HTTP").is_empty());
    assert_eq!(place.files().len(), 4, "{:?}", place.files());
    program.stop();
    assert!(!place.socket().exists());
}

#[test]
fn a_wrong_environment_is_refused_with_the_remedy() {
    let refused = |variables: &[(&str, &str)]| {
        let (status, text) = Program::start(NAME, &[], variables).until_ended();
        assert_eq!(status.code(), Some(1), "{text}");
        text
    };
    let mode = ("X_CSI_MODE", "node");
    assert!(refused(&[mode]).contains("CSI_ENDPOINT is missing"));
    let text = refused(&[("CSI_ENDPOINT", "unix:///nowhere/csi.sock"), mode]);
    assert!(
        text.contains("cannot serve at /nowhere/csi.sock: /nowhere is not a directory"),
        "{text}"
    );
}

#[test]
fn a_pod_of_the_driver_with_the_managers_image_learns_the_right_one() {
    let manager = "vsphere-cloud-controller-manager";
    let flags = ["--fss-name=internal-feature-states.csi.vsphere.vmware.com"];
    let (status, text) = Program::start(manager, &flags, &[("X_CSI_MODE", "node")]).until_ended();
    assert_eq!(status.code(), Some(1), "{text}");
    assert!(text.contains(lab::image::GO_DRIVER), "{text}");
}

#[test]
fn version_and_help_are_no_errors() {
    let (status, text) = Program::start(NAME, &["--version"], &[]).until_ended();
    assert!(status.success());
    assert_eq!(text, format!("vsphere-csi {}\n", env!("CARGO_PKG_VERSION")));
    let (status, text) = Program::start(NAME, &["--help"], &[]).until_ended();
    assert!(status.success() && text.contains("CSI_ENDPOINT"), "{text}");
}

#[tokio::test]
async fn a_process_that_is_killed_leaves_a_socket_that_the_next_one_replaces() {
    let place = Place::new();
    let mut first = place.start(&[]);
    place.connect("csi/csi.sock").await;
    let (status, text) = place.start(&[]).until_ended();
    assert_eq!(status.code(), Some(1));
    assert!(text.contains("another process serves there"), "{text}");
    first.signal(Signal::KILL);
    first.until_ended();
    assert!(place.socket().exists());
    let mut second = place.start(&[]);
    second.until_printed("stale socket removed");
    place.connect("csi/csi.sock").await;
    second.stop();
}

/// The status line of a response.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Probes as the container of a node does.
fn probe(place: &Place) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_vsphere-drivers"));
    command.args(["vsphere-csi", "--probe"]).env("CSI_ENDPOINT", place.endpoint());
    command.env("X_CSI_MODE", "node").output().unwrap()
}

#[tokio::test]
async fn a_probe_by_command_is_answered_at_the_socket() {
    let place = Place::new();
    let mut program = place.start(&[]);
    place.connect("csi/csi.sock").await;
    let answered = probe(&place);
    assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
    // A process that is stopped takes connections, and does not answer.
    program.signal(Signal::STOP);
    let hung = probe(&place);
    let text = String::from_utf8(hung.stderr).unwrap();
    assert!(!hung.status.success() && text.contains("no answer at the socket"), "{text}");
    program.signal(Signal::CONT);
    program.stop();
    let gone = probe(&place);
    let text = String::from_utf8(gone.stderr).unwrap();
    assert!(!gone.status.success() && text.contains("could not connect to the socket"), "{text}");
}

#[tokio::test]
async fn health_is_that_of_the_own_socket() {
    let place = Place::new();
    let mut program =
        place.start(&["--health-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0"]);
    let address = |program: &mut Program, part: &str| {
        let line = program.until_printed(part);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        line["address"].as_str().unwrap().to_owned()
    };
    let health = address(&mut program, "\"health\":true");
    let metrics = address(&mut program, "\"metrics\":true");
    let answers = async |path: &str, status: &str| {
        let waited = until(status, BOUND, || async {
            let text = get(&health, path);
            Ok(if text.contains(status) { Wait::Done(()) } else { Wait::NotYet(text) })
        });
        waited.await.unwrap();
    };
    answers("/healthz", "200 OK").await;
    answers("/metrics", "404").await;
    let text = get(&metrics, "/metrics");
    assert!(text.contains("process_resident_memory_bytes"), "{text}");
    // Nobody can call any more: only a restart helps.
    std::fs::remove_file(place.socket()).unwrap();
    answers("/healthz", "500").await;
    program.stop();
}
