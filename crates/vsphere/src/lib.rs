//! A small, typed, async client of vCenter.

pub mod authorization;
pub mod connection;
pub mod endpoint;
pub mod error;
pub mod fault;
mod http;
mod login;
pub mod metrics;
pub mod property;
pub mod reference;
pub mod session;
pub mod soap;
pub mod sso;
pub mod sts;
pub mod tags;
pub mod task;
pub mod tls;
pub mod types;
pub mod version;
pub mod watch;
mod wire;
pub mod xml;
