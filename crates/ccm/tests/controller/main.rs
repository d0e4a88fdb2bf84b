//! The cloud controller manager against a real API server and a simulated vCenter.

#![cfg(test)]

mod cluster;
mod lifecycle;
#[path = "../shared/node.rs"]
mod node;
mod nodes;
mod outages;
mod rivals;
mod vcenters;
mod vms;
