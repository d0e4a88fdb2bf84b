//! The vSphere cloud controller manager: what a Node should look like, and when it may go.
//!
//! Every controller is `observe → plan → apply → report`. The middle is functions from what Kubernetes and
//! vCenter say to what must change: they take and return values, and time is one of them. Around it,
//! [`site`] follows each vCenter and the controller watches Nodes and writes; [`run`](run()) is both.
//!
//! ```text
//!   run ─┬─► site, one per vCenter ─► snapshot ─┐
//!        └─► controller ◄── Nodes ──────────────┴─► plans ─► patches, events
//!
//!   Node ─► discovery ─► VM ─┬─► addresses, zones, instance_type ─► node   patches, condition, events
//!     provider_id, identity  └─► lifecycle                                 taints, deletion with its proof
//! ```
//!
//! What never happens, whatever the input:
//! - a Node loses the taint of uninitialised Nodes without having a provider id;
//! - a Node with a provider id of somebody else is changed or deleted;
//! - a Node is deleted because somebody did not answer, or may not see;
//! - a Node is deleted because its VM was unregistered, or nothing tells how it was removed.

pub mod addresses;
pub mod args;
pub mod command;
mod controller;
pub mod credentials;
pub mod discovery;
mod health;
pub mod identity;
pub mod instance_type;
pub mod lifecycle;
pub mod manifests;
pub mod metrics;
pub mod node;
pub mod provider_id;
mod run;
pub mod site;
mod taints;
pub mod zones;

pub use self::{
    controller::Apply,
    run::{Options, RunError, run},
};
