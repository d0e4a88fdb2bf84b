//! Attaching and detaching, VM by VM.
//!
//! vCenter changes the disks of a VM one after the other. Where its release takes several volumes in one call (from
//! 9.1), all that wait for a VM go together, attaching and detaching in the order in which they came. Elsewhere
//! each volume is a call of its own, and the next calls are on their way before the first one has ended, so that
//! vCenter always has work. They go in groups, because tasks that start together are watched with few requests. VMs do
//! not wait for each other.
//!
//! A change whose caller gave up before it was sent is never sent: another process may have been asked for the
//! opposite meanwhile.

use std::{
    collections::{HashMap, VecDeque},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use vsphere::{
    connection::Connection,
    error::Error,
    reference::Ref,
    types::{CnsVolumeAttachDetachSpec, VirtualMachine},
};

use super::HELD_FOR;

/// How long volumes go one by one after vCenter refused several in one call.
const SINGLY_FOR: Duration = Duration::from_secs(600);
/// Calls for one VM that are on their way, where each volume is a call, and how many are left when more are added.
const CALLS_PER_VM: usize = 8;
const FEW_CALLS: usize = 4;
/// How long others wait for a call. One that takes longer goes on, and holds its own volumes only.
const TURN: Duration = Duration::from_secs(300);
/// Volumes of one call; a VM has no more than this free.
const MOST_IN_A_CALL: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Change {
    Attach,
    Detach,
}

/// The UUID of the disk that was attached; empty after detaching.
type Outcome = Result<String, Error>;
/// What waits for its turn, with the caller that waits for the outcome.
type Entry = (Change, String, oneshot::Sender<Outcome>);

/// How the volumes of a group go to vCenter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Together,
    Singly,
}

impl Way {
    /// How many volumes may go while so many calls are on their way.
    fn room(self, calls: usize) -> usize {
        match self {
            Self::Together if calls == 0 => MOST_IN_A_CALL,
            Self::Singly if calls <= FEW_CALLS => CALLS_PER_VM - calls,
            _ => 0,
        }
    }
}

/// The queues of all VMs of a vCenter.
#[derive(Debug, Default)]
pub(super) struct Queues {
    vms: Mutex<HashMap<Ref<VirtualMachine>, Arc<VmQueue>>>,
    /// When vCenter refused several volumes in one call although its release should take them.
    singly: Mutex<Option<Instant>>,
}

/// What waits for one VM.
#[derive(Debug, Default)]
struct VmQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<Entry>,
    /// Calls that are on their way.
    calls: usize,
}

impl VmQueue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing can panic while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what may go now; its calls are on their way then.
    fn next_group(&self, way: Way) -> Vec<Entry> {
        let mut waiting = self.waiting();
        let room = way.room(waiting.calls);
        let group = next_batch(&mut waiting.changes, room);
        waiting.calls += match way {
            Way::Together => usize::from(!group.is_empty()),
            Way::Singly => group.len(),
        };
        group
    }

    /// Takes a change out that was not sent yet; no other one of its volume waits.
    fn withdraw(&self, change: Change, volume: &str) -> bool {
        let mut waiting = self.waiting();
        let before = waiting.changes.len();
        waiting.changes.retain(|(kind, id, _)| (*kind, id.as_str()) != (change, volume));
        waiting.changes.len() < before
    }

    fn call_ended(&self) {
        self.waiting().calls -= 1;
    }
}

/// Carries out the changes of one VM.
#[derive(Debug, Clone)]
struct Server {
    queues: Arc<Queues>,
    queue: Arc<VmQueue>,
    connection: Connection,
    vm: Ref<VirtualMachine>,
    tasks: TaskTracker,
    way: Way,
}

impl Server {
    /// Starts what may go now. Each call that ends starts what may go then.
    fn start(&self) {
        let group = self.queue.next_group(self.way);
        let calls: Vec<Vec<Entry>> = match self.way {
            _ if group.is_empty() => return,
            Way::Together => vec![group],
            Way::Singly => group.into_iter().map(|entry| vec![entry]).collect(),
        };
        for call in calls {
            let this = self.clone();
            self.tasks.spawn(async move {
                let mut call = pin!(this.call(call));
                let ended = timeout(TURN, &mut call).await.is_ok();
                this.queue.call_ended();
                this.start();
                if !ended {
                    call.await;
                }
            });
        }
    }

    /// One call, of which all callers get their outcomes.
    async fn call(&self, group: Vec<Entry>) {
        let Some(change) = group.first().map(|(change, ..)| *change) else { return };
        let volumes: Vec<&str> = group.iter().map(|(_, volume, _)| volume.as_str()).collect();
        let outcomes = self.queues.together(&self.connection, &self.vm, change, &volumes).await;
        for ((_, _, sender), outcome) in group.into_iter().zip(outcomes) {
            // Whoever gave up waiting does not want to know.
            sender.send(outcome).unwrap_or_default();
        }
    }
}

