//! Creating a volume, once, however often it is asked for and whatever ends in between.
//!
//! ```text
//!   record ──none──► search by name ──none──► choose a datastore ─► record: called ─► CNS ─► record: started, wait ─► record: done
//!     │                    └─found─► adopt            ▲                                                       │
//!     ├──done──► verify ─► answer                     └────────── next datastore ◄── proven absent ◄── failed ┘
//!     ├──started─► wait for its task
//!     └──called, failed, task lost─► search by name, thoroughly
//! ```
//!
//! An attempt whose outcome is unknown is never followed by another before the volume was searched for: in CNS,
//! whose answers may be minutes old, and among the first class disks, which are not cached. A volume that exists is
//! adopted, never deleted.

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use vsphere::{
    cns::{Content, Created, NewVolume},
    connection::Connection,
    error::{Cause, Error, Missing, Remedy},
    inventory::Uuid,
    reference::Ref,
    types::{Datastore, VslmVsoVStorageObjectResult},
    vslm,
};

use super::{
    Create, Inner, Volume, bytes,
    journal::{self, Attempt, Plan, Record},
    placement::{Candidate, Decision, Size, Wish, decide},
    refused::{is_certain, refused},
    site::Site,
    size_of,
};
use crate::refusal::{Kind, Refusal};

/// The longest name that CNS is known to take.
const LONGEST_NAME: usize = 80;
/// In the metadata of a first class disk: the cluster that CNS made it for.
const CLUSTER_OF_DISK: &str = "cns.containerCluster.clusterId";
/// How soon a task is recorded again that could not be.
const RECORD_AGAIN: Duration = Duration::from_secs(1);
/// Datastores that one request tries.
const MOST_TRIES: usize = 3;

/// A volume that was found by its name.
struct Found {
    id: String,
    mebibytes: i64,
    /// Whether CNS shows it, or only the first class disk is there.
    in_cns: bool,
}

/// One request for one volume.
struct Creation<'a> {
    inner: &'a Inner,
    site: &'a Site,
    connection: Connection,
    request: &'a Create,
    mebibytes: i64,
    /// The volume's name in CNS.
    name: String,
}

pub(super) async fn create(inner: &Inner, request: &Create) -> Result<Volume, Refusal> {
    let mebibytes = super::mebibytes(request.required, request.limit)?;
    let site = inner.site()?;
    let connection = site.connection()?;
    let name = cns_name(&request.name);
    let creation = Creation { inner, site: &site, connection, request, mebibytes, name };
    // Most requests are the first of their name, and need both answers.
    let (record, named) = tokio::join!(inner.journal.read(&request.name), creation.named());
    Box::pin(creation.run(record?, named)).await
}

