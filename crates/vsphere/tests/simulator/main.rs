//! The client against our vCenter simulator, which is strict. No root.

mod connection;
mod site;
