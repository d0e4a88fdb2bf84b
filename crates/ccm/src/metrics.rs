//! What the cloud controller manager counts: Kubernetes' own names where it has them, and ours.

use std::sync::atomic::AtomicU64;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Kubernetes' buckets for both delays, in seconds.
const DELAYS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Running {
    name: &'static str,
    manager: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    decision: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Standing {
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VCenter {
    vcenter: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Read {
    result: &'static str,
}

/// The metrics of a manager; clones count into the same ones.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Those of the connections to vCenters.
    pub vsphere: vsphere::metrics::Metrics,
    taint_removal: Histogram,
    initial_sync: Histogram,
    running: Family<Running, Gauge>,
    decisions: Family<Decided, Counter>,
    nodes: Family<Standing, Gauge>,
    answers: Family<VCenter, Gauge>,
    machines: Family<VCenter, Gauge>,
    last_answer: Family<VCenter, Gauge<f64, AtomicU64>>,
    configurations: Family<Read, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            vsphere: vsphere::metrics::Metrics::default(),
            taint_removal: Histogram::new(DELAYS),
            initial_sync: Histogram::new(DELAYS),
            running: Family::default(),
            decisions: Family::default(),
            nodes: Family::default(),
            answers: Family::default(),
            machines: Family::default(),
            last_answer: Family::default(),
            configurations: Family::default(),
        }
    }
}

impl Metrics {
    /// Metrics that the registry exposes.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics =
            Self { vsphere: vsphere::metrics::Metrics::registered(registry), ..Self::default() };
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "Time from the creation of a Node until its taint was removed",
            metrics.taint_removal.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "Time from the creation of a Node until it was initialised with its addresses",
            metrics.initial_sync.clone(),
        );
        registry.register(
            "running_managed_controllers",
            "Controllers that run in this process",
            metrics.running.clone(),
        );
        registry.register(
            "vsphere_ccm_decisions",
            "What was done to Nodes, by decision",
            metrics.decisions.clone(),
        );
        registry.register(
            "vsphere_ccm_nodes",
            "Nodes by the reason of their condition VSphereReady",
            metrics.nodes.clone(),
        );
        registry.register(
            "vsphere_ccm_vcenter_up",
            "Whether all that is known of a vCenter is current",
            metrics.answers.clone(),
        );
        registry.register(
            "vsphere_ccm_vcenter_virtual_machines",
            "Virtual machines that a vCenter shows",
            metrics.machines.clone(),
        );
        registry.register(
            "vsphere_ccm_vcenter_last_answer_timestamp_seconds",
            "When a vCenter last answered",
            metrics.last_answer.clone(),
        );
        registry.register(
            "vsphere_ccm_configurations_read",
            "Times that a changed configuration was read, by result",
            metrics.configurations.clone(),
        );
        metrics
    }

    /// That a controller runs here.
    pub(crate) fn runs(&self, name: &'static str) {
        let label = Running { name, manager: "cloud-controller-manager" };
        self.running.get_or_create(&label).set(1);
    }

    /// That something was done to a Node.
    pub(crate) fn decided(&self, decision: &'static str) {
        self.decisions.get_or_create(&Decided { decision }).inc();
    }

    /// That a Node, created then, is initialised now.
    pub(crate) fn initialised(&self, created: Option<Timestamp>, now: Timestamp) {
        let Some(created) = created else { return };
        let delay = now.duration_since(created).max(SignedDuration::ZERO).as_secs_f64();
        self.taint_removal.observe(delay);
        self.initial_sync.observe(delay);
    }

    /// How many Nodes have which reason; reasons that no Node has any more are forgotten.
    pub(crate) fn count_nodes(&self, reasons: impl Iterator<Item = String>) {
        self.nodes.clear();
        for reason in reasons {
            self.nodes.get_or_create(&Standing { reason }).inc();
        }
    }

    /// How a vCenter stands.
    pub(crate) fn vcenter(&self, name: &str, current: bool, machines: usize, answered: Timestamp) {
        let label = VCenter { vcenter: name.to_owned() };
        self.answers.get_or_create(&label).set(i64::from(current));
        self.machines.get_or_create(&label).set(i64::try_from(machines).unwrap_or(i64::MAX));
        self.last_answer.get_or_create(&label).set(answered.as_duration().as_secs_f64());
    }

    /// That no vCenter is followed any more.
    pub(crate) fn forget_vcenters(&self) {
        self.answers.clear();
        self.machines.clear();
        self.last_answer.clear();
    }

    /// That a configuration was read.
    pub(crate) fn configuration(&self, accepted: bool) {
        let result = if accepted { "accepted" } else { "refused" };
        self.configurations.get_or_create(&Read { result }).inc();
    }
}