impl Creation<'_> {
    /// Goes on where the record ends. `named` is what CNS has under the name, and tells nothing after an attempt, which
    /// may have ended just now.
    async fn run(
        &self,
        record: Option<Record>,
        named: Result<Option<Found>, Refusal>,
    ) -> Result<Volume, Refusal> {
        let latest = record.as_ref().and_then(journal::attempt);
        // The last sign of an attempt, if it is not known what came of it.
        let mut uncertain = None;
        match &latest {
            Some(Attempt::Done { volume }) => {
                // If it is gone, it was deleted since.
                if let Some(mebibytes) = self.size(volume).await.map_err(while_open)? {
                    self.check_same(record.as_ref())?;
                    let found = Found { id: volume.clone(), mebibytes, in_cns: true };
                    return self.adopt(found, None).await;
                }
            }
            Some(Attempt::Started { task, vcenter, at }) if self.is_here(vcenter) => {
                match self.resume(task).await {
                    Ok(created) if created.name.as_ref() == Some(&self.name) => {
                        return self.finish(record, created).await;
                    }
                    // Not every answer has a name, and a vCenter that was restored gives ids of tasks again.
                    Ok(_) => uncertain = Some(*at),
                    Err(error) if is_running(&error) => return Err(self.open(record, error).await),
                    Err(error) => {
                        let volume = &self.request.name;
                        tracing::info!(volume, %error, "earlier attempt to create the volume did not succeed");
                        uncertain = (is_lost(&error) || is_ambiguous(&error)).then_some(*at);
                    }
                }
            }
            // A task of another vCenter.
            Some(Attempt::Started { at, .. }) => uncertain = Some(*at),
            Some(Attempt::Called { at }) => uncertain = Some(*at),
            Some(Attempt::Failed) | None => {}
        }
        let found = match latest {
            None => named?,
            Some(Attempt::Started { .. } | Attempt::Called { .. }) => {
                self.find().await.map_err(while_open)?
            }
            Some(Attempt::Failed | Attempt::Done { .. }) => self.find().await?,
        };
        if let Some(found) = found {
            return self.adopt(found, record).await;
        }
        if let Some(at) = uncertain {
            self.wait_out(at)?;
        }
        Box::pin(self.attempt(record)).await
    }

    /// Tries one datastore after the other.
    async fn attempt(&self, mut record: Option<Record>) -> Result<Volume, Refusal> {
        let (decision, policy) = self.decide().await?;
        let mut candidates: Vec<&Candidate> = decision.candidates().collect();
        if candidates.is_empty() {
            return Err(decision.refusal(&self.request.name));
        }
        // A repeated call names the same datastore, so that vCenter finds what it may have made there.
        let earlier = record.as_ref().and_then(journal::plan).map(|plan| plan.datastore);
        candidates.sort_by_key(|one| Some(one.datastore.value()) != earlier.as_deref());
        let mut failures: Vec<String> = Vec::new();
        let mut kind = Kind::Exhausted;
        for candidate in candidates.into_iter().take(MOST_TRIES) {
            // Whatever may take time comes before the record, which says when vCenter was called.
            let new = self.new_volume(candidate, policy.as_deref()).await?;
            let begun = self.begin(record.take(), candidate).await?;
            match Box::pin(self.call(begun, candidate, new)).await? {
                Tried::Made(volume) => return Ok(volume),
                Tried::NotThere(error, begun) => {
                    tracing::warn!(volume = self.request.name, datastore = candidate.path, %error, "datastore did not take the volume");
                    kind = refused("", error.clone()).kind;
                    failures.push(format!("{}: {error}", candidate.path));
                    record = Some(*begun);
                }
            }
        }
        let what = format!(
            "volume {} of {} was not created ({})",
            self.request.name,
            Size(bytes(self.mebibytes)),
            failures.join("; ")
        );
        Err(Refusal::new(kind, what))
    }

    async fn begin(&self, known: Option<Record>, place: &Candidate) -> Result<Record, Refusal> {
        let plan = Plan {
            size: self.mebibytes,
            policy: self.request.policy.clone(),
            url: self.request.datastore_url.clone(),
            datastore: place.datastore.value().to_owned(),
        };
        self.inner.journal.begin(&self.request.name, known, &self.site.server, &plan).await
    }

    async fn new_volume(
        &self,
        place: &Candidate,
        policy: Option<&str>,
    ) -> Result<NewVolume, Refusal> {
        let takes_ids = self.connection.volumes().takes_chosen_ids().await;
        let takes_ids = takes_ids.map_err(|error| self.refused(error))?;
        let id = || chosen_id(&self.request.name, &self.site.cluster).as_str().into();
        Ok(NewVolume {
            datastores: vec![place.datastore.clone()],
            policy: policy.map(str::to_owned),
            metadata: Some(self.metadata().await?),
            id: takes_ids.then(id),
            ..NewVolume::block(&self.name, self.mebibytes)
        })
    }

    /// One attempt, recorded before and after every effect.
    async fn call(
        &self,
        record: Record,
        place: &Candidate,
        mut new: NewVolume,
    ) -> Result<Tried, Refusal> {
        let (mut record, mut created) = self.make(record, &new).await?;
        if let Err(error) = &created
            && new.id.is_some()
            && is_unsupported(error)
        {
            // Hosts that are older than vCenter know no ids that clients choose.
            new.id = None;
            record = self.inner.journal.failed(record, &error.to_string()).await?;
            record = self.begin(Some(record), place).await?;
            (record, created) = self.make(record, &new).await?;
        }
        match created {
            Ok(created) => Ok(Tried::Made(self.finish(Some(record), created).await?)),
            Err(error) => self.failed(record, error).await,
        }
    }

    /// One call, whose task is recorded, and how it ended. If that is not known, the record stays open: the next
    /// request goes on with the task, or searches for the volume.
    async fn make(
        &self,
        record: Record,
        new: &NewVolume,
    ) -> Result<(Record, Result<Created, Error>), Refusal> {
        let started = match self.connection.volumes().create(new).await {
            Ok(started) => started,
            Err(error) if !is_certain(&error) => return Err(self.open(Some(record), error).await),
            Err(error) => return Ok((record, Err(error))),
        };
        let has_ended = CancellationToken::new();
        let waiting = async {
            let ended = started.wait(super::LIMIT).await;
            has_ended.cancel();
            ended
        };
        // The volume is held until the task has ended, whatever becomes of the record.
        let recording = self.record_task(record, started.task().value(), &has_ended);
        let (record, ended) = tokio::join!(recording, waiting);
        match ended {
            Err(error) if is_running(&error) || is_lost(&error) => {
                Err(self.open(Some(record?), error).await)
            }
            ended => Ok((record?, ended)),
        }
    }

    /// Records the task of an attempt, also if the API server is away for a moment. If the process ends before that,
    /// the next one searches for the volume.
    async fn record_task(
        &self,
        record: Record,
        task: &str,
        has_ended: &CancellationToken,
    ) -> Result<Record, Refusal> {
        loop {
            match self.inner.journal.started(record.clone(), task).await {
                Err(refusal) if refusal.kind == Kind::Unavailable => {
                    tracing::warn!(volume = self.request.name, task, error = %refusal, "task not recorded; trying again");
                }
                written => return written.map_err(while_open),
            }
            if has_ended.run_until_cancelled(sleep(RECORD_AGAIN)).await.is_none() {
                // How the task ended is recorded next.
                return Ok(record);
            }
        }
    }

    /// The refusal while it is not known what came of an attempt: until now it was under way.
    async fn open(&self, record: Option<Record>, error: Error) -> Refusal {
        if let Some(record) = record
            && let Err(refusal) = self.inner.journal.under_way(record).await
        {
            tracing::warn!(volume = self.request.name, error = %refusal, "attempt not recorded as under way");
        }
        while_open(self.refused(error))
    }

    /// After a failure: nothing was made, or it is adopted.
    async fn failed(&self, record: Record, error: Error) -> Result<Tried, Refusal> {
        if let Some(name) = &self.request.policy {
            self.site.policies.forget(name);
        }
        if let Some(found) = self.find().await.map_err(while_open)? {
            return Ok(Tried::Made(self.adopt(found, Some(record)).await?));
        }
        if is_ambiguous(&error) {
            // What CNS began may still end.
            return Err(self.open(Some(record), error).await);
        }
        let record = self.inner.journal.failed(record, &error.to_string()).await?;
        match error.remedy {
            Remedy::NoSpace
            | Remedy::Refused
            | Remedy::NoPermission { .. }
            | Remedy::NotFound { what: Missing::Object(_) | Missing::Unnamed }
            | Remedy::Retry => Ok(Tried::NotThere(error, Box::new(record))),
            _ => Err(self.refused(error)),
        }
    }

    /// Records a volume that was made, and answers.
    async fn finish(&self, record: Option<Record>, created: Created) -> Result<Volume, Refusal> {
        let id = created.volume.id;
        let planned = record.as_ref().and_then(journal::plan).map(|plan| plan.size);
        let planned = planned.unwrap_or(self.mebibytes);
        // One that was there before may be of another size.
        let mebibytes = match created.existed {
            true => self.size(&id).await.map_err(while_open)?.unwrap_or(planned),
            false => planned,
        };
        self.adopt(Found { id, mebibytes, in_cns: true }, record).await
    }

    /// Answers with a volume that exists, if it is what is asked for.
    async fn adopt(&self, found: Found, record: Option<Record>) -> Result<Volume, Refusal> {
        self.check_same(record.as_ref())?;
        let Found { id, mebibytes, in_cns } = found;
        let size = bytes(mebibytes);
        let fits =
            size >= self.request.required && self.request.limit.is_none_or(|limit| size <= limit);
        if !fits {
            let what = format!(
                "a volume called {} exists ({id}) and has {}, not {}",
                self.request.name,
                Size(size),
                Size(bytes(self.mebibytes))
            );
            return Err(Refusal::new(Kind::Differs, what));
        }
        if !in_cns {
            let content = Content::Disk(id.clone());
            let metadata = Some(self.metadata().await.map_err(while_open)?);
            let known = NewVolume { metadata, ..NewVolume::new(&self.name, content) };
            let registered =
                async { self.connection.volumes().create(&known).await?.wait(super::LIMIT).await };
            registered.await.map_err(|error| while_open(self.refused(error)))?;
        }
        if let Some(record) = record {
            self.inner.journal.done(record, &id, mebibytes).await.map_err(while_open)?;
        }
        Ok(Volume { id, bytes: size })
    }

    /// Searches for the volume in CNS, whose answers may be minutes old.
    async fn named(&self) -> Result<Option<Found>, Refusal> {
        let cluster = &self.site.cluster;
        let found = self.site.search.named(&self.connection, cluster, &self.name).await;
        let found = found.map_err(|error| self.refused(error))?;
        let mut sizes = Vec::new();
        for volume in found {
            let id = volume.volume_id.id.clone();
            // CNS shows some volumes without their size for a while; that they exist is what counts.
            let size = match size_of(&volume) {
                Some(size) => Some(size),
                None => self.size(&id).await?,
            };
            let Some(size) = size else {
                let what =
                    format!("volume {}: vCenter does not show its size yet", self.request.name);
                return Err(Refusal::new(Kind::Busy, what));
            };
            sizes.push((id, size));
        }
        Ok(first(sizes.into_iter(), true))
    }

    /// Searches for the volume thoroughly: an earlier attempt may have made it just now.
    async fn find(&self) -> Result<Option<Found>, Refusal> {
        if let Some(found) = self.named().await? {
            return Ok(Some(found));
        }
        let searched = async {
            let name = vslm::condition("name", "equals", &self.name);
            let mut pages = self.connection.disks().await?.pages(&[name]);
            let mut disks = Vec::new();
            while let Some(page) = pages.next_page().await? {
                disks.extend(page);
            }
            Ok(disks)
        };
        let disks = searched.await.map_err(|error: Error| self.refused(error))?;
        let ours = disks.into_iter().filter(|disk| self.is_ours(disk));
        Ok(first(ours.map(|disk| (disk.id.id, disk.capacity_in_mb)), false))
    }

    /// Whether a disk was made for this volume: other clusters may use the same names.
    fn is_ours(&self, disk: &VslmVsoVStorageObjectResult) -> bool {
        let cluster = disk.metadata.iter().find(|one| one.key == CLUSTER_OF_DISK);
        let is_unique = self.name.strip_prefix("pvc-").is_some_and(|id| id.parse::<Uuid>().is_ok());
        disk.name.as_deref() == Some(&*self.name)
            && cluster.map_or(is_unique, |one| one.value == self.site.cluster)
    }

    async fn decide(&self) -> Result<(Decision, Option<String>), Refusal> {
        let nodes = self.inner.nodes.current().unwrap_or_default();
        let (stores, hosts) = self.site.places(&nodes)?;
        let wish = Wish { bytes: bytes(self.mebibytes), url: self.request.datastore_url.clone() };
        let mut decision = decide(&stores, &hosts, &wish);
        let Some(name) = &self.request.policy else { return Ok((decision, None)) };
        let datastores: BTreeSet<Ref<Datastore>> =
            decision.candidates().map(|one| one.datastore.clone()).collect();
        let found = self.site.policies.find(&self.connection, name, &datastores).await;
        let policy = found.map_err(|error| self.refused(error))?;
        decision.exclude(&policy.rejected);
        Ok((decision, Some(policy.id)))
    }

    /// Whether a record is about this vCenter.
    fn is_here(&self, vcenter: &str) -> bool {
        vcenter.is_empty() || vcenter.eq_ignore_ascii_case(&self.site.server)
    }

    async fn resume(&self, task: &str) -> Result<Created, Error> {
        self.connection.volumes().resume::<Created>(task).wait(super::LIMIT).await
    }

    async fn size(&self, volume: &str) -> Result<Option<i64>, Refusal> {
        let found = super::change::disk(&self.connection, volume).await;
        found.map_err(|error| self.refused(error))
    }

    async fn metadata(&self) -> Result<vsphere::types::CnsVolumeMetadata, Refusal> {
        self.site.metadata(&self.connection).await.map_err(|error| self.refused(error))
    }

    /// Refuses a volume whose attempt asked for something else. Before it is known that the attempt made a volume
    /// there is nothing to compare: the class may have been corrected since.
    fn check_same(&self, record: Option<&Record>) -> Result<(), Refusal> {
        let failed = |record: &&Record| journal::attempt(record) == Some(Attempt::Failed);
        let Some(plan) = record.filter(|one| !failed(one)).and_then(journal::plan) else {
            return Ok(());
        };
        let differs = |what: &str| {
            let name = &self.request.name;
            let what = format!("volume {name} was requested before with another {what}");
            Err(Refusal::new(Kind::Differs, what))
        };
        if plan.policy != self.request.policy {
            return differs("storage policy");
        }
        if plan.url != self.request.datastore_url {
            return differs("datastore URL");
        }
        let size = bytes(plan.size);
        let fits =
            size >= self.request.required && self.request.limit.is_none_or(|limit| size <= limit);
        if fits { Ok(()) } else { differs("size") }
    }

    /// Refuses to go on while a call that an earlier process made may still arrive.
    fn wait_out(&self, at: Timestamp) -> Result<(), Refusal> {
        let age = Timestamp::now().duration_since(at);
        let settled = SignedDuration::try_from(self.inner.settle).unwrap_or(SignedDuration::ZERO);
        // A record from the future is one of a clock that is wrong, and as good as a new one.
        if age >= settled {
            return Ok(());
        }
        let what = format!(
            "volume {}: an earlier attempt may still be under way at vCenter {}",
            self.request.name, self.site.server
        );
        Err(Refusal::new(Kind::Busy, what).remedy("it is tried again until that is settled"))
    }

    fn refused(&self, error: Error) -> Refusal {
        refused(format!("volume {} was not created", self.request.name), error)
    }
}

