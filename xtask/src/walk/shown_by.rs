//! `cargo xtask walk --go`: proves that the test named for each assumption passes under its value and fails under every
//! other choice, after it read the choice and by an assertion of its own. So every switch is read somewhere, makes a
//! difference, and a test notices.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use lab::Progress;

use super::{
    Walked,
    assumption::{self, Assumption, Choice},
    at_once, go_assertion, go_tests,
    test_run::{Outcome, Ran, Test},
};

/// Longer than any wait of a test, so that a test reports by itself what it waited for.
const BOUND: Duration = Duration::from_secs(180);

/// Proves the rows of the table.
pub(super) async fn prove(rows: &[Assumption]) -> Result<Walked> {
    let progress = Progress::shown(2);
    let step = progress.step("the simulator's tests");
    let directory = tempfile::tempdir()?;
    let packages: BTreeSet<&str> =
        rows.iter().filter_map(|row| Some(row.shown_by.split_once('.')?.0)).collect();
    let programs = go_tests::compile(&packages.into_iter().collect::<Vec<_>>(), directory.path())?;
    step.done(&format!("{} packages compiled", programs.len()));
    let step = progress.step("assumptions under their other choices");
    let proofs = rows.iter().map(|row| {
        step.note(&row.name);
        let test = go_tests::find(&programs, &row.shown_by);
        async move {
            match test {
                Ok(test) => prove_row(row, &test).await,
                Err(_) if row.shown_by.is_empty() => Ok(refused(row, "no test shows it")),
                Err(error) => Ok(refused(row, &format!("{error:#}"))),
            }
        }
    });
    let walked: Walked = at_once(proofs).await?.into_iter().sum();
    let runs = walked.passed + walked.failures.len();
    step.done(&format!("{} assumptions, {runs} runs", rows.len()));
    Ok(walked)
}

async fn prove_row(row: &Assumption, test: &Test) -> Result<Walked> {
    let plain = test.run(&[], BOUND).await?;
    let others = match judge_plain(row, &plain) {
        Plain::Consulted(others) => others,
        Plain::Skipped => {
            return Ok(Walked { passed: 0, left_out: 1, failures: Vec::new() });
        }
        Plain::Wrong(problem) => {
            return Ok(refused(row, &format!("{problem}\n  {}", test.command(&[]))));
        }
    };
    let mut walked = Walked { passed: 1, ..Walked::default() };
    for choice in others {
        let ran = test.run(std::slice::from_ref(&choice), BOUND).await?;
        match judge_other(test, &choice, &ran) {
            Ok(()) => walked.passed += 1,
            Err(how) => {
                let command = test.command(std::slice::from_ref(&choice));
                walked.failures.push(format!(
                    "✗ {}: under {choice}, which {} should notice, it {how}\n  {command}",
                    row.name, row.shown_by
                ));
            }
        }
    }
    Ok(walked)
}

/// Whether a run under another choice failed because of that choice; else how it ended.
fn judge_other(test: &Test, choice: &Choice, ran: &Ran) -> Result<(), String> {
    let Outcome::Failed(message) = &ran.outcome else { return Err(unexpected(&ran.outcome)) };
    let read = ran.consulted.get(&choice.assumption);
    if !read.is_some_and(|values| values.contains(&choice.value)) {
        return Err(format!("fails without consulting it:\n{message}"));
    }
    go_assertion::check(test, message)
}

/// What the run under the row's own value says.
#[derive(Debug, PartialEq, Eq)]
enum Plain {
    /// It passes and depends on the row: under these choices it has to fail.
    Consulted(Vec<Choice>),
    Skipped,
    Wrong(String),
}

fn judge_plain(row: &Assumption, ran: &Ran) -> Plain {
    match &ran.outcome {
        Outcome::Passed => {
            let others = assumption::others(std::slice::from_ref(row), &ran.consulted);
            if others.is_empty() {
                return Plain::Wrong(format!("{} does not consult it", row.shown_by));
            }
            Plain::Consulted(others)
        }
        Outcome::Skipped if !rustix::process::getuid().is_root() => Plain::Skipped,
        other => Plain::Wrong(format!("{} {}", row.shown_by, unexpected(other))),
    }
}

fn unexpected(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed => "passes".to_owned(),
        Outcome::Skipped => "skips itself".to_owned(),
        Outcome::Failed(message) => format!("fails:\n{message}"),
        Outcome::Broken(message) => format!("ends without a verdict:\n{message}"),
    }
}

fn refused(row: &Assumption, problem: &str) -> Walked {
    Walked { failures: vec![format!("✗ {}: {problem}", row.name)], ..Walked::default() }
}

#[cfg(test)]
mod tests {
    use std::{path::PathBuf, sync::Arc};

    use super::*;
    use crate::walk::test_run::{Language, Program};

    fn judged(outcome: Outcome, record: &str) -> Plain {
        let row = Assumption {
            name: "Busy".to_owned(),
            choices: ["wait", "fault", "late"].map(str::to_owned).to_vec(),
            unusable: Vec::new(),
            shown_by: "cns.TestBusy".to_owned(),
        };
        judge_plain(&row, &Ran { outcome, consulted: assumption::read_record(record).unwrap() })
    }

    #[test]
    fn a_test_has_to_fail_under_every_choice_that_it_did_not_read() {
        let Plain::Consulted(others) = judged(Outcome::Passed, "Busy=wait\nOther=1\n") else {
            panic!("the row is consulted");
        };
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        assert_eq!(others, ["Busy=fault", "Busy=late"]);
    }

    #[test]
    fn a_test_that_does_not_read_the_row_proves_nothing() {
        let wrong = judged(Outcome::Passed, "Other=1\n");
        assert_eq!(wrong, Plain::Wrong("cns.TestBusy does not consult it".to_owned()));
    }

    #[test]
    fn a_test_that_fails_by_itself_proves_nothing() {
        let wrong = judged(Outcome::Failed("busy_test.go:7".to_owned()), "Busy=wait\n");
        assert_eq!(wrong, Plain::Wrong("cns.TestBusy fails:\nbusy_test.go:7".to_owned()));
    }

    #[test]
    fn a_failure_before_the_choice_is_read_proves_nothing() {
        let program = Program {
            label: "./internal/cns".to_owned(),
            language: Language::Go,
            executable: PathBuf::new(),
            directory: PathBuf::new(),
        };
        let test = Test { program: Arc::new(program), name: "TestBusy".to_owned() };
        let choice = Choice { assumption: "Busy".to_owned(), value: "fault".to_owned() };
        let judged = |outcome, record| {
            let consulted = assumption::read_record(record).unwrap();
            judge_other(&test, &choice, &Ran { outcome, consulted }).unwrap_err()
        };
        let failed = || Outcome::Failed("    busy_test.go:7: waits".to_owned());
        let unread = judged(failed(), "Other=1\n");
        assert_eq!(unread, "fails without consulting it:\n    busy_test.go:7: waits");
        assert_eq!(judged(Outcome::Passed, "Busy=fault\n"), "passes");
        let elsewhere = judged(Outcome::Failed("panic".to_owned()), "Busy=fault\n");
        assert_eq!(elsewhere, "fails without a message of its own:\npanic");
    }
}
