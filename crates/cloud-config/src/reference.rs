//! `docs/user/configuration.md`, made from the table of keys.

use std::{fmt::Write as _, fs, path::Path};

use crate::keys::{Format, Id, KEYS, Key, Section, Status};

const OPENING: &str = include_str!("reference/opening.md");
const CLOSING: &str = include_str!("reference/closing.md");

fn page() -> String {
    let mut page = OPENING.to_owned();
    for section in [Section::Global, Section::VirtualCenter, Section::Labels, Section::Nodes] {
        heading(&mut page, section);
        page.push_str("| YAML | INI | value | environment | meaning |\n|---|---|---|---|---|\n");
        let used = |key: &&Key| matches!(key.status, Status::Current(_));
        for key in KEYS.iter().filter(|key| key.section == section).filter(used) {
            row(&mut page, key);
        }
    }
    page.push_str(
        "\n## Keys that are accepted and have no effect\n\n\
         Each of them leads to a warning at start.\n\n\
         | section | INI | YAML | what becomes of it |\n|---|---|---|---|\n",
    );
    for key in KEYS {
        let fate = match key.status {
            Status::Current(_) => continue,
            Status::Replaced(now) => {
                format!("no effect: only the in-tree provider used it; write {now} instead")
            }
            Status::Ignored(why) => format!("no effect: {why}"),
        };
        let section = key.section.name(Format::Ini).unwrap_or_default();
        let yaml = key.yaml.map(|name| format!("`{name}`")).unwrap_or_default();
        // Writing to a string cannot fail.
        _ = writeln!(page, "| {section} | `{}` | {yaml} | {fate} |", key.ini);
    }
    page.push_str("\nSections that are recognised and not supported:");
    for section in Section::ALL.into_iter().filter(|section| section.unsupported().is_some()) {
        let ini = section.name(Format::Ini).unwrap_or_default();
        let yaml = section.name(Format::Yaml).unwrap_or_default();
        let what = section.unsupported().unwrap_or_default();
        let fate = match section.consequence() {
            Some(consequence) => format!("refused if it is not empty: {consequence}"),
            None => "ignored with a warning".to_owned(),
        };
        _ = write!(page, "\n- `{yaml}:` or `[{ini}]`: {what}; {fate}");
    }
    page.push_str("\n\n`--ignore-load-balancer-config` ignores them all with a warning.\n");
    page.push_str(CLOSING);
    page
}

fn heading(page: &mut String, section: Section) {
    let yaml = section.name(Format::Yaml).unwrap_or_default();
    let ini = section.name(Format::Ini).unwrap_or_default();
    let (yaml, ini) = if section.is_named() {
        (format!("{yaml}: {{NAME: …}}"), format!("{ini} \"NAME\""))
    } else {
        (format!("{yaml}:"), ini.to_owned())
    };
    _ = write!(page, "\n## `{yaml}` or `[{ini}]`\n\n");
    if section.is_named() {
        page.push_str(
            "One for each vCenter. What is absent is taken from the global section. \
             In the names of variables `<ID>` is any word; `VSPHERE_VCENTER_<ID>` must hold the vCenter's name.\n\n",
        );
    }
}

fn row(page: &mut String, key: &Key) {
    let variable = match key.variable {
        Some(suffix) if key.section.is_named() => format!("`VCENTER_<ID>_{suffix}`"),
        Some(name) => format!("`{name}`"),
        None => String::new(),
    };
    let yaml = key.yaml.unwrap_or_default();
    let kind = key.kind.describe();
    let kind = if key.status == Status::Current(Id::Password) {
        format!("{kind}, secret")
    } else {
        kind.to_owned()
    };
    _ = writeln!(page, "| `{yaml}` | `{}` | {kind} | {variable} | {} |", key.ini, key.doc);
}

#[test]
fn the_page_is_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/configuration.md");
    let wanted = page();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/user/configuration.md is stale; run `UPDATE=1 cargo test -p cloud-config page`"
    );
}
