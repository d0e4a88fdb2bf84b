//! Taking a snapshot, once, however often it is asked for.
//!
//! ```text
//!   record ─► started: wait for its task ─┐
//!      └─► called, done, failed, none ────┴─► search by description ─► found: adopt
//!                                                    └─ none ─► within the limit ─► record: called ─► CNS ─► record: done
//! ```
//!
//! CNS does not let every release choose the ids of snapshots, so what tells whose a snapshot is, is its description: the
//! name of the request and the volume, in the Go driver's form. Snapshots that it took are found by it, too.

use vsphere::{
    cns::TakenSnapshot,
    connection::Connection,
    error::{Error, Remedy},
    types::{CnsSnapshot, CnsSnapshotCreateSpec, CnsVolume},
};

use super::{
    super::{
        Inner, LIMIT,
        attempts::{self, Failure, is_lost, is_running, note_doubt, while_open},
        bytes,
        change::{self, Left, may_be_unknown},
        journal::{self, Attempt, Purpose, Record},
        refused::{is_ambiguous, is_certain, proves_absence},
        site::Site,
        sources,
    },
    Snapshot, SnapshotId, find, not_done, of_volume, require_snapshots, shown,
};
use crate::refusal::{Kind, Refusal};

/// What a snapshot is recorded and recognised by.
pub(in crate::volumes) struct Wanted {
    pub(in crate::volumes) volume: String,
    /// What it was requested as; of one volume only.
    pub(in crate::volumes) name: String,
    /// The name of its record.
    pub(in crate::volumes) record: String,
    pub(in crate::volumes) description: String,
    /// Whether it counts among those that a volume may have.
    pub(in crate::volumes) is_limited: bool,
}

impl Wanted {
    pub(super) fn of_request(volume: &str, name: &str) -> Self {
        // The Go driver has one form for both.
        let text = format!("{name}-{volume}");
        let (volume, name, description) = (volume.to_owned(), name.to_owned(), text.clone());
        Self { volume, name, record: text, description, is_limited: true }
    }
}

/// One request for one snapshot, which holds its volume.
pub(in crate::volumes) struct Taking<'a> {
    pub(in crate::volumes) inner: &'a Inner,
    pub(in crate::volumes) site: &'a Site,
    pub(in crate::volumes) connection: &'a Connection,
    pub(in crate::volumes) wanted: Wanted,
}

