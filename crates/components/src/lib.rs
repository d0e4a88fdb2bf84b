//! The programs that the lab runs and this project does not contain: Kubernetes' components and the vCenter
//! simulator, built from pinned Go modules into a cache, and Debian packages.
//!
//! Small on purpose. It compiles in seconds, so that `setup` (the program of this crate) can build the Go
//! programs while cargo still compiles the larger half of the project.
//!
//! Deliberately absent: starting any of these programs (that is crate `lab`), async code.

mod background;
mod command;
pub mod packages;
mod programs;
pub mod progress;

pub use background::{Background, yield_to_others};
pub use command::{cargo, run, run_counted};
pub use programs::{
    CONTROL_PLANE, FIRST_NODE, LAB, REST_OF_CLUSTER, SIDECARS, SIMULATOR, SNAPSHOT_CONTROLLER, all,
    binary, build, cache_dir, directory_of, kubernetes_version, pinned_version, source_dir, steps,
};
pub use progress::Progress;
