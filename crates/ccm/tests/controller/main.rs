//! The cloud controller manager against a real API server and a simulated vCenter.

#![cfg(test)]

mod cluster;
mod lifecycle;
#[path = "../shared/manager.rs"]
mod manager;
mod nodes;
mod outages;
mod rivals;
mod vcenters;
mod vms;
