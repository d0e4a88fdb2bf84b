//! What a plan changes on a Node: patches for the API server, events for users, a line for the log.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::{
    plan::{
        node::{
            condition::{self, Condition},
            current_addresses,
        },
        taints::{self, UNINITIALIZED},
    },
    provider_id::{self, ProviderId},
};

/// The difference between a Node and what it should be.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NodeChange {
    /// A strategic merge patch of metadata and spec. It carries the resource version of the planned Node, so
    /// that taints of others are not lost.
    pub(crate) patch: Option<Value>,
    /// A strategic merge patch of the status. It is sent first: a Node that pods may come to has addresses.
    pub(crate) status: Option<Value>,
    /// Recorded once the patches are in.
    pub(crate) events: Vec<Event>,
    pub(crate) summary: Summary,
    /// Whether nothing changes but the message of the condition, under the same status and reason.
    pub(crate) rewords_condition: bool,
}

/// What a [`NodeChange`] changes. It displays as one line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Summary {
    /// Whether the Node loses the taint of uninitialised Nodes.
    pub(crate) initialised: bool,
    pub(crate) provider_id: Option<ProviderId>,
    /// Labels that are added or get another value.
    pub(crate) labels: BTreeMap<String, String>,
    /// Annotations that are set; those without value are removed.
    pub(crate) annotations: BTreeMap<String, Option<String>>,
    pub(crate) addresses: Option<Vec<NodeAddress>>,
    pub(crate) condition: Option<Condition>,
    /// What was left alone although a user may expect otherwise.
    pub(crate) notes: Vec<String>,
    pub(super) before: Before,
}

/// What the Node has now in place of what changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Before {
    labels: BTreeMap<String, String>,
    addresses: Vec<NodeAddress>,
    reason: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl NodeChange {
    pub(super) fn new(node: &Node, mut summary: Summary, now: Timestamp) -> Self {
        let mut status = Map::new();
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
        summary.condition = summary.condition.filter(|condition| !condition.is_on(node));
        if let Some(condition) = &summary.condition {
            status.insert("conditions".to_owned(), json!([condition.to_write(node, now)]));
            events.extend(condition.event(node));
        }
        let patch = patch(node, &summary);
        let same_reason = summary.condition.as_ref().is_some_and(|one| one.rewords(node));
        let rewords_condition = same_reason && patch.is_none() && status.len() == 1;
        let status = (!status.is_empty()).then(|| json!({ "status": status }));
        summary.before = Before::of(node, &summary);
        Self { patch, status, events, summary, rewords_condition }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.patch.is_none() && self.status.is_none() && self.events.is_empty()
    }

    /// The patch as it has to be sent after the status of the Node was written, which changed its version.
    /// `None` if the Node changed in between in what the patch was planned from: it has to be planned again.
    pub(crate) fn patch_after(&self, planned: &Node, written: &Node) -> Option<Option<Value>> {
        let Some(mut patch) = self.patch.clone() else { return Some(None) };
        let (was, is) = (&planned.metadata, &written.metadata);
        let mut touched = self.summary.annotations.keys();
        let same = (&was.uid, &was.labels) == (&is.uid, &is.labels)
            && taints::of(planned) == taints::of(written)
            && provider_id::of(planned) == provider_id::of(written)
            && touched.all(|key| planned.annotations().get(key) == written.annotations().get(key));
        patch["metadata"]["resourceVersion"] = json!(is.resource_version);
        same.then_some(Some(patch))
    }
}

fn patch(node: &Node, summary: &Summary) -> Option<Value> {
    let mut metadata = Map::new();
    let mut spec = Map::new();
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

impl Before {
    fn of(node: &Node, summary: &Summary) -> Self {
        let changes = |(key, _): &(&String, &String)| summary.labels.contains_key(*key);
        let labels = node.metadata.labels.iter().flatten().filter(changes);
        Self {
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            addresses: current_addresses(node).to_vec(),
            reason: condition::vsphere_ready(node).and_then(|condition| condition.reason.clone()),
        }
    }
}

impl fmt::Display for Summary {
    /// Of the two labels of one fact the stable one is shown, of annotations the names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.initialised.then(|| "initialised".to_owned()));
        parts.extend(self.provider_id.map(|id| format!("provider id {id}")));
        if let Some(addresses) = &self.addresses {
            let (old, new) = (listed(&self.before.addresses), listed(addresses));
            parts.push(format!("addresses {old} -> {new}"));
        }
        for (key, new) in self.labels.iter().filter(|(key, _)| !key.contains("beta.kubernetes.io"))
        {
            parts.push(match self.before.labels.get(key) {
                Some(old) => format!("label {key} {old} -> {new}"),
                None => format!("label {key}={new}"),
            });
        }
        if !self.annotations.is_empty() {
            let names = self.annotations.keys().map(|key| key.rsplit('/').next().unwrap_or(key));
            parts.push(format!("annotations {}", names.collect::<Vec<_>>().join(", ")));
        }
        if let Some(condition) = &self.condition {
            let old = self.before.reason.as_deref().unwrap_or("none");
            parts.push(format!("condition {old} -> {}", condition.reason.as_str()));
        }
        parts.extend(self.notes.iter().cloned());
        f.write_str(&parts.join("; "))
    }
}

fn listed(addresses: &[NodeAddress]) -> String {
    let one = |one: &NodeAddress| format!("{}={}", one.type_, one.address);
    let all = addresses.iter().map(one).collect::<Vec<_>>().join(" ");
    if all.is_empty() { "none".to_owned() } else { all }
}
