//! Where schedules are played: an API server, a vCenter, and two controllers of one cluster.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Child, Stdio},
};

use anyhow::{Context, Result};
use csi::manifests::{self, NAMESPACE, Parameters};
use lab::{
    ControlPlane, VCenter, VCenterSpec,
    vcenter::{ADMINISTRATOR, Description},
};
use serde_json::{json, to_value};
use vsphere::{
    connection::{Connection, Settings},
    session::Credentials,
    tls::{Roots, Trust},
};

use crate::script::{CONTROLLERS, NODES};

/// The cluster of these volumes; what others make is in none, or in another one.
const CLUSTER: &str = "schedules";
/// Nothing that the simulator was asked for begins later.
const SETTLE: &str = "--settle=15";

pub(crate) struct Lane {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    /// Whether attached disks are block devices, which only root can make.
    pub(crate) has_guests: bool,
    /// As the administrator, who sees everything.
    witness: Connection,
    running: RefCell<Vec<Option<Child>>>,
}

/// A volume as vCenter has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) name: String,
    /// Whether it is in the cluster of the schedules.
    pub(crate) ours: bool,
    pub(crate) mebibytes: i64,
    /// The VMs that have it, by name, with the UUIDs of the disk.
    pub(crate) on: BTreeMap<String, String>,
}

/// The BIOS UUID of a node's VM.
pub(crate) fn id(node: usize) -> String {
    format!("4230b1a0-5eed-4000-8000-00000000000{}", node + 1)
}

pub(crate) fn name(node: usize) -> String {
    format!("node-{}", node + 1)
}

