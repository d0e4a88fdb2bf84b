//! A file whose names are resolved and whose values are not parsed yet.
//!
//! Both formats end up here: blocks as they were written, then [`Document`], in which every entry belongs to
//! a row of the table. What has no row is reported and left out.

use crate::{
    keys::{self, FileKind, Format, Id, Key, Section, Status},
    problem::{Place, Report},
};

/// A text and where it was written.
#[derive(Clone)]
pub(crate) struct Located {
    pub(crate) text: String,
    pub(crate) at: Place,
}

/// A value as it was written. It may be a password, so it is not `Debug`.
#[derive(Clone)]
pub(crate) enum Value {
    /// A name without `=` in INI.
    Blank,
    Text(String),
    List(Vec<Located>),
    /// A mapping, or a list of something else than texts: no key takes one.
    Nested,
    /// Something that could not be read, which was already reported.
    Broken,
}

/// A name and its value.
pub(crate) struct Item {
    pub(crate) name: Located,
    pub(crate) value: Value,
    /// Where the value begins.
    pub(crate) at: Place,
}

/// A section as it was written.
pub(crate) struct Block {
    pub(crate) name: Located,
    pub(crate) subsection: Option<Located>,
    pub(crate) items: Vec<Item>,
}

impl Block {
    /// Whether it sets anything: templates leave sections with empty values behind.
    fn has_content(&self) -> bool {
        let empty = |item: &Item| matches!(&item.value, Value::Text(text) if text.is_empty());
        self.subsection.is_some() || !self.items.iter().all(empty)
    }
}

/// A setting whose key is known.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) id: Id,
    pub(crate) value: Value,
    /// Where the value begins.
    pub(crate) at: Place,
    /// The key as messages name it.
    pub(crate) label: String,
}

/// A section whose name is known.
#[derive(Clone)]
pub(crate) struct Part {
    pub(crate) section: Section,
    /// Of a vCenter, or of another section that has one.
    pub(crate) name: Option<String>,
    pub(crate) at: Place,
    pub(crate) entries: Vec<Entry>,
}

impl Part {
    pub(crate) fn new(section: Section, name: Option<String>, at: Place) -> Self {
        Self { section, name, at, entries: Vec::new() }
    }

    /// Empty if it has none.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// As messages name it.
    pub(crate) fn label(&self, format: Format) -> String {
        section_label(format, self.section.name(format).unwrap_or_default(), self.name.as_deref())
    }

    /// The last entry with this id.
    pub(crate) fn get(&self, id: Id) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.id == id)
    }

    /// Replaces an entry with the same id.
    pub(crate) fn set(&mut self, entry: Entry) {
        self.entries.retain(|old| old.id != entry.id);
        self.entries.push(entry);
    }
}

/// The sections of a file, in its order.
pub(crate) struct Document {
    pub(crate) format: Format,
    pub(crate) kind: FileKind,
    pub(crate) parts: Vec<Part>,
    ignore_load_balancing: bool,
}

impl Document {
    /// Resolves names to rows of the table.
    pub(crate) fn new(
        format: Format,
        kind: FileKind,
        blocks: Vec<Block>,
        ignore_load_balancing: bool,
        report: &mut Report,
    ) -> Self {
        let mut document = Self { format, kind, parts: Vec::new(), ignore_load_balancing };
        for block in blocks {
            document.take(block, report);
        }
        document
    }

    /// The part of a section, or of the vCenter with this name; made if there is none.
    pub(crate) fn part(&mut self, section: Section, name: Option<&str>, at: Place) -> &mut Part {
        let known = self
            .parts
            .iter()
            .position(|part| part.section == section && part.name.as_deref() == name);
        let index = known.unwrap_or_else(|| {
            self.parts.push(Part::new(section, name.map(str::to_owned), at));
            self.parts.len() - 1
        });
        &mut self.parts[index]
    }

    /// The part of a section that has no name.
    pub(crate) fn section(&self, section: Section) -> Option<&Part> {
        self.parts.iter().find(|part| part.section == section)
    }

