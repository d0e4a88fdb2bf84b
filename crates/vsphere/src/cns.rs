//! CNS, the volumes of containers.
//!
//! [`Connection::volumes`] is the way in. What changes volumes is a task on vCenter: the call returns a
//! [`Started`] or a [`Batch`] as soon as vCenter has the task, so that its id can be recorded, and
//! waiting for it is a second step. After a crash [`Volumes::resume`] continues.
//!
//! ```no_run
//! # use vsphere::{connection::Connection, error::Error};
//! # async fn example(connection: &Connection, journal: impl Fn(&str)) -> Result<(), Error> {
//! use std::time::Duration;
//!
//! use vsphere::cns::{Created, NewVolume};
//!
//! const LIMIT: Duration = Duration::from_secs(300);
//! let volumes = connection.volumes();
//! let started = volumes.create(&NewVolume::block("pvc-1", 1024)).await?;
//! journal(started.task().value());
//! let Created { volume, .. } = started.wait(LIMIT).await?;
//! // Without a journal, both in one:
//! volumes.delete(&volume, true).await?.wait(LIMIT).await?;
//! # Ok(())
//! # }
//! ```
//!
//! - A task that succeeds may hold faults of single volumes; each becomes an [`Error`] of its volume.
//! - Results are in the order of the specs, whatever order the server chose.
//! - vCenter takes one volume a call for create, delete and extend. Many are made by calling many times at
//!   once; the connection bounds how many are on the way.
//! - What a server is too old for is refused here and never sent in part: a volume from a snapshot would
//!   otherwise be an empty one. Fields that only describe, such as a cluster's flavour, are left out.
//!
//! Deliberately absent: `CnsRegisterVolume`, which no vCenter has; see [`Volumes::create`].

mod create;
mod outcome;
mod query;
mod snapshots;

use std::{
    marker::PhantomData,
    time::{Duration, Instant},
};

pub use create::{Content, NewVolume};
pub use outcome::{Attached, Created, DeletedSnapshot, Detached, Outcome, Synced, TakenSnapshot};
pub use query::{ALL, Pages, Select};
pub use snapshots::SnapshotPages;

use crate::{
    connection::Connection,
    error::{Cause, Error, Missing, Remedy},
    reference::Ref,
    soap::Service,
    types::{
        AnyCnsVolumeOperationResult, AnyVirtualMachineProfileSpec, CnsAttachVolume,
        CnsBlockVolumeRelocateSpec, CnsConfigureVolumeAcls, CnsCreateVolume, CnsDebugManager,
        CnsDeleteVolume, CnsDetachVolume, CnsExtendVolume, CnsQueryVolumeInfo,
        CnsReconfigVolumePolicy, CnsRelocateVolume, CnsSnapshotId, CnsSyncDatastore, CnsSyncVolume,
        CnsSyncVolumeSpec, CnsUnregisterVolume, CnsUnregisterVolumeSpec, CnsUpdateVolumeMetadata,
        CnsVolumeACLConfigureSpec, CnsVolumeAttachDetachSpec, CnsVolumeExtendSpec, CnsVolumeId,
        CnsVolumeManager, CnsVolumeMetadata, CnsVolumeMetadataUpdateSpec,
        CnsVolumeOperationBatchResult, CnsVolumePolicyReconfigSpec, Datastore, Task,
        VStorageObject, VirtualMachine, VirtualMachineDefinedProfileSpec,
        versions::{VSAN_8_0_0_2, VSAN_9_1_0_0},
    },
    version::{Release, Since},
    xml::{Malformed, Method},
};

impl Connection {
    /// The volumes of this vCenter.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes { connection: self }
    }
}

/// The volumes of one vCenter.
#[derive(Debug, Clone, Copy)]
pub struct Volumes<'a> {
    connection: &'a Connection,
}

/// A task for one volume, which vCenter has accepted. Dropping it does not stop the task.
#[derive(Debug, Clone)]
pub struct Started<T> {
    batch: Batch<T>,
}

