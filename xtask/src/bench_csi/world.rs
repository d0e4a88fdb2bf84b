//! A cluster without kubelets, a vCenter with the VMs of its nodes, and CSI drivers that serve it.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use lab::{
    ControlPlane, VCenter, VCenterSpec, manifest_files,
    vcenter::{Description, Latency},
};
use serde_json::{Value, json};

use crate::measured::Started;

pub(super) const DRIVER: &str = "csi.vsphere.vmware.com";
const NAMESPACE: &str = "vmware-system-csi";
pub(super) const USER: (&str, &str) = ("csi@vsphere.local", "Lab-csi-1!");
/// What the driver needs of its manifests outside a pod.
const KINDS: [&str; 3] = ["Namespace", "CSIDriver", "CustomResourceDefinition"];
/// The nodes of the default world, with the BIOS UUIDs of their VMs.
pub(super) const NODES: [(&str, &str); 2] = [
    ("node-1", "4230b1a0-5eed-4000-8000-000000000001"),
    ("node-2", "4230b1a0-5eed-4000-8000-000000000002"),
];
/// Where the Go driver looks for its switches.
const SWITCHES: &str = "internal-feature-states.csi.vsphere.vmware.com";

/// A CSI driver to measure.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) ours: bool,
}

impl Program {
    pub(super) fn name(&self) -> String {
        if self.ours {
            return "ours".to_owned();
        }
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// A world for one program.
pub(super) struct World {
    pub(super) plane: ControlPlane,
    pub(super) vcenter: VCenter,
    dir: tempfile::TempDir,
}

impl World {
    /// A world with a vCenter of a release.
    pub(super) async fn start(release: &str, latency: Latency) -> Result<Self> {
        let usual = include_str!("../../../lab/vcenter/internal/world/default.yaml");
        let described = usual.replacen("release: 8.0U3", &format!("release: {release}"), 1);
        let description = Description::Text(described);
        let spec = VCenterSpec { description, latency: Some(latency), ..VCenterSpec::default() };
        let (plane, vcenter) = tokio::try_join!(ControlPlane::start(), VCenter::start(&spec))?;
        let dir = tempfile::tempdir()?;
        let world = Self { plane, vcenter, dir };
        let mut objects = manifest_files::read("csi-driver.yaml")?;
        objects.retain(|object| KINDS.iter().any(|kind| object["kind"] == *kind));
        objects.push(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": SWITCHES, "namespace": NAMESPACE}, "data": {"trigger-csi-fullsync": "false"},
        }));
        for (node, uuid) in NODES {
            objects.extend(registered(node, uuid));
        }
        world.plane.apply(&objects)?;
        fs::write(world.configuration(), world.configured()?)?;
        Ok(world)
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn socket(&self, mode: &str) -> PathBuf {
        self.dir().join(format!("{mode}.sock"))
    }

    fn configuration(&self) -> PathBuf {
        self.dir().join("csi-vsphere.conf")
    }

    /// A configuration that ours and upstream's understand alike.
    fn configured(&self) -> Result<String> {
        let url = self.vcenter.url().trim_start_matches("https://").trim_end_matches("/sdk");
        let (host, port) = url.rsplit_once(':').context("the vCenter has no port")?;
        let (user, password) = USER;
        Ok(format!(
            "[Global]\ncluster-id = \"bench\"\nca-file = \"{}\"\n\n[VirtualCenter \"{host}\"]\nuser = \"{user}\"\n\
             password = \"{password}\"\nport = \"{port}\"\ndatacenters = \"/dc-1\"\n",
            self.vcenter.authority().display()
        ))
    }

    /// Starts a driver as a controller or on a node, as its manifest does.
    pub(super) fn run(&self, program: &Program, mode: &str) -> Result<Started> {
        let link = self.dir().join("vsphere-csi");
        if !link.exists() {
            symlink(&program.path, &link)?;
        }
        let mut command = Command::new(link);
        command
            .env("CSI_ENDPOINT", format!("unix://{}", self.socket(mode).display()))
            .env("X_CSI_MODE", mode)
            .env("CSI_NAMESPACE", NAMESPACE)
            .env("NODE_NAME", NODES[0].0)
            .env("VSPHERE_CSI_CONFIG", self.configuration())
            .env("KUBECONFIG", self.plane.kubeconfig())
            .env("INCLUSTER_CLIENT_QPS", "1000")
            .env("INCLUSTER_CLIENT_BURST", "1000");
        if program.ours {
            command.arg(format!("--kubeconfig={}", self.plane.kubeconfig().display()));
            command.arg("--metrics-address=");
        } else {
            command.args(["--fss-name", SWITCHES, "--fss-namespace", NAMESPACE]);
        }
        if program.ours && mode == "controller" {
            command.arg("--attach");
        }
        Started::start(&command, &self.dir().join(format!("{mode}.log")))
    }

    /// How many requests vCenter has answered: in all, and by what they call.
    pub(super) async fn requests(&self) -> Result<Requests> {
        let counted = self.vcenter.control().calls().await?;
        let of = |list: &str| counted[list].as_array().cloned().unwrap_or_default();
        let count = |one: &Value| one["count"].as_u64().unwrap_or_default();
        let all = of("requests");
        if all.is_empty() {
            bail!("vCenter counts no requests");
        }
        let mut by_method = BTreeMap::new();
        for call in of("calls") {
            let method = call["method"].as_str().unwrap_or_default().to_owned();
            *by_method.entry(method).or_default() += count(&call);
        }
        Ok(Requests { all: all.iter().map(count).sum(), by_method })
    }
}

/// Requests that vCenter has answered.
pub(super) struct Requests {
    pub(super) all: u64,
    pub(super) by_method: BTreeMap<String, u64>,
}

impl Requests {
    /// Those that wait for changes.
    pub(super) fn long_polls(&self) -> u64 {
        self.by_method.get("WaitForUpdatesEx").copied().unwrap_or_default()
    }

    /// Which calls there were since `before`, for each of so many operations.
    pub(super) fn per_operation(&self, before: &Self, operations: f64) -> BTreeMap<String, f64> {
        let since = |(method, count): (&String, &u64)| {
            let old = before.by_method.get(method).copied().unwrap_or_default();
            (method.clone(), (count - old) as f64 / operations)
        };
        self.by_method.iter().map(since).filter(|(_, count)| *count >= 0.01).collect()
    }
}

/// A node whose kubelet has registered the driver.
fn registered(node: &str, uuid: &str) -> [Value; 2] {
    let driver = json!({"name": DRIVER, "nodeID": uuid, "topologyKeys": null});
    [
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
            "spec": {"providerID": format!("vsphere://{uuid}")},
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": node}, "spec": {"drivers": [driver]},
        }),
    ]
}
