//! The CSI driver as it is deployed: its manifests, its image, real kubelets, and disks that are real. Needs root.

#![cfg(test)]

#[path = "../support/csi_lab.rs"]
mod csi_lab;
#[path = "../support/node_files.rs"]
mod node_files;
mod nodes;
