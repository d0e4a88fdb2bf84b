//! Zone and region of a VM, from the tags on it and on what it is in.
//!
//! For each category the nearest tagged object counts, whatever the other category has; of several tags on
//! one object the first by name. A tag that is missing leaves out a label; it holds up nothing else.
//! [`Policy`] says what happens to labels of Nodes whose VM moved or whose tags changed later.

use vsphere::{reference::Ref, types::ManagedEntity};

/// The categories of tags that say zone and region; either may be unused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Categories {
    /// Of the tags that name zones.
    pub zone: Option<String>,
    /// Of the tags that name regions.
    pub region: Option<String>,
}

/// What happens to the labels of a Node when its zone changes after it was initialised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// They stay: volumes and affinities were decided by them.
    #[default]
    Never,
    /// Labels that are missing are added.
    IfEmpty,
    /// They follow.
    Always,
    /// They stay, and the Node says that they are wrong.
    Warn,
}

/// Where a VM is, as far as tags say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Zones {
    /// The zone.
    pub zone: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// What is missing, and what to do about it.
    pub problems: Vec<String>,
}

/// The ways from a VM up to the root folder, each nearest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ways<'a> {
    /// The VM itself; left out to agree with a storage driver that does not look at it.
    pub vm: Option<&'a Ref<ManagedEntity>>,
    /// Where it runs: host, cluster, folders, datacenter.
    pub host: &'a [Ref<ManagedEntity>],
    /// Its resource pools.
    pub pool: &'a [Ref<ManagedEntity>],
    /// Where it is filed: its folders.
    pub folder: &'a [Ref<ManagedEntity>],
}

/// Zone and region, from the tags that each object has in a category.
///
/// Where the VM runs says more than where it is filed, so the other ways count only for a category that the
/// first does not have.
pub fn find<'t>(
    ways: Ways<'_>,
    categories: &Categories,
    tags: impl Fn(&Ref<ManagedEntity>, &str) -> &'t [String],
) -> Zones {
    let objects = || ways.vm.into_iter().chain(ways.host).chain(ways.pool).chain(ways.folder);
    let mut problems = Vec::new();
    let mut nearest = |what: &str, category: &Option<String>| {
        let category = category.as_deref()?;
        let on = |object: &Ref<ManagedEntity>| {
            let names = tags(object, category);
            (!names.is_empty()).then_some(names)
        };
        let found = objects().find_map(on).unwrap_or_default();
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
    };
    let zone = nearest("zone", &categories.zone);
    let region = nearest("region", &categories.region);
    Zones { zone, region, problems }
}

/// Whether Kubernetes accepts a text as the value of a label.
pub(crate) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(inner)
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
}
