//! What each test consults, found by running each alone once. Kept in `target/walk` until the test program, the drivers or
//! the simulator change.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    assumption::Consulted,
    at_once,
    test_run::{Outcome, Program, Test},
};

/// The longest test plays two hundred schedules of faults.
const BOUND: Duration = Duration::from_secs(30 * 60);

/// What is known about the tests of one program.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
struct Cache {
    /// See [`key`].
    key: String,
    tests: BTreeMap<String, Dependence>,
}

/// What is known about a test that passes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Dependence {
    pub(super) consulted: Consulted,
    /// How long it took.
    pub(super) time: Duration,
}

/// The tests that passed, and reports on those that did not.
#[derive(Default)]
pub(super) struct Learnt {
    pub(super) tests: Vec<(Test, Dependence)>,
    pub(super) failures: Vec<String>,
}

/// Runs those of one program's tests of which nothing is known yet.
pub(super) async fn learn(tests: &[Test], note: &dyn Fn(&str)) -> Result<Learnt> {
    let Some(first) = tests.first() else {
        return Ok(Learnt::default());
    };
    let file = file_of(&first.program, "json");
    let cache = RefCell::new(load(&file, key(&first.program)?));
    let known = |test: &&Test| cache.borrow().tests.contains_key(&test.name);
    let unknown: Vec<&Test> = tests.iter().filter(|test| !known(test)).collect();
    let left = Cell::new(unknown.len());
    let runs = unknown.into_iter().map(|test| {
        let (cache, file, left) = (&cache, &file, &left);
        async move {
            note(&format!("{} tests left: {}", left.get(), test.name));
            let start = Instant::now();
            let ran = test.run(&[], BOUND).await?;
            left.set(left.get() - 1);
            match ran.outcome {
                Outcome::Passed => {
                    let dependence = Dependence { consulted: ran.consulted, time: start.elapsed() };
                    cache.borrow_mut().tests.insert(test.name.clone(), dependence);
                    // After each, because a walk takes long and may be interrupted.
                    save(file, &cache.borrow())?;
                    Ok(None)
                }
                Outcome::Skipped => Ok(None),
                Outcome::Failed(message) | Outcome::Broken(message) => {
                    anyhow::Ok(Some(test.failure(&[], &message)))
                }
            }
        }
    });
    let failures = at_once(runs).await?.into_iter().flatten().collect();
    let cache = cache.into_inner();
    let known = |test: &Test| Some((test.clone(), cache.tests.get(&test.name)?.clone()));
    Ok(Learnt { tests: tests.iter().filter_map(known).collect(), failures })
}

/// Digest of a test program, of the drivers that it may start, and of the simulator.
pub(super) fn key(program: &Program) -> Result<String> {
    let mut digest = Sha256::new();
    digest.update(fs::read(&program.executable)?);
    // Cargo puts it above the test programs, if one of them starts it.
    let drivers = program.executable.ancestors().nth(2).map(|debug| debug.join("vsphere-drivers"));
    digest.update(drivers.and_then(|path| fs::read(path).ok()).unwrap_or_default());
    // Its name has a digest of the simulator's source.
    digest.update(lab::components::directory_of("vcenter")?.to_string_lossy().as_bytes());
    Ok(digest.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    }))
}

/// Where something about a program is kept. Cargo puts test programs into `target/debug/deps`.
pub(super) fn file_of(program: &Program, extension: &str) -> PathBuf {
    let target = program.executable.ancestors().nth(3).unwrap_or(Path::new("target"));
    let name: Vec<&str> =
        program.label.split_whitespace().filter(|word| !word.starts_with('-')).collect();
    target.join("walk").join(format!("{}.{extension}", name.join("-")))
}

/// An unreadable file, or one for other programs, knows nothing.
fn load(file: &Path, key: String) -> Cache {
    let stored = fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Cache>(&bytes).ok());
    match stored {
        Some(cache) if cache.key == key => cache,
        _ => Cache { key, tests: BTreeMap::new() },
    }
}

fn save(file: &Path, cache: &Cache) -> Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    Ok(fs::write(file, serde_json::to_vec_pretty(cache)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_ends_with_the_program_it_is_about() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("walk/vsphere-simulator.json");
        let mut cache = load(&file, "one".to_owned());
        assert_eq!(cache.tests.len(), 0);
        let consulted = super::super::assumption::read_record("Busy=wait\n").unwrap();
        let time = Duration::from_millis(300);
        cache.tests.insert("cns::busy".to_owned(), Dependence { consulted, time });
        save(&file, &cache).unwrap();
        assert_eq!(load(&file, "one".to_owned()), cache);
        assert_eq!(load(&file, "two".to_owned()).tests.len(), 0);
    }
}
