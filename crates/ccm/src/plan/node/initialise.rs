//! The first change of a Node, which initialises it, and later ones, which refresh it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use crate::{
    observe::discovery::Machine,
    observe::identity::Identity,
    plan::{
        addresses::{Doubt, Selection, settle},
        node::{
            Observed, Settings, Summary,
            condition::{self, Condition, Reason},
            current_addresses,
            labels::{self, Labels},
        },
    },
    provider_id::{ProviderId, Reading},
};

/// On Nodes that were initialised before their zones were known.
const ZONES_PENDING: &str = "ccm.vsphere.vmware.com/zones-pending";

/// After this time a new Node gets the addresses of a guest that never reports the same for long.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_mins(5);
/// The same, where a network card has no address: it may be meant to have none.
const WAIT_FOR_CARD: SignedDuration = SignedDuration::from_secs(30);

/// What changes, and the condition that the Node gets with it.
type Outcome = (Summary, Condition);

/// The addresses for a Node that is initialised with them: what a guest in doubt reports is believed when it
/// has reported the same for a while, or when the Node has waited long enough.
pub(super) fn believed(
    node: &Node,
    selected: Selection,
    steady: bool,
    now: Timestamp,
) -> Result<Selection, Condition> {
    let Some(doubt) = selected.doubt else { return Ok(selected) };
    let longest = if is_lasting(&doubt) { LONGEST_WAIT } else { WAIT_FOR_CARD };
    let created = node.metadata.creation_timestamp.as_ref();
    let waited = created.is_some_and(|created| now.duration_since(created.0) >= longest);
    if steady || waited { Ok(selected) } else { Err(condition::doubtful(doubt)) }
}

/// Everything that an uninitialised Node needs, or nothing and the reason.
pub(super) fn initialise(
    node: &Node,
    machine: &Machine<'_>,
    observed: &Observed<'_>,
    settings: &Settings,
    reading: &Reading,
    fresh: Result<Selection, Condition>,
) -> Outcome {
    let none = Summary::default();
    let provider_id = match (reading, machine.vm.uuid) {
        (Reading::Absent, Some(uuid)) => Some(ProviderId(uuid)),
        (Reading::Absent, None) => return (none, condition::without_uuid(machine)),
        (Reading::Malformed(text), _) => return (none, condition::malformed(text)),
        (Reading::Ours(_) | Reading::Foreign(_), _) => None,
    };
    let selected = match fresh {
        Ok(selected) => selected,
        Err(condition) => return (none, condition),
    };
    let Labels { changes, notes } = labels::initial(node, machine.vm, observed, settings);
    let mut summary = Summary {
        initialised: true,
        provider_id,
        labels: changes,
        addresses: (selected.addresses != current_addresses(node)).then_some(selected.addresses),
        notes,
        ..Summary::default()
    };
    record_identity(node, machine, &mut summary);
    if !observed.zones.problems.is_empty() {
        set_annotation(node, ZONES_PENDING, Some("true"), &mut summary);
    }
    (summary, condition::good(&observed.zones, selected.doubt.filter(is_lasting)))
}

/// What has to be corrected on a Node that was initialised before.
pub(super) fn refresh(
    node: &Node,
    machine: &Machine<'_>,
    observed: &Observed<'_>,
    settings: &Settings,
    reading: &Reading,
    fresh: Result<Selection, Condition>,
) -> Outcome {
    let pending = node.annotations().contains_key(ZONES_PENDING);
    let Labels { changes, notes } = labels::refreshed(node, observed, settings, pending);
    let mut summary = Summary { labels: changes, notes, ..Summary::default() };
    record_identity(node, machine, &mut summary);
    if observed.zones.problems.is_empty() {
        set_annotation(node, ZONES_PENDING, None, &mut summary);
    }
    let selected = match fresh {
        Ok(selected) => selected,
        // The Node keeps its addresses: they were true when the guest last reported any.
        Err(condition) => return (summary, condition),
    };
    let settled =
        settle(current_addresses(node), selected.addresses, selected.doubt, observed.steady);
    let doubt = settled.kept.or(selected.doubt.filter(is_lasting));
    let condition = match (reading, labels::moved(node, observed, settings)) {
        (Reading::Malformed(text), _) => condition::malformed(text),
        (Reading::Absent, _) => condition::not_adopted(),
        (_, Some(moved)) => Condition::good(Reason::ZoneChanged, moved),
        _ => condition::good(&observed.zones, doubt),
    };
    summary.addresses = (settled.addresses != current_addresses(node)).then_some(settled.addresses);
    (summary, condition)
}

/// Whether the user should act on it. A card without address may be meant to have none.
fn is_lasting(doubt: &Doubt) -> bool {
    *doubt != Doubt::SilentCard
}

fn record_identity(node: &Node, machine: &Machine<'_>, summary: &mut Summary) {
    let identity = Identity::of(machine);
    for (key, value) in identity.iter().flat_map(Identity::annotations) {
        set_annotation(node, key, Some(&value), summary);
    }
}

fn set_annotation(node: &Node, key: &str, value: Option<&str>, summary: &mut Summary) {
    if node.annotations().get(key).map(String::as_str) != value {
        summary.annotations.insert(key.to_owned(), value.map(str::to_owned));
    }
}
