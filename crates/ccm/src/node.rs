//! What must change on a Node so that it says the truth about its VM.
//!
//! [`plan`] compares a Node with what was found and gives the difference: one patch of its metadata and spec,
//! one of its status, and what to tell the user. A Node that is right gives nothing.
//!
//! A Node with the taint of uninitialised Nodes is initialised: provider id, labels and addresses, then the
//! taint goes. That happens at once or not at all; what is missing stands in the condition. Zones are the
//! exception: without them a Node is initialised and gets them when they are known. Later only addresses are
//! refreshed, labels are kept consistent, and zones follow their [policy](crate::zones::Policy).

mod condition;
mod initialise;
mod labels;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use serde_json::{Value, json};
use vsphere::inventory::{Nic, PowerState};

pub use self::condition::{Condition, Reason, Status, VSPHERE_READY};
use self::initialise::Outcome;
use crate::{
    addresses::{self, Guest, Selection, metadata::Metadata, node_ip},
    discovery::{Finding, Machine},
    provider_id::{ProviderId, Reading},
    taints::{self, UNINITIALIZED},
    zones,
};

/// After this time a Node that waits to be initialised says what it waits for: its user is watching.
const SOON: SignedDuration = SignedDuration::from_secs(10);

/// How Nodes are kept.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How addresses are chosen.
    pub addresses: addresses::Settings,
    /// What happens when zones change later.
    pub zones: zones::Policy,
    /// Labels for every Node that is initialised.
    pub labels: BTreeMap<String, String>,
    /// Whether Nodes get labels that say their host, cluster and datacenter.
    pub place_labels: bool,
    /// Whether Nodes without provider id are initialised although nobody tainted them.
    pub adopt: bool,
    /// How long a vCenter may be silent before Nodes say so.
    pub patience: SignedDuration,
}

/// What was found out about a Node. Everything but the finding is about the VM that was found.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Which VM it is.
    pub finding: Finding<'a>,
    /// The interfaces of the guest.
    pub nics: &'a [Nic],
    /// Whether the guest has told the same for a while, so that it is not just starting or reconnecting.
    pub steady: bool,
    /// What cloud-init started from.
    pub metadata: Option<Metadata<'a>>,
    /// What tags say.
    pub zones: zones::Zones,
    /// Where it runs.
    pub place: Place,
}

/// The names of what a VM runs on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Its host.
    pub host: Option<String>,
    /// Its cluster.
    pub cluster: Option<String>,
    /// Its datacenter.
    pub datacenter: Option<String>,
}

/// The difference between a Node and the truth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeChange {
    /// A strategic merge patch of the Node. With the version it was decided on, so that taints of others are
    /// not lost.
    pub patch: Option<Value>,
    /// A strategic merge patch of its status. It is sent first: a Node that pods may come to has addresses.
    pub status: Option<Value>,
    /// What to tell, once the patches are in.
    pub events: Vec<Event>,
    /// The same in words of the domain.
    pub summary: Summary,
}

/// What a [`NodeChange`] changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Whether the Node loses the taint of uninitialised Nodes.
    pub initialised: bool,
    /// The provider id that it gets.
    pub provider_id: Option<ProviderId>,
    /// Labels that it gets, or that change.
    pub labels: BTreeMap<String, String>,
    /// Annotations that it gets; those without value go.
    pub annotations: BTreeMap<String, Option<String>>,
    /// The addresses that replace its own.
    pub addresses: Option<Vec<NodeAddress>>,
    /// The condition that replaces the one it has.
    pub condition: Option<Condition>,
    /// What was left alone although somebody may have expected otherwise.
    pub notes: Vec<String>,
}

/// An event about a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Whether somebody should look.
    pub warning: bool,
    /// The stable word.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
}

impl NodeChange {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.patch.is_none() && self.status.is_none() && self.events.is_empty()
    }
}

