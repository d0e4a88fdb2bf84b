//! What is answered to a node, and what is told about it: pure.
//!
//! The tags decide until the Node has the labels. From then on these stay, because volumes and pods were placed by them and
//! the kubelet refuses to register a driver that contradicts them; what the tags say instead is an event. A node
//! that was answered before is answered again while vCenter cannot be asked.

use super::{
    Labels,
    affinity::{BoundVolume, stranded},
    place::Place,
    record::Answer,
};

/// Volumes that a message names.
const MOST_SHOWN: usize = 3;

/// What is known of one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    /// In its object; `None` while it waits.
    pub(super) answer: Option<&'a Answer>,
    /// The labels of the last answer that had any.
    pub(super) recorded: &'a Labels,
    pub(super) place: &'a Place,
    /// Whether it has waited long enough to hear that vCenter cannot be asked.
    pub(super) has_waited: bool,
    /// `None` before it was read.
    pub(super) node: Option<&'a Node<'a>>,
}

/// What is read of the cluster when an answer may change something.
#[derive(Debug, Clone)]
pub(super) struct Node<'a> {
    /// The labels of the Node.
    pub(super) labels: &'a Labels,
    pub(super) volumes: &'a [BoundVolume],
    /// The labels of the other nodes.
    pub(super) others: &'a [Labels],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing is to be written.
    Rest(Option<Event>),
    /// vCenter may answer in a moment.
    Wait,
    /// The Node has to be read first, and the volumes if something may be taken from them.
    Read {
        volumes: bool,
    },
    Write(Answer, Option<Event>),
}

/// An event on the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Event {
    fn warning(reason: &'static str, message: String) -> Option<Self> {
        Some(Self { is_warning: true, reason, message })
    }
}

/// The next step for one node.
pub(super) fn plan(facts: &Facts<'_>) -> Step {
    let Facts { answer, recorded, place, has_waited, node } = *facts;
    let is_answered = matches!(answer, Some(Answer::Labels(_)));
    match (place, node) {
        (Place::Unzoned, _) => answer_with(facts, Labels::new(), None),
        (Place::At(wanted), _) if is_answered && recorded == wanted => Step::Rest(None),
        (Place::At(wanted), Some(node)) => settle(facts, wanted, node),
        (Place::At(wanted), None) => {
            Step::Read { volumes: !recorded.is_empty() && recorded != wanted }
        }
        (Place::Unknown(_), _) if is_answered => Step::Rest(None),
        (Place::Unknown(_), _) if !has_waited => Step::Wait,
        (Place::Unknown(why) | Place::Nowhere(why), _) if recorded.is_empty() => {
            // One that was answered when there were no zones is told, too.
            let event = Event::warning("TopologyRetrievalFailed", format!("zone not found: {why}"));
            match answer {
                Some(Answer::Problem(known)) if known == why => Step::Rest(event),
                _ => Step::Write(Answer::Problem(why.clone()), event),
            }
        }
        (Place::Nowhere(why), _) if is_answered => Step::Rest(kept_without_tags(recorded, why)),
        (Place::Unknown(_) | Place::Nowhere(_), None) => Step::Read { volumes: false },
        (Place::Unknown(_), Some(node)) => {
            answer_with(facts, overlaid(recorded, node.labels), None)
        }
        (Place::Nowhere(why), Some(node)) => {
            let labels = overlaid(recorded, node.labels);
            let event = kept_without_tags(&labels, why);
            answer_with(facts, labels, event)
        }
    }
}

/// Answers with labels, unless that is the answer already.
fn answer_with(facts: &Facts<'_>, labels: Labels, event: Option<Event>) -> Step {
    let answer = Answer::Labels(labels);
    if facts.answer == Some(&answer) { Step::Rest(event) } else { Step::Write(answer, event) }
}

/// What the tags say, but for labels that the Node has and for changes that would strand volumes.
fn settle(facts: &Facts<'_>, wanted: &Labels, node: &Node<'_>) -> Step {
    let recorded = facts.recorded;
    let mut labels = overlaid(wanted, node.labels);
    let before = overlaid(&overlaid(wanted, recorded), node.labels);
    let lost = stranded(node.volumes, &before, &labels, node.others);
    if labels != before && !lost.is_empty() {
        let text = format!(
            "its zone stays {}, although the tags in vCenter say {}: no other node could use the volumes {}; move the VM \
             back, or add a node in that zone",
            shown(&before),
            shown(wanted),
            list(&lost)
        );
        labels = before;
        return answer_with(facts, labels, Event::warning("ZoneChangeRefused", text));
    }
    let event = if labels != *wanted {
        let bound = node
            .volumes
            .iter()
            .filter(|volume| volume.may_be_used_from(&labels) && !volume.may_be_used_from(wanted));
        let bound: Vec<&str> = bound.map(|volume| volume.name.as_str()).collect();
        let volumes = if bound.is_empty() {
            String::new()
        } else {
            format!(", and the volumes {} are only for nodes there", list(&bound))
        };
        let text = format!(
            "its labels stay {}, although the tags in vCenter say {}{volumes}; move the VM back, or drain the Node and \
             delete it so that it registers anew",
            shown(&labels),
            shown(wanted)
        );
        Event::warning("ZoneChanged", text)
    } else if !recorded.is_empty() && labels != *recorded {
        let message = format!("its zone changes from {} to {}", shown(recorded), shown(&labels));
        Some(Event { is_warning: false, reason: "ZoneChanged", message })
    } else {
        None
    };
    answer_with(facts, labels, event)
}

/// The labels with the values that the Node has for them.
fn overlaid(labels: &Labels, over: &Labels) -> Labels {
    let value = |key: &String, value: &String| over.get(key).unwrap_or(value).clone();
    labels.iter().map(|(key, old)| (key.clone(), value(key, old))).collect()
}

fn kept_without_tags(labels: &Labels, why: &str) -> Option<Event> {
    let text =
        format!("its zone stays {}, although it is not found any more: {why}", shown(labels));
    Event::warning("ZoneNotFound", text)
}

/// `zone=a, region=eu`, without the domains of the keys.
pub(super) fn shown(labels: &Labels) -> String {
    let name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    let all: Vec<_> = labels.iter().map(|(key, value)| format!("{}={value}", name(key))).collect();
    all.join(", ")
}

fn list(names: &[&str]) -> String {
    let first = names.iter().take(MOST_SHOWN).copied().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MOST_SHOWN) {
        Some(more) if more > 0 => format!("{first} and {more} more"),
        _ => first,
    }
}

#[cfg(test)]
mod tests;
