//! What there is: single volumes, lists of them, and room for more.

use std::collections::{BTreeMap, BTreeSet};

use vsphere::{
    cns::Select,
    types::{CnsQueryFilter, CnsVolume},
};

use super::{
    Capacity, Inner, Listed, Page, bytes, change,
    placement::{Wish, decide},
    publish,
    refused::refused,
    size_of,
};
use crate::refusal::{Kind, Refusal};

/// The largest page, also when the caller names no number: vCenter answers with no more, and every page reads the
/// devices of all nodes.
const LARGEST_PAGE: u32 = 1000;

pub(super) async fn get(inner: &Inner, volume: &str) -> Result<Listed, Refusal> {
    let site = inner.site()?;
    let connection = site.connection()?;
    let mut published = publish::published(inner, &node_ids(inner)).await?;
    if let Some(found) = change::find(&connection, volume).await? {
        return Ok(listed(&found, &published));
    }
    // CNS shows some volumes late, and has lost others: the disk decides.
    let unread = |error| refused(format!("volume {volume} could not be read"), error);
    let Some(size) = change::disk(&connection, volume).await.map_err(unread)? else {
        let what = format!("volume {volume} does not exist in vCenter {}", site.server);
        return Err(Refusal::new(Kind::NotFound, what));
    };
    let nodes = published.remove(volume).unwrap_or_default();
    Ok(Listed { id: volume.to_owned(), bytes: Some(bytes(size)), nodes, problem: None })
}

/// Whether a volume exists.
pub(super) async fn exists(inner: &Inner, volume: &str) -> Result<bool, Refusal> {
    let connection = inner.site()?.connection()?;
    if change::find(&connection, volume).await?.is_some() {
        return Ok(true);
    }
    // CNS shows some volumes late.
    let disk = change::disk(&connection, volume).await;
    disk.map(|size| size.is_some())
        .map_err(|error| refused(format!("volume {volume} could not be read"), error))
}

/// A page of this cluster's volumes, beginning at an offset.
///
/// Which node has a volume is known from the devices of the nodes' VMs only; CNS does not report it. So each page costs
/// a query and, beside it, a read of up to 250 VMs at a time. Nothing is kept from one page to the next: the next one
/// may be asked of another process, and an attachment that was detached meanwhile would be shown.
pub(super) async fn list(inner: &Inner, offset: u64, most: Option<u32>) -> Result<Page, Refusal> {
    let site = inner.site()?;
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
    let nodes = node_ids(inner);
    let published = Box::pin(publish::published(inner, &nodes));
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
    Ok(Page { volumes: all, next })
}

/// Room for volumes of a class.
pub(super) async fn capacity(
    inner: &Inner,
    policy: Option<&str>,
    url: Option<&str>,
) -> Result<Capacity, Refusal> {
    let site = inner.site()?;
    let nodes = inner.nodes.current().unwrap_or_default();
    let (stores, hosts) = site.places(&nodes)?;
    let wish = Wish { url: url.map(str::to_owned), ..Wish::default() };
    let mut decision = decide(&stores, &hosts, &wish);
    if let Some(name) = policy {
        let datastores = decision.candidates().map(|one| one.datastore.clone()).collect();
        let found = site.policies.find(&site.connection()?, name, &datastores).await;
        let policy = found.map_err(|error| refused(format!("storage policy {name:?}"), error))?;
        decision.exclude(&policy.rejected);
    }
    let (available, largest) = decision.room();
    Ok(Capacity { available, largest })
}

fn node_ids(inner: &Inner) -> Vec<String> {
    let nodes = inner.nodes.current().unwrap_or_default();
    nodes.iter().map(|(_, uuid)| uuid.to_string()).collect()
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
