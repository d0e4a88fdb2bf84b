//! The taints of Nodes whose VM is off.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};
use vsphere::inventory::{ConnectionState, PowerState, Vm};

use crate::{
    observe::discovery::Finding,
    plan::{
        lifecycle::{Decision, Settings},
        taints::{self, NO_EXECUTE, NO_SCHEDULE, OUT_OF_SERVICE, SHUTDOWN},
    },
};

/// The value by which a taint that takes a Node out of service is known to be ours.
const OURS: &str = "vsphere-powered-off";

/// A ready Node runs, whatever vCenter reports.
pub(super) fn of_ready(node: &Node) -> Decision {
    without(node, |taint| is_shutdown(taint) || is_ours(taint))
}

/// A Node that is not ready, perhaps because its VM is off.
pub(super) fn of_unready(
    node: &Node,
    finding: &Finding<'_>,
    settings: &Settings,
    now: Timestamp,
) -> Decision {
    let Finding::Found(machine, _) = finding else { return Decision::Keep };
    match machine.vm.power {
        PowerState::Off | PowerState::Suspended => shut_down(node, machine.vm, settings, now),
        // Only the kubelet can report that the Node is back. Its volumes, though, must not move while it runs.
        PowerState::On => without(node, is_ours),
        PowerState::Standby | PowerState::Unknown | PowerState::Other(_) => Decision::Keep,
    }
}

fn shut_down(node: &Node, vm: &Vm, settings: &Settings, now: Timestamp) -> Decision {
    let mut taints = taints::of(node).to_vec();
    if !taints.iter().any(is_shutdown) {
        taints.push(taints::new(SHUTDOWN, NO_SCHEDULE, None, now));
    }
    // A disconnected host may still run a VM that vCenter believes to be off, and a suspended VM may resume.
    let certain = vm.power == PowerState::Off && vm.connection == ConnectionState::Connected;
    if !certain {
        taints.retain(|taint| !is_ours(taint));
    } else if settings.out_of_service && !taints.iter().any(|taint| taint.key == OUT_OF_SERVICE) {
        taints.push(taints::new(OUT_OF_SERVICE, NO_EXECUTE, Some(OURS), now));
    }
    if taints == taints::of(node) {
        return Decision::Keep;
    }
    Decision::TaintShutdown(patch(node, &taints))
}

fn without(node: &Node, goes: impl Fn(&Taint) -> bool) -> Decision {
    let kept: Vec<Taint> = taints::of(node).iter().filter(|taint| !goes(taint)).cloned().collect();
    if kept.len() == taints::of(node).len() {
        return Decision::Keep;
    }
    Decision::Untaint(patch(node, &kept))
}

fn is_shutdown(taint: &Taint) -> bool {
    taints::is(taint, SHUTDOWN, NO_SCHEDULE)
}

fn is_ours(taint: &Taint) -> bool {
    taints::is(taint, OUT_OF_SERVICE, NO_EXECUTE) && taint.value.as_deref() == Some(OURS)
}

/// The patch replaces the whole list of taints, so it holds the resource version that it was planned on.
fn patch(node: &Node, taints: &[Taint]) -> Value {
    json!({
        "metadata": { "resourceVersion": node.metadata.resource_version },
        "spec": { "taints": taints },
    })
}
