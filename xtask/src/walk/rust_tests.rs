//! The tests of our crates that start vCenters.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    sync::Arc,
};

use anyhow::Result;

use super::test_run::{Language, Program, Test};
use crate::suite::{
    self,
    programs::{self, TestProgram},
};

/// The tests of these programs (package and name), grouped by program.
pub(super) fn find(wanted: &BTreeSet<(String, String)>) -> Result<Vec<Vec<Test>>> {
    let selection: Vec<&str> =
        wanted.iter().flat_map(|(_, program)| ["--test", program.as_str()]).collect();
    let built = programs::build(&selection)?.into_iter();
    let found: BTreeMap<_, _> =
        built.map(|one| ((one.package.clone(), one.name.clone()), one)).collect();
    let found = found.into_iter().filter(|(target, _)| wanted.contains(target));
    found.map(|(_, program)| tests(&Arc::new(walkable(program)))).collect()
}

fn walkable(program: TestProgram) -> Program {
    let label = program.label();
    let TestProgram { executable, directory, .. } = program;
    Program { label, language: Language::Rust, executable, directory }
}

fn tests(program: &Arc<Program>) -> Result<Vec<Test>> {
    let mut list = Command::new(&program.executable);
    list.current_dir(&program.directory).args(["--list", "--format", "terse"]);
    if suite::nodes_are_left_out() {
        list.args(["--skip", suite::NODES]);
    }
    let listing = lab::run(&mut list)?;
    let names = listing.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(|name| Test { program: Arc::clone(program), name: name.to_owned() }).collect())
}
