//! How many volumes fit on each node, published where its kubelet's driver reads it.
//!
//! A node's own pod has no access to vCenter, so the limit goes through an annotation of its CSINode: `NodeGetInfo`
//! returns it, the kubelet writes it into the CSINode's `allocatable`, and the scheduler counts. It is read from
//! vCenter when a node appears, every ten minutes, and at once when an attach was refused because the VM is full;
//! that refusal reaches the VolumeAttachment only after the new limit was published, because it makes the kubelet
//! ask again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tokio::time::{Duration, Instant};
use tracing::info;

use super::{
    apply::{NotWritten, Writer},
    observe::{object::Trimmed, trimmed::CsiNode},
    spread,
};
use crate::{refusal::Refusal, volumes::Volumes};

const EVERY: Duration = Duration::from_secs(600);
/// How soon a limit that could not be read or written is tried again; doubled with each failure in a row.
const RETRY: Duration = Duration::from_secs(2);
/// The shortest time between two reads for one node, however many attaches are refused.
const PAUSE: Duration = Duration::from_secs(5);
/// Nodes that are read at once.
const CONCURRENT: usize = 8;

/// When each node's limit is read.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    nodes: HashMap<Arc<str>, Entry>,
    /// By time.
    due: BTreeSet<(Instant, Arc<str>)>,
    running: usize,
}

#[derive(Debug)]
struct Entry {
    node_id: String,
    due: Instant,
    running: bool,
    /// When it was read last.
    read: Option<Instant>,
    failures: u32,
    /// A refused attach waits for it.
    awaited: bool,
}

/// Why a limit was not published.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPublished {
    #[error(transparent)]
    Unread(Refusal),
    #[error(transparent)]
    Unwritten(NotWritten),
}

/// What became of reading and publishing one limit.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) name: Arc<str>,
    /// The CSINode, if it was written.
    pub(crate) object: Option<Trimmed<CsiNode>>,
    pub(crate) result: Result<(), NotPublished>,
}

impl Limits {
    /// Takes in that a CSINode changed or is gone.
    pub(crate) fn observe(&mut self, name: &Arc<str>, node: Option<&CsiNode>, now: Instant) {
        let Some(node) = node else {
            if let Some(entry) = self.nodes.remove(name) {
                self.due.remove(&(entry.due, Arc::clone(name)));
                self.running -= usize::from(entry.running);
            }
            return;
        };
        if self.nodes.get(name).is_some_and(|entry| entry.node_id == node.node_id) {
            return;
        }
        self.observe(name, None, now);
        let entry = Entry {
            node_id: node.node_id.clone(),
            due: now,
            running: false,
            read: None,
            failures: 0,
            awaited: false,
        };
        self.nodes.insert(Arc::clone(name), entry);
        self.due.insert((now, Arc::clone(name)));
    }

    /// An attach was refused because the VM is full: the limit is read again.
    pub(crate) fn refused(&mut self, name: &Arc<str>, now: Instant) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let free = entry.read.map_or(now, |read| (read + PAUSE).max(now));
        if free > now {
            // It was read a moment ago; what was refused then need not wait.
            self.schedule(name, free);
            return;
        }
        entry.awaited = true;
        self.schedule(name, now);
    }

    /// Whether a refused attach waits until the limit of its node is published.
    pub(crate) fn is_awaited(&self, name: &str) -> bool {
        self.nodes.get(name).is_some_and(|entry| entry.awaited)
    }

    /// When the next node is due, if one more may run.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let (due, _) = self.due.first()?;
        (self.running < CONCURRENT).then_some(*due)
    }

    /// Takes a node that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Arc<str>, String)> {
        if self.next_due().is_none_or(|due| due > now) {
            return None;
        }
        let (_, name) = self.due.pop_first()?;
        let entry = self.nodes.get_mut(&name)?;
        entry.running = true;
        self.running += 1;
        Some((name, entry.node_id.clone()))
    }

    /// A limit was published, or not.
    pub(crate) fn finish(&mut self, name: &Arc<str>, success: bool, now: Instant) {
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| entry.running) else { return };
        self.running -= 1;
        (entry.running, entry.awaited, entry.read) = (false, false, Some(now));
        entry.failures = if success { 0 } else { entry.failures.saturating_add(1) };
        let retry = RETRY.saturating_mul(1 << entry.failures.saturating_sub(1).min(10));
        let pause = if success { EVERY } else { retry.min(EVERY) };
        self.schedule(name, now + pause.mul_f64(spread()));
    }

    fn schedule(&mut self, name: &Arc<str>, due: Instant) {
        let Some(entry) = self.nodes.get_mut(name).filter(|entry| !entry.running) else { return };
        self.due.remove(&(entry.due, Arc::clone(name)));
        entry.due = due;
        self.due.insert((due, Arc::clone(name)));
    }
}

