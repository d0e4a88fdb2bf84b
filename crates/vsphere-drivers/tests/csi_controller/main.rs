//! `vsphere-csi` as the controller of a cluster: over its socket, with a real API server and a simulated vCenter.

#![cfg(test)]

mod attach;
mod attachments;
mod crashes;
#[path = "../support/csi_lab.rs"]
mod csi_lab;
mod gate;
mod nodes;
mod records;
mod sanity;
mod situations;
mod volumes;
mod world;
