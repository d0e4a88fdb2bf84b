//! Snapshots of volumes: taken, deleted, listed.

mod take;

use std::fmt;

use jiff::Timestamp;
use vsphere::{
    cns::Select,
    connection::Connection,
    error::{Error, Missing, Remedy},
    inventory::Uuid,
    types::{CnsQueryFilter, CnsSnapshot, CnsSnapshotDeleteSpec, CnsVolume, CnsVolumeId},
};

pub(super) use self::take::{Taking, Wanted};
use super::{
    HELD_FOR, Inner, LIMIT, Position, Sites, Volumes, bytes,
    change::{self, Left, may_be_unknown},
    pages::{Read, Walk},
    refused::refused,
    site::Site,
    size_of, sources,
};
use crate::refusal::{Kind, Refusal};

/// The largest page, also when the caller names no number; it may take several of vCenter's.
const LARGEST_PAGE: u32 = 128;

/// The name of a snapshot outside vCenter, as the Go driver writes it: `<volume>+<snapshot>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotId {
    /// The volume that it is a snapshot of.
    pub volume: String,
    /// Its id in CNS, which is a UUID.
    pub snapshot: String,
}

impl SnapshotId {
    /// Reads an id; nothing if no snapshot can be called so.
    pub fn parse(text: &str) -> Option<Self> {
        let (volume, snapshot) = text.split_once('+')?;
        let is_id = !volume.is_empty() && snapshot.parse::<Uuid>().is_ok();
        is_id.then(|| Self { volume: volume.to_owned(), snapshot: snapshot.to_owned() })
    }

    pub(super) fn of(snapshot: &CnsSnapshot) -> Self {
        let (volume, snapshot) = (&snapshot.volume_id.id, &snapshot.snapshot_id.id);
        Self { volume: volume.clone(), snapshot: snapshot.clone() }
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.volume, self.snapshot)
    }
}

/// A snapshot that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its id.
    pub id: SnapshotId,
    /// The least size of a volume with its content; 0 if vCenter does not show it at present.
    pub bytes: u64,
    /// When it was taken, by vCenter's clock.
    pub taken: Timestamp,
}

/// A part of a list of snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPage {
    /// In vCenter's order.
    pub snapshots: Vec<Snapshot>,
    /// Where the next page begins.
    pub next: Option<Position>,
}

impl Volumes {
    /// Whether one of the vCenters has snapshots; nothing while none can be asked.
    pub async fn have_snapshots(&self) -> Option<bool> {
        let sites = self.0.sites().ok()?;
        let mut known = None;
        for site in sites.all() {
            let Ok(connection) = site.connection() else { continue };
            match connection.volumes().has_snapshots().await {
                Ok(true) => return Some(true),
                Ok(false) => known = Some(false),
                Err(_) => {}
            }
        }
        known
    }

    /// Takes a snapshot of a volume, or finds the one that an earlier call of this name took.
    ///
    /// # Errors
    /// When the volume does not exist or has as many as it may, or vCenter refuses.
    pub async fn take_snapshot(&self, volume: &str, name: &str) -> Result<Snapshot, Refusal> {
        let (id, name) = (volume.to_owned(), name.to_owned());
        self.hold(volume, async move |inner, _| {
            let site = inner.home_of(&id).await?.ok_or_else(|| change::absent(&id))?;
            let connection = site.connection()?;
            let wanted = Wanted::of_request(&id, &name);
            let taking = Taking { inner: &inner, site: &site, connection: &connection, wanted };
            Box::pin(taking.run()).await
        })
        .await
    }

    /// Deletes a snapshot. One that does not exist is done.
    ///
    /// # Errors
    /// When vCenter refuses, or still shows it.
    pub async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), Refusal> {
        let id = snapshot.clone();
        self.hold(&snapshot.volume, async move |inner, _| {
            let Some(site) = inner.home_of(&id.volume).await? else { return Ok(()) };
            let connection = site.connection()?;
            require_snapshots(&site, &connection).await?;
            delete(&site, &connection, &id).await
        })
        .await
    }

    /// A snapshot; nothing if there is none.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn snapshot(&self, snapshot: &SnapshotId) -> Result<Option<Snapshot>, Refusal> {
        let Some(site) = self.0.home_of(&snapshot.volume).await? else { return Ok(None) };
        let connection = site.connection()?;
        let Some(found) = find(&connection, snapshot).await? else { return Ok(None) };
        let volume = change::find(&connection, &snapshot.volume).await?;
        Ok(Some(shown(&found, volume.as_ref())))
    }

    /// The snapshots of this cluster's volumes, or of one volume, beginning at a position.
    ///
    /// # Errors
    /// When vCenter does not answer.
    pub async fn list_snapshots(
        &self,
        volume: Option<&str>,
        from: &Position,
        most: Option<u32>,
    ) -> Result<SnapshotPage, Refusal> {
        list(&self.0, volume, from, most).await
    }
}

