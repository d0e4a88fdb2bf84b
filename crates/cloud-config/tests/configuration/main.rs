//! The configuration file and the Secrets, from the text to the value and back.
//!
//! Cases are data: `tests/data/*.txt` hold inputs and what becomes of them, whole messages included. After a
//! deliberate change `UPDATE=1 cargo test -p cloud-config` writes them anew, for review as a difference.

#![cfg(test)]

mod csi;
mod dialect;
mod mutation;
mod round_trip;
mod symptoms;
mod tables;
