//! What runs the cloud controller manager in a cluster, as Kubernetes' own types.
//!
//! Names and labels are those of the Go manager's manifests: applying ours over them replaces it, and the existing
//! configuration stays in use. Roles are made of what the code calls ([`permissions`]).
//!
//! Deliberately absent: a Service. The kubelet and the collector of metrics find the pods without one.

#[cfg(test)]
mod files;
mod pod;

use std::collections::BTreeMap;

use cloud_config::SecretName;
use daemon::{
    admin, events, lease,
    permissions::{Names, Permission, Roles, Scope},
    reload,
};
use k8s_openapi::{
    api::{
        apps::v1::DaemonSet,
        core::v1::{ConfigMap, ServiceAccount},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, to_value};

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
    /// What the account may do.
    pub roles: Roles,
    /// A pod on each control-plane node; one of them leads.
    pub daemon_set: DaemonSet,
}

/// Makes the objects.
pub fn manifests(settings: &Parameters) -> Result<Manifests, serde_json::Error> {
    let names = Names {
        account: (NAMESPACE, ACCOUNT),
        cluster: (CLUSTER_ROLE, CLUSTER_ROLE),
        namespaced: (ACCOUNT, ACCOUNT),
    };
    Ok(Manifests {
        account: ServiceAccount {
            metadata: metadata(ACCOUNT, Some(NAMESPACE), "service-account"),
            ..ServiceAccount::default()
        },
        roles: Roles::new(&permissions(settings), names, metadata),
        daemon_set: pod::daemon_set(settings)?,
    })
}

impl Manifests {
    /// The objects in an order in which they can be created.
    pub fn values(&self) -> Result<Vec<Value>, serde_json::Error> {
        let Self { account, roles, daemon_set } = self;
        let mut objects = vec![to_value(account)?];
        objects.extend(roles.values()?);
        objects.push(to_value(daemon_set)?);
        Ok(objects)
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

/// Every permission that the manager needs, and no other, from the modules that make the requests.
#[must_use]
pub fn permissions(settings: &Parameters) -> Vec<Permission> {
    // All Nodes are watched and patched, one is read again after a conflict, and those whose VM is gone are deleted.
    let verbs = ["get", "list", "watch", "patch", "delete"];
    let mut all = vec![
        Permission::new(Scope::Cluster, ("", "nodes"), &verbs),
        Permission::new(Scope::Cluster, ("", "nodes/status"), &["patch"]),
    ];
    all.extend(admin::permissions());
    // About Nodes, which are in no namespace, and about the lease and our pod.
    all.extend(events::permissions(None));
    all.extend(events::permissions(Some(NAMESPACE)));
    all.extend(lease::permissions(NAMESPACE, ACCOUNT));
    for secret in &settings.secrets {
        all.extend(reload::permissions(&secret.namespace, &secret.name));
    }
    all
}

fn metadata(name: &str, namespace: Option<&str>, part: &str) -> ObjectMeta {
    let labels = [("component", ACCOUNT), ("vsphere-cpi-infra", part)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(labels.into()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
    use lab::upstream;

    use super::*;

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
        let made = manifests(&settings).unwrap();
        let namespaces: Vec<_> =
            made.roles.roles.iter().filter_map(|role| role.metadata.namespace.as_deref()).collect();
        assert_eq!(namespaces, ["default", "kube-system", "vsphere"]);
        assert_eq!(made.roles.role_bindings.len(), 3);
    }

    /// The rules of the Go manager's ClusterRole, in the manifest that `lab/upstream` pins.
    fn upstream_rules() -> Vec<PolicyRule> {
        let path =
            upstream::manager_manifest(&upstream::module(upstream::MANAGER).unwrap()).unwrap();
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(&std::fs::read_to_string(path).unwrap()).unwrap();
        let is_role = |object: &Value| object["kind"] == "ClusterRole";
        let role = objects.into_iter().find(is_role).unwrap();
        serde_json::from_value::<ClusterRole>(role).unwrap().rules.unwrap()
    }

    #[test]
    fn upstreams_roles_and_manifests_suffice() {
        let upstream = upstream_rules();
        for permission in permissions(&Parameters::default()) {
            let rule = permission.rule;
            let resource = rule.resources.clone().unwrap_or_default().concat();
            // Without these only metrics are refused, as upstream refuses them.
            if resource.ends_with("reviews") {
                continue;
            }
            let has =
                |all: &[String], one: &String| all.contains(one) || all.contains(&"*".to_owned());
            let covers = |all: &Option<Vec<String>>, own: &Option<Vec<String>>| {
                let all = all.as_deref().unwrap_or_default();
                own.iter().flatten().all(|one| has(all, one))
            };
            let allows = |one: &PolicyRule, verb| {
                covers(&one.api_groups, &rule.api_groups)
                    && covers(&one.resources, &rule.resources)
                    && has(&one.verbs, verb)
            };
            for verb in &rule.verbs {
                assert!(upstream.iter().any(|one| allows(one, verb)), "{verb} {resource}");
            }
        }
        let made = manifests(&Parameters::default()).unwrap();
        let pods = made.daemon_set.spec.unwrap().template.spec.unwrap();
        assert_eq!(pods.service_account_name.as_deref(), Some("cloud-controller-manager"));
        // The image must do what it does for upstream's pods, which name no command.
        assert_eq!(pods.containers[0].command, None);
    }
}
