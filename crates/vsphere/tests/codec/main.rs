//! The codec from outside: what is written can be read, what is strange is read all the same, and what is
//! broken is an error. No server.
#![cfg(test)]

mod answers;
mod broken;
mod mutated;
#[path = "../../fuzz/readers.rs"]
mod readers;
mod round_trip;
mod strange;
mod values;

use std::{fs, path::Path};

use vsphere::{
    version::Release,
    xml::{FromXml, Malformed, Reader, ToXml, Writer},
};

/// A value as an element called `v`.
fn write<T: ToXml>(value: &T) -> String {
    let mut writer = Writer::new(Release::NEWEST);
    value.to_xml(&mut writer, "v");
    writer.finish()
}

/// The value of the root element.
fn read<T: FromXml>(document: &str) -> Result<T, Malformed> {
    let mut reader = Reader::new(document);
    let root = reader.root()?;
    T::from_xml(&mut reader, &root)
}

/// Answers of the simulator, by name.
fn corpus() -> Vec<(String, String)> {
    let directory = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus"));
    let mut answers: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "xml"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(&path).unwrap())
        })
        .collect();
    answers.sort();
    answers
}
