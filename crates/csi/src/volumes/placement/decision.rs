//! What was decided about each datastore, in the order in which they are tried, and the refusal if there is none.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use vsphere::{reference::Ref, types};

use super::{Hosts, Reason, Size, Store, Wish, identity};
use crate::{
    refusal::{Kind, Refusal},
    volumes::topology::Segment,
};

/// Reasons that a refusal lists for each segment; a vCenter may have hundreds of datastores.
pub(super) const MOST_LISTED: usize = 12;
/// Segments that a refusal lists; a request may name one for each host.
const MOST_SEGMENTS: usize = 8;

/// A datastore and what was decided about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) store: Arc<Store>,
    pub(crate) against: Option<Reason>,
    /// Whether a tag on it prefers it in a segment that reaches it.
    pub(super) is_preferred: bool,
    /// Whether all nodes that are meant reach it, where a part of them is enough.
    pub(super) is_reached_by_all: bool,
    /// Which groups of nodes reach it, by their numbers.
    pub(super) groups: Vec<usize>,
}

impl Candidate {
    /// The better one first: candidates, preferred ones, those that more nodes reach, emptier ones.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let key = |one: &Self| {
            let is_excluded = one.against.is_some();
            (is_excluded, !one.is_preferred, !one.is_reached_by_all, Reverse(one.store.free))
        };
        let order = key(self).cmp(&key(other));
        order
            .then_with(|| self.store.path.cmp(&other.store.path))
            .then_with(|| self.store.datastore.cmp(&other.store.datastore))
    }
}

/// Why nothing can be said about a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Problem {
    NoNode {
        vcenter: String,
    },
    /// vCenter may have the VMs of these nodes.
    Unseen {
        vcenter: String,
        nodes: Vec<String>,
        why: String,
    },
    /// The hosts of its nodes, all of which are disconnected or in maintenance.
    NotServing(Hosts),
}

/// What was decided for one segment, or for all nodes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Table {
    pub(super) term: Option<Segment>,
    pub(super) problem: Option<Problem>,
    /// The best candidates first; none if there is a problem.
    pub(super) all: Vec<Candidate>,
}

impl Table {
    fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.all.iter().filter(|candidate| candidate.against.is_none())
    }

    /// The datastores that the StorageClass means.
    fn considered(&self) -> impl Iterator<Item = &Candidate> {
        self.all.iter().filter(|one| one.against != Some(Reason::NotSelected))
    }

    fn reasons(&self) -> String {
        let problem = self.problem.as_ref().map(ToString::to_string);
        let mut reasons: Vec<String> = problem.into_iter().collect();
        let listed = self.considered().take(MOST_LISTED);
        reasons.extend(
            listed.filter_map(|one| Some(format!("{}: {}", one.store.path, one.against.as_ref()?))),
        );
        let count = self.considered().count();
        if count > MOST_LISTED {
            reasons.push(format!("and {} more", count - MOST_LISTED));
        }
        if reasons.is_empty() { "vCenter shows none".to_owned() } else { reasons.join("; ") }
    }
}

/// Every datastore with a reason against it, or as a candidate, for each segment in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Decision {
    wish: Wish,
    tables: Vec<Table>,
}

impl Decision {
    pub(super) fn new(wish: Wish, tables: Vec<Table>) -> Self {
        Self { wish, tables }
    }

