//! The requests of service accounts and the codes of their responses, from the API server's audit log.
//!
//! The API server logs a request before it responds, so every request that a caller has a response for is here.

use std::{fs, io, path::PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::world::World;

/// One request of a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The authenticated user, such as `system:serviceaccount:kube-system:default`.
    pub user: String,
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
        verb: text(&event["verb"]),
        group: text(&object["apiGroup"]),
        resource,
        namespace: text(&object["namespace"]),
        name: text(&object["name"]),
        code: code.unwrap_or_default(),
    }
}
