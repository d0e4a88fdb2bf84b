//! The condition `VSphereReady`: whether a Node and its VM are in agreement, and if not, what to do.
//!
//! Reasons are stable words that alerts and documentation refer to; messages hold the cause and the remedy.
//! A message holds nothing that changes by itself, so a condition is written only when something happened.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use vsphere::inventory::PowerState;

use crate::{
    observe::discovery::{Finding, Machine},
    plan::{
        addresses::{AddressError, Doubt, node_ip::NodeIpError},
        node::Event,
        zones::Zones,
    },
};
const VSPHERE_READY: &str = "VSphereReady";

/// VMs that a message names.
const MOST_NAMED: usize = 5;
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) status: Status,
    pub(crate) reason: Reason,
    /// The cause and the remedy.
    pub(crate) message: String,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    True,
    False,
    Unknown,
}

macro_rules! reasons {
    ($($name:ident),* $(,)?) => {
        /// Why a Node is in agreement with its VM or not; docs/user/cloud-controller-manager.md describes each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($name,)*
        }

        impl Reason {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];

            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    Synced,
    TopologyIncomplete,
    ZoneChanged,
    AddressesPartial,
    PoweredOff,
    ToolsNotRunning,
    NoHostName,
    NoInterfaces,
    NoNetwork,
    NoAddress,
    NoAddressOfFamily,
    MetadataInvalid,
    NodeIpInvalid,
    VmIncomplete,
    ProviderIdInvalid,
    NotAdopted,
    VmAmbiguous,
    VmCloned,
    VmReplaced,
    VmNotFound,
    VCenterUnavailable,
}

impl Condition {
    pub(super) fn good(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::True, reason, message: message.into() }
    }

    fn bad(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::False, reason, message: message.into() }
    }

    /// Whether the Node has the condition already.
    pub(super) fn is_on(&self, node: &Node) -> bool {
        self.rewords(node)
            && vsphere_ready(node).is_some_and(|has| has.message.as_deref() == Some(&self.message))
    }

    /// Whether the Node has a condition of the same status and reason, whatever its message.
    pub(super) fn rewords(&self, node: &Node) -> bool {
        vsphere_ready(node).is_some_and(|has| {
            has.status == self.status.as_str()
                && has.reason.as_deref() == Some(self.reason.as_str())
        })
    }

    /// The transition time is that of the status.
    pub(super) fn to_write(&self, node: &Node, now: Timestamp) -> NodeCondition {
        let same = vsphere_ready(node).filter(|has| has.status == self.status.as_str());
        let since = same.and_then(|has| has.last_transition_time.clone());
        NodeCondition {
            type_: VSPHERE_READY.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: Some(self.reason.as_str().to_owned()),
            message: Some(self.message.clone()),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
        }
    }

    /// For a reason that is new on the Node; another message is not worth an event.
    pub(super) fn event(&self, node: &Node) -> Option<Event> {
        let same = vsphere_ready(node).and_then(|has| has.reason.as_deref());
        let new = same != Some(self.reason.as_str()) && self.reason != Reason::Synced;
        let message = self.message.clone();
        new.then(|| Event { warning: true, reason: self.reason.as_str(), message })
    }
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

pub(super) fn vsphere_ready(node: &Node) -> Option<&NodeCondition> {
    of_type(node, VSPHERE_READY)
}

/// A condition of the Node, by its type.
pub(crate) fn of_type<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
}

/// Of a Node whose VM was found and whose addresses are known.
pub(super) fn good(zones: &Zones, doubt: Option<Doubt>) -> Condition {
    match (zones.problems.as_slice(), doubt) {
        ([], None) => Condition::good(Reason::Synced, "the Node agrees with its VM"),
        ([], Some(doubt)) => Condition::good(Reason::AddressesPartial, doubt.to_string()),
        (problems, _) => Condition::good(Reason::TopologyIncomplete, problems.join("; ")),
    }
}

