//! `vsphere-csi` as the controller of a cluster: over its socket, with a real API server and a simulated vCenter.

#![cfg(test)]

mod attach;
mod attachments;
mod attempts;
mod crashes;
#[path = "../support/csi_lab.rs"]
mod csi_lab;
mod doubts;
mod gate;
mod logins;
mod metrics;
#[path = "../support/node_files.rs"]
mod node_files;
mod nodes;
mod outages;
mod placement;
mod records;
mod requests;
mod safety;
mod sanity;
mod searches;
mod situations;
mod snapshots;
mod vcenters;
mod volumes;
mod world;
mod zones;
