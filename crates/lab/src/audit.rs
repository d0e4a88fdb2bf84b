//! The requests of service accounts and the codes of their responses, from the API server's audit log, and what roles
//! allow, to be compared with them.
//!
//! The API server logs a request before it responds, so every request that a caller has a response for is here.

use std::{collections::BTreeSet, fmt, fs, io, path::PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use crate::world::World;

/// One request of a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The authenticated user, such as `system:serviceaccount:kube-system:default`.
    pub user: String,
    /// The program, as it calls itself, without its version.
    pub agent: String,
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// The API's group; empty for the oldest one.
    pub group: String,
    /// The resource with its subresource, if any: `nodes/status`.
    pub resource: String,
    /// Empty for cluster-wide objects.
    pub namespace: String,
    /// The object's name; empty for lists and for new objects.
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
}

/// Writes down what service accounts do; what the lab's own parts do with certificates would hide it.
pub(crate) fn write_policy(world: &World) -> Result<PathBuf> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
    });
    let path = world.dir().join("audit-policy.json");
    fs::write(&path, policy.to_string())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

pub(crate) fn log(world: &World) -> PathBuf {
    world.dir().join("logs/audit.log")
}

/// The requests so far. A watch counts from its begin.
pub(crate) fn read(world: &World) -> Result<Vec<Request>> {
    let path = log(world);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    // The last line may be half written; its request has no answer yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| Ok(request(&serde_json::from_str(line)?))).collect()
}

fn request(event: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = &event["objectRef"];
    let resource = match object["subresource"].as_str() {
        Some(part) => format!("{}/{part}", text(&object["resource"])),
        None => text(&object["resource"]),
    };
    let code = event["responseStatus"]["code"].as_u64().and_then(|code| code.try_into().ok());
    Request {
        user: text(&event["user"]["username"]),
        agent: text(&event["userAgent"]).split('/').next().unwrap_or_default().to_owned(),
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: code.unwrap_or_default(),
    }
}

/// One verb on one resource that a role allows.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    name: Option<String>,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, group, resource, verb, name } = self;
        write!(f, "{verb} {group}/{resource} {name:?} in {namespace:?}")
    }
}

impl Grant {
    /// What these rules allow, each with its namespace unless it is for the whole cluster.
    pub fn all<'a>(
        rules: impl Iterator<Item = (Option<&'a str>, &'a PolicyRule)>,
    ) -> BTreeSet<Self> {
        let mut all = BTreeSet::new();
        for (namespace, rule) in rules {
            let names: Vec<Option<&String>> = match &rule.resource_names {
                Some(names) => names.iter().map(Some).collect(),
                None => vec![None],
            };
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    for verb in &rule.verbs {
                        all.extend(names.iter().map(|name| Self {
                            namespace: namespace.map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb: verb.clone(),
                            name: name.cloned(),
                        }));
                    }
                }
            }
        }
        all
    }

    /// Whether it is what this request needs.
    #[must_use]
    pub fn allows(&self, request: &Request) -> bool {
        self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && self.name.as_ref().is_none_or(|name| *name == request.name)
            && (&self.group, &self.resource, &self.verb)
                == (&request.group, &request.resource, &request.verb)
    }
}