impl Taking<'_> {
    pub(in crate::volumes) async fn run(&self) -> Result<Snapshot, Refusal> {
        require_snapshots(self.site, self.connection).await?;
        let record = self.inner.journal.read(&self.wanted.record).await?;
        if record.is_none() {
            self.refuse_other_volume().await?;
        }
        let mut uncertain = None;
        match record.as_ref().and_then(journal::attempt) {
            Some(Attempt::Started { task, vcenter, at }) if self.site.is_named(&vcenter) => {
                let resumed = self.connection.volumes().resume::<TakenSnapshot>(&task);
                match resumed.wait(LIMIT).await {
                    Ok(taken) if self.is_meant(&taken.snapshot) => {
                        let volume = self.volume().await.map_err(while_open)?;
                        return self.finish(taken, volume.as_ref(), record).await;
                    }
                    Err(error) if is_running(&error) => return Err(self.open(record, error).await),
                    Err(error)
                        if !is_lost(&error) && !is_ambiguous(&error) && proves_absence(&error) => {}
                    // A vCenter that was restored gives ids of tasks again.
                    _ => uncertain = Some(at),
                }
            }
            Some(Attempt::Started { at, .. } | Attempt::Called { at }) => uncertain = Some(at),
            Some(Attempt::Done { .. } | Attempt::Failed) | None => {}
        }
        let volume = self.volume().await?;
        let all = of_volume(self.connection, &self.wanted.volume).await;
        let all = all
            .map_err(|error| self.refused(error))
            .map_err(|refusal| if uncertain.is_some() { while_open(refusal) } else { refusal })?;
        if let Some(found) = self.earliest(&all) {
            return self.adopt(found, volume.as_ref(), record).await;
        }
        if let Some(at) = uncertain {
            let (what, server) = (self.what(), &self.site.server);
            attempts::wait_out(self.inner, &what, server, (at, record.as_ref())).await?;
        }
        if self.wanted.is_limited {
            self.check_limit(&all, volume.as_ref())?;
        }
        Box::pin(self.attempt(record, volume.as_ref())).await
    }

    /// Whether the snapshot of a task is the one that is wanted: one that CNS failed to enter in its own records has no
    /// description.
    fn is_meant(&self, taken: &CnsSnapshot) -> bool {
        let Wanted { volume, description, .. } = &self.wanted;
        taken.volume_id.id == *volume
            && taken.description.as_ref().is_none_or(|text| text == description)
    }

    /// Refuses a name under which a snapshot of another volume was requested lately.
    async fn refuse_other_volume(&self) -> Result<(), Refusal> {
        let Wanted { name, record: own, .. } = &self.wanted;
        for other in self.inner.journal.snapshots_named(name).await? {
            let is_left = match (journal::attempt(&other), journal::snapshot(&other)) {
                _ if other.spec.name == *own => false,
                (Some(Attempt::Done { volume }), Some(snapshot)) => {
                    let id = SnapshotId { volume, snapshot: snapshot.to_owned() };
                    find(self.connection, &id).await?.is_some()
                }
                (latest, _) => latest != Some(Attempt::Failed),
            };
            if is_left {
                let what = self.what();
                let what = format!("{what}: {name} was requested as that of another volume");
                return Err(Refusal::new(Kind::Differs, what));
            }
        }
        Ok(())
    }

    /// The volume as CNS has it; nothing if it shows it late or has lost it.
    async fn volume(&self) -> Result<Option<CnsVolume>, Refusal> {
        let id = &self.wanted.volume;
        let found = change::find(self.connection, id).await?;
        if found.is_none() {
            let disk = change::disk(self.connection, id).await;
            if disk.map_err(|error| self.refused(error))?.is_none() {
                return Err(change::absent(id));
            }
        }
        Ok(found)
    }

    /// The first of the snapshots that were taken for this request: there are several only if one was taken after it had
    /// been given up for lost.
    fn earliest<'s>(&self, all: &'s [CnsSnapshot]) -> Option<&'s CnsSnapshot> {
        let ours = |one: &&CnsSnapshot| one.description.as_ref() == Some(&self.wanted.description);
        all.iter().filter(ours).min_by_key(|one| (one.create_time, &one.snapshot_id.id))
    }

    fn check_limit(&self, all: &[CnsSnapshot], volume: Option<&CnsVolume>) -> Result<(), Refusal> {
        let url = volume.and_then(|volume| volume.datastore_url.as_deref()).unwrap_or_default();
        let limit = usize::try_from(self.site.snapshot_limit(url)).unwrap_or(usize::MAX);
        let counted = all.iter().filter(|one| !sources::is_temporary(one)).count();
        if counted < limit {
            return Ok(());
        }
        let what =
            format!("{}: the volume has {counted} snapshots, and may have {limit}", self.what());
        Err(Refusal::new(Kind::Exhausted, what).remedy(
            "delete one of them, or raise global-max-snapshots-per-block-volume in the section [Snapshot] of the \
             configuration; vSphere allows 32",
        ))
    }

    /// Takes it; a volume that CNS has lost is registered again first.
    async fn attempt(
        &self,
        record: Option<Record>,
        volume: Option<&CnsVolume>,
    ) -> Result<Snapshot, Refusal> {
        let (record, failure) = match self.call(record).await? {
            (record, Ok(taken)) => return self.finish(taken, volume, Some(record)).await,
            (record, Err(failure)) => (record, failure),
        };
        if let Some(found) = self.search().await? {
            return self.adopt(&found, volume, Some(record)).await;
        }
        if !may_be_unknown(&failure.error) {
            return Err(self.give_up(record, failure).await);
        }
        let (id, is_unknown) =
            (&self.wanted.volume, matches!(failure.error.remedy, Remedy::NotFound { .. }));
        let left = change::restore(self.site, self.connection, id, is_unknown).await;
        match left.map_err(while_open)? {
            Left::Nothing => {
                self.fail(record, &failure.error).await?;
                Err(change::absent(id).because(failure.error))
            }
            Left::Known => Err(self.give_up(record, failure).await),
            // What CNS does not know it cannot have begun to copy.
            Left::Restored => {
                let record = self.fail(record, &failure.error).await?;
                let (record, again) = self.call(Some(record)).await?;
                let failure = match again {
                    Ok(taken) => return self.finish(taken, volume, Some(record)).await,
                    Err(failure) => failure,
                };
                match self.search().await? {
                    Some(found) => self.adopt(&found, volume, Some(record)).await,
                    None => Err(self.give_up(record, failure).await),
                }
            }
        }
    }

    /// One call, recorded before and after. If its outcome is not known, the record stays open.
    async fn call(
        &self,
        record: Option<Record>,
    ) -> Result<(Record, Result<TakenSnapshot, Failure>), Refusal> {
        let (journal, name) = (&self.inner.journal, &self.wanted.record);
        let purpose = Purpose::Snapshot(&self.wanted.name);
        let server = &self.site.server;
        let begun = match record {
            Some(record) => Some(journal.begin(record, server, purpose).await?),
            None => journal.begin_first(name, server, purpose).await?,
        };
        let record = begun.ok_or_else(|| journal::busy(name))?;
        let spec = CnsSnapshotCreateSpec {
            volume_id: self.wanted.volume.as_str().into(),
            description: self.wanted.description.clone(),
            snapshot_id: None,
        };
        let started = match self.connection.volumes().create_snapshot(&spec).await {
            Ok(started) => started,
            Err(error) if !is_certain(&error) => return Err(self.open(Some(record), error).await),
            Err(error) => return Ok((record, Err(Failure::of_call(error)))),
        };
        let (record, ended) = attempts::follow(journal, name, record, &started).await;
        match ended {
            Err(error) if is_running(&error) || is_lost(&error) || is_ambiguous(&error) => {
                Err(self.open(Some(record?), error).await)
            }
            ended => Ok((record?, ended.map_err(Failure::of_task))),
        }
    }

    /// The snapshot that an attempt took although it failed: some faults come after the work.
    async fn search(&self) -> Result<Option<CnsSnapshot>, Refusal> {
        let all = of_volume(self.connection, &self.wanted.volume).await;
        let all = all.map_err(|error| while_open(self.refused(error)))?;
        Ok(self.earliest(&all).cloned())
    }

    /// The refusal after an attempt that took nothing. Unless its fault proves that it will not either, its record stays
    /// open, so that the next attempt waits.
    async fn give_up(&self, record: Record, Failure { error, is_proof }: Failure) -> Refusal {
        if !is_proof {
            note_doubt(&self.inner.journal, &self.wanted.record, record, None, &error).await;
            return while_open(self.refused(error));
        }
        match self.fail(record, &error).await {
            Ok(_) => self.refused(error),
            Err(refusal) => refusal,
        }
    }

    async fn fail(&self, record: Record, error: &Error) -> Result<Record, Refusal> {
        let failed = self.inner.journal.failed(record, &error.to_string()).await;
        failed.map_err(while_open)
    }

    async fn finish(
        &self,
        taken: TakenSnapshot,
        volume: Option<&CnsVolume>,
        record: Option<Record>,
    ) -> Result<Snapshot, Refusal> {
        let mut snapshot = taken.snapshot;
        if snapshot.description.is_none() {
            // CNS failed to enter it in its own records and reported the ids only.
            let found = find(self.connection, &SnapshotId::of(&snapshot)).await;
            snapshot = found.map_err(while_open)?.unwrap_or(snapshot);
        }
        self.adopt(&snapshot, volume, record).await
    }

    async fn adopt(
        &self,
        found: &CnsSnapshot,
        volume: Option<&CnsVolume>,
        record: Option<Record>,
    ) -> Result<Snapshot, Refusal> {
        let mut snapshot = shown(found, volume);
        if snapshot.bytes == 0 {
            let size = change::disk(self.connection, &self.wanted.volume).await;
            let size = size.map_err(|error| while_open(self.refused(error)))?;
            snapshot.bytes = bytes(size.unwrap_or_default());
        }
        let id = &snapshot.id;
        if let Some(record) = record
            && journal::snapshot(&record) != Some(&id.snapshot)
        {
            let written = self.inner.journal.taken(record, &id.volume, &id.snapshot).await;
            written.map_err(while_open)?;
        }
        Ok(snapshot)
    }

    async fn open(&self, record: Option<Record>, error: Error) -> Refusal {
        attempts::note_under_way(&self.inner.journal, &self.wanted.record, record).await;
        while_open(self.refused(error))
    }

    fn what(&self) -> String {
        format!("no snapshot of volume {} was taken", self.wanted.volume)
    }

    fn refused(&self, error: Error) -> Refusal {
        not_done(self.what(), error)
    }
}
