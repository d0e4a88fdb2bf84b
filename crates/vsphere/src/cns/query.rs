//! Finding volumes: filters, pages, and how many ids a server takes at once.
//!
//! The pages of a listing are not of one moment: volumes that come or go meanwhile may be missing.

use std::{collections::VecDeque, time::Instant};

use super::{Started, Volumes, count, manager};
/// A part of a volume that a query can return.
pub use crate::types::QuerySelectionNameType as Select;
use crate::{
    connection::Connection,
    error::Error,
    types::{
        AnyCnsQueryFilter, CnsCursor, CnsKubernetesQueryFilter, CnsQueryAsync, CnsQueryFilter,
        CnsQueryResult, CnsQuerySelection, CnsQueryVolume, CnsVolume, CnsVolumeId,
        versions::VSAN_7_0,
    },
    version::Since,
    xml::Method,
};

/// Volumes of one page.
const PAGE: i64 = 500;
/// More ids in one filter are refused.
const MOST_IDS: usize = 1000;

/// Everything that a query can return. The id is always returned.
pub const ALL: &[Select] = &[
    Select::VolumeMetadata,
    Select::DatastoreUrl,
    Select::PolicyId,
    Select::VolumeType,
    Select::VolumeName,
    Select::BackingObjectDetails,
    Select::ComplianceStatus,
    Select::DatastoreAccessibilityStatus,
    Select::HealthStatus,
];

impl Volumes<'_> {
    /// The volumes that pass a filter, page by page. Nothing is sent before the first page is requested.
    /// Servers before 7.0U3 return everything.
    pub fn pages(&self, filter: impl Into<AnyCnsQueryFilter>, wanted: &[Select]) -> Pages {
        Pages::new(self.connection, filter.into(), wanted)
    }

    /// All volumes that pass a filter, read page by page.
    pub async fn list(
        &self,
        filter: impl Into<AnyCnsQueryFilter>,
        wanted: &[Select],
    ) -> Result<Vec<CnsVolume>, Error> {
        let mut pages = self.pages(filter, wanted);
        let mut volumes = Vec::new();
        while let Some(page) = pages.next_page().await? {
            volumes.extend(page);
        }
        Ok(volumes)
    }

    /// The volumes with these ids; those that do not exist are not there.
    pub async fn read(
        &self,
        volumes: &[CnsVolumeId],
        wanted: &[Select],
    ) -> Result<Vec<CnsVolume>, Error> {
        // A filter without ids would find every volume.
        if volumes.is_empty() {
            return Ok(Vec::new());
        }
        let filter = CnsQueryFilter { volume_ids: volumes.to_vec(), ..CnsQueryFilter::default() };
        self.list(filter, wanted).await
    }

    /// The page of volumes that the filter's cursor names, found by a task: for queries that take the server
    /// longer than a call may. From vCenter 7.0U3.
    pub async fn query_by_task(
        &self,
        filter: &CnsQueryFilter,
        wanted: &[Select],
    ) -> Result<Started<CnsQueryResult>, Error> {
        let selection = Some(CnsQuerySelection { names: wanted.to_vec() });
        let query = CnsQueryAsync { filter: filter.clone().into(), selection };
        Ok(Started { batch: self.start(&query, Vec::new()).await? })
    }
}

/// The volumes that pass a filter, page by page.
#[derive(Debug)]
pub struct Pages {
    connection: Connection,
    /// Without ids and cursor, which each page brings.
    filter: AnyCnsQueryFilter,
    selection: CnsQuerySelection,
    /// The ids of this query and of those after it.
    ids: VecDeque<Vec<CnsVolumeId>>,
    cursor: CnsCursor,
}

impl Pages {
    fn new(connection: &Connection, mut filter: AnyCnsQueryFilter, wanted: &[Select]) -> Self {
        let (ids, cursor) = parts(&mut filter);
        let ids = chunks(&std::mem::take(ids)).into();
        let first = CnsCursor { limit: PAGE, ..CnsCursor::default() };
        let cursor = cursor.take().unwrap_or(first);
        let selection = CnsQuerySelection { names: wanted.to_vec() };
        Self { connection: connection.clone(), filter, selection, ids, cursor }
    }

    /// At most this many volumes a page.
    #[must_use]
    pub fn of(mut self, volumes: u16) -> Self {
        self.cursor.limit = volumes.max(1).into();
        self
    }

    /// Whether there may be another page.
    pub fn has_more(&self) -> bool {
        !self.ids.is_empty()
    }

