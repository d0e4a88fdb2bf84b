//! Volumes with the content of a snapshot or of another volume.
//!
//! CNS copies snapshots. A clone of a volume is a copy of a snapshot that is taken for it and deleted afterwards; its
//! description names the clone, so that it is found again after a crash:
//!
//! ```text
//!   take ─► copy ─► grow ─► delete ─► record of the clone: done
//! ```
//!
//! One whose clone was given up is deleted when it stands in the way of its volume's deletion or growth.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use vsphere::{connection::Connection, types::CnsSnapshot};

use super::{
    Inner, change,
    journal::{self, Attempt},
    refuse_other_kinds,
    refused::refused,
    site::Site,
    size_of,
    snapshots::{self, SnapshotId, Taking, Wanted},
};
use crate::refusal::{Kind, Refusal};

/// How the description of a snapshot begins that was taken for a clone; the clone's name follows.
const FOR_CLONE: &str = "csi.vsphere.vmware.com/clone ";

/// What the content of a new volume is copied from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// A volume, by its id.
    Volume(String),
}

impl Source {
    /// The volume whose content it is, or was.
    pub(super) fn volume(&self) -> &str {
        match self {
            Self::Snapshot(id) => &id.volume,
            Self::Volume(id) => id,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => id.fmt(f),
            Self::Volume(id) => id.fmt(f),
        }
    }
}

/// The volume whose content is copied, or whose snapshot.
#[derive(Debug)]
pub(super) struct Original {
    pub(super) mebibytes: i64,
    /// The URL of its datastore, unless CNS does not show it.
    url: Option<String>,
}

impl Original {
    /// Whether it is on the datastore with this URL.
    pub(super) fn is_at(&self, url: &str) -> bool {
        let plain = |url: &str| url.trim().trim_end_matches('/').to_owned();
        self.url.as_deref().is_some_and(|here| plain(here) == plain(url))
    }

    /// What helps when no datastore took the copy.
    pub(super) fn advice(&self) -> String {
        let url = self.url.as_deref().unwrap_or("which vCenter does not show");
        format!(
            "vCenter may copy within the source's datastore only ({url}): use a StorageClass that allows it, and see that \
             it has room"
        )
    }
}

/// Reads the source of a new volume.
pub(super) async fn find(
    site: &Site,
    connection: &Connection,
    source: &Source,
) -> Result<Original, Refusal> {
    let volume = source.volume();
    refuse_other_kinds(volume)?;
    snapshots::require_snapshots(site, connection).await?;
    if let Source::Snapshot(id) = source
        && snapshots::find(connection, id).await?.is_none()
    {
        return Err(Refusal::new(Kind::NotFound, format!("snapshot {id} does not exist")));
    }
    let shown = change::find(connection, volume).await?;
    let url = shown.as_ref().and_then(|volume| volume.datastore_url.clone());
    if let Some(mebibytes) = shown.as_ref().and_then(size_of) {
        return Ok(Original { mebibytes, url });
    }
    // CNS shows some volumes late, and has lost others: the disk decides.
    let disk = change::disk(connection, volume).await;
    match disk.map_err(|error| refused(format!("volume {volume} could not be read"), error))? {
        Some(mebibytes) => Ok(Original { mebibytes, url }),
        None => Err(change::absent(volume)),
    }
}

/// The snapshot to copy: of a volume, one that is taken for the clone of this name.
pub(super) async fn snapshot(
    inner: &Inner,
    site: &Site,
    connection: &Connection,
    source: &Source,
    clone: &str,
) -> Result<SnapshotId, Refusal> {
    let volume = match source {
        Source::Snapshot(id) => return Ok(id.clone()),
        Source::Volume(volume) => volume,
    };
    let _held = inner.in_flight.claim(volume)?;
    let wanted = Wanted {
        volume: volume.clone(),
        name: format!("clone-{clone}"),
        record: format!("clone-{clone}-{volume}"),
        description: format!("{FOR_CLONE}{clone}"),
        is_limited: false,
    };
    let taken = Box::pin(Taking { inner, site, connection, wanted }.run()).await?;
    Ok(taken.id)
}