/// What must change on a Node.
pub fn plan(
    node: &Node,
    observed: &Observed<'_>,
    settings: &Settings,
    now: Timestamp,
) -> NodeChange {
    let reading = Reading::of(node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()));
    let machine = match &observed.finding {
        _ if matches!(reading, Reading::Foreign(_)) => return NodeChange::default(),
        Finding::NotOurs => return NodeChange::default(),
        Finding::Found(machine, _) => machine,
        other => {
            let waits = taints::has(node, UNINITIALIZED);
            let patience = if waits { settings.patience.min(SOON) } else { settings.patience };
            let verdict = condition::of_finding(other, patience, now);
            let summary = Summary { condition: verdict, ..Summary::default() };
            return written(node, summary, now);
        }
    };
    let adopted = settings.adopt && reading == Reading::Absent;
    let fresh = addresses_of(node, machine, observed, settings);
    let outcome = if taints::has(node, UNINITIALIZED) || adopted {
        initialise::first(node, machine, observed, settings, &reading, fresh)
    } else {
        initialise::later(node, machine, observed, settings, &reading, fresh)
    };
    let Outcome { mut summary, condition } = outcome;
    summary.condition = Some(condition);
    written(node, summary, now)
}

/// The addresses that the Node should have by what the guest and the kubelet say, or why there are none.
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
    let had = previous(node).iter().find(|one| one.type_ == addresses::HOSTNAME);
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
    let annotations = node.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(node_ip::PROVIDED_NODE_IP)) {
        None => Ok(selected),
        Some(annotation) => node_ip::honour(annotation, &selected.addresses)
            .map(|addresses| Selection { addresses, ..selected })
            .map_err(|error| condition::of_node_ip(&error)),
    }
}

/// The reason of the condition that a Node has, for counting.
pub(crate) fn standing(node: &Node) -> String {
    let reason = condition::existing(node).and_then(|condition| condition.reason.clone());
    reason.unwrap_or_else(|| "None".to_owned())
}

/// The addresses that the Node has.
fn previous(node: &Node) -> &[NodeAddress] {
    let status = node.status.as_ref();
    status.and_then(|status| status.addresses.as_deref()).unwrap_or_default()
}

/// The summary as patches and events.
fn written(node: &Node, mut summary: Summary, now: Timestamp) -> NodeChange {
    let mut status = serde_json::Map::new();
    if let Some(addresses) = &summary.addresses {
        // Two addresses may have the same type, by which lists would be merged: the whole list is replaced.
        let mut list: Vec<Value> = addresses.iter().map(|one| json!(one)).collect();
        list.push(json!({"$patch": "replace"}));
        status.insert("addresses".to_owned(), Value::Array(list));
    }
    let mut events = Vec::new();
    if summary.initialised {
        let message = "Node synced successfully".to_owned();
        events.push(Event { warning: false, reason: "Synced", message });
    }
    summary.condition = summary.condition.filter(|condition| !condition.stands_on(node));
    if let Some(condition) = &summary.condition {
        status.insert("conditions".to_owned(), json!([condition.written(node, now)]));
        events.extend(condition.event(node));
    }
    let status = (!status.is_empty()).then(|| json!({ "status": status }));
    NodeChange { patch: patch(node, &summary), status, events, summary }
}

fn patch(node: &Node, summary: &Summary) -> Option<Value> {
    let mut metadata = serde_json::Map::new();
    let mut spec = serde_json::Map::new();
    if !summary.labels.is_empty() {
        metadata.insert("labels".to_owned(), json!(summary.labels));
    }
    if !summary.annotations.is_empty() {
        metadata.insert("annotations".to_owned(), json!(summary.annotations));
    }
    if let Some(id) = summary.provider_id {
        spec.insert("providerID".to_owned(), json!(id.to_string()));
    }
    if summary.initialised {
        let kept = taints::of(node).iter().filter(|taint| taint.key != UNINITIALIZED);
        spec.insert("taints".to_owned(), json!(kept.collect::<Vec<_>>()));
    }
    if metadata.is_empty() && spec.is_empty() {
        return None;
    }
    metadata.insert("resourceVersion".to_owned(), json!(node.metadata.resource_version));
    let mut patch = json!({ "metadata": metadata });
    if !spec.is_empty() {
        patch["spec"] = Value::Object(spec);
    }
    Some(patch)
}
