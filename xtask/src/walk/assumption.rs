//! The simulator's assumptions, what a test consulted of them, and under which other choices it has to run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A row of `vcenter -assumptions -json`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Assumption {
    pub(super) name: String,
    #[serde(deserialize_with = "texts")]
    pub(super) choices: Vec<String>,
    /// Choices under which no driver can work.
    #[serde(default, deserialize_with = "texts")]
    pub(super) unusable: Vec<String>,
    /// A test that fails under every other choice, as `package.Test` in Go or `package::test` in Rust.
    pub(super) shown_by: String,
}

/// One assumption with one of its values, written as the simulator's environment has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) assumption: String,
    pub(super) value: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.assumption, self.value)
    }
}

/// As the simulator's environment has several.
pub(super) fn joined(choices: &[Choice]) -> String {
    choices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The assumptions that a run consulted, each with the values it read: releases may differ.
pub(super) type Consulted = BTreeMap<String, BTreeSet<String>>;

/// All assumptions of the simulator that the tests start.
pub(super) fn all() -> Result<Vec<Assumption>> {
    let simulator = lab::components::binary("vcenter")?;
    let text = lab::run(Command::new(simulator).args(["-assumptions", "-json"]))?;
    serde_json::from_str(&text).context("the simulator printed other assumptions than expected")
}

/// Those with these names; all of them when none is named.
pub(super) fn named(all: Vec<Assumption>, names: &[String]) -> Result<Vec<Assumption>> {
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|row| row.name != **name)) {
        bail!("assumption {unknown} is unknown; `vcenter -assumptions` lists them");
    }
    Ok(all.into_iter().filter(|row| names.is_empty() || names.contains(&row.name)).collect())
}

/// Reads the file to which simulators append a line `Name=value` for each assumption that they consult.
pub(super) fn read_record(text: &str) -> Result<Consulted> {
    let mut consulted = Consulted::new();
    for line in text.lines() {
        let (name, value) =
            line.split_once('=').with_context(|| format!("{line:?} is not `Name=value`"))?;
        consulted.entry(name.to_owned()).or_default().insert(value.to_owned());
    }
    Ok(consulted)
}

/// The choices under which a driver has to work although they differ from what its test read.
pub(super) fn usable_others(assumptions: &[Assumption], consulted: &Consulted) -> Vec<Choice> {
    let mut choices = others(assumptions, consulted);
    choices.retain(|choice| {
        let unusable = |row: &Assumption| {
            row.name == choice.assumption && row.unusable.contains(&choice.value)
        };
        !assumptions.iter().any(unusable)
    });
    choices
}

/// The choices that differ from what a test read, so that its outcome may depend on them.
pub(super) fn others(assumptions: &[Assumption], consulted: &Consulted) -> Vec<Choice> {
    let of_row = |row: &Assumption| {
        let read = consulted.get(&row.name).cloned().unwrap_or_default();
        let differs = move |value: &&String| read.iter().any(|one| one != *value);
        let choice = |value: &String| Choice { assumption: row.name.clone(), value: value.clone() };
        row.choices.iter().filter(differs).map(choice).collect::<Vec<_>>()
    };
    assumptions.iter().flat_map(of_row).collect()
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let text = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    Ok(Vec::<Value>::deserialize(from)?.into_iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"[
        {"name": "Busy", "choices": ["wait", "fault"], "shown_by": "cns.TestBusy", "about": "…"},
        {"name": "Limit", "choices": [32, 3, 0], "unusable": [0], "shown_by": ""},
        {"name": "Snapshots", "choices": [true, false], "shown_by": ""},
        {"name": "Unread", "choices": [true, false], "shown_by": ""}
    ]"#;

    fn rows() -> Vec<Assumption> {
        serde_json::from_str(ROWS).unwrap()
    }

    fn others_after(record: &str) -> Vec<String> {
        let consulted = read_record(record).unwrap();
        usable_others(&rows(), &consulted).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_test_runs_under_the_other_choices_of_what_it_read() {
        assert_eq!(others_after("Limit=32\nBusy=wait\nBusy=wait\n"), ["Busy=fault", "Limit=3"]);
        assert_eq!(others_after(""), [""; 0]);
    }

    #[test]
    fn a_test_of_releases_that_differ_runs_under_every_choice() {
        assert_eq!(
            others_after("Snapshots=false\nSnapshots=true\n"),
            ["Snapshots=true", "Snapshots=false"]
        );
    }

    #[test]
    fn the_proof_of_a_row_has_the_choices_that_no_driver_bears_too() {
        let consulted = read_record("Limit=32\n").unwrap();
        assert_eq!(others(&rows(), &consulted).len(), 2);
        assert_eq!(usable_others(&rows(), &consulted).len(), 1);
    }

    #[test]
    fn a_record_that_was_cut_is_refused() {
        assert!(read_record("Busy=wait\nLim").unwrap_err().to_string().contains("\"Lim\""));
    }

    #[test]
    fn an_unknown_name_is_refused_and_no_name_means_all() {
        assert_eq!(named(rows(), &[]).unwrap().len(), 4);
        assert_eq!(named(rows(), &["Limit".to_owned()]).unwrap()[0].choices, ["32", "3", "0"]);
        let unknown = named(rows(), &["Limits".to_owned()]).unwrap_err().to_string();
        assert!(unknown.contains("assumption Limits is unknown"), "{unknown}");
    }
}
