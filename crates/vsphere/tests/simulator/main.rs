//! The client against our vCenter simulator, which is strict. No root.

#![cfg(test)]

mod authorization;
mod connection;
mod inventory;
mod leak;
mod site;
mod sso;
mod tags;
mod tasks;
mod tokens;
mod trust;
mod watch;
mod wire;
