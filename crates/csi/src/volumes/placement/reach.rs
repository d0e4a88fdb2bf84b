//! Which hosts with nodes reach which storage, as sets of bits: one for each host that runs nodes.

use std::collections::{BTreeMap, HashMap};

use vsphere::{reference::Ref, types};

use super::{Inventory, NodeHost, Store, identity};
use crate::volumes::topology::Segment;

/// Hosts that run nodes, by their places in the inventory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostSet(Vec<u64>);

impl HostSet {
    fn insert(&mut self, at: usize) {
        let word = at / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= 1 << (at % 64);
        }
    }

    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|bits| bits & (1 << (at % 64)) != 0)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|bits| *bits == 0)
    }

    pub(super) fn extend(&mut self, other: &Self) {
        let length = self.0.len().max(other.0.len());
        self.0.resize(length, 0);
        for (bits, more) in self.0.iter_mut().zip(&other.0) {
            *bits |= more;
        }
    }

    fn is_within(&self, other: &Self) -> bool {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        self.0.iter().zip(others).all(|(bits, other)| bits & !other == 0)
    }
}

impl FromIterator<usize> for HostSet {
    fn from_iter<T: IntoIterator<Item = usize>>(places: T) -> Self {
        let mut set = Self::default();
        places.into_iter().for_each(|at| set.insert(at));
        set
    }
}

/// The hosts of the nodes of a segment.
#[derive(Debug, Clone, Default)]
struct Members {
    serving: HostSet,
    all: HostSet,
}

/// Which of an inventory's hosts reach which storage. Storage that several datacenters share is judged by its URL.
pub(super) struct Reach<'a> {
    hosts: &'a [NodeHost],
    by_url: HashMap<&'a str, HostSet>,
    by_segment: BTreeMap<&'a Segment, Members>,
}

impl<'a> Reach<'a> {
    pub(super) fn new(inventory: &'a Inventory) -> Self {
        let mut places: HashMap<&Ref<types::HostSystem>, usize> = HashMap::new();
        let mut by_segment: BTreeMap<&Segment, Members> = BTreeMap::new();
        for (at, host) in inventory.hosts.iter().enumerate() {
            places.insert(&host.host, at);
            for segment in &host.segments {
                let members = by_segment.entry(segment).or_default();
                members.all.insert(at);
                if host.is_serving {
                    members.serving.insert(at);
                }
            }
        }
        let mut by_url: HashMap<&str, HostSet> = HashMap::new();
        for store in &inventory.stores {
            let reached = by_url.entry(identity(&store.url)).or_default();
            for at in store.seen.writers().filter_map(|host| places.get(host)) {
                reached.insert(*at);
            }
        }
        Self { hosts: &inventory.hosts, by_url, by_segment }
    }

    /// Whether all of these hosts reach a datastore.
    pub(super) fn is_reached(&self, store: &Store, from: &HostSet) -> bool {
        self.by_url.get(identity(&store.url)).is_some_and(|reached| from.is_within(reached))
    }

    /// The names of those of the hosts that do not reach a datastore.
    pub(super) fn missing(&self, store: &Store, from: &HostSet) -> impl Iterator<Item = &'a str> {
        let reached = self.by_url.get(identity(&store.url));
        let is_missing =
            move |at: usize| from.has(at) && !reached.is_some_and(|reached| reached.has(at));
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(move |(at, _)| is_missing(*at)).map(|(_, host)| host.name.as_str())
    }

    /// The hosts that serve.
    pub(super) fn serving(&self) -> HostSet {
        let hosts = self.hosts.iter().enumerate();
        hosts.filter(|(_, host)| host.is_serving).map(|(at, _)| at).collect()
    }

    /// The segments that nodes report and that are within `term`, each with its hosts that serve.
    pub(super) fn segments_in(
        &self,
        term: &Segment,
    ) -> impl Iterator<Item = (&'a Segment, &HostSet)> {
        let meant = self.by_segment.iter().filter(|(segment, _)| segment.is_within(term));
        meant.map(|(segment, members)| (*segment, &members.serving))
    }

    /// The segments all of whose hosts that serve reach a datastore; all of their hosts where none serves.
    pub(super) fn segments_of(&self, store: &Store) -> impl Iterator<Item = &'a Segment> {
        let is_reached = |members: &Members| {
            let Members { serving, all } = members;
            self.is_reached(store, if serving.is_empty() { all } else { serving })
        };
        let reached = self.by_segment.iter().filter(move |(_, members)| is_reached(members));
        reached.map(|(segment, _)| *segment)
    }
}
