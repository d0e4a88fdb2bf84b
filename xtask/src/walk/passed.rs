//! Which runs passed, kept in `target/walk` until a program changes, so that a walk that was interrupted can go on.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fs::{self, File},
    io::Write as _,
    path::Path,
};

use anyhow::{Context, Result};

use super::{assumption::Choice, test_run::Test};

/// Each pass is a line, written when it is known.
pub(super) struct Passed {
    /// None if nothing is noted.
    file: Option<RefCell<File>>,
    known: BTreeSet<String>,
}

impl Passed {
    /// Of the programs with this key. What an earlier walk noted counts only if this one resumes it.
    pub(super) fn open(path: &Path, key: &str, resume: bool) -> Result<Self> {
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let known = if resume { noted(path, key) } else { BTreeSet::new() };
        let opened = if known.is_empty() {
            fs::write(path, format!("{key}\n"))
                .and_then(|()| File::options().append(true).open(path))
        } else {
            File::options().append(true).open(path)
        };
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { file: Some(RefCell::new(file)), known })
    }

    /// The same for a walk that notes nothing, and so leaves what another one noted.
    pub(super) fn read(path: &Path, key: &str, resume: bool) -> Self {
        let known = if resume { noted(path, key) } else { BTreeSet::new() };
        Self { file: None, known }
    }

    /// Whether a test passed under a choice alone or, if that is enough, together with others.
    pub(super) fn has(&self, test: &Test, choice: &Choice, together: bool) -> bool {
        self.known.contains(&line(test, choice, false))
            || (together && self.known.contains(&line(test, choice, true)))
    }

    pub(super) fn add(&self, test: &Test, choices: &[Choice], together: bool) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let lines = choices.iter().map(|choice| line(test, choice, together) + "\n");
        Ok(file.borrow_mut().write_all(lines.collect::<String>().as_bytes())?)
    }
}

/// What the file has of the programs with this key.
fn noted(path: &Path, key: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() == Some(key) { lines.map(str::to_owned).collect() } else { BTreeSet::new() }
}

fn line(test: &Test, choice: &Choice, together: bool) -> String {
    format!("{} {choice}{}", test.name, if together { " together" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::plan::tests::tests;

    #[test]
    fn a_walk_goes_on_where_the_last_one_of_the_same_programs_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("walk/csi.passed");
        let test = &tests(1)[0];
        let [alone, grouped] = ["wait", "fault"]
            .map(|value| Choice { assumption: "Busy".to_owned(), value: value.to_owned() });
        let first = Passed::open(&path, "one", true).unwrap();
        first.add(test, std::slice::from_ref(&alone), false).unwrap();
        first.add(test, std::slice::from_ref(&grouped), true).unwrap();
        let then = Passed::open(&path, "one", true).unwrap();
        assert!(then.has(test, &alone, false) && then.has(test, &alone, true));
        assert!(!then.has(test, &grouped, false) && then.has(test, &grouped, true));
        // A sample, or a walk of one assumption.
        let between = Passed::read(&path, "one", false);
        assert!(!between.has(test, &alone, true));
        between.add(test, std::slice::from_ref(&grouped), false).unwrap();
        let after = Passed::open(&path, "one", true).unwrap();
        assert!(after.has(test, &alone, false) && !after.has(test, &grouped, false));
        assert!(!Passed::open(&path, "two", true).unwrap().has(test, &alone, true));
        then.add(test, std::slice::from_ref(&alone), false).unwrap();
        assert!(!Passed::open(&path, "two", false).unwrap().has(test, &alone, true));
    }
}
