//! What runs the CSI driver in a cluster, as Kubernetes' own types.
//!
//! Names are those of the Go driver's manifests: applying ours over them replaces it, and the existing Secret, claims and
//! volumes stay in use. Roles are made of what the code calls ([`driver_permissions`], [`node_permissions`]); those of
//! the stock sidecars are in [`sidecars`].
//!
//! ```text
//!   Deployment vsphere-csi-controller   driver (controller, attach) + csi-provisioner, csi-resizer, csi-snapshotter
//!   DaemonSet  vsphere-csi-node         driver (node, registration), privileged, without credentials of vCenter
//! ```
//!
//! Deliberately absent: a PodDisruptionBudget. On several control-plane nodes the replicas keep apart, and on a single one
//! it would keep `kubectl drain` from ever ending.

mod controller;
#[cfg(test)]
mod files;
mod node;
mod records;
pub mod sidecars;

use cloud_config::SecretName;
use daemon::{
    events,
    permissions::{Names, Permission, Roles},
    reload,
};
use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, Deployment},
        core::v1::{Namespace, Secret, Service, ServiceAccount},
        storage::v1::{CSIDriver, StorageClass},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, from_value, json, to_value};

use crate::{
    attach, cluster_id, machine, topology,
    volumes::{journal, nodes, volume_infos},
};

/// The default image.
pub const IMAGE: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-drivers:", env!("CARGO_PKG_VERSION"));
/// The same image, for manifests of the Go driver, whose containers name no command.
pub const GO_DRIVER_IMAGE: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-csi:", env!("CARGO_PKG_VERSION"));
/// The namespace of all objects that are in one.
pub const NAMESPACE: &str = "vmware-system-csi";
/// The Deployment, its container and its account.
pub const CONTROLLER: &str = "vsphere-csi-controller";
/// The DaemonSet, its container and its account.
pub const NODE: &str = "vsphere-csi-node";
/// The Secret with the configuration file.
pub const SECRET: &str = "vsphere-config-secret";
/// The configuration file, in the Secret and where the driver looks for it.
pub const CONFIG_FILE: &str = "csi-vsphere.conf";
const CONFIG_DIR: &str = "/etc/cloud";
/// The program in the image.
const PROGRAM: &str = "/bin/vsphere-csi";
const DRIVER: &str = "csi.vsphere.vmware.com";
/// Where containers of a pod find the driver's socket.
const SOCKET: &str = "/csi/csi.sock";
/// Where health is served, by HTTP.
const HEALTH_PORT: i32 = 9808;

/// What differs between clusters.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// The image to run.
    pub image: String,
    /// The images of the sidecars.
    pub sidecars: sidecars::Images,
    /// The kubelet's directory on the nodes.
    pub kubelet: String,
    /// The Secrets that the configuration names, besides the one that has the configuration; the role allows no others.
    pub secrets: Vec<SecretName>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            image: IMAGE.to_owned(),
            sidecars: sidecars::Images::default(),
            kubelet: "/var/lib/kubelet".to_owned(),
            secrets: Vec::new(),
        }
    }
}

/// All objects but the configuration.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// Lets the node's privileged pods in.
    pub namespace: Namespace,
    /// What Kubernetes has to know of the driver.
    pub driver: CSIDriver,
    /// The records of operations that are under way.
    pub records: CustomResourceDefinition,
    /// Which vCenter has a volume, where there are several.
    pub volume_infos: CustomResourceDefinition,
    /// Questions of nodes for their zones.
    pub topologies: CustomResourceDefinition,
    /// The accounts of the controller's and the node's pods.
    pub accounts: [ServiceAccount; 2],
    /// What each program may do.
    pub roles: Programs<Roles>,
    /// Where metrics are found.
    pub service: Service,
    /// The controller.
    pub deployment: Deployment,
    /// A pod on each node.
    pub daemon_set: DaemonSet,
}

