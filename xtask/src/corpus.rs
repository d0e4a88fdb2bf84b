//! `cargo xtask corpus DIR`: where our reading of users' configuration files differs from the Go programs'.
//!
//! DIR is a folder `csi-conf` or `ccm-conf` with files, and `INDEX.md` with a row for each. Beside it lies
//! `expected/csi.jsonl` or `expected/ccm.jsonl`: what the Go parser made of each file, and whether that is what the user
//! wanted (`verdict`). Differences that we chose have a row in docs/parity.md; any other makes the command fail.

mod settings;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::output::print_line;

/// The page whose table below the heading has differences that we chose: a part of the text, and why.
const PARITY: &str = include_str!("../../docs/parity.md");
const UNEXPLAINED: &str = "NOT EXPLAINED in docs/parity.md";
const HEADING: &str = "\n## Configuration files\n";

/// Compares how users' configuration files are read with what the Go programs make of them
#[derive(clap::Args)]
pub(crate) struct Corpus {
    /// A folder csi-conf or ccm-conf, beside a folder with expected answers
    dir: PathBuf,
}

/// What the Go parser made of a file.
#[derive(Deserialize)]
struct Expected {
    file: String,
    verdict: String,
    #[serde(default)]
    err: String,
    /// Its YAML parser's message, which the program hides behind one about INI.
    #[serde(default)]
    yamlerr: String,
    /// Absent if it was refused.
    cfg: Option<Value>,
}

/// What we made of it.
#[derive(Deserialize)]
struct Ours {
    /// Absent if it was refused.
    settings: Option<BTreeMap<String, String>>,
    #[serde(default)]
    problems: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(command: &Corpus) -> Result<()> {
    let dir = fs::canonicalize(&command.dir)
        .with_context(|| format!("cannot read {}", command.dir.display()))?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let Some(kind) = name.strip_suffix("-conf").filter(|kind| ["ccm", "csi"].contains(kind)) else {
        bail!("{} is neither a folder csi-conf nor a folder ccm-conf", dir.display());
    };
    let expected: Vec<Expected> = lines(&read(&dir.join(format!("../expected/{kind}.jsonl")))?)?;
    let index = read(&dir.join("INDEX.md"))?;
    let files = expected.iter().map(|one| dir.join(&one.file));
    let mut cargo = lab::components::cargo();
    cargo.args(["run", "--quiet", "--package", "cloud-config", "--example", "read", "--", kind]);
    let ours: Vec<Ours> = lines(&lab::run(cargo.args(files))?)?;
    let (mut unknown, mut differing) = (0, 0);
    for (go, ours) in expected.iter().zip(&ours) {
        let found = differences(kind, go, ours, intent(&index, &go.file));
        differing += usize::from(!found.is_empty());
        for difference in found {
            let reason = chosen().find(|(part, _)| difference.contains(part)).map(|it| it.1);
            unknown += usize::from(reason.is_none());
            print_line(&format!(
                "{}: {difference}\n    {}",
                go.file,
                reason.unwrap_or(UNEXPLAINED)
            ));
        }
    }
    let count = expected.len();
    print_line(&format!(
        "{count} files, {differing} differ, {unknown} differences are not explained"
    ));
    if unknown > 0 {
        bail!("{unknown} differences are neither mended nor explained in docs/parity.md");
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str) -> Result<Vec<T>> {
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The last column of a file's row: what became of the author's intent.
fn intent<'a>(index: &'a str, file: &str) -> &'a str {
    let row = index.lines().find(|row| row.split([' ', '|']).any(|word| word == file));
    row.and_then(|row| row.trim_end_matches([' ', '|']).rsplit(" | ").next()).unwrap_or_default()
}

/// Differences that we chose: a part of the text, and why.
fn chosen() -> impl Iterator<Item = (&'static str, &'static str)> {
    let (_, section) = PARITY.split_once(HEADING).unwrap_or_default();
    let rows = section.split("\n## ").next().unwrap_or_default().lines();
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once("` | ")).map(|(part, rest)| {
        let reason = rest.split(" | ").next().unwrap_or_default();
        (part, reason)
    })
}

