//! The vSphere CSI driver.
//!
//! ```text
//!   proto        the CSI services, generated from the specification
//!   rpc          gRPC: parse, call, answer
//!   node         an attached disk becomes what a pod asked for
//!   in_flight    one operation on a volume at a time
//!   refusal      why a request is not done, and what to do about it
//! ```
//!
//! Nothing but the services that are generated knows gRPC: operations on volumes have requests, answers and
//! refusals of their own.

mod in_flight;
pub mod node;
#[rustfmt::skip]
pub mod proto;
pub mod refusal;
pub mod rpc;
