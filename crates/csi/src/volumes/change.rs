//! Deleting and growing volumes. Both may be repeated: what vCenter has decides, not what was asked before.

use vsphere::{
    cns::{Content, NewVolume, Select},
    connection::Connection,
    error::{Cause, Error, Missing, Remedy},
    types::{CnsVolume, CnsVolumeId, VStorageObject},
};

use super::{
    Expanded, HELD_FOR, Inner, MEBIBYTE, placement::Size, refused::refused, site::Site, size_of,
};
use crate::refusal::{Kind, Refusal};

pub(super) async fn delete(inner: &Inner, volume: &str) -> Result<(), Refusal> {
    let site = inner.site()?;
    let connection = site.connection()?;
    let id = CnsVolumeId::from(volume);
    let what = format!("volume {volume} was not deleted");
    // It is not known of every release whether it refuses, or deletes the snapshots, too.
    refuse_with_snapshots(&connection, &id, &what).await?;
    let Err(error) = delete_once(&connection, &id).await else { return Ok(()) };
    if error.fault().is_none() && !matches!(error.remedy, Remedy::Unfinished { .. }) {
        // There was no answer: CNS may have a record although there is no disk.
        return Err(refused(what, error));
    }
    match error.remedy {
        Remedy::InUse => {
            let refusal = Refusal::new(Kind::Precondition, what).because(error);
            Err(refusal.remedy(
                "it is attached to a VM: it is deleted after it is detached; kubectl get volumeattachments, or \
                 Cluster, Monitor, Container Volumes in the vSphere Client, shows where",
            ))
        }
        Remedy::Login | Remedy::NoPermission { .. } | Remedy::LoggedOut | Remedy::Busy => {
            Err(refused(what, error))
        }
        // CNS may have lost a volume whose disk exists, may have deleted it in spite of the error, or may have lost
        // the task: whether there is a disk decides.
        _ => {
            let is_unknown = matches!(error.remedy, Remedy::NotFound { .. });
            match restore(&site, &connection, volume, is_unknown).await {
                Ok(Left::Nothing) => Ok(()),
                Ok(Left::Restored) => {
                    refuse_with_snapshots(&connection, &id, &what).await?;
                    delete_once(&connection, &id).await.map_err(|error| refused(what, error))
                }
                Ok(Left::Known) => Err(with_snapshots(&connection, &id, what, error).await),
                Err(refusal) => Err(refusal),
            }
        }
    }
}

async fn delete_once(connection: &Connection, id: &CnsVolumeId) -> Result<(), Error> {
    connection.volumes().delete(id, true).await?.wait(HELD_FOR).await
}

/// The size of a first class disk in MiB; nothing if there is no such disk.
pub(super) async fn disk(connection: &Connection, id: &str) -> Result<Option<i64>, Error> {
    Ok(read_disk(connection, id).await?.map(|disk| disk.config.capacity_in_mb))
}

