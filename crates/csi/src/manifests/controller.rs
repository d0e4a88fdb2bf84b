//! The controller: two pods of the driver and the sidecars that call it over a socket.
//!
//! Every replica serves its own sidecars; each of these, and the driver's attach controller, works under a lease of its
//! own. Two replicas, so that the loss of a node costs seconds and not the minutes until its pods are moved.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use serde_json::{Value, from_value, json};

use super::{
    CONFIG_DIR, CONFIG_FILE, CONTROLLER, HEALTH_PORT, NAMESPACE, PROGRAM, Parameters, SECRET,
    SOCKET, field, health_probe,
};

const USER: i64 = 65532;
const METRICS_PORT: i32 = 2112;

pub(super) fn deployment(settings: &Parameters) -> Result<Deployment, serde_json::Error> {
    from_value(described(settings))
}

/// As the Go driver's, by which collectors of metrics find the pods.
pub(super) fn service() -> Result<Service, serde_json::Error> {
    from_value(json!({
        "metadata": {
            "name": CONTROLLER,
            "namespace": NAMESPACE,
            "labels": {"app": CONTROLLER},
        },
        "spec": {
            "selector": {"app": CONTROLLER},
            "ports": [{"name": "ctlr", "port": METRICS_PORT, "targetPort": METRICS_PORT, "protocol": "TCP"}],
        },
    }))
}

fn described(settings: &Parameters) -> Value {
    json!({
        "metadata": {"name": CONTROLLER, "namespace": NAMESPACE, "labels": {"app": CONTROLLER}},
        "spec": {
            "replicas": 2,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
            },
            // As the Go driver's: it cannot be changed by those who replace it.
            "selector": {"matchLabels": {"app": CONTROLLER}},
            "template": {
                "metadata": {"labels": {"app": CONTROLLER, "role": "vsphere-csi"}},
                "spec": pod(settings),
            },
        },
    })
}

fn pod(settings: &Parameters) -> Value {
    let roles = ["control-plane", "controlplane", "master"];
    let has = |role: &str| {
        json!({"matchExpressions": [
            {"key": format!("node-role.kubernetes.io/{role}"), "operator": "Exists"},
        ]})
    };
    let tolerated = |role: &str| json!({"key": format!("node-role.kubernetes.io/{role}"), "operator": "Exists", "effect": "NoSchedule"});
    let mut containers = vec![container(settings)];
    containers.extend(settings.sidecars.containers());
    json!({
        "serviceAccountName": CONTROLLER,
        "priorityClassName": "system-cluster-critical",
        // vCenter's name is resolved as the node does it, also while the cluster's DNS waits for volumes.
        "dnsPolicy": "Default",
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": roles.map(has)},
            },
            // Not required: a cluster may have one such node only.
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"app": CONTROLLER}},
                    },
                }],
            },
        },
        "tolerations": roles.map(tolerated),
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        // Sessions are logged out and leases are given back.
        "terminationGracePeriodSeconds": 30,
        "containers": containers,
        "volumes": [
            {"name": "vsphere-config-volume", "secret": {"secretName": SECRET}},
            {"name": "socket-dir", "emptyDir": {}},
        ],
    })
}

fn container(settings: &Parameters) -> Value {
    json!({
        "name": CONTROLLER,
        "image": settings.image,
        "command": [PROGRAM],
        "args": ["--attach", format!("--health-address=:{HEALTH_PORT}")],
        "env": [
            {"name": "CSI_ENDPOINT", "value": format!("unix://{SOCKET}")},
            {"name": "X_CSI_MODE", "value": "controller"},
            {"name": "VSPHERE_CSI_CONFIG", "value": format!("{CONFIG_DIR}/{CONFIG_FILE}")},
            {"name": "LOGGER_LEVEL", "value": "PRODUCTION"},
            field("CSI_NAMESPACE", "metadata.namespace"),
            // For events about this pod.
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
        ],
        "ports": [
            {"name": "healthz", "containerPort": HEALTH_PORT, "protocol": "TCP"},
            {"name": "prometheus", "containerPort": METRICS_PORT, "protocol": "TCP"},
        ],
        "livenessProbe": health_probe(),
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": restricted(),
        // The end of the log of a container that ended is where `kubectl describe` shows it.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "vsphere-config-volume", "mountPath": CONFIG_DIR, "readOnly": true},
            {"name": "socket-dir", "mountPath": "/csi"},
        ],
    })
}

/// What Kubernetes' strictest standard on pods asks of a container.
pub(super) fn restricted() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that Kubernetes' types do not have are skipped when they are read.
    #[test]
    fn no_field_of_the_deployment_is_misspelt() {
        let described = described(&Parameters::default());
        let made = serde_json::to_value(deployment(&Parameters::default()).unwrap()).unwrap();
        for part in ["metadata", "spec"] {
            assert_eq!(made[part], described[part]);
        }
    }
}
