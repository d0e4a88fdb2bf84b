//! The client against our vCenter simulator, which is strict. No root.

#![cfg(test)]

mod authorization;
mod cns;
mod connection;
mod history;
mod inventory;
mod leak;
mod logins;
mod policy;
mod proxy;
mod shared;
mod site;
mod snapshots;
mod sso;
mod tags;
mod tasks;
mod tokens;
mod trust;
mod vslm;
mod watch;
mod wire;
