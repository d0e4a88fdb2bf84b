//! What a program must be allowed to do in Kubernetes.
//!
//! A module that calls the API has a function `permissions` beside its calls. A program's [`Roles`] are built from
//! these, so that a role allows what is called and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{
        ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde_json::{Value, to_value};

/// A rule and its scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// Decides between a Role and a ClusterRole.
    pub scope: Scope,
    /// The rule as RBAC has it.
    pub rule: PolicyRule,
}

/// Where a rule applies.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The whole cluster, and objects without a namespace.
    Cluster,
    /// One namespace.
    Namespace(String),
}

impl Permission {
    /// These verbs on all objects of a resource, given as group and plural name.
    pub fn new(scope: Scope, (group, resource): (&str, &str), verbs: &[&str]) -> Self {
        let rule = PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        Self { scope, rule }
    }

    /// Limits the rule to one object. `create` cannot be limited: RBAC does not know the name of a new object.
    #[must_use]
    pub fn named(mut self, object: &str) -> Self {
        self.rule.resource_names = Some(vec![object.to_owned()]);
        self
    }
}

/// The names of the objects that give an account its permissions.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The account: its namespace, its name.
    pub account: (&'a str, &'a str),
    /// The ClusterRole and its binding.
    pub cluster: (&'a str, &'a str),
    /// The Role and its binding, which are equal in all namespaces.
    pub namespaced: (&'a str, &'a str),
}

/// Roles and their bindings to an account.
#[derive(Clone, Debug, PartialEq)]
pub struct Roles {
    /// Permissions in the whole cluster.
    pub cluster_role: ClusterRole,
    /// Binds the cluster role.
    pub cluster_role_binding: ClusterRoleBinding,
    /// Permissions in single namespaces.
    pub roles: Vec<Role>,
    /// Bind these roles.
    pub role_bindings: Vec<RoleBinding>,
}

impl Roles {
    /// Roles that give these permissions and no others. `metadata` makes an object's metadata from its name, its
    /// namespace and what it is (`role`, `cluster-role-binding`, `role-binding`).
    pub fn new(
        permissions: &[Permission],
        names: Names<'_>,
        metadata: impl Fn(&str, Option<&str>, &str) -> ObjectMeta,
    ) -> Self {
        let mut cluster = Vec::new();
        let mut namespaces: BTreeMap<&str, Vec<PolicyRule>> = BTreeMap::new();
        for Permission { scope, rule } in permissions {
            match scope {
                Scope::Cluster => cluster.push(rule.clone()),
                Scope::Namespace(name) => namespaces.entry(name).or_default().push(rule.clone()),
            }
        }
        let role_bindings = namespaces.keys().map(|namespace| RoleBinding {
            metadata: metadata(names.namespaced.1, Some(namespace), "role-binding"),
            role_ref: role("Role", names.namespaced.0),
            subjects: Some(vec![subject(names.account)]),
        });
        let role_bindings = role_bindings.collect();
        let roles = namespaces.into_iter().map(|(namespace, rules)| Role {
            metadata: metadata(names.namespaced.0, Some(namespace), "role"),
            rules: Some(rules),
        });
        Self {
            cluster_role: ClusterRole {
                metadata: metadata(names.cluster.0, None, "role"),
                rules: Some(cluster),
                ..ClusterRole::default()
            },
            cluster_role_binding: ClusterRoleBinding {
                metadata: metadata(names.cluster.1, None, "cluster-role-binding"),
                role_ref: role("ClusterRole", names.cluster.0),
                subjects: Some(vec![subject(names.account)]),
            },
            roles: roles.collect(),
            role_bindings,
        }
    }

    /// Every rule, with its namespace unless it is for the whole cluster.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&str>, &PolicyRule)> {
        let cluster = self.cluster_role.rules.iter().flatten().map(|rule| (None, rule));
        let namespaces = self.roles.iter().flat_map(|role| {
            let namespace = role.metadata.namespace.as_deref();
            role.rules.iter().flatten().map(move |rule| (namespace, rule))
        });
        cluster.chain(namespaces)
    }

    /// Removes the rules about a resource.
    pub fn without(&mut self, resource: &str) {
        let other = |rule: &PolicyRule| !rule.resources.iter().flatten().any(|one| one == resource);
        let namespaces = self.roles.iter_mut().map(|role| &mut role.rules);
        for rules in namespaces.chain([&mut self.cluster_role.rules]).flatten() {
            rules.retain(other);
        }
    }

    /// The objects, roles before their bindings.
    pub fn values(&self) -> Result<Vec<Value>, serde_json::Error> {
        let Self { cluster_role, cluster_role_binding, roles, role_bindings } = self;
        let cluster = [to_value(cluster_role), to_value(cluster_role_binding)];
        let namespaces = roles.iter().map(to_value).chain(role_bindings.iter().map(to_value));
        cluster.into_iter().chain(namespaces).collect()
    }
}

fn role(kind: &str, name: &str) -> RoleRef {
    let api_group = "rbac.authorization.k8s.io".to_owned();
    RoleRef { api_group, kind: kind.to_owned(), name: name.to_owned() }
}

fn subject((namespace, name): (&str, &str)) -> Subject {
    Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    }
}
