//! The node's half: one privileged container on every node, which mounts disks where the kubelet asks for them.
//!
//! It has no Secret and no way to vCenter. It is in the pod network: of the network it needs the Kubernetes API only, and
//! a port on the node could be taken, above all by another CSI driver. It is probed by a command in the container, because
//! volumes have to be mounted, and this container must not be restarted, while the pod network does not work.

use k8s_openapi::api::apps::v1::DaemonSet;
use serde_json::{Value, from_value, json};

use super::{DRIVER, NAMESPACE, NODE, PROGRAM, Parameters, SOCKET, field};

pub(super) fn daemon_set(settings: &Parameters) -> Result<DaemonSet, serde_json::Error> {
    from_value(described(settings))
}

fn described(settings: &Parameters) -> Value {
    json!({
        "metadata": {"name": NODE, "namespace": NAMESPACE, "labels": {"app": NODE}},
        "spec": {
            // As the Go driver's: it cannot be changed by those who replace it.
            "selector": {"matchLabels": {"app": NODE}},
            // What is mounted stays mounted meanwhile.
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": {"app": NODE, "role": "vsphere-csi"}},
                "spec": pod(settings),
            },
        },
    })
}

fn pod(settings: &Parameters) -> Value {
    let kubelet = &settings.kubelet;
    let directory = |name: &str, path: &str, kind: &str| json!({"name": name, "hostPath": {"path": path, "type": kind}});
    json!({
        "serviceAccountName": NODE,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 30,
        "containers": [container(settings)],
        "volumes": [
            directory("registration-dir", &format!("{kubelet}/plugins_registry"), "Directory"),
            directory("plugin-dir", &format!("{kubelet}/plugins/{DRIVER}"), "DirectoryOrCreate"),
            directory("pods-mount-dir", kubelet, "Directory"),
            directory("device-dir", "/dev", "Directory"),
            directory("sys-dir", "/sys", "Directory"),
        ],
    })
}

fn container(settings: &Parameters) -> Value {
    let kubelet = &settings.kubelet;
    let registered = format!("{kubelet}/plugins/{DRIVER}/csi.sock");
    json!({
        "name": NODE,
        "image": settings.image,
        "command": [PROGRAM],
        "args": [format!("--kubelet-registration-path={registered}")],
        "env": [
            {"name": "CSI_ENDPOINT", "value": format!("unix://{SOCKET}")},
            {"name": "X_CSI_MODE", "value": "node"},
            {"name": "LOGGER_LEVEL", "value": "PRODUCTION"},
            field("NODE_NAME", "spec.nodeName"),
            field("CSI_NAMESPACE", "metadata.namespace"),
        ],
        // A program is started for each, so less often than where a port is asked.
        "livenessProbe": {
            "exec": {"command": [PROGRAM, "--probe"]},
            "periodSeconds": 20,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        },
        // No limit: the check of a large file system needs memory, and must not be killed.
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        // Mounts that others see need a privileged container, and mounting needs root.
        "securityContext": {
            "privileged": true,
            "runAsUser": 0,
            "runAsGroup": 0,
            "readOnlyRootFilesystem": true,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "plugin-dir", "mountPath": "/csi"},
            {"name": "registration-dir", "mountPath": "/registration"},
            {"name": "pods-mount-dir", "mountPath": kubelet, "mountPropagation": "Bidirectional"},
            {"name": "device-dir", "mountPath": "/dev"},
            // Buses are asked to look for disks here, and the firmware's tables have the VM's UUID.
            {"name": "sys-dir", "mountPath": "/sys"},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_field_of_the_daemon_set_is_misspelt() {
        let described = described(&Parameters::default());
        let made = serde_json::to_value(daemon_set(&Parameters::default()).unwrap()).unwrap();
        for part in ["metadata", "spec"] {
            assert_eq!(made[part], described[part]);
        }
    }

    #[test]
    fn nodes_have_no_credentials() {
        let text = described(&Parameters::default()).to_string();
        assert!(!text.contains("secret") && !text.contains("/etc/cloud"), "{text}");
    }

    #[test]
    fn the_network_of_pods_does_not_decide_whether_a_node_s_pod_lives() {
        let container = container(&Parameters::default());
        for (name, probe) in container.as_object().unwrap() {
            let is_probe = name.ends_with("Probe");
            assert!(!is_probe || probe["exec"]["command"].is_array(), "{name}: {probe}");
        }
        assert_eq!(container["livenessProbe"]["exec"]["command"], json!([PROGRAM, "--probe"]));
    }

    #[test]
    fn another_directory_of_the_kubelet_is_used_everywhere() {
        let other = "/var/lib/k0s/kubelet".to_owned();
        let text = described(&Parameters { kubelet: other, ..Parameters::default() }).to_string();
        assert!(!text.contains("/var/lib/kubelet"), "{text}");
        assert!(text.contains("/var/lib/k0s/kubelet/plugins/csi.vsphere.vmware.com/csi.sock"));
    }
}