/// A task for several volumes, which vCenter has accepted. Dropping it does not stop the task.
#[derive(Debug, Clone)]
pub struct Batch<T> {
    connection: Connection,
    task: Ref<Task>,
    method: &'static str,
    /// When it was called; nothing if it was started earlier.
    began: Option<Instant>,
    /// In the order of the wanted results; none for volumes that are yet to be made.
    volumes: Vec<CnsVolumeId>,
    of: PhantomData<fn() -> T>,
}

impl<T: Outcome> Started<T> {
    /// The task, to be recorded before waiting.
    pub fn task(&self) -> &Ref<Task> {
        &self.batch.task
    }

    /// Waits for the task's end. After `limit` the error is [`Remedy::Unfinished`], the task goes on, and so
    /// may the waiting.
    pub async fn wait(&self, limit: Duration) -> Result<T, Error> {
        let ended = self.batch.results(limit).await;
        let result = ended.and_then(|mut results| {
            if results.is_empty() {
                return T::without_result().ok_or_else(|| self.batch.unanswered());
            }
            self.batch.read(results.swap_remove(0))
        });
        self.batch.count(result.as_ref().err());
        result
    }
}

/// A task that detaches volumes. Dropping it does not stop the task.
#[derive(Debug, Clone)]
pub struct Detach {
    batch: Batch<Detached>,
    specs: Vec<CnsVolumeAttachDetachSpec>,
}

impl Detach {
    /// The task, to be recorded before waiting.
    pub fn task(&self) -> &Ref<Task> {
        &self.batch.task
    }

    /// Waits for the task's end like [`Batch::wait`]. CNS has one fault for a disk that is not attached and for one
    /// that it has lost track of, so what it refuses is compared with the devices of the VM.
    pub async fn wait(&self, limit: Duration) -> Result<Vec<Result<Detached, Error>>, Error> {
        let mut results = self.batch.wait(limit).await?;
        for (result, spec) in results.iter_mut().zip(&self.specs) {
            if let Err(error) = result {
                self.check(error, spec).await?;
            }
        }
        Ok(results)
    }

    async fn check(
        &self,
        error: &mut Error,
        spec: &CnsVolumeAttachDetachSpec,
    ) -> Result<(), Error> {
        let is_missing = matches!(error.remedy, Remedy::NotFound { .. });
        if !is_missing && !matches!(error.remedy, Remedy::Refused | Remedy::Invalid { .. }) {
            return Ok(());
        }
        let connection = &self.batch.connection;
        let Some(devices) = connection.inventory().devices(&spec.vm).await? else {
            return Ok(());
        };
        let id = &spec.volume_id.id;
        if devices.iter().all(|device| device.disk_id.as_ref() != Some(id)) {
            error.remedy = Remedy::NotFound { what: Missing::Volume(id.clone()) };
        } else if is_missing && let Some(fault) = error.fault() {
            let why = "but the VM still has the volume";
            let cause = Cause::NotDetached { fault: Box::new(fault.clone()), why };
            *error = connection.wire().error(self.batch.method, cause);
        }
        Ok(())
    }
}

impl<T: Outcome> Batch<T> {
    /// The task, to be recorded before waiting.
    pub fn task(&self) -> &Ref<Task> {
        &self.task
    }

    /// Waits for the task's end: a result or an error per volume, in the order of the specs. After `limit`
    /// the error is [`Remedy::Unfinished`], the task goes on, and so may the waiting.
    pub async fn wait(&self, limit: Duration) -> Result<Vec<Result<T, Error>>, Error> {
        let results = self.results(limit).await.inspect_err(|error| self.count(Some(error)))?;
        let results: Vec<_> = if self.volumes.is_empty() {
            results.into_iter().map(|result| self.read(result)).collect()
        } else {
            let ordered = outcome::ordered(&self.volumes, results).into_iter();
            let read = |result: Option<_>| {
                result.map_or_else(|| Err(self.unanswered()), |result| self.read(result))
            };
            ordered.map(read).collect()
        };
        self.count(results.iter().find_map(|result| result.as_ref().err()));
        Ok(results)
    }

