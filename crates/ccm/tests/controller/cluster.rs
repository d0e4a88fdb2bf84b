//! A cluster without kubelets, a vCenter with its VMs, and the manager between them.

use cloud_config::{Config, Labels, Nodes};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{Api, api::ListParams};
pub(crate) use lab::kubelet::{
    SHUTDOWN, UNINITIALIZED, addresses, annotation, condition_status, has_taint, is_initialised,
    label, provider_id, vsphere_condition,
};
use lab::{
    ControlPlane, VCenter, VCenterSpec, Wait,
    kubelet::{register, report_ready},
    until,
    vcenter::{Description, Power},
};
use vsphere::tls::{Roots, Trust};

pub(crate) use crate::manager::{BOUND, Running, eager, put_login, secret, section, settings};

pub(crate) const UUIDS: [&str; 2] =
    ["4230b1a0-5eed-4000-8000-000000000001", "4230b1a0-5eed-4000-8000-000000000002"];
/// The reference of the VM that a Node is, as recorded.
pub(crate) const VM: &str = "ccm.vsphere.vmware.com/vm";

/// An API server and a vCenter.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) vcenter: VCenter,
    pub(crate) nodes: Api<Node>,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::start_of(Description::Default).await
    }

    pub(crate) async fn start_of(description: Description) -> Self {
        let spec = VCenterSpec { description, ..VCenterSpec::default() };
        let (plane, vcenter) =
            tokio::try_join!(ControlPlane::start(), VCenter::start(&spec)).unwrap();
        let nodes = Api::all(plane.client());
        Self { plane, vcenter, nodes }
    }

    /// The configuration with this vCenter and perhaps others.
    pub(crate) fn config(&self, others: Vec<cloud_config::VCenter>) -> Config {
        let mut vcenters = vec![section("vcenter", self.vcenter.url(), trust(&self.vcenter))];
        vcenters.extend(others);
        let labels = Labels {
            zone: Some("k8s-zone".to_owned()),
            region: Some("k8s-region".to_owned()),
            nearest: false,
        };
        Config { vcenters, labels, nodes: Nodes::default() }
    }

    pub(crate) fn run(&self) -> Running {
        self.run_with(self.config(Vec::new()))
    }

    pub(crate) fn run_with(&self, config: Config) -> Running {
        Running::start(ccm::Context::new(self.plane.client()), config, settings(&[]))
    }

    pub(crate) fn run_eagerly(&self, config: Config) -> Running {
        Running::start(ccm::Context::new(self.plane.client()), config, eager())
    }

    /// Registers a Node as a kubelet does that has an external cloud provider.
    pub(crate) async fn register(&self, name: &str, uuid: &str, provider_id: Option<&str>) {
        register(&self.nodes, name, uuid, provider_id).await.unwrap();
    }

    /// The Nodes of the default world, ready and initialised by a manager that runs.
    pub(crate) async fn join_both(&self) {
        for (name, uuid) in ["node-1", "node-2"].into_iter().zip(UUIDS) {
            self.register(name, uuid, None).await;
            self.ready(name, true).await;
        }
        for name in ["node-1", "node-2"] {
            self.until(name, "initialised", is_initialised).await;
        }
    }

    /// Reports whether the kubelet is ready.
    pub(crate) async fn ready(&self, name: &str, ready: bool) {
        report_ready(&self.nodes, name, ready).await.unwrap();
    }

    /// Waits until all Nodes were planned twice: another one is tainted and untainted meanwhile.
    pub(crate) async fn until_two_rounds_passed(&self) {
        self.vcenter.control().power("node-2", Power::Off).await.unwrap();
        self.ready("node-2", false).await;
        self.until("node-2", "tainted", |node| has_taint(node, SHUTDOWN)).await;
        self.vcenter.control().power("node-2", Power::On).await.unwrap();
        self.ready("node-2", true).await;
        self.until("node-2", "not tainted", |node| !has_taint(node, SHUTDOWN)).await;
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

    /// Waits until a Node has this address.
    pub(crate) async fn until_at(&self, name: &str, ip: &str) -> Node {
        let there = |node: &_| addresses(node).get("InternalIP").is_some_and(|own| own == ip);
        self.until(name, "its new address", there).await
    }

    /// The sessions of a user that vCenter has.
    pub(crate) async fn sessions(&self, user: &str) -> usize {
        let state = self.vcenter.control().state_as_json().await.unwrap();
        let of_user = |session: &&serde_json::Value| {
            session["user"].as_str().unwrap_or_default().to_lowercase().contains(user)
        };
        state["sessions"].as_array().unwrap().iter().filter(of_user).count()
    }

    /// How many events with this reason there are about all Nodes together.
    pub(crate) async fn event_count(&self, reason: &str) -> i32 {
        let events: Api<Event> = Api::namespaced(self.plane.client(), "default");
        let all = events.list(&ListParams::default()).await.unwrap().items;
        let about = all.iter().filter(|event| event.reason.as_deref() == Some(reason));
        about.map(|event| event.count.unwrap_or(0)).sum()
    }
}

/// How a vCenter of the lab is trusted.
pub(crate) fn trust(vcenter: &VCenter) -> Trust {
    Trust::Verify { roots: Roots::File(vcenter.authority().to_owned()), thumbprint: None }
}
