//! Which tests run under which choices. Pure: what was learnt goes in, runs come out.

use std::{collections::BTreeSet, time::Duration};

use sha2::{Digest, Sha256};

use super::{
    assumption::{self, Assumption, Choice, joined},
    consulted::Dependence,
    test_run::Test,
};

/// One test under one choice of an assumption, or of several.
pub(super) struct Run {
    pub(super) test: Test,
    pub(super) choices: Vec<Choice>,
    /// When it is given up.
    pub(super) bound: Duration,
}

/// Every test under every choice that may change its outcome.
pub(super) fn all(rows: &[Assumption], tests: &[(Test, Dependence)]) -> Vec<Run> {
    let of_test = |(test, dependence): &(Test, Dependence)| {
        let choices = assumption::usable_others(rows, &dependence.consulted);
        // Long enough for a wait that fails, so that the test itself reports what it waited for.
        let bound = 3 * dependence.time + Duration::from_secs(300);
        let run = |choice| Run { test: test.clone(), choices: vec![choice], bound };
        choices.into_iter().map(run).collect::<Vec<_>>()
    };
    tests.iter().flat_map(of_test).collect()
}

/// The same choices in fewer runs: each run of a test has one of every assumption that has one left.
pub(super) fn together(runs: Vec<Run>) -> Vec<Run> {
    let mut grouped: Vec<Run> = Vec::new();
    for run in runs {
        let fits = |group: &&mut Run| {
            let of_group = |choice: &Choice| {
                group.choices.iter().any(|other| other.assumption == choice.assumption)
            };
            group.test.name == run.test.name && !run.choices.iter().any(of_group)
        };
        match grouped.iter_mut().find(fits) {
            Some(group) => group.choices.extend(run.choices),
            None => grouped.push(run),
        }
    }
    grouped
}

/// One of the runs for each choice: always the same one, and another test for each choice.
pub(super) fn one_for_each_choice(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by_cached_key(|run| digest(&format!("{} {}", joined(&run.choices), run.test.name)));
    let mut seen = BTreeSet::new();
    runs.retain(|run| seen.insert(joined(&run.choices)));
    runs
}

/// So many of the tests, spread over all of them; always the same ones.
pub(super) fn some(mut tests: Vec<Test>, count: usize) -> Vec<Test> {
    tests.sort_by_cached_key(|test| digest(&test.name));
    tests.truncate(count);
    tests
}

fn digest(text: &str) -> Vec<u8> {
    Sha256::digest(text).to_vec()
}

#[cfg(test)]
pub(super) mod tests {
    use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

    use super::*;
    use crate::walk::test_run::{Language, Program};

    pub(in crate::walk) fn tests(count: usize) -> Vec<Test> {
        let program = Arc::new(Program {
            label: "-p vsphere --test simulator".to_owned(),
            language: Language::Rust,
            executable: PathBuf::new(),
            directory: PathBuf::new(),
        });
        let test = |number| Test { program: Arc::clone(&program), name: format!("test_{number}") };
        (0..count).map(test).collect()
    }

    fn rows() -> Vec<Assumption> {
        let row = |name: &str, choices: [&str; 3]| Assumption {
            name: name.to_owned(),
            choices: choices.map(str::to_owned).to_vec(),
            unusable: Vec::new(),
            shown_by: String::new(),
        };
        vec![row("Busy", ["wait", "fault", "late"]), row("Limit", ["1", "2", "3"])]
    }

    /// Even tests read one assumption, every third the other.
    fn learnt(count: usize) -> Vec<(Test, Dependence)> {
        let dependence = |number: usize| {
            let mut consulted = BTreeMap::new();
            for (every, name, value) in [(2, "Busy", "wait"), (3, "Limit", "2")] {
                if number.is_multiple_of(every) {
                    consulted.insert(name.to_owned(), BTreeSet::from([value.to_owned()]));
                }
            }
            Dependence { consulted, time: Duration::from_secs(10) }
        };
        let tests = tests(count).into_iter().enumerate();
        tests.map(|(number, test)| (test, dependence(number))).collect()
    }

    fn described(runs: &[Run]) -> Vec<String> {
        runs.iter().map(|run| format!("{} {}", run.test.name, joined(&run.choices))).collect()
    }

    #[test]
    fn only_what_a_test_depends_on_is_walked() {
        let runs = all(&rows(), &learnt(4));
        assert_eq!(
            described(&runs),
            [
                "test_0 Busy=fault",
                "test_0 Busy=late",
                "test_0 Limit=1",
                "test_0 Limit=3",
                "test_2 Busy=fault",
                "test_2 Busy=late",
                "test_3 Limit=1",
                "test_3 Limit=3",
            ]
        );
        assert_eq!(runs[0].bound, Duration::from_secs(330));
    }

    #[test]
    fn together_every_choice_is_in_one_run_and_no_run_has_two_of_an_assumption() {
        let runs = together(all(&rows(), &learnt(4)));
        assert_eq!(
            described(&runs),
            [
                "test_0 Busy=fault,Limit=1",
                "test_0 Busy=late,Limit=3",
                "test_2 Busy=fault",
                "test_2 Busy=late",
                "test_3 Limit=1",
                "test_3 Limit=3",
            ]
        );
    }

    #[test]
    fn a_sample_has_every_choice_once_and_is_always_the_same() {
        let sample = one_for_each_choice(all(&rows(), &learnt(40)));
        let choices: BTreeSet<String> = sample.iter().map(|run| joined(&run.choices)).collect();
        assert_eq!((sample.len(), choices.len()), (4, 4));
        let again = one_for_each_choice(all(&rows(), &learnt(40)));
        assert_eq!(described(&sample), described(&again));
        let tests: BTreeSet<&str> = sample.iter().map(|run| run.test.name.as_str()).collect();
        assert!(tests.len() > 1, "one test stands for all choices: {tests:?}");
    }

    #[test]
    fn some_tests_are_always_the_same_ones() {
        let names = |tests: &[Test]| tests.iter().map(|test| test.name.clone()).collect::<Vec<_>>();
        let few = some(tests(40), 5);
        assert_eq!(few.len(), 5);
        let mut turned = tests(40);
        turned.reverse();
        assert_eq!(names(&some(turned, 5)), names(&few));
        assert_eq!(some(tests(3), 5).len(), 3);
    }
}
