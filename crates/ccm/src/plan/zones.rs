//! Zone and region of a VM, from the tags on it and on what it is in.
//!
//! Of the three paths from a VM up to the root folder, the first that has both a zone and a region counts, in
//! the order of the Go manager: where the VM runs, its resource pools, then the VM itself and its folders. If
//! none has both, each is taken from the first path that has it. Within a path the nearest tag counts for each
//! category by itself, and of several tags on one object the first by name.
//!
//! A tag that is missing leaves out a label and delays nothing else. [`Policy`] decides what happens to the
//! labels of Nodes whose VM moved or whose tags changed later.

/// The names of the tag categories; either may be unused.
pub(crate) use cloud_config::Labels as Categories;
use vcenter::Ancestors;
use vsphere::{reference::Ref, types::ManagedEntity};

/// What happens to the labels of a Node when its zone changes after it was initialised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// They stay: volumes and affinities were decided by them.
    #[default]
    Never,
    /// Missing labels are added.
    IfEmpty,
    /// They follow.
    Always,
    /// They stay, and the condition reports that they are wrong.
    Warn,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Zones {
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    /// What is missing, with the remedy.
    pub(crate) problems: Vec<String>,
}

/// Zone and region; `tags` returns the names of the tags that an object has in a category.
pub(crate) fn find<'t>(
    vm: Ref<ManagedEntity>,
    ancestors: &Ancestors,
    categories: &Categories,
    tags: impl Fn(&Ref<ManagedEntity>, &str) -> &'t [String],
) -> Zones {
    let own = [&[vm], ancestors.folder.as_slice()].concat();
    let paths = [&ancestors.host, &ancestors.pool, &own];
    let nearest = |path: &[Ref<ManagedEntity>], category: &Option<String>| -> &'t [String] {
        let Some(category) = category else { return &[] };
        path.iter()
            .map(|object| tags(object, category))
            .find(|names| !names.is_empty())
            .unwrap_or_default()
    };
    let on_paths = |category| paths.map(|path| nearest(path, category));
    let (zones, regions) = (on_paths(&categories.zone), on_paths(&categories.region));
    let both = (0..paths.len()).find(|at| !zones[*at].is_empty() && !regions[*at].is_empty());
    let chosen = |found: [&'t [String]; 3]| match both {
        Some(at) => found[at],
        None => found.into_iter().find(|names| !names.is_empty()).unwrap_or_default(),
    };
    let mut problems = Vec::new();
    let zone = label("zone", &categories.zone, chosen(zones), &mut problems);
    let region = label("region", &categories.region, chosen(regions), &mut problems);
    Zones { zone, region, problems }
}

/// The value of the label, or what is wrong.
fn label(
    what: &str,
    category: &Option<String>,
    found: &[String],
    problems: &mut Vec<String>,
) -> Option<String> {
    let category = category.as_deref()?;
    if let [_, _, ..] = found {
        problems.push(format!(
            "one object has several tags of the category {category:?} ({}), so the first is taken for the \
             Node's {what}; leave one",
            found.join(", ")
        ));
    }
    match found.first() {
        Some(name) if is_label(name) => return Some(name.clone()),
        Some(name) => problems.push(format!(
            "the tag {name:?} cannot be a label of Kubernetes, so the Node gets no {what}; rename it to 63 \
             letters, digits, '-', '_' and '.' at most"
        )),
        None => problems.push(format!(
            "no tag of the category {category:?} is on the VM or on anything it is in, so the Node gets \
             no {what}; attach one to its host, cluster or datacenter"
        )),
    }
    None
}

/// Whether Kubernetes accepts the text as the value of a label.
pub(crate) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(inner)
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}

#[cfg(test)]
mod tests;
