//! Metrics of connections.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// From a millisecond to the longest timeout.
const BUCKETS: [f64; 12] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 120.0];

/// Those of the Go CSI driver, in seconds, and smaller ones: most requests take less than its first.
const GO_BUCKETS: [f64; 17] = [
    0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 60.0, 120.0,
    180.0,
];

type Labels<const N: usize> = [(&'static str, String); N];
type Seconds<const N: usize> =
    Family<[(&'static str, &'static str); N], Histogram, fn() -> Histogram>;
type CallSeconds = Family<Labels<2>, Histogram, fn() -> Histogram>;

/// The metrics of all connections that share it; each has the vCenter as a label.
#[derive(Debug, Clone)]
pub struct Metrics {
    seconds: CallSeconds,
    failures: Family<Labels<3>, Counter>,
    logins: Family<Labels<2>, Counter>,
    sessions: Family<Labels<1>, Gauge>,
    watch_answered: Family<Labels<1>, Gauge<f64, AtomicU64>>,
    watch_restarts: Family<Labels<1>, Counter>,
    requests: Seconds<3>,
    operations: Seconds<2>,
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
            requests: Family::new_with_constructor(|| Histogram::new(GO_BUCKETS)),
            operations: Family::new_with_constructor(|| Histogram::new(GO_BUCKETS)),
        }
    }
}

impl Metrics {
    /// Metrics that the registry exposes.
    pub fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { seconds, failures, logins, sessions, watch_answered, watch_restarts, .. } =
            metrics.clone();
        let help = "Time until vCenter answered, by method; long polls are not counted";
        registry.register("vsphere_call_duration_seconds", help, seconds);
        let help = "Calls that failed, by method and remedy";
        registry.register("vsphere_call_failures", help, failures);
        registry.register("vsphere_logins", "Attempts to log in, by result", logins);
        registry.register("vsphere_open_sessions", "Sessions that are logged in", sessions);
        let help = "When vCenter last answered a watch; now minus this is the watch's lag";
        registry.register("vsphere_watch_last_answer_timestamp_seconds", help, watch_answered);
        let help = "Watches that had to start anew, for a lost session or a restart of vCenter";
        registry.register("vsphere_watch_restarts", help, watch_restarts);
        metrics
    }

    /// The same with the metrics of the Go CSI driver, under its names.
    pub fn registered_as_go_csi(registry: &mut Registry) -> Self {
        let metrics = Self::registered(registry);
        let Self { requests, operations, .. } = metrics.clone();
        let help = "Seconds of requests to vCenter; long polls are not counted";
        registry.register("vsphere_request_ops_seconds", help, requests);
        let help = "Seconds of operations of CNS, from the call to the end of its task";
        registry.register("vsphere_cns_volume_ops_histogram", help, operations);
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
    pub(crate) fn answered(&self, method: &str, after: Duration) {
        let call = [self.label(), ("method", method.to_owned())];
        self.metrics.seconds.get_or_create(&call).observe(after.as_secs_f64());
    }

    /// A request that was answered or failed. `client` is the service as the Go CSI driver names it.
    pub(crate) fn request(
        &self,
        method: &'static str,
        client: &'static str,
        succeeded: bool,
        after: Duration,
    ) {
        let status = if succeeded { "success" } else { "fail-unknown" };
        let labels = [("request", method), ("client", client), ("status", status)];
        self.metrics.requests.get_or_create(&labels).observe(after.as_secs_f64());
    }

    /// An operation of CNS that ended, named as the Go CSI driver names it.
    pub(crate) fn cns_operation(&self, name: &'static str, succeeded: bool, after: Duration) {
        let status = if succeeded { "pass" } else { "fail" };
        let labels = [("optype", name), ("status", status)];
        self.metrics.operations.get_or_create(&labels).observe(after.as_secs_f64());
    }

    pub(crate) fn failed(&self, method: &str, remedy: &str) {
        let call = [self.label(), ("method", method.to_owned()), ("remedy", remedy.to_owned())];
        self.metrics.failures.get_or_create(&call).inc();
    }

    pub(crate) fn login(&self, result: &str) {
        let login = [self.label(), ("result", result.to_owned())];
        self.metrics.logins.get_or_create(&login).inc();
    }

    pub(crate) fn session_opened(&self) {
        self.metrics.sessions.get_or_create(&[self.label()]).inc();
    }

    pub(crate) fn session_ended(&self) {
        self.metrics.sessions.get_or_create(&[self.label()]).dec();
    }

    pub(crate) fn watch_answered(&self) {
        let now = jiff::Timestamp::now().as_duration().as_secs_f64();
        self.metrics.watch_answered.get_or_create(&[self.label()]).set(now);
    }

    pub(crate) fn watch_restarted(&self) {
        self.metrics.watch_restarts.get_or_create(&[self.label()]).inc();
    }

    fn label(&self) -> (&'static str, String) {
        ("vcenter", self.vcenter.to_string())
    }
}
