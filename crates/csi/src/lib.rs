//! The vSphere CSI driver.
//!
//! ```text
//!   command      the program vsphere-csi: args ─► controller or node
//!     ├─ serve          gRPC at a unix socket; client calls one
//!     ├─ registration   tells the kubelet about this node's socket
//!     ├─ machine        which VM this node is
//!     └─ topology       in which zone it is: a question of the node, answered by the controller under a lease
//!   proto        the CSI services, generated from the specification
//!   rpc          gRPC: parse, call, answer
//!   volumes      create, attach, grow, detach, delete
//!   attach       VolumeAttachments become attached disks, under a lease
//!   node         an attached disk becomes what a pod asked for
//!   manifests    what runs the driver in a cluster
//!   in_flight    one operation on a volume at a time
//!   refusal      why a request is not done, and what to do about it
//! ```
//!
//! Nothing but `rpc`, `serve`, `client` and `registration` knows gRPC: operations on volumes have requests, answers
//! and refusals of their own.

pub mod args;
mod attach;
pub mod client;
mod cluster_id;
pub mod command;
mod in_flight;
pub mod machine;
pub mod manifests;
mod metrics;
pub mod node;
#[rustfmt::skip]
pub mod proto;
pub mod refusal;
mod registration;
pub mod rpc;
pub mod serve;
pub mod topology;
pub mod volumes;

/// The name by which Kubernetes knows the driver.
pub const DRIVER: &str = "csi.vsphere.vmware.com";
