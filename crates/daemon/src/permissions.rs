//! What a program must be allowed to do in Kubernetes, told by those who do it.
//!
//! A module that calls the API has a function `permissions` beside its calls. A program's roles are made of
//! these tables, so that a role has what is called and nothing else.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// One rule, and where it must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Permission {
    /// Where.
    pub scope: Scope,
    /// What may be done.
    pub rule: PolicyRule,
}

/// Where a rule holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In the whole cluster, or for objects that are in no namespace.
    Cluster,
    /// In one namespace.
    Namespace(String),
}

impl Scope {
    /// This namespace.
    #[must_use]
    pub fn namespace(name: &str) -> Self {
        Self::Namespace(name.to_owned())
    }
}

impl Permission {
    /// These verbs on all objects of a resource, which is named by its group and itself.
    #[must_use]
    pub fn new(scope: Scope, (group, resource): (&str, &str), verbs: &[&str]) -> Self {
        let rule = PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        Self { scope, rule }
    }

    /// The same for one object only. The name of an object that is created is not known to the API when it
    /// decides, so `create` cannot be limited so.
    #[must_use]
    pub fn named(mut self, object: &str) -> Self {
        self.rule.resource_names = Some(vec![object.to_owned()]);
        self
    }
}
