//! The report that the suite writes, read.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use serde::Deserialize;

/// A spec of the suite.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spec {
    /// The suite's name, such as `volume-expand`.
    pub suite: String,
    /// The kind of volume, such as `Dynamic PV (xfs)`.
    pub volume: String,
    /// What is demanded.
    pub demand: String,
    /// All of it in the suite's own words, by which it is found.
    pub name: String,
}

/// What became of a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which one.
    pub spec: Spec,
    /// How it ended.
    pub state: State,
    /// Why it failed or was skipped.
    pub reason: String,
    /// How long it took.
    pub took: Duration,
}

/// How a spec ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As demanded.
    Passed,
    /// Otherwise, or it did not end.
    Failed,
    /// By itself: the driver, or the cluster, does not have what it needs.
    Skipped,
    /// It was not asked for.
    NotRun,
}

impl State {
    /// The state as a word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::NotRun => "not run",
        }
    }
}

impl Spec {
    fn new(containers: &[String], leaf: &str) -> Self {
        // Some texts are empty, begin or end with a space, or have two in a row.
        let texts = containers.iter().map(String::as_str).chain([leaf]);
        let name = texts.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        // "[Testpattern: Dynamic PV (xfs)] [Slow] volume-expand", then what a suite has below.
        let pattern = containers.get(1).map_or("", String::as_str);
        let (volume, suite) = match pattern.trim().strip_prefix("[Testpattern: ") {
            Some(rest) => rest.split_once(']').unwrap_or((rest, "")),
            None => ("", pattern),
        };
        let below = containers.iter().skip(2).map(String::as_str).chain([leaf]);
        let demand = without_tags(&below.collect::<Vec<_>>().join(" "));
        Self { suite: without_tags(suite), volume: volume.trim().to_owned(), demand, name }
    }

    /// Whether it wants the cluster for itself.
    #[must_use]
    pub fn is_serial(&self) -> bool {
        self.name.contains("[Serial]")
    }

    /// A regular expression that matches this spec and no other.
    pub(super) fn pattern(&self) -> String {
        // No begin: the suite puts its own name in front. It joins the texts that are not empty by spaces.
        let mut escaped = String::new();
        for character in self.name.chars() {
            match character {
                ' ' => escaped.push_str(" +"),
                letter if letter.is_ascii_alphanumeric() => escaped.push(letter),
                other => {
                    escaped.push('\\');
                    escaped.push(other);
                }
            }
        }
        escaped + " *$"
    }
}

/// The text without what is in square brackets.
fn without_tags(text: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for character in text.chars() {
        match character {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            other if depth == 0 => kept.push(other),
            _ => {}
        }
    }
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Vec<Reported>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reported {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    leaf_node_type: String,
    state: String,
    /// Nanoseconds.
    run_time: u64,
    #[serde(default)]
    failure: Failure,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// What a report says about all specs.
pub(super) fn read(path: &Path) -> Result<Vec<Outcome>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let suites: Vec<Suite> = serde_json::from_slice(&bytes).context("the suite's report")?;
    let reports = suites.into_iter().flat_map(|suite| suite.spec_reports);
    let specs = reports.filter(|one| one.leaf_node_type == "It");
    Ok(specs.map(outcome).collect())
}

fn outcome(reported: Reported) -> Outcome {
    let containers = reported.container_hierarchy_texts.unwrap_or_default();
    let reason = reported.failure.message.trim().to_owned();
    let state = match reported.state.as_str() {
        "passed" => State::Passed,
        // One that was not selected is reported in the same way, without a reason.
        "skipped" if reason.is_empty() => State::NotRun,
        "skipped" => State::Skipped,
        _ => State::Failed,
    };
    Outcome {
        spec: Spec::new(&containers, &reported.leaf_node_text),
        state,
        reason,
        took: Duration::from_nanos(reported.run_time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_read_from_the_suites_words() {
        let containers = [
            "External Storage [Driver: csi.vsphere.vmware.com]",
            "[Testpattern: Dynamic PV (xfs)] [Slow] multiVolume [Slow]",
        ]
        .map(str::to_owned);
        let spec = Spec::new(&containers, "should access to two volumes [LinuxOnly]");
        assert_eq!(spec.suite, "multiVolume");
        assert_eq!(spec.volume, "Dynamic PV (xfs)");
        assert_eq!(spec.demand, "should access to two volumes");
        assert!(spec.name.ends_with("multiVolume [Slow] should access to two volumes [LinuxOnly]"));
        assert!(!spec.is_serial());
    }

    #[test]
    fn the_pattern_of_a_spec_has_no_special_characters_left() {
        let spec = Spec::new(&["External Storage [Driver: a.b]".to_owned()], "works (well)?");
        let expected = r"External +Storage +\[Driver\: +a\.b\] +works +\(well\)\? *$";
        assert_eq!(spec.pattern(), expected);
    }

    #[test]
    fn the_pattern_of_a_spec_does_not_depend_on_empty_texts_and_double_spaces() {
        let containers = ["External Storage", "[Testpattern:  (delete policy)] snapshottable", ""];
        let spec = Spec::new(&containers.map(str::to_owned), "should restore ");
        let expected = r"External +Storage +\[Testpattern\: +\(delete +policy\)\] +snapshottable +should +restore *$";
        assert_eq!(spec.pattern(), expected);
    }

    #[test]
    fn a_spec_that_was_not_selected_is_no_spec_that_skipped_itself() {
        let reported = |state: &str, message: &str| {
            let failure = Failure { message: message.to_owned() };
            outcome(Reported {
                container_hierarchy_texts: None,
                leaf_node_text: "works".to_owned(),
                leaf_node_type: "It".to_owned(),
                state: state.to_owned(),
                run_time: 1_500_000_000,
                failure,
            })
        };
        assert_eq!(reported("skipped", "").state, State::NotRun);
        assert_eq!(reported("skipped", "no snapshots").state, State::Skipped);
        assert_eq!(reported("timedout", "").state, State::Failed);
        assert_eq!(reported("passed", "").took, Duration::from_millis(1500));
    }
}
