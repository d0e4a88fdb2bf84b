//! The vSphere cloud controller manager: what a Node should look like, and when it may go.
//!
//! Every controller is `observe → plan → apply → report`. This is the middle: functions from what
//! Kubernetes and vCenter say to what must change. They take and return values, and time is one of them.
//!
//! ```text
//!   Node ─► discovery ─► VM ─┬─► addresses, zones, instance_type ─► node   patches, condition, events
//!     provider_id, identity  └─► lifecycle                                 taints, deletion with its proof
//! ```
//!
//! What never happens, whatever the input:
//! - a Node loses the taint of uninitialised Nodes without having a provider id;
//! - a Node with a provider id of somebody else is changed or deleted;
//! - a Node is deleted because somebody did not answer, or may not see.
//!
//! Deliberately absent: clients, clocks and tasks. Who observes and applies keeps the
//! [`History`](lifecycle::History) and the order: addresses first, then the taint.

pub mod addresses;
pub mod discovery;
pub mod identity;
pub mod instance_type;
pub mod lifecycle;
pub mod node;
pub mod provider_id;
mod taints;
pub mod zones;
