//! Runs the parts of the suite, each in a process of its own, two at once.

use std::{
    cell::RefCell,
    collections::VecDeque,
    io::{Read as _, Seek as _},
    iter::Sum,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::future;
use tokio::time::timeout;

use super::failures::{self, Failure};

/// How long a part may take, so that one that hangs is named; on two busy cores the longest takes ten minutes.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// What a part of the suite does most of the time. More than two parts at once give labs and schedules too little time on
/// two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Starts labs with nodes: several such parts at once would starve their kubelets.
    Nodes,
    /// Waits for API servers and simulators.
    Waits,
    /// Uses the cores by itself.
    Computes,
}

/// A part of the suite.
pub(super) struct Part {
    /// The command by which a person runs it.
    pub(super) name: String,
    pub(super) command: Command,
    pub(super) load: Load,
}

/// A part that ran.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) name: String,
    /// Standard output and error, in the order in which they were written.
    pub(super) output: String,
    pub(super) passed: bool,
    pub(super) took: Duration,
}

/// Runs the parts of each load in their order, two at once: those with nodes beside those that compute, then those that
/// wait. `note` gets each as it ends. A part that fails keeps no other from running.
pub(super) async fn run(parts: Vec<Part>, note: &dyn Fn(&Ended)) -> Result<Vec<Ended>> {
    let (nodes, parts): (VecDeque<_>, VecDeque<_>) =
        parts.into_iter().partition(|part| part.load == Load::Nodes);
    let (waiting, computing) = parts.into_iter().partition(|part| part.load == Load::Waits);
    let [nodes, waiting, computing] = [nodes, waiting, computing].map(RefCell::new);
    let lane = async |first: &RefCell<VecDeque<Part>>| {
        let mut ended = Vec::new();
        while let Some(part) = next(first).or_else(|| next(&waiting)) {
            let one = part.run(LONGEST).await?;
            note(&one);
            ended.push(one);
        }
        anyhow::Ok(ended)
    };
    let (beside, computed) = future::try_join(lane(&nodes), lane(&computing)).await?;
    Ok([beside, computed].concat())
}

fn next(queue: &RefCell<VecDeque<Part>>) -> Option<Part> {
    queue.borrow_mut().pop_front()
}

impl Part {
    async fn run(self, longest: Duration) -> Result<Ended> {
        let Self { name, command, .. } = self;
        let mut file = tempfile::tempfile()?;
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
        let start = Instant::now();
        let ended = timeout(longest, command.kill_on_drop(true).status()).await;
        let mut output = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut output)?;
        let mut output = String::from_utf8_lossy(&output).into_owned();
        let passed = match ended {
            Ok(Ok(status)) => status.success(),
            Ok(Err(error)) => {
                output.push_str(&format!("cannot be run: {error}\n"));
                false
            }
            Err(_) => {
                let seconds = longest.as_secs();
                output.push_str(&format!("\nkilled: it had not ended after {seconds} s\n"));
                false
            }
        };
        Ok(Ended { name, output, passed, took: start.elapsed() })
    }
}

/// How many tests ended how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: usize,
    pub(super) failed: usize,
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            passed: sum.passed + one.passed,
            failed: sum.failed + one.failed,
        })
    }
}

impl Ended {
    /// What failed; of a part that failed without naming a test, the end of its output.
    pub(super) fn failures(&self) -> Vec<Failure> {
        if self.passed {
            return Vec::new();
        }
        let named = failures::read(&self.output, &self.name);
        if named.is_empty() { vec![failures::unnamed(&self.output, &self.name)] } else { named }
    }

    /// The tests that the part counted itself, or else the part as one.
    pub(super) fn counts(&self) -> Counts {
        let counted: Vec<Counts> = self.output.lines().filter_map(counted).collect();
        let is_uncounted = counted.is_empty();
        let Counts { passed, failed } = counted.into_iter().sum();
        match self.passed {
            true if is_uncounted => Counts { passed: 1, failed },
            true => Counts { passed, failed },
            false => Counts { passed, failed: failed.max(1) },
        }
    }
}