    /// The next page; nothing after the last one.
    pub async fn next_page(&mut self) -> Result<Option<Vec<CnsVolume>>, Error> {
        while let Some(ids) = self.ids.front() {
            let mut filter = self.filter.clone();
            let (of, cursor) = parts(&mut filter);
            of.clone_from(ids);
            *cursor = Some(self.cursor.clone());
            let volumes = self.connection.volumes();
            volumes.require(CnsQueryVolume::NAME, needs(&filter)).await?;
            let query = CnsQueryVolume { filter, selection: Some(self.selection.clone()) };
            let began = Instant::now();
            let found = self.connection.call(&manager(), &query).await;
            count(&self.connection, CnsQueryVolume::NAME, false, found.is_ok(), began);
            let found = found?;
            match next(&self.cursor, found.volumes.len(), &found.cursor) {
                Some(cursor) => self.cursor = cursor,
                None => {
                    self.ids.pop_front();
                    self.cursor =
                        CnsCursor { offset: 0, total_records: None, ..self.cursor.clone() };
                }
            }
            if !found.volumes.is_empty() {
                return Ok(Some(found.volumes));
            }
        }
        Ok(None)
    }
}

/// The cursor of the page after one that `asked` brought, if there is one. The server's offset is where the
/// next page begins; one that does not move would be read for ever.
pub(super) fn next(asked: &CnsCursor, found: usize, answer: &CnsCursor) -> Option<CnsCursor> {
    let found = i64::try_from(found).unwrap_or(i64::MAX);
    let offset = answer.offset.max(asked.offset.saturating_add(found));
    let more = found > 0 && answer.total_records.is_some_and(|total| offset < total);
    let cursor = CnsCursor { offset, limit: asked.limit, total_records: answer.total_records };
    more.then_some(cursor)
}

/// At least one list, because a filter without ids is a query, too.
fn chunks(ids: &[CnsVolumeId]) -> Vec<Vec<CnsVolumeId>> {
    if ids.is_empty() {
        return vec![Vec::new()];
    }
    ids.chunks(MOST_IDS).map(<[_]>::to_vec).collect()
}

fn parts(filter: &mut AnyCnsQueryFilter) -> (&mut Vec<CnsVolumeId>, &mut Option<CnsCursor>) {
    match filter {
        AnyCnsQueryFilter::CnsQueryFilter(filter)
        | AnyCnsQueryFilter::Other { base: filter, .. } => {
            (&mut filter.volume_ids, &mut filter.cursor)
        }
        AnyCnsQueryFilter::CnsKubernetesQueryFilter(filter) => {
            (&mut filter.volume_ids, &mut filter.cursor)
        }
    }
}

/// A server that does not know a condition would find what does not meet it.
fn needs(filter: &AnyCnsQueryFilter) -> Option<Since> {
    match filter {
        AnyCnsQueryFilter::CnsQueryFilter(filter)
        | AnyCnsQueryFilter::Other { base: filter, .. } => plain_needs(filter),
        AnyCnsQueryFilter::CnsKubernetesQueryFilter(CnsKubernetesQueryFilter { .. }) => {
            Some(VSAN_7_0)
        }
    }
}

fn plain_needs(filter: &CnsQueryFilter) -> Option<Since> {
    filter.health_status.is_some().then_some(VSAN_7_0)
}

#[cfg(test)]
mod tests {
    use super::{chunks, next};
    use crate::types::{CnsCursor, CnsVolumeId};

    fn cursor(offset: i64, limit: i64, total: Option<i64>) -> CnsCursor {
        CnsCursor { offset, limit, total_records: total }
    }

    #[test]
    fn pages_end_where_the_server_says() {
        let first = cursor(0, 10, None);
        let second = next(&first, 10, &cursor(10, 10, Some(15))).unwrap();
        assert_eq!((second.offset, second.limit), (10, 10));
        assert_eq!(next(&second, 5, &cursor(15, 10, Some(15))), None);
    }

    #[test]
    fn a_cursor_that_stands_still_is_moved_and_an_empty_page_is_the_last() {
        let asked = cursor(20, 10, None);
        assert_eq!(next(&asked, 10, &cursor(20, 10, Some(50))).unwrap().offset, 30);
        assert_eq!(next(&asked, 0, &cursor(20, 10, Some(50))), None);
        assert_eq!(next(&asked, 10, &cursor(30, 10, None)), None);
    }

    #[test]
    fn ids_are_split_and_no_ids_are_one_query() {
        let ids: Vec<CnsVolumeId> = (0..2001).map(|id| id.to_string().as_str().into()).collect();
        let sizes: Vec<usize> = chunks(&ids).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1000, 1000, 1]);
        assert_eq!(chunks(&[]).len(), 1);
    }
}
