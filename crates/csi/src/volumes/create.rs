//! Creating a volume, once, however often it is asked for and whatever ends in between.
//!
//! ```text
//!   search by name ──none──► choose a datastore ─► record: called ─► CNS ─► wait; record: started ─► record: done
//!     │                          ▲                   │                                           │
//!     │                          └───────────────────┼────── next datastore ◄── proven absent ◄── failed
//!     │ found, or nothing can be chosen              │ there is a record already
//!     └─► read the record ◄──────────────────────────┘
//!           ├──none──► adopt, or refuse
//!           ├──done──► verify ─► answer
//!           ├──started─► wait for its task
//!           └──called, failed, task lost─► search by name, thoroughly
//! ```
//!
//! Most requests are the first of their name, so nothing is read before the record is written; those with a source, which
//! may take a snapshot of it, read the record first. The task is recorded only if it runs for longer than a moment: until
//! then the next process searches for the volume.
//!
//! An attempt whose outcome is unknown is never followed by another before the volume was searched for: in CNS,
//! whose answers may be minutes old, and among the first class disks, which are not cached. A volume that exists is
//! adopted, never deleted.

mod accessible;
mod failure;
mod places;
mod same;

use vsphere::{
    cns::{Content, Created, NewVolume, Select},
    connection::Connection,
    error::Error,
    inventory::Uuid,
    reference::Ref,
    types::{CnsVolumeId, Datastore, VslmVsoVStorageObjectResult},
    vslm,
};

use self::places::Places;
use super::{
    Create, Inner, Volume,
    attempts::{self, Failure, is_lost, is_running, while_open},
    bytes,
    journal::{self, Attempt, Plan, Purpose, Record},
    names::cns_name,
    placement::{Candidate, Size},
    refused::{is_ambiguous, is_certain, proves_absence, refused},
    site::Site,
    sources::{self, Original, Source},
};
use crate::refusal::{Kind, Refusal};

/// In the metadata of a first class disk: the cluster that CNS made it for. The second one is that of 6.7U3.
const CLUSTER_OF_DISK: [&str; 2] = ["cns.containerCluster.clusterId", "cns.clusterID"];

/// A volume that was found by its name.
struct Found {
    id: String,
    mebibytes: i64,
    /// Whether CNS shows it, or only the first class disk is there.
    in_cns: bool,
    /// Where it was just made.
    datastore: Option<Ref<Datastore>>,
}

/// One request for one volume.
struct Creation<'a> {
    inner: &'a Inner,
    site: &'a Site,
    connection: Connection,
    request: &'a Create,
    /// What is requested; a volume with a source is at least as large as that.
    mebibytes: i64,
    /// The volume's name in CNS.
    name: String,
}

pub(super) async fn create(
    inner: &Inner,
    site: &Site,
    request: &Create,
) -> Result<Volume, Refusal> {
    let mebibytes = match &request.source {
        Some(_) if request.required == 0 => 1,
        _ => super::mebibytes(request.required, request.limit)?,
    };
    let connection = site.connection()?;
    let name = cns_name(&request.name);
    let creation = Creation { inner, site, connection, request, mebibytes, name };
    match &request.source {
        None => creation.create().await,
        Some(source) => creation.copy(source).await,
    }
}

