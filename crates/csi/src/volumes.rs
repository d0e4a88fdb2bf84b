//! Operations on volumes: create, attach, grow, list, detach, delete.
//!
//! ```text
//!   gRPC ─────────────┐
//!   attach controller ┴─► Volumes ─┬─ choose ── create ── journal, placement, policies
//!                                  ├─ publish ─ queue per VM
//!                                  ├─ change    delete, grow
//!                                  ├─ snapshots take, delete, list; sources: volumes with their content
//!                                  └─ status    get, list, capacity
//!                                        └──► Sites ─► Site: one vCenter, followed
//! ```
//!
//! Requests and answers are types of their own, and what is not done is a [`Refusal`]; nothing here knows gRPC.
//! One operation on a volume runs at a time, and goes on to its end when its caller gives up: a caller that calls
//! again before that is told so ([`Kind::Busy`]).
//!
//! Every operation may be repeated after a crash at any point. What decides is what vCenter has: its tasks, its
//! volumes, its disks, the devices of its VMs. Only creating a volume or a snapshot needs a memory of its own, the
//! journal; and where there are several vCenters, `volume_infos` remember which of them has a volume.
//!
//! Deliberately absent: gRPC, VolumeAttachments, the metadata that vCenter shows of claims and pods.

mod attempts;
mod change;
mod choose;
mod create;
pub(crate) mod journal;
mod names;
pub(crate) mod nodes;
mod pages;
mod placement;
mod policies;
mod publish;
mod queue;
mod refused;
mod search;
mod site;
mod sites;
mod snapshots;
mod sources;
mod status;
mod topology;
mod unsettled;
pub(crate) mod volume_infos;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    time::Duration,
};

use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use vsphere::types::{AnyCnsBackingObjectDetails, CnsVolume};

pub(crate) use self::placement::PREFERRED_DATASTORES;
use self::{
    journal::Journal, nodes::Nodes, queue::Change, unsettled::Unsettled, volume_infos::VolumeInfos,
};
pub use self::{
    placement::Selection,
    site::Site,
    sites::{Position, Sites},
    snapshots::{Snapshot, SnapshotId, SnapshotPage},
    sources::Source,
    topology::Segment,
};
use crate::{
    in_flight::InFlight,
    refusal::{Kind, Refusal},
};

const MEBIBYTE: u64 = 1 << 20;
/// What a volume gets when no size is requested.
const DEFAULT_SIZE: u64 = 10 << 30;
/// The largest virtual disk: 62 TiB.
const LARGEST: u64 = 62 << 40;
/// How long the task of a creation is waited for, after which the next call goes on with it; sidecars wait for five
/// minutes.
const LIMIT: Duration = Duration::from_secs(240);
/// How long any other task is waited for. Its volume is held for as long, so that no call overtakes one that vCenter has
/// not carried out yet: callers that give up earlier are told that the volume is busy.
const HELD_FOR: Duration = Duration::from_secs(3600);

/// How long an attach or a detach that vCenter did not answer may still be carried out; unlike a create it writes no disk.
const ATTACHED_WITHIN: Duration = Duration::from_secs(180);

/// A volume to be created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Create {
    /// Requests of the same name are about the same volume.
    pub name: String,
    /// In bytes; 0 if the caller leaves it open.
    pub required: u64,
    /// In bytes.
    pub limit: Option<u64>,
    /// The name of a storage policy.
    pub policy: Option<String>,
    /// The datastores that may be used.
    pub selection: Selection,
    /// What its content is copied from.
    pub source: Option<Source>,
    /// From where it must be reached, the preferred segments first: one of them is enough. From all nodes if there are
    /// none.
    pub segments: Vec<Segment>,
}

/// A volume that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its id in CNS.
    pub id: String,
    /// Its size.
    pub bytes: u64,
    /// The segments that reach it, all of them; none if the nodes report no topology.
    pub accessible: BTreeSet<Segment>,
}

/// A volume that a VM has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The UUID of its disk as the guest sees it: 32 digits in lower case.
    pub disk: String,
}

/// A volume that has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    /// Its size.
    pub bytes: u64,
}

/// A volume in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// Its id in CNS.
    pub id: String,
    /// Its size, if vCenter reports it.
    pub bytes: Option<u64>,
    /// The ids of the nodes that have it.
    pub nodes: BTreeSet<String>,
    /// What vCenter reports against it.
    pub problem: Option<String>,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Of one vCenter, in its order.
    pub volumes: Vec<Listed>,
    /// Where the next page begins.
    pub next: Option<Position>,
}

/// Room for volumes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// On all datastores together.
    pub available: u64,
    /// On the emptiest one.
    pub largest: u64,
}

/// Operations on volumes. Clones are the same.
#[derive(Debug, Clone)]
pub struct Volumes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sites: watch::Receiver<Sites>,
    nodes: Nodes,
    journal: Journal,
    volume_infos: VolumeInfos,
    in_flight: InFlight,
    running: TaskTracker,
    unsettled: Unsettled,
    settle: Duration,
    /// Whether volumes may be larger than what is free.
    overcommit: bool,
}

