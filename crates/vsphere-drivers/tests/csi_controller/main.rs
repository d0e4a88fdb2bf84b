//! `vsphere-csi` as the controller of a cluster: over its socket, with a real API server and a simulated vCenter.

#![cfg(test)]

mod attach;
mod attachments;
mod crashes;
mod gate;
mod nodes;
mod outages;
mod records;
mod sanity;
mod searches;
mod situations;
mod volumes;
mod world;