impl Queues {
    /// Carries out a change when it is its turn; not at all if its caller gives up before that.
    pub(super) async fn change(
        self: &Arc<Self>,
        connection: &Connection,
        tasks: &TaskTracker,
        vm: &Ref<VirtualMachine>,
        change: Change,
        volume: &str,
        caller: &CancellationToken,
    ) -> Option<Outcome> {
        let queue = self.of(vm);
        let takes_batches = match connection.volumes().takes_batches().await {
            Ok(takes_batches) => takes_batches,
            Err(error) => return Some(Err(error)),
        };
        let singly = self.goes_singly() || !takes_batches;
        let way = if singly { Way::Singly } else { Way::Together };
        let (sender, mut outcome) = oneshot::channel();
        queue.waiting().changes.push_back((change, volume.to_owned(), sender));
        let server = Server {
            queues: Arc::clone(self),
            queue: Arc::clone(&queue),
            connection: connection.clone(),
            vm: vm.clone(),
            tasks: tasks.clone(),
            way,
        };
        server.start();
        let outcome = tokio::select! {
            biased;
            outcome = &mut outcome => outcome,
            () = caller.cancelled() => {
                if queue.withdraw(change, volume) {
                    return None;
                }
                outcome.await
            }
        };
        // Without an outcome the process ends.
        outcome.ok()
    }

    fn goes_singly(&self) -> bool {
        let since = self.singly.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_some_and(|since| since.elapsed() < SINGLY_FOR)
    }

    fn of(&self, vm: &Ref<VirtualMachine>) -> Arc<VmQueue> {
        let mut vms = self.vms.lock().unwrap_or_else(PoisonError::into_inner);
        // Queues that nobody uses any more.
        vms.retain(|known, queue| known == vm || Arc::strong_count(queue) > 1);
        Arc::clone(vms.entry(vm.clone()).or_default())
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

/// The changes at the head of a queue that are of one kind, but not more than `most`.
fn next_batch<T>(
    changes: &mut VecDeque<(Change, String, T)>,
    most: usize,
) -> Vec<(Change, String, T)> {
    let Some(kind) = changes.front().map(|(change, ..)| *change) else { return Vec::new() };
    let same = changes.iter().take_while(|(change, ..)| *change == kind).count();
    changes.drain(..same.min(most)).collect()
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

    use tokio::sync::oneshot;

    use super::{CALLS_PER_VM, Change, FEW_CALLS, MOST_IN_A_CALL, VmQueue, Way, next_batch};

    #[test]
    fn changes_of_one_kind_go_together_in_the_order_in_which_they_came() {
        let (attach, detach) = (Change::Attach, Change::Detach);
        let mut changes: VecDeque<_> = [(attach, "a"), (attach, "b"), (detach, "c"), (attach, "d")]
            .map(|(change, volume)| (change, volume.to_owned(), ()))
            .into();
        let mut next = || {
            let batch = next_batch(&mut changes, MOST_IN_A_CALL);
            batch.into_iter().map(|(_, volume, ())| volume).collect::<Vec<_>>().concat()
        };
        assert_eq!([next(), next(), next(), next()], ["ab", "c", "d", ""]);
    }

    #[test]
    fn a_call_has_a_largest_size() {
        let many = (0..MOST_IN_A_CALL + 1).map(|volume| (Change::Attach, volume.to_string(), ()));
        let mut changes: VecDeque<_> = many.collect();
        assert_eq!(next_batch(&mut changes, MOST_IN_A_CALL).len(), MOST_IN_A_CALL);
        assert_eq!(next_batch(&mut changes, MOST_IN_A_CALL).len(), 1);
    }

    #[test]
    fn where_each_volume_is_a_call_vcenter_always_has_some_and_gets_several_at_once() {
        let queue = VmQueue::default();
        let enter = |count: usize| {
            let new = |volume: usize| (Change::Attach, volume.to_string(), oneshot::channel().0);
            queue.waiting().changes.extend((0..count).map(new));
        };
        enter(1);
        assert_eq!(queue.next_group(Way::Singly).len(), 1, "the first one goes at once");
        enter(20);
        assert_eq!(queue.next_group(Way::Singly).len(), CALLS_PER_VM - 1);
        for left in (1..CALLS_PER_VM).rev() {
            let none = if left == FEW_CALLS { CALLS_PER_VM - FEW_CALLS } else { 0 };
            queue.call_ended();
            assert_eq!(queue.next_group(Way::Singly).len(), none, "{left} calls are left");
            if none > 0 {
                break;
            }
        }
    }

    #[test]
    fn where_a_call_takes_several_volumes_there_is_one_at_a_time() {
        let queue = VmQueue::default();
        let new = |volume: usize| (Change::Attach, volume.to_string(), oneshot::channel().0);
        queue.waiting().changes.extend((0..100).map(new));
        assert_eq!(queue.next_group(Way::Together).len(), MOST_IN_A_CALL);
        assert_eq!(queue.next_group(Way::Together).len(), 0);
        queue.call_ended();
        assert_eq!(queue.next_group(Way::Together).len(), 100 - MOST_IN_A_CALL);
    }

    #[test]
    fn a_change_is_withdrawn_only_before_it_is_sent() {
        let queue = VmQueue::default();
        let new = |volume: &str| (Change::Detach, volume.to_owned(), oneshot::channel().0);
        queue.waiting().changes.extend(["a", "b"].map(new));
        assert!(queue.withdraw(Change::Detach, "b") && !queue.withdraw(Change::Detach, "b"));
        assert!(!queue.withdraw(Change::Attach, "a"));
        assert_eq!(queue.next_group(Way::Singly).len(), 1);
        assert!(!queue.withdraw(Change::Detach, "a"), "it is on its way");
    }
}
