//! What the attach controller counts beside its operations, which the driver's own metrics have.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Metric, Registry},
};

/// Names and values of labels.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Clones share the same metrics.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pending: Family<Labels<1>, Gauge>,
    corrections: Counter,
    writes: Family<Labels<1>, Counter>,
}

impl Metrics {
    /// Registers all metrics.
    pub(crate) fn registered(registry: &mut Registry) -> Self {
        fn add<M: Metric + Clone>(to: &mut Registry, name: &str, help: &str, metric: M) -> M {
            to.register(format!("vsphere_csi_attach_{name}"), help, metric.clone());
            metric
        }
        let help = "VolumeAttachments that wait to be attached or detached";
        let pending = add(registry, "pending", help, Family::default());
        let help = "Volumes that were attached again because vCenter had lost them";
        let corrections = add(registry, "corrections", help, Counter::default());
        let help = "Writes to VolumeAttachments, PersistentVolumes and CSINodes, by result";
        let writes = add(registry, "writes", help, Family::default());
        Self { pending, corrections, writes }
    }

    pub(crate) fn pending(&self, attach: usize, detach: usize) {
        for (operation, count) in [("attach", attach), ("detach", detach)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.pending.get_or_create(&[("operation", operation)]).set(count);
        }
    }

    pub(crate) fn corrected(&self) {
        self.corrections.inc();
    }

    pub(crate) fn wrote(&self, result: &'static str) {
        self.writes.get_or_create(&[("result", result)]).inc();
    }
}