/// Refuses on releases without snapshots.
pub(super) async fn require_snapshots(site: &Site, connection: &Connection) -> Result<(), Refusal> {
    match connection.volumes().has_snapshots().await {
        Ok(true) => Ok(()),
        Ok(false) => Err(without_snapshots(&site.server)),
        Err(error) => {
            Err(refused(format!("vCenter {}: its release is not known", site.server), error))
        }
    }
}

fn without_snapshots(vcenter: &str) -> Refusal {
    let what = format!("vCenter {vcenter} has no snapshots of volumes");
    Refusal::new(Kind::Precondition, what)
        .remedy("snapshots and clones need vCenter 7.0U3 or newer, with all of its services")
}

/// Whether vCenter does not know the call, although its release should.
fn lacks_call(error: &Error) -> bool {
    error.fault().is_some_and(|fault| fault.find("MethodNotFound").is_some())
}

/// The refusal of a call about snapshots.
fn not_done(what: impl Into<String>, error: Error) -> Refusal {
    if lacks_call(&error) {
        return without_snapshots(&error.failure().vcenter).because(error);
    }
    refused(what, error)
}

fn shown(snapshot: &CnsSnapshot, volume: Option<&CnsVolume>) -> Snapshot {
    let size = volume.and_then(size_of).unwrap_or_default();
    Snapshot { id: SnapshotId::of(snapshot), bytes: bytes(size), taken: snapshot.create_time }
}