impl Creation<'_> {
    async fn create(&self) -> Result<Volume, Refusal> {
        let named = self.named().await;
        // What speaks against a new volume is judged again when the record is known: there may be an earlier attempt.
        if matches!(named, Ok(None))
            && let Ok(places) = self.choose(None, None).await
            && let Some(record) = self.begin_first(&places).await?
        {
            return Box::pin(self.attempt(places, record)).await;
        }
        let record = self.inner.journal.read(&self.request.name).await?;
        Box::pin(self.run(record, named, Ok(None))).await
    }

    async fn copy(&self, source: &Source) -> Result<Volume, Refusal> {
        let (inner, name) = (self.inner, &self.request.name);
        let original = Box::pin(sources::find(self.site, &self.connection, source));
        let (record, named, original) =
            tokio::join!(inner.journal.read(name), self.named(), original);
        let created = Box::pin(self.run(record?, named, original.map(Some))).await;
        if let Err(refusal) = &created
            && !matches!(refusal.kind, Kind::Busy | Kind::Unavailable | Kind::Unfinished)
        {
            // Nothing is going to use it any more.
            let released = sources::release(inner, self.site, &self.connection, source, name);
            if let Err(error) = Box::pin(released).await {
                tracing::warn!(volume = name, %error, "snapshot of a clone that failed not deleted");
            }
        }
        created
    }

    /// Goes on where the record ends. `named` is what CNS has under the name, and tells nothing after an attempt, which
    /// may have ended just now.
    async fn run(
        &self,
        record: Option<Record>,
        named: Result<Option<Found>, Refusal>,
        original: Result<Option<Original>, Refusal>,
    ) -> Result<Volume, Refusal> {
        let latest = record.as_ref().and_then(journal::attempt);
        // The last sign of an attempt, if it is not known what came of it.
        let mut uncertain = None;
        match &latest {
            Some(Attempt::Done { volume }) => {
                // If it is gone, it was deleted since.
                if let Some(mebibytes) = self.size(volume).await.map_err(while_open)? {
                    let id = volume.clone();
                    let found = Found { id, mebibytes, in_cns: true, datastore: None };
                    self.refuse_others(record.as_ref(), &found).await?;
                    return self.adopt(found, None).await;
                }
                if let Some(record) = record.as_ref() {
                    self.check_here(volume, journal::vcenter(record))?;
                }
            }
            Some(Attempt::Started { task, vcenter, at }) if self.site.is_named(vcenter) => {
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
                        let is_open =
                            is_lost(&error) || is_ambiguous(&error) || !proves_absence(&error);
                        uncertain = is_open.then_some(*at);
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
            let what = format!("volume {}", self.request.name);
            let (server, sign) = (&self.site.server, (at, record.as_ref()));
            attempts::wait_out(self.inner, &what, server, sign).await?;
        }
        // A volume that exists does not need its source any more.
        let places = self.choose(record.as_ref(), original?.as_ref()).await?;
        let begun = match record {
            Some(record) => Some(self.begin(record, &self.plan(&places.best, &places)).await?),
            None => self.begin_first(&places).await?,
        };
        let Some(begun) = begun else { return Err(journal::busy(&self.request.name)) };
        Box::pin(self.attempt(places, begun)).await
    }

    /// Tries one datastore after the other. The attempt at the best one has begun.
    async fn attempt(&self, mut places: Places, mut record: Record) -> Result<Volume, Refusal> {
        let others = std::mem::take(&mut places.others);
        let mut failures: Vec<String> = Vec::new();
        let mut kind = Kind::Exhausted;
        for (number, candidate) in [places.best.clone()].into_iter().chain(others).enumerate() {
            let plan = self.plan(&candidate, &places);
            if number > 0 {
                record = self.begin(record, &plan).await?;
            }
            let datastores = vec![candidate.store.datastore.clone()];
            let new = NewVolume { datastores, ..places.new.clone() };
            match Box::pin(self.call(record, &plan, new)).await? {
                Tried::Made(volume) => return Ok(volume),
                Tried::NotThere(reason, error, begun) => {
                    tracing::warn!(volume = self.request.name, datastore = candidate.store.path, %error, "datastore did not take the volume");
                    if reason != Kind::Exhausted {
                        kind = reason;
                    }
                    failures.push(format!("{}: {error}", candidate.store.path));
                    places.failed.push(candidate.store.datastore.value().to_owned());
                    record = *begun;
                }
            }
        }
        let what = format!(
            "volume {} of {} was not created ({})",
            self.request.name,
            Size(bytes(places.mebibytes)),
            failures.join("; ")
        );
        let refusal = Refusal::new(kind, what);
        Err(match places.advice {
            Some(advice) => refusal.remedy(advice),
            None => refusal,
        })
    }

    async fn begin(&self, known: Record, plan: &Plan) -> Result<Record, Refusal> {
        self.inner.journal.begin(known, &self.site.server, Purpose::Volume(plan)).await
    }

    /// Records the first attempt; nothing if there is a record.
    async fn begin_first(&self, places: &Places) -> Result<Option<Record>, Refusal> {
        let plan = self.plan(&places.best, places);
        let (name, vcenter) = (&self.request.name, &self.site.server);
        self.inner.journal.begin_first(name, vcenter, Purpose::Volume(&plan)).await
    }

    fn plan(&self, place: &Candidate, places: &Places) -> Plan {
        Plan {
            size: places.mebibytes,
            policy: self.request.policy.clone(),
            url: self.request.selection.url.clone(),
            datastores: self.request.selection.datastores.clone(),
            cluster: self.request.selection.cluster.clone(),
            source: self.request.source.as_ref().map(ToString::to_string),
            datastore: place.store.datastore.value().to_owned(),
            failed: places.failed.clone(),
        }
    }

    /// One attempt, recorded before and after every effect.
    async fn call(
        &self,
        record: Record,
        plan: &Plan,
        mut new: NewVolume,
    ) -> Result<Tried, Refusal> {
        let (mut record, mut created) = self.make(record, &new).await?;
        if let Err(failure) = &created
            && new.id.is_some()
            && is_unsupported(&failure.error)
        {
            // Hosts that are older than vCenter know no ids that clients choose.
            new.id = None;
            record = self.inner.journal.failed(record, &failure.error.to_string()).await?;
            record = self.begin(record, plan).await?;
            (record, created) = self.make(record, &new).await?;
        }
        match created {
            Ok(created) => Ok(Tried::Made(self.finish(Some(record), created).await?)),
            Err(failure) => self.failed(record, plan, &new, failure).await,
        }
    }

    /// One call, whose task is recorded, and how it ended. If that is not known, the record stays open: the next
    /// request goes on with the task, or searches for the volume.
    async fn make(
        &self,
        record: Record,
        new: &NewVolume,
    ) -> Result<(Record, Result<Created, Failure>), Refusal> {
        let started = match self.connection.volumes().create(new).await {
            Ok(started) => started,
            Err(error) if !is_certain(&error) => return Err(self.open(Some(record), error).await),
            Err(error) => return Ok((record, Err(Failure::of_call(error)))),
        };
        let name = &self.request.name;
        let (record, ended) = attempts::follow(&self.inner.journal, name, record, &started).await;
        match ended {
            Err(error) if is_running(&error) || is_lost(&error) => {
                Err(self.open(Some(record?), error).await)
            }
            ended => Ok((record?, ended.map_err(Failure::of_task))),
        }
    }

    /// The refusal while it is not known what came of an attempt: until now it was under way.
    async fn open(&self, record: Option<Record>, error: Error) -> Refusal {
        attempts::note_under_way(&self.inner.journal, &self.request.name, record).await;
        while_open(self.refused(error))
    }

    /// Records a volume that was made, and answers.
    async fn finish(&self, record: Option<Record>, created: Created) -> Result<Volume, Refusal> {
        let id = created.volume.id;
        let plan = record.as_ref().and_then(journal::plan);
        let planned = plan.as_ref().map(|plan| plan.size);
        let (mut mebibytes, mut in_cns) = (planned.unwrap_or(self.mebibytes), true);
        // Old releases do not say where they made it; it was where they were told to.
        let planned = plan.map(|plan| Ref::new(&plan.datastore));
        let mut datastore = created.datastore.or(planned);
        if created.existed || self.request.source.is_some() {
            // One that was there before may be of another size, and one with a source is not grown yet.
            let Some(size) = self.size(&id).await.map_err(while_open)? else {
                return Err(self.without_disk(record, &id).await);
            };
            mebibytes = size;
        }
        if created.existed {
            // A disk that CNS does not know has its id, too.
            let shown = super::change::find(&self.connection, &id).await.map_err(while_open)?;
            in_cns = shown.is_some();
            datastore = None;
        }
        self.adopt(Found { id, mebibytes, in_cns, datastore }, record).await
    }

    /// The refusal when CNS has kept the record of a volume whose disk is gone. The next request calls CNS again.
    async fn without_disk(&self, record: Option<Record>, id: &str) -> Refusal {
        let what = format!(
            "volume {} was not created: CNS has a volume {id}, whose disk does not exist",
            self.request.name
        );
        if let Some(record) = record
            && let Err(refusal) = self.inner.journal.failed(record, &what).await
        {
            return while_open(refusal);
        }
        Refusal::new(Kind::Busy, what).remedy("it is tried again until CNS has removed its record")
    }

    /// Answers with a volume that exists, if it is what is asked for.
    async fn adopt(&self, found: Found, record: Option<Record>) -> Result<Volume, Refusal> {
        self.refuse_others(record.as_ref(), &found).await?;
        let Found { id, mebibytes, in_cns, datastore } = found;
        let mut size = bytes(mebibytes);
        // One with a source may have been left as large as that.
        let may_grow = self.request.source.is_some() && size < self.request.required;
        let fits = (may_grow || size >= self.request.required)
            && self.request.limit.is_none_or(|limit| size <= limit);
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
        if may_grow {
            let wanted = super::mebibytes(self.request.required, self.request.limit)?;
            let grown = super::change::expand_in(self.inner, self.site, &id, wanted);
            size = Box::pin(grown).await.map_err(while_open)?.bytes;
        }
        if let Some(source) = &self.request.source {
            let (inner, name) = (self.inner, &self.request.name);
            let released = sources::release(inner, self.site, &self.connection, source, name);
            Box::pin(released).await.map_err(while_open)?;
        }
        if let Some(record) = record {
            let mebibytes = i64::try_from(size / super::MEBIBYTE).unwrap_or(i64::MAX);
            self.inner.journal.done(record, &id, mebibytes).await.map_err(while_open)?;
        }
        let accessible = self.accessible(&id, datastore).await?;
        Ok(Volume { id, bytes: size, accessible })
    }

    /// Searches for the volume in CNS, whose answers may be minutes old.
    async fn named(&self) -> Result<Option<Found>, Refusal> {
        let cluster = &self.site.cluster;
        let found = self.site.search.named(&self.connection, cluster, &self.name).await;
        let found = found.map_err(|error| self.refused(error))?;
        let mut sizes = Vec::new();
        for volume in found {
            let id = volume.volume_id.id;
            // CNS shows volumes for a while after they were deleted, and some without their size: the disk decides.
            if let Some(size) = self.size(&id).await? {
                sizes.push((id, size));
            }
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
        let mut ours = Vec::new();
        for disk in disks {
            if self.is_ours(&disk).await? {
                ours.push((disk.id.id, disk.capacity_in_mb));
            }
        }
        Ok(first(ours.into_iter(), false))
    }

    /// Whether a disk was made for this volume: other clusters may use the same names, also those that are unique, if
    /// one was restored from a backup of the other.
    async fn is_ours(&self, disk: &VslmVsoVStorageObjectResult) -> Result<bool, Refusal> {
        if disk.name.as_deref() != Some(&*self.name) {
            return Ok(false);
        }
        let mut metadata = disk.metadata.iter();
        if let Some(cluster) = metadata.find(|one| CLUSTER_OF_DISK.contains(&&*one.key)) {
            return Ok(cluster.value == self.site.cluster);
        }
        let is_unique = self.name.strip_prefix("pvc-").is_some_and(|id| id.parse::<Uuid>().is_ok());
        Ok(is_unique && !self.is_of_others(&disk.id.id).await?)
    }

    /// Whether CNS shows a volume as one of other clusters only.
    async fn is_of_others(&self, volume: &str) -> Result<bool, Refusal> {
        let ids = [CnsVolumeId::from(volume)];
        let shown = self.connection.volumes().read(&ids, &[Select::VolumeMetadata]).await;
        let shown = shown.map_err(|error| self.refused(error))?;
        Ok(shown.into_iter().filter_map(|one| one.metadata).any(|metadata| {
            let one = std::iter::once(&metadata.container_cluster);
            let all = one.chain(&metadata.container_cluster_array);
            let mut named = all.filter(|one| !one.cluster_id.is_empty()).peekable();
            named.peek().is_some() && !named.any(|one| one.cluster_id == self.site.cluster)
        }))
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

    /// Refuses if this vCenter cannot tell what became of a volume, because another one made it.
    fn check_here(&self, volume: &str, vcenter: &str) -> Result<(), Refusal> {
        if self.site.is_named(vcenter) {
            return Ok(());
        }
        let name = &self.request.name;
        let what = format!(
            "volume {name} was created before, in vCenter {vcenter} as {volume}, and {} does not have it",
            self.site.server
        );
        let remedy = format!(
            "add that vCenter to the configuration; if it is gone for good, delete the CnsVolumeOperationRequest {name}"
        );
        // The volume may exist, so this is not final.
        Err(Refusal::new(Kind::Unavailable, what).remedy(remedy))
    }

    fn refused(&self, error: Error) -> Refusal {
        refused(format!("volume {} was not created", self.request.name), error)
    }
}

/// Which of several volumes of one name is taken. They are what lost tasks of other drivers left; it must not change.
fn first(found: impl Iterator<Item = (String, i64)>, in_cns: bool) -> Option<Found> {
    found.min().map(|(id, mebibytes)| Found { id, mebibytes, in_cns, datastore: None })
}

/// What came of an attempt.
enum Tried {
    Made(Volume),
    /// Nothing, for a reason of this kind: the next datastore may be tried.
    NotThere(Kind, Error, Box<Record>),
}

fn is_unsupported(error: &Error) -> bool {
    error.fault().is_some_and(|fault| fault.find("NotSupported").is_some())
}
