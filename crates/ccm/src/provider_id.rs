//! The id by which Kubernetes knows a machine: `vsphere://4230b1a0-5eed-4000-8000-000000000001`.
//!
//! It is the BIOS UUID of the VM in vCenter's byte order. In a cluster of several clouds other Nodes have ids of
//! other schemes; nothing here turns them into something that could be looked up.

use std::fmt;

use k8s_openapi::api::core::v1::Node;
use vsphere::inventory::Uuid;

const SCHEME: &str = "vsphere://";

/// The provider id of a Node, whosever it is.
pub(crate) fn of(node: &Node) -> Option<&str> {
    node.spec.as_ref()?.provider_id.as_deref()
}

/// A well-formed provider id of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProviderId(pub(crate) Uuid);

/// What `spec.providerID` of a Node says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reading {
    Absent,
    Ours(ProviderId),
    /// Of another cloud.
    Foreign(String),
    /// Our scheme without a valid UUID. The field is immutable, so it stays that way.
    Malformed(String),
}

impl Reading {
    /// A UUID without scheme, as old versions wrote it, is ours.
    pub(crate) fn of(field: Option<&str>) -> Self {
        let text = field.unwrap_or_default().trim();
        if text.is_empty() {
            return Self::Absent;
        }
        match (text.strip_prefix(SCHEME).unwrap_or(text).parse(), text.starts_with(SCHEME)) {
            (Ok(uuid), _) => Self::Ours(ProviderId(uuid)),
            (Err(_), true) => Self::Malformed(text.to_owned()),
            (Err(_), false) => Self::Foreign(text.to_owned()),
        }
    }

    pub(crate) fn uuid(&self) -> Option<Uuid> {
        match self {
            Self::Ours(id) => Some(id.0),
            _ => None,
        }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{ProviderId, Reading};

    const UUID: &str = "423740e7-c66c-05a3-2bf3-73b4f5a3c1d2";

    #[test]
    fn ids_are_read_in_every_spelling_and_written_in_one() {
        let ours = Reading::Ours(ProviderId(UUID.parse().unwrap()));
        for text in [UUID.to_owned(), format!("vsphere://{UUID}"), UUID.to_uppercase()] {
            assert_eq!(Reading::of(Some(&text)), ours, "{text}");
        }
        let upper = format!("vsphere:// {}", UUID.to_uppercase());
        assert_eq!(Reading::of(Some(&upper)), ours);
        assert_eq!(ProviderId(UUID.parse().unwrap()).to_string(), format!("vsphere://{UUID}"));
        assert_eq!(Reading::of(None), Reading::Absent);
        assert_eq!(Reading::of(Some(" ")), Reading::Absent);
    }

    #[test]
    fn d3_ids_of_other_clouds_are_not_ours() {
        for text in ["k3s://node-1", "aws:///eu-1/i-0", "gce://a/b/c", "kind://x", "node-1"] {
            assert_eq!(Reading::of(Some(text)), Reading::Foreign(text.to_owned()));
        }
        // Even with a UUID inside.
        let text = format!("openstack:///{UUID}");
        assert_eq!(Reading::of(Some(&text)), Reading::Foreign(text.clone()));
    }

    #[test]
    fn an_id_of_ours_without_uuid_is_malformed_not_foreign() {
        for text in ["vsphere://", "vsphere://node-1"] {
            assert_eq!(Reading::of(Some(text)), Reading::Malformed(text.to_owned()));
        }
    }
}