/// Of a Node whose VM was not found; none while an outage is younger than `patience`.
pub(super) fn of_finding(
    finding: &Finding<'_>,
    patience: SignedDuration,
    now: Timestamp,
) -> Option<Condition> {
    let condition = match finding {
        Finding::Found(..) | Finding::NotOurs => return None,
        Finding::Ambiguous(machines, how) => {
            let message = format!(
                "several VMs have the Node's {}: {}; give each its own, or start the kubelet with \
                 --provider-id=vsphere://<UUID of the VM's BIOS>",
                how.name(),
                named(machines)
            );
            Condition::bad(Reason::VmAmbiguous, message)
        }
        Finding::CloneOf(uuid, machines) => {
            let message = format!(
                "several VMs have the BIOS UUID {uuid}: {}; all but one are clones: give them UUIDs of their \
                 own (uuid.action = \"create\") or remove them",
                named(machines)
            );
            Condition::bad(Reason::VmCloned, message)
        }
        Finding::Replaced(machine) => {
            let message = format!(
                "the Node runs in {machine}, which is not the VM of its provider id; delete the Node so that \
                 its kubelet registers it anew"
            );
            Condition::bad(Reason::VmReplaced, message)
        }
        Finding::Absent(absence) => {
            let message = format!(
                "no VM in {} is the Node's by provider id, system UUID, address or name; check the \
                 datacenters of the configuration and the privileges of its user",
                absence.vcenters.join(", ")
            );
            Condition::bad(Reason::VmNotFound, message)
        }
        Finding::Unknown(outages) => {
            let since = outages.iter().map(|one| one.since).min();
            if since.is_some_and(|since| now.duration_since(since) < patience) {
                return None;
            }
            let causes = outages.iter().map(|one| format!("{}: {}", one.vcenter, one.why));
            let causes = causes.collect::<Vec<_>>().join("; ");
            let none = "no vCenter is configured".to_owned();
            let message = if causes.is_empty() { none } else { causes };
            let reason = Reason::VCenterUnavailable;
            Condition { status: Status::Unknown, reason, message }
        }
    };
    Some(condition)
}

pub(super) fn powered_off(power: &PowerState) -> Condition {
    let state = if *power == PowerState::Suspended { "suspended" } else { "powered off" };
    let message = format!("the VM is {state}; power it on. The Node keeps the addresses it has");
    Condition::bad(Reason::PoweredOff, message)
}

pub(super) fn of_addresses(error: &AddressError) -> Condition {
    let reason = match error {
        AddressError::ToolsNotRunning => Reason::ToolsNotRunning,
        AddressError::NoHostName => Reason::NoHostName,
        AddressError::NoInterfaces => Reason::NoInterfaces,
        AddressError::NoNetwork { .. } => Reason::NoNetwork,
        AddressError::OnlyLocal { .. } => Reason::NoAddress,
        AddressError::NoFamily { .. } => Reason::NoAddressOfFamily,
        AddressError::Metadata(_) => Reason::MetadataInvalid,
    };
    Condition::bad(reason, error.to_string())
}

/// Of a new Node whose guest is not believed yet.
pub(super) fn doubtful(doubt: Doubt) -> Condition {
    let message = format!(
        "{doubt}; until it reports more, or the same for a while, the Node is not initialised"
    );
    Condition::bad(Reason::AddressesPartial, message)
}

pub(super) fn of_node_ip(error: &NodeIpError) -> Condition {
    Condition::bad(Reason::NodeIpInvalid, error.to_string())
}

pub(super) fn without_uuid(machine: &Machine<'_>) -> Condition {
    let message = format!("{machine} has no BIOS UUID yet, which is normal while it is created");
    Condition::bad(Reason::VmIncomplete, message)
}

pub(super) fn malformed(text: &str) -> Condition {
    let message = format!(
        "the provider id {text:?} is not valid, because it holds no UUID, and cannot be changed; delete the \
         Node so that its kubelet registers it anew"
    );
    Condition::bad(Reason::ProviderIdInvalid, message)
}

pub(super) fn not_adopted() -> Condition {
    let message = "the Node has neither a provider id nor the taint of uninitialised Nodes; start its kubelet \
                   with --cloud-provider=external and delete the Node, or adopt such Nodes with --adopt-nodes";
    Condition::bad(Reason::NotAdopted, message)
}

/// The VMs in an order that does not depend on the inventory's, so that the message stays the same.
fn named(machines: &[Machine<'_>]) -> String {
    let mut names: Vec<String> = machines.iter().map(ToString::to_string).collect();
    names.sort();
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}
