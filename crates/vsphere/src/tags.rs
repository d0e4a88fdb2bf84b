//! Tags.
use crate::connection::Connection;

/// The REST session.
#[derive(Debug, Default)]
pub(crate) struct TagSession;

impl TagSession {
    pub(crate) async fn forget(&self, _connection: &Connection) {}
}
