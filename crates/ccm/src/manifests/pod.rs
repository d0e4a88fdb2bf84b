//! The pods: where they run, as which user, and their probes.
//!
//! The manager makes nodes usable, so it has to run before the cluster's network and DNS do: it tolerates every taint
//! of a node that is not ready yet, and uses the node's network and DNS.

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, json};

use super::{ACCOUNT, CONFIG, CONFIG_FILE, NAMESPACE, Parameters};

const NAME: &str = "vsphere-cloud-controller-manager";
/// Where health and metrics are served, by HTTPS.
const PORT: i32 = 10258;
const USER: i64 = 65532;
const VOLUME: &str = "vsphere-config-volume";
const CONFIG_DIR: &str = "/etc/cloud";

pub(super) fn daemon_set(settings: &Parameters) -> Result<DaemonSet, serde_json::Error> {
    serde_json::from_value(described(settings))
}

fn described(settings: &Parameters) -> Value {
    json!({
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"component": ACCOUNT, "tier": "control-plane"},
        },
        "spec": {
            // As the Go manager's: it cannot be changed by those who replace it.
            "selector": {"matchLabels": {"name": NAME}},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {
                "metadata": {
                    "labels": {"name": NAME, "component": ACCOUNT, "tier": "control-plane"},
                },
                "spec": pod(settings),
            },
        },
    })
}

fn pod(settings: &Parameters) -> Value {
    let on_control_plane = json!([{"matchExpressions": [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
    ]}]);
    json!({
        "serviceAccountName": ACCOUNT,
        "priorityClassName": "system-node-critical",
        "hostNetwork": true,
        "dnsPolicy": "Default",
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": on_control_plane},
        }},
        // No effect means every effect: a node that is not ready is tainted with two.
        "tolerations": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
            {"key": "CriticalAddonsOnly", "operator": "Exists"},
        ],
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Sessions are logged out and the lease is given back.
        "terminationGracePeriodSeconds": 30,
        "containers": [container(settings)],
        "volumes": [{"name": VOLUME, "configMap": {"name": CONFIG}}],
    })
}

fn container(settings: &Parameters) -> Value {
    let field = |path: &str| json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}});
    let probe = |path: &str, failures: Option<u32>| {
        json!({
            "httpGet": {"path": path, "port": PORT, "scheme": "HTTPS"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        })
    };
    json!({
        "name": NAME,
        "image": settings.image,
        "args": [
            "--cloud-provider=vsphere",
            format!("--cloud-config={CONFIG_DIR}/{CONFIG_FILE}"),
            "--v=2",
        ],
        // For events about this pod.
        "env": [
            {"name": "POD_NAME", "valueFrom": field("metadata.name")},
            {"name": "POD_NAMESPACE", "valueFrom": field("metadata.namespace")},
        ],
        // The API fills in the host port for the node's network; it is here so that a diff shows nothing.
        "ports": [{"name": "https", "containerPort": PORT, "hostPort": PORT, "protocol": "TCP"}],
        "livenessProbe": probe("/livez", Some(6)),
        "readinessProbe": probe("/readyz", None),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        // The end of the log of a container that ended is where `kubectl describe` shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": VOLUME, "mountPath": CONFIG_DIR, "readOnly": true}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that Kubernetes' types do not have are skipped when they are read.
    #[test]
    fn no_field_of_the_daemon_set_is_misspelt() {
        let mut described = described(&Parameters::default());
        let readiness = "/spec/template/spec/containers/0/readinessProbe";
        let probe = described.pointer_mut(readiness).and_then(Value::as_object_mut).unwrap();
        assert_eq!(probe.remove("failureThreshold"), Some(Value::Null));
        let made = serde_json::to_value(daemon_set(&Parameters::default()).unwrap()).unwrap();
        for part in ["metadata", "spec"] {
            assert_eq!(made[part], described[part]);
        }
    }
}