    /// The datastores to try, the best first: those of the first segment before those of the next one.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        let mut seen: BTreeSet<&Ref<types::Datastore>> = BTreeSet::new();
        let all = self.tables.iter().flat_map(Table::candidates);
        all.filter(move |candidate| seen.insert(&candidate.store.datastore))
    }

    /// How good the best candidate is: the number of its segment, and its free space.
    pub(crate) fn best(&self) -> Option<(usize, Reverse<u64>)> {
        let first = |(at, table): (usize, &Table)| {
            table.candidates().next().map(|one| (at, Reverse(one.store.free)))
        };
        self.tables.iter().enumerate().find_map(first)
    }

    /// Excludes the candidates that a storage policy does not accept.
    pub(crate) fn exclude(&mut self, rejected: &BTreeMap<Ref<types::Datastore>, String>) {
        for table in &mut self.tables {
            for candidate in table.all.iter_mut().filter(|one| one.against.is_none()) {
                if let Some(why) = rejected.get(&candidate.store.datastore) {
                    candidate.against = Some(Reason::Policy(why.clone()));
                }
            }
            // Stable: the order among equals stays.
            table.all.sort_by_key(|candidate| candidate.against.is_some());
        }
    }

    /// How much fits in all, and the largest volume that fits.
    ///
    /// # Errors
    /// When that is not known, as long as something does not answer. That no node is there is known.
    pub(crate) fn room(&self) -> Result<(u64, u64), Refusal> {
        let is_unknown = |problem: &Problem| {
            self.wish.segments.is_empty() || matches!(problem, Problem::Unseen { .. })
        };
        let problems = self.tables.iter().filter_map(|table| table.problem.as_ref());
        if let Some(problem) = problems.into_iter().find(|problem| is_unknown(problem)) {
            return Err(problem.refusal());
        }
        let mut by_url: BTreeMap<&str, u64> = BTreeMap::new();
        for candidate in self.candidates() {
            by_url.insert(identity(&candidate.store.url), candidate.store.free);
        }
        Ok((by_url.values().sum(), by_url.values().copied().max().unwrap_or_default()))
    }

    /// Refuses a class whose names leave a choice between several datastores that the same nodes reach: which one is
    /// meant cannot be known. Where a segment before has a candidate, only the ambiguous ones are excluded.
    pub(crate) fn resolve_names(&mut self, volume: &str) -> Result<(), Refusal> {
        let mut has_candidate = false;
        for table in &mut self.tables {
            let candidates: Vec<&Candidate> = table.candidates().collect();
            let is_empty = candidates.is_empty();
            match self.wish.selection.check_unambiguous(volume, &candidates) {
                Err(refusal) if !has_candidate => return Err(refusal),
                Err(_) => {
                    for one in table.all.iter_mut().filter(|one| one.against.is_none()) {
                        one.against = Some(Reason::Ambiguous);
                    }
                }
                Ok(()) => has_candidate |= !is_empty,
            }
        }
        Ok(())
    }

    /// Why there is no candidate: each datastore with the reason against it, for each segment.
    pub(crate) fn refusal(&self, volume: &str) -> Refusal {
        if let [Table { term: None, problem: Some(problem), .. }] = &*self.tables {
            return problem.refusal();
        }
        let judged = self.tables.iter().find(|table| table.problem.is_none());
        if let Some(table) = judged.filter(|table| table.considered().next().is_none())
            && let Some(refusal) = self.wish.selection.refusal(volume, &table.all)
        {
            return refusal;
        }
        let (kind, remedy) = self.advice();
        Refusal::new(kind, self.explain(volume)).remedy(remedy)
    }

    fn explain(&self, volume: &str) -> String {
        let size = Size(self.wish.bytes);
        let no = format!("volume {volume}: no datastore can take {size}");
        if let [table @ Table { term: None, .. }] = &*self.tables {
            return format!("{no} ({})", table.reasons());
        }
        let named = self.tables.iter().filter_map(|table| Some((table.term.as_ref()?, table)));
        let mut parts: Vec<String> = named
            .take(MOST_SEGMENTS)
            .map(|(term, table)| format!("in {term} ({})", table.reasons()))
            .collect();
        if self.tables.len() > MOST_SEGMENTS {
            parts.push(format!("in {} more", self.tables.len() - MOST_SEGMENTS));
        }
        format!("{no} {}", parts.join(", nor "))
    }

    /// What helps, by the reasons that are nearest to success.
    ///
    /// Where the request names segments, nothing but their exhaustion is reported as long as it is known that none of
    /// them can take the volume: Kubernetes then looks for another node.
    fn advice(&self) -> (Kind, &'static str) {
        let is_unseen = |table: &Table| matches!(table.problem, Some(Problem::Unseen { .. }));
        if self.tables.iter().any(is_unseen) {
            return (Kind::Unavailable, UNSEEN);
        }
        let (kind, remedy) = self.advice_by_reason();
        let kind = if self.wish.segments.is_empty() { kind } else { Kind::Exhausted };
        (kind, remedy)
    }

    fn advice_by_reason(&self) -> (Kind, &'static str) {
        let any = |is: fn(&Reason) -> bool| {
            let mut considered = self.tables.iter().flat_map(Table::considered);
            considered.any(|one| one.against.as_ref().is_some_and(is))
        };
        if any(|reason| matches!(reason, Reason::Full(_))) {
            return (Kind::Exhausted, "free space on one of them, or request less");
        }
        if any(|reason| matches!(reason, Reason::TooSmall(_))) {
            return (Kind::OutOfRange, "request less than the largest of them has");
        }
        if any(|reason| matches!(reason, Reason::Policy(_))) {
            return (
                Kind::Precondition,
                "choose another storage policy, or make a datastore fit it",
            );
        }
        if any(|reason| matches!(reason, Reason::NoPrivilege)) {
            let remedy = "grant the user a role with Datastore.FileManagement on one of them";
            return (Kind::Denied, remedy);
        }
        if any(|reason| matches!(reason, Reason::NotShared(_))) {
            return (Kind::Precondition, "mount one of them on every host that runs nodes");
        }
        if self.tables.iter().all(|table| matches!(table.problem, Some(Problem::NoNode { .. }))) {
            return (Kind::Exhausted, NO_NODE);
        }
        (
            Kind::Precondition,
            "make one of them available, and see that vCenter shows it to the user",
        )
    }
}

