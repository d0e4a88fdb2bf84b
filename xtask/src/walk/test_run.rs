//! One test, alone in a process, under some choices or none: how it ended, and what its simulators consulted.

use std::{fs, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{
    assumption::{Choice, Consulted, joined, read_record},
    go_assertion,
};
use crate::suite::failures;

/// The simulator's variables; lab/vcenter/internal/assume/settings.go has their meaning.
pub(super) const FORCED: &str = "VCENTER_ASSUME";
const RECORDED: &str = "VCENTER_CONSULTED";

/// Of a test that printed no message of its own.
const LAST_LINES: usize = 15;

#[derive(Debug)]
pub(super) struct Program {
    /// How people name it: `-p vsphere --test simulator`, or a directory below `lab/vcenter`.
    pub(super) label: String,
    pub(super) language: Language,
    pub(super) executable: PathBuf,
    /// Where its tests expect to run.
    pub(super) directory: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Language {
    Rust,
    Go,
}

#[derive(Clone, Debug)]
pub(super) struct Test {
    pub(super) program: Arc<Program>,
    pub(super) name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The test decided not to run: it needs root.
    Skipped,
    /// An assertion, with its message.
    Failed(String),
    /// It ended in another way, or not at all.
    Broken(String),
}

pub(super) struct Ran {
    pub(super) outcome: Outcome,
    pub(super) consulted: Consulted,
}

impl Test {
    /// Runs it in a process of its own, which is killed after `bound`.
    pub(super) async fn run(&self, choices: &[Choice], bound: Duration) -> Result<Ran> {
        let record = NamedTempFile::new()?;
        let mut command = Command::new(&self.program.executable);
        match self.program.language {
            Language::Rust => command.args(["--exact", &self.name]),
            Language::Go => command.args(["-test.v", "-test.run", &format!("^{}$", self.name)]),
        };
        command
            .current_dir(&self.program.directory)
            .env(RECORDED, record.path())
            .env_remove(FORCED);
        if !choices.is_empty() {
            command.env(FORCED, joined(choices));
        }
        command.env("RUST_LIB_BACKTRACE", "0").stdin(Stdio::null()).kill_on_drop(true);
        let outcome = match tokio::time::timeout(bound, command.output()).await {
            Err(_) => Outcome::Broken(format!("it did not end within {} s", bound.as_secs())),
            Ok(ended) => {
                let program = &self.program.executable;
                let ended = ended.with_context(|| format!("cannot run {}", program.display()))?;
                let mut output = String::from_utf8_lossy(&ended.stdout).into_owned();
                output.push_str(&String::from_utf8_lossy(&ended.stderr));
                self.judge(ended.status.code(), &output)
            }
        };
        let consulted = read_record(&fs::read_to_string(record.path())?)?;
        Ok(Ran { outcome, consulted })
    }

    /// The command by which a person runs it again.
    pub(super) fn command(&self, choices: &[Choice]) -> String {
        let Self { program, name } = self;
        let forced = match choices {
            [] => String::new(),
            choices => format!("{FORCED}='{}' ", joined(choices)),
        };
        let label = &program.label;
        match program.language {
            Language::Rust => format!("{forced}cargo test {label} -- --exact {name}"),
            Language::Go => {
                format!("cd lab/vcenter && {forced}go test {label} -run '^{name}$' -count=1")
            }
        }
    }

    /// A report on a run that failed.
    pub(super) fn failure(&self, choices: &[Choice], message: &str) -> String {
        let under = match choices {
            [] => String::new(),
            choices => format!(" under {}", joined(choices)),
        };
        let message: String = message.lines().map(|line| format!("    {line}\n")).collect();
        format!("✗ {}{under}\n{message}  {}", self.name, self.command(choices))
    }

    fn judge(&self, code: Option<i32>, output: &str) -> Outcome {
        let name = &self.name;
        let go = |verdict: &str| {
            let start = format!("--- {verdict}: {name} ");
            output.lines().any(|line| line.starts_with(&start))
        };
        let rust = |result: &str| output.contains(&format!("test result: {result};"));
        match (self.program.language, code) {
            (Language::Rust, Some(0)) if rust("ok. 1 passed") => Outcome::Passed,
            (Language::Rust, Some(101)) if rust("FAILED. 0 passed") => {
                Outcome::Failed(failures::message_of(output).unwrap_or_else(|| end_of(output)))
            }
            (Language::Go, Some(0)) if go("PASS") => Outcome::Passed,
            (Language::Go, Some(0)) if go("SKIP") => Outcome::Skipped,
            (Language::Go, Some(1)) if go("FAIL") => {
                let own: Vec<&str> = go_assertion::messages(output).collect();
                Outcome::Failed(if own.is_empty() { end_of(output) } else { own.join("\n") })
            }
            (_, Some(0)) => Outcome::Broken(format!("no test {name} ran")),
            _ => Outcome::Broken(end_of(output)),
        }
    }
}

fn end_of(output: &str) -> String {
    let lines: Vec<&str> = output.trim().lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(language: Language, label: &str, name: &str) -> Test {
        let program = Program {
            label: label.to_owned(),
            language,
            executable: PathBuf::new(),
            directory: PathBuf::new(),
        };
        Test { program: Arc::new(program), name: name.to_owned() }
    }

    #[test]
    fn a_go_test_fails_by_its_assertions_only() {
        let test = test(Language::Go, "./internal/cns", "TestBusy");
        let fails = "--- FAIL: TestBusy (0.01s)\n    busy_test.go:7: waits\nFAIL";
        assert_eq!(test.judge(Some(0), "--- PASS: TestBusy (0.01s)\nPASS"), Outcome::Passed);
        assert_eq!(test.judge(Some(0), "--- SKIP: TestBusy (0.00s)\nPASS"), Outcome::Skipped);
        let message = "    busy_test.go:7: waits".to_owned();
        assert_eq!(test.judge(Some(1), fails), Outcome::Failed(message));
        let panics = "--- FAIL: TestBusy (0.01s)\npanic: oh";
        for (code, output) in [
            (Some(2), panics),
            (None, ""),
            (Some(1), "--- FAIL: TestBusyHost (0.00s)"),
            (Some(0), "testing: warning: no tests to run\nPASS"),
        ] {
            let outcome = test.judge(code, output);
            assert!(matches!(outcome, Outcome::Broken(_)), "{code:?} {output}: {outcome:?}");
        }
    }

    #[test]
    fn a_rust_test_fails_with_the_message_of_its_panic() {
        let test = test(Language::Rust, "-p vsphere --test simulator", "cns::busy");
        let passes =
            "running 1 test\ntest cns::busy ... ok\n\ntest result: ok. 1 passed; 0 failed;";
        assert_eq!(test.judge(Some(0), passes), Outcome::Passed);
        let fails = "running 1 test\ntest cns::busy ... FAILED\n\nfailures:\n\n---- cns::busy stdout ----\n\
                     a line\nthread 'cns::busy' panicked at cns.rs:1:2:\nit waits\n\nfailures:\n    cns::busy\n\ntest result: FAILED. 0 passed; 1 failed;";
        let message = "thread 'cns::busy' panicked at cns.rs:1:2:\nit waits";
        assert_eq!(test.judge(Some(101), fails), Outcome::Failed(message.to_owned()));
        let none = test.judge(Some(0), "running 0 tests\n\ntest result: ok. 0 passed; 0 failed;");
        assert_eq!(none, Outcome::Broken("no test cns::busy ran".to_owned()));
        let aborts = test.judge(None, "running 1 test\n");
        assert!(matches!(aborts, Outcome::Broken(_)), "{aborts:?}");
    }

    #[test]
    fn a_command_runs_the_test_again_under_the_same_choice() {
        let choice = Choice { assumption: "Busy".to_owned(), value: "wait".to_owned() };
        let rust = test(Language::Rust, "-p vsphere --test simulator", "cns::busy");
        assert_eq!(
            rust.command(std::slice::from_ref(&choice)),
            "VCENTER_ASSUME='Busy=wait' cargo test -p vsphere --test simulator -- --exact cns::busy"
        );
        let go = test(Language::Go, "./internal/cns", "TestBusy");
        assert_eq!(
            go.command(&[]),
            "cd lab/vcenter && go test ./internal/cns -run '^TestBusy$' -count=1"
        );
    }
}
