//! An API server, a vCenter, nodes that registered the driver, and the controller as its manifest starts it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Stdio},
    time::Duration,
};

use csi::{
    client::Client,
    manifests::{self, NAMESPACE, Parameters},
    proto::{
        CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
        ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
        ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse, CreateVolumeRequest,
        CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest,
        GetCapacityResponse, ListVolumesRequest, ListVolumesResponse, ProbeRequest, ProbeResponse,
        VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, until, vcenter::Description};
use serde_json::{Value, json, to_value};
use tonic::{Code, Status};

/// Generous: the machine may be busy with other things.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const NODES: [&str; 2] =
    ["4230b1a0-5eed-4000-8000-000000000001", "4230b1a0-5eed-4000-8000-000000000002"];
pub(crate) const MIB: u64 = 1 << 20;

pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
}

/// A controller that runs; dropping it kills it.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    client: Client,
}

/// How the program is started.
pub(crate) struct Start<'a> {
    /// The name of its socket; its log is named after it.
    pub(crate) socket: &'a str,
    pub(crate) mode: &'a str,
    pub(crate) node: &'a str,
    pub(crate) flags: &'a [&'a str],
    /// Another one than the administrator's.
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl<'a> Start<'a> {
    pub(crate) fn controller(socket: &'a str) -> Self {
        Self { socket, mode: "controller", node: "", flags: &[], kubeconfig: None }
    }
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(str::to_owned).await
    }

    /// With another vCenter than the default one.
    pub(crate) async fn start_with(edit: impl Fn(&str) -> String) -> Self {
        let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
        let description = Description::Text(edit(usual));
        let spec = VCenterSpec { description, ..VCenterSpec::default() };
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let world = Self { plane, vcenter };
        // By its name, as the link in the image calls it.
        symlink(env!("CARGO_BIN_EXE_vsphere-drivers"), world.path("vsphere-csi")).unwrap();
        let made = manifests::manifests(&Parameters::default()).unwrap();
        let records =
            [made.records, made.volume_infos, made.topologies].map(|one| to_value(one).unwrap());
        let objects = [vec![to_value(made.namespace).unwrap()], records.to_vec()].concat();
        world.plane.apply(&objects).unwrap();
        for (at, id) in (1..).zip(NODES) {
            world.register(&format!("node-{at}"), id);
        }
        world.write("csi-vsphere.conf", &world.configuration(""));
        world
    }

    /// Registers the driver of a node, as its kubelet does.
    pub(crate) fn register(&self, node: &str, id: &str) {
        let driver = json!({"name": csi::DRIVER, "nodeID": id, "topologyKeys": null});
        let object = json!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": node},
            "spec": {"drivers": [driver]},
        });
        self.plane.apply(&[object]).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.plane.world().dir().join(name)
    }

    /// A file of the world, swapped as a whole as kubelets do it.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, fresh) = (self.path(name), self.path("fresh"));
        fs::write(&fresh, text).unwrap();
        fs::rename(&fresh, &path).unwrap();
        path
    }

    /// The configuration that works; `more` is added to its global section.
    pub(crate) fn configuration(&self, more: &str) -> String {
        let (host, port) = self.address();
        format!(
            "[Global]\ncluster-id = \"lab\"\nca-file = \"{}\"\n{more}\n[VirtualCenter \"{host}\"]\n\
             user = \"csi@vsphere.local\"\npassword = \"Lab-csi-1!\"\nport = \"{port}\"\n",
            self.vcenter.authority().display()
        )
    }

    /// vCenter as the configuration names it.
    pub(crate) fn server(&self) -> String {
        self.address().0
    }

    pub(crate) fn port(&self) -> String {
        self.address().1
    }

    fn address(&self) -> (String, String) {
        let url = self.vcenter.url();
        let authority = url.trim_start_matches("https://").split('/').next().unwrap();
        let (host, port) = authority.rsplit_once(':').unwrap();
        (host.to_owned(), port.to_owned())
    }

    /// Starts the controller and waits until it serves.
    pub(crate) async fn run(&self, flags: &[&str]) -> Controller {
        self.serve(Start { flags, ..Start::controller("csi.sock") }).await
    }

    /// Starts the program as the plugin of a node that is registered, without its mounts.
    pub(crate) async fn run_node(&self, node: &str) -> Controller {
        let start = Start { mode: "node", node, ..Start::controller("node.sock") };
        self.serve(start).await
    }

    /// Starts the program and waits until it serves.
    pub(crate) async fn serve(&self, start: Start<'_>) -> Controller {
        let (socket, log) = (self.path(start.socket), self.path(&format!("{}.log", start.socket)));
        let output = fs::File::options().create(true).append(true).open(&log).unwrap();
        let usual = self.plane.kubeconfig().to_owned();
        let kubeconfig = start.kubeconfig.unwrap_or(usual);
        let mut command = lab::child(&self.path("vsphere-csi"));
        command
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            // The simulator carries out a call at once or never.
            .args(["--metrics-address=", "--settle=10"])
            .args(start.flags)
            .env("CSI_ENDPOINT", format!("unix://{}", socket.display()))
            .env("X_CSI_MODE", start.mode)
            .env("CSI_NAMESPACE", NAMESPACE)
            .env("NODE_NAME", start.node)
            .env("VSPHERE_CSI_CONFIG", self.path("csi-vsphere.conf"))
            .stdout(Stdio::null())
            .stderr(output);
        let mut child = command.spawn().unwrap();
        let client = until("the program serves", BOUND, || async {
            if let Ok(client) = Client::connect(&socket).await {
                return Ok(Wait::Done(client));
            }
            let printed = fs::read_to_string(&log).unwrap_or_default();
            Ok(Wait::NotYet(printed))
        });
        let Ok(client) = client.await else {
            child.kill().ok();
            panic!("the program does not serve:\n{}", fs::read_to_string(&log).unwrap());
        };
        Controller { child, log, client }
    }

    /// Waits until a rule that strikes once has struck.
    pub(crate) async fn until_struck(&self, rule: u64) {
        until("the rule struck", BOUND, || async {
            let rules = self.vcenter.control().state_as_json().await?["rules"].to_string();
            let armed = rules.contains(&format!("\"id\":{rule},"));
            Ok(if armed { Wait::NotYet(rules) } else { Wait::Done(()) })
        })
        .await
        .unwrap();
    }

    /// The datastores of all volumes.
    pub(crate) async fn places(&self) -> BTreeMap<String, String> {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let volumes = state["volumes"].as_array().unwrap().iter();
        volumes.map(|one| (text(&one["id"]), text(&one["datastore"]))).collect()
    }

    /// The record of a volume's creation.
    pub(crate) async fn record(&self, name: &str) -> Option<Value> {
        let found = self.records().get_opt(name).await.unwrap();
        found.map(|found| to_value(found).unwrap())
    }

    /// The records of creations.
    pub(crate) fn records(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("cns.vmware.com", "v1alpha1", "CnsVolumeOperationRequest");
        let resource = ApiResource::from_gvk_with_plural(&kind, "cnsvolumeoperationrequests");
        Api::namespaced_with(self.plane.client(), NAMESPACE, &resource)
    }

    /// The ids of all volumes of vCenter.
    pub(crate) async fn volumes(&self) -> Vec<String> {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let volumes = state["volumes"].as_array().cloned().unwrap_or_default();
        volumes.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// A volume of this size, for one node's file system.
pub(crate) fn request(name: &str, mebibytes: u64) -> CreateVolumeRequest {
    let bytes = i64::try_from(mebibytes * MIB).unwrap();
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_capabilities: vec![mounted()],
        ..CreateVolumeRequest::default()
    }
}

