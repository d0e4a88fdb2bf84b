//! A Node without the fields that no plan reads, so that thousands of Nodes fit into little memory.
//!
//! Images, capacities, volumes and managed fields are most of a Node; they are skipped while it is deserialised.
//! A heartbeat changes nothing of what is left: the Node stays [the same](same).

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Resource, api::ObjectMeta, core::ClusterResourceScope};
use serde::Deserialize;

/// A Node as the API server has it, without the skipped fields.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Fields")]
pub(crate) struct TrimmedNode(pub(crate) Node);

/// Whether two states of a Node differ in nothing but the resource version.
pub(super) fn same(one: &Node, other: &Node) -> bool {
    let ObjectMeta { name, uid, labels, annotations, .. } = &one.metadata;
    let of = &other.metadata;
    (name, uid, labels, annotations) == (&of.name, &of.uid, &of.labels, &of.annotations)
        && one.spec == other.spec
        && one.status == other.status
}

impl Resource for TrimmedNode {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind(of: &()) -> Cow<'_, str> {
        Node::kind(of)
    }

    fn group(of: &()) -> Cow<'_, str> {
        Node::group(of)
    }

    fn version(of: &()) -> Cow<'_, str> {
        Node::version(of)
    }

    fn plural(of: &()) -> Cow<'_, str> {
        Node::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

#[derive(Deserialize)]
struct Fields {
    metadata: Metadata,
    spec: Option<NodeSpec>,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    addresses: Option<Vec<NodeAddress>>,
    conditions: Option<Vec<NodeCondition>>,
    node_info: Option<System>,
}

#[derive(Deserialize)]
struct System {
    #[serde(rename = "systemUUID", default)]
    uuid: String,
}

impl From<Fields> for TrimmedNode {
    fn from(fields: Fields) -> Self {
        let Fields { metadata, spec, mut status } = fields;
        for condition in status.conditions.iter_mut().flatten() {
            condition.last_heartbeat_time = None;
        }
        let system = |system: System| NodeSystemInfo {
            system_uuid: system.uuid,
            ..NodeSystemInfo::default()
        };
        Self(Node {
            metadata: ObjectMeta {
                name: metadata.name,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                creation_timestamp: metadata.creation_timestamp,
                labels: metadata.labels,
                annotations: metadata.annotations,
                ..ObjectMeta::default()
            },
            spec,
            status: Some(NodeStatus {
                addresses: status.addresses,
                conditions: status.conditions,
                node_info: status.node_info.map(system),
                ..NodeStatus::default()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{TrimmedNode, same};

    fn json_of(version: &str, heartbeat: &str, ready: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "node-1", "uid": "u-1", "resourceVersion": version,
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"},
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "node-1"}],
                "conditions": [{
                    "type": "Ready", "status": ready, "lastHeartbeatTime": heartbeat,
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "KubeletReady", "message": "",
                }],
                "images": [{"names": ["registry.example/a:1"], "sizeBytes": 1}],
                "nodeInfo": {"systemUUID": "4230b1a0-5eed-4000-8000-000000000001", "osImage": "Linux"},
            },
        })
    }

    fn read(value: Value) -> TrimmedNode {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_node_keeps_what_plans_read_and_nothing_else() {
        let TrimmedNode(node) = read(json_of("7", "2026-01-01T00:00:00Z", "True"));
        let (spec, status) = (node.spec.unwrap(), node.status.unwrap());
        assert_eq!(node.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(node.metadata.labels.unwrap()["a"], "b");
        assert!(node.metadata.creation_timestamp.is_some());
        assert_eq!(spec.taints.unwrap()[0].key, "k");
        assert_eq!(status.addresses.unwrap()[0].address, "node-1");
        assert_eq!(status.conditions.unwrap()[0].reason.as_deref(), Some("KubeletReady"));
        assert!(status.node_info.unwrap().system_uuid.starts_with("4230b1a0"));
        assert_eq!((node.metadata.managed_fields, status.images), (None, None));
    }

    #[test]
    fn a_node_without_spec_and_status_is_read() {
        let TrimmedNode(node) = read(json!({"metadata": {"name": "node-1"}}));
        assert_eq!(node.metadata.name.as_deref(), Some("node-1"));
    }

    #[test]
    fn a_heartbeat_is_not_a_change_and_a_condition_is() {
        let TrimmedNode(before) = read(json_of("7", "2026-01-01T00:00:00Z", "True"));
        let TrimmedNode(beaten) = read(json_of("8", "2026-01-01T00:05:00Z", "True"));
        let TrimmedNode(down) = read(json_of("9", "2026-01-01T00:05:00Z", "Unknown"));
        assert!(same(&before, &beaten));
        assert!(!same(&before, &down));
    }
}
