//! Finding volumes by their names. Those who search at the same time share a query. If that fails each has one of its
//! own: what fails for one name, or for so many, must not fail for all of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use tokio::sync::oneshot;
use vsphere::{
    cns::Select,
    connection::Connection,
    error::Error,
    types::{CnsQueryFilter, CnsVolume},
};

/// Names in one query: with more, a query may be slow or fail.
const MOST_NAMES: usize = 10;

type Answer = Result<Vec<CnsVolume>, Error>;
type Waiting = (String, oneshot::Sender<Answer>);

/// The searches in one vCenter. One query is on its way at a time; who comes meanwhile is in the next one.
#[derive(Debug, Default)]
pub(super) struct Search {
    waiting: Mutex<Vec<Waiting>>,
    turn: tokio::sync::Mutex<()>,
}

impl Search {
    /// The volumes of a cluster that have this name.
    pub(super) async fn named(&self, connection: &Connection, cluster: &str, name: &str) -> Answer {
        let mut answer = self.enter(name);
        loop {
            tokio::select! {
                biased;
                answered = &mut answer => match answered {
                    Ok(answered) => return answered,
                    // Whoever asked for us broke off.
                    Err(_) => answer = self.enter(name),
                },
                _turn = self.turn.lock() => query(connection, cluster, self.next_batch()).await,
            }
        }
    }

    fn enter(&self, name: &str) -> oneshot::Receiver<Answer> {
        let (sender, answer) = oneshot::channel();
        self.lock().push((name.to_owned(), sender));
        answer
    }

    /// Those who wait by now, but not more than go into a query.
    fn next_batch(&self) -> Vec<Waiting> {
        let mut waiting = self.lock();
        waiting.retain(|(_, sender)| !sender.is_closed());
        let count = waiting.len().min(MOST_NAMES);
        waiting.drain(..count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // Nothing can panic while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for all names at once, and answers each with its own volumes.
async fn query(connection: &Connection, cluster: &str, batch: Vec<Waiting>) {
    // A filter without names would find every volume.
    if batch.is_empty() {
        return;
    }
    let found = list(connection, cluster, batch.iter().map(|(name, _)| name.clone())).await;
    if let Err(error) = &found
        && batch.len() > 1
    {
        tracing::warn!(%error, names = batch.len(), "query of several volumes failed; asking for each");
        let each = batch.into_iter().map(async |(name, sender)| {
            let found = list(connection, cluster, [name.clone()]).await;
            sender.send(found.map(|volumes| called(&name, &volumes))).unwrap_or_default();
        });
        join_all(each).await;
        return;
    }
    for (name, sender) in batch {
        let own = found.as_ref().map(|volumes| called(&name, volumes)).map_err(Clone::clone);
        // Whoever gave up waiting does not want to know.
        sender.send(own).unwrap_or_default();
    }
}

fn called(name: &str, volumes: &[CnsVolume]) -> Vec<CnsVolume> {
    volumes.iter().filter(|one| one.name.as_deref() == Some(name)).cloned().collect()
}

async fn list(
    connection: &Connection,
    cluster: &str,
    names: impl IntoIterator<Item = String>,
) -> Answer {
    let filter = CnsQueryFilter {
        names: names.into_iter().collect(),
        container_cluster_ids: vec![cluster.to_owned()],
        ..CnsQueryFilter::default()
    };
    let select = [Select::VolumeName, Select::VolumeType, Select::BackingObjectDetails];
    connection.volumes().list(filter, &select).await
}
