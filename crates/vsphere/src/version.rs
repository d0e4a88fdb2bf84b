//! The release of a server, and the fields and methods that it has.
//!
//! vCenter refuses elements that it does not know, so every field of a request that came after the oldest
//! supported release carries a [`Since`], and the writer leaves it out for older servers. The two lines,
//! vim and vSAN, count their versions differently; order in the generated history is what counts.

use crate::{
    types::versions,
    xml::{Malformed, Reader},
};

/// A history of versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// vCenter's own API, with PBM and VSLM.
    Vim,
    /// vSAN's API, to which CNS belongs.
    Vsan,
}

impl Line {
    fn history(self) -> &'static [&'static str] {
        match self {
            Self::Vim => versions::VIM,
            Self::Vsan => versions::VSAN,
        }
    }
}

/// The version that brought a field or a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    line: Line,
    rank: usize,
}

impl Since {
    pub(crate) const fn new(line: Line, rank: usize) -> Self {
        Self { line, rank }
    }
}

impl std::fmt::Display for Since {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = match self.line {
            Line::Vim => "vCenter API",
            Line::Vsan => "vSAN API",
        };
        write!(f, "{line} {}", self.line.history().get(self.rank).unwrap_or(&"unknown"))
    }
}

/// How much of the API a server knows: the rank of its version in each line, up to the newest of our tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release([usize; 2]);

impl Release {
    /// The oldest release we support, vCenter 6.7U3: assumed before the server has listed its versions.
    pub const OLDEST: Self = Self([versions::OLDEST_VIM, versions::OLDEST_VSAN]);

    /// Everything our tables know.
    pub const NEWEST: Self = Self([versions::VIM.len() - 1, versions::VSAN.len() - 1]);

    /// The same release, in one line as new as this version.
    pub(crate) fn with(mut self, version: &Version) -> Self {
        self.0[version.line as usize] = version.rank;
        self
    }

    pub(crate) fn knows(self, since: Since) -> bool {
        since.rank <= self.0[since.line as usize]
    }

    /// The name of its version in a line.
    pub(crate) fn version(self, line: Line) -> &'static str {
        line.history()[self.0[line as usize]]
    }
}

/// A version that a server lists: the one that it is called in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    line: Line,
    /// The place of the version in our tables, or of the newest one below it.
    rank: usize,
    pub(crate) name: String,
}

impl Version {
    /// The newest version that the server lists and that is not newer than our tables. Some servers list versions
    /// that the tables do not have; they are called in those, never in versions that they do not list.
    pub(crate) fn newest(line: Line, listed: &[String]) -> Option<Self> {
        let oldest = Release::OLDEST.0[line as usize];
        let ranked = listed.iter().filter_map(|name| Some((rank(line.history(), name)?, name)));
        let (rank, name) =
            ranked.filter(|(rank, _)| *rank >= oldest).max_by_key(|(rank, _)| *rank)?;
        Some(Self { line, rank, name: name.clone() })
    }
}

/// The place of a version in a history, or of the newest one below it if its number lies inside the history.
fn rank(history: &[&str], name: &str) -> Option<usize> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        name.split('.').map(|number| number.parse().ok()).collect()
    };
    history.iter().position(|known| *known == name).or_else(|| {
        let listed = numbers(name)?;
        let below = |known: &&str| numbers(known).is_some_and(|known| known <= listed);
        history.iter().rposition(below).filter(|rank| rank + 1 < history.len())
    })
}

/// The versions in a document such as `/sdk/vimServiceVersions.xml`.
pub(crate) fn listed(document: &str) -> Result<Vec<String>, Malformed> {
    let mut reader = Reader::new(document);
    let root = reader.root()?;
    let mut found = Vec::new();
    while let Some(namespace) = reader.child(&root)? {
        while let Some(child) = reader.child(&namespace)? {
            match child.name() {
                "version" => found.push(reader.text(&child)?.into_owned()),
                "priorVersions" => {
                    while let Some(prior) = reader.child(&child)? {
                        found.push(reader.text(&prior)?.into_owned());
                    }
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
