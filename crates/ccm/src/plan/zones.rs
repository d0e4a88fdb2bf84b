//! Zone and region of a VM, from the tags on it and on what it is in.
//!
//! Which tags count is decided in [`vcenter::zones`], for both drivers: in the Go manager's order unless the configuration
//! has `nearest-tag`. Of several tags on one object the first by name counts.
//!
//! A tag that is missing leaves out a label and delays nothing else. [`Policy`] decides what happens to the
//! labels of Nodes whose VM moved or whose tags changed later.

/// The names of the tag categories, either of which may be unused, and whether the nearest tag counts.
pub(crate) use cloud_config::Labels as Categories;
use daemon::label::is_value;
use vcenter::{
    Ancestors,
    zones::{self, Order},
};
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
    let Categories { zone, region, nearest } = categories;
    let order = if *nearest { Order::Nearest } else { Order::Manager };
    let configured: Vec<&String> = zone.iter().chain(region).collect();
    let chosen = zones::choose(vm, ancestors, &configured, order, tags);
    let mut chosen = chosen.into_iter();
    let mut problems = Vec::new();
    let mut next = |what, category: &Option<String>| {
        let category = category.as_deref()?;
        label(what, category, chosen.next().unwrap_or_default(), &mut problems)
    };
    let (zone, region) = (next("zone", zone), next("region", region));
    Zones { zone, region, problems }
}

/// The value of the label, or what is wrong.
fn label(
    what: &str,
    category: &str,
    found: &[String],
    problems: &mut Vec<String>,
) -> Option<String> {
    if let [_, _, ..] = found {
        problems.push(format!(
            "one object has several tags of the category {category:?} ({}), so the first is taken for the \
             Node's {what}; leave one",
            found.join(", ")
        ));
    }
    match found.first() {
        Some(name) if is_value(name) => return Some(name.clone()),
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

#[cfg(test)]
mod tests;
