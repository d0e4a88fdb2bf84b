//! `docs/user/configuration.md`, made from the table of keys.

use std::{fmt::Write as _, fs, path::Path};

use crate::keys::{FileKind, Format, Id, KEYS, Key, SECTIONS, Section, Status};

const OPENING: &str = include_str!("reference/opening.md");
const CLOSING: &str = include_str!("reference/closing.md");
const CSI: &str = include_str!("reference/csi.md");
/// A sentence for every key that is used, by its name in YAML; one with `csi.` before it is for the CSI driver's file.
const MEANINGS: &str = include_str!("reference/meanings.txt");

fn page() -> String {
    let mut page = OPENING.to_owned();
    for section in [Section::Global, Section::VirtualCenter, Section::Labels, Section::Nodes] {
        keys(&mut page, section, FileKind::Ccm);
    }
    page.push_str("\n## Keys that are accepted and have no effect\n\n");
    without_effect(&mut page, FileKind::Ccm);
    page.push_str("\nSections that are recognised and not supported:");
    for (section, ini, yaml) in SECTIONS {
        let Some((what, consequence)) = section.unsupported() else { continue };
        let yaml = yaml.unwrap_or_default();
        let fate = match consequence {
            Some(consequence) => format!("refused if it is not empty: {consequence}"),
            None => "ignored with a warning".to_owned(),
        };
        // Writing to a string cannot fail.
        _ = write!(page, "\n- `{yaml}:` or `[{ini}]`: {what}; {fate}");
    }
    page.push_str("\n\n`--ignore-load-balancer-config` ignores them all with a warning.\n");
    page.push_str(CLOSING);
    page.push_str(CSI);
    for section in [
        Section::Global,
        Section::VirtualCenter,
        Section::Labels,
        Section::Snapshot,
        Section::NetPermissions,
        Section::TopologyCategory,
    ] {
        keys(&mut page, section, FileKind::Csi);
    }
    page.push_str("\n### Keys of the CSI driver's file that have no effect\n\n");
    without_effect(&mut page, FileKind::Csi);
    page
}

/// What a named section is for.
fn purpose(section: Section) -> Option<&'static str> {
    Some(match section {
        Section::VirtualCenter => {
            "One for each vCenter. What is absent is taken from the global section. \
             In the names of variables `<ID>` is any word; `VSPHERE_VCENTER_<ID>` must hold the vCenter's name."
        }
        Section::NetPermissions => {
            "Who may mount file volumes, one for each rule, in the order of the file. Without any, everybody may read and write."
        }
        Section::TopologyCategory => {
            "Another label for the category that `zone` or `region` names; it has no effect on `topology-categories`."
        }
        _ => return None,
    })
}

/// A heading and a table with the keys of a section that are used.
fn keys(page: &mut String, section: Section, kind: FileKind) {
    let yaml = section.name(Format::Yaml).unwrap_or_default();
    let ini = section.name(Format::Ini).unwrap_or_default();
    let (yaml, ini) = if section.is_named() {
        (format!("{yaml}: {{NAME: …}}"), format!("{ini} \"NAME\""))
    } else {
        (format!("{yaml}:"), ini.to_owned())
    };
    _ = match kind {
        FileKind::Csi => write!(page, "\n### `[{ini}]`, in the manager's file also `{yaml}`\n\n"),
        _ => write!(page, "\n## `{yaml}` or `[{ini}]`\n\n"),
    };
    if let Some(purpose) = purpose(section) {
        _ = write!(page, "{purpose}\n\n");
    }
    let columns = if kind == FileKind::Csi { "INI | YAML" } else { "YAML | INI" };
    _ = writeln!(page, "| {columns} | value | environment | meaning |\n|---|---|---|---|---|");
    for key in KEYS.iter().filter(|key| key.section == section) {
        if let Status::Current(id) = key.status(kind) {
            row(page, key, id, kind);
        }
    }
}

fn without_effect(page: &mut String, kind: FileKind) {
    page.push_str("Each of them leads to a warning at start.\n\n");
    page.push_str(match kind {
        FileKind::Csi => "| section | key | what becomes of it |\n|---|---|---|\n",
        _ => "| section | INI | YAML | what becomes of it |\n|---|---|---|---|\n",
    });
    for key in KEYS {
        let fate = match key.status(kind) {
            Status::Current(_) | Status::Foreign => continue,
            Status::Replaced(now) => {
                format!("no effect: only the in-tree provider used it; write {now} instead")
            }
            Status::Ignored(why) => format!("no effect: {why}"),
        };
        let section = key.section.name(Format::Ini).unwrap_or_default();
        let yaml = key.name(Format::Yaml).map(|name| format!("`{name}`")).unwrap_or_default();
        let yaml = if kind == FileKind::Csi { String::new() } else { format!(" {yaml} |") };
        _ = writeln!(page, "| {section} | `{}` |{yaml} {fate} |", key.ini);
    }
}

fn row(page: &mut String, key: &Key, id: Id, kind: FileKind) {
    let variable = match key.variable {
        Some(suffix) if key.section.is_named() => format!("`VCENTER_<ID>_{suffix}`"),
        Some(name) => format!("`{name}`"),
        None => String::new(),
    };
    let yaml = key.name(Format::Yaml).unwrap();
    let value = match (id, id.default_number()) {
        (Id::Password, _) => "text, secret".to_owned(),
        (_, 0) => id.kind().to_owned(),
        (_, default) => format!("{}, {default} if absent", id.kind()),
    };
    let name = format!("{}.{yaml}: ", key.section.name(Format::Yaml).unwrap());
    let own = format!("csi.{name}");
    let sentence = |prefix: &str| MEANINGS.lines().find_map(|line| line.strip_prefix(prefix));
    let own = sentence(&own).filter(|_| kind == FileKind::Csi);
    let meaning = own.or_else(|| sentence(&name)).expect(&name);
    assert!(meaning.ends_with('.'), "{name}{meaning}");
    let names = match kind {
        FileKind::Csi => format!("`{}` | `{yaml}`", key.ini),
        _ => format!("`{yaml}` | `{}`", key.ini),
    };
    _ = writeln!(page, "| {names} | {value} | {variable} | {meaning} |");
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
