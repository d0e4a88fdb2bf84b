//! What must change on a Node so that it agrees with its VM.
//!
//! [`plan`] compares a Node with its VM and returns the difference: one patch of metadata and spec, one of the
//! status, and events. A Node that agrees with its VM needs none.
//!
//! A Node with the taint of uninitialised Nodes is initialised: it gets provider id, labels and addresses and
//! loses the taint. That happens at once or not at all; the condition reports what is missing. Zones are the
//! exception: a Node is initialised without them and gets them when they are known. Later only addresses are
//! refreshed, labels are kept consistent, and zones follow their [policy](crate::plan::zones::Policy).

mod change;
mod condition;
mod initialise;
mod labels;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::ResourceExt;
use vcenter::Place;
use vsphere::inventory::{Nic, PowerState};

use self::condition::Condition;
#[cfg(test)]
pub(crate) use self::condition::{Reason, Status};
pub(crate) use self::{
    change::{Event, NodeChange, Summary},
    condition::of_type as condition,
};
use crate::{
    observe::discovery::{Finding, Machine},
    plan::{
        addresses::{self, Guest, Selection, metadata::Metadata, node_ip},
        taints::{self, UNINITIALIZED},
        zones,
    },
    provider_id::{self, Reading},
};

/// An outage that lasts longer is reported by Nodes that wait to be initialised: their users are watching.
const SHORT_PATIENCE: SignedDuration = SignedDuration::from_secs(10);
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) addresses: addresses::Settings,
    /// When zones change after initialisation.
    pub(crate) zones: zones::Policy,
    /// For every Node that is initialised.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether Nodes get labels with the names of host, cluster and datacenter.
    pub(crate) place_labels: bool,
    /// Whether Nodes without provider id are initialised even if they do not have the taint.
    pub(crate) adopt: bool,
    /// How long a vCenter may be unavailable before Nodes report it.
    pub(crate) patience: SignedDuration,
}

/// What is known of a Node's VM; everything but the finding is about the VM that was found.
#[derive(Debug, Clone)]
pub(crate) struct Observed<'a> {
    pub(crate) finding: Finding<'a>,
    pub(crate) nics: &'a [Nic],
    /// Whether the guest has reported the same for a while, so that it is not just starting.
    pub(crate) steady: bool,
    pub(crate) metadata: Option<Metadata<'a>>,
    pub(crate) zones: zones::Zones,
    pub(crate) place: Place,
}

/// What must change on a Node so that it agrees with its VM.
pub(crate) fn plan(
    node: &Node,
    observed: &Observed<'_>,
    settings: &Settings,
    now: Timestamp,
) -> NodeChange {
    let reading = Reading::of(provider_id::of(node));
    let adopted = settings.adopt && reading == Reading::Absent;
    let initialises = taints::has(node, UNINITIALIZED) || adopted;
    let machine = match &observed.finding {
        _ if matches!(reading, Reading::Foreign(_)) => return NodeChange::default(),
        Finding::NotOurs => return NodeChange::default(),
        Finding::Found(machine, _) => machine,
        other => {
            let ours = initialises
                || reading != Reading::Absent
                || condition::vsphere_ready(node).is_some();
            if !ours && matches!(other, Finding::Absent(_) | Finding::Unknown(_)) {
                // A machine that is not a VM, such as bare metal, and that no kubelet wants initialised.
                return NodeChange::default();
            }
            let patience =
                if initialises { settings.patience.min(SHORT_PATIENCE) } else { settings.patience };
            let verdict = condition::of_finding(other, patience, now);
            let summary = Summary { condition: verdict, ..Summary::default() };
            return NodeChange::new(node, summary, now);
        }
    };
    let fresh = addresses_of(node, machine, observed, settings);
    let (mut summary, condition) = if initialises {
        let fresh = fresh.and_then(|one| initialise::believed(node, one, observed.steady, now));
        initialise::initialise(node, machine, observed, settings, &reading, fresh)
    } else {
        initialise::refresh(node, machine, observed, settings, &reading, fresh)
    };
    summary.condition = Some(condition);
    NodeChange::new(node, summary, now)
}

/// The addresses that the Node should have by what guest and kubelet report, or why there are none.
fn addresses_of(
    node: &Node,
    machine: &Machine<'_>,
    observed: &Observed<'_>,
    settings: &Settings,
) -> Result<Selection, Condition> {
    let vm = machine.vm;
    let off = matches!(vm.power, PowerState::Off | PowerState::Suspended);
    if off && observed.nics.iter().all(|nic| nic.addresses.is_empty()) {
        return Err(condition::powered_off(&vm.power));
    }
    let had = current_addresses(node).iter().find(|one| one.type_ == addresses::HOSTNAME);
    let guest = Guest {
        tools_run: vm.tools_run(),
        host_name: vm.host_name.as_deref(),
        kubelet_name: had.map(|one| one.address.as_str()),
        nics: observed.nics,
        first_address: vm.ip_address.as_ref().and_then(|text| text.parse().ok()),
        metadata: observed.metadata,
    };
    let families = settings.addresses.families_of(machine.vcenter);
    let selected = addresses::select(&guest, families, &settings.addresses)
        .map_err(|error| condition::of_addresses(&error))?;
    match node.annotations().get(node_ip::PROVIDED_NODE_IP) {
        None => Ok(selected),
        Some(annotation) => node_ip::prefer(annotation, &selected.addresses)
            .map(|addresses| Selection { addresses, ..selected })
            .map_err(|error| condition::of_node_ip(&error)),
    }
}

/// The reason of the Node's condition, for metrics.
pub(crate) fn standing(node: &Node) -> String {
    let reason = condition::vsphere_ready(node).and_then(|condition| condition.reason.clone());
    reason.unwrap_or_else(|| "None".to_owned())
}

fn current_addresses(node: &Node) -> &[NodeAddress] {
    let status = node.status.as_ref();
    status.and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
