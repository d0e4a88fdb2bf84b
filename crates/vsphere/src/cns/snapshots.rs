//! Snapshots of volumes. From vCenter 7.0U3.

use std::{slice, time::Duration};

use super::{Batch, DeletedSnapshot, Started, TakenSnapshot, Volumes, manager, query::next};
use crate::{
    connection::Connection,
    error::{Cause, Error},
    soap::Service,
    types::{
        CnsCreateSnapshots, CnsCursor, CnsDeleteSnapshots, CnsQuerySnapshots, CnsSnapshot,
        CnsSnapshotCreateSpec, CnsSnapshotDeleteSpec, CnsSnapshotId, CnsSnapshotQueryFilter,
        CnsSnapshotQueryResult, CnsSnapshotQueryResultEntry, CnsSnapshotQuerySpec, CnsVolumeId,
        versions::{VSAN_7_0U3, VSAN_9_1_0_0},
    },
    xml::{Malformed, Method},
};

/// Snapshots of one page. 128 are documented; whether every release takes as many is not known, and a volume has 32 at
/// most.
const PAGE: i64 = 16;

impl Volumes<'_> {
    /// Whether the server has snapshots: from vCenter 7.0U3, although older ones declare the methods.
    pub async fn has_snapshots(&self) -> Result<bool, Error> {
        Ok(self.require(CnsCreateSnapshots::NAME, None).await?.knows(VSAN_7_0U3))
    }

    /// Takes a snapshot.
    pub async fn create_snapshot(
        &self,
        spec: &CnsSnapshotCreateSpec,
    ) -> Result<Started<TakenSnapshot>, Error> {
        Ok(Started { batch: self.create_snapshots(slice::from_ref(spec)).await? })
    }

    /// Deletes a snapshot. One that does not exist is [`Remedy::NotFound`](crate::error::Remedy::NotFound).
    pub async fn delete_snapshot(
        &self,
        spec: &CnsSnapshotDeleteSpec,
    ) -> Result<Started<DeletedSnapshot>, Error> {
        Ok(Started { batch: self.delete_snapshots(slice::from_ref(spec)).await? })
    }

    /// Takes snapshots.
    pub async fn create_snapshots(
        &self,
        specs: &[CnsSnapshotCreateSpec],
    ) -> Result<Batch<TakenSnapshot>, Error> {
        let needs = specs.iter().any(|spec| spec.snapshot_id.is_some()).then_some(VSAN_9_1_0_0);
        self.require(CnsCreateSnapshots::NAME, needs).await?;
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsCreateSnapshots { snapshot_specs: specs.to_vec() }, volumes).await
    }

    /// Deletes snapshots. One that does not exist is [`Remedy::NotFound`](crate::error::Remedy::NotFound).
    pub async fn delete_snapshots(
        &self,
        specs: &[CnsSnapshotDeleteSpec],
    ) -> Result<Batch<DeletedSnapshot>, Error> {
        let volumes = specs.iter().map(|spec| spec.volume_id.clone()).collect();
        self.start(&CnsDeleteSnapshots { snapshot_delete_specs: specs.to_vec() }, volumes).await
    }

    /// Every snapshot that CNS knows, page by page. Nothing is sent before the first page is requested.
    pub fn snapshots(&self) -> SnapshotPages {
        SnapshotPages::new(self.connection, None)
    }

    /// The snapshots of a volume, page by page.
    pub fn snapshots_of(&self, volume: &CnsVolumeId) -> SnapshotPages {
        let spec = CnsSnapshotQuerySpec { volume_id: volume.clone(), snapshot_id: None };
        SnapshotPages::new(self.connection, Some(spec))
    }

    /// One snapshot of a volume.
    pub async fn snapshot(
        &self,
        volume: &CnsVolumeId,
        snapshot: &CnsSnapshotId,
        limit: Duration,
    ) -> Result<CnsSnapshot, Error> {
        let spec =
            CnsSnapshotQuerySpec { volume_id: volume.clone(), snapshot_id: Some(snapshot.clone()) };
        let mut pages = SnapshotPages::new(self.connection, Some(spec));
        let page = pages.next_page(limit).await?.unwrap_or_default();
        page.into_iter().next().unwrap_or_else(|| pages.read(Default::default()))
    }
}

/// Snapshots, page by page.
#[derive(Debug)]
pub struct SnapshotPages {
    connection: Connection,
    of: Vec<CnsSnapshotQuerySpec>,
    /// Of the next page, if there is one.
    cursor: Option<CnsCursor>,
}

impl SnapshotPages {
    fn new(connection: &Connection, of: Option<CnsSnapshotQuerySpec>) -> Self {
        let cursor = CnsCursor { limit: PAGE, ..CnsCursor::default() };
        let of = of.into_iter().collect();
        Self { connection: connection.clone(), of, cursor: Some(cursor) }
    }

    /// At most this many snapshots a page, and not more than 16.
    #[must_use]
    pub fn of(mut self, snapshots: u8) -> Self {
        let limit = i64::from(snapshots).clamp(1, PAGE);
        self.cursor = Some(CnsCursor { limit, ..CnsCursor::default() });
        self
    }

    /// Begins behind this many snapshots.
    #[must_use]
    pub fn after(mut self, offset: u64) -> Self {
        let limit = self.cursor.as_ref().map_or(PAGE, |cursor| cursor.limit);
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        self.cursor = Some(CnsCursor { offset, limit, ..CnsCursor::default() });
        self
    }

    /// Whether there are more snapshots behind the pages that were read.
    pub fn has_more(&self) -> bool {
        self.cursor.is_some()
    }

    /// The next page: snapshots, and errors of those that the server could not read, such as of a volume
    /// that does not exist. Nothing after the last one. `limit` is for the task that reads the page.
    pub async fn next_page(
        &mut self,
        limit: Duration,
    ) -> Result<Option<Vec<Result<CnsSnapshot, Error>>>, Error> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let filter = CnsSnapshotQueryFilter {
            snapshot_query_specs: self.of.clone(),
            cursor: Some(cursor.clone()),
        };
        let query = CnsQuerySnapshots { snapshot_query_filter: filter };
        let task = self.connection.call(&manager(), &query).await?;
        let found: CnsSnapshotQueryResult =
            self.connection.wait(&task, Service::Cns, limit).await?;
        self.cursor = next(cursor, found.entries.len(), &found.cursor);
        if found.entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(found.entries.into_iter().map(|entry| self.read(entry)).collect()))
    }

    fn read(&self, entry: CnsSnapshotQueryResultEntry) -> Result<CnsSnapshot, Error> {
        // The server may write an empty snapshot beside an error.
        let cause = match (entry.error, entry.snapshot) {
            (Some(fault), _) => Cause::Fault(Box::new(fault)),
            (None, Some(snapshot)) => return Ok(snapshot),
            (None, None) => Cause::Malformed(Malformed::new("neither a snapshot nor a reason")),
        };
        Err(self.connection.wire().error(CnsQuerySnapshots::NAME, cause))
    }
}
