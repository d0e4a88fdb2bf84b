//! Runs a test under several choices at once, and narrows a failure down to the choices that cause it.

use std::{cell::Cell, future::Future, pin::Pin, time::Instant};

use anyhow::Result;

use super::{
    Walked,
    assumption::{Choice, joined},
    passed::Passed,
    plan::Run,
    test_run::{Outcome, Ran},
};
use crate::output::print_error;

/// How far a walk is.
pub(super) struct Tally {
    total: usize,
    done: Cell<usize>,
    began: Instant,
}

impl Tally {
    pub(super) fn of(runs: &[Run]) -> Self {
        let total = runs.iter().map(|run| run.choices.len()).sum();
        Self { total, done: Cell::new(0), began: Instant::now() }
    }

    fn add(&self, count: usize) {
        self.done.set(self.done.get() + count);
    }

    /// What is done, what remains, and what is run now.
    pub(super) fn note(&self, run: &Run) -> String {
        let (total, done) = (self.total, self.done.get());
        let left = match done {
            0 => String::new(),
            done => {
                let each = self.began.elapsed().as_secs_f64() / done as f64;
                format!(", about {:.0} min left", each * (total - done) as f64 / 60.0)
            }
        };
        let choices = match &run.choices[..] {
            [choice] => choice.to_string(),
            choices => format!("{} choices", choices.len()),
        };
        format!("{done} of {total}{left}: {choices}: {}", run.test.name)
    }
}

type Searched<'a> = Pin<Box<dyn Future<Output = Result<Walked>> + 'a>>;

/// Runs a test under all choices of a run. When it fails, each half of them is tried for itself, down to single choices.
/// A choice that the test did not come to read, because another one led it elsewhere, is tried without that one.
pub(super) fn search<'a>(run: Run, passed: &'a Passed, tally: &'a Tally) -> Searched<'a> {
    Box::pin(async move {
        let Run { test, choices, bound } = run;
        let ran = test.run(&choices, bound).await?;
        let part = |choices| Run { test: test.clone(), choices, bound };
        let Some(message) = failure(&choices, &ran) else {
            let count = choices.len();
            let (read, unread) = split_by_read(choices, &ran);
            passed.add(&test, &read, count > 1)?;
            tally.add(read.len());
            let mut walked = Walked { passed: read.len(), ..Walked::default() };
            let parts = match unread.len() {
                0 => Vec::new(),
                // None of them was read: whatever kept the test from it, they do not do so together.
                all if all == count => halves(unread),
                _ => vec![unread],
            };
            for unread in parts {
                walked = [walked, search(part(unread), passed, tally).await?].into_iter().sum();
            }
            return Ok(walked);
        };
        if choices.len() == 1 {
            tally.add(1);
            return Ok(reported(test.failure(&choices, &message)));
        }
        let mut walked = Walked::default();
        for half in halves(choices.clone()) {
            walked = [walked, search(part(half), passed, tally).await?].into_iter().sum();
        }
        if walked.failures.is_empty() {
            let message = format!("only together, not under each half of them:\n{message}");
            walked = [walked, reported(test.failure(&choices, &message))].into_iter().sum();
        }
        Ok(walked)
    })
}

fn reported(report: String) -> Walked {
    // At once, because a walk takes long and may be interrupted; all of them are listed in the end.
    print_error(&report);
    Walked { failures: vec![report], ..Walked::default() }
}

fn halves(mut choices: Vec<Choice>) -> Vec<Vec<Choice>> {
    let second = choices.split_off(choices.len() / 2);
    vec![choices, second]
}

/// Another order of events may leave an assumption unread that the test read alone, so a single choice counts as read.
fn split_by_read(choices: Vec<Choice>, ran: &Ran) -> (Vec<Choice>, Vec<Choice>) {
    if choices.len() == 1 {
        return (choices, Vec::new());
    }
    choices.into_iter().partition(|choice| ran.consulted.contains_key(&choice.assumption))
}

fn failure(choices: &[Choice], ran: &Ran) -> Option<String> {
    let missed = |choice: &&Choice| {
        let read = ran.consulted.get(&choice.assumption);
        read.is_some_and(|values| values.iter().any(|value| *value != choice.value))
    };
    let missed: Vec<Choice> = choices.iter().filter(missed).cloned().collect();
    match &ran.outcome {
        Outcome::Failed(message) | Outcome::Broken(message) => Some(message.clone()),
        Outcome::Skipped => Some("it skipped itself".to_owned()),
        Outcome::Passed if !missed.is_empty() => {
            Some(format!("{} did not reach every simulator that the test started", joined(&missed)))
        }
        Outcome::Passed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::assumption;

    fn choices(all: &[(&str, &str)]) -> Vec<Choice> {
        let choice = |(assumption, value): &(&str, &str)| Choice {
            assumption: (*assumption).to_owned(),
            value: (*value).to_owned(),
        };
        all.iter().map(choice).collect()
    }

    fn ran(outcome: Outcome, record: &str) -> Ran {
        Ran { outcome, consulted: assumption::read_record(record).unwrap() }
    }

    #[test]
    fn a_run_passes_only_if_the_choice_reached_its_simulators() {
        let busy = choices(&[("Busy", "fault")]);
        let failure = |outcome, record| failure(&busy, &ran(outcome, record));
        assert_eq!(failure(Outcome::Passed, "Busy=fault\nLimit=3\n"), None);
        // Another test order or timing may leave the assumption unread.
        assert_eq!(failure(Outcome::Passed, "Limit=3\n"), None);
        let missed = failure(Outcome::Passed, "Busy=fault\nBusy=wait\n").unwrap();
        assert!(missed.contains("Busy=fault did not reach every simulator"), "{missed}");
        let waits = failure(Outcome::Failed("it waits".to_owned()), "Busy=fault\n");
        assert_eq!(waits.as_deref(), Some("it waits"));
    }

    #[test]
    fn of_several_choices_only_those_count_that_were_read() {
        let all = choices(&[("Busy", "fault"), ("Limit", "3")]);
        let (read, unread) = split_by_read(all, &ran(Outcome::Passed, "Limit=3\n"));
        assert_eq!(
            (joined(&read), joined(&unread)),
            ("Limit=3".to_owned(), "Busy=fault".to_owned())
        );
        let alone = choices(&[("Busy", "fault")]);
        assert_eq!(split_by_read(alone.clone(), &ran(Outcome::Passed, "")), (alone, Vec::new()));
    }

    #[test]
    fn halving_ends_at_single_choices() {
        let three = choices(&[("Busy", "fault"), ("Limit", "3"), ("Snapshots", "true")]);
        let sizes: Vec<usize> = halves(three).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2]);
    }
}
