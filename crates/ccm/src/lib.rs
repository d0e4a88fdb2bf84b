//! The vSphere cloud controller manager: keeps Nodes true to their VMs, and removes those whose VM is gone.
//!
//! ```text
//!   command   flags, lease, admin server, reload ─► run   one configuration ─► controller   one round after another
//!
//!   observe ─────────────► plan ──────────────────────► apply ────────► report
//!   Nodes, vcenter::View   node: addresses, zones,      patches,        log, events,
//!   discovery: which VM    instance_type, condition     deletions,      metrics
//!   removals: evidence     lifecycle: taints, proof     budget
//! ```
//!
//! Plans are pure: functions from what was observed to what must change, with time as a value.
//!
//! What never happens, whatever the input:
//! - a Node loses the taint of uninitialised Nodes without having a provider id;
//! - a Node with a provider id of another cloud is changed or deleted;
//! - a Node is deleted because a vCenter did not answer, or does not show its VM to the user;
//! - a Node is deleted because its VM was unregistered, or nothing shows how it was removed;
//! - a Node is written more often than its budget allows, or by a process that does not hold the lease.

mod apply;
pub mod args;
pub mod command;
mod controller;
pub mod manifests;
pub mod metrics;
mod observe;
mod plan;
mod provider_id;
mod report;
mod run;
mod settings;
#[cfg(test)]
mod test_support;

pub use self::{
    apply::Mode,
    controller::Memory,
    run::{Context, run},
    settings::Settings,
};
