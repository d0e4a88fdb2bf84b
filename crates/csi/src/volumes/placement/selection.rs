//! Which datastores a StorageClass names: by URL, by name, by inventory path, or by their datastore cluster.
//!
//! A name means every datastore that is called so, because datacenters and vCenters may use the same names: the nodes
//! that must reach it decide. Only if several are left that the same nodes reach, the class is refused with their
//! paths.

use std::collections::BTreeSet;

use super::{Candidate, Store, decision::MOST_LISTED, identity};
use crate::refusal::{Kind, Refusal};

/// What a StorageClass names; every datastore if it names nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The URL of one datastore.
    pub url: Option<String>,
    /// URLs (`ds://…`), inventory paths (`/…`) and names.
    pub datastores: Vec<String>,
    /// The name or the inventory path of a datastore cluster.
    pub cluster: Option<String>,
}

impl Selection {
    pub(super) fn has(&self, store: &Store) -> bool {
        let url = self.url.as_deref().is_none_or(|url| identity(url) == identity(&store.url));
        let listed = self.datastores.is_empty()
            || self.datastores.iter().any(|text| match Form::of(text) {
                Form::Url => identity(text) == identity(&store.url),
                Form::Path => text.trim_end_matches('/') == store.path,
                Form::Name => *text == store.name,
            });
        let clustered = self.cluster.as_deref().is_none_or(|text| match Form::of(text) {
            Form::Path => store.cluster_path() == Some(text.trim_end_matches('/')),
            _ => store.cluster.as_deref() == Some(text),
        });
        url && listed && clustered
    }

    /// Why nothing of what a vCenter has is selected; nothing if everything is.
    pub(super) fn refusal(&self, volume: &str, all: &[Candidate]) -> Option<Refusal> {
        let (what, shown) = if let Some(url) = &self.url {
            let what = format!("with the URL {url:?} of the parameter datastoreurl");
            (what, ("URLs", distinct(all.iter().map(|one| &*one.store.url))))
        } else if let Some(cluster) = &self.cluster {
            let what =
                format!("in the datastore cluster {cluster:?} of the parameter datastorecluster");
            let known = all.iter().filter_map(|one| one.store.cluster_path());
            (what, ("datastore clusters", distinct(known)))
        } else if self.datastores.is_empty() {
            return None;
        } else {
            let what = format!("of the parameter datastores ({})", self.datastores.join(", "));
            (what, ("datastores", distinct(all.iter().map(|one| &*one.store.path))))
        };
        let what = format!("volume {volume}: vCenter shows no datastore {what}");
        let remedy = format!("correct the StorageClass; the {} are {}", shown.0, shown.1);
        Some(Refusal::new(Kind::Invalid, what).remedy(remedy))
    }

    /// Refuses a name of several datastores, or of several clusters, that are left and that the same nodes reach.
    pub(super) fn check_unambiguous(
        &self,
        volume: &str,
        candidates: &[&Candidate],
    ) -> Result<(), Refusal> {
        let groups: BTreeSet<usize> =
            candidates.iter().flat_map(|one| &one.groups).copied().collect();
        groups.into_iter().try_for_each(|group| {
            let reached = candidates.iter().filter(|one| one.groups.contains(&group));
            self.check_group(volume, &reached.map(|one| &*one.store).collect::<Vec<_>>())
        })
    }

    fn check_group(&self, volume: &str, left: &[&Store]) -> Result<(), Refusal> {
        let is_name = |text: &&String| Form::of(text) == Form::Name;
        for name in self.datastores.iter().filter(is_name) {
            let called: Vec<_> = left.iter().filter(|one| one.name == *name).collect();
            let urls: BTreeSet<_> = called.iter().map(|one| identity(&one.url)).collect();
            if urls.len() > 1 {
                let paths = distinct(called.iter().map(|one| &*one.path));
                return Err(ambiguous(volume, "datastores", name, &paths));
            }
        }
        if let Some(name) = self.cluster.as_ref().filter(is_name) {
            let paths: BTreeSet<_> = left.iter().filter_map(|one| one.cluster_path()).collect();
            if paths.len() > 1 {
                return Err(ambiguous(volume, "datastore clusters", name, &distinct(paths)));
            }
        }
        Ok(())
    }
}

fn ambiguous(volume: &str, kind: &str, name: &str, paths: &str) -> Refusal {
    let what = format!("volume {volume}: several {kind} are called {name:?}");
    let remedy = format!("write the path of one of them into the StorageClass: {paths}");
    Refusal::new(Kind::Invalid, what).remedy(remedy)
}

/// How a text names a datastore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Url,
    Path,
    Name,
}

impl Form {
    fn of(text: &str) -> Self {
        if text.starts_with("ds://") {
            Self::Url
        } else if text.starts_with('/') {
            Self::Path
        } else {
            Self::Name
        }
    }
}

fn distinct<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: BTreeSet<_> = texts.into_iter().collect();
    let shown: Vec<_> = texts.iter().take(MOST_LISTED).copied().collect();
    match texts.len() {
        0 => "none".to_owned(),
        count if count > MOST_LISTED => {
            format!("{} and {} more", shown.join(", "), count - MOST_LISTED)
        }
        _ => shown.join(", "),
    }
}
