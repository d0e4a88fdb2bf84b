//! The Go driver's own manifest with our image, and then ours over it, as users come to this driver.
//!
//! The manifest is read from Go's module cache; `lab/upstream` pins the version. What cannot be had here is taken out
//! and printed: sidecars of which no image exists here, and with the liveness probe's the probes that it answers. The
//! provisioner and the resizer are those that labs build, of other versions. No image can be pulled.
//!
//! Without a registrar no kubelet knows the driver, and without an attacher nobody attaches: the test calls the driver's
//! sockets in their place.

use std::{
    io::{self, Write as _},
    os::unix::fs::symlink,
    path::Path,
};

use csi::{
    client::Client,
    proto::{
        ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
        ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, NodeGetInfoRequest,
        NodeGetInfoResponse, NodePublishVolumeRequest, NodePublishVolumeResponse,
        NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest,
        NodeUnpublishVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
        VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use k8s_openapi::api::{core::v1::Pod, storage::v1::CSINode};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use lab::{
    Lab, Node, VCenterSpec, Wait,
    audit::Request,
    csi_driver::{self, NAMESPACE},
    image, until, upstream,
};
use prost::Message;
use serde_json::{Value, json};

use super::{
    classes, spec, stateful,
    tenant::{BOUND, Tenant, claim, pod},
};
use crate::{
    csi_lab::{archive, install},
    node_files::outside,
};

/// Containers of the manifest whose images exist nowhere here.
const ABSENT: [&str; 3] = ["csi-attacher", "liveness-probe", "node-driver-registrar"];
const SOCKET: &str = "/var/lib/kubelet/plugins/csi.vsphere.vmware.com/csi.sock";
/// Where the test has the volume mounted, in the part of the node that the driver's pod shares.
const PLACE: &str = "/var/lib/kubelet/go-manifest";

/// The manifest, with our image in the containers of driver and syncer.
fn objects() -> Vec<Value> {
    let mut objects = upstream::csi_objects().unwrap();
    // No node here has Windows.
    let is_meant = |object: &&mut Value| object["metadata"]["name"] != "vsphere-csi-node-windows";
    for object in objects.iter_mut().filter(is_meant) {
        let containers = object.pointer_mut("/spec/template/spec/containers");
        let Some(containers) = containers.and_then(Value::as_array_mut) else { continue };
        for container in containers.iter().filter(|one| is_absent(one)) {
            print_line(&format!("left out: {} ({})", container["name"], container["image"]));
        }
        containers.retain(|container| !is_absent(container));
        containers.iter_mut().for_each(fill_in);
    }
    objects
}

/// Past the capture of tests, which shows only what fails.
fn print_line(text: &str) {
    writeln!(io::stdout(), "the Go driver's manifest: {text}").unwrap();
}

fn is_absent(container: &Value) -> bool {
    ABSENT.iter().any(|name| container["name"] == *name)
}

fn fill_in(container: &mut Value) {
    let name = container["name"].as_str().unwrap().to_owned();
    let image = match name.as_str() {
        "csi-provisioner" => image::CSI_PROVISIONER,
        "csi-resizer" => image::CSI_RESIZER,
        "csi-snapshotter" => image::CSI_SNAPSHOTTER,
        _ => image::GO_DRIVER,
    };
    print_line(&format!("{name}: {image} in place of {}", container["image"]));
    container["image"] = json!(image);
    container["imagePullPolicy"] = json!("IfNotPresent");
    container.as_object_mut().unwrap().remove("livenessProbe");
}

/// The pods with this label whose driver's container runs.
async fn running(lab: &Lab, app: &str, count: usize) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(lab.client(), NAMESPACE);
    let labelled = ListParams::default().labels(&format!("app={app}"));
    let runs = |pod: &Pod| {
        let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let driver = status.and_then(|all| all.iter().find(|one| one.name == app));
        driver.is_some_and(|driver| driver.ready && driver.restart_count == 0)
    };
    let driver = Tenant::of(lab, NAMESPACE);
    driver
        .until(&format!("{count} containers {app} run"), || async {
            let mut all = pods.list(&labelled).await?.items;
            let seen = all.iter().map(|pod| format!("{:?}\n", pod.status)).collect();
            all.retain(runs);
            Ok(if all.len() == count { Wait::Done(all) } else { Wait::NotYet(seen) })
        })
        .await
}

fn node_named<'a>(lab: &'a Lab, name: &str) -> &'a Node {
    lab.nodes().iter().find(|node| node.name() == name).unwrap()
}

/// A driver's socket on a node. The path of a socket must be short, so a link leads there.
struct Socket(Client);

impl Socket {
    async fn open(directory: &Path, name: &str, place: &Path) -> Self {
        let link = directory.join(name);
        symlink(place, &link).unwrap();
        // A container is ready a moment before its program listens.
        let client = until("the driver listens", BOUND, || async {
            Ok(match Client::connect(&link).await {
                Ok(client) => Wait::Done(client),
                Err(error) => Wait::NotYet(error.to_string()),
            })
        });
        Self(client.await.unwrap())
    }

    async fn of_controller(lab: &Lab, directory: &Path, pod: &Pod) -> Self {
        let uid = pod.metadata.uid.as_deref().unwrap();
        let volumes = format!("/var/lib/kubelet/pods/{uid}/volumes");
        let socket = format!("{volumes}/kubernetes.io~empty-dir/socket-dir/csi.sock");
        let node = node_named(lab, stateful::node_of(pod));
        Self::open(directory, "controller", &outside(node, &socket)).await
    }

    async fn call<Q, A>(&mut self, method: &'static str, request: Q) -> A
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        self.0.call(method, request).await.unwrap()
    }
}

