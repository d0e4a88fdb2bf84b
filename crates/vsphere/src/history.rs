//! What vCenter recorded of VMs that do not exist any more: destroyed, or only removed from the inventory.
//!
//! Nothing else distinguishes the two. The event of a removed VM is the same for both, and an object that is gone
//! has no properties; but vCenter keeps the task of each, by the reference of its VM, which is never used again.
//! Only a task that succeeded, on the VM itself, proves something. VMs that were removed with a host or a folder, or
//! moved to another vCenter, leave no such task of their own: nothing is reported of them, and nothing may be
//! concluded.
//!
//! Tasks are selected by time, because a filter by entity needs one that exists, and the newest part of the past is
//! read first: a busy vCenter records ten thousand tasks a day, and most removals are recent. A session has few
//! collectors, so each is destroyed after use, whatever happened.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    connection::Connection,
    error::Error,
    reference::Ref,
    types::{
        CreateCollectorForTasks, DestroyCollector, ReadNextTasks, TaskFilterSpec,
        TaskFilterSpecByTime, TaskFilterSpecTimeOption, TaskHistoryCollector, TaskInfo,
        TaskInfoState, TaskManager, VirtualMachine,
    },
};

/// Tasks of one page; vCenter refuses more than a thousand.
const PAGE: i32 = 1000;
/// Pages that are read for one question.
const MOST_PAGES: usize = 200;
/// The part of the past that is read first. Each earlier part is longer than the one before by the factor.
const FIRST_PART: SignedDuration = SignedDuration::from_mins(30);
const FACTOR: i32 = 4;

/// How a VM was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// With its disks.
    Destroyed,
    /// From the inventory only: it may come back.
    Unregistered,
}

/// The records of one vCenter.
#[derive(Debug, Clone, Copy)]
pub struct History<'a> {
    connection: &'a Connection,
}

impl Connection {
    /// What vCenter recorded.
    pub fn history(&self) -> History<'_> {
        History { connection: self }
    }
}

impl History<'_> {
    /// How these VMs were removed, each as far as that was within its time until now and the user sees it. VMs
    /// that nothing is recorded of are not in the answer.
    ///
    /// Await it to its end: a collector that is left to its session is one less for all its users.
    pub async fn removals(
        self,
        vms: &[(Ref<VirtualMachine>, SignedDuration)],
    ) -> Result<HashMap<Ref<VirtualMachine>, Removal>, Error> {
        if vms.is_empty() {
            return Ok(HashMap::new());
        }
        // By vCenter's clock, which need not be ours.
        let now = self.connection.time().await?;
        let since = vms.iter().map(|(vm, within)| (vm.clone(), before(now, *within))).collect();
        let mut search = Search { since, found: HashMap::new(), pages: MOST_PAGES };
        let (mut end, mut part) = (None, FIRST_PART);
        while let Some(earliest) = search.earliest(end) {
            let begin = before(end.unwrap_or(now), part).max(earliest);
            self.read(begin, end, &mut search).await?;
            (end, part) = (Some(begin), part.saturating_mul(FACTOR));
        }
        Ok(search.found)
    }

    /// Reads one part of the past.
    async fn read(
        self,
        begin: Timestamp,
        end: Option<Timestamp>,
        search: &mut Search,
    ) -> Result<(), Error> {
        let time = TaskFilterSpecByTime {
            time_type: TaskFilterSpecTimeOption::CompletedTime,
            begin_time: Some(begin),
            end_time: end,
        };
        let filter = TaskFilterSpec { time: Some(time), state: vec![TaskInfoState::Success] };
        let manager = self.connection.content().await?.task_manager;
        let manager = manager.unwrap_or_else(|| Ref::<TaskManager>::new("TaskManager"));
        let collector = self.connection.call(&manager, &CreateCollectorForTasks { filter }).await?;
        let read = self.read_pages(&collector, search).await;
        // It ends with the session in any case; a failure to end it earlier is not a failure to read.
        if let Err(error) = self.connection.call(&collector, &DestroyCollector {}).await {
            tracing::debug!(%error, "task history collector not destroyed");
        }
        read
    }

    async fn read_pages(
        self,
        collector: &Ref<TaskHistoryCollector>,
        search: &mut Search,
    ) -> Result<(), Error> {
        while search.pages > 0 && !search.since.is_empty() {
            search.pages -= 1;
            let page = self.connection.call(collector, &ReadNextTasks { max_count: PAGE }).await?;
            if page.is_empty() {
                break;
            }
            page.iter().for_each(|task| search.take(task));
        }
        Ok(())
    }
}

/// What is looked for and what was found.
struct Search {
    /// The VMs of which nothing was found yet, and since when they may have been removed.
    since: HashMap<Ref<VirtualMachine>, Timestamp>,
    found: HashMap<Ref<VirtualMachine>, Removal>,
    /// How many pages may still be read.
    pages: usize,
}

impl Search {
    /// The earliest time that is still of interest, if it is before what was read.
    fn earliest(&self, end: Option<Timestamp>) -> Option<Timestamp> {
        let earliest = self.since.values().min().copied()?;
        (self.pages > 0 && end.is_none_or(|end| earliest < end)).then_some(earliest)
    }

    fn take(&mut self, task: &TaskInfo) {
        let Some((vm, removal)) = removal(task) else { return };
        let since = self.since.get(&vm);
        if since.is_some_and(|since| task.complete_time.is_none_or(|at| at >= *since)) {
            self.since.remove(&vm);
            self.found.insert(vm, removal);
        }
    }
}

fn before(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

/// The VM that a task removed, and how.
fn removal(task: &TaskInfo) -> Option<(Ref<VirtualMachine>, Removal)> {
    // The filter selects them already; a server that ignored it must not lead to the deletion of what exists.
    if task.state != TaskInfoState::Success {
        return None;
    }
    let removal = match task.description_id.as_str() {
        "VirtualMachine.destroy" => Removal::Destroyed,
        "VirtualMachine.unregister" => Removal::Unregistered,
        _ => return None,
    };
    Some((task.entity.as_ref()?.cast()?, removal))
}
