//! Why a datastore does not take a volume, as people read it.

use std::fmt;

/// Hosts that a reason names; a datacenter may have hundreds.
const MOST_HOSTS: usize = 3;

/// Why a datastore is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The StorageClass names others.
    NotSelected,
    Inaccessible,
    Maintenance(String),
    Suspended,
    /// The hosts of nodes that do not reach it.
    NotShared(Hosts),
    NoPrivilege,
    /// Smaller than the volume, even when empty.
    TooSmall(u64),
    Full(u64),
    /// The storage policy does not accept it, with vCenter's words.
    Policy(String),
    /// The StorageClass names it, and another one by the same name.
    Ambiguous,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSelected => f.write_str("the StorageClass does not name it"),
            Self::Inaccessible => f.write_str("no host reaches it"),
            Self::Maintenance(mode) => write!(f, "it is in maintenance ({mode})"),
            Self::Suspended => f.write_str("it is suspended for new volumes"),
            Self::NotShared(hosts) => {
                let run = if hosts.count == 1 { "runs" } else { "run" };
                write!(f, "not writable from {hosts}, which {run} nodes")
            }
            Self::NoPrivilege => {
                f.write_str("the user lacks Datastore.FileManagement or System.Read on it")
            }
            Self::TooSmall(capacity) => write!(f, "it has {} in all", Size(*capacity)),
            Self::Full(free) => write!(f, "it has {} free", Size(*free)),
            Self::Policy(why) => write!(f, "the storage policy does not accept it: {why}"),
            Self::Ambiguous => f.write_str("the StorageClass names several by its name"),
        }
    }
}

/// Hosts by name, the first few of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hosts {
    first: Vec<String>,
    count: usize,
}

impl<'a> FromIterator<&'a str> for Hosts {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        let mut hosts = Self::default();
        for name in names {
            if hosts.count < MOST_HOSTS {
                hosts.first.push(name.to_owned());
            }
            hosts.count += 1;
        }
        hosts
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count - self.first.len() {
            0 => f.write_str(&self.first.join(" and ")),
            more => write!(f, "{} and {more} more", self.first.join(", ")),
        }
    }
}

/// A size as people read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 3] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")];
        let unit = UNITS.into_iter().find(|(unit, _)| self.0 >= *unit);
        let Some((unit, name)) = unit else { return write!(f, "{} bytes", self.0) };
        let (whole, tenths) = (self.0 / unit, self.0 % unit * 10 / unit);
        if tenths == 0 { write!(f, "{whole} {name}") } else { write!(f, "{whole}.{tenths} {name}") }
    }
}