impl fmt::Display for Decision {
    /// The tables, a datastore after the other.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, table) in self.tables.iter().enumerate() {
            let separator = if at == 0 { "" } else { "; " };
            f.write_str(separator)?;
            if let Some(term) = &table.term {
                write!(f, "in {term}: ")?;
            }
            if let Some(problem) = &table.problem {
                problem.fmt(f)?;
            }
            for (at, one) in table.all.iter().enumerate() {
                let separator = if at == 0 { "" } else { "; " };
                write!(f, "{separator}{}: ", one.store.path)?;
                let preferred = if one.is_preferred { "preferred, " } else { "" };
                match &one.against {
                    Some(reason) => reason.fmt(f)?,
                    None => write!(f, "candidate, {preferred}{} free", Size(one.store.free))?,
                }
            }
        }
        Ok(())
    }
}

const NO_NODE: &str = "the driver's node pods must run (kubectl get csinodes), and vCenter must show their VMs to its user";
const UNSEEN: &str = "a volume is created when all configured datacenters are seen";

impl Problem {
    /// Why nothing is placed where all nodes are meant.
    fn refusal(&self) -> Refusal {
        let (what, remedy) = match self {
            Self::NoNode { vcenter } => {
                (format!("no node of this cluster was found in vCenter {vcenter}"), NO_NODE)
            }
            Self::Unseen { .. } => (format!("no datastore can be chosen: {self}"), UNSEEN),
            Self::NotServing(_) => (
                format!("no datastore can be chosen: {self}"),
                "connect one of them, or end its maintenance",
            ),
        };
        Refusal::new(Kind::Unavailable, what).remedy(remedy)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNode { vcenter } => write!(f, "no node of it was found in vCenter {vcenter}"),
            Self::Unseen { vcenter, nodes, why } => {
                write!(
                    f,
                    "vCenter {vcenter} does not show where {} runs ({why})",
                    nodes.join(" and ")
                )
            }
            Self::NotServing(hosts) => {
                write!(f, "no host that runs nodes is connected and out of maintenance ({hosts})")
            }
        }
    }
}