/// Registers the driver of every node, as the registrar and the kubelet do.
async fn register(lab: &Lab, directory: &Path) {
    let all: Api<CSINode> = Api::all(lab.client());
    for node in lab.nodes() {
        let mut socket = Socket::open(directory, node.name(), &outside(node, SOCKET)).await;
        let info: NodeGetInfoResponse =
            socket.call("/csi.v1.Node/NodeGetInfo", NodeGetInfoRequest {}).await;
        assert_eq!(info.node_id, node.uuid());
        let driver = json!({
            "name": csi_driver::NAME,
            "nodeID": info.node_id,
            "allocatable": {"count": info.max_volumes_per_node},
        });
        let patch = Patch::Merge(json!({"spec": {"drivers": [driver]}}));
        all.patch(node.name(), &PatchParams::default(), &patch).await.unwrap();
    }
}

fn capability() -> Option<VolumeCapability> {
    Some(VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    })
}

/// Attaches and mounts a volume on a node as attacher and kubelet do, writes a note to it, and takes it away again.
async fn write_note(node: &Node, controller: &mut Socket, plugin: &mut Socket, volume: &str) {
    let (volume_id, node_id) = (volume.to_owned(), node.uuid().to_owned());
    let attach = ControllerPublishVolumeRequest {
        volume_id: volume_id.clone(),
        node_id: node_id.clone(),
        volume_capability: capability(),
        ..ControllerPublishVolumeRequest::default()
    };
    let attached: ControllerPublishVolumeResponse =
        controller.call("/csi.v1.Controller/ControllerPublishVolume", attach).await;
    let publish_context = attached.publish_context;
    let (staging, target) = (format!("{PLACE}/staging"), format!("{PLACE}/target"));
    node.run("mkdir", &["-p", &staging]).unwrap();
    let stage = NodeStageVolumeRequest {
        volume_id: volume_id.clone(),
        publish_context: publish_context.clone(),
        staging_target_path: staging.clone(),
        volume_capability: capability(),
        ..NodeStageVolumeRequest::default()
    };
    let _: NodeStageVolumeResponse = plugin.call("/csi.v1.Node/NodeStageVolume", stage).await;
    let publish = NodePublishVolumeRequest {
        volume_id: volume_id.clone(),
        publish_context,
        staging_target_path: staging.clone(),
        target_path: target.clone(),
        volume_capability: capability(),
        ..NodePublishVolumeRequest::default()
    };
    let _: NodePublishVolumeResponse = plugin.call("/csi.v1.Node/NodePublishVolume", publish).await;
    node.run("sh", &["-ec", &format!("echo early > {target}/note; sync")]).unwrap();

    let unpublish =
        NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: target };
    let _: NodeUnpublishVolumeResponse =
        plugin.call("/csi.v1.Node/NodeUnpublishVolume", unpublish).await;
    let unstage =
        NodeUnstageVolumeRequest { volume_id: volume_id.clone(), staging_target_path: staging };
    let _: NodeUnstageVolumeResponse = plugin.call("/csi.v1.Node/NodeUnstageVolume", unstage).await;
    let detach = ControllerUnpublishVolumeRequest {
        volume_id,
        node_id,
        ..ControllerUnpublishVolumeRequest::default()
    };
    let _: ControllerUnpublishVolumeResponse =
        controller.call("/csi.v1.Controller/ControllerUnpublishVolume", detach).await;
}

/// What the driver was refused, but for each node's limit of volumes: that is in the CSINode, which the Go driver's roles
/// do not let it use.
fn refused(lab: &Lab) -> Vec<Request> {
    let account = format!("system:serviceaccount:{NAMESPACE}:vsphere-csi-");
    let mut requests = lab.control_plane().audit().unwrap();
    requests.retain(|one| one.code == 403 && one.user.starts_with(&account));
    requests.retain(|one| one.agent == "vsphere-csi" && one.resource != "csinodes");
    requests
}

#[tokio::test]
async fn the_go_drivers_manifest_serves_with_our_image_and_ours_takes_over() {
    let lab = Lab::start(&spec(VCenterSpec::default())).await.unwrap();
    csi_driver::load_images(&lab, &archive(&lab)).await.unwrap();
    csi_driver::apply(&lab, &objects()).await.unwrap();
    // The Go driver makes it when it starts; where it ran, it is there.
    let mut records = csi_driver::manifests().unwrap();
    records.retain(|object| object["kind"] == "CustomResourceDefinition");
    lab.control_plane().apply(&records).unwrap();
    let mut all = classes();
    all.iter_mut().for_each(|class| class["volumeBindingMode"] = json!("Immediate"));
    lab.control_plane().apply(&all).unwrap();
    let sockets = tempfile::tempdir().unwrap();
    running(&lab, "vsphere-csi-node", 2).await;
    register(&lab, sockets.path()).await;
    let controllers = running(&lab, "vsphere-csi-controller", 2).await;

    let tenant = Tenant::new(&lab, "newcomer").await;
    tenant.claim(claim("data", "vsphere", "64Mi", "Filesystem")).await;
    let (_, handle) = tenant.volume("data").await;
    let mut controller = Socket::of_controller(&lab, sockets.path(), &controllers[0]).await;
    let node = node_named(&lab, "node-1");
    let mut plugin = Socket::open(sockets.path(), "plugin", &outside(node, SOCKET)).await;
    write_note(node, &mut controller, &mut plugin, &handle).await;
    assert_eq!(tenant.vms(&handle).await, Vec::<String>::new());
    assert_eq!(refused(&lab), [], "the Go driver's roles suffice");

    install(&lab).await;
    tenant.run(pod("user", "node-2", &["data"])).await;
    assert_eq!(tenant.shell("user", "cat /data/note").unwrap(), "early");
}
