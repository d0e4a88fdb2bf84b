//! The first change of a Node, which makes it usable, and the later ones, which keep it right.

use k8s_openapi::api::core::v1::Node;

use crate::{
    addresses::{Doubt, Selection, settle},
    discovery::Machine,
    identity::Identity,
    node::{
        Observed, Settings, Summary,
        condition::{self, Condition, Reason},
        labels::{self, Labels},
        previous,
    },
    provider_id::{ProviderId, Reading},
};

/// On Nodes that were initialised before their zones were known.
const PENDING: &str = "ccm.vsphere.vmware.com/zones-pending";

/// What changes, and what is to be said.
pub(super) struct Outcome {
    pub(super) summary: Summary,
    pub(super) condition: Condition,
}

impl From<Condition> for Outcome {
    fn from(condition: Condition) -> Self {
        Self { summary: Summary::default(), condition }
    }
}

/// Everything that an uninitialised Node needs, or nothing and the reason.
pub(super) fn first(
    node: &Node,
    machine: &Machine<'_>,
    observed: &Observed<'_>,
    settings: &Settings,
    reading: &Reading,
    fresh: Result<Selection, Condition>,
) -> Outcome {
    let provider_id = match (reading, machine.vm.uuid) {
        (Reading::Absent, Some(uuid)) => Some(ProviderId(uuid)),
        (Reading::Absent, None) => return condition::without_uuid(machine).into(),
        (Reading::Malformed(text), _) => return condition::malformed(text).into(),
        (Reading::Ours(_) | Reading::Foreign(_), _) => None,
    };
    let selected = match fresh {
        Ok(selected) => selected,
        Err(condition) => return condition.into(),
    };
    let Labels { changes, notes } = labels::first(node, machine.vm, observed, settings);
    let mut summary = Summary {
        initialised: true,
        provider_id,
        labels: changes,
        addresses: (selected.addresses != previous(node)).then_some(selected.addresses),
        notes,
        ..Summary::default()
    };
    annotate(node, machine, &mut summary);
    if !observed.zones.problems.is_empty() {
        note_annotation(node, PENDING, Some("true"), &mut summary);
    }
    let condition = condition::good(&observed.zones, selected.doubt.filter(is_lasting));
    Outcome { summary, condition }
}

/// What has to be put right on a Node that was initialised before.
pub(super) fn later(
    node: &Node,
    machine: &Machine<'_>,
    observed: &Observed<'_>,
    settings: &Settings,
    reading: &Reading,
    fresh: Result<Selection, Condition>,
) -> Outcome {
    let pending = annotation(node, PENDING).is_some();
    let Labels { changes, notes } = labels::later(node, observed, settings, pending);
    let mut summary = Summary { labels: changes, notes, ..Summary::default() };
    annotate(node, machine, &mut summary);
    if observed.zones.problems.is_empty() {
        note_annotation(node, PENDING, None, &mut summary);
    }
    let selected = match fresh {
        Ok(selected) => selected,
        // What the Node has stays: it was true when the guest last said something.
        Err(condition) => return Outcome { summary, condition },
    };
    let settled = settle(previous(node), selected.addresses, selected.doubt, observed.steady);
    let doubt = settled.kept.or(selected.doubt.filter(is_lasting));
    let condition = match (reading, labels::moved(node, observed, settings)) {
        (Reading::Malformed(text), _) => condition::malformed(text),
        (Reading::Absent, _) => condition::not_adopted(),
        (_, Some(moved)) => Condition::good(Reason::ZoneChanged, moved),
        _ => condition::good(&observed.zones, doubt),
    };
    summary.addresses = (settled.addresses != previous(node)).then_some(settled.addresses);
    Outcome { summary, condition }
}

/// Whether the user should do something about it. A card without address may be meant to have none.
fn is_lasting(doubt: &Doubt) -> bool {
    *doubt != Doubt::SilentCard
}

/// Writes which VM it is on the Node.
fn annotate(node: &Node, machine: &Machine<'_>, summary: &mut Summary) {
    let identity = Identity::of(machine);
    for (key, value) in identity.iter().flat_map(Identity::annotations) {
        note_annotation(node, key, Some(&value), summary);
    }
}

fn note_annotation(node: &Node, key: &str, value: Option<&str>, summary: &mut Summary) {
    if annotation(node, key) != value {
        summary.annotations.insert(key.to_owned(), value.map(str::to_owned));
    }
}

fn annotation<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
