//! A cluster of Nodes without kubelets, a vCenter with their VMs, and a watch of what becomes of them.
//!
//! The program under test is a service account of kube-system. It is the only one, so the requests that the
//! API server dispatched in the flow schema of such accounts are the program's: ours and the server's own are
//! in others.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    pin::Pin,
};

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Node, ServiceAccount},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, Client, Resource,
    api::{PostParams, Request, WatchEvent, WatchParams},
    config::Kubeconfig,
};
use lab::{
    ControlPlane, VCenter, VCenterSpec,
    vcenter::{Description, Latency},
};
use serde::Deserialize;
use serde_json::{Value, json};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const ACCOUNT: &str = "cloud-controller-manager";
/// The flow schema of the service accounts in kube-system, which Kubernetes brings along.
const FLOW: &str = "flow_schema=\"kube-system-service-accounts\"";
/// Every cloud controller manager gives it to a Node in the write that initialises the Node. Waiting for it
/// spares the machine all other changes of Nodes.
const LABEL: &str = "node.kubernetes.io/instance-type";
const USER: (&str, &str) = ("cpi@vsphere.local", "Lab-cpi-1!");
const VMS_PER_HOST: usize = 100;
const CLUSTERS: usize = 2;
/// Nodes that are registered at once.
const AT_ONCE: usize = 16;
/// Images that the kubelet of a new machine reports; later it reports up to 50.
const IMAGES: usize = 10;

/// A world for one program.
pub(super) struct World {
    plane: ControlPlane,
    pub(super) vcenter: VCenter,
    dir: tempfile::TempDir,
}

/// As much of a Node as the watch looks at: we share the machine with what is measured.
#[derive(Clone, Deserialize)]
struct Seen {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Clone, Default, Deserialize)]
struct Spec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
    #[serde(default)]
    taints: Vec<Taint>,
}

#[derive(Clone, Deserialize)]
struct Taint {
    key: String,
}

#[derive(Clone, Default, Deserialize)]
struct Status {
    #[serde(default)]
    addresses: Vec<Address>,
}

#[derive(Clone, Deserialize)]
struct Address {
    address: String,
}

/// A watch of the Nodes that have the label [`LABEL`].
pub(super) struct Watching {
    client: Client,
    events: Option<Events>,
    initialised: HashSet<String>,
    addresses: HashMap<String, Vec<String>>,
}

type Events = Pin<Box<dyn Stream<Item = kube::Result<WatchEvent<Seen>>>>>;

pub(super) fn node_name(index: usize) -> String {
    format!("node-{index:05}")
}

/// The address that a guest has at first.
pub(super) fn first_address(index: usize) -> String {
    format!("10.100.{}.{}", index / 250, index % 250 + 1)
}

/// The address that a guest has later.
pub(super) fn later_address(index: usize) -> String {
    format!("10.200.{}.{}", index / 250, index % 250 + 1)
}

fn uuid(index: usize) -> String {
    format!("4230b1a0-5eed-4000-9000-{index:012}")
}

