//! Deleting and growing volumes. Both may be repeated: what vCenter has decides, not what was asked before.

use vsphere::{
    cns::{Content, NewVolume, Select},
    connection::Connection,
    error::{Error, Missing, Remedy},
    reference::Ref,
    types::{
        AnyBaseConfigInfoBackingInfo as Backing, CnsSnapshot, CnsVolume, CnsVolumeId, Datastore,
        VStorageObject,
    },
};

use super::{
    Expanded, HELD_FOR, Inner, MEBIBYTE, placement::Size, refused::refused, site::Site, size_of,
    snapshots, sources,
};
use crate::refusal::{Kind, Refusal};

pub(super) async fn delete(inner: &Inner, volume: &str) -> Result<(), Refusal> {
    let sites = inner.sites()?;
    let Some(site) = inner.site_of(volume).await? else { return Ok(()) };
    let deleted = delete_in(inner, &site, volume).await;
    let deleted = deleted.map_err(|refusal| sites.attribute(&site, refusal))?;
    // Its record may be older than its move to another vCenter.
    if deleted == Deleted::Before
        && let Some(other) = inner.moved_from(&site, volume).await?
    {
        let deleted = delete_in(inner, &other, volume).await;
        deleted.map_err(|refusal| sites.attribute(&other, refusal))?;
    }
    inner.volume_infos.forget(volume).await
}

/// How a volume comes not to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    Now,
    /// There was nothing to delete.
    Before,
}

async fn delete_in(inner: &Inner, site: &Site, volume: &str) -> Result<Deleted, Refusal> {
    let connection = site.connection()?;
    let id = CnsVolumeId::from(volume);
    let what = format!("volume {volume} was not deleted");
    // It is not known of every release whether it refuses, or deletes the snapshots, too.
    refuse_with_snapshots(inner, site, &connection, volume, &what).await?;
    let Err(error) = delete_once(&connection, &id).await else { return Ok(Deleted::Now) };
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
            match restore(site, &connection, volume, is_unknown).await {
                Ok(Left::Nothing) => Ok(Deleted::Before),
                Ok(Left::Restored) => {
                    refuse_with_snapshots(inner, site, &connection, volume, &what).await?;
                    let deleted = delete_once(&connection, &id).await;
                    deleted.map(|()| Deleted::Now).map_err(|error| refused(what, error))
                }
                Ok(Left::Known) => Err(with_snapshots(&connection, volume, what, error).await),
                Err(refusal) => Err(refusal),
            }
        }
    }
}

async fn delete_once(connection: &Connection, id: &CnsVolumeId) -> Result<(), Error> {
    connection.volumes().delete(id, true).await?.wait(HELD_FOR).await
}

/// Whether a volume exists. CNS shows some volumes late, and has lost others: then the disk decides.
pub(super) async fn exists(connection: &Connection, volume: &str) -> Result<bool, Refusal> {
    if find(connection, volume).await?.is_some() {
        return Ok(true);
    }
    let disk = disk(connection, volume).await;
    disk.map(|size| size.is_some())
        .map_err(|error| refused(format!("volume {volume} could not be read"), error))
}

/// The size of a first class disk in MiB; nothing if there is no such disk.
pub(super) async fn disk(connection: &Connection, id: &str) -> Result<Option<i64>, Error> {
    Ok(read_disk(connection, id).await?.map(|disk| disk.config.capacity_in_mb))
}

