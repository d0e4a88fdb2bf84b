//! The metrics of the CSI driver: under the Go driver's names where it has them, with finer buckets.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use tokio::time::Instant;

use crate::{
    attach,
    refusal::{Kind, Refusal},
};

/// The Go driver's buckets, in seconds, and smaller ones: most operations take less than its first.
const BUCKETS: [f64; 15] =
    [0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0, 120.0, 180.0];

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Clones share the same metrics.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) vsphere: vsphere::metrics::Metrics,
    pub(crate) vcenters: vcenter::Metrics,
    pub(crate) attach: attach::Metrics,
    operations: Family<Labels<4>, Histogram, fn() -> Histogram>,
}

/// What is counted as an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Delete,
    Attach,
    Detach,
    Expand,
    List,
    CreateSnapshot,
    DeleteSnapshot,
    ListSnapshots,
}

impl Operation {
    /// As the Go driver names it.
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create-volume",
            Self::Delete => "delete-volume",
            Self::Attach => "attach-volume",
            Self::Detach => "detach-volume",
            Self::Expand => "expand-volume",
            Self::List => "list-volume",
            Self::CreateSnapshot => "create-snapshot",
            Self::DeleteSnapshot => "delete-snapshot",
            Self::ListSnapshots => "list-snapshot",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::registered(&mut Registry::default())
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn registered(registry: &mut Registry) -> Self {
        let info = Family::<Labels<1>, Gauge<u64, AtomicU64>>::default();
        info.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        registry.register("vsphere_csi_info", "The version of the driver", info);
        let operations: Family<Labels<4>, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(BUCKETS));
        let help = "Seconds that operations on volumes took";
        registry.register("vsphere_csi_volume_ops_histogram", help, operations.clone());
        Self {
            vsphere: vsphere::metrics::Metrics::registered_as_go_csi(registry),
            vcenters: vcenter::Metrics::registered(registry, "vsphere_csi"),
            attach: attach::Metrics::registered(registry),
            operations,
        }
    }

    /// Measures an operation from now on.
    pub(crate) fn start(&self, operation: Operation) -> Running {
        Running { operation, began: Instant::now(), operations: self.operations.clone() }
    }
}

/// An operation whose time is measured.
pub(crate) struct Running {
    operation: Operation,
    began: Instant,
    operations: Family<Labels<4>, Histogram, fn() -> Histogram>,
}

impl Running {
    /// Counts the operation by how it ended, and passes the result on.
    pub(crate) fn ended<T>(self, done: Result<T, Refusal>) -> Result<T, Refusal> {
        let (status, fault) = match &done {
            Ok(_) => ("pass", ""),
            Err(refusal) => ("fail", fault(refusal.kind)),
        };
        let labels = [
            ("voltype", "block"),
            ("optype", self.operation.name()),
            ("status", status),
            ("faulttype", fault),
        ];
        self.operations.get_or_create(&labels).observe(self.began.elapsed().as_secs_f64());
        done
    }
}

/// A closed set, in the form of the Go driver's own faults.
fn fault(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "csi.fault.InvalidArgument",
        Kind::NotFound => "csi.fault.NotFound",
        Kind::Differs => "csi.fault.AlreadyExists",
        Kind::Precondition => "csi.fault.FailedPrecondition",
        Kind::Exhausted => "csi.fault.ResourceExhausted",
        Kind::OutOfRange => "csi.fault.OutOfRange",
        Kind::Busy => "csi.fault.Aborted",
        Kind::Denied => "csi.fault.PermissionDenied",
        Kind::Unauthenticated => "csi.fault.Unauthenticated",
        Kind::Unavailable => "csi.fault.nonstorage.Unavailable",
        Kind::Unfinished => "csi.fault.DeadlineExceeded",
        Kind::Internal => "csi.fault.Internal",
    }
}
