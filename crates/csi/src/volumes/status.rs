//! What there is: single volumes, lists of them, and room for more.

use std::collections::{BTreeMap, BTreeSet};

use vsphere::{
    cns::Select,
    types::{CnsQueryFilter, CnsVolume},
};

use super::{
    Capacity, Inner, Listed, Page, Position, bytes, change, choose,
    pages::{Read, Walk},
    placement::{Selection, Wish, decide},
    publish,
    refused::refused,
    site::Site,
    size_of,
    topology::Segment,
};
use crate::refusal::{Kind, Refusal};

/// The largest page, also when the caller names no number: vCenter answers with no more, and every page reads the
/// devices of all nodes.
const LARGEST_PAGE: u32 = 1000;

pub(super) async fn get(inner: &Inner, volume: &str) -> Result<Listed, Refusal> {
    let sites = inner.sites()?;
    let absent = || {
        let what = format!("volume {volume} does not exist in vCenter {}", sites.names());
        Refusal::new(Kind::NotFound, what)
    };
    let site = inner.home_of(volume).await?.ok_or_else(absent)?;
    let read = async {
        let connection = site.connection()?;
        let mut published = publish::published(inner, &site).await?;
        if let Some(found) = change::find(&connection, volume).await? {
            return Ok(listed(&found, &published));
        }
        // CNS shows some volumes late, and has lost others: the disk decides.
        let unread = |error| refused(format!("volume {volume} could not be read"), error);
        let size = change::disk(&connection, volume).await.map_err(unread)?.ok_or_else(absent)?;
        let nodes = published.remove(volume).unwrap_or_default();
        Ok(Listed { id: volume.to_owned(), bytes: Some(bytes(size)), nodes, problem: None })
    };
    read.await.map_err(|refusal| sites.attribute(&site, refusal))
}

/// Whether a volume exists.
pub(super) async fn exists(inner: &Inner, volume: &str) -> Result<bool, Refusal> {
    let Some(site) = inner.home_of(volume).await? else { return Ok(false) };
    let exists = async { change::exists(&site.connection()?, volume).await };
    exists.await.map_err(|refusal| inner.sites.borrow().attribute(&site, refusal))
}

/// A page of this cluster's volumes, of one vCenter.
pub(super) async fn list(
    inner: &Inner,
    from: &Position,
    most: Option<u32>,
) -> Result<Page, Refusal> {
    let sites = inner.sites()?;
    let mut walk = Walk::begin(&sites, from)?;
    loop {
        let read = list_in(inner, walk.site, walk.offset, most).await;
        let read = read.map_err(|refusal| sites.attribute(walk.site, refusal))?;
        if let Some((volumes, next)) = walk.page(read)? {
            return Ok(Page { volumes, next });
        }
    }
}

/// A page of one vCenter, and where the next one begins there.
///
/// Which node has a volume is known from the devices of the nodes' VMs only; CNS does not report it. So each page costs
/// a query and, beside it, a read of up to 250 VMs at a time. Nothing is kept from one page to the next: the next one
/// may be asked of another process, and an attachment that was detached meanwhile would be shown.
async fn list_in(
    inner: &Inner,
    site: &Site,
    offset: u64,
    most: Option<u32>,
) -> Result<Read<Listed>, Refusal> {
    let connection = site.connection()?;
    let most = most.unwrap_or(LARGEST_PAGE).clamp(1, LARGEST_PAGE);
    let select = [
        Select::VolumeName,
        Select::VolumeType,
        Select::BackingObjectDetails,
        Select::HealthStatus,
        Select::DatastoreAccessibilityStatus,
    ];
    let filter = CnsQueryFilter {
        container_cluster_ids: vec![site.cluster.clone()],
        cursor: Some(vsphere::types::CnsCursor {
            offset: i64::try_from(offset).unwrap_or(i64::MAX),
            limit: most.into(),
            total_records: None,
        }),
        ..CnsQueryFilter::default()
    };
    let mut pages = connection.volumes().pages(filter, &select);
    let published = Box::pin(publish::published(inner, site));
    let (volumes, published) = tokio::join!(Box::pin(pages.next_page()), published);
    let volumes = volumes
        .map_err(|error| refused("the volumes of the cluster could not be listed", error))?;
    let (volumes, mut published) = (volumes.unwrap_or_default(), published?);
    let found = u64::try_from(volumes.len()).unwrap_or_default();
    let next = pages.has_more().then_some(offset + found);
    let mut all: Vec<Listed> = volumes.iter().map(|one| listed(one, &published)).collect();
    if next.is_none() && offset == 0 {
        // Volumes that nodes have and CNS does not show: a list without them reads as if they were detached.
        for volume in &volumes {
            published.remove(&volume.volume_id.id);
        }
        all.extend(published.into_iter().map(|(id, nodes)| Listed {
            id,
            nodes,
            ..Listed::default()
        }));
    }
    Ok((all, next))
}