/// Which of several volumes of one name is taken. They are what lost tasks of other drivers left; it must not change.
fn first(found: impl Iterator<Item = (String, i64)>, in_cns: bool) -> Option<Found> {
    found.min().map(|(id, mebibytes)| Found { id, mebibytes, in_cns })
}

/// What came of an attempt.
enum Tried {
    Made(Volume),
    NotThere(Error, Box<Record>),
}

/// Whether the task may still make the volume.
fn is_running(error: &Error) -> bool {
    matches!(error.failure().cause, Cause::StillRunning(_) | Cause::Closed)
}

/// Whether the task failed as a whole for a reason that does not say whether its work is done: CNS fails all tasks when
/// it restarts, and the work may go on.
fn is_ambiguous(error: &Error) -> bool {
    matches!(error.failure().cause, Cause::TaskFailed(_))
        && matches!(
            error.remedy,
            Remedy::Refused | Remedy::Retry | Remedy::Busy | Remedy::LoggedOut
        )
}

/// While the volume may exist, callers must not take the refusal for final and forget the volume.
fn while_open(mut refusal: Refusal) -> Refusal {
    if !matches!(refusal.kind, Kind::Busy | Kind::Unfinished) {
        refusal.kind = Kind::Unavailable;
    }
    refusal
}