impl World {
    /// Starts a world with this many VMs, of which the first are Nodes.
    pub(super) async fn start(nodes: usize, vms: usize, latency: Latency) -> Result<Self> {
        let description = Description::Text(described(vms)?);
        let spec = VCenterSpec { description, latency: Some(latency), ..VCenterSpec::default() };
        let (plane, vcenter) = tokio::try_join!(ControlPlane::start(), VCenter::start(&spec))?;
        let dir = tempfile::tempdir()?;
        let world = Self { plane, vcenter, dir };
        fs::write(world.cloud_config(), world.configured()?)?;
        fs::write(world.kubeconfig(), serde_json::to_vec(&world.account().await?)?)?;
        let api: Api<Node> = Api::all(world.plane.client());
        stream::iter(0..nodes)
            .map(|index| register(&api, index))
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(world)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn cloud_config(&self) -> PathBuf {
        self.dir().join("vsphere.conf")
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// A configuration that ours and upstream's understand alike.
    fn configured(&self) -> Result<String> {
        let url = self.vcenter.url().trim_start_matches("https://").trim_end_matches("/sdk");
        let (host, port) = url.rsplit_once(':').context("the vCenter has no port")?;
        let vcenter = json!({
            "server": host, "port": port.parse::<u16>()?, "user": USER.0, "password": USER.1,
            "caFile": self.vcenter.authority(), "datacenters": ["dc-1"],
        });
        let labels = json!({"zone": "k8s-zone", "region": "k8s-region"});
        // What is JSON is YAML too, but for upstream a configuration that begins with a brace is none.
        Ok(format!("vcenter: {}\nlabels: {labels}\n", json!({ "bench": vcenter })))
    }

    /// A kubeconfig of the service account, which may do everything.
    async fn account(&self) -> Result<Kubeconfig> {
        let client = self.plane.client();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "kube-system");
        let bindings: Api<ClusterRoleBinding> = Api::all(client);
        let create = PostParams::default();
        let account = json!({"metadata": {"name": ACCOUNT}});
        accounts.create(&create, &serde_json::from_value(account)?).await?;
        let binding = json!({
            "metadata": {"name": ACCOUNT},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system"}],
        });
        bindings.create(&create, &serde_json::from_value(binding)?).await?;
        let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
        let answer = accounts.create_token_request(ACCOUNT, &create, &request).await?;
        let token = answer.status.context("there is no token")?.token;
        let mut config = serde_json::to_value(Kubeconfig::read_from(self.plane.kubeconfig())?)?;
        config["users"] = json!([{"name": "lab", "user": {"token": token}}]);
        Ok(serde_json::from_value(config)?)
    }

    /// How many requests the vCenter has answered.
    pub(super) async fn vcenter_requests(&self) -> Result<u64> {
        let counted = self.vcenter.control().calls().await?;
        let requests = counted["requests"].as_array().context("no requests")?;
        Ok(requests.iter().filter_map(|request| request["count"].as_u64()).sum())
    }

    /// How many requests of the program the API server has dispatched.
    pub(super) async fn kubernetes_requests(&self) -> Result<u64> {
        let request = hyper::http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self.plane.client().request_text(request).await?;
        let of_program = metrics.lines().filter(|line| {
            line.starts_with("apiserver_flowcontrol_dispatched_requests_total{")
                && line.contains(FLOW)
        });
        let counts = of_program.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(counts.sum::<f64>() as u64)
    }

    pub(super) async fn watch(&self) -> Result<Watching> {
        let (initialised, addresses) = (HashSet::new(), HashMap::new());
        let client = self.plane.client();
        let events = Some(watch(&client).await?);
        Ok(Watching { client, events, initialised, addresses })
    }
}

/// Begins with all Nodes that have the label; the API server ends it after some minutes.
async fn watch(client: &Client) -> Result<Events> {
    let params = WatchParams { bookmarks: false, ..WatchParams::default() }.labels(LABEL);
    let request = Request::new(Node::url_path(&(), None)).watch(&params, "0")?;
    Ok(Box::pin(client.request_events::<Seen>(request).await?))
}

impl Watching {
    /// Waits for the next event.
    pub(super) async fn next(&mut self) -> Result<()> {
        let events = match &mut self.events {
            Some(events) => events,
            None => self.events.insert(watch(&self.client).await?),
        };
        let node = match events.next().await {
            Some(Ok(WatchEvent::Added(node) | WatchEvent::Modified(node))) => node,
            Some(Ok(WatchEvent::Error(status))) => bail!("Nodes cannot be watched: {status:?}"),
            Some(Ok(WatchEvent::Deleted(_) | WatchEvent::Bookmark(_))) => return Ok(()),
            Some(Err(error)) => return Err(error.into()),
            None => {
                self.events = None;
                return Ok(());
            }
        };
        let Seen { metadata: Metadata { name }, spec, status } = node;
        let tainted = spec.taints.iter().any(|taint| taint.key == UNINITIALIZED);
        if spec.provider_id.is_some() && !tainted {
            self.initialised.insert(name.clone());
        }
        let addresses = status.addresses.into_iter().map(|one| one.address);
        self.addresses.insert(name, addresses.collect());
        Ok(())
    }