/// Reads `test result: ok. 2 passed; 1 failed; …`, as Rust's test programs end, and `2 passed, 1 failed`, as `walk` does.
fn counted(line: &str) -> Option<Counts> {
    let (passed, rest) = match line.strip_prefix("test result: ") {
        Some(result) => result.split_once(". ")?.1.split_once(" passed; ")?,
        None => line.split_once(" passed, ")?,
    };
    let failed = rest.split_once(" failed")?.0;
    Some(Counts { passed: passed.parse().ok()?, failed: failed.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, script: &str, load: Load) -> Part {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Part { name: name.to_owned(), command, load }
    }

    fn ended(passed: bool, output: &str) -> Ended {
        let (name, took) = ("cargo test -p one --lib".to_owned(), Duration::ZERO);
        Ended { name, output: output.to_owned(), passed, took }
    }

    #[tokio::test]
    async fn every_part_runs_and_its_output_stays_in_order() {
        let mut missing = part("a program that is missing", "", Load::Waits);
        missing.command = Command::new("/does/not/exist");
        let parts = vec![
            part("first", "echo one; echo two >&2; echo three; exit 1", Load::Computes),
            part("second", "echo four", Load::Computes),
            part("beside", "echo five", Load::Waits),
            missing,
        ];
        let noted = RefCell::new(Vec::new());
        let note = |ended: &Ended| noted.borrow_mut().push(ended.name.clone());
        let mut all = run(parts, &note).await.unwrap();
        assert_eq!(noted.borrow().len(), 4);
        all.sort_by(|one, other| one.name.cmp(&other.name));
        let seen: Vec<_> = all.iter().map(|one| (one.output.as_str(), one.passed)).collect();
        let (missing, others) = seen.split_first().unwrap();
        assert!(missing.0.starts_with("cannot be run: ") && !missing.1, "{missing:?}");
        assert_eq!(others, [("five\n", true), ("one\ntwo\nthree\n", false), ("four\n", true)]);
    }

    #[tokio::test]
    async fn two_parts_run_at_once_and_those_that_wait_come_last() {
        // The first two wait for each other, and so do the others.
        let dir = tempfile::tempdir().unwrap();
        let script = |mine: &str, other: &str| {
            let at = |name: &str| dir.path().join(name).display().to_string();
            format!("touch {}; until test -e {}; do sleep 0.01; done", at(mine), at(other))
        };
        let parts = vec![
            part("c", &script("c", "d"), Load::Waits),
            part("d", &script("d", "c"), Load::Waits),
            part("a", &script("a", "b"), Load::Computes),
            part("b", &script("b", "a"), Load::Nodes),
        ];
        let ended = timeout(Duration::from_secs(60), run(parts, &|_| {})).await.unwrap();
        assert_eq!(ended.unwrap().len(), 4);
    }

    #[tokio::test]
    async fn a_part_that_hangs_is_killed_and_named() {
        let hanging = part("hanging", "echo begun; exec sleep 1000", Load::Waits);
        let ended = hanging.run(Duration::from_millis(100)).await.unwrap();
        assert!(!ended.passed);
        assert!(ended.output.ends_with("killed: it had not ended after 0 s\n"), "{}", ended.output);
        let [failure] = &ended.failures()[..] else { panic!("it is one failure") };
        assert!(failure.to_string().contains("killed: it had not ended"), "{failure}");
    }

    #[test]
    fn tests_are_counted_as_the_programs_print_them() {
        let rust = "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.10s\n";
        assert_eq!(ended(true, rust).counts(), Counts { passed: 5, failed: 0 });
        let walk = "✗ a_test\n\n7 passed, 1 failed\nerror: the list above\n";
        assert_eq!(ended(false, walk).counts(), Counts { passed: 7, failed: 1 });
        assert_eq!(ended(true, "").counts(), Counts { passed: 1, failed: 0 });
        assert_eq!(ended(false, "").counts(), Counts { passed: 0, failed: 1 });
        // A program that has no tests of its own, and one that broke off after its first tests.
        let none = "test result: ok. 0 passed; 0 failed; 0 ignored\n";
        assert_eq!(ended(true, none).counts(), Counts::default());
        assert_eq!(ended(false, rust).counts(), Counts { passed: 5, failed: 1 });
    }

    #[test]
    fn a_part_that_fails_without_naming_a_test_fails_as_a_whole() {
        let [failure] = &ended(false, "running 1 test\nmemory is corrupted\n").failures()[..]
        else {
            panic!("it is one failure");
        };
        let shown = failure.to_string();
        assert!(shown.contains("memory is corrupted\n  cargo test -p one --lib"), "{shown}");
        assert!(ended(true, "").failures().is_empty());
    }
}