    /// Counts the operation, unless it goes on.
    fn count(&self, failed: Option<&Error>) {
        let goes_on =
            failed.is_some_and(|error| matches!(error.failure().cause, Cause::StillRunning(_)));
        if let Some(began) = self.began.filter(|_| !goes_on) {
            let several = self.volumes.len() > 1;
            count(&self.connection, self.method, several, failed.is_none(), began);
        }
    }

    async fn results(&self, limit: Duration) -> Result<Vec<AnyCnsVolumeOperationResult>, Error> {
        let ended = self.connection.wait(&self.task, Service::Cns, limit).await;
        let ended: Option<CnsVolumeOperationBatchResult> =
            ended.map_err(|error| error.of(self.method))?;
        Ok(ended.unwrap_or_default().volume_results)
    }

    fn read(&self, result: AnyCnsVolumeOperationResult) -> Result<T, Error> {
        T::read(result).map_err(|cause| self.connection.wire().error(self.method, cause))
    }

    /// The error of a volume that the result of a task lacks.
    fn unanswered(&self) -> Error {
        let missing = Cause::Malformed(Malformed::new("the task's result lacks the volume"));
        self.connection.unfinished(&self.task, self.method, missing)
    }
}

impl Volumes<'_> {
    /// Creates a volume, or registers a disk that exists as one ([`Content::Disk`], [`Content::File`]). A disk that
    /// is a volume already is not an error.
    pub async fn create(&self, volume: &NewVolume) -> Result<Started<Created>, Error> {
        self.require(CnsCreateVolume::NAME, volume.needs()).await?;
        let create = CnsCreateVolume { create_specs: vec![volume.spec()] };
        Ok(Started { batch: self.start(&create, Vec::new()).await? })
    }

    /// Deletes a volume, and its disk or share too if `with_disk`.
    pub async fn delete(
        &self,
        volume: &CnsVolumeId,
        with_disk: bool,
    ) -> Result<Started<()>, Error> {
        let volume_ids = vec![volume.clone()];
        let delete = CnsDeleteVolume { volume_ids: volume_ids.clone(), delete_disk: with_disk };
        Ok(Started { batch: self.start(&delete, volume_ids).await? })
    }

    /// Extends a volume.
    pub async fn extend(&self, volume: &CnsVolumeId, mebibytes: i64) -> Result<Started<()>, Error> {
        let spec = CnsVolumeExtendSpec { volume_id: volume.clone(), capacity_in_mb: mebibytes };
        let extend = CnsExtendVolume { extend_specs: vec![spec] };
        Ok(Started { batch: self.start(&extend, vec![volume.clone()]).await? })
    }

    /// Attaches volumes to VMs. A volume that a VM has, even if it is the same one, is [`Remedy::InUse`].
    pub async fn attach(
        &self,
        specs: &[CnsVolumeAttachDetachSpec],
    ) -> Result<Batch<Attached>, Error> {
        let needs = specs.iter().any(asks_for_place).then_some(VSAN_9_1_0_0);
        self.require(CnsAttachVolume::NAME, needs).await?;
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsAttachVolume { attach_specs: specs.to_vec() }, volumes).await
    }

    /// Detaches volumes from VMs. A volume that the VM does not have is
    /// [`Remedy::NotFound`], whatever fault CNS has for it.
    pub async fn detach(&self, specs: &[CnsVolumeAttachDetachSpec]) -> Result<Detach, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        let batch = self.start(&CnsDetachVolume { detach_specs: specs.to_vec() }, volumes).await?;
        Ok(Detach { batch, specs: specs.to_vec() })
    }

    /// Changes what CNS knows of the users of volumes.
    pub async fn update_metadata(
        &self,
        specs: &[CnsVolumeMetadataUpdateSpec],
    ) -> Result<Batch<()>, Error> {
        let needs = specs.iter().find_map(|spec| metadata_needs(&spec.metadata));
        self.require(CnsUpdateVolumeMetadata::NAME, needs).await?;
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsUpdateVolumeMetadata { update_specs: specs.to_vec() }, volumes).await
    }

    /// Moves volumes to other datastores.
    pub async fn relocate(&self, specs: &[CnsBlockVolumeRelocateSpec]) -> Result<Batch<()>, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        let relocate_specs = specs.iter().cloned().map(Into::into).collect();
        self.start(&CnsRelocateVolume { relocate_specs }, volumes).await
    }

    /// Gives each volume the storage policy with the id behind it.
    pub async fn change_policy(
        &self,
        changes: &[(CnsVolumeId, String)],
    ) -> Result<Batch<()>, Error> {
        let spec = |(volume, policy): &(CnsVolumeId, String)| CnsVolumePolicyReconfigSpec {
            volume_id: volume.clone(),
            profile: profile(Some(policy)),
        };
        let volumes = changes.iter().map(|(volume, _)| volume.clone()).collect();
        let volume_policy_reconfig_specs = changes.iter().map(spec).collect();
        self.start(&CnsReconfigVolumePolicy { volume_policy_reconfig_specs }, volumes).await
    }

    /// Changes who may mount file volumes.
    pub async fn configure_access(
        &self,
        specs: &[CnsVolumeACLConfigureSpec],
    ) -> Result<Batch<()>, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsConfigureVolumeAcls { acl_config_specs: specs.to_vec() }, volumes).await
    }

    /// Makes CNS forget volumes; what is left of each is a first class disk or a plain one.
    pub async fn unregister(&self, specs: &[CnsUnregisterVolumeSpec]) -> Result<Batch<()>, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsUnregisterVolume { unregister_spec: specs.to_vec() }, volumes).await
    }

    /// Reads the first class disks behind block volumes.
    pub async fn disks(&self, volumes: &[CnsVolumeId]) -> Result<Batch<VStorageObject>, Error> {
        self.start(&CnsQueryVolumeInfo { volumes: volumes.to_vec() }, volumes.to_vec()).await
    }

    /// Makes CNS compare volumes with their disks.
    pub async fn sync(&self, specs: &[CnsSyncVolumeSpec]) -> Result<Batch<()>, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsSyncVolume { sync_specs: specs.to_vec() }, volumes).await
    }

    /// Makes CNS compare all volumes of a datastore with its disks.
    pub async fn sync_datastore(&self, url: &str, full: bool) -> Result<Started<Synced>, Error> {
        let sync = CnsSyncDatastore { datastore_url: Some(url.to_owned()), full_sync: Some(full) };
        let manager = Ref::<CnsDebugManager>::new("cns-debug-manager");
        let task = self.connection.call(&manager, &sync).await?;
        Ok(Started { batch: self.batch(task, CnsSyncDatastore::NAME, None, Vec::new()) })
    }

    /// A task that was started earlier, perhaps by another process, by the id that was recorded.
    pub fn resume<T: Outcome>(&self, task: &str) -> Started<T> {
        Started { batch: self.resume_batch(task, &[]) }
    }

    /// The same for a task with several volumes, with the order in which the results are wanted.
    pub fn resume_batch<T: Outcome>(&self, task: &str, volumes: &[CnsVolumeId]) -> Batch<T> {
        self.batch(Ref::new(task), "Task", None, volumes.to_vec())
    }

    async fn start<M, T>(&self, method: &M, volumes: Vec<CnsVolumeId>) -> Result<Batch<T>, Error>
    where
        M: Method<On = CnsVolumeManager, Answer = Ref<Task>>,
    {
        let began = Instant::now();
        let task = self.connection.call(&manager(), method).await.inspect_err(|_| {
            count(self.connection, M::NAME, volumes.len() > 1, false, began);
        })?;
        Ok(self.batch(task, M::NAME, Some(began), volumes))
    }

    fn batch<T>(
        &self,
        task: Ref<Task>,
        method: &'static str,
        began: Option<Instant>,
        volumes: Vec<CnsVolumeId>,
    ) -> Batch<T> {
        Batch { connection: self.connection.clone(), task, method, began, volumes, of: PhantomData }
    }

    /// Whether clients may choose the ids of new volumes: from vCenter 9.1, if its hosts are as new.
    pub async fn takes_chosen_ids(&self) -> Result<bool, Error> {
        Ok(self.require(CnsCreateVolume::NAME, None).await?.knows(VSAN_9_1_0_0))
    }

    /// Whether one call attaches or detaches several volumes: from vCenter 9.1.
    pub async fn takes_batches(&self) -> Result<bool, Error> {
        Ok(self.require(CnsAttachVolume::NAME, None).await?.knows(VSAN_9_1_0_0))
    }

    /// Refuses what the server is too old for; returns its release.
    async fn require(
        &self,
        method: &'static str,
        needs: impl IntoIterator<Item = Since>,
    ) -> Result<Release, Error> {
        let session = self.connection.established().await?;
        let wire = self.connection.wire();
        wire.find_version(session.as_in(), Service::Cns).await?;
        let release = session.as_in().release();
        match needs.into_iter().find(|since| !release.knows(*since)) {
            Some(since) => Err(wire.error(method, Cause::TooOld(since))),
            None => Ok(release),
        }
    }
}