/// Deletes what was taken for the clone of this name.
pub(super) async fn release(
    inner: &Inner,
    site: &Site,
    connection: &Connection,
    source: &Source,
    clone: &str,
) -> Result<(), Refusal> {
    let Source::Volume(volume) = source else { return Ok(()) };
    let _held = inner.in_flight.claim(volume)?;
    let all = snapshots::of_volume(connection, volume).await;
    let all = all.map_err(|error| {
        refused(format!("the snapshots of volume {volume} are not known"), error)
    })?;
    for snapshot in all.iter().filter(|one| clone_of(one) == Some(clone)) {
        snapshots::delete(site, connection, &SnapshotId::of(snapshot)).await?;
    }
    Ok(())
}

/// Whether a snapshot was taken for a clone. Those that were requested have their volume at the end of the description,
/// whatever they are called.
pub(super) fn is_temporary(snapshot: &CnsSnapshot) -> bool {
    clone_of(snapshot).is_some()
}

fn clone_of(snapshot: &CnsSnapshot) -> Option<&str> {
    let description = snapshot.description.as_deref()?;
    let is_requested = description.ends_with(&format!("-{}", snapshot.volume_id.id));
    description.strip_prefix(FOR_CLONE).filter(|_| !is_requested)
}

/// Deletes those of a volume's snapshots that were left by clones which were given up, and returns the others. The caller
/// holds the volume.
///
/// # Errors
/// When a clone is being made.
pub(super) async fn sweep(
    inner: &Inner,
    site: &Site,
    connection: &Connection,
    all: Vec<CnsSnapshot>,
) -> Result<Vec<CnsSnapshot>, Refusal> {
    let (temporary, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_temporary);
    for snapshot in temporary {
        let clone = clone_of(&snapshot).unwrap_or_default();
        let volume = &snapshot.volume_id.id;
        if is_under_way(inner, clone, snapshot.create_time).await? {
            let what = format!("volume {volume} is being cloned as {clone}");
            return Err(Refusal::new(Kind::Busy, what).remedy("it is tried again afterwards"));
        }
        let id = SnapshotId::of(&snapshot);
        snapshots::delete(site, connection, &id).await?;
        tracing::info!(volume, clone, %id, "snapshot of a clone that was given up deleted");
    }
    Ok(others)
}

/// Whether the clone may still be in progress for which a snapshot was taken at this time.
async fn is_under_way(inner: &Inner, clone: &str, taken: Timestamp) -> Result<bool, Refusal> {
    let Ok(_held) = inner.in_flight.claim(clone) else { return Ok(true) };
    let settled = SignedDuration::try_from(inner.settle).unwrap_or(SignedDuration::ZERO);
    if Timestamp::now().duration_since(taken) < settled {
        return Ok(true);
    }
    let record = inner.journal.read(clone).await?;
    let latest = record.as_ref().and_then(journal::attempt);
    Ok(matches!(latest, Some(Attempt::Called { .. } | Attempt::Started { .. })))
}

#[cfg(test)]
mod tests {
    use vsphere::types::CnsSnapshot;

    use super::is_temporary;

    fn described(description: &str) -> CnsSnapshot {
        CnsSnapshot {
            volume_id: "v-1".into(),
            description: Some(description.to_owned()),
            ..CnsSnapshot::default()
        }
    }

    #[test]
    fn no_snapshot_that_was_requested_is_taken_for_that_of_a_clone() {
        assert!(is_temporary(&described("csi.vsphere.vmware.com/clone pvc-1")));
        for requested in [
            "",
            "snapshot-1-v-1",
            "clone-pvc-1-v-1",
            "csi.vsphere.vmware.com/clone pvc-1-v-1",
            "before the upgrade",
        ] {
            assert!(!is_temporary(&described(requested)), "{requested}");
        }
        assert!(!is_temporary(&CnsSnapshot { volume_id: "v-1".into(), ..CnsSnapshot::default() }));
    }
}
