//! What runs the cloud controller manager in a cluster, as Kubernetes' own types.
//!
//! Names and labels are those of the Go manager's manifests: applying ours over them replaces it, and the existing
//! configuration stays in use. Roles are made of what the code calls ([`permissions`]).
//!
//! Deliberately absent: a Service. The kubelet and the collector of metrics find the pods without one.

#[cfg(test)]
mod files;
mod permissions;
mod pod;

use std::collections::BTreeMap;

use cloud_config::SecretName;
use daemon::permissions::{Permission, Scope};
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, Secret, ServiceAccount},
        rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::Value;

pub use self::permissions::permissions;

/// The default image.
pub const IMAGE: &str =
    concat!("ghcr.io/vsphere-drivers/vsphere-drivers:", env!("CARGO_PKG_VERSION"));
/// The namespace of all objects.
pub const NAMESPACE: &str = "kube-system";
/// The name of the lease, of the account and of the roles in namespaces.
const ACCOUNT: &str = "cloud-controller-manager";
const CLUSTER_ROLE: &str = "system:cloud-controller-manager";
const CONFIG: &str = "vsphere-cloud-config";
const CONFIG_FILE: &str = "vsphere.conf";
const SECRET: &str = "vsphere-cloud-secret";
const EXAMPLE: &str = include_str!("manifests/vsphere.conf.yaml");
const RBAC: &str = "rbac.authorization.k8s.io";

/// What differs between clusters.
#[derive(Debug, Clone)]
pub struct Parameters {
    /// The image to run.
    pub image: String,
    /// The Secrets that the configuration names; the role allows no others.
    pub secrets: Vec<SecretName>,
}

impl Default for Parameters {
    fn default() -> Self {
        let secret = SecretName { namespace: NAMESPACE.to_owned(), name: SECRET.to_owned() };
        Self { image: IMAGE.to_owned(), secrets: vec![secret] }
    }
}

/// All objects but the configuration.
#[derive(Debug, Clone)]
pub struct Manifests {
    /// The account of the pods.
    pub account: ServiceAccount,
    /// Permissions in the whole cluster.
    pub cluster_role: ClusterRole,
    /// Binds the cluster role to the account.
    pub cluster_role_binding: ClusterRoleBinding,
    /// Permissions in single namespaces.
    pub roles: Vec<Role>,
    /// Bind these roles to the account.
    pub role_bindings: Vec<RoleBinding>,
    /// A pod on each control-plane node; one of them leads.
    pub daemon_set: DaemonSet,
}

/// Makes the objects.
#[must_use]
pub fn manifests(settings: &Parameters) -> Manifests {
    let permissions = permissions(settings);
    let namespaces = by_namespace(&permissions);
    let cluster = permissions.iter().filter(|one| one.scope == Scope::Cluster);
    let roles = namespaces.iter().map(|(namespace, rules)| Role {
        metadata: metadata(ACCOUNT, Some(namespace), "role"),
        rules: Some(rules.iter().map(|one| one.rule.clone()).collect()),
    });
    let role_bindings = namespaces.keys().map(|namespace| RoleBinding {
        metadata: metadata(ACCOUNT, Some(namespace), "role-binding"),
        role_ref: role("Role", ACCOUNT),
        subjects: Some(vec![subject()]),
    });
    Manifests {
        account: ServiceAccount {
            metadata: metadata(ACCOUNT, Some(NAMESPACE), "service-account"),
            ..ServiceAccount::default()
        },
        cluster_role: ClusterRole {
            metadata: metadata(CLUSTER_ROLE, None, "role"),
            rules: Some(cluster.map(|one| one.rule.clone()).collect()),
            ..ClusterRole::default()
        },
        cluster_role_binding: ClusterRoleBinding {
            metadata: metadata(CLUSTER_ROLE, None, "cluster-role-binding"),
            role_ref: role("ClusterRole", CLUSTER_ROLE),
            subjects: Some(vec![subject()]),
        },
        roles: roles.collect(),
        role_bindings: role_bindings.collect(),
        daemon_set: pod::daemon_set(settings),
    }
}

impl Manifests {
    /// The objects in an order in which they can be created.
    ///
    /// # Errors
    /// None that is known: the types are Kubernetes' own.
    pub fn values(&self) -> Result<Vec<Value>, serde_json::Error> {
        let mut values = vec![
            serde_json::to_value(&self.account)?,
            serde_json::to_value(&self.cluster_role)?,
            serde_json::to_value(&self.cluster_role_binding)?,
        ];
        for role in &self.roles {
            values.push(serde_json::to_value(role)?);
        }
        for binding in &self.role_bindings {
            values.push(serde_json::to_value(binding)?);
        }
        values.push(serde_json::to_value(&self.daemon_set)?);
        Ok(values)
    }
}

/// The ConfigMap that the pods mount. `files` are its other files by name, such as certificates; the pods find
/// all of them in `/etc/cloud`.
#[must_use]
pub fn configuration(vsphere_conf: &str, files: BTreeMap<String, String>) -> ConfigMap {
    let mut data = files;
    data.insert(CONFIG_FILE.to_owned(), vsphere_conf.to_owned());
    let metadata = metadata(CONFIG, Some(NAMESPACE), "config");
    ConfigMap { metadata, data: Some(data), ..ConfigMap::default() }
}

