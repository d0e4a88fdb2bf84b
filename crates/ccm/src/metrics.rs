//! The metrics of the cloud controller manager: under Kubernetes' names where it has them, else under ours.

use jiff::{SignedDuration, Timestamp};
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry},
};

/// Kubernetes' buckets for both delays, in seconds.
const DELAYS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// Names and values of labels.
type Labels<Value, const N: usize> = [(&'static str, Value); N];

/// Clones share the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) vsphere: vsphere::metrics::Metrics,
    pub(crate) vcenters: vcenter::Metrics,
    taint_removal: Histogram,
    initial_sync: Histogram,
    running: Family<Labels<&'static str, 2>, Gauge>,
    decisions: Family<Labels<&'static str, 1>, Counter>,
    nodes: Family<Labels<String, 1>, Gauge>,
    configurations: Family<Labels<&'static str, 1>, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::registered(&mut Registry::default())
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn registered(registry: &mut Registry) -> Self {
        fn add<M: Metric + Clone>(to: &mut Registry, name: &str, help: &str, metric: M) -> M {
            to.register(name, help, metric.clone());
            metric
        }
        let delay = || Histogram::new(DELAYS);
        let name = "node_controller_cloud_provider_taint_removal_delay_seconds";
        let help = "Time from the creation of a Node until its taint was removed";
        let taint_removal = add(registry, name, help, delay());
        let name = "node_controller_initial_node_sync_delay_seconds";
        let help = "Time from the creation of a Node until it was initialised with its addresses";
        let initial_sync = add(registry, name, help, delay());
        let (name, help) = ("running_managed_controllers", "Controllers that run in this process");
        let running = add(registry, name, help, Family::default());
        let (name, help) = ("vsphere_ccm_decisions", "What was done to Nodes, by decision");
        let decisions = add(registry, name, help, Family::default());
        let help = "Nodes by the reason of their condition VSphereReady";
        let nodes = add(registry, "vsphere_ccm_nodes", help, Family::default());
        let help = "Times that a changed configuration was read, by result";
        let configurations =
            add(registry, "vsphere_ccm_configurations_read", help, Family::default());
        Self {
            vsphere: vsphere::metrics::Metrics::registered(registry),
            vcenters: vcenter::Metrics::registered(registry, "vsphere_ccm"),
            taint_removal,
            initial_sync,
            running,
            decisions,
            nodes,
            configurations,
        }
    }

    pub(crate) fn runs(&self, name: &'static str) {
        let labels = [("name", name), ("manager", "cloud-controller-manager")];
        self.running.get_or_create(&labels).set(1);
    }

    pub(crate) fn decided(&self, decision: &'static str) {
        self.decisions.get_or_create(&[("decision", decision)]).inc();
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
            self.nodes.get_or_create(&[("reason", reason)]).inc();
        }
    }

    pub(crate) fn configuration(&self, accepted: bool) {
        let result = if accepted { "accepted" } else { "refused" };
        self.configurations.get_or_create(&[("result", result)]).inc();
    }
}