async fn read_disk(connection: &Connection, id: &str) -> Result<Option<VStorageObject>, Error> {
    match connection.disks().await?.read(id).await {
        Ok(disk) => Ok(Some(disk)),
        Err(error)
            if matches!(
                error.remedy,
                Remedy::NotFound { what: Missing::Volume(_) | Missing::Unnamed }
            ) =>
        {
            Ok(None)
        }
        // What cannot be the id of a disk is the id of none.
        Err(error) if matches!(error.remedy, Remedy::Invalid { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What there is of a volume that CNS did not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Not even a disk.
    Nothing,
    /// CNS had lost it, and knows it again: the call may succeed now.
    Restored,
    /// CNS knows it: the reason is another one.
    Known,
}

/// Looks for a volume that CNS did not change, and makes CNS know it again if there is its disk and CNS has lost it.
/// Old releases answer alike for a volume that does not exist, for one that they have lost and for many other reasons:
/// unless CNS said that it `is_unknown`, what it shows decides, and the volume is taken for known in doubt.
pub(super) async fn restore(
    site: &Site,
    connection: &Connection,
    volume: &str,
    is_unknown: bool,
) -> Result<Left, Refusal> {
    let left = async {
        let unread = |error| refused(format!("volume {volume} could not be read"), error);
        let Some(disk) = read_disk(connection, volume).await.map_err(unread)? else {
            return Ok(Left::Nothing);
        };
        if !is_unknown && find(connection, volume).await?.is_some() {
            return Ok(Left::Known);
        }
        register(site, connection, volume, &disk.config.name).await?;
        tracing::warn!(volume, "volume registered again with CNS, which had lost it");
        Ok(Left::Restored)
    };
    match left.await {
        Err(_) if !is_unknown => Ok(Left::Known),
        left => left,
    }
}

/// Whether an answer of CNS may mean that it does not know the volume.
pub(super) fn may_be_unknown(error: &Error) -> bool {
    matches!(error.remedy, Remedy::NotFound { .. } | Remedy::Refused | Remedy::Invalid { .. })
}

/// Makes CNS know a disk again that it has lost, under the name that the volume had: it is searched for by that.
async fn register(
    site: &Site,
    connection: &Connection,
    volume: &str,
    name: &str,
) -> Result<(), Refusal> {
    let what = || format!("volume {volume} could not be registered with CNS again");
    let content = Content::Disk(volume.to_owned());
    let metadata = Some(site.metadata(connection).await.map_err(|error| refused(what(), error))?);
    let known = NewVolume { metadata, ..NewVolume::new(name, content) };
    let registered = async { connection.volumes().create(&known).await?.wait(HELD_FOR).await };
    registered.await.map(|_| ()).map_err(|error| refused(what(), error))
}

/// The ids of the snapshots of a volume; none where the release has no snapshots, or CNS does not know the volume.
async fn snapshots(connection: &Connection, id: &CnsVolumeId) -> Result<Vec<String>, Error> {
    let mut pages = connection.volumes().snapshots_of(id);
    let page = match pages.next_page(super::LIMIT).await {
        Ok(page) => page.unwrap_or_default(),
        Err(error) if matches!(error.failure().cause, Cause::TooOld(_)) => Vec::new(),
        Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut ids = Vec::new();
    for snapshot in page {
        match snapshot {
            Ok(snapshot) => ids.push(snapshot.snapshot_id.id),
            Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ids)
}

async fn refuse_with_snapshots(
    connection: &Connection,
    id: &CnsVolumeId,
    what: &str,
) -> Result<(), Refusal> {
    match snapshots(connection, id).await {
        Ok(ids) if ids.is_empty() => Ok(()),
        Ok(ids) => Err(has_snapshots(what, &ids)),
        // What is not there has none, whatever CNS makes of its id.
        Err(error) => match disk(connection, &id.id).await {
            Ok(None) => Ok(()),
            _ => Err(refused(format!("{what}: its snapshots could not be read"), error)),
        },
    }
}

/// The refusal of a change that vCenter gave no reason for: snapshots are the usual one.
async fn with_snapshots(
    connection: &Connection,
    id: &CnsVolumeId,
    what: String,
    error: Error,
) -> Refusal {
    match snapshots(connection, id).await {
        Ok(ids) if !ids.is_empty() => has_snapshots(&what, &ids).because(error),
        _ => refused(what, error),
    }
}

fn has_snapshots(what: &str, ids: &[String]) -> Refusal {
    let what = format!("{what}: it has the snapshots {}", ids.join(", "));
    let remedy = "delete its VolumeSnapshots, and those that only vCenter knows there";
    Refusal::new(Kind::Precondition, what).remedy(remedy)
}

pub(super) async fn expand(
    inner: &Inner,
    volume: &str,
    required: u64,
    limit: Option<u64>,
) -> Result<Expanded, Refusal> {
    let wanted = super::mebibytes(required, limit)?;
    let site = inner.site()?;
    let connection = site.connection()?;
    let id = CnsVolumeId::from(volume);
    let now = find(&connection, volume).await?;
    let expanded = |mebibytes: i64| Expanded { bytes: super::bytes(mebibytes) };
    let size = now.as_ref().and_then(size_of);
    if let Some(size) = size.filter(|size| *size >= wanted) {
        return Ok(expanded(size));
    }
    let extend = async || connection.volumes().extend(&id, wanted).await?.wait(HELD_FOR).await;
    let mut extended = extend().await;
    if let Err(error) = &extended
        && may_be_unknown(error)
    {
        let is_unknown = matches!(error.remedy, Remedy::NotFound { .. });
        match restore(&site, &connection, volume, is_unknown).await? {
            Left::Restored => extended = extend().await,
            Left::Nothing => return Err(absent(volume).because(error.clone())),
            Left::Known => {}
        }
    }
    let Err(error) = extended else { return Ok(expanded(wanted)) };
    let target = Size(super::bytes(wanted));
    let what = format!("volume {volume} was not grown to {target}");
    match error.remedy {
        Remedy::NoSpace => {
            let refusal = Refusal::new(Kind::Exhausted, what).because(error);
            Err(refusal.remedy("free space on its datastore, or move the volume to a larger one"))
        }
        Remedy::NotFound { .. } => Err(absent(volume).because(error)),
        // Some faults come after the work was done, and old sizes are shown for a while: the disk decides.
        _ => match disk(&connection, volume).await {
            Ok(Some(size)) if size >= wanted => Ok(expanded(size)),
            Ok(Some(_)) if matches!(error.remedy, Remedy::Refused | Remedy::Invalid { .. }) => {
                let refusal = with_snapshots(&connection, &id, what.clone(), error).await;
                Err(in_use(inner, &connection, volume, what, refusal).await)
            }
            _ => Err(refused(what, error)),
        },
    }
}

/// The refusal to grow a volume for no reason that vCenter gave: if a node has it, that is the usual one.
async fn in_use(
    inner: &Inner,
    connection: &Connection,
    volume: &str,
    what: String,
    refusal: Refusal,
) -> Refusal {
    if refusal.kind == Kind::Precondition {
        return refusal;
    }
    // CNS may not show the volume yet, so the devices of the nodes' VMs decide. The sidecar repeats such a request when
    // no pod uses the volume any more.
    match super::publish::holder(inner, connection, volume).await {
        Some(vm) => Refusal::new(Kind::Precondition, what).because(refusal).remedy(format!(
            "{vm} has it, and vCenter before 7.0U2 grows detached volumes only: stop its pods"
        )),
        None => refusal,
    }
}

fn absent(volume: &str) -> Refusal {
    Refusal::new(Kind::NotFound, format!("volume {volume} does not exist"))
}

/// A volume as CNS has it.
pub(super) async fn find(
    connection: &Connection,
    volume: &str,
) -> Result<Option<CnsVolume>, Refusal> {
    let select = [
        Select::VolumeName,
        Select::VolumeType,
        Select::DatastoreUrl,
        Select::BackingObjectDetails,
        Select::HealthStatus,
        Select::DatastoreAccessibilityStatus,
        Select::PolicyId,
    ];
    let found = connection.volumes().read(&[CnsVolumeId::from(volume)], &select).await;
    let found =
        found.map_err(|error| refused(format!("volume {volume} could not be read"), error))?;
    Ok(found.into_iter().next())
}

/// MiB of a size in bytes.
pub(super) const fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(MEBIBYTE)
}
