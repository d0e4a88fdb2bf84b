//! What vCenter recorded of VMs that do not exist any more: destroyed, or only removed from the inventory.
//!
//! Nothing else distinguishes the two. The event of a removed VM is the same for both, and an object that is gone
//! has no properties; but vCenter keeps the task of each, by the reference of its VM, which is never used again.
//! Only a task that succeeded, on the VM itself, proves something. VMs that were removed with a host or a folder, or
//! moved to another vCenter, leave no such task of their own: nothing is reported of them, and nothing may be
//! concluded.
//!
//! Tasks are selected by time, because a filter by entity needs one that exists, and the newest part of the past is
//! read first: a busy vCenter records ten thousand tasks a day, and most removals are recent.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::{
    connection::Connection,
    error::{Cause, Error},
    reference::Ref,
    types::{
        CreateCollectorForTasks, DestroyCollector, ReadNextTasks, TaskFilterSpec,
        TaskFilterSpecByTime, TaskFilterSpecTimeOption, TaskHistoryCollector, TaskInfo,
        TaskInfoState, VirtualMachine,
    },
    xml::Method,
};

/// Tasks of one page; vCenter refuses more than a thousand.
const PAGE: i32 = 1000;
/// Pages that are read for one question; [`Cause::TooManyTasks`] has the number of their tasks.
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

/// How each VM was removed: `None` if nothing is recorded within its time, an error if that was not read to its
/// beginning.
pub type Removals = HashMap<Ref<VirtualMachine>, Result<Option<Removal>, Error>>;

impl History<'_> {
    /// How these VMs were removed, each as far as that was within its time until now and the user sees it.
    pub async fn removals(self, vms: &[(Ref<VirtualMachine>, SignedDuration)]) -> Removals {
        let mut search = Search::default();
        if let Err(error) = self.search(vms, &mut search).await {
            for (vm, _) in vms {
                search.answers.entry(vm.clone()).or_insert_with(|| Err(error.clone()));
            }
        }
        search.answers
    }

    async fn search(
        self,
        vms: &[(Ref<VirtualMachine>, SignedDuration)],
        search: &mut Search,
    ) -> Result<(), Error> {
        // By vCenter's clock, which need not be ours.
        let now = self.connection.time().await?;
        let since = vms.iter().map(|(vm, within)| (vm.clone(), before(now, *within)));
        search.since = since.collect();
        let (mut end, mut part) = (None, FIRST_PART);
        while let Some(&earliest) = search.since.values().min() {
            let begin = before(end.unwrap_or(now), part).max(earliest);
            self.read(begin, end, search).await?;
            let read = search.since.extract_if(|_, since| *since >= begin);
            search.answers.extend(read.map(|(vm, _)| (vm, Ok(None))));
            (end, part) = (Some(begin), part.saturating_mul(FACTOR));
        }
        Ok(())
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
        let session = self.connection.established().await?;
        let manager = session.content.task_manager.clone();
        let manager = manager.unwrap_or_else(|| Ref::new("TaskManager"));
        let create = CreateCollectorForTasks { filter };
        let held = self.connection.hold(&session, &manager, create, DestroyCollector {}).await?;
        let collector = Ref::<TaskHistoryCollector>::new(held.on().value());
        let failed = |cause| self.connection.wire().error(ReadNextTasks::NAME, cause);
        while search.next_page().map_err(failed)? {
            let page = self.connection.call(&collector, &ReadNextTasks { max_count: PAGE }).await?;
            if page.is_empty() {
                break;
            }
            page.iter().for_each(|task| search.take(task));
        }
        Ok(())
    }
}

/// What is looked for and what was found.
#[derive(Default)]
struct Search {
    /// The VMs without an answer yet, and since when they may have been removed.
    since: HashMap<Ref<VirtualMachine>, Timestamp>,
    answers: Removals,
    /// How many pages were read.
    pages: usize,
}

impl Search {
    /// Whether another page is to be read, unless too many were.
    fn next_page(&mut self) -> Result<bool, Cause> {
        if self.since.is_empty() {
            return Ok(false);
        }
        self.pages += 1;
        if self.pages > MOST_PAGES { Err(Cause::TooManyTasks) } else { Ok(true) }
    }

    fn take(&mut self, task: &TaskInfo) {
        let Some((vm, removal)) = removal(task) else { return };
        let since = self.since.get(&vm);
        if since.is_some_and(|since| task.complete_time.is_none_or(|at| at >= *since)) {
            self.since.remove(&vm);
            self.answers.insert(vm, Ok(Some(removal)));
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