/// Something of each program that calls the Kubernetes API. The first four run in the controller's pods, with one account.
#[derive(Debug, Clone)]
pub struct Programs<T> {
    /// The driver's controller.
    pub driver: T,
    /// The stock csi-provisioner.
    pub provisioner: T,
    /// The stock csi-resizer.
    pub resizer: T,
    /// The stock csi-snapshotter.
    pub snapshotter: T,
    /// The driver on a node.
    pub node: T,
}

/// Makes the objects.
pub fn manifests(settings: &Parameters) -> Result<Manifests, serde_json::Error> {
    Ok(Manifests {
        namespace: namespace()?,
        driver: driver()?,
        records: records::definition()?,
        volume_infos: records::volume_infos()?,
        topologies: records::topologies()?,
        accounts: [CONTROLLER, NODE].map(|name| ServiceAccount {
            metadata: metadata(name, Some(NAMESPACE)),
            ..ServiceAccount::default()
        }),
        roles: roles(settings),
        service: controller::service()?,
        deployment: controller::deployment(settings)?,
        daemon_set: node::daemon_set(settings)?,
    })
}

impl Manifests {
    /// The objects in an order in which they can be created.
    pub fn values(&self) -> Result<Vec<Value>, serde_json::Error> {
        let Self {
            namespace,
            driver,
            records,
            volume_infos,
            topologies,
            accounts,
            roles,
            service,
            deployment,
            daemon_set,
        } = self;
        let [controller, node] = accounts;
        let mut objects = vec![
            to_value(namespace)?,
            to_value(driver)?,
            to_value(records)?,
            to_value(volume_infos)?,
            to_value(topologies)?,
            to_value(controller)?,
            to_value(node)?,
        ];
        let Programs { driver, provisioner, resizer, snapshotter, node } = roles;
        for roles in [driver, provisioner, resizer, snapshotter, node] {
            objects.extend(roles.values()?);
        }
        objects.extend([to_value(service)?, to_value(deployment)?, to_value(daemon_set)?]);
        Ok(objects)
    }
}

/// The Secret that the controller's pods mount. Its other files, such as certificates, are found in `/etc/cloud`, too.
#[must_use]
pub fn configuration(files: impl IntoIterator<Item = (String, String)>) -> Secret {
    Secret {
        metadata: metadata(SECRET, Some(NAMESPACE)),
        string_data: Some(files.into_iter().collect()),
        ..Secret::default()
    }
}

/// The namespace. A cluster may enforce a stricter standard on pods by default, which the node's would not meet.
pub fn namespace() -> Result<Namespace, serde_json::Error> {
    from_value(json!({"metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
    }}))
}

fn driver() -> Result<CSIDriver, serde_json::Error> {
    from_value(json!({
        "metadata": {"name": DRIVER},
        "spec": {
            "attachRequired": true,
            "podInfoOnMount": false,
            // Volumes are file systems of their own: whoever may write them decides the group, whatever the access mode.
            "fsGroupPolicy": "File",
            // Not tried on a machine with SELinux, so files are labelled one by one as before.
            "seLinuxMount": false,
            "requiresRepublish": false,
            "storageCapacity": false,
            "volumeLifecycleModes": ["Persistent"],
            // How soon the scheduler learns that a VM has more or fewer slots for disks; kubelet asks the driver then.
            "nodeAllocatableUpdatePeriodSeconds": 60,
        },
    }))
}

/// A class to start from.
fn storage_class(name: &str, parameters: &Value) -> Result<StorageClass, serde_json::Error> {
    from_value(json!({
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "parameters": parameters,
        "reclaimPolicy": "Delete",
        // The scheduler chooses the node first, so that the volume is made where that node reaches it.
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    }))
}

/// Examples of classes: one without parameters, one for each that users set most.
pub fn storage_classes() -> Result<Vec<StorageClass>, serde_json::Error> {
    let classes = [
        ("vsphere", json!({"csi.storage.k8s.io/fstype": "ext4"})),
        ("vsphere-xfs", json!({"csi.storage.k8s.io/fstype": "xfs"})),
        (
            "vsphere-policy",
            json!({
                "csi.storage.k8s.io/fstype": "ext4",
                "storagepolicyname": "vSAN Default Storage Policy",
            }),
        ),
    ];
    classes.iter().map(|(name, parameters)| storage_class(name, parameters)).collect()
}

