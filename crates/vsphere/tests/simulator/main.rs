//! The client against our vCenter simulator, which is strict. No root.

mod connection;
mod leak;
mod site;
mod tasks;
mod trust;
mod watch;
mod wire;
