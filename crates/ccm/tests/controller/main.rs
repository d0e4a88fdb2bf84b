//! The cloud controller manager against a real API server and a simulated vCenter.

#![cfg(test)]

mod cluster;
mod lifecycle;
mod nodes;
mod vcenters;
