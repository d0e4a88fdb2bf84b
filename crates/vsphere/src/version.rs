//! Which release a server is, and what it knows.
//!
//! vCenter refuses elements that it does not know, so every field of a request that came after the oldest
//! supported release carries a [`Since`], and the writer leaves it out for older servers. The two lines,
//! vim and vSAN, count their versions differently; order in the generated history is what counts.

use crate::types::versions;

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

/// How much of the API a server knows: the versions it told us, capped at the newest of our tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    vim: usize,
    vsan: usize,
}

impl Release {
    /// The oldest release we support, vCenter 6.7U3: what we write before the server told its own.
    pub const OLDEST: Self = Self { vim: versions::OLDEST_VIM, vsan: versions::OLDEST_VSAN };

    /// Everything our tables know.
    pub const NEWEST: Self = Self { vim: versions::VIM.len() - 1, vsan: versions::VSAN.len() - 1 };

    /// The newest release of our tables that is among the versions the server lists for each line, or
    /// below one of them: servers list versions that the tables do not have. A line without any version
    /// we know stays at the oldest.
    pub(crate) fn listed(vim: &[String], vsan: &[String]) -> Self {
        let newest = |history: &[&str], listed: &[String], oldest: usize| {
            let known = listed.iter().filter_map(|name| rank(history, name));
            known.max().map_or(oldest, |rank| rank.max(oldest))
        };
        Self {
            vim: newest(versions::VIM, vim, versions::OLDEST_VIM),
            vsan: newest(versions::VSAN, vsan, versions::OLDEST_VSAN),
        }
    }

    pub(crate) fn knows(self, since: Since) -> bool {
        match since.line {
            Line::Vim => since.rank <= self.vim,
            Line::Vsan => since.rank <= self.vsan,
        }
    }

    /// The version for the SOAPAction of vim25, PBM and VSLM.
    pub(crate) fn vim(self) -> &'static str {
        versions::VIM.get(self.vim).copied().unwrap_or_default()
    }

    /// The version for the SOAPAction of CNS.
    pub(crate) fn vsan(self) -> &'static str {
        versions::VSAN.get(self.vsan).copied().unwrap_or_default()
    }
}

/// The place of a version in a history, or of the newest one below it if its name tells the order.
fn rank(history: &[&str], name: &str) -> Option<usize> {
    let numbers = |name: &str| -> Option<Vec<u32>> {
        name.split('.').map(|number| number.parse().ok()).collect()
    };
    history.iter().position(|known| *known == name).or_else(|| {
        let listed = numbers(name)?;
        history.iter().rposition(|known| numbers(known).is_some_and(|known| known <= listed))
    })
}

#[cfg(test)]
mod tests;
