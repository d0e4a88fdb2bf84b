//! The CustomResourceDefinitions of the driver's records: operations that are remembered over a crash, which vCenter has a
//! volume, and in which zone a node is.
//!
//! The Go driver installs them by itself when it starts. Ours have its names and fields and are more tolerant: fields
//! that a newer Go driver writes are kept, and few are required, so that each driver reads what the other wrote.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, from_value, json};

pub(super) fn definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    made("Namespaced", "CnsVolumeOperationRequest", "cnsvolumeoperationrequests", &schema())
}

pub(super) fn volume_infos() -> Result<CustomResourceDefinition, serde_json::Error> {
    let text = || json!({"type": "string"});
    let schema = json!({
        "description": "Which vCenter has a volume, where there are several.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["volumeID", "vCenterServer"],
                "properties": {"volumeID": text(), "vCenterServer": text()},
            },
        },
    });
    made("Namespaced", "CNSVolumeInfo", "cnsvolumeinfoes", &schema)
}

/// Without a status subresource, as the Go driver has it: node and controller write the object as a whole.
pub(super) fn topologies() -> Result<CustomResourceDefinition, serde_json::Error> {
    let text = || json!({"type": "string"});
    let label = json!({
        "type": "object",
        "required": ["key", "value"],
        "properties": {"key": text(), "value": text()},
    });
    let schema = json!({
        "description": "The zone of a node: asked for by the driver's pod on it, and answered by the controller.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["nodeID"],
                "properties": {"nodeID": text(), "nodeuuid": text()},
            },
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "status": text(),
                    "topologyLabels": {"type": "array", "items": label},
                    "errorMessage": text(),
                },
            },
        },
    });
    made("Cluster", "CSINodeTopology", "csinodetopologies", &schema)
}

fn made(
    scope: &str,
    kind: &str,
    plural: &str,
    schema: &Value,
) -> Result<CustomResourceDefinition, serde_json::Error> {
    from_value(json!({
        "metadata": {"name": format!("{plural}.cns.vmware.com")},
        "spec": {
            "group": "cns.vmware.com",
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": kind.to_lowercase(),
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    }))
}

fn schema() -> Value {
    let text = || json!({"type": "string"});
    let quantity = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    // The Go driver writes null for a time that is not set.
    let time = json!({"type": "string", "format": "date-time", "nullable": true});
    let operation = json!({
        "description": "A task that was started in vCenter.",
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "taskInvocationTimestamp": time,
            "taskId": text(),
            "vCenterServer": text(),
            "opId": text(),
            "taskStatus": text(),
            "error": text(),
        },
    });
    let quota = json!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "reserved": quantity,
            "storagePolicyId": text(),
            "storageClassName": text(),
            "namespace": text(),
            "aggregatedsnapshotsize": quantity,
            "snapshotlatestoperationcompletetime": time,
        },
    });
    json!({
        "description": "What is remembered of an operation on a volume, so that it is not done twice.",
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"name": text()},
            },
            "status": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "volumeID": text(),
                    "snapshotID": text(),
                    "capacity": {"type": "integer", "format": "int64"},
                    "errorCount": {"type": "integer"},
                    "quotaDetails": quota,
                    "firstOperationDetails": operation,
                    "latestOperationDetails": {"type": "array", "items": operation},
                },
            },
        },
    })
}
