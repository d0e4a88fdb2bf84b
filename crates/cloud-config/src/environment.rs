//! Overrides from the environment.
//!
//! They are put into the document before anything is validated or inherited, as if the file contained them: a
//! `VSPHERE_PASSWORD` reaches every vCenter that has no password of its own. The environment is a value;
//! nothing here reads that of the process.
//!
//! `VSPHERE_VCENTER_<ID>=<name>` adds a vCenter or means the one that the file calls so, and
//! `VCENTER_<ID>_USERNAME` and its like set its keys. `VSPHERE_VCENTER_PORT` is the global port and defines
//! no vCenter. Empty variables count as absent.

use std::collections::BTreeMap;

use crate::{
    document::{Document, Entry, Value},
    keys::{FileKind, Id, KEYS, Key, Section},
    problem::{Place, Report},
};

const DEFINES: &str = "VSPHERE_VCENTER_";
const COMPANION: &str = "VCENTER_";
/// The global port, as the Go CSI driver calls it.
const CSI_PORT: &str = "VSPHERE_PORT";

/// Overrides entries of the document.
pub(crate) fn apply(
    document: &mut Document,
    environment: &BTreeMap<String, String>,
    report: &mut Report,
) {
    let rows = || KEYS.iter().filter(|row| row.section != Section::VirtualCenter);
    let read = |row: &Key| Some((row.section, entry(row, row.variable?.to_owned(), environment)?));
    for (section, entry) in rows().filter_map(read) {
        document.part(section, None, Place::Environment).set(entry);
    }
    if document.kind != FileKind::Ccm
        && let Some(row) = Key::of(Section::Global, Id::Port)
        && let Some(entry) = entry(row, CSI_PORT.to_owned(), environment)
    {
        document.part(Section::Global, None, Place::Environment).set(entry);
    }
    prefer_own_credentials(document);
    let mut defined = Vec::new();
    for (variable, name) in environment {
        let Some(id) = variable.strip_prefix(DEFINES) else { continue };
        let global = rows().any(|row| row.variable == Some(variable));
        if id.is_empty() || name.is_empty() || global {
            continue;
        }
        defined.push(id);
        vcenter(document, id, variable, name, environment);
    }
    for (variable, _) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        if let Some(id) = companion_of(variable)
            && !defined.contains(&id)
        {
            let text = "it belongs to no vCenter, so it has no effect";
            let remedy =
                format!("set {DEFINES}{id} to the name of the vCenter, or remove this variable");
            report.warn(Place::Environment, variable, text, remedy);
        }
    }
}

/// A Secret or a directory from the environment replaces both of the file.
fn prefer_own_credentials(document: &mut Document) {
    let global = document.parts.iter_mut().find(|part| part.section == Section::Global);
    let Some(global) = global else { return };
    let ours = |id| global.get(id).is_some_and(|entry| entry.at == Place::Environment);
    let secret = ours(Id::SecretName) || ours(Id::SecretNamespace);
    let replaced: &[Id] = match (secret, ours(Id::SecretsDirectory)) {
        (true, false) => &[Id::SecretsDirectory],
        (false, true) => &[Id::SecretName, Id::SecretNamespace],
        _ => &[],
    };
    global.entries.retain(|entry| !replaced.contains(&entry.id));
}

fn vcenter(
    document: &mut Document,
    id: &str,
    variable: &str,
    name: &str,
    environment: &BTreeMap<String, String>,
) {
    let part = document.part(Section::VirtualCenter, Some(name), Place::Environment);
    if part.get(Id::Server).is_none() {
        let (value, label) = (Value::Text(name.to_owned()), variable.to_owned());
        part.set(Entry { id: Id::Server, value, at: Place::Environment, label });
    }
    for row in KEYS.iter().filter(|row| row.section == Section::VirtualCenter) {
        let companion = row.variable.map(|suffix| format!("{COMPANION}{id}_{suffix}"));
        if let Some(entry) = companion.and_then(|name| entry(row, name, environment)) {
            part.set(entry);
        }
    }
}

fn entry(row: &Key, label: String, environment: &BTreeMap<String, String>) -> Option<Entry> {
    let id = row.id()?;
    let value = environment.get(&label).filter(|value| !value.is_empty())?;
    Some(Entry { id, value: Value::Text(value.clone()), at: Place::Environment, label })
}

/// The id of the vCenter that a variable is about.
fn companion_of(variable: &str) -> Option<&str> {
    let rest = variable.strip_prefix(COMPANION)?;
    KEYS.iter()
        .filter(|row| row.section == Section::VirtualCenter)
        .filter_map(|row| rest.strip_suffix(row.variable?)?.strip_suffix('_'))
        .find(|id| !id.is_empty())
}