/// All snapshots of a volume; none if CNS does not know the volume, or has no snapshots.
pub(super) async fn of_volume(
    connection: &Connection,
    volume: &str,
) -> Result<Vec<CnsSnapshot>, Error> {
    let mut pages = connection.volumes().snapshots_of(&CnsVolumeId::from(volume));
    let mut all = Vec::new();
    loop {
        let page = match pages.next_page(LIMIT).await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(all),
            Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => return Ok(all),
            Err(error) if lacks_call(&error) => return Ok(all),
            Err(error) => return Err(error),
        };
        for snapshot in page {
            match snapshot {
                Ok(snapshot) => all.push(snapshot),
                Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A snapshot as CNS has it.
pub(super) async fn find(
    connection: &Connection,
    id: &SnapshotId,
) -> Result<Option<CnsSnapshot>, Refusal> {
    let (volume, snapshot) = (id.volume.as_str().into(), id.snapshot.as_str().into());
    match connection.volumes().snapshot(&volume, &snapshot, LIMIT).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => Ok(None),
        Err(error) => Err(not_done(format!("snapshot {id} could not be read"), error)),
    }
}

/// Deletes a snapshot; one that does not exist is done.
pub(super) async fn delete(
    site: &Site,
    connection: &Connection,
    id: &SnapshotId,
) -> Result<(), Refusal> {
    let Err(error) = delete_once(connection, id).await else { return Ok(()) };
    let what = format!("snapshot {id} was not deleted");
    if lacks_call(&error) || (!is_absent(&error) && !may_be_unknown(&error)) {
        return Err(not_done(what, error));
    }
    // vCenter has the same answers for a snapshot that is gone, for one of a volume that CNS has lost, and for one that
    // its catalogue misplaced for a while.
    let is_unknown = matches!(error.remedy, Remedy::NotFound { what: Missing::Volume(_) });
    let mut error = error;
    if find(connection, id).await?.is_none() {
        match change::restore(site, connection, &id.volume, is_unknown).await? {
            Left::Nothing => return Ok(()),
            // CNS is taken for one that knows the volume in doubt, too.
            Left::Known if change::find(connection, &id.volume).await?.is_some() => return Ok(()),
            Left::Known => return Err(in_doubt(&what, error)),
            Left::Restored => match delete_once(connection, id).await {
                Ok(()) => return Ok(()),
                Err(again) => error = again,
            },
        }
        if find(connection, id).await?.is_none() {
            return Ok(());
        }
    }
    if is_absent(&error) {
        let what = format!("{what}: vCenter does not find it, and still lists it");
        return Err(Refusal::new(Kind::Unavailable, what)
            .because(error)
            .remedy("it is deleted again until vCenter does not list it any more"));
    }
    Err(refused(what, error))
}

/// The refusal while it cannot be read whether CNS has lost the volume, with its snapshots.
fn in_doubt(what: &str, error: Error) -> Refusal {
    let what = format!("{what}: CNS does not show the volume, and its disk could not be read");
    Refusal::new(Kind::Unavailable, what)
        .because(error)
        .remedy("it is tried again until that is known")
}

async fn delete_once(connection: &Connection, id: &SnapshotId) -> Result<(), Error> {
    let spec = CnsSnapshotDeleteSpec {
        volume_id: id.volume.as_str().into(),
        snapshot_id: id.snapshot.as_str().into(),
    };
    connection.volumes().delete_snapshot(&spec).await?.wait(HELD_FOR).await.map(|_| ())
}

/// Whether vCenter reports the snapshot as missing. After a deletion that failed it answers InvalidArgument.
fn is_absent(error: &Error) -> bool {
    matches!(error.remedy, Remedy::NotFound { .. } | Remedy::Invalid { .. })
}

/// A page of snapshots of one vCenter.
async fn list(
    inner: &Inner,
    volume: Option<&str>,
    from: &Position,
    most: Option<u32>,
) -> Result<SnapshotPage, Refusal> {
    let all = inner.sites()?;
    let sites = match volume {
        None => all.clone(),
        Some(volume) => match inner.home_of(volume).await? {
            Some(site) => Sites::new([site]),
            None => return Ok(SnapshotPage { snapshots: Vec::new(), next: None }),
        },
    };
    let mut walk = Walk::begin(&sites, from)?;
    loop {
        let read = list_in(walk.site, volume, walk.offset, most).await;
        let read = read.map_err(|refusal| all.attribute(walk.site, refusal))?;
        if let Some((snapshots, next)) = walk.page(read)? {
            return Ok(SnapshotPage { snapshots, next });
        }
    }
}

/// A page of one vCenter, and where the next one begins there.
///
/// vCenter lists those of all clusters, so a page is filled from as many of its pages as it takes; which are of this
/// cluster's volumes is asked for each of them. Nothing is kept from one page to the next.
async fn list_in(
    site: &Site,
    volume: Option<&str>,
    offset: u64,
    most: Option<u32>,
) -> Result<Read<Snapshot>, Refusal> {
    let connection = site.connection()?;
    if !connection.volumes().has_snapshots().await.map_err(unread)? {
        return Ok((Vec::new(), None));
    }
    let most = most.unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let (mut snapshots, mut offset) = (Vec::new(), offset);
    loop {
        let left = u8::try_from(most - snapshots.len()).unwrap_or(u8::MAX);
        let pages = match volume {
            Some(volume) => connection.volumes().snapshots_of(&CnsVolumeId::from(volume)),
            None => connection.volumes().snapshots(),
        };
        let mut pages = pages.of(left).after(offset);
        let page = match pages.next_page(LIMIT).await {
            // A volume that does not exist has none.
            Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => Vec::new(),
            Err(error) if lacks_call(&error) => return Ok((Vec::new(), None)),
            page => page.map_err(unread)?.unwrap_or_default(),
        };
        offset += u64::try_from(page.len()).unwrap_or_default();
        let mut found = Vec::new();
        for snapshot in page {
            match snapshot {
                Ok(snapshot) => found.push(snapshot),
                Err(error) if matches!(error.remedy, Remedy::NotFound { .. }) => {}
                Err(error) => return Err(unread(error)),
            }
        }
        let volumes = owners(site, &connection, &found).await.map_err(unread)?;
        for snapshot in &found {
            let owner = volumes.iter().find(|one| one.volume_id == snapshot.volume_id);
            if let Some(owner) = owner.filter(|_| !sources::is_temporary(snapshot)) {
                snapshots.push(shown(snapshot, Some(owner)));
            }
        }
        if !pages.has_more() || snapshots.len() == most {
            return Ok((snapshots, pages.has_more().then_some(offset)));
        }
    }
}

fn unread(error: Error) -> Refusal {
    refused("the snapshots could not be listed", error)
}

/// The volumes of this cluster that snapshots are of.
async fn owners(
    site: &Site,
    connection: &Connection,
    snapshots: &[CnsSnapshot],
) -> Result<Vec<CnsVolume>, Error> {
    let mut ids: Vec<CnsVolumeId> = snapshots.iter().map(|one| one.volume_id.clone()).collect();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let filter = CnsQueryFilter {
        volume_ids: ids,
        container_cluster_ids: vec![site.cluster.clone()],
        ..CnsQueryFilter::default()
    };
    let select = [Select::VolumeName, Select::VolumeType, Select::BackingObjectDetails];
    let mut pages = connection.volumes().pages(filter, &select);
    let mut volumes = Vec::new();
    while let Some(page) = pages.next_page().await? {
        volumes.extend(page);
    }
    Ok(volumes)
}

#[cfg(test)]
mod tests {
    use super::SnapshotId;

    #[test]
    fn the_id_of_a_snapshot_is_the_go_drivers() {
        let (volume, snapshot) =
            ("0c7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2c", "aa7a1b8e-3f55-4f0a-9d0e-5b8d9f0a1b2d");
        let text = format!("{volume}+{snapshot}");
        let id = SnapshotId::parse(&text).unwrap();
        assert_eq!((id.volume.as_str(), id.snapshot.as_str()), (volume, snapshot));
        assert_eq!(id.to_string(), text);
        for wrong in ["", "+", volume, &format!("{volume}+"), &format!("+{snapshot}"), "a+b"] {
            assert_eq!(SnapshotId::parse(wrong), None, "{wrong}");
        }
        assert_eq!(SnapshotId::parse(&format!("{text}+{snapshot}")), None);
    }
}
