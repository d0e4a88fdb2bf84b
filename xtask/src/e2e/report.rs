//! What became of the specs: tables for people, JSON for programs.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use lab::storage_suite::{Outcome, State};
use serde_json::{Value, json};

use crate::output::table;

/// Writes `report.json` into the directory.
pub(super) fn write(directory: &Path, outcomes: &[Outcome]) -> Result<()> {
    let entry = |outcome: &Outcome| {
        json!({
            "suite": outcome.spec.suite,
            "volume": outcome.spec.volume,
            "spec": outcome.spec.demand,
            "name": outcome.spec.name,
            "state": outcome.state.name(),
            "reason": outcome.reason,
            "seconds": outcome.took.as_secs_f64(),
        })
    };
    let entries: Vec<Value> = outcomes.iter().map(entry).collect();
    let path = directory.join("report.json");
    fs::create_dir_all(directory)?;
    fs::write(&path, serde_json::to_string_pretty(&entries)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}

/// One outcome in a line.
pub(super) fn line(outcome: &Outcome) -> String {
    let Outcome { spec, state, took, .. } = outcome;
    let sign = if *state == State::Passed { "✓" } else { "✗" };
    let seconds = took.as_secs();
    format!("{sign} {} · {} · {} ({seconds} s)", spec.suite, spec.volume, spec.demand)
}

/// A row for each suite, then why specs were skipped, then what failed.
pub(super) fn tables(outcomes: &[Outcome]) -> String {
    let mut parts = vec![by_suite(outcomes)];
    let skipped = reasons(outcomes);
    if !skipped.is_empty() {
        parts.push(format!("Skipped:\n{skipped}"));
    }
    let failed = outcomes.iter().filter(|outcome| outcome.state == State::Failed);
    let failed: Vec<String> = failed
        .map(|outcome| format!("{}\n{}", outcome.spec.name, indented(&outcome.reason)))
        .collect();
    if !failed.is_empty() {
        parts.push(format!("Failed:\n{}", failed.join("\n")));
    }
    format!("\n{}\n", parts.join("\n\n"))
}

fn by_suite(outcomes: &[Outcome]) -> String {
    let states = [State::Passed, State::Failed, State::Skipped];
    let mut suites: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for outcome in outcomes {
        let row = suites.entry(&outcome.spec.suite).or_default();
        if let Some(column) = states.iter().position(|state| *state == outcome.state) {
            row[column] += 1;
        }
    }
    let header = ["SUITE", "PASSED", "FAILED", "SKIPPED"].map(str::to_owned).to_vec();
    let row = |(suite, counts): (&&str, &[usize; 3])| {
        std::iter::once((*suite).to_owned())
            .chain(counts.iter().map(usize::to_string))
            .collect::<Vec<_>>()
    };
    table(&std::iter::once(header).chain(suites.iter().map(row)).collect::<Vec<_>>())
}

/// How often for which reason; a reason with few specs names them.
fn reasons(outcomes: &[Outcome]) -> String {
    const NAMED: usize = 5;
    let mut reasons: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.state == State::Skipped) {
        reasons.entry(outcome.reason.lines().next().unwrap_or_default()).or_default().push(outcome);
    }
    let described = |(reason, all): (&&str, &Vec<&Outcome>)| {
        let mut lines = vec![format!("{:>5}  {reason}", all.len())];
        if all.len() <= NAMED {
            let name = |one: &&Outcome| {
                format!("       · {} · {} · {}", one.spec.suite, one.spec.volume, one.spec.demand)
            };
            lines.extend(all.iter().map(name));
        }
        lines.join("\n")
    };
    reasons.iter().map(described).collect::<Vec<_>>().join("\n")
}

fn indented(text: &str) -> String {
    const LINES: usize = 12;
    text.lines().take(LINES).map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

/// The line by which the command ends.
pub(super) fn summary(outcomes: &[Outcome]) -> String {
    let count = |state| outcomes.iter().filter(|outcome| outcome.state == state).count();
    let (passed, failed, skipped) =
        (count(State::Passed), count(State::Failed), count(State::Skipped));
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lab::storage_suite::Spec;

    use super::*;

    fn outcome(suite: &str, state: State, reason: &str) -> Outcome {
        let spec = Spec {
            suite: suite.to_owned(),
            volume: "Dynamic PV (xfs)".to_owned(),
            demand: "works".to_owned(),
            name: format!("External Storage {suite} works"),
        };
        Outcome { spec, state, reason: reason.to_owned(), took: Duration::from_secs(3) }
    }

    #[test]
    fn every_spec_is_counted_once_and_reasons_are_shown() {
        let all = [
            outcome("volumes", State::Passed, ""),
            outcome("volumes", State::Skipped, "no snapshots\nat all"),
            outcome("subPath", State::Failed, "the pod did not start"),
        ];
        assert_eq!(summary(&all), "1 passed, 1 failed, 1 skipped");
        let shown = tables(&all);
        let expected = "SUITE     PASSED   FAILED   SKIPPED\n\
                        subPath   0        1        0\n\
                        volumes   1        0        1\n";
        assert!(shown.contains(expected), "{shown}");
        assert!(shown.contains("    1  no snapshots\n       · volumes · Dynamic PV (xfs) · works"));
        assert!(shown.contains("External Storage subPath works\n    the pod did not start"));
    }
}