/// A Secret with what must be typed into it, for the example configuration.
fn example_secret() -> Secret {
    let entries = ["username", "password"].map(|what| {
        (format!("vcenter.example.com.{what}"), format!("<the {what} of the vSphere account>"))
    });
    let metadata = metadata(SECRET, Some(NAMESPACE), "secret");
    Secret { metadata, string_data: Some(entries.into()), ..Secret::default() }
}

/// A configuration to start from: the file and its Secret.
#[must_use]
pub fn example() -> (ConfigMap, Secret) {
    (configuration(EXAMPLE, BTreeMap::new()), example_secret())
}

fn by_namespace(permissions: &[Permission]) -> BTreeMap<&str, Vec<&Permission>> {
    let mut namespaces: BTreeMap<&str, Vec<&Permission>> = BTreeMap::new();
    for permission in permissions {
        if let Scope::Namespace(namespace) = &permission.scope {
            namespaces.entry(namespace).or_default().push(permission);
        }
    }
    namespaces
}

fn metadata(name: &str, namespace: Option<&str>, part: &str) -> ObjectMeta {
    let labels = [("component", ACCOUNT), ("vsphere-cpi-infra", part)];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(texts(&labels)),
        ..ObjectMeta::default()
    }
}

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn role(kind: &str, name: &str) -> RoleRef {
    RoleRef { api_group: RBAC.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

fn subject() -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: ACCOUNT.to_owned(),
        namespace: Some(NAMESPACE.to_owned()),
        ..Subject::default()
    }
}

#[cfg(test)]
mod tests {
    use cloud_config::{CredentialSource, Reader};

    use super::*;

    #[test]
    fn the_example_configuration_is_accepted_and_its_secret_is_the_one_that_may_be_read() {
        let (config, secret) = example();
        let text = &config.data.unwrap()[CONFIG_FILE];
        let read = Reader { strict: true, ..Reader::default() }.read(CONFIG_FILE, text.as_bytes());
        let accepted = read.unwrap();
        assert!(accepted.warnings.is_empty(), "{:?}", accepted.warnings);
        for vcenter in &accepted.config.vcenters {
            let CredentialSource::Secret(name) = &vcenter.credentials else {
                panic!("the example has a password in it")
            };
            assert!(Parameters::default().secrets.contains(name));
            assert_eq!(secret.metadata.name.as_deref(), Some(name.name.as_str()));
            let keys = secret.string_data.as_ref().unwrap();
            assert!(keys.contains_key(&format!("{}.username", vcenter.server)), "{keys:?}");
        }
    }

    #[test]
    fn no_rule_has_a_wildcard_and_secrets_and_leases_are_named() {
        for permission in permissions(&Parameters::default()) {
            let rule = &permission.rule;
            let words = rule.verbs.iter().chain(rule.resources.iter().flatten());
            assert!(words.chain(rule.api_groups.iter().flatten()).all(|word| word != "*"));
            let resource = &rule.resources.as_ref().unwrap()[0];
            let limited = rule.resource_names.is_some() || rule.verbs == ["create"];
            assert!(limited || !["secrets", "leases"].contains(&resource.as_str()), "{rule:?}");
        }
    }

    #[test]
    fn each_namespace_with_a_secret_gets_a_role() {
        let elsewhere = SecretName { namespace: "vsphere".to_owned(), name: "east".to_owned() };
        let mut settings = Parameters::default();
        settings.secrets.push(elsewhere);
        let made = manifests(&settings);
        let namespaces: Vec<_> =
            made.roles.iter().filter_map(|role| role.metadata.namespace.as_deref()).collect();
        assert_eq!(namespaces, ["default", "kube-system", "vsphere"]);
        assert_eq!(made.role_bindings.len(), 3);
    }

    /// The rules of the Go manager's ClusterRole, as far as they are about what we touch.
    const UPSTREAM: [(&str, &str, &[&str]); 5] = [
        ("", "events", &["create", "patch", "update"]),
        ("", "nodes", &["*"]),
        ("", "nodes/status", &["patch"]),
        ("", "secrets", &["get", "list", "watch"]),
        ("coordination.k8s.io", "leases", &["create", "get", "list", "watch", "update"]),
    ];

    #[test]
    fn upstreams_roles_and_manifests_suffice() {
        for permission in permissions(&Parameters::default()) {
            let text = |list: Option<Vec<String>>| list.unwrap_or_default().concat();
            let (group, resource) =
                (text(permission.rule.api_groups), text(permission.rule.resources));
            // Without these only metrics are refused, as upstream refuses them.
            if resource.ends_with("reviews") {
                continue;
            }
            let allowed = UPSTREAM.iter().find(|rule| (rule.0, rule.1) == (&group, &resource));
            let allowed = allowed.map_or(&[][..], |rule| rule.2);
            for verb in &permission.rule.verbs {
                assert!(
                    allowed.contains(&"*") || allowed.contains(&verb.as_str()),
                    "{verb} {resource}"
                );
            }
        }
        let pods =
            manifests(&Parameters::default()).daemon_set.spec.unwrap().template.spec.unwrap();
        assert_eq!(pods.service_account_name.as_deref(), Some("cloud-controller-manager"));
        // The image must do what it does for upstream's pods, which name no command.
        assert_eq!(pods.containers[0].command, None);
    }
}
