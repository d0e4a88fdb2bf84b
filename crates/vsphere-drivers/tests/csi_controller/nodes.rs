//! csi-sanity on a node, with the driver as its manifests deploy it and disks that are real. Needs root.

use std::{fs, os::unix::fs::symlink};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use lab::{Lab, Node, Spec, components, csi_driver::NAMESPACE};

use crate::{
    csi_lab::deployed,
    node_files::outside,
    sanity::{ONE_THREAD, Outcome},
    world::MIB,
};

/// A directory of the node that the plugin's pod shares with it.
const SHARED: &str = "/var/lib/kubelet/sanity";

/// A node with a pod of the controller, and the directory of the pod's socket as the node sees it.
async fn controller_of(lab: &Lab) -> (&Node, String) {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let of_controller = ListParams::default().labels("app=vsphere-csi-controller");
    let pod = pods.list(&of_controller).await.unwrap().items.remove(0);
    let name = pod.spec.unwrap().node_name.unwrap();
    let node = lab.nodes().iter().find(|node| node.name() == name).unwrap();
    let volumes = format!("/var/lib/kubelet/pods/{}/volumes", pod.metadata.uid.unwrap());
    (node, format!("{volumes}/kubernetes.io~empty-dir/socket-dir"))
}

/// Runs all specs with volumes of this access type.
fn sanity(node: &Node, access: &str) -> Outcome {
    let shared = outside(node, SHARED);
    let printed = node.run(
        "env",
        &[
            &format!("{}={}", ONE_THREAD.0, ONE_THREAD.1),
            &format!("{SHARED}/csi-sanity"),
            "-csi.endpoint=/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock",
            &format!("-csi.controllerendpoint={SHARED}/controller/csi.sock"),
            &format!("-csi.mountdir={SHARED}/mount-{access}"),
            &format!("-csi.stagingdir={SHARED}/staging-{access}"),
            &format!("-csi.testvolumeaccesstype={access}"),
            &format!("-csi.testvolumesize={}", 64 * MIB),
            &format!("-csi.testvolumeexpandsize={}", 128 * MIB),
            // Sixty disks at once are the business of the test without disks.
            "-ginkgo.skip=node max attach limit",
            "-ginkgo.no-color",
            &format!("-ginkgo.json-report={SHARED}/{access}.json"),
        ],
    );
    let printed = printed.unwrap_or_else(|error| format!("{error:#}"));
    Outcome::read(&shared.join(format!("{access}.json")), &printed)
}

#[tokio::test]
async fn the_deployed_driver_passes_csi_sanity_with_file_systems_and_with_block_devices() {
    let lab = deployed(&Spec::with_vcenter()).await;
    let (node, controller) = controller_of(&lab).await;
    let shared = outside(node, SHARED);
    fs::create_dir_all(&shared).unwrap();
    fs::copy(components::binary("csi-sanity").unwrap(), shared.join("csi-sanity")).unwrap();
    // The path of a socket must be short.
    symlink(controller, shared.join("controller")).unwrap();
    for access in ["mount", "block"] {
        sanity(node, access).check(75, 15);
    }
    let left = lab.vcenter().unwrap().control().state().await.unwrap().volumes;
    assert!(left.is_empty(), "the suite left volumes behind: {left:#?}");
    let mounts = node.run("cat", &["/proc/mounts"]).unwrap();
    assert!(!mounts.contains(SHARED), "the suite left mounts behind:\n{mounts}");
}
