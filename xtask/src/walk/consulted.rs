//! What each test consults, found by running each alone once. Kept in `target/walk` until the test program or the
//! simulator changes.

use std::{
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
    /// Digest of the test program and the simulator.
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
    let file = cache_file(&first.program);
    let mut cache = load(&file, key(&first.program)?);
    let unknown = tests.iter().filter(|test| !cache.tests.contains_key(&test.name));
    let runs = unknown.map(|test| async move {
        note(&test.name);
        let start = Instant::now();
        anyhow::Ok((test, test.run(None, BOUND).await?, start.elapsed()))
    });
    let mut failures = Vec::new();
    for (test, ran, time) in at_once(runs).await? {
        match ran.outcome {
            Outcome::Passed => {
                let dependence = Dependence { consulted: ran.consulted, time };
                cache.tests.insert(test.name.clone(), dependence);
            }
            Outcome::Skipped => {}
            Outcome::Failed(message) | Outcome::Broken(message) => {
                failures.push(test.failure(None, &message));
            }
        }
    }
    save(&file, &cache)?;
    let known = |test: &Test| Some((test.clone(), cache.tests.get(&test.name)?.clone()));
    Ok(Learnt { tests: tests.iter().filter_map(known).collect(), failures })
}

fn key(program: &Program) -> Result<String> {
    let mut digest = Sha256::new();
    digest.update(fs::read(&program.executable)?);
    // Its name has a digest of the simulator's source.
    digest.update(lab::components::directory_of("vcenter")?.to_string_lossy().as_bytes());
    Ok(digest.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").ok();
        hex
    }))
}

/// Cargo puts test programs into `target/debug/deps`.
fn cache_file(program: &Program) -> PathBuf {
    let target = program.executable.ancestors().nth(3).unwrap_or(Path::new("target"));
    let name: Vec<&str> =
        program.label.split_whitespace().filter(|word| !word.starts_with('-')).collect();
    target.join("walk").join(format!("{}.json", name.join("-")))
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