    fn take(&mut self, block: Block, report: &mut Report) {
        let Some(section) = self.section_of(&block, report) else { return };
        let name = block.subsection.as_ref().map(|name| name.text.as_str());
        let at = block.subsection.as_ref().map_or(block.name.at, |name| name.at);
        let resolve = |item| entry(self.format, self.kind, section, name, item, report);
        let entries: Vec<Entry> = block.items.into_iter().filter_map(resolve).collect();
        let part = self.part(section, name, at);
        for entry in entries {
            if part.get(entry.id).is_some() {
                let text = "the key is given twice; the last value is used";
                report.warn(entry.at, &entry.label, text, "remove the other");
            }
            part.set(entry);
        }
    }

    /// The section of a block, if it is known and supported.
    fn section_of(&self, block: &Block, report: &mut Report) -> Option<Section> {
        let format = self.format;
        let (name, at) = (&block.name.text, block.name.at);
        let subsection = block.subsection.as_ref().map(|name| name.text.as_str());
        let label = section_label(format, name, subsection);
        let Some(section) = Section::find(name, format) else {
            let remedy = match Section::suggestion(name, format, self.kind) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "remove it, or see docs/user/configuration.md for all sections".to_owned(),
            };
            report.unknown(at, &label, "there is no such section", remedy);
            return None;
        };
        if section.is_foreign(self.kind) {
            if self.kind == FileKind::Csi {
                let text =
                    "only the cloud controller manager reads this section, so it has no effect";
                report.warn(at, &label, text, "remove it");
            }
            return None;
        }
        if let Some((purpose, consequence)) = section.unsupported() {
            let text = format!("{purpose} is configured here, which is not supported");
            let refused = block.has_content() && !self.ignore_load_balancing;
            match consequence {
                Some(consequence) if refused => report.refuse(
                    at,
                    &label,
                    format!("{text}: {consequence}"),
                    "delete what it served and remove the section; or let the Go program serve it, with \
                     --controllers=service,route and a lease of its own, and start this one with \
                     --ignore-load-balancer-config",
                ),
                _ => report.warn(
                    at,
                    &label,
                    format!("{text}, so all of it is ignored"),
                    "remove the section, or keep the program that serves it beside this one",
                ),
            }
            return None;
        }
        match (subsection, section.is_named()) {
            (Some(_), false) => {
                let remedy = format!("write it as [{name}]");
                report.unknown(at, &label, "this section takes no name", remedy);
                None
            }
            (None, true) if section == Section::VirtualCenter => {
                let remedy =
                    "write its name or address into the header, as in [VirtualCenter \"10.0.0.1\"]";
                report.refuse(at, &label, "the name of the vCenter is missing", remedy);
                None
            }
            _ => Some(section),
        }
    }
}

/// A section as messages name it.
fn section_label(format: Format, name: &str, subsection: Option<&str>) -> String {
    match (format, subsection) {
        (Format::Ini, None) => format!("[{name}]"),
        (Format::Ini, Some(sub)) => format!("[{name} \"{sub}\"]"),
        (Format::Yaml, None) => name.to_owned(),
        (Format::Yaml, Some(sub)) => format!("{name}.{sub}"),
    }
}

/// A key as messages name it.
pub(crate) fn key_label(format: Format, section: Section, name: Option<&str>, key: &str) -> String {
    // Sections of the in-tree provider have an INI name only.
    let label = section_label(format, section.name(format).unwrap_or_default(), name);
    match format {
        Format::Ini => format!("{label} {key}"),
        Format::Yaml => format!("{label}.{key}"),
    }
}

fn entry(
    format: Format,
    kind: FileKind,
    section: Section,
    name: Option<&str>,
    item: Item,
    report: &mut Report,
) -> Option<Entry> {
    let label = key_label(format, section, name, &item.name.text);
    let Some(row) = Key::find(section, &item.name.text, format) else {
        let remedy = keys::advice(section, &item.name.text, format, kind);
        report.unknown(item.name.at, &label, "there is no such key", remedy);
        return None;
    };
    let (why, remedy) = match row.status(kind) {
        Status::Foreign => return None,
        Status::Current(id) => return Some(Entry { id, value: item.value, at: item.at, label }),
        Status::Ignored(why) => (why, "remove it".to_owned()),
        Status::Replaced(now) => {
            ("only the in-tree provider used it", format!("remove it, or write {now} instead"))
        }
    };
    report.warn(item.name.at, &label, format!("it has no effect: {why}"), remedy);
    None
}
