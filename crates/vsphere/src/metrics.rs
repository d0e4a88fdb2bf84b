//! Metrics of connections.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// From a millisecond to the longest timeout.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    vcenter: String,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailedCall {
    vcenter: String,
    method: &'static str,
    remedy: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Login {
    vcenter: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VCenter {
    vcenter: String,
}

type CallSeconds = Family<Call, Histogram, fn() -> Histogram>;

/// The metrics of all connections that share it; each has the vCenter as a label.
#[derive(Debug, Clone)]
pub struct Metrics {
    seconds: CallSeconds,
    failures: Family<FailedCall, Counter>,
    logins: Family<Login, Counter>,
    sessions: Family<VCenter, Gauge>,
    watch_answered: Family<VCenter, Gauge<f64, std::sync::atomic::AtomicU64>>,
    watch_restarts: Family<VCenter, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            failures: Family::default(),
            logins: Family::default(),
            sessions: Family::default(),
            watch_answered: Family::default(),
            watch_restarts: Family::default(),
        }
    }
}

impl Metrics {
    /// Metrics that the registry exposes.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "vsphere_call_duration_seconds",
            "Time until vCenter answered, by method; long polls are not counted",
            metrics.seconds.clone(),
        );
        registry.register(
            "vsphere_call_failures",
            "Calls that failed, by method and remedy",
            metrics.failures.clone(),
        );
        registry.register(
            "vsphere_logins",
            "Attempts to log in, by result",
            metrics.logins.clone(),
        );
        registry.register(
            "vsphere_open_sessions",
            "Sessions that are logged in",
            metrics.sessions.clone(),
        );
        registry.register(
            "vsphere_watch_last_answer_timestamp_seconds",
            "When vCenter last answered a watch; now minus this is the watch's lag",
            metrics.watch_answered.clone(),
        );
        registry.register(
            "vsphere_watch_restarts",
            "Watches that had to start anew, for a lost session or a restart of vCenter",
            metrics.watch_restarts.clone(),
        );
        metrics
    }

    pub(crate) fn of(&self, vcenter: &Arc<str>) -> Recorder {
        Recorder { metrics: self.clone(), vcenter: Arc::clone(vcenter) }
    }
}

/// The metrics of one vCenter.
#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    metrics: Metrics,
    vcenter: Arc<str>,
}

impl Recorder {
    pub(crate) fn answered(&self, method: &'static str, after: Duration) {
        let call = Call { vcenter: self.vcenter.to_string(), method };
        self.metrics.seconds.get_or_create(&call).observe(after.as_secs_f64());
    }

    pub(crate) fn failed(&self, method: &'static str, remedy: &'static str) {
        let call = FailedCall { vcenter: self.vcenter.to_string(), method, remedy };
        self.metrics.failures.get_or_create(&call).inc();
    }

    pub(crate) fn login(&self, result: &'static str) {
        let login = Login { vcenter: self.vcenter.to_string(), result };
        self.metrics.logins.get_or_create(&login).inc();
    }

    pub(crate) fn session_opened(&self) {
        self.metrics.sessions.get_or_create(&self.label()).inc();
    }

    pub(crate) fn session_ended(&self) {
        self.metrics.sessions.get_or_create(&self.label()).dec();
    }

    pub(crate) fn watch_answered(&self) {
        let now = jiff::Timestamp::now().as_duration().as_secs_f64();
        self.metrics.watch_answered.get_or_create(&self.label()).set(now);
    }

    pub(crate) fn watch_restarted(&self) {
        self.metrics.watch_restarts.get_or_create(&self.label()).inc();
    }

    fn label(&self) -> VCenter {
        VCenter { vcenter: self.vcenter.to_string() }
    }
}
