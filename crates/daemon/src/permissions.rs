//! What a program must be allowed to do in Kubernetes.
//!
//! A module that calls the API has a function `permissions` beside its calls. A program's roles are built from
//! these, so that a role allows what is called and nothing else.

use k8s_openapi::api::rbac::v1::PolicyRule;

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
