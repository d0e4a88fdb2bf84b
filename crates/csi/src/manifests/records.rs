//! The CustomResourceDefinition of the records in which operations are remembered over a crash.
//!
//! The Go driver installs it by itself when it starts. Ours has its names and fields and is more tolerant: fields that a
//! newer Go driver writes are kept, and none is required, so that each driver reads what the other wrote.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, from_value, json};

pub(super) fn definition() -> Result<CustomResourceDefinition, serde_json::Error> {
    from_value(json!({
        "metadata": {"name": "cnsvolumeoperationrequests.cns.vmware.com"},
        "spec": {
            "group": "cns.vmware.com",
            "scope": "Namespaced",
            "names": {
                "kind": "CnsVolumeOperationRequest",
                "listKind": "CnsVolumeOperationRequestList",
                "plural": "cnsvolumeoperationrequests",
                "singular": "cnsvolumeoperationrequest",
            },
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": schema()},
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