/// A class of snapshots, for clusters that have their CustomResourceDefinitions.
#[must_use]
pub fn snapshot_class() -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": "vsphere"},
        "driver": DRIVER,
        "deletionPolicy": "Delete",
    })
}

fn roles(settings: &Parameters) -> Programs<Roles> {
    let made = |permissions: &[Permission], account, name: &str| {
        let (role, binding) = (format!("{name}-role"), format!("{name}-binding"));
        let names = Names {
            account: (NAMESPACE, account),
            cluster: (&role, &binding),
            namespaced: (&role, &binding),
        };
        Roles::new(permissions, names, |name, namespace, _| metadata(name, namespace))
    };
    // The names of the Go driver's, which has no Role for its controller.
    let node = Names {
        account: (NAMESPACE, NODE),
        cluster: ("vsphere-csi-node-cluster-role", "vsphere-csi-node-cluster-role-binding"),
        namespaced: ("vsphere-csi-node-role", "vsphere-csi-node-binding"),
    };
    Programs {
        driver: made(&driver_permissions(settings), CONTROLLER, CONTROLLER),
        provisioner: made(
            &sidecars::provisioner_permissions(),
            CONTROLLER,
            "vsphere-csi-provisioner",
        ),
        resizer: made(&sidecars::resizer_permissions(), CONTROLLER, "vsphere-csi-resizer"),
        snapshotter: made(
            &sidecars::snapshotter_permissions(),
            CONTROLLER,
            "vsphere-csi-snapshotter",
        ),
        node: Roles::new(&node_permissions(), node, |name, namespace, _| metadata(name, namespace)),
    }
}

/// Every permission that the driver's controller needs, and no other.
#[must_use]
pub fn driver_permissions(settings: &Parameters) -> Vec<Permission> {
    let mut all = journal::permissions(NAMESPACE);
    all.extend(cluster_id::permissions(NAMESPACE));
    all.extend(volume_infos::permissions(NAMESPACE));
    all.extend(nodes::permissions());
    all.extend(attach::permissions(NAMESPACE));
    all.extend(topology::permissions(NAMESPACE));
    all.extend(events::permissions(None));
    all.extend(events::permissions(Some(NAMESPACE)));
    for secret in &settings.secrets {
        all.extend(reload::permissions(&secret.namespace, &secret.name));
    }
    all
}

/// Every permission that the driver needs on a node, and no other.
#[must_use]
pub fn node_permissions() -> Vec<Permission> {
    let mut all = machine::permissions();
    all.extend(topology::node_permissions());
    all
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    }
}

/// The value of a variable that is a field of the pod.
fn field(name: &str, path: &str) -> Value {
    json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}})
}

