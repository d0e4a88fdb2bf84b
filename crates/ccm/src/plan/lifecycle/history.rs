//! What the next plan has to know of earlier ones: since when, how often, and how many.
//!
//! Times are when this process saw something, not when a kubelet reported that it happened: after a restart
//! everything is seen for the first time, and nothing is deleted early. A Node that was created anew under an
//! old name has another uid, and no past.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use jiff::{SignedDuration, Timestamp};

use crate::plan::lifecycle::{
    Moment, Settings,
    proof::{Proof, Refusal},
};

/// Everything by the uid of the Node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History {
    unready: HashMap<String, Unready>,
    /// When a deletion was decided. Kept for the window, and for Nodes that still exist for longer.
    deletions: HashMap<String, Instant>,
}

/// A Node that is not ready.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Unready {
    since: Instant,
    /// How often in a row its VM was proven to be gone.
    proven: u32,
    /// When that was last counted, by the wall clock.
    counted: Option<Timestamp>,
}

impl History {
    /// What still matters of deletions when these Nodes exist; nothing yet of those that are not ready.
    pub(super) fn carried_over<'a>(
        &self,
        existing: impl Iterator<Item = &'a str>,
        window: SignedDuration,
        now: Moment,
    ) -> Self {
        let existing: HashSet<&str> = existing.collect();
        let matters = |(uid, at): &(&String, &Instant)| {
            is_recent(**at, window, now) || existing.contains(uid.as_str())
        };
        let deletions = self.deletions.iter().filter(matters);
        Self {
            unready: HashMap::new(),
            deletions: deletions.map(|(uid, at)| (uid.clone(), *at)).collect(),
        }
    }

    pub(super) fn unready(&self, uid: &str, now: Moment) -> Unready {
        let known = self.unready.get(uid).cloned();
        known.unwrap_or(Unready { since: now.monotonic, proven: 0, counted: None })
    }

    pub(super) fn keep(&mut self, uid: &str, unready: Unready) {
        self.unready.insert(uid.to_owned(), unready);
    }

    /// When this Node was last to be deleted.
    pub(super) fn deletion_of(&self, uid: &str) -> Option<Instant> {
        self.deletions.get(uid).copied()
    }

    /// Counts a deletion, unless the window is full. A deletion that is tried again counts once.
    pub(super) fn delete(
        &mut self,
        uid: &str,
        limit: usize,
        window: SignedDuration,
        now: Moment,
    ) -> bool {
        let recent = |at: &&Instant| is_recent(**at, window, now);
        if self.deletions.get(uid).as_ref().is_some_and(recent) {
            return true;
        }
        let room = self.deletions.values().filter(recent).count() < limit;
        if room {
            self.deletions.insert(uid.to_owned(), now.monotonic);
        }
        room
    }
}

fn is_recent(at: Instant, window: SignedDuration, now: Moment) -> bool {
    now.since(at) < window
}

impl Unready {
    /// Counts a proof whose answers are newer than the last count; without proof the row begins anew.
    pub(super) fn check(&mut self, proven_by: Option<Timestamp>, now: Moment) {
        let Some(answers) = proven_by else {
            (self.proven, self.counted) = (0, None);
            return;
        };
        if self.counted.is_some_and(|counted| counted > now.wall) {
            // The wall clock was set back, so answers cannot be compared with the last count.
            (self.proven, self.counted) = (0, None);
        }
        if self.counted.is_none_or(|counted| answers > counted) {
            self.proven = self.proven.saturating_add(1);
            self.counted = Some(now.wall);
        }
    }

    /// The proof, once it has held long and often enough.
    pub(super) fn is_due(
        &self,
        proof: Proof,
        settings: &Settings,
        now: Moment,
    ) -> Result<Proof, Refusal> {
        let early = now.since(self.since) < settings.grace;
        if early || self.proven < settings.checks.max(1) {
            return Err(Refusal::TooEarly);
        }
        Ok(proof)
    }
}
