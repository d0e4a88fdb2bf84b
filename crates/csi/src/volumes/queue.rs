//! Attaching and detaching, VM by VM.
//!
//! vCenter changes the disks of a VM one after the other. Where its release takes several volumes in one call (from
//! 9.1), all that wait for a VM go together, attaching and detaching in the order in which they came. Elsewhere
//! each volume is a call of its own, and the next calls are on their way before the first one has ended, so that
//! vCenter always has work. VMs do not wait for each other.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};
use tokio_util::task::TaskTracker;
use vsphere::{
    connection::Connection,
    error::Error,
    reference::Ref,
    types::{CnsVolumeAttachDetachSpec, VirtualMachine},
};

use super::HELD_FOR;

/// How long volumes go one by one after vCenter refused several in one call.
const SINGLY_FOR: Duration = Duration::from_secs(600);
/// Calls for one VM that are on their way, where each volume is a call.
const CALLS_PER_VM: usize = 8;
/// Volumes of one call; a VM has no more than this free.
const MOST_IN_A_CALL: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Attach,
    Detach,
}

/// The UUID of the disk that was attached; empty after detaching.
type Outcome = Result<String, Error>;

/// The queues of all VMs of a vCenter.
#[derive(Debug, Default)]
pub(super) struct Queues {
    vms: Mutex<HashMap<Ref<VirtualMachine>, Arc<VmQueue>>>,
    /// When vCenter refused several volumes in one call although its release should take them.
    singly: Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct VmQueue {
    calls: Semaphore,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<(Change, String, oneshot::Sender<Outcome>)>,
    /// Whether a task works the queue off.
    served: bool,
}

impl VmQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing can panic while it is held.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Carries out a change when it is its turn.
    pub(super) async fn change(
        self: &Arc<Self>,
        connection: &Connection,
        tasks: &TaskTracker,
        vm: &Ref<VirtualMachine>,
        change: Change,
        volume: &str,
    ) -> Outcome {
        let queue = self.of(vm);
        if self.goes_singly() || !connection.volumes().takes_batches().await? {
            // Never closed.
            let _turn = queue.calls.acquire().await.ok();
            return single(connection, vm, change, volume).await;
        }
        let (sender, outcome) = oneshot::channel();
        let serve = {
            let mut waiting = queue.waiting();
            waiting.changes.push_back((change, volume.to_owned(), sender));
            !std::mem::replace(&mut waiting.served, true)
        };
        if serve {
            let (this, connection, vm) = (Arc::clone(self), connection.clone(), vm.clone());
            tasks.spawn(async move { this.serve(&connection, &vm, &queue).await });
        }
        match outcome.await {
            Ok(outcome) => outcome,
            // The process ends.
            Err(_) => single(connection, vm, change, volume).await,
        }
    }