fn health_probe() -> Value {
    json!({
        "httpGet": {"path": "/healthz", "port": "healthz"},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": 6,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::PolicyRule;
    use lab::{image, upstream};

    use super::*;

    fn all_permissions() -> Vec<Permission> {
        [
            driver_permissions(&Parameters::default()),
            sidecars::provisioner_permissions(),
            sidecars::resizer_permissions(),
            sidecars::snapshotter_permissions(),
            node_permissions(),
        ]
        .concat()
    }

    #[test]
    fn no_rule_has_a_wildcard_and_secrets_and_leases_are_named() {
        for permission in all_permissions() {
            let rule = &permission.rule;
            let words = rule.verbs.iter().chain(rule.resources.iter().flatten());
            assert!(words.chain(rule.api_groups.iter().flatten()).all(|word| word != "*"));
            let resource = &rule.resources.as_ref().unwrap()[0];
            let limited = rule.resource_names.is_some() || rule.verbs == ["create"];
            assert!(limited || !["secrets", "leases"].contains(&resource.as_str()), "{rule:?}");
        }
    }

    /// The Go driver's objects of a kind, by name.
    fn upstream(kind: &str, name: &str) -> Value {
        let all = upstream::csi_objects().unwrap();
        let named = |one: &Value| one["kind"] == kind && one["metadata"]["name"] == name;
        all.into_iter().find(named).unwrap_or_else(|| panic!("upstream has no {kind} {name}"))
    }

    /// Verbs and resources that upstream's ClusterRole does not allow.
    fn missing(role: &str, permissions: &[Permission]) -> Vec<String> {
        let rules: Vec<PolicyRule> =
            from_value(upstream("ClusterRole", role)["rules"].clone()).unwrap();
        let has = |all: &Option<Vec<String>>, own: &Option<Vec<String>>| {
            own.iter().flatten().all(|one| all.iter().flatten().any(|other| other == one))
        };
        let mut missing = Vec::new();
        for Permission { rule, .. } in permissions {
            for verb in &rule.verbs {
                let allowed = rules.iter().any(|one| {
                    has(&one.api_groups, &rule.api_groups)
                        && has(&one.resources, &rule.resources)
                        && one.verbs.contains(verb)
                });
                if !allowed {
                    missing.push(format!(
                        "{verb} {}",
                        rule.resources.iter().flatten().next().unwrap()
                    ));
                }
            }
        }
        missing.sort();
        missing.dedup();
        missing
    }

    #[test]
    fn upstreams_roles_suffice_but_for_attach_limits() {
        // The controller publishes how many volumes fit on a node, and the node reads it; without the right to, the
        // node reports what the Go driver does.
        let driver = driver_permissions(&Parameters::default());
        assert_eq!(missing("vsphere-csi-controller-role", &driver), ["patch csinodes"]);
        let node = missing("vsphere-csi-node-cluster-role", &node_permissions());
        assert_eq!(node, ["get csinodes"]);
        for sidecar in [
            sidecars::provisioner_permissions(),
            sidecars::resizer_permissions(),
            sidecars::snapshotter_permissions(),
        ] {
            assert_eq!(missing("vsphere-csi-controller-role", &sidecar), [""; 0]);
        }
    }

    #[test]
    fn those_who_come_from_the_go_driver_are_told_the_image_for_its_manifest() {
        assert_eq!(GO_DRIVER_IMAGE, image::GO_DRIVER);
        let page = include_str!("../../../docs/user/csi-driver.md");
        let (_, chapter) = page.split_once("## Coming from the Go driver").unwrap();
        let (name, _) = GO_DRIVER_IMAGE.rsplit_once(':').unwrap();
        assert!(chapter.contains(&format!("`{name}`")), "{chapter}");
    }

    #[test]
    fn what_cannot_be_changed_is_as_upstream_has_it() {
        let made = manifests(&Parameters::default()).unwrap();
        let ours = [
            ("Deployment", CONTROLLER, to_value(&made.deployment).unwrap()),
            ("DaemonSet", NODE, to_value(&made.daemon_set).unwrap()),
        ];
        for (kind, name, ours) in ours {
            let theirs = upstream(kind, name);
            let selector = "/spec/selector";
            assert_eq!(ours.pointer(selector), theirs.pointer(selector), "{kind}");
            assert_eq!(ours["metadata"]["namespace"], theirs["metadata"]["namespace"]);
        }
        let roles = &made.roles;
        for (kind, theirs, ours) in [
            ("ClusterRoleBinding", "vsphere-csi-controller-binding", &roles.driver),
            ("ClusterRoleBinding", "vsphere-csi-node-cluster-role-binding", &roles.node),
        ] {
            let ours = to_value(&ours.cluster_role_binding).unwrap();
            assert_eq!(ours["roleRef"], upstream(kind, theirs)["roleRef"], "{theirs}");
            assert_eq!(ours["metadata"]["name"], theirs);
        }
        let theirs = upstream("CSIDriver", DRIVER);
        let ours = to_value(&made.driver).unwrap();
        assert_eq!(ours["spec"]["attachRequired"], theirs["spec"]["attachRequired"]);
    }

    #[test]
    fn the_sidecars_are_those_that_the_lab_has() {
        let sidecars::Images { provisioner, resizer, snapshotter } = sidecars::Images::default();
        assert_eq!([provisioner.as_str(), &resizer, &snapshotter], image::SIDECARS);
    }
}