impl Volumes {
    /// Operations on the volumes of whatever vCenters there are.
    pub(crate) fn new(
        sites: watch::Receiver<Sites>,
        nodes: Nodes,
        (journal, volume_infos): (Journal, VolumeInfos),
        settle: Duration,
        overcommit: bool,
    ) -> Self {
        let (in_flight, running) = (InFlight::default(), TaskTracker::new());
        let unsettled = Unsettled::new(settle.min(ATTACHED_WITHIN));
        Self(Arc::new(Inner {
            sites,
            nodes,
            journal,
            volume_infos,
            in_flight,
            running,
            unsettled,
            settle,
            overcommit,
        }))
    }

    /// Waits for operations that run, for a while; what does not end then is resumed by the next process.
    pub(crate) async fn finish(&self, grace: Duration) {
        self.0.running.close();
        if timeout(grace, self.0.running.wait()).await.is_err() {
            tracing::warn!("operations on volumes are left to the next process");
        }
    }

    /// Creates a volume, or finds the one that an earlier call of this name created.
    ///
    /// # Errors
    /// When no datastore can take it, one of this name is different, or vCenter refuses.
    pub async fn create(&self, request: Create) -> Result<Volume, Refusal> {
        let name = request.name.clone();
        self.hold(&name, async move |inner, _| choose::create(&inner, &request).await).await
    }

    /// Deletes a volume and its disk. One that does not exist is done.
    ///
    /// # Errors
    /// When a VM has it, or vCenter refuses.
    pub async fn delete(&self, volume: &str) -> Result<(), Refusal> {
        let id = volume.to_owned();
        self.hold(volume, async move |inner, _| change::delete(&inner, &id).await).await
    }

    /// Attaches a volume to the VM of a node, named by its UUID or its name. One that the VM has is done.
    ///
    /// # Errors
    /// When another VM has it, there is no place for it, or vCenter refuses.
    pub async fn publish(&self, volume: &str, node: &str) -> Result<Published, Refusal> {
        let (id, node) = (volume.to_owned(), node.to_owned());
        self.hold(volume, async move |inner, caller| {
            publish::publish(&inner, &id, &node, &caller).await
        })
        .await
    }

    /// Detaches a volume from the VM of a node. A volume, VM or attachment that does not exist is done.
    ///
    /// # Errors
    /// When the VM still has it.
    pub async fn unpublish(&self, volume: &str, node: &str) -> Result<(), Refusal> {
        let (id, node) = (volume.to_owned(), node.to_owned());
        self.hold(volume, async move |inner, caller| {
            publish::unpublish(&inner, &id, &node, &caller).await
        })
        .await
    }

    /// Grows a volume to at least this many bytes. One that is as large is done.
    ///
    /// # Errors
    /// When there is no room, or vCenter refuses.
    pub async fn expand(
        &self,
        volume: &str,
        required: u64,
        limit: Option<u64>,
    ) -> Result<Expanded, Refusal> {
        let id = volume.to_owned();
        self.hold(volume, async move |inner, _| change::expand(&inner, &id, required, limit).await)
            .await
    }

    /// A volume, the nodes that have it, and what vCenter reports against it.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn get(&self, volume: &str) -> Result<Listed, Refusal> {
        status::get(&self.0, volume).await
    }

    /// Whether a volume exists.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn exists(&self, volume: &str) -> Result<bool, Refusal> {
        status::exists(&self.0, volume).await
    }

    /// The volumes of this cluster, beginning at a position.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn list(&self, from: &Position, most: Option<u32>) -> Result<Page, Refusal> {
        status::list(&self.0, from, most).await
    }

    /// Room for volumes of a storage policy on some datastores, as far as a segment reaches them.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn capacity(
        &self,
        policy: Option<&str>,
        selection: &Selection,
        segment: Option<&Segment>,
    ) -> Result<Capacity, Refusal> {
        status::capacity(&self.0, policy, selection, segment).await
    }

    /// Which volumes the VMs of these nodes have, by node. A node that vCenter does not show, or whose devices it
    /// cannot tell at present, is not among them.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn published(
        &self,
        nodes: &[String],
    ) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
        publish::volumes_of(&self.0, nodes).await
    }

    /// How many volumes fit on the VM of a node.
    ///
    /// # Errors
    /// When there is no such VM, or vCenter does not answer.
    pub async fn slots(&self, node: &str) -> Result<u32, Refusal> {
        publish::slots(&self.0, node).await
    }

    /// Takes over from a process that may have begun to attach a volume to a node.
    pub(crate) fn inherit_attach(&self, volume: &str, node: &str) {
        self.0.unsettled.inherit(node, volume, Change::Attach);
    }

    /// Takes over from a process that may have begun to detach a volume from a node.
    pub(crate) fn inherit_detach(&self, volume: &str, node: &str) {
        self.0.unsettled.inherit(node, volume, Change::Detach);
    }

    /// Whether vCenter shows that nothing runs on a node: its VM is off or gone.
    pub fn is_off(&self, node: &str) -> bool {
        publish::is_off(&self.0, node)
    }

    /// Runs an operation to its end, even if the caller gives up, while it holds the volume. The operation learns of
    /// that, so that it need not begin what it has not begun yet.
    async fn hold<T, F>(
        &self,
        volume: &str,
        operation: impl FnOnce(Arc<Inner>, CancellationToken) -> F,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        refuse_other_kinds(volume)?;
        let claim = self.0.in_flight.claim(volume)?;
        let caller = CancellationToken::new();
        let _waits = caller.clone().drop_guard();
        let work = operation(Arc::clone(&self.0), caller);
        let span = tracing::Span::current();
        let running = self.0.running.spawn(tracing::Instrument::instrument(
            async move {
                let done = work.await;
                drop(claim);
                done
            },
            span,
        ));
        running.await.unwrap_or_else(|error| {
            Err(Refusal::new(Kind::Internal, "the operation broke off").because(error))
        })
    }
}