/// Room for volumes of a class that a segment reaches, in all vCenters that can be used and that have its nodes.
pub(super) async fn capacity(
    inner: &Inner,
    policy: Option<&str>,
    selection: &Selection,
    segment: Option<&Segment>,
) -> Result<Capacity, Refusal> {
    let sites = inner.sites()?;
    let segments: Vec<Segment> = segment.into_iter().cloned().collect();
    inner.check_located(&segments)?;
    let wish = Wish { selection: selection.clone(), segments, ..Wish::default() };
    let (mut room, mut refusals) = (None, Vec::new());
    for site in choose::concerned(inner, &sites, &wish.segments) {
        match capacity_in(inner, site, policy, &wish).await {
            Ok(more) => {
                let known = room.unwrap_or(Capacity { available: 0, largest: 0 });
                room = Some(Capacity {
                    available: known.available.saturating_add(more.available),
                    largest: known.largest.max(more.largest),
                });
            }
            Err(refusal) => refusals.push(sites.attribute(site, refusal)),
        }
    }
    room.ok_or_else(|| choose::combined(refusals))
}

async fn capacity_in(
    inner: &Inner,
    site: &Site,
    policy: Option<&str>,
    wish: &Wish,
) -> Result<Capacity, Refusal> {
    let mut decision = decide(&site.places(&inner.nodes_in(site))?, wish);
    if let Some(name) = policy {
        let datastores = decision.candidates().map(|one| one.store.datastore.clone()).collect();
        let found = site.policies.find(&site.connection()?, name, &datastores).await;
        let policy = found.map_err(|error| refused(format!("storage policy {name:?}"), error))?;
        decision.exclude(&policy.rejected);
    }
    if decision.resolve_names("").is_err() {
        // Every claim of the class is refused.
        return Ok(Capacity { available: 0, largest: 0 });
    }
    let (available, largest) = decision.room()?;
    Ok(Capacity { available, largest })
}

fn listed(volume: &CnsVolume, published: &BTreeMap<String, BTreeSet<String>>) -> Listed {
    let id = volume.volume_id.id.clone();
    Listed {
        nodes: published.get(&id).cloned().unwrap_or_default(),
        bytes: size_of(volume).map(bytes),
        problem: problem(volume),
        id,
    }
}

/// What vCenter reports against a volume.
fn problem(volume: &CnsVolume) -> Option<String> {
    let status = |text: &Option<String>| text.as_deref().unwrap_or_default().to_ascii_lowercase();
    if status(&volume.datastore_accessibility_status) == "notaccessible" {
        return Some("no host reaches its datastore".to_owned());
    }
    match status(&volume.health_status).as_str() {
        "red" => Some("vCenter reports its health as red: it cannot be used".to_owned()),
        "yellow" => {
            Some("vCenter reports its health as yellow: its storage is degraded".to_owned())
        }
        _ => None,
    }
}
