//! One vCenter, followed, against the real simulator.

#![cfg(test)]

mod credentials;
mod datacenters;
mod guests;
mod permissions;
mod privileges;
mod silence;
mod site;
mod storage;
mod watch;
