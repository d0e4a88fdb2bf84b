//! One vCenter, followed: what it shows, whether it answers, and what tags and guests report.
//!
//! ```text
//!   Secret, directory, file ─► credentials ─┐
//!                                           ▼
//!   cloud_config::VCenter ─► follow() ─► follower ─┬─ inventory   one long poll: folders, VMs, selected guests
//!                                           │      ├─ cards       network cards, when config.changeVersion changes
//!                                           │      ├─ tags        categories of `Interests`
//!                                           │      └─ storage     datastores, hosts and privileges, if in `Interests`
//!                                           ▼
//!                                        Snapshot ─► View::snapshot(), View::changed()
//!                                           └──────► report_health(): /readyz and metrics
//! ```
//!
//! [`follow`] starts the tasks and returns a [`View`] per vCenter. A view always has a [`Snapshot`], which is
//! read without waiting, and reports which VMs changed since the caller last looked. A vCenter that does not
//! answer is a snapshot whose [`Health`] reports it; callers never wait for a vCenter.
//!
//! A snapshot is cheap to hold: it shares everything with its successors but what changed in between.
//!
//! Deliberately absent: Nodes, volumes, and every decision about them.

mod credentials;
mod follower;
mod guest;
mod health;
mod inventory;
mod snapshot;
mod storage;
mod view;
pub mod zones;

pub use self::{
    follower::{Interests, Sessions, authorities, describe, follow},
    guest::Guest,
    health::{Metrics, report_health},
    snapshot::{Ancestors, Health, Outage, Place, Snapshot, Tags},
    storage::StorageInterest,
    view::{Change, Changes, View},
};