/// Counts an operation of CNS that ended, if the Go CSI driver has a name for it.
fn count(connection: &Connection, method: &str, several: bool, succeeded: bool, began: Instant) {
    let name = match method {
        "CnsCreateVolume" => "create-volume",
        "CnsDeleteVolume" => "delete-volume",
        "CnsAttachVolume" if several => "batch-volume",
        "CnsAttachVolume" => "attach-volume",
        "CnsDetachVolume" => "detach-volume",
        "CnsExtendVolume" => "expand-volume",
        "CnsUpdateVolumeMetadata" => "update-volume-metadata",
        "CnsQueryVolume" | "CnsQueryAsync" => "query-volume",
        "CnsQueryVolumeInfo" => "query-volume-info",
        "CnsQuerySnapshots" => "query-snapshots",
        "CnsRelocateVolume" => "relocate-volume",
        "CnsConfigureVolumeACLs" => "configure-volume-acl",
        "CnsCreateSnapshots" => "create-snapshot",
        "CnsDeleteSnapshots" => "delete-snapshot",
        "CnsUnregisterVolume" => "unregister-volume",
        _ => return,
    };
    connection.wire().metrics().cns_operation(name, succeeded, began.elapsed());
}

fn manager() -> Ref<CnsVolumeManager> {
    Ref::new("cns-volume-manager")
}

