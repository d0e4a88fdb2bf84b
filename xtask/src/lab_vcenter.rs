//! `cargo xtask lab vcenter`: what the lab's vCenter knows, in tables.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use lab::vcenter::Control;
use serde_json::Value;

use crate::{
    interrupt::interruptible,
    output::{print_line, table},
};

/// A table: its title, and for each column a heading and where the cell is in an object.
struct Listing {
    title: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

const INVENTORY: Listing = Listing {
    title: "inventory",
    columns: &[
        ("PATH", "/path"),
        ("TYPE", "/type"),
        ("REFERENCE", "/ref"),
        ("POWER", "/vm/power"),
        ("ADDRESSES", "/vm/addresses"),
        ("TAGS", "/tags"),
    ],
};
const SESSIONS: Listing = Listing {
    title: "sessions",
    columns: &[
        ("USER", "/user"),
        ("KIND", "/kind"),
        ("AGENT", "/agent"),
        ("SINCE", "/login"),
        ("CALLS", "/calls"),
    ],
};
const VOLUMES: Listing = Listing {
    title: "volumes",
    columns: &[
        ("ID", "/id"),
        ("NAME", "/name"),
        ("TYPE", "/type"),
        ("MB", "/capacityMb"),
        ("DATASTORE", "/datastore"),
        ("CLUSTERS", "/clusters"),
    ],
};
const ATTACHMENTS: Listing = Listing {
    title: "attachments",
    columns: &[("VOLUME", "/volume"), ("VM", "/vm"), ("DISK UUID", "/diskUuid")],
};
const FAULTS: Listing = Listing {
    title: "armed faults",
    columns: &[
        ("NUMBER", "/id"),
        ("METHOD", "/method"),
        ("FAULT", "/fault"),
        ("AT", "/at"),
        ("COUNT", "/count"),
        ("HITS", "/hits"),
    ],
};
const WIRE_FAULTS: Listing = Listing {
    title: "armed faults of the wire",
    columns: &[
        ("NUMBER", "/id"),
        ("PATH", "/path"),
        ("KIND", "/kind"),
        ("COUNT", "/count"),
        ("HITS", "/hits"),
    ],
};

pub(crate) fn run(as_json: bool) -> Result<()> {
    if lab::owner(lab::LAB)?.is_none() {
        bail!("no lab is running; `make lab` starts one");
    }
    let state = interruptible(async {
        Control::of_lab()
            .state_as_json()
            .await
            .context("the lab's vCenter does not answer; see `cargo xtask lab status`")
    })?;
    if as_json {
        print_line(&serde_json::to_string_pretty(&state)?);
        return Ok(());
    }
    let listings = [
        (INVENTORY, "/inventory"),
        (SESSIONS, "/sessions"),
        (VOLUMES, "/volumes"),
        (ATTACHMENTS, "/attachments"),
        (FAULTS, "/rules/calls"),
        (WIRE_FAULTS, "/rules/http"),
    ];
    let paths = paths(&state);
    for (listing, at) in listings {
        let objects = state.pointer(at).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        print_line(&listing.show(objects, &paths));
    }
    Ok(())
}

/// What a reference stands for; people know paths.
fn paths(state: &Value) -> HashMap<String, String> {
    let inventory = state["inventory"].as_array().map_or(&[][..], Vec::as_slice);
    let pair = |object: &Value| {
        Some((object["ref"].as_str()?.to_owned(), object["path"].as_str()?.to_owned()))
    };
    inventory.iter().filter_map(pair).collect()
}

impl Listing {
    fn show(&self, objects: &[Value], paths: &HashMap<String, String>) -> String {
        let headings = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let named = |at: &str, text: String| match paths.get(&text) {
            Some(path) if at != "/ref" => path.clone(),
            _ => text,
        };
        let row = |object: &Value| {
            self.columns.iter().map(|(_, at)| named(at, cell(object.pointer(at)))).collect()
        };
        let mut rows: Vec<Vec<String>> = objects.iter().map(row).collect();
        rows.sort();
        rows.insert(0, headings);
        match objects.len() {
            0 => format!("{}: none\n", self.title),
            count => format!("{}: {count}\n{}\n", self.title, table(&rows)),
        }
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(list)) => {
            match list.iter().map(|one| cell(Some(one))).collect::<Vec<_>>().join(",") {
                empty if empty.is_empty() => "-".to_owned(),
                joined => joined,
            }
        }
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn empty_cells_are_dashes_and_references_are_paths() {
        let volume = json!({"id": "one", "name": "", "capacityMb": 5, "datastore": "datastore-1", "clusters": ["a", "b"]});
        let paths = HashMap::from([("datastore-1".to_owned(), "/dc/ds".to_owned())]);
        let shown = VOLUMES.show(&[volume], &paths);
        assert_eq!(
            shown,
            "volumes: 1\nID    NAME   TYPE   MB   DATASTORE   CLUSTERS\none   -      -      5    /dc/ds      a,b\n"
        );
        assert_eq!(VOLUMES.show(&[], &paths), "volumes: none\n");
    }
}