/// Reads the limit of a node and publishes it, unless that is what is `published`.
pub(crate) async fn publish(
    volumes: Volumes,
    writer: Writer,
    name: Arc<str>,
    node_id: String,
    published: Option<String>,
) -> Published {
    let limit = match volumes.slots(&node_id).await {
        Ok(slots) => slots.to_string(),
        Err(refusal) => {
            let result = Err(NotPublished::Unread(refusal));
            return Published { name, object: None, result };
        }
    };
    if published.as_ref() == Some(&limit) {
        return Published { name, object: None, result: Ok(()) };
    }
    let written = writer.publish_limit(&name, &limit).await;
    if written.result.is_ok() {
        info!(node = %name, from = published, to = limit, "limit of volumes published");
    }
    let result = written.result.map_err(NotPublished::Unwritten);
    Published { name, object: written.object, result }
}

#[cfg(test)]
mod tests {
    use super::{Arc, CONCURRENT, CsiNode, Duration, EVERY, Instant, Limits, PAUSE, RETRY};

    fn node(id: &str) -> CsiNode {
        CsiNode { node_id: id.to_owned(), limit: None }
    }

    fn name() -> Arc<str> {
        "node-1".into()
    }

    #[test]
    fn a_node_is_read_at_first_sight_then_every_ten_minutes() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        limits.observe(&name(), Some(&node("a")), now);
        assert_eq!(limits.take_due(now), Some((name(), "a".to_owned())));
        assert_eq!(limits.take_due(now), None, "one read at a time");
        limits.finish(&name(), true, now);
        assert_eq!(limits.take_due(now + EVERY.mul_f64(0.8)), None);
        limits.observe(&name(), Some(&node("a")), now);
        assert_eq!(limits.take_due(now + EVERY.mul_f64(0.8)), None, "nothing is new");
        assert!(limits.take_due(now + EVERY.mul_f64(1.2)).is_some());
    }

    #[test]
    fn another_vm_under_the_same_name_is_read_at_once_and_a_node_that_is_gone_is_not() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        limits.observe(&name(), Some(&node("a")), now);
        limits.take_due(now).unwrap();
        limits.observe(&name(), Some(&node("b")), now);
        assert_eq!(limits.take_due(now), Some((name(), "b".to_owned())));
        limits.observe(&name(), None, now);
        limits.finish(&name(), true, now);
        assert_eq!((limits.take_due(now + EVERY * 2), limits.running), (None, 0));
    }

    #[test]
    fn a_refused_attach_has_the_limit_read_at_once_and_many_of_them_once() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        limits.observe(&name(), Some(&node("a")), now);
        limits.take_due(now).unwrap();
        limits.finish(&name(), true, now);
        let later = now + PAUSE;
        limits.refused(&name(), later);
        limits.refused(&name(), later);
        assert!(limits.is_awaited("node-1") && limits.take_due(later).is_some());
        limits.refused(&name(), later);
        assert_eq!(limits.take_due(later), None);
        limits.finish(&name(), true, later);
        assert!(!limits.is_awaited("node-1"));
        limits.refused(&name(), later);
        assert!(!limits.is_awaited("node-1") && limits.take_due(later).is_none(), "read just now");
        assert!(limits.take_due(later + PAUSE).is_some());
    }

    #[test]
    fn what_cannot_be_read_is_tried_again_ever_later() {
        let (mut limits, mut now) = (Limits::default(), Instant::now());
        limits.observe(&name(), Some(&node("a")), now);
        for factor in [1, 2, 4, 8] {
            limits.take_due(now).unwrap();
            limits.finish(&name(), false, now);
            assert_eq!(limits.take_due(now + (RETRY * factor).mul_f64(0.8)), None);
            now += (RETRY * factor).mul_f64(1.2);
        }
    }

    #[test]
    fn only_some_nodes_are_read_at_once() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        for number in 0..100 {
            limits.observe(&format!("node-{number}").into(), Some(&node("a")), now);
        }
        let taken: Vec<_> = std::iter::from_fn(|| limits.take_due(now)).collect();
        assert_eq!((taken.len(), limits.next_due()), (CONCURRENT, None));
        limits.finish(&taken[0].0, true, now);
        assert!(limits.take_due(now + Duration::from_millis(1)).is_some());
    }
}