impl Lane {
    pub(crate) async fn start(release: &str) -> Result<Self> {
        let usual = include_str!("../../../../lab/vcenter/internal/world/default.yaml");
        let described = usual.replacen("release: 8.0U3", &format!("release: {release}"), 1);
        let description = Description::Text(described);
        let has_guests = rustix::process::getuid().is_root();
        let guests = if has_guests { (0..NODES).map(name).collect() } else { Vec::new() };
        let spec = VCenterSpec { description, guests, ..VCenterSpec::default() };
        let (plane, vcenter) = tokio::try_join!(ControlPlane::start(), VCenter::start(&spec))?;
        let made = manifests::manifests(&Parameters::default())?;
        let mut objects =
            vec![to_value(made.namespace)?, to_value(made.records)?, to_value(made.volume_infos)?];
        for node in 0..NODES {
            let driver = json!({"name": csi::DRIVER, "nodeID": id(node), "topologyKeys": null});
            objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
                "metadata": {"name": name(node)}, "spec": {"drivers": [driver]},
            }));
            objects.push(json!({
                "apiVersion": "v1", "kind": "Node", "metadata": {"name": name(node)},
                "spec": {"providerID": format!("vsphere://{}", id(node))},
            }));
        }
        plane.apply(&objects)?;
        let trust =
            Trust::Verify { roots: Roots::File(vcenter.authority().to_owned()), thumbprint: None };
        let credentials = Credentials::password(ADMINISTRATOR.0, ADMINISTRATOR.1.to_owned());
        let settings = Settings { trust, ..Settings::new(vcenter.url().parse()?, credentials) };
        let witness = Connection::new(&settings)?;
        let running = RefCell::new((0..CONTROLLERS).map(|_| None).collect());
        let lane = Self { plane, vcenter, has_guests, witness, running };
        // By its name, as the link in the image calls it.
        symlink(env!("CARGO_BIN_EXE_vsphere-drivers"), lane.path("vsphere-csi"))?;
        lane.configure()?;
        for controller in 0..CONTROLLERS {
            lane.run(controller)?;
        }
        Ok(lane)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.plane.world().dir().join(name)
    }

    pub(crate) fn socket(&self, controller: usize) -> PathBuf {
        self.path(&format!("csi-{controller}.sock"))
    }

    fn configure(&self) -> Result<()> {
        let url = self.vcenter.url().trim_start_matches("https://").trim_end_matches("/sdk");
        let (host, port) = url.rsplit_once(':').context("the vCenter has no port")?;
        let text = format!(
            "[Global]\ncluster-id = \"{CLUSTER}\"\nca-file = \"{}\"\n[VirtualCenter \"{host}\"]\nuser = \
             \"csi@vsphere.local\"\npassword = \"Lab-csi-1!\"\nport = \"{port}\"\n",
            self.vcenter.authority().display()
        );
        Ok(fs::write(self.path("csi-vsphere.conf"), text)?)
    }

    /// Starts a controller.
    pub(crate) fn run(&self, controller: usize) -> Result<()> {
        let log = self.path(&format!("controller-{controller}.log"));
        let output = fs::File::options().create(true).append(true).open(log)?;
        let mut command = lab::child(&self.path("vsphere-csi"));
        command
            .arg(format!("--kubeconfig={}", self.plane.kubeconfig().display()))
            .args(["--metrics-address=", "--attach", SETTLE])
            .env("CSI_ENDPOINT", format!("unix://{}", self.socket(controller).display()))
            .env("X_CSI_MODE", "controller")
            .env("CSI_NAMESPACE", NAMESPACE)
            .env("VSPHERE_CSI_CONFIG", self.path("csi-vsphere.conf"))
            .stdout(Stdio::null())
            .stderr(output);
        self.running.borrow_mut()[controller] = Some(command.spawn()?);
        Ok(())
    }

    /// Kills a controller, without a chance to end anything.
    pub(crate) fn kill(&self, controller: usize) -> Result<()> {
        let child = self.running.borrow_mut()[controller].take();
        if let Some(mut child) = child {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub(crate) fn is_running(&self, controller: usize) -> bool {
        self.running.borrow()[controller].is_some()
    }

    /// Whether a rule that strikes once has not struck yet.
    pub(crate) async fn is_armed(&self, rule: u64) -> Result<bool> {
        let rules = self.vcenter.control().state_as_json().await?["rules"].to_string();
        Ok(rules.contains(&format!("\"id\":{rule},")))
    }

    /// What the controllers have logged.
    pub(crate) fn logs(&self) -> String {
        let logs = (0..CONTROLLERS).map(|at| {
            let text = fs::read_to_string(self.path(&format!("controller-{at}.log")));
            let text = text.unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.get(lines.len().saturating_sub(60)..).unwrap_or_default();
            format!("--- controller {at}\n{}\n", last.join("\n"))
        });
        logs.collect()
    }

    /// All volumes of vCenter by their ids.
    pub(crate) async fn volumes(&self) -> Result<BTreeMap<String, Truth>> {
        let state = self.vcenter.control().state_as_json().await?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        // The names of VMs by their references.
        let vms: BTreeMap<String, String> = state["inventory"]
            .as_array()
            .context("no inventory")?
            .iter()
            .map(|one| (text(&one["ref"]), text(&one["path"])))
            .map(|(vm, path)| (vm, path.rsplit('/').next().unwrap_or_default().to_owned()))
            .collect();
        let mut volumes = BTreeMap::new();
        for volume in state["volumes"].as_array().context("no volumes")? {
            let id = text(&volume["id"]);
            let attachments = state["attachments"].as_array().into_iter().flatten();
            let on = attachments
                .filter(|one| one["volume"] == volume["id"])
                .map(|one| {
                    let (vm, disk) = (text(&one["vm"]), text(&one["diskUuid"]));
                    let name = vms.get(&vm).cloned().unwrap_or(vm);
                    (name, disk.replace('-', "").to_lowercase())
                })
                .collect();
            let mebibytes = volume["capacityMb"].as_i64().unwrap_or_default();
            let ours =
                volume["clusters"].as_array().is_some_and(|all| all.contains(&CLUSTER.into()));
            volumes.insert(id, Truth { name: text(&volume["name"]), ours, mebibytes, on });
        }
        Ok(volumes)
    }

    /// All first class disks by their ids, whether CNS knows them or not, with their names.
    pub(crate) async fn disks(&self) -> Result<BTreeMap<String, String>> {
        let disks = self.witness.disks().await?;
        let mut pages = disks.pages(&[]);
        let mut found = BTreeMap::new();
        while let Some(page) = pages.next_page().await? {
            found.extend(page.into_iter().map(|disk| (disk.id.id, disk.name.unwrap_or_default())));
        }
        Ok(found)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for controller in 0..CONTROLLERS {
            self.kill(controller).ok();
        }
    }
}
