//! The cloud controller manager as a process, against a real API server and a simulated vCenter.

#![cfg(test)]

mod leaders;
mod logins;
mod mistakes;
#[path = "../support/process.rs"]
mod process;
mod reloads;
mod served;
mod storm;
mod vcenters;
mod world;
