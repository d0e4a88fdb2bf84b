//! Which tags count for a VM: the one function behind the zones of both drivers.
//!
//! Three paths lead from a VM up to the root folder ([`Ancestors`]): where it runs, its resource pools, and the VM with its
//! folders. A category may have tags on several objects of them. The Go programs choose differently, and so do ours
//! unless both are set to [`Order::Nearest`], in which a category does not depend on which others there are: then
//! the two never disagree about a VM.
//!
//! Deliberately absent: what the names of tags become in Kubernetes.

use vsphere::{reference::Ref, types::ManagedEntity};

use crate::Ancestors;

/// Which of several tags of a category counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As the Go cloud controller manager: the first path that has all categories; if none has, for each category
    /// the first that has it. Within a path the nearest tag.
    Manager,
    /// As the Go CSI driver: only where the VM runs, from the host up. A farther tag replaces a nearer one until all
    /// categories were found.
    Driver,
    /// For each category by itself the nearest tag on the first path that has one.
    Nearest,
}

/// For each category the names of the tags on the object that counts, in order; none if no object has one.
///
/// `tags` returns the names of the tags that an object has in a category, in order.
pub fn choose<'t, C: AsRef<str>>(
    vm: Ref<ManagedEntity>,
    ancestors: &Ancestors,
    categories: &[C],
    order: Order,
    tags: impl Fn(&Ref<ManagedEntity>, &str) -> &'t [String],
) -> Vec<&'t [String]> {
    let nearest = |path: &[Ref<ManagedEntity>]| -> Vec<&'t [String]> {
        let on_path = |category: &C| {
            let found = path.iter().map(|object| tags(object, category.as_ref()));
            found.into_iter().find(|names| !names.is_empty()).unwrap_or_default()
        };
        categories.iter().map(on_path).collect()
    };
    if order == Order::Driver {
        return farthest_until_complete(&ancestors.host, categories, tags);
    }
    let own = [&[vm], ancestors.folder.as_slice()].concat();
    let paths = [&ancestors.host, &ancestors.pool, &own].map(|path| nearest(path));
    let complete = paths.iter().find(|found| is_complete(found));
    if let (Order::Manager, Some(found)) = (order, complete) {
        return found.clone();
    }
    let first = |at: usize| paths.iter().map(|found| found[at]).find(|names| !names.is_empty());
    (0..categories.len()).map(|at| first(at).unwrap_or_default()).collect()
}

/// Walks a path from its near end, and lets each object replace what was found, until nothing is missing.
fn farthest_until_complete<'t, C: AsRef<str>>(
    path: &[Ref<ManagedEntity>],
    categories: &[C],
    tags: impl Fn(&Ref<ManagedEntity>, &str) -> &'t [String],
) -> Vec<&'t [String]> {
    let mut found: Vec<&[String]> = vec![&[]; categories.len()];
    for object in path {
        for (found, category) in found.iter_mut().zip(categories) {
            let names = tags(object, category.as_ref());
            if !names.is_empty() {
                *found = names;
            }
        }
        if is_complete(&found) {
            break;
        }
    }
    found
}

fn is_complete(found: &[&[String]]) -> bool {
    found.iter().all(|names| !names.is_empty())
}

#[cfg(test)]
mod tests;
