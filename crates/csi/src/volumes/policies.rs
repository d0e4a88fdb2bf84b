//! Storage policies: names as people write them, and which datastores fit.
//!
//! Answers are kept for a minute, so that creating many volumes of one class costs few requests. Whoever finds that
//! an answer is out of date forgets it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use vsphere::{connection::Connection, error::Error, reference::Ref, types::Datastore};

const KEPT: Duration = Duration::from_secs(60);

/// The policies of one vCenter, as far as they were used lately.
#[derive(Debug, Default)]
pub(super) struct Policies(Mutex<HashMap<String, Known>>);

/// A policy that a StorageClass names.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub(super) id: String,
    /// The datastores that do not fit, and why.
    pub(super) rejected: BTreeMap<Ref<Datastore>, String>,
}

#[derive(Debug)]
struct Known {
    read: Instant,
    policy: Policy,
    judged: BTreeSet<Ref<Datastore>>,
}

impl Policies {
    /// The policy of this name, with a judgement of these datastores.
    pub(super) async fn find(
        &self,
        connection: &Connection,
        name: &str,
        datastores: &BTreeSet<Ref<Datastore>>,
    ) -> Result<Policy, Error> {
        if let Some(known) = self.lock().get(name)
            && known.read.elapsed() < KEPT
            && known.judged.is_superset(datastores)
        {
            return Ok(known.policy.clone());
        }
        let policies = connection.policies().await?;
        let id = policies.id_of(name).await?;
        let asked: Vec<_> = datastores.iter().cloned().collect();
        let judged = policies.compatibility(&id, &asked).await?;
        let why = |reasons: &[vsphere::fault::Fault]| {
            let texts: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            if texts.is_empty() { "vCenter gives no reason".to_owned() } else { texts.join(", ") }
        };
        let mut rejected: BTreeMap<_, _> =
            judged.incompatible.into_iter().map(|one| (one.datastore, why(&one.reasons))).collect();
        // A datastore without a judgement is not one that fits.
        let accepted: BTreeSet<_> =
            judged.compatible.into_iter().map(|one| one.datastore).collect();
        for datastore in datastores.difference(&accepted) {
            rejected
                .entry(datastore.clone())
                .or_insert_with(|| "vCenter gives no reason".to_owned());
        }
        let policy = Policy { id, rejected };
        let known =
            Known { read: Instant::now(), policy: policy.clone(), judged: datastores.clone() };
        let mut all = self.lock();
        all.retain(|_, known| known.read.elapsed() < KEPT);
        all.insert(name.to_owned(), known);
        Ok(policy)
    }

    /// Forgets a policy, which has changed.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
