//! A real Kubernetes on one machine, for tests, for the demo and for hands-on work.
//!
//! ```text
//!   World      a directory, a few ports and a lock: what keeps two labs from touching each other
//!     ├─ ControlPlane   etcd (Unix socket) ◄─ kube-apiserver (TLS, RBAC) ◄─ controller-manager, scheduler
//!     ├─ Network        one network namespace: a bridge with the control plane at 10.99.0.1
//!     │    └─ Forward   127.0.0.1:port on the machine ─► the API in that namespace
//!     ├─ Node ×2        own root, /dev, pids and network: containerd, kubelet, kube-proxy
//!     └─ Disk           a sparse file on a loop device, plugged into one node's /dev/disk/by-id
//! ```
//!
//! A test that needs only the API calls [`ControlPlane::start`]; it needs no root.
//! A test that needs pods calls [`Lab::start`]. Dropping either removes everything it made.
//!
//! Invariants:
//! - The kernel cleans up. Every process is either a child with a parent-death signal or lives in the
//!   pid namespace of such a child; every mount and interface lives in a namespace of such a process.
//!   What the kernel cannot clean up after a SIGKILL (files, loop devices, cgroups) lies under names
//!   that carry the world's, and [`reap`] removes it when the world's lock is free.
//! - Nothing is made on the machine's own network: nodes and pods have no way out of their world.
//!
//! Of vSphere it knows how to start the simulator and to call its control endpoint ([`vcenter`]), and how to install the
//! CSI driver from its manifests ([`csi_driver`]), not the protocol. Programs are built by crate `components`.
//!
//! Deliberately absent: no mock of any component, no container engine.

pub mod audit;
mod cgroup;
mod cluster;
mod control_plane;
pub mod csi_driver;
mod disk;
mod forward;
pub mod image;
pub mod kubelet;
mod limits;
pub mod log;
pub mod manifest_files;
mod network;
mod node;
mod pki;
pub mod preflight;
mod process;
pub mod reap;
pub mod snapshot_controller;
pub mod storage_suite;
pub mod upstream;
pub mod vcenter;
mod wait;
mod world;

pub use cluster::{CloudController, Lab, NodeSpec, Spec};
pub use components::{self, Background, Progress, packages, progress, run};
pub use control_plane::{ControlPlane, Controllers};
pub use disk::Disk;
pub use image::Image;
pub use node::Node;
pub use process::{ProcessRecord, child};
pub use vcenter::{VCenter, VCenterSpec};
pub use wait::{Wait, until};
pub use world::{LAB, World, owner, state_dir};
