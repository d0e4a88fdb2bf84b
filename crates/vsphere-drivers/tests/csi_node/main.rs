//! The CSI driver on a node as a process: how it is started, who calls it, and what a kill leaves behind.

#![cfg(test)]

mod driver;
mod malformed;
mod nodes;
#[path = "../support/process.rs"]
mod process;
mod registration;
mod start;
