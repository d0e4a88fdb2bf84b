//! What has to be remembered between two plans: since when, how often, and how many.
//!
//! Times are when we saw something, not when a kubelet's clock said it happened: after a restart everything
//! is seen for the first time, and nothing is deleted early. A Node that was made anew under an old name has
//! another uid, and no past.

use std::collections::{HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};

use crate::lifecycle::{
    Settings,
    proof::{Proof, Refusal},
};

/// The past, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    /// Nodes that are not ready, by uid.
    unready: HashMap<String, Watched>,
    /// Nodes that were to be deleted, by uid.
    deleted: HashMap<String, Timestamp>,
}

/// A Node that is not ready.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Watched {
    /// When that was first seen.
    since: Timestamp,
    /// How often in a row its VM was proven to be gone.
    proven: u32,
    /// When that was last counted.
    counted: Option<Timestamp>,
}

impl History {
    /// What still matters, without the Nodes that are to be watched on.
    pub(super) fn aged(&self, window: SignedDuration, now: Timestamp) -> Self {
        let recent = |at: &Timestamp| now.duration_since(*at) < window;
        let deleted = self.deleted.iter().filter(|(_, at)| recent(at));
        Self {
            unready: HashMap::new(),
            deleted: deleted.map(|(uid, at)| (uid.clone(), *at)).collect(),
        }
    }

    pub(super) fn watched(&self, uid: &str, now: Timestamp) -> Watched {
        let known = self.unready.get(uid).cloned();
        known.unwrap_or(Watched { since: now, proven: 0, counted: None })
    }

    pub(super) fn watch(&mut self, uid: &str, watched: Watched) {
        self.unready.insert(uid.to_owned(), watched);
    }

    pub(super) fn delete(&mut self, uid: &str, now: Timestamp) {
        self.deleted.entry(uid.to_owned()).or_insert(now);
    }

    /// Deletions that are not about one of these.
    pub(super) fn deleted_besides(&self, uids: &HashSet<&str>) -> usize {
        self.deleted.keys().filter(|uid| !uids.contains(uid.as_str())).count()
    }
}

impl Watched {
    /// Counts a proof whose answers are newer than the last count; without proof the row begins anew.
    pub(super) fn check(&mut self, proven_by: Option<Timestamp>, now: Timestamp) {
        let Some(answers) = proven_by else {
            (self.proven, self.counted) = (0, None);
            return;
        };
        if self.counted.is_none_or(|counted| answers > counted) {
            self.proven = self.proven.saturating_add(1);
            self.counted = Some(now);
        }
    }

    /// The proof, once it has held long and often enough.
    pub(super) fn is_due(
        &self,
        proof: Proof,
        settings: &Settings,
        now: Timestamp,
    ) -> Result<Proof, Refusal> {
        let early = now.duration_since(self.since) < settings.grace;
        if early || self.proven < settings.checks.max(1) {
            return Err(Refusal::TooEarly);
        }
        Ok(proof)
    }
}
