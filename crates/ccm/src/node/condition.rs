//! The condition `VSphereReady`: whether a Node and its VM are in agreement, and if not, what to do.
//!
//! Reasons are stable words that alerts and documentation refer to; messages say the cause and the remedy.
//! A message holds nothing that changes by itself, so a condition is written when something happened only.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use vsphere::inventory::PowerState;

use crate::{
    addresses::{AddressError, Doubt, node_ip::NodeIpError},
    discovery::{Finding, Machine},
    node::Event,
    zones::Zones,
};

/// The type of the condition.
pub const VSPHERE_READY: &str = "VSphereReady";

/// The number of VMs that a message names.
const MOST_NAMED: usize = 5;

/// What the condition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Whether all is well.
    pub status: Status,
    /// Why.
    pub reason: Reason,
    /// Why, in a sentence, with the remedy.
    pub message: String,
}

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It does.
    True,
    /// It does not.
    False,
    /// Nobody can tell.
    Unknown,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Why a Node is in agreement with its VM or not.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them, for documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The stable word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    /// All is well.
    Synced,
    /// Well, but zone or region is not known.
    TopologyIncomplete,
    /// Well, but the labels of zone or region are not what the tags say.
    ZoneChanged,
    /// Well, but the guest tells only a part of its addresses.
    AddressesPartial,
    /// The VM is off.
    PoweredOff,
    /// VMware Tools do not run.
    ToolsNotRunning,
    /// The guest has no name.
    NoHostName,
    /// The guest reports no interfaces.
    NoInterfaces,
    /// No card is in a network of the configuration.
    NoNetwork,
    /// The guest has no address that others can reach.
    NoAddress,
    /// The guest has no address of a required family.
    NoAddressOfFamily,
    /// What cloud-init started from cannot be read.
    MetadataInvalid,
    /// The kubelet was started with an address that the VM does not have.
    NodeIpInvalid,
    /// The VM has no id yet.
    VmIncomplete,
    /// The provider id is ours and holds no UUID.
    ProviderIdInvalid,
    /// The Node has no provider id, and nobody asked for one.
    NotAdopted,
    /// Several VMs have the Node's address or name.
    VmAmbiguous,
    /// Several VMs have the Node's id.
    VmCloned,
    /// The Node runs in another VM than its provider id says.
    VmReplaced,
    /// No VM is the Node's.
    VmNotFound,
    /// A vCenter that may have the VM does not answer.
    VCenterUnavailable,
}

impl Condition {
    pub(super) fn good(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::True, reason, message: message.into() }
    }

    fn bad(reason: Reason, message: impl Into<String>) -> Self {
        Self { status: Status::False, reason, message: message.into() }
    }

    /// Whether the Node says so already.
    pub(super) fn stands_on(&self, node: &Node) -> bool {
        existing(node).is_some_and(|has| {
            has.status == self.status.as_str()
                && has.reason.as_deref() == Some(self.reason.as_str())
                && has.message.as_deref() == Some(&self.message)
        })
    }

    /// The condition as Kubernetes has it. The time of the transition is that of the status.
    pub(super) fn written(&self, node: &Node, now: Timestamp) -> NodeCondition {
        let same = existing(node).filter(|has| has.status == self.status.as_str());
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

    /// A problem that is new is told once.
    pub(super) fn event(&self, node: &Node) -> Option<Event> {
        let same = existing(node).and_then(|has| has.reason.as_deref());
        let new = same != Some(self.reason.as_str()) && self.reason != Reason::Synced;
        let message = self.message.clone();
        new.then(|| Event { warning: true, reason: self.reason.as_str(), message })
    }
}

impl Status {
    /// As Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

pub(super) fn existing(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == VSPHERE_READY)
}

/// Of a Node whose VM was found and whose addresses are known.
pub(super) fn good(zones: &Zones, doubt: Option<Doubt>) -> Condition {
    match (zones.problems.as_slice(), doubt) {
        ([], None) => Condition::good(Reason::Synced, "the Node agrees with its VM"),
        ([], Some(doubt)) => Condition::good(Reason::AddressesPartial, doubt.to_string()),
        (problems, _) => Condition::good(Reason::TopologyIncomplete, problems.join("; ")),
    }
}

/// Of a Node whose VM was not found; nothing as long as it is too early to say something.
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
        Finding::Unknown(silent) => {
            let since = silent.iter().map(|one| one.since).min();
            if since.is_some_and(|since| now.duration_since(since) < patience) {
                return None;
            }
            let who = silent.iter().map(|one| format!("{}: {}", one.vcenter, one.why));
            let who = who.collect::<Vec<_>>().join("; ");
            let who = if who.is_empty() { "no vCenter is configured".to_owned() } else { who };
            let reason = Reason::VCenterUnavailable;
            Condition { status: Status::Unknown, reason, message: who }
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

pub(super) fn of_node_ip(error: &NodeIpError) -> Condition {
    Condition::bad(Reason::NodeIpInvalid, error.to_string())
}

pub(super) fn without_uuid(machine: &Machine<'_>) -> Condition {
    let message = format!("{machine} has no BIOS UUID yet, which is normal while it is created");
    Condition::bad(Reason::VmIncomplete, message)
}

pub(super) fn malformed(text: &str) -> Condition {
    let message = format!(
        "the provider id {text:?} holds no UUID and cannot be changed; delete the Node so that its kubelet \
         registers it anew"
    );
    Condition::bad(Reason::ProviderIdInvalid, message)
}

pub(super) fn not_adopted() -> Condition {
    let message = "the Node has no provider id and no taint that asks for one; start its kubelet with \
                   --cloud-provider=external and delete the Node, or adopt such Nodes with --adopt-nodes";
    Condition::bad(Reason::NotAdopted, message)
}

fn named(machines: &[Machine<'_>]) -> String {
    let mut names: Vec<String> =
        machines.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    if machines.len() > MOST_NAMED {
        names.push(format!("and {} more", machines.len() - MOST_NAMED));
    }
    names.join(", ")
}
