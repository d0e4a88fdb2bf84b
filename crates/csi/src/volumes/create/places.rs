//! The datastores that a new volume may go to, in the order in which they are tried.

use std::collections::BTreeSet;

use vsphere::{
    cns::{Content, NewVolume},
    reference::Ref,
    types::Datastore,
};

use super::{
    super::{
        bytes,
        journal::{self, Attempt, Plan, Record},
        names::chosen_id,
        placement::{Candidate, Decision, Size, Wish, decide},
        sources::{self, Original},
    },
    Creation,
};
use crate::refusal::{Kind, Refusal};

/// Datastores that one request tries.
const MOST_TRIES: usize = 3;

/// Where a volume may go, and what is asked of vCenter.
pub(super) struct Places {
    pub(super) best: Candidate,
    /// The next best ones.
    pub(super) others: Vec<Candidate>,
    /// Without a datastore.
    pub(super) new: NewVolume,
    /// Datastores that did not take the volume, by their ids.
    pub(super) failed: Vec<String>,
    /// The volume's size.
    pub(super) mebibytes: i64,
    /// What helps if none takes it.
    pub(super) advice: Option<String>,
}

impl Creation<'_> {
    /// Decides where the volume may go. Whatever may take time is done here, before the record, which says when vCenter
    /// was called.
    pub(super) async fn choose(
        &self,
        record: Option<&Record>,
        original: Option<&Original>,
    ) -> Result<Places, Refusal> {
        let mebibytes = self.size_with(original)?;
        let (decision, policy) = self.decide(mebibytes).await?;
        let mut candidates: Vec<Candidate> = decision.candidates().cloned().collect();
        // A repeated call names the same datastore, so that vCenter finds what it may have made there.
        let earlier = record.filter(|one| self.site.is_named(journal::vcenter(one)));
        let (open, mut failed) = earlier.map(tried).unwrap_or_default();
        let has_failed = |one: &Candidate, failed: &[String]| {
            failed.iter().any(|failed| failed == one.store.datastore.value())
        };
        if candidates.iter().all(|one| has_failed(one, &failed)) {
            failed.clear();
        }
        candidates.sort_by_key(|one| {
            let is_elsewhere = original.is_some_and(|original| !original.is_at(&one.store.url));
            let is_other = Some(one.store.datastore.value()) != open.as_deref();
            (is_other, has_failed(one, &failed), is_elsewhere)
        });
        let mut candidates = candidates.into_iter().take(MOST_TRIES);
        let Some(best) = candidates.next() else {
            return Err(decision.refusal(&self.request.name));
        };
        let others = candidates.collect();
        let content = self.content(mebibytes, original).await?;
        let new = self.new_volume(policy, content).await?;
        let advice = original.map(Original::advice);
        Ok(Places { best, others, new, failed, mebibytes, advice })
    }

    /// The size of a volume in MiB: as requested, and not less than its source has.
    fn size_with(&self, original: Option<&Original>) -> Result<i64, Refusal> {
        let Some(original) = original else { return Ok(self.mebibytes) };
        let size = bytes(original.mebibytes);
        if let Some(limit) = self.request.limit.filter(|limit| size > *limit) {
            let (size, limit) = (Size(size), Size(limit));
            let what = format!(
                "volume {}: its source has {size}, and at most {limit} are allowed",
                self.request.name
            );
            return Err(Refusal::new(Kind::OutOfRange, what));
        }
        Ok(original.mebibytes.max(self.mebibytes))
    }

    /// What the volume holds in the beginning. One with a source is made as large as that, which every release can, and
    /// grown afterwards.
    async fn content(
        &self,
        mebibytes: i64,
        original: Option<&Original>,
    ) -> Result<Content, Refusal> {
        let (Some(source), Some(original)) = (&self.request.source, original) else {
            return Ok(Content::Empty { mebibytes, encryption: None });
        };
        let (inner, name) = (self.inner, &self.request.name);
        let snapshot = sources::snapshot(inner, self.site, &self.connection, source, name).await?;
        Ok(Content::Snapshot {
            mebibytes: original.mebibytes,
            volume: snapshot.volume.as_str().into(),
            snapshot: snapshot.snapshot.as_str().into(),
            linked: false,
        })
    }

    async fn new_volume(
        &self,
        policy: Option<String>,
        content: Content,
    ) -> Result<NewVolume, Refusal> {
        let takes_ids = self.connection.volumes().takes_chosen_ids().await;
        let takes_ids = takes_ids.map_err(|error| self.refused(error))?;
        let id = || chosen_id(&self.request.name, &self.site.cluster).as_str().into();
        Ok(NewVolume {
            policy,
            metadata: Some(self.metadata().await?),
            id: takes_ids.then(id),
            ..NewVolume::new(&self.name, content)
        })
    }

    async fn decide(&self, mebibytes: i64) -> Result<(Decision, Option<String>), Refusal> {
        let inventory = self.site.places(&self.inner.nodes_in(self.site))?;
        let wish = Wish {
            bytes: bytes(mebibytes),
            selection: self.request.selection.clone(),
            overcommit: self.inner.overcommit,
            segments: self.request.segments.clone(),
        };
        let mut decision = decide(&inventory, &wish);
        let Some(name) = &self.request.policy else {
            return self.decided(decision, None);
        };
        let datastores: BTreeSet<Ref<Datastore>> =
            decision.candidates().map(|one| one.store.datastore.clone()).collect();
        let found = self.site.policies.find(&self.connection, name, &datastores).await;
        let policy = found.map_err(|error| self.refused(error))?;
        decision.exclude(&policy.rejected);
        self.decided(decision, Some(policy.id))
    }

    fn decided(
        &self,
        mut decision: Decision,
        policy: Option<String>,
    ) -> Result<(Decision, Option<String>), Refusal> {
        let (volume, vcenter) = (&self.request.name, &self.site.server);
        let resolved = decision.resolve_names(volume);
        tracing::debug!(volume, vcenter, %decision, "datastores compared");
        resolved?;
        Ok((decision, policy))
    }
}

/// The datastore of an attempt that may have made something there, and those that took nothing.
fn tried(record: &Record) -> (Option<String>, Vec<String>) {
    let Some(Plan { datastore, mut failed, .. }) = journal::plan(record) else {
        return Default::default();
    };
    if journal::attempt(record) != Some(Attempt::Failed) {
        // One that failed without a proof is among them.
        let is_open = !failed.contains(&datastore);
        return (is_open.then_some(datastore), failed);
    }
    failed.push(datastore);
    (None, failed)
}
