//! csi-sanity over the controller's socket: what the CSI specification demands, in the words of its authors.

use std::{collections::BTreeMap, fs, path::Path};

use lab::{components, kubelet};
use serde_json::Value;
use tokio::process::Command;

use crate::world::{MIB, NODES, World, request};

/// What the driver does not advertise, and which specs skip themselves for that.
const NOT_ADVERTISED: [&str; 5] = [
    "ControllerModifyVolume not supported",
    "ControllerPublishVolume.readonly field not supported",
    "GroupControllerService not supported",
    "Modify Volume not supported",
    "Modify volume not supported",
];

/// csi-sanity waits until its connection changes its state, and for a minute in vain if it was ready before it first
/// looked. With one thread it always looks first.
pub(crate) const ONE_THREAD: (&str, &str) = ("GOMAXPROCS", "1");

/// How the specs of a run ended.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) passed: usize,
    pub(crate) failed: Vec<String>,
    /// By reason.
    pub(crate) skipped: BTreeMap<String, usize>,
    /// Specs that their authors have switched off.
    pub(crate) pending: usize,
}

impl Outcome {
    /// Reads the report of Ginkgo, which is the same whatever is printed.
    pub(crate) fn read(report: &Path, printed: &str) -> Self {
        let text = fs::read_to_string(report).unwrap_or_else(|_| panic!("{printed}"));
        let suites: Value = serde_json::from_str(&text).unwrap();
        let mut outcome = Self::default();
        for spec in suites.as_array().unwrap().iter().flat_map(|suite| {
            suite["SpecReports"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|one| one["LeafNodeType"] == "It")
        }) {
            let why = spec["Failure"]["Message"].as_str().unwrap_or_default().trim();
            match spec["State"].as_str().unwrap() {
                "passed" => outcome.passed += 1,
                // Without a reason: the run was not meant to have it.
                "skipped" if why.is_empty() => {}
                "pending" => outcome.pending += 1,
                "skipped" => *outcome.skipped.entry(why.to_owned()).or_default() += 1,
                state => outcome.failed.push(format!(
                    "{} {}: {state}: {why}",
                    spec["ContainerHierarchyTexts"], spec["LeafNodeText"]
                )),
            }
        }
        outcome
    }

    /// Fails unless all specs passed, but those for what is not advertised.
    pub(crate) fn check(&self, passed: usize, skipped: usize) {
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
        let unknown = |reason: &&String| !NOT_ADVERTISED.contains(&reason.as_str());
        assert_eq!(self.skipped.keys().find(unknown), None);
        let counts = (self.passed, self.skipped.values().sum::<usize>(), self.pending);
        assert_eq!(counts, (passed, skipped, 1), "passed, skipped, pending: {:#?}", self.skipped);
    }
}

#[tokio::test]
async fn the_controller_passes_csi_sanity() {
    // Larger controllers take more volumes than the driver reports, which one of the specs does not expect.
    let narrow = "release: 8.0U3\nassumptions: {WidePVSCSI: false}";
    let world = World::start_with(|usual| usual.replace("release: 8.0U3", narrow)).await;
    let nodes = kube::Api::all(world.plane.client());
    let id = format!("vsphere://{}", NODES[0]);
    kubelet::register(&nodes, "node-1", NODES[0], Some(&id)).await.unwrap();
    let controller = world.run(&[]).await;
    let node = world.run_node("node-1").await;
    controller.patiently("ready", async |to| to.create(request("first", 1)).await).await.unwrap();
    let report = world.path("report.json");
    let output = Command::new(components::binary("csi-sanity").unwrap())
        .env(ONE_THREAD.0, ONE_THREAD.1)
        .arg(format!("-csi.endpoint={}", world.path("node.sock").display()))
        .arg(format!("-csi.controllerendpoint={}", world.path("csi.sock").display()))
        .arg(format!("-csi.mountdir={}", world.path("mount").display()))
        .arg(format!("-csi.stagingdir={}", world.path("staging").display()))
        .arg(format!("-csi.testvolumesize={}", 64 * MIB))
        .arg(format!("-csi.testvolumeexpandsize={}", 128 * MIB))
        .args(["-csi.testnodevolumeattachlimit", "-ginkgo.no-color"])
        .args(["-ginkgo.focus", "Identity Service|Controller Server|GroupController"])
        .arg(format!("-ginkgo.json-report={}", report.display()))
        .output()
        .await
        .unwrap();
    Outcome::read(&report, &String::from_utf8_lossy(&output.stdout)).check(53, 15);
    drop(node);
    assert_eq!(world.volumes().await.len(), 1, "the suite left volumes behind");
}