    fn goes_singly(&self) -> bool {
        let since = self.singly.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < SINGLY_FOR)
    }

    fn of(&self, vm: &Ref<VirtualMachine>) -> Arc<VmQueue> {
        let mut vms = self.vms.lock().unwrap_or_else(PoisonError::into_inner);
        // Queues that nobody uses any more.
        vms.retain(|known, queue| known == vm || Arc::strong_count(queue) > 1);
        let new = || VmQueue { calls: Semaphore::new(CALLS_PER_VM), waiting: Mutex::default() };
        Arc::clone(vms.entry(vm.clone()).or_insert_with(|| Arc::new(new())))
    }

    /// Works a queue off until it is empty.
    async fn serve(&self, connection: &Connection, vm: &Ref<VirtualMachine>, queue: &VmQueue) {
        loop {
            let batch = {
                let mut waiting = queue.waiting();
                let batch = next_batch(&mut waiting.changes);
                if batch.is_empty() {
                    waiting.served = false;
                    return;
                }
                batch
            };
            let change = batch[0].0;
            let volumes: Vec<&str> = batch.iter().map(|(_, volume, _)| volume.as_str()).collect();
            let outcomes = self.together(connection, vm, change, &volumes).await;
            for ((_, _, sender), outcome) in batch.into_iter().zip(outcomes) {
                // Whoever gave up waiting does not want to know.
                sender.send(outcome).unwrap_or_default();
            }
        }
    }

    async fn together(
        &self,
        connection: &Connection,
        vm: &Ref<VirtualMachine>,
        change: Change,
        volumes: &[&str],
    ) -> Vec<Outcome> {
        match several(connection, vm, change, volumes).await {
            Ok(outcomes) => outcomes,
            // One volume that vCenter does not know may fail a call for all of them.
            Err(error) if volumes.len() > 1 && error.fault().is_some() => {
                let calls = volumes.iter().map(|volume| single(connection, vm, change, volume));
                let outcomes = join_all(calls).await;
                if outcomes.iter().all(Result::is_ok) {
                    tracing::warn!(%error, "vCenter refused several volumes in one call");
                    let mut since = self.singly.lock().unwrap_or_else(PoisonError::into_inner);
                    *since = Some(Instant::now());
                }
                outcomes
            }
            Err(error) => volumes.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

/// The changes at the head of a queue that are of one kind.
fn next_batch<T>(changes: &mut VecDeque<(Change, String, T)>) -> Vec<(Change, String, T)> {
    let Some(kind) = changes.front().map(|(change, ..)| *change) else { return Vec::new() };
    let same = changes.iter().take_while(|(change, ..)| *change == kind).count();
    changes.drain(..same.min(MOST_IN_A_CALL)).collect()
}

async fn single(
    connection: &Connection,
    vm: &Ref<VirtualMachine>,
    change: Change,
    volume: &str,
) -> Outcome {
    let mut outcomes = several(connection, vm, change, &[volume]).await?;
    outcomes.pop().unwrap_or_else(|| Ok(String::new()))
}

async fn several(
    connection: &Connection,
    vm: &Ref<VirtualMachine>,
    change: Change,
    volumes: &[&str],
) -> Result<Vec<Outcome>, Error> {
    let spec = |volume: &&str| CnsVolumeAttachDetachSpec {
        volume_id: (*volume).into(),
        vm: vm.clone(),
        ..CnsVolumeAttachDetachSpec::default()
    };
    let specs: Vec<_> = volumes.iter().map(spec).collect();
    Ok(match change {
        Change::Attach => {
            let attached = connection.volumes().attach(&specs).await?.wait(HELD_FOR).await?;
            attached.into_iter().map(|one| Ok(one?.disk_uuid)).collect()
        }
        Change::Detach => {
            let detached = connection.volumes().detach(&specs).await?.wait(HELD_FOR).await?;
            detached.into_iter().map(|one| one.map(|_| String::new())).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::{Change, MOST_IN_A_CALL, next_batch};

    #[test]
    fn changes_of_one_kind_go_together_in_the_order_in_which_they_came() {
        let (attach, detach) = (Change::Attach, Change::Detach);
        let mut changes: VecDeque<_> = [(attach, "a"), (attach, "b"), (detach, "c"), (attach, "d")]
            .map(|(change, volume)| (change, volume.to_owned(), ()))
            .into();
        let mut next = || {
            let batch = next_batch(&mut changes);
            batch.into_iter().map(|(_, volume, ())| volume).collect::<Vec<_>>().concat()
        };
        assert_eq!([next(), next(), next(), next()], ["ab", "c", "d", ""]);
    }

    #[test]
    fn a_call_has_a_largest_size() {
        let many = (0..MOST_IN_A_CALL + 1).map(|volume| (Change::Attach, volume.to_string(), ()));
        let mut changes: VecDeque<_> = many.collect();
        assert_eq!(next_batch(&mut changes).len(), MOST_IN_A_CALL);
        assert_eq!(next_batch(&mut changes).len(), 1);
    }
}
