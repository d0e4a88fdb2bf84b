//! Any bytes as an answer of vCenter, to every reader.
#![no_main]

#[path = "../readers.rs"]
mod readers;

libfuzzer_sys::fuzz_target!(|document: &str| readers::read_as_everything(document));
