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

/// Volumes of a page when the caller names no number.
const PAGE: u32 = 500;
/// The largest page: vCenter answers with no more.
const LARGEST_PAGE: u32 = 1000;

pub(super) async fn get(inner: &Inner, volume: &str) -> Result<Listed, Refusal> {
    let site = inner.site()?;
    let connection = site.connection()?;
    let Some(found) = change::find(&connection, volume).await? else {
        let what = format!("volume {volume} does not exist in vCenter {}", site.server);
        return Err(Refusal::new(Kind::NotFound, what));
    };
    let published = publish::published(inner, &node_ids(inner)).await?;
    Ok(listed(&found, &published))
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
pub(super) async fn list(inner: &Inner, offset: u64, most: Option<u32>) -> Result<Page, Refusal> {
    let site = inner.site()?;
    let connection = site.connection()?;
    let most = most.unwrap_or(PAGE).clamp(1, LARGEST_PAGE);
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
    let volumes = pages.next_page().await;
    let volumes = volumes
        .map_err(|error| refused("the volumes of the cluster could not be listed", error))?;
    let volumes = volumes.unwrap_or_default();
    let mut published = publish::published(inner, &node_ids(inner)).await?;
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
