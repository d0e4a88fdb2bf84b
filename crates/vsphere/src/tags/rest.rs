//! The two dialects of vCenter's REST API, distinguished at login: `/api` of 7.0U2 and later, and the old
//! `/rest`, which wraps values and writes ids and actions differently. The rest of the crate does not see the difference.
//!
//! Errors get the names that SOAP has for them, so that they have the same remedies.

use hyper::http::{Method, StatusCode};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{error::Cause, fault::Fault, http::Reply, xml::Malformed};

/// How a server wants to be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Api,
    Rest,
}

/// The action whose category is in the path and the body, or only in the body.
pub(super) const TAGS_OF_CATEGORY: &str = "list-tags-for-category";

/// A request in no dialect yet.
#[derive(Debug)]
pub(super) struct Request {
    /// What it is called in metrics and errors; the part before the dot is the resource of the API.
    pub(super) name: &'static str,
    pub(super) id: Option<String>,
    pub(super) action: Option<&'static str>,
    pub(super) body: Option<Value>,
}

impl Request {
    pub(super) fn get(name: &'static str, id: Option<&str>) -> Self {
        Self { name, id: id.map(str::to_owned), action: None, body: None }
    }

    pub(super) fn create(name: &'static str, spec: Value) -> Self {
        Self { name, id: None, action: None, body: Some(spec) }
    }

    pub(super) fn action(
        name: &'static str,
        id: Option<&str>,
        action: &'static str,
        body: Value,
    ) -> Self {
        Self { name, id: id.map(str::to_owned), action: Some(action), body: Some(body) }
    }

    pub(super) fn verb(&self) -> Method {
        if self.body.is_none() { Method::GET } else { Method::POST }
    }

    pub(super) fn path(&self, dialect: Dialect) -> String {
        let (base, id, action) = match dialect {
            Dialect::Api => ("/api/cis/tagging/", "/", "?action="),
            Dialect::Rest => ("/rest/com/vmware/cis/tagging/", "/id:", "?~action="),
        };
        let resource = self.name.split('.').next().unwrap_or_default();
        let in_body = dialect == Dialect::Api && self.action == Some(TAGS_OF_CATEGORY);
        let written = self.id.as_ref().filter(|_| !in_body);
        let id = written.map(|value| format!("{id}{value}")).unwrap_or_default();
        let action = self.action.map(|value| format!("{action}{value}")).unwrap_or_default();
        format!("{base}{resource}{id}{action}")
    }

    pub(super) fn body(&self, dialect: Dialect) -> String {
        match (&self.body, self.action, dialect) {
            (None, ..) => String::new(),
            // Only what creates something is wrapped.
            (Some(spec), None, Dialect::Rest) => json!({ "create_spec": spec }).to_string(),
            (Some(body), ..) => body.to_string(),
        }
    }
}

impl Dialect {
    pub(super) fn session_path(self) -> &'static str {
        match self {
            Self::Api => "/api/session",
            Self::Rest => "/rest/com/vmware/cis/session",
        }
    }

    /// Reads the value of an answer, or its error.
    pub(super) fn read<T: DeserializeOwned>(self, reply: Reply) -> Result<T, Cause> {
        #[derive(Deserialize)]
        struct Wrapped<T> {
            value: T,
        }
        let text = reply.text?;
        if !reply.status.is_success() {
            return Err(refusal(reply.status, &text));
        }
        let value = match (self, text.as_str()) {
            // Calls that return nothing have an empty answer.
            (_, "") => serde_json::from_str("null"),
            (Self::Api, text) => serde_json::from_str(text),
            (Self::Rest, text) => {
                serde_json::from_str::<Wrapped<T>>(text).map(|wrapped| wrapped.value)
            }
        };
        value.map_err(|error| {
            Cause::Malformed(Malformed::new(&format!("no JSON as agreed: {error}")))
        })
    }
}