/// A first class disk; nothing if there is none with this id.
pub(super) async fn read_disk(
    connection: &Connection,
    id: &str,
) -> Result<Option<VStorageObject>, Error> {
    match connection.disks().await?.read(id).await {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if matches!(error.remedy, Remedy::NotFound { what: Missing::Volume(_) }) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Where a first class disk is.
pub(super) fn datastore_of(disk: &VStorageObject) -> &Ref<Datastore> {
    match &disk.config.backing {
        Backing::BaseConfigInfoBackingInfo(base) | Backing::Other { base, .. } => &base.datastore,
        Backing::BaseConfigInfoDiskFileBackingInfo(file) => &file.datastore,
        Backing::BaseConfigInfoFileBackingInfo(file) => &file.datastore,
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

/// The snapshots of a volume; none where the release has no snapshots, or CNS does not know the volume.
async fn snapshots(connection: &Connection, id: &str) -> Result<Vec<CnsSnapshot>, Error> {
    if !connection.volumes().has_snapshots().await? {
        return Ok(Vec::new());
    }
    snapshots::of_volume(connection, id).await
}

async fn refuse_with_snapshots(
    inner: &Inner,
    site: &Site,
    connection: &Connection,
    id: &str,
    what: &str,
) -> Result<(), Refusal> {
    match snapshots(connection, id).await {
        Ok(all) => match sources::sweep(inner, site, connection, all).await? {
            left if left.is_empty() => Ok(()),
            left => Err(has_snapshots(what, &left)),
        },
        // What is not there has none, whatever CNS makes of its id.
        Err(error) => match disk(connection, id).await {
            Ok(None) => Ok(()),
            _ => Err(refused(format!("{what}: its snapshots could not be read"), error)),
        },
    }
}

/// Deletes what clones that were given up left of a volume; returns whether there was anything.
async fn sweep(
    inner: &Inner,
    site: &Site,
    connection: &Connection,
    volume: &str,
) -> Result<bool, Refusal> {
    // If they cannot be read, the refusal of the change is the better one.
    let all = snapshots(connection, volume).await.unwrap_or_default();
    let count = all.len();
    Ok(sources::sweep(inner, site, connection, all).await?.len() < count)
}

/// The refusal of a change that vCenter gave no reason for: snapshots are the usual one.
async fn with_snapshots(connection: &Connection, id: &str, what: String, error: Error) -> Refusal {
    match snapshots(connection, id).await {
        Ok(all) if !all.is_empty() => has_snapshots(&what, &all).because(error),
        _ => refused(what, error),
    }
}

fn has_snapshots(what: &str, all: &[CnsSnapshot]) -> Refusal {
    let ids: Vec<_> = all.iter().map(|one| one.snapshot_id.id.as_str()).collect();
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
    let sites = inner.sites()?;
    let site = inner.home_of(volume).await?.ok_or_else(|| absent(volume))?;
    let expanded = expand_in(inner, &site, volume, wanted).await;
    expanded.map_err(|refusal| sites.attribute(&site, refusal))
}

pub(super) async fn expand_in(
    inner: &Inner,
    site: &Site,
    volume: &str,
    wanted: i64,
) -> Result<Expanded, Refusal> {
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
        match restore(site, &connection, volume, is_unknown).await? {
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
            // Of snapshots, some releases say just that the disk failed.
            Ok(Some(_))
                if matches!(
                    error.remedy,
                    Remedy::Refused | Remedy::Invalid { .. } | Remedy::Retry
                ) =>
            {
                if sweep(inner, site, &connection, volume).await? {
                    // The next attempt has one snapshot less in its way.
                    return Box::pin(expand_in(inner, site, volume, wanted)).await;
                }
                let refusal = with_snapshots(&connection, volume, what.clone(), error).await;
                Err(in_use(inner, site, volume, what, refusal).await)
            }
            _ => Err(refused(what, error)),
        },
    }
}

/// The refusal to grow a volume for no reason that vCenter gave: if a node has it, that is the usual one.
async fn in_use(
    inner: &Inner,
    site: &Site,
    volume: &str,
    what: String,
    refusal: Refusal,
) -> Refusal {
    if matches!(refusal.kind, Kind::Precondition | Kind::Unavailable) {
        return refusal;
    }
    // CNS may not show the volume yet, so the devices of the nodes' VMs decide. The sidecar repeats such a request when
    // no pod uses the volume any more.
    match super::publish::holder(inner, site, volume).await {
        Some(vm) => Refusal::new(Kind::Precondition, what).because(refusal).remedy(format!(
            "{vm} has it, and vCenter before 7.0U2 grows detached volumes only: stop its pods"
        )),
        None => refusal,
    }
}

pub(super) fn absent(volume: &str) -> Refusal {
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