    pub(super) fn initialised(&self) -> usize {
        self.initialised.len()
    }

    pub(super) fn has_address(&self, node: &str, address: &str) -> bool {
        self.addresses.get(node).is_some_and(|all| all.iter().any(|one| one == address))
    }
}

/// The vCenter: a datacenter that is a region, clusters that are zones, and the VMs.
fn described(vms: usize) -> Result<String> {
    let hosts = vms.div_ceil(VMS_PER_HOST).max(CLUSTERS);
    let clusters = (0..CLUSTERS).map(|cluster| {
        let hosts = (0..hosts).filter(|host| host % CLUSTERS == cluster);
        let hosts: Vec<Value> = hosts.map(|host| json!({"name": host_name(host)})).collect();
        json!({"name": format!("cluster-{cluster}"), "hosts": hosts})
    });
    let vms = (0..vms).map(|index| {
        let (name, host) = (node_name(index), host_name(index % hosts));
        let address = format!("{}/8", first_address(index));
        json!({
            "name": name, "uuid": uuid(index), "folder": "k8s", "host": host, "datastore": "shared-1",
            "guest": {"host_name": name}, "nics": [{"network": "nodes", "addresses": [address]}],
        })
    });
    let zones = (0..CLUSTERS).map(|cluster| {
        json!({"name": format!("zone-{cluster}"), "on": [format!("/dc-1/host/cluster-{cluster}")]})
    });
    let mut text = String::new();
    let mut section = |key: &str, value: Value| writeln!(text, "{key}: {value}");
    section(
        "users",
        json!([{
            "name": USER.0, "password": USER.1, "permissions": [{"role": "ReadOnly", "on": "/"}],
        }]),
    )?;
    section(
        "categories",
        json!([
            {"name": "k8s-region", "tags": [{"name": "region-1", "on": ["/dc-1"]}]},
            {"name": "k8s-zone", "tags": zones.collect::<Vec<_>>()},
        ]),
    )?;
    section(
        "datacenters",
        json!([{
            "name": "dc-1", "folders": ["vm/k8s"], "networks": [{"name": "nodes", "switch": "dvs-1"}],
            "clusters": clusters.collect::<Vec<_>>(), "datastores": [{"name": "shared-1", "capacity": "64TiB"}],
            "vms": vms.collect::<Vec<_>>(),
        }]),
    )?;
    Ok(text)
}

fn host_name(index: usize) -> String {
    format!("esx-{index:03}.lab.example")
}

/// Registers a Node as its kubelet does, with everything that kubelets report.
async fn register(api: &Api<Node>, index: usize) -> Result<()> {
    let name = node_name(index);
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": "KubeletHasIt", "message": "reported by the kubelet",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let images = (0..IMAGES).map(|image| {
        let repository = format!("registry.example/team-{image:02}/component");
        json!({"names": [format!("{repository}@sha256:{image:064x}"), format!("{repository}:v1.{image}.0")],
            "sizeBytes": 50_000_000 + image})
    });
    let labels: BTreeMap<&str, &str> = [
        ("kubernetes.io/hostname", name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ]
    .into();
    let capacity =
        json!({"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"});
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {
            "addresses": [{"type": "Hostname", "address": name}],
            "allocatable": capacity, "capacity": capacity,
            "conditions": [
                condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
                condition("PIDPressure", "False"), condition("Ready", "True"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images.collect::<Vec<_>>(),
            "nodeInfo": {
                "architecture": "amd64", "bootID": uuid(index), "containerRuntimeVersion": "containerd://2.1.0",
                "kernelVersion": "6.8.0-60-generic", "kubeProxyVersion": "", "kubeletVersion": "v1.33.0",
                "machineID": uuid(index), "operatingSystem": "linux", "osImage": "Ubuntu 24.04 LTS",
                "systemUUID": uuid(index),
            },
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    Ok(())
}
