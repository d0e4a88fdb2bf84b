//! Reports the health of vCenters: to probes, in `/readyz?verbose` and as metrics.
//!
//! One vCenter that does not answer is a detail; the process is not ready when none does.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use daemon::{
    admin::{Check, Checks, Weight},
    supervise::Tasks,
};
use futures::future::select_all;
use jiff::Timestamp;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::{sync::watch, time::sleep};

use crate::{Health, View, view::Published};

/// Changes that come within this time are reported together.
const TOGETHER: Duration = Duration::from_secs(1);

type Label = [(&'static str, String); 1];

/// Gauges per vCenter; clones write the same ones.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    up: Family<Label, Gauge>,
    machines: Family<Label, Gauge>,
    last_answer: Family<Label, Gauge<f64, AtomicU64>>,
}

impl Metrics {
    /// Metrics that the registry exposes, their names beginning with that of a program: `vsphere_ccm`.
    pub fn registered(registry: &mut Registry, program: &str) -> Self {
        let metrics = Self::default();
        let Self { up, machines, last_answer } = metrics.clone();
        let registry = registry.sub_registry_with_prefix(format!("{program}_vcenter"));
        registry.register("up", "Whether all that is known of a vCenter is current", up);
        registry.register("virtual_machines", "Virtual machines that a vCenter shows", machines);
        let help = "When a vCenter last answered";
        registry.register("last_answer_timestamp_seconds", help, last_answer);
        metrics
    }

    fn set(&self, vcenter: &str, up: bool, machines: usize, answered: Timestamp) {
        let labels = [("vcenter", vcenter.to_owned())];
        self.up.get_or_create(&labels).set(i64::from(up));
        self.machines.get_or_create(&labels).set(i64::try_from(machines).unwrap_or(i64::MAX));
        self.last_answer.get_or_create(&labels).set(answered.as_duration().as_secs_f64());
    }

    fn clear(&self) {
        self.up.clear();
        self.machines.clear();
        self.last_answer.clear();
    }
}

/// Keeps a readiness check over all vCenters, a detail and metrics for each, in a task of `tasks`. All of them
/// are removed when it ends.
pub fn report_health<'a>(
    views: impl IntoIterator<Item = &'a View>,
    checks: &Checks,
    metrics: &Metrics,
    tasks: &mut Tasks,
) {
    let all = checks.register("vcenters", Weight::Readiness);
    let register = |view: &View| {
        let check = checks.register(&format!("vcenter/{}", view.snapshot().name), Weight::Detail);
        (view.subscribe(), check)
    };
    let mut each: Vec<_> = views.into_iter().map(register).collect();
    let metrics = metrics.clone();
    tasks.spawn("vcenter-health", |shutdown| async move {
        loop {
            report(&all, &mut each, &metrics);
            let changes = each.iter_mut().map(|(state, _)| Box::pin(state.changed()));
            let changed = shutdown.unless(select_all(changes)).await;
            if !matches!(changed, Some((Ok(()), ..))) {
                shutdown.requested().await;
                metrics.clear();
                return Ok::<_, Infallible>(());
            }
            shutdown.unless(sleep(TOGETHER)).await;
        }
    });
}

fn report(all: &Check, each: &mut [(watch::Receiver<Published>, Check)], metrics: &Metrics) {
    let (mut available, mut reasons) = (0, Vec::new());
    for (state, check) in &mut *each {
        let snapshot = Arc::clone(&state.borrow_and_update().snapshot);
        let (health, machines) = (snapshot.health(), snapshot.vm_count());
        let current = matches!(health, Health::Current { .. });
        metrics.set(&snapshot.name, current, machines, snapshot.answered);
        available += usize::from(!matches!(health, Health::Unavailable(_)));
        match health {
            Health::Current { .. } => check.pass(format!("{machines} virtual machines")),
            Health::Partial(outage) => check.fail(outage.why),
            Health::Unavailable(outage) => {
                reasons.push(format!("{}: {}", snapshot.name, outage.why));
                check.fail(outage.why);
            }
        }
    }
    match available {
        0 => all.fail(reasons.join("; ")),
        _ => all.pass(format!("{available} of {} answer", each.len())),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::Metrics;

    #[test]
    fn metrics_carry_the_name_of_the_program() {
        let mut registry = Registry::default();
        let metrics = Metrics::registered(&mut registry, "vsphere_ccm");
        metrics.set("one", true, 7, Timestamp::UNIX_EPOCH);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "vsphere_ccm_vcenter_up{vcenter=\"one\"} 1",
            "vsphere_ccm_vcenter_virtual_machines{vcenter=\"one\"} 7",
            "vsphere_ccm_vcenter_last_answer_timestamp_seconds{vcenter=\"one\"} 0.0",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
