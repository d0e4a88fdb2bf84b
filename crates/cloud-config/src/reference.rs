//! `docs/user/configuration.md`, made from the table of keys.

use std::{fmt::Write as _, fs, path::Path};

use crate::keys::{Format, Id, KEYS, Key, SECTIONS, Section, Status};

const OPENING: &str = include_str!("reference/opening.md");
const CLOSING: &str = include_str!("reference/closing.md");
/// A sentence for every key that is used, by its name in YAML.
const MEANINGS: &str = include_str!("reference/meanings.txt");

fn page() -> String {
    let mut page = OPENING.to_owned();
    for section in [Section::Global, Section::VirtualCenter, Section::Labels, Section::Nodes] {
        heading(&mut page, section);
        page.push_str("| YAML | INI | value | environment | meaning |\n|---|---|---|---|---|\n");
        for key in KEYS.iter().filter(|key| key.section == section) {
            if let Status::Current(id) = key.status {
                row(&mut page, key, id);
            }
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
        let yaml = key.name(Format::Yaml).map(|name| format!("`{name}`")).unwrap_or_default();
        // Writing to a string cannot fail.
        _ = writeln!(page, "| {section} | `{}` | {yaml} | {fate} |", key.ini);
    }
    page.push_str("\nSections that are recognised and not supported:");
    for (section, ini, yaml) in SECTIONS {
        let Some((what, consequence)) = section.unsupported() else { continue };
        let yaml = yaml.unwrap_or_default();
        let fate = match consequence {
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

fn row(page: &mut String, key: &Key, id: Id) {
    let variable = match key.variable {
        Some(suffix) if key.section.is_named() => format!("`VCENTER_<ID>_{suffix}`"),
        Some(name) => format!("`{name}`"),
        None => String::new(),
    };
    let yaml = key.name(Format::Yaml).unwrap();
    let kind = id.kind();
    let secret = if id == Id::Password { ", secret" } else { "" };
    let prefix = format!("{}.{yaml}: ", key.section.name(Format::Yaml).unwrap());
    let meaning = MEANINGS.lines().find_map(|line| line.strip_prefix(&prefix)).expect(&prefix);
    assert!(meaning.ends_with('.'), "{prefix}{meaning}");
    _ = writeln!(page, "| `{yaml}` | `{}` | {kind}{secret} | {variable} | {meaning} |", key.ini);
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