pub(crate) fn mounted() -> VolumeCapability {
    VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    }
}

impl Controller {
    pub(crate) async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        self.client.clone().call(method, request).await
    }

    pub(crate) async fn probe(&self) -> Result<ProbeResponse, Status> {
        self.call("/csi.v1.Identity/Probe", ProbeRequest {}).await
    }

    /// Waits until vCenter's inventory is known.
    pub(crate) async fn until_ready(&self) {
        let known = async |to: &Self| {
            // Nothing is reachable while no node is known.
            let known = to.capacity().await? > 0;
            known.then_some(()).ok_or_else(|| Status::unavailable("no node is known"))
        };
        self.patiently("ready", known).await.unwrap();
    }

    /// Bytes on all datastores.
    pub(crate) async fn capacity(&self) -> Result<i64, Status> {
        let request = GetCapacityRequest::default();
        let answer: GetCapacityResponse =
            self.call("/csi.v1.Controller/GetCapacity", request).await?;
        Ok(answer.available_capacity)
    }

    pub(crate) async fn create(&self, request: CreateVolumeRequest) -> Result<String, Status> {
        let answer: CreateVolumeResponse =
            self.call("/csi.v1.Controller/CreateVolume", request).await?;
        Ok(answer.volume.unwrap().volume_id)
    }

    pub(crate) async fn delete(&self, volume: &str) -> Result<(), Status> {
        let request =
            DeleteVolumeRequest { volume_id: volume.to_owned(), ..DeleteVolumeRequest::default() };
        let done: Result<DeleteVolumeResponse, _> =
            self.call("/csi.v1.Controller/DeleteVolume", request).await;
        done.map(|_| ())
    }

    /// Attaches a volume, and returns the UUID of its disk.
    pub(crate) async fn attach(&self, volume: &str, node: &str) -> Result<String, Status> {
        let request = ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(mounted()),
            ..ControllerPublishVolumeRequest::default()
        };
        let answer: ControllerPublishVolumeResponse =
            self.call("/csi.v1.Controller/ControllerPublishVolume", request).await?;
        Ok(answer.publish_context["diskUUID"].clone())
    }

    pub(crate) async fn detach(&self, volume: &str, node: &str) -> Result<(), Status> {
        let request = ControllerUnpublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: node.to_owned(),
            ..ControllerUnpublishVolumeRequest::default()
        };
        let done: Result<ControllerUnpublishVolumeResponse, _> =
            self.call("/csi.v1.Controller/ControllerUnpublishVolume", request).await;
        done.map(|_| ())
    }

    pub(crate) async fn expand(&self, volume: &str, mebibytes: u64) -> Result<(), Status> {
        let required_bytes = i64::try_from(mebibytes * MIB).unwrap();
        let request = ControllerExpandVolumeRequest {
            volume_id: volume.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            ..ControllerExpandVolumeRequest::default()
        };
        let answer: ControllerExpandVolumeResponse =
            self.call("/csi.v1.Controller/ControllerExpandVolume", request).await?;
        assert_eq!(answer.capacity_bytes, required_bytes);
        Ok(())
    }

    /// The nodes of all volumes by their ids.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, Vec<String>>, Status> {
        let request = ListVolumesRequest::default();
        let listed: ListVolumesResponse =
            self.call("/csi.v1.Controller/ListVolumes", request).await?;
        let listed = listed.entries.into_iter().map(|entry| {
            let nodes = entry.status.unwrap_or_default().published_node_ids;
            (entry.volume.unwrap_or_default().volume_id, nodes)
        });
        Ok(listed.collect())
    }

    /// Calls again while the answer is one that passes, as sidecars do.
    pub(crate) async fn patiently<T>(
        &self,
        what: &str,
        call: impl AsyncFn(&Self) -> Result<T, Status>,
    ) -> Result<T, Status> {
        let done = until(what, 3 * BOUND, || async {
            Ok(match call(self).await {
                Err(status) if is_passing(status.code()) => Wait::NotYet(status.to_string()),
                other => Wait::Done(other),
            })
        });
        match done.await {
            Ok(done) => done,
            Err(error) => panic!("{error}\n{}", self.log()),
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until the process has ended by itself, and returns what it logged.
    pub(crate) async fn until_ended(mut self) -> String {
        until("the process has ended", BOUND, || {
            let ended = self.child.try_wait();
            async {
                let is_running = ended?.is_none();
                Ok(if is_running { Wait::NotYet("it runs".to_owned()) } else { Wait::Done(()) })
            }
        })
        .await
        .unwrap();
        self.log()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn is_passing(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Aborted | Code::DeadlineExceeded)
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