/// Why the server refused: its error by the name of its twin in SOAP.
fn refusal(status: StatusCode, text: &str) -> Cause {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    // The old dialect has com.vmware.vapi.std.errors.not_found where the new one has NOT_FOUND.
    let kind = body["error_type"].as_str().or_else(|| body["type"].as_str()).unwrap_or_default();
    let kind = kind.rsplit('.').next().unwrap_or_default().to_uppercase();
    let name = match (kind.as_str(), status) {
        ("UNAUTHENTICATED", _) | ("", StatusCode::UNAUTHORIZED) => "NotAuthenticated",
        ("UNAUTHORIZED", _) | ("", StatusCode::FORBIDDEN) => "NoPermission",
        ("NOT_FOUND", _) => "NotFound",
        ("ALREADY_EXISTS", _) => "AlreadyExists",
        ("INVALID_ARGUMENT" | "INVALID_REQUEST", _) => "InvalidArgument",
        ("RESOURCE_IN_USE", _) => "ResourceInUse",
        ("RESOURCE_BUSY", _) => "TaskInProgress",
        ("CONCURRENT_CHANGE", _) => "ConcurrentAccess",
        ("TIMED_OUT", _) => "Timedout",
        ("" | "SERVICE_UNAVAILABLE" | "INTERNAL_SERVER_ERROR", _) => {
            return Cause::Status(status.as_u16());
        }
        (other, _) => other,
    };
    let messages = body["messages"].as_array().or_else(|| body["value"]["messages"].as_array());
    let texts = messages.into_iter().flatten().filter_map(|item| item["default_message"].as_str());
    Cause::Fault(Box::new(Fault::bare(name, &texts.collect::<Vec<_>>().join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request as the golden files show it, without the headers that all have.
    fn shown(request: &Request) -> (String, Option<Value>) {
        let body = request.body(Dialect::Rest);
        let line = format!("{} {}", request.verb(), request.path(Dialect::Rest));
        (line, (!body.is_empty()).then(|| serde_json::from_str(&body).unwrap()))
    }

    fn golden(text: &str) -> (String, Option<Value>) {
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let line = head.lines().next().unwrap().to_owned();
        (line, (!body.is_empty()).then(|| serde_json::from_str(body).unwrap()))
    }

    const CATEGORY: &str = "urn:vmomi:InventoryServiceCategory:category-1:GLOBAL";
    const TAG: &str = "urn:vmomi:InventoryServiceTag:tag-1:GLOBAL";

    #[test]
    fn requests_of_the_old_dialect_are_those_of_other_clients() {
        let categories = Request::get("category.list", None);
        let category = Request::get("category.get", Some(CATEGORY));
        let tag = Request::get("tag.get", Some(TAG));
        let body = json!({ "category_id": CATEGORY });
        let tags = Request::action("tag.list", Some(CATEGORY), TAGS_OF_CATEGORY, body);
        let objects = [("vm-1", "VirtualMachine"), ("host-1", "HostSystem")]
            .map(|(id, kind)| json!({ "id": id, "type": kind }));
        let body = json!({ "object_ids": objects });
        let action = "list-attached-tags-on-objects";
        let on_objects = Request::action("tag-association.list", None, action, body);
        let goldens = [
            (categories, include_str!("../../tests/golden/rest-categories.txt")),
            (category, include_str!("../../tests/golden/rest-category.txt")),
            (tag, include_str!("../../tests/golden/rest-tag.txt")),
            (tags, include_str!("../../tests/golden/rest-tags-of-category.txt")),
            (on_objects, include_str!("../../tests/golden/rest-attached-tags-on-objects.txt")),
        ];
        for (request, text) in goldens {
            assert_eq!(shown(&request), golden(text));
        }
        let path = Dialect::Rest.session_path();
        let create = include_str!("../../tests/golden/rest-session-create.txt");
        let delete = include_str!("../../tests/golden/rest-session-delete.txt");
        assert_eq!(golden(create).0, format!("POST {path}"));
        assert_eq!(golden(delete).0, format!("DELETE {path}"));
    }

    #[test]
    fn the_new_dialect_has_bare_ids_and_specs() {
        let tag = Request::get("tag.get", Some(TAG));
        assert_eq!(tag.path(Dialect::Api), format!("/api/cis/tagging/tag/{TAG}"));
        let create = Request::create("tag.create", json!({ "name": "zone-1" }));
        assert_eq!(create.body(Dialect::Api), r#"{"name":"zone-1"}"#);
        assert_eq!(create.body(Dialect::Rest), r#"{"create_spec":{"name":"zone-1"}}"#);
        let tags = Request::action("tag.list", Some(CATEGORY), TAGS_OF_CATEGORY, json!({}));
        assert_eq!(tags.path(Dialect::Api), "/api/cis/tagging/tag?action=list-tags-for-category");
    }

    #[test]
    fn errors_of_both_dialects_have_the_same_names() {
        let old = r#"{"type": "com.vmware.vapi.std.errors.not_found",
            "value": {"messages": [{"default_message": "no tag"}]}}"#;
        let new = r#"{"error_type": "NOT_FOUND", "messages": [{"default_message": "no tag"}]}"#;
        for text in [old, new] {
            let Cause::Fault(fault) = refusal(StatusCode::NOT_FOUND, text) else {
                panic!("{text}")
            };
            assert_eq!((fault.type_name(), fault.message()), ("NotFound", "no tag"));
        }
        let page = refusal(StatusCode::SERVICE_UNAVAILABLE, "<html>");
        assert!(matches!(page, Cause::Status(503)));
    }
}
