//! Decides what must change: pure functions from what was observed to patches, taints and deletions.
//!
//! Nothing here sends a request or reads a clock; time is an argument. [`node::plan`] compares one Node with its VM,
//! [`lifecycle::plan`] looks at all Nodes together, because how many would be deleted decides whether any is.

pub(crate) mod addresses;
pub(crate) mod instance_type;
pub(crate) mod lifecycle;
pub(crate) mod node;
pub(crate) mod taints;
pub(crate) mod zones;