/// Whether the outcome of the task cannot be known from the task.
fn is_lost(error: &Error) -> bool {
    !is_certain(error)
}

fn is_unsupported(error: &Error) -> bool {
    error.fault().is_some_and(|fault| fault.find("NotSupported").is_some())
}

/// The name of a volume in CNS: the request's, or its beginning with a digest where it is too long.
fn cns_name(name: &str) -> String {
    if name.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let digest = journal::digest(name);
    let mut end = LONGEST_NAME - digest.len() - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{digest}", &name[..end])
}

/// The id of a new volume: that of its claim, as the Go driver chooses it, or one that follows from name and cluster.
fn chosen_id(name: &str, cluster: &str) -> String {
    let of_claim = name.strip_prefix("pvc-").and_then(|id| id.parse::<Uuid>().ok());
    let digest = || journal::digest(&format!("{cluster}/{name}")).parse::<Uuid>().ok();
    of_claim.or_else(digest).map(|id| id.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{chosen_id, cns_name};

    #[test]
    fn long_names_stay_distinct() {
        let (a, b) = ("x".repeat(100) + "a", "x".repeat(100) + "b");
        assert_eq!(cns_name("pvc-1"), "pvc-1");
        assert_eq!(cns_name(&a).len(), 80);
        assert_ne!(cns_name(&a), cns_name(&b));
        assert!(cns_name(&"ö".repeat(80)).len() <= 80);
    }

    #[test]
    fn the_id_of_a_volume_is_that_of_its_claim_or_follows_from_its_name() {
        let claim = "0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c";
        assert_eq!(chosen_id(&format!("pvc-{claim}"), "lab"), claim);
        assert_eq!(chosen_id("data", "lab"), chosen_id("data", "lab"));
        assert_ne!(chosen_id("data", "lab"), chosen_id("data", "other"));
    }
}
