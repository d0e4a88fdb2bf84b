//! The pods: where they run, as which user, and their probes.
//!
//! The manager makes nodes usable, so it has to run before the cluster's network and DNS do: it tolerates every taint
//! of a node that is not ready yet, and uses the node's network and DNS.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy},
        core::v1::{
            Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar,
            EnvVarSource, HTTPGetAction, NodeAffinity, NodeSelector, NodeSelectorRequirement,
            NodeSelectorTerm, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec,
            Probe, ResourceRequirements, SeccompProfile, SecurityContext, Toleration, Volume,
            VolumeMount,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::{ACCOUNT, CONFIG, CONFIG_FILE, NAMESPACE, Parameters, texts};

const NAME: &str = "vsphere-cloud-controller-manager";
/// Where health and metrics are served, by HTTPS.
const PORT: i32 = 10258;
const USER: i64 = 65532;
const VOLUME: &str = "vsphere-config-volume";
const CONFIG_DIR: &str = "/etc/cloud";

pub(super) fn daemon_set(settings: &Parameters) -> DaemonSet {
    let common = [("component", ACCOUNT), ("tier", "control-plane")];
    let mut labels = texts(&common);
    labels.insert("name".to_owned(), NAME.to_owned());
    DaemonSet {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            labels: Some(texts(&common)),
            ..ObjectMeta::default()
        },
        spec: Some(DaemonSetSpec {
            // As the Go manager's: it cannot be changed by those who replace it.
            selector: LabelSelector {
                match_labels: Some(texts(&[("name", NAME)])),
                ..LabelSelector::default()
            },
            update_strategy: Some(DaemonSetUpdateStrategy {
                type_: Some("RollingUpdate".to_owned()),
                ..DaemonSetUpdateStrategy::default()
            }),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod(settings)),
            },
            ..DaemonSetSpec::default()
        }),
        ..DaemonSet::default()
    }
}

fn pod(settings: &Parameters) -> PodSpec {
    PodSpec {
        service_account_name: Some(ACCOUNT.to_owned()),
        priority_class_name: Some("system-node-critical".to_owned()),
        host_network: Some(true),
        dns_policy: Some("Default".to_owned()),
        affinity: Some(control_plane()),
        tolerations: Some(tolerations()),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        // Sessions are logged out and the lease is given back.
        termination_grace_period_seconds: Some(30),
        containers: vec![container(settings)],
        volumes: Some(vec![Volume {
            name: VOLUME.to_owned(),
            config_map: Some(ConfigMapVolumeSource {
                name: CONFIG.to_owned(),
                ..ConfigMapVolumeSource::default()
            }),
            ..Volume::default()
        }]),
        ..PodSpec::default()
    }
}

fn container(settings: &Parameters) -> Container {
    Container {
        name: NAME.to_owned(),
        image: Some(settings.image.clone()),
        args: Some(vec![
            "--cloud-provider=vsphere".to_owned(),
            format!("--cloud-config={CONFIG_DIR}/{CONFIG_FILE}"),
            "--v=2".to_owned(),
        ]),
        // For events about this pod.
        env: Some(vec![
            own("POD_NAME", "metadata.name"),
            own("POD_NAMESPACE", "metadata.namespace"),
        ]),
        ports: Some(vec![ContainerPort {
            name: Some("https".to_owned()),
            container_port: PORT,
            // What the API fills in for the node's network; said here so that a diff shows nothing.
            host_port: Some(PORT),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        liveness_probe: Some(Probe { failure_threshold: Some(6), ..probe("/livez") }),
        readiness_probe: Some(probe("/readyz")),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(&[("cpu", "100m"), ("memory", "64Mi")])),
            limits: Some(quantities(&[("memory", "512Mi")])),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        // A container that ends says why where `kubectl describe` shows it.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: CONFIG_DIR.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

/// A variable with something that the pod's own object says.
fn own(name: &str, field: &str) -> EnvVar {
    let field =
        ObjectFieldSelector { field_path: field.to_owned(), api_version: Some("v1".to_owned()) };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    EnvVar { name: name.to_owned(), value_from: Some(source), value: None }
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(PORT),
            scheme: Some("HTTPS".to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        ..Probe::default()
    }
}

fn quantities(amounts: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
    amounts
        .iter()
        .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
        .collect()
}

fn control_plane() -> Affinity {
    let term = NodeSelectorTerm {
        match_expressions: Some(vec![NodeSelectorRequirement {
            key: "node-role.kubernetes.io/control-plane".to_owned(),
            operator: "Exists".to_owned(),
            values: None,
        }]),
        ..NodeSelectorTerm::default()
    };
    Affinity {
        node_affinity: Some(NodeAffinity {
            required_during_scheduling_ignored_during_execution: Some(NodeSelector {
                node_selector_terms: vec![term],
            }),
            ..NodeAffinity::default()
        }),
        ..Affinity::default()
    }
}

/// No effect means every effect: a node that is not ready is tainted with two.
fn tolerations() -> Vec<Toleration> {
    let tolerate = |(key, effect): (&str, Option<&str>)| Toleration {
        key: Some(key.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: effect.map(str::to_owned),
        ..Toleration::default()
    };
    [
        ("node.cloudprovider.kubernetes.io/uninitialized", Some("NoSchedule")),
        ("node-role.kubernetes.io/control-plane", Some("NoSchedule")),
        ("node-role.kubernetes.io/master", Some("NoSchedule")),
        ("node.kubernetes.io/not-ready", None),
        ("node.kubernetes.io/unreachable", None),
        ("CriticalAddonsOnly", None),
    ]
    .map(tolerate)
    .to_vec()
}
