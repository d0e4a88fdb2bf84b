//! The metrics of the cloud controller manager: under Kubernetes' names where it has them, else under ours.

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
struct Read {
    result: &'static str,
}

/// Clones share the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) vsphere: vsphere::metrics::Metrics,
    pub(crate) vcenters: vcenter::Metrics,
    taint_removal: Histogram,
    initial_sync: Histogram,
    running: Family<Running, Gauge>,
    decisions: Family<Decided, Counter>,
    nodes: Family<Standing, Gauge>,
    configurations: Family<Read, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            vsphere: vsphere::metrics::Metrics::default(),
            vcenters: vcenter::Metrics::default(),
            taint_removal: Histogram::new(DELAYS),
            initial_sync: Histogram::new(DELAYS),
            running: Family::default(),
            decisions: Family::default(),
            nodes: Family::default(),
            configurations: Family::default(),
        }
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self {
            vsphere: vsphere::metrics::Metrics::registered(registry),
            vcenters: vcenter::Metrics::registered(registry, "vsphere_ccm"),
            ..Self::default()
        };
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
            "vsphere_ccm_configurations_read",
            "Times that a changed configuration was read, by result",
            metrics.configurations.clone(),
        );
        metrics
    }

    pub(crate) fn runs(&self, name: &'static str) {
        let label = Running { name, manager: "cloud-controller-manager" };
        self.running.get_or_create(&label).set(1);
    }

    pub(crate) fn decided(&self, decision: &'static str) {
        self.decisions.get_or_create(&Decided { decision }).inc();
    }

    pub(crate) fn initialised(&self, created: Option<Timestamp>, now: Timestamp) {
        let Some(created) = created else { return };
        let delay = now.duration_since(created).max(SignedDuration::ZERO).as_secs_f64();
        self.taint_removal.observe(delay);
        self.initial_sync.observe(delay);
    }

    /// Sets the number of Nodes per reason; other reasons are removed.
    pub(crate) fn count_nodes(&self, reasons: impl Iterator<Item = String>) {
        self.nodes.clear();
        for reason in reasons {
            self.nodes.get_or_create(&Standing { reason }).inc();
        }
    }

    pub(crate) fn configuration(&self, accepted: bool) {
        let result = if accepted { "accepted" } else { "refused" };
        self.configurations.get_or_create(&Read { result }).inc();
    }
}
