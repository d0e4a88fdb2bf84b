//! After an attempt that failed: what proves that nothing was made, and what is done until that is proven.
//!
//! Another datastore is tried only after such a proof. A fault of the disk layer is none: a time-out, or a fault without a
//! reason, may come before the work ends, and the volume would be there twice. Such an attempt stays open, its datastore
//! counts as one that failed, and the others come first when the time for late work is over and nothing was found.

use vsphere::{
    cns::NewVolume,
    error::{Error, Missing, Remedy},
    inventory,
    types::Datastore,
};

use super::{
    super::{
        attempts::{Failure, note_doubt, while_open},
        bytes,
        journal::{Plan, Record},
        refused::{is_ambiguous, refused},
    },
    Creation, Tried,
};
use crate::refusal::{Kind, Refusal};

impl Creation<'_> {
    /// After a failure: nothing was made, or it is adopted.
    pub(super) async fn failed(
        &self,
        record: Record,
        plan: &Plan,
        new: &NewVolume,
        failure: Failure,
    ) -> Result<Tried, Refusal> {
        if let Some(name) = &self.request.policy {
            self.site.policies.forget(name);
        }
        if let Some(found) = self.find().await.map_err(while_open)? {
            return Ok(Tried::Made(self.adopt(found, Some(record)).await?));
        }
        let Failure { error, is_proof } = failure;
        if is_ambiguous(&error) {
            // CNS restarted, and what it began may still end. The datastore is not to blame.
            return Err(self.open(Some(record), error).await);
        }
        let is_full = error.remedy == Remedy::Refused && self.is_full(plan, new).await;
        if !is_proof && !is_full {
            return Err(self.doubt(record, plan, error).await);
        }
        let record = self.inner.journal.failed(record, &error.to_string()).await?;
        let kind = if is_full { Kind::Exhausted } else { refused("", error.clone()).kind };
        match error.remedy {
            Remedy::NoSpace
            | Remedy::Refused
            | Remedy::NoPermission { .. }
            | Remedy::NotFound { what: Missing::Object(_) | Missing::Unnamed }
            | Remedy::Retry => Ok(Tried::NotThere(kind, error, Box::new(record))),
            _ => Err(self.refused(error)),
        }
    }

    /// The refusal while vCenter may still make the volume although it reported a failure.
    async fn doubt(&self, record: Record, plan: &Plan, error: Error) -> Refusal {
        let mut plan = plan.clone();
        plan.failed.push(plan.datastore.clone());
        // If it cannot be recorded, the next request tries the same datastore again.
        note_doubt(&self.inner.journal, &self.request.name, record, Some(&plan), &error).await;
        while_open(self.refused(error))
    }

    /// Whether the datastore that did not take the volume is full by now: vCenter may report that with the same fault as
    /// any other failure. With `--overcommit`, free space is not a reason.
    async fn is_full(&self, plan: &Plan, new: &NewVolume) -> bool {
        let Some(datastore) = new.datastores.first() else { return false };
        if self.inner.overcommit {
            return false;
        }
        let read = self.connection.read_one::<inventory::Datastore, Datastore>(datastore);
        let lacks = |free: i64| u64::try_from(free).is_ok_and(|free| free < bytes(plan.size));
        matches!(read.await, Ok(Some(now)) if now.is_usable() && lacks(now.free))
    }
}
