//! The API's two histories of versions, and how the tables' version names map to places in them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};

use super::names;

/// A history. PBM and VSLM follow vim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Line {
    Vim,
    Vsan,
}

impl Line {
    pub(crate) const ALL: [Self; 2] = [Self::Vim, Self::Vsan];

    /// As the tables write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vim => "vim",
            Self::Vsan => "vsan",
        }
    }

    /// The version of the oldest release that we support, vCenter 6.7U3. What is not newer needs no mark.
    fn oldest(self) -> &'static str {
        match self {
            Self::Vim => "vim.version.version15",
            Self::Vsan => "vsan.version.version11",
        }
    }
}

/// The version that brought something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Since {
    pub(crate) line: Line,
    pub(crate) rank: usize,
}

/// All versions that the tables know, by the tables' own names.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    ids: BTreeMap<String, String>,
    parents: BTreeMap<String, BTreeSet<String>>,
    histories: BTreeMap<Line, Vec<String>>,
}

impl Versions {
    /// A version and its name on the wire.
    pub(crate) fn add(&mut self, name: &str, id: &str) {
        self.ids.insert(name.to_owned(), id.to_owned());
    }

    /// The parents of a version are itself and all versions that it includes.
    pub(crate) fn add_parent(&mut self, name: &str, parent: &str) {
        self.parents.entry(name.to_owned()).or_default().insert(parent.to_owned());
    }

    /// Puts the histories in order once all versions are known: a version includes all older ones of its line, so
    /// the number of its parents is its place.
    pub(crate) fn arrange(&mut self) -> Result<()> {
        for line in Line::ALL {
            let prefix = format!("{}.version.", line.name());
            let parents = |name: &str| self.parents.get(name).map_or(0, BTreeSet::len);
            let mut names: Vec<String> =
                self.ids.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
            names.sort_by_key(|name| parents(name));
            for pair in names.windows(2) {
                let included = self.parents.get(&pair[1]).is_some_and(|of| of.contains(&pair[0]));
                ensure!(included, "{} does not include {}: no history", pair[1], pair[0]);
            }
            self.histories.insert(line, names);
        }
        Ok(())
    }

    /// The wire's names of a line's versions, oldest first.
    pub(crate) fn history(&self, line: Line) -> Vec<&str> {
        let names = self.histories.get(&line).map(Vec::as_slice).unwrap_or_default();
        names.iter().filter_map(|name| self.ids.get(name)).map(String::as_str).collect()
    }

    pub(crate) fn oldest(&self, line: Line) -> Result<usize> {
        let oldest = self.rank(line, line.oldest());
        oldest.with_context(|| format!("the tables lack {}", line.oldest()))
    }

    fn rank(&self, line: Line, name: &str) -> Option<usize> {
        self.histories.get(&line)?.iter().position(|known| known == name)
    }

    /// When something came, given the tables' name of its version; nothing if the oldest supported release has it.
    pub(crate) fn since(&self, name: &str) -> Option<Since> {
        let since = match name.split('.').next()? {
            "vim" => Since { line: Line::Vim, rank: self.rank(Line::Vim, name)? },
            "vsan" => Since { line: Line::Vsan, rank: self.rank(Line::Vsan, name)? },
            "pbm" | "vslm" => {
                let included = self.parents.get(name)?;
                let rank = included.iter().filter_map(|of| self.rank(Line::Vim, of)).max()?;
                Since { line: Line::Vim, rank }
            }
            _ => return None,
        };
        let oldest = self.rank(since.line, since.line.oldest())?;
        (since.rank > oldest).then_some(since)
    }

    /// The tables' name of a version in the overlay: `vsan:vSAN_7.0U3`.
    pub(crate) fn named(&self, text: &str) -> Option<&str> {
        let (line, id) = text.split_once(':')?;
        let line = Line::ALL.into_iter().find(|known| known.name() == line)?;
        let id = id.replace('_', " ");
        let found = self.histories.get(&line)?.iter().find(|name| self.ids.get(*name) == Some(&id));
        found.map(String::as_str)
    }

    /// The name of the constant for a version: `VSAN_7_0U3`.
    pub(crate) fn constant(&self, since: Since) -> String {
        let id = self.history(since.line).get(since.rank).copied().unwrap_or_default();
        format!("{}_{}", since.line.name().to_uppercase(), names::version(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> Versions {
        let mut versions = Versions::default();
        let history = [
            ("vim.version.version15", "6.7.3"),
            ("vim.version.v8", "8.0.0.0"),
            ("vsan.version.version11", "vSAN 6.7U3"),
            ("pbm.version.v8", "8.0.0.0"),
        ];
        for (at, (name, id)) in history.iter().enumerate() {
            versions.add(name, id);
            for (parent, _) in &history[..=at] {
                versions.add_parent(name, parent);
            }
        }
        versions.arrange().unwrap();
        versions
    }

    #[test]
    fn what_the_oldest_release_has_needs_no_mark() {
        let versions = versions();
        let newer = Some(Since { line: Line::Vim, rank: 1 });
        for (name, since) in [
            ("vim.version.version15", None),
            ("vim.version.v8", newer),
            ("pbm.version.v8", newer),
            ("vsan.version.version11", None),
            ("vmodl.version.version0", None),
        ] {
            assert_eq!(versions.since(name), since, "{name}");
        }
    }

    #[test]
    fn the_overlay_names_versions_by_their_name_on_the_wire() {
        let versions = versions();
        assert_eq!(versions.named("vsan:vSAN_6.7U3"), Some("vsan.version.version11"));
        assert_eq!(versions.named("vim:1.0"), None);
    }
}