/// Refuses ids of volumes that this version does not serve: read as ids of disks, they would be taken for disks that do
/// not exist, and deleting or detaching them for done.
fn refuse_other_kinds(volume: &str) -> Result<(), Refusal> {
    let kind = if volume.starts_with("file:") {
        "a file volume"
    } else if volume.trim_end().ends_with(".vmdk") {
        "a volume of the in-tree provider"
    } else {
        return Ok(());
    };
    let what =
        format!("volume {volume} is {kind}, which this version of the driver does not serve");
    Err(Refusal::new(Kind::Precondition, what)
        .remedy("keep the Go driver for clusters that have such volumes"))
}

/// The size of a new volume in MiB.
fn mebibytes(required: u64, limit: Option<u64>) -> Result<i64, Refusal> {
    let wanted = if required == 0 {
        limit.map_or(DEFAULT_SIZE, |limit| limit.min(DEFAULT_SIZE))
    } else {
        required
    };
    // A default that is cut by a limit must not be rounded above it.
    let mebibytes =
        if required == 0 { (wanted / MEBIBYTE).max(1) } else { change::round_up(wanted) };
    let size = mebibytes.saturating_mul(MEBIBYTE);
    let out_of_range = |why: String| Err(Refusal::new(Kind::OutOfRange, why));
    if let Some(limit) = limit.filter(|limit| size > *limit) {
        return out_of_range(format!(
            "a volume of {size} bytes (whole MiB) is larger than the limit of {limit} bytes"
        ));
    }
    if size > LARGEST {
        let size = placement::Size(size);
        return out_of_range(format!("{size} is more than the 62 TiB of the largest virtual disk"));
    }
    Ok(i64::try_from(mebibytes).unwrap_or(i64::MAX))
}

fn bytes(mebibytes: i64) -> u64 {
    u64::try_from(mebibytes).unwrap_or_default().saturating_mul(MEBIBYTE)
}

/// The size of a block volume in MiB.
fn size_of(volume: &CnsVolume) -> Option<i64> {
    match volume.backing_object_details.as_ref()? {
        AnyCnsBackingObjectDetails::CnsBlockBackingDetails(block) => block.capacity_in_mb,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT_SIZE, LARGEST, MEBIBYTE, mebibytes, refuse_other_kinds};
    use crate::refusal::Kind;

    #[test]
    fn volumes_of_other_kinds_are_refused_instead_of_taken_for_absent() {
        for id in ["file:0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c", "[ds-1] kubevols/a.vmdk"] {
            assert_eq!(refuse_other_kinds(id).unwrap_err().kind, Kind::Precondition, "{id}");
        }
        refuse_other_kinds("0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c").unwrap();
    }

    #[test]
    fn sizes_are_whole_mebibytes_within_the_limit() {
        let mib = |required, limit| mebibytes(required, limit).map_err(|refusal| refusal.kind);
        assert_eq!(mib(0, None), Ok(i64::try_from(DEFAULT_SIZE / MEBIBYTE).unwrap()));
        assert_eq!(mib(1, None), Ok(1));
        assert_eq!(mib(MEBIBYTE + 1, None), Ok(2));
        assert_eq!(mib(MEBIBYTE, Some(MEBIBYTE)), Ok(1));
        assert_eq!(mib(MEBIBYTE + 1, Some(MEBIBYTE + 2)), Err(Kind::OutOfRange));
        assert_eq!(mib(0, Some(5 * MEBIBYTE + 3)), Ok(5));
        assert_eq!(mib(0, Some(MEBIBYTE - 1)), Err(Kind::OutOfRange));
        assert_eq!(mib(LARGEST, None), Ok(62 << 20));
        assert_eq!(mib(LARGEST + 1, None), Err(Kind::OutOfRange));
        assert_eq!(mib(u64::MAX, None), Err(Kind::OutOfRange));
    }
}
