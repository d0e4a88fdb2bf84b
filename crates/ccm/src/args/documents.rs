//! The pages for users say what the code says.

use std::{fmt::Write as _, fs, path::PathBuf};

use crate::{
    args::{Flags, IGNORED, REMOVED},
    plan::{
        lifecycle::{Decision, Refusal},
        node::Reason,
    },
};
use clap::CommandFactory;

fn page(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/user").join(name)
}

const MANAGER: &str = "cloud-controller-manager.md";

/// The page with the flags between its two marks made anew.
fn with(page: &str, made: &str) -> String {
    let begin = page.find("<!-- flags:").unwrap();
    let begin = begin + page[begin..].find("-->\n").unwrap() + "-->\n".len();
    let end = page.find("<!-- end of flags -->").unwrap();
    format!("{}\n{made}\n{}", &page[..begin], &page[end..])
}

#[test]
fn the_flags_are_as_the_code_says() {
    let path = page(MANAGER);
    let found = fs::read_to_string(&path).unwrap();
    let wanted = with(&found, &flags());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &wanted).unwrap();
    } else {
        let again = "run `UPDATE=1 cargo test -p ccm --lib documents`";
        assert!(found == wanted, "docs/user/{MANAGER} is stale; {again}");
    }
}

fn flags() -> String {
    let mut text = String::new();
    let mut heading = String::new();
    for flag in Flags::command().get_arguments() {
        let Some(name) = flag.get_long() else { continue };
        let group = flag.get_help_heading().unwrap_or("Other");
        if group != heading {
            heading = group.to_owned();
            write!(text, "\n### {heading}\n\n| flag | default | meaning |\n|---|---|---|\n")
                .unwrap();
        }
        let defaults: Vec<_> = flag
            .get_default_values()
            .iter()
            .map(|one| one.to_string_lossy().into_owned())
            .collect();
        let default = Some(defaults.join(",")).filter(|text| !text.is_empty());
        let default = default.map(|text| format!("`{text}`")).unwrap_or_default();
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let help = help.replace('|', "\\|").replace('<', "&lt;");
        writeln!(text, "| `--{name}` | {default} | {help} |").unwrap();
    }
    text.trim_start().to_owned()
}

#[test]
fn every_reason_of_the_condition_has_its_paragraph() {
    let text = fs::read_to_string(page(MANAGER)).unwrap();
    for reason in Reason::ALL {
        assert!(text.contains(&format!("\n### {}\n", reason.as_str())), "{}", reason.as_str());
    }
}

#[test]
fn every_event_has_its_row() {
    let text = fs::read_to_string(page(MANAGER)).unwrap();
    let vm = String::new;
    let refusals = [
        Refusal::NoProviderId,
        Refusal::NotRecorded,
        Refusal::NotAsked,
        Refusal::StillThere(vm()),
        Refusal::Unregistered(vm()),
        Refusal::NoRemovalRecord(vm()),
        Refusal::TaskHistoryUnreadable(vm()),
        Refusal::FolderNotVisible(vm()),
        Refusal::TooMany,
    ];
    for refusal in &refusals {
        // A new variant does not compile here; it belongs into the list above as well.
        match refusal {
            Refusal::NoProviderId
            | Refusal::NotRecorded
            | Refusal::NotAsked
            | Refusal::StillThere(_)
            | Refusal::Unregistered(_)
            | Refusal::NoRemovalRecord(_)
            | Refusal::TaskHistoryUnreadable(_)
            | Refusal::FolderNotVisible(_)
            | Refusal::TooMany => {}
            // These have no event.
            Refusal::Disabled
            | Refusal::KeptByAnnotation
            | Refusal::RemovalNotAsked
            | Refusal::TooEarly => {}
        }
    }
    let events = refusals.map(|refusal| Decision::Refuse(refusal).event("node-1").unwrap().reason);
    let others = ["Synced", "DeletingNode", "DeletingNodeFailed"];
    let of_the_process = ["ConfigReloaded", "ConfigRefused", "LeaderElection"];
    for reason in events.into_iter().chain(others).chain(of_the_process) {
        assert!(text.contains(&format!("\n| `{reason}` |")), "{reason}");
    }
}

#[test]
fn flags_are_either_described_ignored_or_removed_and_only_one_of_these() {
    let described: Vec<_> = Flags::command()
        .get_arguments()
        .filter_map(|flag| flag.get_long().map(str::to_owned))
        .collect();
    let ignored = IGNORED.iter().map(|flag| flag.name()).chain(REMOVED.iter().map(|flag| flag.0));
    for name in ignored {
        assert!(!described.contains(&name.to_owned()), "--{name}");
    }
}
