//! Compares what VolumeAttachments say with the disks that vCenter shows, at the start and every ten minutes.
//!
//! A disk may be removed behind our back: by hand in vCenter, by a restored VM. What is missing is attached again.
//! Only nodes whose devices were read count; publishing is safe to repeat, so a wrong suspicion costs a request.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::{Duration, Instant};

use super::{observe::Observer, plan::Place, spread};

const EVERY: Duration = Duration::from_secs(600);
/// Doubled with each failure in a row.
const RETRY: Duration = Duration::from_secs(2);
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// When vCenter is asked next.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// `None` while it is asked.
    due: Option<Instant>,
    failures: u32,
}

/// A VolumeAttachment that says that its volume is attached.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claimed {
    pub(crate) name: Arc<str>,
    pub(crate) uid: String,
    pub(crate) place: Place,
}

impl Schedule {
    pub(crate) fn new(now: Instant) -> Self {
        Self { due: Some(now), failures: 0 }
    }

    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    pub(crate) fn started(&mut self) {
        self.due = None;
    }

    pub(crate) fn ended(&mut self, success: bool, now: Instant) {
        self.failures = if success { 0 } else { self.failures.saturating_add(1) };
        let retry = RETRY.saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        let pause = if success { EVERY } else { retry.min(LONGEST_RETRY) };
        self.due = Some(now + pause.mul_f64(spread()));
    }
}

/// What VolumeAttachments say is attached, without those that change.
pub(crate) fn claimed(observer: &Observer, is_busy: impl Fn(&str) -> bool) -> Vec<Claimed> {
    let settled = observer
        .attachments
        .iter()
        .filter(|(name, known)| known.value.attached && !known.value.deleting && !is_busy(name));
    let claim = settled.filter_map(|(name, known)| {
        let (name, uid) = (Arc::clone(name), known.uid.clone());
        Some(Claimed { name, uid, place: observer.place(&known.value)? })
    });
    claim.collect()
}

/// The nodes that are asked about, each once.
pub(crate) fn nodes(claimed: &[Claimed]) -> Vec<String> {
    let nodes: BTreeSet<&String> = claimed.iter().map(|claim| &claim.place.node).collect();
    nodes.into_iter().cloned().collect()
}

/// Those that their nodes do not have; `published` has the volumes of each node.
pub(crate) fn missing(
    claimed: Vec<Claimed>,
    published: &BTreeMap<String, BTreeSet<String>>,
) -> impl Iterator<Item = Claimed> {
    claimed.into_iter().filter(|Claimed { place, .. }| {
        published.get(&place.node).is_some_and(|volumes| !volumes.contains(&place.volume))
    })
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, BTreeSet, Claimed, Place, missing, nodes};

    fn claim(volume: &str, node: &str) -> Claimed {
        let place = Place { volume: volume.to_owned(), node: node.to_owned() };
        Claimed { name: volume.into(), uid: String::new(), place }
    }

    #[test]
    fn what_a_node_that_was_read_does_not_have_is_missing() {
        let all = vec![claim("a", "1"), claim("b", "1"), claim("c", "2"), claim("d", "3")];
        assert_eq!(nodes(&all), ["1", "2", "3"]);
        let having = |volumes: &[&str]| volumes.iter().map(|one| (*one).to_owned()).collect();
        let published: BTreeMap<String, BTreeSet<String>> =
            [("1".to_owned(), having(&["a", "c"])), ("2".to_owned(), having(&[]))].into();
        let missing: Vec<_> = missing(all, &published).collect();
        assert_eq!(missing, [claim("b", "1"), claim("c", "2")]);
    }
}
