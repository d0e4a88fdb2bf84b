//! The decisions of the controllers, as tables and properties: no client, no clock, no peer.

#![cfg(test)]

mod addresses;
mod build;
mod discovery;
mod documents;
mod lifecycle;
mod node;
mod zones;
