//! A cluster without kubelets, a vCenter with its VMs, and the manager between them.

use std::{collections::HashMap, time::Duration};

use ccm::Options;
use cloud_config::{Config, CredentialSource, Inline, IpFamily, Labels, Nodes};
use daemon::supervise::{Shutdown, Stop, shutdown};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use lab::{ControlPlane, VCenter, VCenterSpec, Wait, until};
use serde_json::json;
use tokio::task::JoinSet;
use vsphere::tls::{Roots, Trust};

/// Longer than anything takes on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(60);
pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
pub(crate) const UUIDS: [&str; 2] =
    ["4230b1a0-5eed-4000-8000-000000000001", "4230b1a0-5eed-4000-8000-000000000002"];

/// An API server and a vCenter.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    pub(crate) nodes: Api<Node>,
}

/// A manager that runs.
pub(crate) struct Running {
    stop: Stop,
    tasks: JoinSet<()>,
}

impl Running {
    pub(crate) fn start(client: Client, config: Config, options: Options) -> Self {
        let (stop, asked): (Stop, Shutdown) = shutdown();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { ccm::run(client, &config, options, asked).await.unwrap() });
        Self { stop, tasks }
    }

    /// Asks it to end, and waits.
    pub(crate) async fn stop(mut self) {
        self.stop.request();
        tokio::time::timeout(BOUND, self.tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let spec = VCenterSpec::default();
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let nodes = Api::all(plane.client());
        Self { plane, vcenter, nodes }
    }

    /// The configuration with this vCenter and perhaps others.
    pub(crate) fn config(&self, others: Vec<cloud_config::VCenter>) -> Config {
        let trust = Trust::Verify {
            roots: Roots::File(self.vcenter.authority().to_owned()),
            thumbprint: None,
        };
        let mut vcenters = vec![section("vcenter", self.vcenter.url(), trust)];
        vcenters.extend(others);
        let labels =
            Labels { zone: Some("k8s-zone".to_owned()), region: Some("k8s-region".to_owned()) };
        Config { vcenters, labels, nodes: Nodes::default() }
    }

    pub(crate) fn run(&self) -> Running {
        self.run_with(self.config(Vec::new()))
    }

    pub(crate) fn run_with(&self, config: Config) -> Running {
        Running::start(self.plane.client(), config, Options::default())
    }

    /// Registers a Node as a kubelet does that has an external cloud provider.
    pub(crate) async fn register(&self, name: &str, uuid: &str, provider_id: Option<&str>) {
        let taint = json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"});
        let node = json!({
            "metadata": {"name": name},
            "spec": {"taints": [taint], "providerID": provider_id},
        });
        let node: Node = serde_json::from_value(node).unwrap();
        self.nodes.create(&PostParams::default(), &node).await.unwrap();
        let system = json!({
            "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
            "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "linux",
            "osImage": "", "systemUUID": uuid,
        });
        self.patch_status(name, json!({"nodeInfo": system})).await;
    }

    /// Says whether the kubelet is ready.
    pub(crate) async fn ready(&self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "Unknown" };
        let condition = json!({
            "type": "Ready", "status": status, "reason": "Test", "message": "",
            "lastHeartbeatTime": null, "lastTransitionTime": null,
        });
        self.patch_status(name, json!({"conditions": [condition]})).await;
    }

    async fn patch_status(&self, name: &str, status: serde_json::Value) {
        let patch = Patch::Strategic(json!({"status": status}));
        self.nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until a Node is as it should be.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Node) -> bool,
    ) -> Node {
        let waited = until(what, BOUND, || async {
            let node = self.nodes.get(name).await?;
            Ok(if holds(&node) { Wait::Done(node) } else { Wait::NotYet(format!("{node:?}")) })
        });
        waited.await.unwrap()
    }

    /// The sessions of a user that vCenter has.
    pub(crate) async fn sessions(&self, user: &str) -> usize {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let of_user = |session: &&serde_json::Value| {
            session["user"].as_str().unwrap_or_default().to_lowercase().contains(user)
        };
        state["sessions"].as_array().unwrap().iter().filter(of_user).count()
    }
}

/// A vCenter of the configuration.
pub(crate) fn section(name: &str, url: &str, trust: Trust) -> cloud_config::VCenter {
    let inline = Inline { user: "cpi@vsphere.local".to_owned(), password: "Lab-cpi-1!".into() };
    cloud_config::VCenter {
        name: name.to_owned(),
        server: name.to_owned(),
        endpoint: url.parse().unwrap(),
        trust,
        datacenters: Vec::new(),
        credentials: CredentialSource::Inline(inline),
        ip_families: vec![IpFamily::V4],
    }
}

pub(crate) fn has_taint(node: &Node, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == key))
}

pub(crate) fn is_initialised(node: &Node) -> bool {
    !has_taint(node, UNINITIALIZED) && provider_id(node).is_some()
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

pub(crate) fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Addresses by type, the last of each.
pub(crate) fn addresses(node: &Node) -> HashMap<String, String> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.clone());
    addresses.unwrap_or_default().into_iter().map(|one| (one.type_, one.address)).collect()
}

pub(crate) fn condition(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|one| one.type_ == kind)?.status.clone())
}

pub(crate) fn condition_message(node: &Node, kind: &str) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|one| one.type_ == kind)?.message.clone()
}