fn profile(policy: Option<&String>) -> Vec<AnyVirtualMachineProfileSpec> {
    let spec = |id: &String| VirtualMachineDefinedProfileSpec { profile_id: id.clone() }.into();
    policy.map(spec).into_iter().collect()
}

/// Whether a spec has more than a volume and a VM.
fn asks_for_place(spec: &CnsVolumeAttachDetachSpec) -> bool {
    *spec != CnsVolumeAttachDetachSpec::new(&spec.volume_id, &spec.vm)
}

/// A server that does not know the mark would keep the cluster that is to be removed.
fn metadata_needs(metadata: &CnsVolumeMetadata) -> Option<Since> {
    let mut clusters = metadata.container_cluster_array.iter().chain([&metadata.container_cluster]);
    clusters.any(|cluster| cluster.delete == Some(true)).then_some(VSAN_8_0_0_2)
}

impl CnsVolumeAttachDetachSpec {
    /// The volume and the VM; CNS chooses the rest.
    pub fn new(volume: &CnsVolumeId, vm: &Ref<VirtualMachine>) -> Self {
        Self { volume_id: volume.clone(), vm: vm.clone(), ..Self::default() }
    }
}

impl CnsBlockVolumeRelocateSpec {
    /// The volume and the datastore it goes to; its policy changes only if one is given.
    pub fn new(volume: &CnsVolumeId, datastore: &Ref<Datastore>, policy: Option<&String>) -> Self {
        Self { volume_id: volume.clone(), datastore: datastore.clone(), profile: profile(policy) }
    }
}

macro_rules! ids {
    ($($name:ident)*) => { $(
        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self { id: id.to_owned() }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.id)
            }
        }

        impl Eq for $name {}

        impl std::hash::Hash for $name {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.id.hash(state);
            }
        }
    )* };
}

ids! { CnsVolumeId CnsSnapshotId }