fn differences(kind: &str, go: &Expected, ours: &Ours, intent: &str) -> Vec<String> {
    match (&go.cfg, &ours.settings) {
        (None, None) => Vec::new(),
        (None, Some(_)) => {
            let hidden = go.err.ends_with("expected section header");
            let message = if hidden { &go.yamlerr } else { &go.err };
            vec![format!("refused by Go ({}), accepted here", message.replace('\n', " "))]
        }
        (Some(_), None) => {
            let first = ours.problems.first().map_or("", String::as_str);
            vec![format!("accepted by Go, refused here: {first}")]
        }
        (Some(cfg), Some(ours_settings)) => {
            let theirs = settings::of_go(kind, cfg);
            let names =
                theirs.keys().chain(ours_settings.keys().filter(|it| !theirs.contains_key(*it)));
            let shown =
                |text: Option<&String>| text.map_or("nothing".to_owned(), |it| format!("{it:?}"));
            let mut found: Vec<String> = names
                .filter(|name| theirs.get(*name) != ours_settings.get(*name))
                .map(|name| {
                    let (theirs, ours) = (theirs.get(name), ours_settings.get(name));
                    format!("{name}: Go {}, here {}", shown(theirs), shown(ours))
                })
                .collect();
            if go.verdict == "warn" && ours.warnings.is_empty() {
                found.push(format!("no warning here: {intent}"));
            }
            found
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn go(verdict: &str, cfg: Option<Value>) -> Expected {
        Expected {
            file: "1.conf".to_owned(),
            verdict: verdict.to_owned(),
            err: "bad".to_owned(),
            yamlerr: String::new(),
            cfg,
        }
    }

    fn ours(user: Option<&str>, warnings: &[&str]) -> Ours {
        let settings = user.map(|user| {
            let pairs = [
                ("vcenter a user", user),
                ("vcenter a port", "443"),
                ("vcenter a insecure", "false"),
            ];
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
        });
        let warnings = warnings.iter().map(|&text| text.to_owned()).collect();
        Ours { settings, problems: vec!["no".to_owned()], warnings }
    }

    #[test]
    fn every_way_to_differ_from_the_go_parser_is_reported() {
        let cfg = || Some(json!({"VirtualCenter": {"a": {"User": "u", "VCenterPort": "443"}}}));
        let check = |go: &Expected, ours: &Ours| differences("csi", go, ours, "lost");
        assert_eq!(check(&go("yes", cfg()), &ours(Some("u"), &[])), [""; 0]);
        assert_eq!(check(&go("no", None), &ours(None, &[])), [""; 0]);
        assert_eq!(
            check(&go("no", None), &ours(Some("u"), &[])),
            ["refused by Go (bad), accepted here"]
        );
        assert_eq!(
            check(&go("yes", cfg()), &ours(None, &[])),
            ["accepted by Go, refused here: no"]
        );
        assert_eq!(
            check(&go("yes", cfg()), &ours(Some("v"), &[])),
            ["vcenter a user: Go \"u\", here \"v\""]
        );
        assert_eq!(check(&go("warn", cfg()), &ours(Some("u"), &[])), ["no warning here: lost"]);
        assert_eq!(check(&go("warn", cfg()), &ours(Some("u"), &["x"])), [""; 0]);
    }

    #[test]
    fn a_file_s_row_of_the_index_says_what_became_of_its_intent() {
        let index =
            "| 1.conf + 1.env | here | kind | special | yes |\n| 2.conf | a | b | c | warn - x |\n";
        assert_eq!(intent(index, "1.conf"), "yes");
        assert_eq!(intent(index, "2.conf"), "warn - x");
        assert_eq!(intent(index, "3.conf"), "");
    }

    #[test]
    fn differences_that_we_chose_are_read_from_the_parity_page() {
        let chosen: Vec<_> = chosen().collect();
        assert!(chosen.len() > 10, "{chosen:?}");
        assert!(chosen.iter().all(|(part, why)| part.len() > 8 && !why.is_empty()), "{chosen:?}");
    }
}
